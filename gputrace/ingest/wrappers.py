"""Takes off what a collector put around each line."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from gputrace.ingest.formats import WrapperFormat
from gputrace.ingest.stamps import stamp_ns

# Colours and the erasing of a line; syslog daemons write the escape as #033.
ANSI_COLOUR = r"(?:\x1b|#033)\[[0-9;?]*[A-Za-z]"
_NOTHING = pl.lit(None, pl.String)
_HEX_OF = {str(byte): f"{byte:02x}" for byte in range(256)}
# A line in parts is given up when the rest has not come within this many lines: collectors write the parts at once.
_PARTS_REACH_LINES = 1000
# journald takes no field larger than this.
_FIELD_MOST_BYTES = 768 << 20
_FIELD_NAME = re.compile(rb"[A-Z0-9_]+")
_TEXT, _STREAM, _ORIGIN, _TIME = "text", "stream", "origin", "time"
# A stream and an origin are one text while torn records are repaired.
_BETWEEN = "\x1f"


def utc_ns(text: pl.Expr) -> pl.Expr:
    """RFC 3339 text in UTC ('...Z', any number of decimals) as Unix nanoseconds; null where it is none."""
    return text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ns", strict=False).cast(pl.Int64)


def _fields(wrapper: WrapperFormat) -> dict[str, pl.Expr]:
    """Expressions on `raw` for text, stream, origin (which process or service wrote it) and time; all text."""
    raw = pl.col("raw")
    keys = {
        _TEXT: wrapper.text_key,
        _STREAM: wrapper.stream_key,
        _ORIGIN: wrapper.origin_key,
        _TIME: wrapper.time_key,
    }
    if wrapper.layout == "json":
        # A quote inside a text is escaped, so this finds keys only; short values have no escapes.
        short = {n: raw.str.extract(rf'"{k}" ?: ?"([^"\\]*)"') if k else _NOTHING for n, k in keys.items()}
        # Only the line's own end is not part of it.
        return {**short, _TEXT: raw.str.json_path_match(f"$.{wrapper.text_key}").str.strip_suffix("\n")}
    if wrapper.layout == "export":
        found = {name: raw.str.extract(rf"(?m)^{key}=(.*)$") if key else _NOTHING for name, key in keys.items()}
        # The binary form of a field: name, newline, eight bytes of length, text.
        return {**found, _TEXT: pl.coalesce(found[_TEXT], raw.str.extract(r"(?m)^.{1,2}\x00{6}(.*)$"))}
    pattern = wrapper.pattern or ""
    groups = raw.str.extract_groups(pattern)
    return {
        name: groups.struct.field(name) if f"(?P<{name}>" in pattern else _NOTHING
        for name in (_TEXT, _STREAM, _ORIGIN, _TIME)
    }


def unwrap(lines: pl.DataFrame, wrapper: WrapperFormat | None, by_origin: bool = False) -> pl.DataFrame:
    """The lines inside the wrapper.

    Before: line, raw, and where parts were joined `joined`. After: line, text, stream, arrival_ns; stream and
    arrival_ns are null where the wrapper does not say. `arrival_ns` is the stamp as it stands: one without a zone as
    if it were UTC, one without a year in the year 2000, an elapsed time from 0; `stamps.settle` makes it Unix time.
    `by_origin` puts into `stream` what tells writers apart (stream, process, service), for the repair of torn records.
    Lines that are not wrapped come back as they are. ANSI colours, carriage returns and what they overwrote go.
    """
    if wrapper is None:
        nothing = pl.lit(None, pl.Int64).alias("arrival_ns")
        return _visible(lines.select_seq("line", pl.col("raw").alias("text"), _NOTHING.alias("stream"), nothing))
    fields = _fields(wrapper)
    stream = fields[_STREAM]
    if by_origin:
        stream = pl.concat_str(stream.fill_null(""), fields[_ORIGIN].fill_null(""), separator=_BETWEEN)
    if "joined" in lines.columns:
        fields[_TEXT] = pl.coalesce("joined", fields[_TEXT])
    inner = lines.select(
        "line",
        pl.coalesce(fields[_TEXT], "raw").alias("text"),
        stream.alias("stream"),
        stamp_ns(fields[_TIME], wrapper.time_form).alias("arrival_ns"),
    )
    if wrapper.layout == "json":
        inner = _bytes_to_text(inner, lines["raw"], wrapper.text_key or "")
    return _visible(inner)


def stream_of(writer: str | None) -> str | None:
    """The stream in what `unwrap(by_origin=True)` gave as stream."""
    return (writer or "").split(_BETWEEN)[0] or None


def _visible(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines with `text` as a terminal would leave it: without colours, only what follows the last bare carriage return.

    All texts are copied: they do not hold on to the chunk that they were found in.
    """
    text = lines["text"].str.replace_all(ANSI_COLOUR, "")
    if text.str.contains("\r", literal=True).any():
        text = text.str.strip_chars_end("\r").str.extract(r"([^\r]*)$")
    return lines.with_columns(text)


