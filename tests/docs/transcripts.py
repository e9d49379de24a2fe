"""`console` blocks of the manual: commands after `$`, then what they print. They are run as a reader would run them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.captures import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_END = "--- end of a command ---"


def typed(block: str) -> Iterator[str]:
    """The commands of one block."""
    for line in block.splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


class Session:
    """One shell in one folder with `sample_logs` in it; pages are run in it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sample_logs").symlink_to(ROOT / "sample_logs")
        tools = folder / ".bin"
        tools.mkdir()
        command = tools / "gputrace"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gputrace "$@"\n')
        command.chmod(0o755)
        plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "80", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        self._environment = {**os.environ, **plain, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run(self, commands: list[str]) -> list[str]:
        """What each command prints, stdout and stderr together; `$?` of the one before is known to the next."""
        script = "".join(f"{command}\n(code=$?; echo '{_END}'; exit $code)\n" for command in commands)
        ran = subprocess.run(
            ["bash"], input=script, text=True, cwd=self.folder, env=self._environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return ran.stdout.split(f"{_END}\n")[:-1]

    def replayed(self, page: str) -> str:
        """A page with all its console blocks as they come out now."""
        blocks = BLOCK.findall(page)
        commands = [command for block in blocks for command in typed(block)]
        printed = iter(self.run(commands))
        anew = ("".join(f"$ {command}\n{next(printed)}" for command in typed(block)) for block in blocks)
        return BLOCK.sub(lambda _: f"```console\n{next(anew)}```", page)
