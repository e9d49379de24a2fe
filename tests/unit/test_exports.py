"""The public surface is this list; everything else may change."""

import importlib.metadata
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import gputrace
from gputrace import errors
from gputrace.cli import app

PUBLIC = [
    "Comparison",
    "Diagnosis",
    "GateError",
    "GputraceError",
    "HypothesisFinding",
    "InputError",
    "Outlook",
    "Regime",
    "Thresholds",
    "Trace",
    "TraceOptions",
    "UsageError",
    "WhatIf",
    "__version__",
    "analyze",
    "charts",
    "compare",
    "load",
    "part",
    "report",
    "schema",
    "what_if",
]
FUNCTIONS = [name for name in PUBLIC if inspect.isfunction(getattr(gputrace, name))]


# Typer brings the classes of its commands itself in some versions and takes click's in others: their shape is the same.
def commands(command: Any, path: str = "gputrace") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_the_public_names_are_the_listed_ones() -> None:
    assert sorted(gputrace.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(gputrace, name)
    assert name in dir(gputrace)
    if not isinstance(value, str):
        # A data class without a docstring would have its own signature as one.
        assert len(inspect.getdoc(value) or "") > 20 and not (value.__doc__ or "").startswith(f"{name}(")


def test_the_functions_are_these() -> None:
    assert sorted(FUNCTIONS) == ["analyze", "charts", "compare", "load", "part", "report", "what_if"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_and_error_of_a_public_function_is_documented(name: str) -> None:
    function = getattr(gputrace, name)
    told = inspect.getdoc(function) or ""
    assert "Parameters:" in told and "Raises `" in told
    listed = re.findall(r"^ {4}(\w[\w, ]*):", told.split("Parameters:")[1], flags=re.MULTILINE)
    assert [own for line in listed for own in line.split(", ")] == list(inspect.signature(function).parameters)


def test_a_lazy_name_is_the_thing_itself() -> None:
    from gputrace import schema
    from gputrace.analysis.diagnosis import Diagnosis
    from gputrace.api import analyze

    assert gputrace.schema is schema and gputrace.Diagnosis is Diagnosis and gputrace.analyze is analyze


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = gputrace.no_such_name


def test_the_version_is_the_installed_one() -> None:
    assert gputrace.__version__ == importlib.metadata.version("gputrace")


def test_the_command_line_tells_the_version() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gputrace", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(gputrace.__file__).parents[1],
    )
    assert ran.stdout.strip() == gputrace.__version__


def test_the_package_is_typed() -> None:
    assert (Path(gputrace.__file__).parent / "py.typed").is_file()


def test_the_commands_are_these_at_least() -> None:
    assert {"gputrace report", "gputrace formats", "gputrace formats list", "gputrace formats check"} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    command = COMMANDS[path]
    assert command.help and command.help.strip()
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path}: {parameter.name}"


def test_every_error_has_an_exit_code_and_is_one_of_ours() -> None:
    found = {
        name: value.exit_code
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.GputraceError)
    }
    assert found == {
        "GputraceError": 1,
        "InputError": 3,
        "UsageError": 2,
        "GateError": 4,
        "RecordingError": 5,
        "ClusterError": 6,
        "BrokenInstallError": 1,
    }
