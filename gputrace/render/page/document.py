"""What every page of HTML is made with: templates that escape, our own text put in unchanged, scripts known by hash."""

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gputrace.render import units
from gputrace.render.page.signs import minus


def environment(templates: Path, colours: dict[str, Any]) -> Environment:
    """Jinja over a folder of templates, with the filters that say quantities."""
    made = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.policies["json.dumps_kwargs"] = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False}
    filters: dict[str, Callable[..., Any]] = {
        "seconds": units.seconds,
        "milliseconds": units.milliseconds,
        "share": units.share,
        "rate": units.rate,
        "size": units.size,
        "count": units.count,
        "per_second": units.per_second,
        "signed_share": lambda value: minus(units.signed_share(value)),
        "minus": minus,
        "signed_seconds": units.signed_seconds,
        "known": units.known,
        "colour": lambda name, kind: colours[kind].get(name, colours["other"]),
    }
    made.filters.update(filters)
    return made


def style_of(folder: Path, names: tuple[str, ...]) -> Markup:
    """Style sheets of ours, one after another."""
    return _inert(_joined(folder, names), "</style")


def script_of(folder: Path, names: tuple[str, ...]) -> Markup:
    """Scripts of ours that share their names, and share them with nobody else."""
    return as_script(f'(() => {{\n"use strict";\n{_joined(folder, names)}}})();\n')


def as_script(text: str) -> Markup:
    """Text of ours, or of a library that comes with us, as the content of a script element."""
    return _inert(text, "</script")


def hash_of(script: str) -> str:
    """The script as a content security policy names it."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


def _joined(folder: Path, names: tuple[str, ...]) -> str:
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def _inert(text: str, closing: str) -> Markup:
    """Our own text, to be put into the page as it is; it must not end the element around it."""
    if closing in text.lower() or "<!--" in text:
        raise ValueError(f"text with {closing} or <!-- cannot be put into the page")
    return Markup(text.replace("\r\n", "\n"))
