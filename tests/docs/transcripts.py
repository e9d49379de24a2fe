"""`console` blocks of the manual: commands after `$`, then what they print. They are run as a reader would run them."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from gputrace.cli import main
from tests.captures import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


def typed(block: str) -> Iterator[str]:
    """The commands of one block."""
    for line in block.splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


class Session:
    """One folder with `sample_logs` in it, in which pages are run one after the other.

    `gputrace` itself is called in this process, which saves its imports; all else is left to a shell.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._code = 0
        (folder / "sample_logs").symlink_to(ROOT / "sample_logs")

    def run(self, command: str) -> str:
        """What a command prints, stdout and stderr together; `$?` of the one before is known to the next."""
        if command.startswith("gputrace "):
            return self._gputrace(command)
        script = f"(exit {self._code})\n{command}\n"
        ran = subprocess.run(
            ["bash", "-c", script], text=True, cwd=self.folder, env={**os.environ, "LC_ALL": "C.UTF-8"}, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._code = ran.returncode
        return ran.stdout

    def _gputrace(self, command: str) -> str:
        words = shlex.split(command)
        screen = io.StringIO()
        target = words[words.index(">") + 1] if ">" in words else None
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.chdir(self.folder))
            stdout = screen if target is None else stack.enter_context(Path(target).open("w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(stdout))
            stack.enter_context(contextlib.redirect_stderr(screen))
            stack.enter_context(mock.patch.object(sys, "argv", words[: words.index(">")] if target else words))
            self._code = 0
            try:
                main()
            except SystemExit as ended:
                self._code = int(ended.code or 0)
        return screen.getvalue()

    def replayed(self, page: str) -> str:
        """A page with all its console blocks as they come out now."""
        blocks = BLOCK.findall(page)
        anew = ("".join(f"$ {command}\n{self.run(command)}" for command in typed(block)) for block in blocks)
        return BLOCK.sub(lambda _: f"```console\n{next(anew)}```", page)
