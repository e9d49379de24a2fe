"""What the command line says to who does not know it yet, and to who mistypes."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from typer.main import get_command

from gputrace.cli import app, main
from gputrace.commands.examples import EXAMPLES, GUIDE
from tests.captures import ROOT


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line as it is run, in this process."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")

    def called(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["gputrace", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, *capsys.readouterr())

    return called


def test_without_arguments_it_says_what_to_do_first(run: Run) -> None:
    done = run()
    assert done == Done(0, GUIDE, "")
    assert max(map(len, GUIDE.splitlines())) <= 88
    for command in ("report", "record", "live", "simulate"):
        assert f"gputrace {command} " in GUIDE


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("reprot x", 2, "no command 'reprot'; did you mean 'gputrace report'?"),
        ("whatif x", 2, "did you mean 'gputrace what-if'?"),
        ("zzz", 2, "no command 'zzz'; 'gputrace --help' lists them"),
        ("sample_logs", 2, "did you mean 'gputrace report sample_logs'?"),
        ("formats lst", 2, "did you mean 'gputrace formats list'?"),
        ("report --htlm x y", 2, "no option '--htlm'; did you mean '--html'?"),
        ("--json x", 2, "it goes after 'gputrace report'"),
        ("report x --gap-ms", 2, "option '--gap-ms' requires an argument"),
        ("report x --gap-ms 0", 2, "--gap-ms"),
        ("report x --color blue", 2, "--color blue: must be one of auto, always, never"),
        ("report", 2, "report needs INPUT"),
        ("compare before", 2, "compare needs AFTER"),
        ("simulate pageable", 2, "simulate needs --output CAPTURE"),
        ("simulate pagable -o new", 2, "did you mean 'pageable'?"),
        ("what-if sample_logs --scenario pined-h2d", 2, "did you mean pinned-h2d?"),
        ("report sample_logs/told-stori", 3, "did you mean 'sample_logs/told-story'?"),
        ("report sample_log/told-story", 3, "the folder sample_log is not there; did you mean 'sample_logs'?"),
        ("live", 2, "gputrace live capture/"),
    ],
)
def test_errors_say_what_was_meant(run: Run, arguments: str, code: int, said: str) -> None:
    done = run(*arguments.split())
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("gputrace: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr and "Usage:" not in done.stderr


@pytest.mark.parametrize("command", ["report", "what-if", "compare", "export", "simulate", "formats check"])
def test_what_is_left_out_comes_with_usage_and_an_example(run: Run, command: str) -> None:
    lines = run(*command.split()).stderr.splitlines()
    assert lines[0].startswith(f"gputrace: {command} needs ")
    assert lines[1].startswith(f"usage: gputrace {command} ")
    assert lines[2] == f"example: {EXAMPLES[command][0]}"
    assert lines[3] == f"try 'gputrace {command} --help'"


def test_every_command_has_examples() -> None:
    own = {command.name or "" for command in app.registered_commands} | {"formats", "formats list", "formats check"}
    assert own == set(EXAMPLES)


@pytest.mark.parametrize("command", ["", *sorted(EXAMPLES)])
def test_help_holds_at_80_columns_and_ends_with_examples(run: Run, command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    if command:
        shown = [line.strip() for line in done.stdout.rstrip().splitlines()][-len(EXAMPLES[command]) :]
        assert shown == list(EXAMPLES[command])
    else:
        # No summary is cut short.
        assert "..." not in done.stdout.split("Commands:")[1]


@pytest.mark.parametrize("example", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_examples_are_understood(example: str) -> None:
    """They are parsed, not run: options that do not exist or values that are missing would be errors."""
    words = shlex.split(example.partition("|")[0])
    assert words[0] == "gputrace"
    command: Any = get_command(app)
    arguments = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    context = command.make_context("gputrace", arguments)
    assert bool(context.params) == bool(command.params)
    context.close()
