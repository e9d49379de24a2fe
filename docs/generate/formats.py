"""docs/formats.md, from the descriptions in parsers/ with the samples that prove them."""

from typing import Any

from gputrace.ingest.formats import RecordFormat, TableFormat, WrapperFormat, bundled_formats

_MOST_LINES = 8
_MOST_CHARACTERS = 160

HEAD = """# Formats

What `gputrace` reads, made by `make docs-generated` from the descriptions in `parsers/`. An input is recognised by its
content, never by its name; plain, gzip and zstd are read alike. `gputrace formats list` prints the names,
`gputrace formats check FILE` says what each line of a log was taken for. Every sample here is also a test: a
description that does not read its samples as it states is refused.

- [Log records](#log-records): lines of the prover
- [Wrappers](#wrappers): what docker, journald, syslog and others put around each line
- [GPU traces](#gpu-traces): tables of readings
- [Your own table](#your-own-table), [Adding a format](#adding-a-format)
"""
RECORDS = """
## Log records

Lines of a family may stand between any others, coloured or not, on stdout or stderr, torn or cut; what is not of a
family is counted and left alone.
"""
WRAPPERS = """
## Wrappers

A wrapper gives each line a time, sometimes a stream and an origin (one container of several). Its stamps may have no
zone (`--timezone` names it, else it is found from the log's own times) or no year.
"""
TABLES = """
## GPU traces

Of a table these columns are taken where they are there; units are converted to the names on the left (wire bytes
unless the name says otherwise; `rx` is into the GPU). Where one GPU was sampled by several tools, each reading is taken
from the best of them and counted once.
"""
TAIL = """
## Your own table

A CSV or Parquet file of your own is read with `--columns`, each entry `NAME=HEADER:UNIT`:

```sh
gputrace report prover.log readings.parquet --columns 'time=when:ns,gpu=device,rx_window_bytes_per_s=rx:MB/s'
```

`--column-map FILE` takes the same as a TOML file of the kind `table`, as above. A trace without times takes
`--trace-start TIME` and `--trace-period SECONDS`.

## Adding a format

One TOML file in `parsers/`, no Python: `kind` (`records`, `wrapper` or `table`), `name`, `title`, how to take it apart,
and at least one `[[sample]]` with what it must give. Patterns are Rust regular expressions (linear time). What each key
means is in `parsers/README.md`; copy the file nearest to yours. Then:

```sh
make docs-generated
```
"""


def page() -> str:
    """The document."""
    formats = bundled_formats()
    parts = [HEAD, RECORDS, *map(_record, formats.records)]
    parts += [WRAPPERS, "\n| name | what | an example of a line |\n|---|---|---|\n", *map(_wrapper, formats.wrappers)]
    parts += [TABLES, *map(_table, formats.tables), TAIL]
    return "".join(parts)


def _record(known: RecordFormat) -> str:
    parts = [f"\n### {known.name}\n\n{known.title}.\n\n"]
    parts += [f"```text\n{_cut(known.samples[0]['line'])}\n```\n"]
    parts += ["\n| record | told by | values of a sample |\n|---|---|---|\n"]
    if not known.events:
        names = dict.fromkeys(sample["event"] for sample in known.samples)
        parts += [f"| `{name}` | its name | {_values(known.samples, name)} |\n" for name in names]
    for event in known.events:
        told = f"key `{event.key}`" if event.key else f"text `{_inline(event.text)}`" if event.text else "its shape"
        told += f", level {event.level}" if event.level else ""
        parts.append(f"| `{event.name}` | {told} | {_values(known.samples, event.name)} |\n")
    return "".join(parts)


def _values(samples: tuple[dict[str, Any], ...], event: str) -> str:
    """Keys that the samples of an event take."""
    keys = dict.fromkeys(key for sample in samples if sample.get("event") == event for key in sample.get("values", {}))
    return ", ".join(f"`{key}`" for key in keys)


def _wrapper(known: WrapperFormat) -> str:
    sample = known.samples[0]
    line = sample.get("line") or sample.get("lines") or sample.get("text", "")
    line = "\n".join(line) if isinstance(line, list) else str(line)
    return f"| `{known.name}` | {_cell(known.title)} | `{_inline(_cut(line.strip()).splitlines()[0])}` |\n"


def _table(known: TableFormat) -> str:
    lines = known.samples[0]["text"].strip("\n").splitlines()
    shown = [_cut(line) for line in lines[:_MOST_LINES]] + (["..."] if len(lines) > _MOST_LINES else [])
    columns = "".join(
        f"| `{column.target}` | `{_inline(column.header)}` | {column.unit or '-'} |\n" for column in known.columns
    )
    text = "\n".join(shown)
    return (
        f"\n### {known.name}\n\n{known.title}.\n\n```text\n{text}\n```\n"
        f"\n| taken as | header (a pattern) | unit there |\n|---|---|---|\n{columns}"
    )


def _cut(line: str) -> str:
    line = line.replace("\x1b", "ESC")
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 4] + " ..."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _inline(text: str | None) -> str:
    """Text inside backquotes in a table."""
    return _cell((text or "").replace("`", "'"))
