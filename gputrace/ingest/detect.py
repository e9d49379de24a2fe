"""Tells by the lines themselves what a collector put around them."""

import polars as pl

from gputrace.ingest.families import needles_of, parse_lines
from gputrace.ingest.formats import Formats, WrapperFormat
from gputrace.ingest.torn import find_torn
from gputrace.ingest.wrappers import join_parts, raw_pattern, unwrap

# So many lines of interest are looked at.
_JUDGED_LINES = 1000


def wrapper_of(lines: pl.DataFrame, formats: Formats) -> tuple[WrapperFormat | None, bool]:
    """The wrapper under which most of the first lines of interest are records (null: plain), and whether any is one.

    Before: line, raw.
    """
    needles = needles_of(formats)
    patterns = {raw_pattern(needles, wrapper) for wrapper in (None, *formats.wrappers)}
    told = lines.filter(pl.col("raw").str.contains("|".join(sorted(patterns))))
    for judged in told.iter_slices(_JUDGED_LINES):
        wrapper, found = _judge(judged, formats)
        if found:
            return wrapper, True
    return None, False


def _judge(told: pl.DataFrame, formats: Formats) -> tuple[WrapperFormat | None, bool]:
    def records(wrapper: WrapperFormat | None) -> int:
        inner = unwrap(join_parts(told, wrapper).lines, wrapper).with_columns(pl.lit(False).alias("repaired"))
        torn = inner.filter(pl.col("text").str.starts_with("TIMELINE,") & pl.col("line").is_in(find_torn(inner)))
        return parse_lines(inner, formats)[0].height + torn.height

    plain = records(None)
    # A record of its own is hardly ever one inside a wrapper, too.
    if plain * 2 > told.height:
        return None, True
    counts = {wrapper.name: records(wrapper) for wrapper in formats.wrappers}
    best = max(formats.wrappers, key=lambda wrapper: counts[wrapper.name])
    most = max(plain, counts[best.name])
    return (best if counts[best.name] > plain else None), most > 0