def _bytes_to_text(inner: pl.DataFrame, raw: pl.Series, key: str) -> pl.DataFrame:
    """Texts that came as arrays of byte numbers ('[67,85]'; journald does so for lines with an escape) as text."""
    listed = raw.str.contains(rf'"{key}" ?: ?\[')
    if not listed.any():
        return inner
    numbers = inner.filter(listed)["text"].str.strip_chars("[] ").str.replace_all(" ", "").str.split(",")
    hexed = pl.element().replace_strict(_HEX_OF, default="", return_dtype=pl.String)
    data = numbers.list.eval(hexed).list.join("").str.decode("hex")
    try:
        text = data.cast(pl.String)
    except pl.exceptions.ComputeError:
        text = pl.Series([value.decode("utf-8", errors="replace") for value in data], dtype=pl.String)
    return inner.with_columns(inner["text"].scatter(listed.arg_true(), text))


def raw_pattern(needles: set[str], wrapper: WrapperFormat | None) -> str:
    """A pattern that every raw line of interest matches, and few others do, before anything is unwrapped.

    The blank at a needle's end may be a colour's escape in the raw line. In JSON a line may be an array of bytes.
    """
    begun = sorted({needle.rstrip() for needle in needles})
    found = [literal(needle) for needle in begun]
    if wrapper is not None and wrapper.layout == "json" and wrapper.byte_arrays:
        found += [separator.join(map(str, needle.encode())) for needle in begun for separator in (",", ", ")]
    return "|".join(found)


def literal(text: str) -> str:
    """`text` as a Rust regular expression that matches just it."""
    return "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in text)


class Joined(NamedTuple):
    """Lines put together; where one begins whose end has not come (null: none), and whether one was given up."""

    lines: pl.DataFrame
    unfinished: int | None = None
    given_up: bool = False


