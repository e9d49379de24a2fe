"""What is said where the command line itself is wrong: one line, and what was probably meant."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from gputrace.commands.examples import EXAMPLES
from gputrace.errors import UsageError
from gputrace.nearest import nearest

# The base of every error about usage, wherever this version of typer keeps it.
TyperUsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Commands(TyperGroup):
    """A group that says which command was probably meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class does; raises `UsageError` where there is no such command."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise UsageError(_no_command(name, self.list_commands(ctx), ctx.command_path))
        return super().resolve_command(ctx, args)


def _no_command(name: str, known: Iterable[str], path: str) -> str:
    near = nearest(name, known)
    if near is not None:
        return f"no command {name!r}; did you mean '{path} {near}'?"
    if Path(name).exists():
        return f"{name!r} is no command but a file or folder; did you mean '{path} report {name}'?"
    return f"no command {name!r}; '{path} --help' lists them"


def help_asked_for(error: Exception) -> str | None:
    """The help that a group shows when it is named alone; None for every other error."""
    return str(error) if type(error).__name__ == "NoArgsIsHelpError" else None


def usage_message(error: Exception, arguments: list[str]) -> str:
    """A usage error of typer in the words of gputrace: what is wrong, what was meant, an example, where help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "gputrace"
    if " " not in path and arguments and arguments[0] in EXAMPLES:
        # Where an option lacks its value, typer does not say of which command.
        path = f"gputrace {arguments[0]}"
    command = path.partition(" ")[2]
    parameter = getattr(error, "param", None)
    if hasattr(error, "possibilities") and hasattr(error, "option_name"):
        said = _no_option(error.option_name, context, command)
    elif parameter is not None and type(error).__name__ == "MissingParameter":
        said = f"{command or 'gputrace'} needs {_named(parameter)}{_about(parameter)}"
        said += f"\nusage: {path} {_required(context)}"
        said += f"\nexample: {EXAMPLES[command][0]}" if command in EXAMPLES else ""
    else:
        text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
        said = re.sub(r"^(Invalid value for|Option|Got|No|Missing)\b", lambda found: found[0].lower(), text)
        said = said.replace("is not in the range x>=", "must be at least ").replace(".0", "")
    return f"{said}\ntry '{path} --help'"


def _no_option(name: str, context: Any, command: str) -> str:
    own = _options(context.command) if context is not None else []
    commands = getattr(context.command, "commands", {}) if context is not None else {}
    having = [f"'{context.command_path} {sub}'" for sub, it in commands.items() if name in _options(it)]
    if having:
        return f"no option {name!r} here; it goes after {', '.join(having)}"
    near = nearest(name, own)
    if near is not None:
        return f"no option {name!r}; did you mean {near!r}?"
    return f"no option {name!r} of {command or 'gputrace'}"


def _options(command: Any) -> list[str]:
    return [option for parameter in command.params for option in parameter.opts if option.startswith("-")] + ["--help"]


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).strip(".")
    return f"{parameter.opts[-1]} {parameter.metavar or ''}".strip()


def _about(parameter: Any) -> str:
    text = getattr(parameter, "help", None)
    return f": {text}" if text else ""


def _required(context: Any) -> str:
    """What a command cannot do without, as it is written."""
    parts = []
    for parameter in context.command.params:
        if parameter.required:
            many = "..." if parameter.nargs == -1 else ""
            parts.append(_named(parameter) + many)
    return " ".join(parts)
