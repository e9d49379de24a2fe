"""Lines to marks: takes the lines of each family of records apart in columns, and tells those it does not know."""

from collections.abc import Iterator

import polars as pl

from gputrace.ingest.formats import EventRule, Formats, RecordFormat
from gputrace.ingest.stamps import stamp_ns
from gputrace.ingest.wrappers import literal

_VALUE = r'[A-Za-z_][0-9A-Za-z_]*=(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|Some\([^)]*\)|[^\s,{}]*)'
_ID = "^(?:job_id|worker_id|worker|partition|snap_partition|gpu)="
# No prover runs for longer than three years: a larger offset is damage.
_MOST_OFFSET_MS = 100_000_000_000
# A tracing line that says so is one of a timed step, known or not.
_TIMED_STEP = "(?:GPU|FIN)_TIMING "
_BEFORE_VALUES = (
    *("line", "stream", "family", "event", "log_ns", "arrival_ns", "offset_ms"),
    *("job", "worker", "partition", "gpu"),
)
_NO_TEXT, _NO_INT, _NO_TIME = pl.lit(None, pl.String), pl.lit(None, pl.Int32), pl.lit(None, pl.Int64)


def needles_of(formats: Formats) -> set[str]:
    """Texts one of which every line of interest holds."""
    return {needle for family in formats.records for needle in family.needles}


def parse_lines(lines: pl.DataFrame, formats: Formats) -> tuple[pl.DataFrame, list[int]]:
    """Marks of all families among whole (not torn) lines, and the numbers of lines of a family not understood.

    Before: line, text, stream, arrival_ns, repaired. After, in order: the columns of `schema.MARKS` less `source`.
    """
    found: list[pl.DataFrame] = []
    unknown: list[int] = []
    for family, own in _by_family(lines, formats):
        records = _records(own, family)
        told = records["event"].is_not_null()
        if family.prefix:
            if records.height < own.height:
                unknown.extend(own.join(records, on="line", how="anti")["line"])
            unknown.extend(records["line"].filter(~told))
            found.append(records.with_columns(pl.col("event").fill_null("unknown")))
        else:
            lost = records.filter(~told)
            unknown.extend(lost.filter(lost["said"].str.contains(_TIMED_STEP))["line"])
            found.append(records.filter(told))
    # Lots follow one another, so that in order each is all in order.
    records = pl.concat(found).sort("line", maintain_order=True)
    marks = records.with_columns(_values(records["said"]).alias("values")).drop("said")
    return marks.select(*_BEFORE_VALUES, "values", "repaired"), sorted(unknown)


def _by_family(lines: pl.DataFrame, formats: Formats) -> Iterator[tuple[RecordFormat, pl.DataFrame]]:
    """The lines that may be of each family: they begin as it does, or hold one of its needles and begin as none."""
    texts = lines["text"]
    begun = {family.prefix: texts.str.starts_with(family.prefix) for family in formats.records if family.prefix}
    other = lines.filter(~pl.any_horizontal(*begun.values(), False))
    for family in formats.records:
        if family.prefix:
            yield family, lines.filter(begun[family.prefix])
        else:
            yield family, other.filter(pl.col("text").str.contains("|".join(literal(text) for text in family.needles)))


def _records(lines: pl.DataFrame, family: RecordFormat) -> pl.DataFrame:
    """The lines that are records of `family`: as marks, less their values, with `said`, in which the values are.

    A line that fits the family's pattern but no event has a null event.
    """
    parts = _parts(lines, family)
    said, body, groups = pl.col("said"), pl.col("body"), parts.columns
    level = pl.col("level") if "level" in groups else None
    event = pl.col("event") if "event" in groups else _event(family.events, body, level)
    offset_ms = _NO_TIME
    if "offset_ms" in groups:
        offset_ms = pl.col("offset_ms").cast(pl.Int64, strict=False)
        event = pl.when(offset_ms <= _MOST_OFFSET_MS).then(event)
    job = pl.col("job") if "job" in groups else _NO_TEXT
    if "job" in family.ids:
        job = pl.lit(_jobs(parts["said"], str(family.ids["job"])))
    numbers = {name: _number(said, family.ids[name]) for name in ("worker", "partition", "gpu") if name in family.ids}
    return parts.select(
        "line",
        "stream",
        pl.lit(family.name).alias("family"),
        event.alias("event"),
        (stamp_ns(pl.col("time"), "utc") if "time" in groups else _NO_TIME).alias("log_ns"),
        "arrival_ns",
        pl.when(offset_ms <= _MOST_OFFSET_MS).then(offset_ms).alias("offset_ms"),
        job.alias("job"),
        *(numbers.get(name, _NO_INT).alias(name) for name in ("worker", "partition", "gpu")),
        "said",
        "repaired",
    )


