"""Takes off what a collector put around each line."""

import polars as pl

from gputrace.ingest.formats import WrapperFormat

_NANOSECONDS = pl.Datetime("ns")
ANSI_COLOUR = r"\x1b\[[0-9;]*m"


def utc_ns(text: pl.Expr) -> pl.Expr:
    """RFC 3339 text in UTC ('...Z', any number of decimals) as Unix nanoseconds; null where it is none."""
    return text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ns", strict=False).cast(pl.Int64)


def unwrap(lines: pl.DataFrame, wrapper: WrapperFormat | None) -> pl.DataFrame:
    """The lines inside the wrapper.

    Before: line, raw. After: line, text, stream, arrival_ns; stream and arrival_ns are null where the wrapper does
    not say. Lines that are not wrapped come back as they are. ANSI colours and carriage returns are stripped.
    """
    raw = pl.col("raw")
    nothing = pl.lit(None, pl.String)
    if wrapper is None:
        text, stream, time = raw, nothing, nothing
    elif wrapper.layout == "json":
        text = raw.str.json_path_match(f"$.{wrapper.text_key}").str.strip_chars_end("\n")
        stream = raw.str.json_path_match(f"$.{wrapper.stream_key}") if wrapper.stream_key else nothing
        time = raw.str.json_path_match(f"$.{wrapper.time_key}")
    else:
        groups = raw.str.extract_groups(wrapper.pattern or "")
        fields = (wrapper.pattern or "").split("(?P<")
        text, time = groups.struct.field("text"), groups.struct.field("time")
        stream = groups.struct.field("stream") if any(f.startswith("stream>") for f in fields) else nothing
    return lines.select(
        "line",
        pl.coalesce(text, raw).str.replace_all(ANSI_COLOUR, "").str.strip_chars_end("\r").alias("text"),
        stream.alias("stream"),
        utc_ns(time).alias("arrival_ns"),
    )
