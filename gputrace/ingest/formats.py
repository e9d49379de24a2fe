"""Loads the format descriptions in `parsers/`: checks their shape here, their samples in `prove`."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gputrace.errors import InputError
from gputrace.resources import parsers_dir


@dataclass(frozen=True)
class EventRule:
    """Tells one record of a family: by a key that only it has, by how its message begins, or by its level."""

    name: str
    key: str | None = None
    text: str | None = None
    level: str | None = None


@dataclass(frozen=True)
class RecordFormat:
    """A family of log records. `needles` are byte strings one of which every line of the family holds.

    `pattern` takes a line apart in groups: time, level, offset_ms, event, job, body. Where `head` is given, it is the
    pattern of what stands before the body, which is then the rest of the line; ids and values are looked for in both
    (a tracing line's spans are in its head).
    """

    name: str
    title: str
    needles: tuple[str, ...]
    pattern: str | None
    head: str | None
    events: tuple[EventRule, ...]
    ids: dict[str, str | list[str]]
    samples: tuple[dict[str, Any], ...]

    @property
    def prefix(self) -> str | None:
        """How every line of the family begins: with its needle, where it has just one."""
        return self.needles[0] if len(self.needles) == 1 else None


WRAPPER_LAYOUTS = ("pattern", "json", "export")
# What a collector's stamp says: a time with its zone; without; without a year either; seconds, microseconds or
# nanoseconds since 1970; the time since the collector started.
TIME_FORMS = ("rfc3339", "local", "month-day", "unix", "unix-us", "unix-ns", "elapsed")


@dataclass(frozen=True)
class WrapperFormat:
    """What a collector puts around each line: a JSON object, a prefix, or a record of journald's export format.

    `part_pattern` tells lines that the collector cut; `byte_arrays` that a text may be an array of byte numbers.
    """

    name: str
    title: str
    layout: str
    pattern: str | None = None
    part_pattern: str | None = None
    time_form: str = "rfc3339"
    text_key: str | None = None
    time_key: str | None = None
    stream_key: str | None = None
    origin_key: str | None = None
    byte_arrays: bool = False
    samples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class TableColumn:
    """Where a canonical reading comes from: header name (regular expression) and the unit it is in."""

    target: str
    header: str
    unit: str


@dataclass(frozen=True)
class TableFormat:
    """A sampler's table. `required` headers tell it from other tables, and so do `absent` ones.

    `time` says where times are (`gputrace.ingest.tables`); `lag_s` is how late every reading is;
    `whole_lines` that a last line without its end is torn.
    """

    name: str
    title: str
    layout: str
    required: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    time: dict[str, Any]
    samples: tuple[dict[str, Any], ...] = ()
    absent: tuple[str, ...] = ()
    lag_s: float = 0.0
    whole_lines: bool = False


@dataclass(frozen=True)
class Formats:
    """All formats known, by kind."""

    records: tuple[RecordFormat, ...] = ()
    wrappers: tuple[WrapperFormat, ...] = ()
    tables: tuple[TableFormat, ...] = field(default=())

    def wrapper(self, name: str | None) -> WrapperFormat | None:
        """The wrapper of this name; None where there is none."""
        return next((wrapper for wrapper in self.wrappers if wrapper.name == name), None)


def _load_records(raw: dict[str, Any]) -> RecordFormat:
    if "head" not in raw and "(?P<body>" not in raw["pattern"]:
        raise KeyError("head, or the group body in its pattern")
    return RecordFormat(
        name=raw["name"],
        title=raw["title"],
        needles=tuple(raw["needles"]),
        pattern=raw.get("pattern"),
        head=raw.get("head"),
        events=tuple(EventRule(**event) for event in raw.get("event", [])),
        ids=raw.get("ids", {}),
        samples=tuple(raw["sample"]),
    )


def _load_wrapper(raw: dict[str, Any]) -> WrapperFormat:
    known = {key: value for key, value in raw.items() if key not in ("kind", "sample")}
    needed = "pattern" if raw["layout"] == "pattern" else "text_key"
    if needed not in raw:
        raise KeyError(needed)
    if needed == "pattern" and "(?P<text>" not in raw["pattern"]:
        raise KeyError("the group text in its pattern")
    for key, allowed in (("layout", WRAPPER_LAYOUTS), ("time_form", TIME_FORMS)):
        if raw.get(key, allowed[0]) not in allowed:
            raise KeyError(f"{key}: one of {', '.join(allowed)}")
    return WrapperFormat(samples=tuple(raw["sample"]), **known)


def load_table(raw: dict[str, Any]) -> TableFormat:
    """A table description from its TOML."""
    return TableFormat(
        name=raw["name"],
        title=raw["title"],
        layout=raw["layout"],
        required=tuple(raw["required"]),
        columns=tuple(TableColumn(target=target, **spec) for target, spec in raw["columns"].items()),
        time=raw["time"],
        samples=tuple(raw["sample"]),
        absent=tuple(raw.get("absent", ())),
        lag_s=float(raw.get("lag_s", 0.0)),
        whole_lines=bool(raw.get("whole_lines", False)),
    )


_LOADERS: dict[str, Callable[[dict[str, Any]], RecordFormat | WrapperFormat | TableFormat]] = {
    "records": _load_records,
    "wrapper": _load_wrapper,
    "table": load_table,
}


def load_format(path: Path) -> RecordFormat | WrapperFormat | TableFormat:
    """One format description. Raises `InputError` naming the file and what is wrong with it."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a format description: {error}") from error
    kind = raw.get("kind")
    if kind not in _LOADERS:
        raise InputError(f"{path}: kind is {kind!r}; it must be one of {', '.join(_LOADERS)}")
    if not raw.get("sample"):
        raise InputError(f"{path}: no [[sample]]: a format must carry samples that prove it")
    try:
        return _LOADERS[kind](raw)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: {kind} description lacks or misspells {error}") from error


@cache
def bundled_formats() -> Formats:
    """All formats of `parsers/`, in order of name."""
    loaded = [load_format(path) for path in sorted(parsers_dir().glob("*.toml"))]
    return Formats(
        records=tuple(f for f in loaded if isinstance(f, RecordFormat)),
        wrappers=tuple(f for f in loaded if isinstance(f, WrapperFormat)),
        tables=tuple(f for f in loaded if isinstance(f, TableFormat)),
    )
