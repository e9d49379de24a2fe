"""The log's records as verdicts ask for them: by event, whole or of a stretch of time. Looked up once for all that ask.

A stretch has the records stamped inside it, and all that no stamp places.
"""

import polars as pl

from gputrace.rows import where, with_values

Span = tuple[int, int]
_KEPT = ["source", "line", "log_ns", "arrival_ns", "job", "partition", "values"]


class Records:
    """Marks by event."""

    def __init__(self, marks: pl.DataFrame) -> None:
        self._marks, self._events = marks[_KEPT], marks["event"]
        self._of_event: dict[str, pl.DataFrame] = {}
        self._numbers: dict[tuple[str, str], pl.DataFrame] = {}
        self._spoken: pl.Series | None = None

    def of(self, event: str, span: Span | None = None) -> pl.DataFrame:
        """Marks of an event, in order of the log: where they stand, their times, job, partition and values."""
        if event not in self._of_event:
            self._of_event[event] = where(self._marks, self._events == event)
        return _inside(self._of_event[event], span)

    def numbers(self, event: str, key: str, span: Span | None = None) -> pl.DataFrame:
        """source, line, job, partition and value (Float64) of one key of every record of an event that has it."""
        if (event, key) not in self._numbers:
            told = self.of(event)
            value = value_of(told["values"], key).cast(pl.Float64, strict=False).alias("value")
            placed = told[["source", "line", "job", "partition", "log_ns", "arrival_ns"]]
            self._numbers[event, key] = with_values(placed.hstack([value]), "value")
        return _inside(self._numbers[event, key], span)[["source", "line", "job", "partition", "value"]]

    def spoken(self, span: Span | None = None) -> bool:
        """Whether any record prints its own time, as the prover's stdout does."""
        if self._spoken is None:
            self._spoken = self._marks["log_ns"].drop_nulls()
        return bool(len(self._spoken) if span is None else self._spoken.is_between(*span).any())


def value_of(values: pl.Series, key: str) -> pl.Series:
    """The value of a key in the `values` of marks, as text; null where a mark does not have it."""
    if values.is_empty():
        return pl.Series(values.name, [], pl.String)
    of_key = pl.element().filter(pl.element().struct.field("key") == key).struct.field("value")
    return values.to_frame("values").select(pl.col("values").list.eval(of_key).list.first()).to_series()


def _inside(marks: pl.DataFrame, span: Span | None) -> pl.DataFrame:
    if span is None or marks.is_empty():
        return marks
    at_ns = pl.coalesce("log_ns", "arrival_ns")
    return marks.filter(at_ns.is_between(*span) | at_ns.is_null())
