"""The log's records as verdicts ask for them: by event, whole or of a stretch of time. Looked up once for all that ask.

A stretch has the records stamped inside it, and all that no stamp places.
"""

import polars as pl

Span = tuple[int, int]


class Records:
    """Marks by event."""

    def __init__(self, marks: pl.DataFrame) -> None:
        self._marks = marks
        self._of_event: dict[str, pl.DataFrame] = {}
        self._numbers: dict[tuple[str, str], pl.DataFrame] = {}
        self._spoken: pl.Series | None = None

    def of(self, event: str, span: Span | None = None) -> pl.DataFrame:
        """Marks of an event, in order of the log."""
        if event not in self._of_event:
            stamp = pl.coalesce("log_ns", "arrival_ns").alias("at_ns")
            self._of_event[event] = self._marks.filter(pl.col("event") == event).with_columns(stamp)
        return _inside(self._of_event[event], span)

    def numbers(self, event: str, key: str, span: Span | None = None) -> pl.DataFrame:
        """source, line, job, partition and value (Float64) of one key of every record of an event that has it."""
        if (event, key) not in self._numbers:
            value = (
                pl.col("values")
                .list.eval(pl.element().filter(pl.element().struct.field("key") == key).struct.field("value"))
                .list.first()
                .cast(pl.Float64, strict=False)
            )
            told = self.of(event).select("source", "line", "job", "partition", value.alias("value"), "at_ns")
            self._numbers[event, key] = told.drop_nulls("value")
        return _inside(self._numbers[event, key], span).drop("at_ns")

    def spoken(self, span: Span | None = None) -> bool:
        """Whether any record prints its own time, as the prover's stdout does."""
        if self._spoken is None:
            self._spoken = self._marks["log_ns"].drop_nulls()
        return bool(len(self._spoken) if span is None else self._spoken.is_between(*span).any())


def _inside(marks: pl.DataFrame, span: Span | None) -> pl.DataFrame:
    return marks if span is None else marks.filter(pl.col("at_ns").is_between(*span) | pl.col("at_ns").is_null())
