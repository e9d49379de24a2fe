"""Completion as shells ask for it; bash is driven with its own variables."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.captures import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


def script(shell: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gputrace", "--show-completion", shell],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )
    return done.stdout


@pytest.fixture(scope="module")
def on_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `gputrace` that is this checkout's, and the script that bash reads."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "gputrace"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gputrace "$@"\n')
    command.chmod(0o755)
    (folder / "completion.bash").write_text(script("bash"))
    return folder


def bash_offers(on_path: Path, *words: str) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    driver = f"""
        source {on_path}/completion.bash
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        "$(complete -p gputrace | sed 's/.*-F \\([^ ]*\\).*/\\1/')" gputrace
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**ENVIRONMENT, "PATH": f"{on_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", driver], capture_output=True, text=True, check=True, env=environment, cwd=on_path
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gputrace", "re"), {"report", "record"}),
        (("gputrace", "report", "--ht"), {"--html"}),
        (("gputrace", "formats", ""), {"list", "check"}),
        (("gputrace", "what-if", "x", "--scenario", "pinned"), {"pinned-h2d"}),
        (("gputrace", "what-if", "x", "--scenario", "pinned-h2d+wo"), {"pinned-h2d+workers="}),
        (("gputrace", "simulate", "page"), {"pageable"}),
        (("gputrace", "report", "--color", "a"), {"auto", "always"}),
        # Files are left to the shell.
        (("gputrace", "report", "x"), set()),
    ],
)
def test_bash(on_path: Path, words: tuple[str, ...], expected: set[str]) -> None:
    assert set(bash_offers(on_path, *words)) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_protocol_of_other_shells(shell: str) -> None:
    assert "gputrace" in script(shell) and f"_GPUTRACE_COMPLETE=complete_{shell}" in script(shell)
    asked = {
        **ENVIRONMENT,
        "_GPUTRACE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "gputrace what-if x --scenario no-",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run([sys.executable, "-m", "gputrace"], capture_output=True, text=True, check=True, env=asked)
    assert "no-barrier" in done.stdout and "no-release" in done.stdout
    assert "upper-bound" not in done.stdout


@pytest.mark.parametrize(
    "line", ["gputrace what-if x --scenario p", "gputrace simulate p", "gputrace report --color a"]
)
def test_completion_loads_nothing_slow(line: str) -> None:
    program = (
        "import sys\nfrom gputrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('polars', 'scipy', 'altair', 'textual') if m in sys.modules], file=sys.stderr)"
    )
    asked = {**ENVIRONMENT, "_GPUTRACE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=asked)
    assert done.stdout.strip()
    assert done.stderr.strip() == "[]"