def join_parts(lines: pl.DataFrame, wrapper: WrapperFormat | None) -> Joined:
    """Long lines that the collector cut, put together.

    Before: line, raw. After: line, raw, joined, until: a row a whole line, with the numbers of its first and last
    part; `joined` and `until` are null where nothing was cut. A part goes on in the next line of its stream.
    """
    if wrapper is None or wrapper.part_pattern is None or lines.is_empty():
        return Joined(lines)
    raw, pattern = pl.col("raw"), wrapper.part_pattern
    if wrapper.layout == "json":
        # Nearly every text ends in \n: searching it is faster than the pattern, which tells it from a backslash and n.
        likely = ~raw.str.contains('\\n"', literal=True) | raw.str.contains('\\\\n"', literal=True)
        candidates = lines.filter(likely)
        cut = candidates.filter(raw.str.contains(pattern))["line"]
        part = lines["line"].is_in(cut.implode()) if len(cut) else pl.repeat(False, lines.height, eager=True)
    else:
        part = lines["raw"].str.contains(pattern)
    if not part.any():
        return Joined(lines)
    fields = _fields(wrapper)
    marked = lines.select(
        "line",
        "raw",
        part.alias("part"),
        fields[_STREAM].alias("stream"),
        pl.coalesce(fields[_TEXT], "raw").alias("text"),
    ).with_columns(pl.col("part").shift(1).over("stream").fill_null(False).alias("goes_on"))
    marked = marked.with_columns(
        pl.when(~pl.col("goes_on")).then("line").forward_fill().over("stream").alias("first"),
    )
    several = marked.filter(pl.col("part") | pl.col("goes_on"))
    joined = several.group_by("first", maintain_order=True).agg(
        pl.col("text").str.join("").alias("joined"), pl.col("line").last().alias("until")
    )
    whole = (
        marked.filter(~pl.col("goes_on"))
        .select("line", "raw")
        .join(joined, left_on="line", right_on="first", how="left", maintain_order="left")
    )
    last = lines["line"][-1]
    ends = marked.group_by("stream").agg(pl.col("part").last(), pl.col("first").last())
    open_ends = ends.filter("part")["first"]
    unfinished = open_ends.filter(last - open_ends.cast(pl.Int64) < _PARTS_REACH_LINES)
    begun = None if unfinished.is_empty() else int(unfinished.min())  # type: ignore[arg-type]
    return Joined(whole, begun, len(unfinished) < len(open_ends))


# --- journald's export format --------------------------------------------------------------------------------------


def json_twin(wrapper: WrapperFormat) -> WrapperFormat:
    """The wrapper of the lines that `export_to_json` makes."""
    return replace(wrapper, layout="json")


def export_to_json(chunks: Iterator[bytes], wrapper: WrapperFormat) -> Iterator[bytes]:
    """Records of journald's export format as JSON, one a line: many-line records with binary fields have no lines.

    A record is fields up to a blank line: `NAME=text`, or `NAME`, newline, length as 8 bytes little-endian, bytes,
    newline. Numbers of lines count records from here on.
    """
    wanted = {key.encode(): key for key in (wrapper.text_key, wrapper.time_key, wrapper.origin_key) if key}
    text_key = wrapper.text_key or ""
    # A record has tens of fields that do not matter; they are passed over at once.
    others = re.compile(rb"(?:(?!(?:%s)=)[^\n=]+=[^\n]*\n)*" % b"|".join(map(re.escape, wanted)))
    left = b""
    fields: dict[str, str] = {}
    for chunk in chunks:
        data, at = left + chunk, 0
        out: list[str] = []
        while (field := _export_field(data, _end_of(others, data, at))) is not None:
            name, value, at = field
            if name in wanted:
                fields[wanted[name]] = value.decode("utf-8", errors="replace")
            elif not name and fields:
                texts = fields.get(text_key, "").split("\n")
                out.extend(json.dumps({**fields, text_key: text}, ensure_ascii=False) for text in texts)
                fields = {}
        left = data[at:]
        if out:
            yield ("\n".join(out) + "\n").encode()
    if fields:
        yield (json.dumps(fields, ensure_ascii=False) + "\n").encode()


def _end_of(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _export_field(data: bytes, at: int) -> tuple[bytes, bytes, int] | None:
    """Name, value and end of the field at `at`; an empty name is the record's end, None a field not yet all there."""
    end = data.find(b"\n", at)
    if end < 0:
        return None
    name, equals, value = data[at:end].partition(b"=")
    if equals or not _FIELD_NAME.fullmatch(name):
        return name, value, end + 1
    begin = end + 9
    stop = begin + int.from_bytes(data[end + 1 : begin], "little")
    if stop - begin > _FIELD_MOST_BYTES:
        # Not a length: this is text that no field begins with.
        return b"?", b"", end + 1
    if len(data) < begin or len(data) <= stop:
        return None
    return name, data[begin:stop], stop + 1
