"""docs/commands.md, from what each command says when it is asked with --help."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from gputrace import errors
from gputrace.cli import app

_WIDTH = "80"

HEAD = """# Commands

What `gputrace COMMAND --help` says, with examples (made by `make docs-generated`). Of a FILE that is written, `-` is
stdout; of one that is read, stdin. Files are only overwritten with `--force`.
"""
EXIT_CODES = """
## Exit codes

| code | means |
|---|---|
"""
TAIL = """
`gputrace record -- COMMAND` passes on the command's own code (128 + N after signal N). A message is one line on stderr
that says what is wrong, where (file and line), and what to do about it.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """(words after `gputrace`, command) of every command; groups only by what they hold."""
    yield from _below(get_command(app), ())


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for name, child in inner.items():
        yield from _below(child, (*words, name))


def help_text(words: str) -> str:
    """What a command prints for --help, 80 columns wide and without colours."""
    plain = {"COLUMNS": _WIDTH, "TERMINAL_WIDTH": _WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    shown = CliRunner(env=plain).invoke(app, [*words.split(), "--help"], prog_name="gputrace")
    return "\n".join(line.rstrip() for line in shown.output.strip("\n").splitlines())


def page() -> str:
    """The document."""
    parts = [HEAD]
    for words, _ in commands():
        parts.append(f"\n## {words}\n\n```text\n{help_text(words)}\n```\n")
    return "".join(parts) + _exit_codes()


def _exit_codes() -> str:
    """Done, a bug, and what the errors say of themselves."""
    said: dict[int, str] = {0: "done", 1: "a bug, or an install that lacks files of its own"}
    for error in (errors.UsageError, errors.InputError, errors.GateError, errors.RecordingError):
        meaning = " ".join((error.__doc__ or "").split()).rstrip(".")
        said[error.exit_code] = meaning[0].lower() + meaning[1:]
    return EXIT_CODES + "".join(f"| {code} | {said[code]} |\n" for code in sorted(said)) + TAIL
