"""Text that others wrote (log lines, job ids, paths) made safe to show in a terminal.

A log may hold escape sequences that recolour, erase or retitle a terminal, carriage returns that hide what was
written, and marks that turn the direction of text around. None of them may reach a terminal raw.
"""

import unicodedata
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

# Controls, formats (bidirectional overrides, zero width), surrogates, unassigned, and separators of lines.
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Cn", "Zl", "Zp"))


def printable(text: str) -> str:
    """The text with every character that could act on a terminal written as an escape, as `\\x1b` or `\\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _UNSAFE else c for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def printable_values(value: Value) -> Value:
    """The value with every text in it printable: in dataclasses, tuples, lists and dicts; frames are left alone."""
    return cast(Value, _printable_value(value))


def _printable_value(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return type(value)(_printable_value(item) for item in value)
    if isinstance(value, dict):
        return {_printable_value(key): _printable_value(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        made = [field.name for field in fields(value) if field.init]
        changed = {name: _printable_value(getattr(value, name)) for name in made}
        return replace(value, **{name: new for name, new in changed.items() if new is not getattr(value, name)})
    return value