def _parts(lines: pl.DataFrame, family: RecordFormat) -> pl.DataFrame:
    """Lines of `family` with the groups of its pattern, `body` and `said` among them, as columns; others go."""
    text = pl.col("text")
    if family.head:
        # To find the head's end is several times as fast as to have it taken apart.
        lines = lines.with_columns(text.str.extract(family.head, 0).alias("head"))
        lines = lines.filter(pl.col("head").is_not_null() & ~text.str.contains("\n", literal=True))
        lines = lines.with_columns(text.str.strip_prefix(pl.col("head")).alias("body"))
        says = pl.col("head").str.contains("=", literal=True)
        lines = lines.with_columns(pl.when(says).then("text").otherwise("body").alias("said"))
    if family.pattern:
        lines = lines.with_columns(text.str.extract_groups(family.pattern).alias("groups")).unnest("groups")
        lines = lines.filter(pl.col("body").is_not_null())
    return lines if family.head else lines.with_columns(pl.col("body").alias("said"))


def _event(rules: tuple[EventRule, ...], body: pl.Expr, level: pl.Expr | None) -> pl.Expr:
    """The event's name: by how the message begins, else by a key that it has, else by its level; null if by none."""
    texts = {rule.text: rule.name for rule in rules if rule.text is not None}
    keys = {f"{rule.key}=": rule.name for rule in rules if rule.key is not None}
    levels = {rule.level: rule.name for rule in rules if rule.level is not None}
    found: list[pl.Expr] = []
    if texts:
        # The longest text first: one message may begin like another.
        longest = sorted(texts, key=len, reverse=True)
        begun = body.str.extract(f"^(?:{'|'.join(literal(text) for text in longest)})", 0)
        found.append(begun.replace_strict(texts, default=None, return_dtype=pl.String))
    if keys:
        has = body.str.extract(rf"\b(?:{'|'.join(keys)})", 0)
        found.append(has.replace_strict(keys, default=None, return_dtype=pl.String))
    if levels and level is not None:
        found.append(level.replace_strict(levels, default=None, return_dtype=pl.String))
    return pl.coalesce(found) if found else _NO_TEXT


def _number(text: pl.Expr, keys: str | list[str]) -> pl.Expr:
    names = "|".join([keys] if isinstance(keys, str) else keys)
    return text.str.extract(rf"\b(?:{names})=(?:Some\()?(\d+)").cast(pl.Int32, strict=False)


def _jobs(texts: pl.Series, key: str) -> pl.Series:
    """The job id after `key` in each text; null where there is none."""
    # Most ids are one word, which is found sooner than where any text that a caller may send ends.
    word = texts.str.extract(rf"\b{key}=(?:([^\"\s,\[\]{{}}=]+)(?: [a-z_]+=|\}}:|$))?")
    other = texts.str.contains(f'{key}="', literal=True) | word.is_null() & texts.str.contains(f"{key}=", literal=True)
    if not other.any():
        return word
    rest = texts.filter(other)
    quoted = rest.str.extract(rf'\b{key}="((?:[^"\\]|\\.)*)"').str.replace_all(r"\\(.)", "$1")
    # A bare id is the caller's text, blanks and brackets included: it ends at the next key or at the span's end.
    bare = rest.str.extract(rf"\b{key}=([^\"].*?)(?: [a-z_]+=|\}}:|$)")
    return word.scatter(other.arg_true(), quoted.zip_with(quoted.is_not_null(), bare))


def _values(texts: pl.Series) -> pl.Series:
    """Every key=value in each text but the ids: list[struct[key, value]], empty where there is none."""
    said = texts.str.extract_all(_VALUE).list.filter(~pl.element().str.contains(_ID))
    halves = pl.element().str.splitn("=", 2).struct
    value = halves.field("field_1").str.strip_chars('"')
    return said.list.eval(pl.struct(halves.field("field_0").alias("key"), value.alias("value")))
