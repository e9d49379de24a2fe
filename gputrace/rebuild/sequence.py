"""The log as one sequence: marks in order, numbers as numbers, restarts counted."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.rebuild.columns import Ints
from gputrace.rebuild.timebounds import STRAY_MS, strays

# TIMELINE offsets are printed by several threads and may be slightly out of order; a fall by more is a restart.
_RESTART_FALL_MS = 2000
# No phase lasts longer than eleven days: a larger figure is damage.
_MOST_MS = 1_000_000_000

# Every number that the rebuild reads, as printed (whole milliseconds, maybe with the suffix ms).
NUMBER_KEYS = (
    "split_vectors_ms",
    "setup_to_split_ms",
    "prep_msm_ms",
    "b_g2_msm_ms",
    "num_circuits",
    "pre_lock_cpu_ms",
    "mutex_wait_ms",
    "gpu_tid",
    "ntt_msm_h_ms",
    "barrier_wait_ms",
    "batch_add_ms",
    "tail_msm_ms",
    "gpu_total_ms",
    "mutex_held_ms",
    "total_start_fn_ms",
    "async_dealloc_ms",
    "d_b_alloc",
    "ntt_kernels",
    "coset_intt_sync",
    "msm_init",
    "msm_invoke",
    "msm_dtor",
    "total",
    "synth_ms",
    "gpu_ms",
    "spawn_to_enter_ms",
    "prove_start_ms",
    "total_overhead_ms",
)
# Without all of these figures a line says nothing that can be used: it was damaged.
FIGURES_OF = {
    "mutex_acquired": ("pre_lock_cpu_ms", "mutex_wait_ms"),
    "ntt_msm_h": ("ntt_msm_h_ms",),
    "barrier_wait": ("barrier_wait_ms",),
    "batch_add": ("batch_add_ms",),
    "tail_msm": ("tail_msm_ms", "gpu_total_ms"),
    "mutex_released": ("mutex_held_ms", "total_start_fn_ms"),
}


_TEXT_KEYS = ("proof_kind", "kind", "is_pinned")
# What a mark has beside its numbers.
PLAIN = tuple(name for name in schema.MARKS.columns if name != "values")


class Sequence:
    """Marks with their numbers in columns.

    `frame` has the columns of MARKS less `values`, plus `order` (position in the log; within one stream it is the
    order of writing), `restart`, and `job_number`, which stands for the job where jobs are only compared. `damaged`
    counts lines left out because a figure of theirs is missing or cannot be.
    """

    def __init__(self, frame: pl.DataFrame, values: pl.Series, damaged: int = 0) -> None:
        self.damaged = damaged
        self._values = _Values(values)
        self._rows = dict(frame.with_row_index("row").group_by("event").agg("row").drop_nulls("event").iter_rows())
        self._figures: dict[str, pl.DataFrame] = {}
        job_number = pl.col("job").cast(pl.Categorical(pl.Categories.random())).to_physical().cast(pl.Int64)
        self.frame = frame.with_columns(_restarts(frame, self.rows_of("engine_start")), job_number.alias("job_number"))

    def rows_of(self, *events: str) -> Ints:
        """Where in `frame` the marks of these events are, in order."""
        rows = [np.asarray(self._rows[event], dtype=np.int64) for event in events if event in self._rows]
        return rows[0] if len(rows) == 1 else np.sort(np.concatenate([np.array([], dtype=np.int64), *rows]))

    def figures_of(self, event: str) -> pl.DataFrame:
        """What the lines of one event print, in order.

        `order`, an Int64 column per key of NUMBER_KEYS that they have, and `proof_kind` and `is_pinned` where they have
        those.
        """
        if event not in self._figures:
            rows = self.rows_of(event)
            self._figures[event] = _figures(self.frame["order"][rows], self._values, rows)
        return self._figures[event]

    def of(self, *events: str, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """Marks of these events, in order; with all columns, or with these. What no line of them has is null."""
        wanted = [*self.frame.columns, *NUMBER_KEYS, "proof_kind", "is_pinned"] if columns is None else list(columns)
        plain = ["order", *(name for name in wanted if name in self.frame.columns and name != "order")]
        rows = self.frame[plain][self.rows_of(*events)]
        if told := [name for name in wanted if name not in plain]:
            own = [self.figures_of(event) for event in events if event in self._rows]
            own = [figures[["order", *(name for name in told if name in figures.columns)]] for figures in own]
            if own:
                figures = own[0] if len(own) == 1 else pl.concat(own, how="diagonal").sort("order")
                rows = rows.hstack(figures.get_columns()[1:])
        kinds = {"proof_kind": pl.String, "is_pinned": pl.Boolean}
        missing = [pl.lit(None, kinds.get(name, pl.Int64)).alias(name) for name in wanted if name not in rows.columns]
        return (rows.with_columns_seq(missing) if missing else rows)[wanted]


def to_sequence(marks: pl.DataFrame) -> Sequence:
    """Before: MARKS. After: a `Sequence`; files with stderr lines first, so that restarts are found in them."""
    numbered, values = marks[list(PLAIN)].with_row_index("order"), marks["values"]
    whole = Sequence(numbered, values)
    left_out = pl.concat([_lacking(whole, event) for event in FIGURES_OF])
    if left_out.is_empty():
        return whole
    kept = ~numbered["order"].is_in(left_out.implode())
    return Sequence(numbered.filter(kept), values.filter(kept), len(left_out))


def _lacking(sequence: Sequence, event: str) -> pl.Series:
    """The order of an event's lines that lack a figure without which they say nothing."""
    figures = sequence.figures_of(event)
    if not set(FIGURES_OF[event]) <= set(figures.columns):
        return figures["order"]
    lacks = [figures[key].is_null() for key in FIGURES_OF[event] if figures[key].null_count()]
    return figures["order"].filter(reduce(or_, lacks)) if lacks else figures["order"].clear()


class _Values:
    """What marks print, flat: the pairs of key and value of one mark after those of another."""

    def __init__(self, values: pl.Series) -> None:
        self.lengths = values.list.len().fill_null(0).to_numpy().astype(np.int64)
        self._first = np.cumsum(self.lengths) - self.lengths
        self._pairs = values.explode(empty_as_null=False, keep_nulls=False).struct.unnest()

    def uniform(self, rows: Ints) -> dict[str, pl.Series] | None:
        """The values by key where all these marks have the same keys in the same order, as mostly; else None."""
        if not len(rows):
            return {}
        count = int(self.lengths[rows[0]])
        if (self.lengths[rows] != count).any():
            return None
        place = (self._first[rows] + np.arange(count)[:, np.newaxis]).ravel()
        keys, values = self._pairs[place]
        found = {}
        for start in range(0, len(place), len(rows)):
            key = keys[start]
            if key in found or not (keys.slice(start, len(rows)) == key).all():
                return None
            found[key] = values.slice(start, len(rows))
        return found

    def pairs(self, orders: pl.Series, rows: Ints) -> pl.DataFrame:
        """The pairs of these marks: order, key, value."""
        lengths = self.lengths[rows]
        first = np.cumsum(lengths) - lengths
        place = np.arange(lengths.sum()) + np.repeat(self._first[rows] - first, lengths)
        pairs: pl.DataFrame = self._pairs[place]
        return pl.DataFrame([orders[np.repeat(np.arange(len(rows)), lengths)], *pairs.get_columns()])


def _figures(orders: pl.Series, values: _Values, rows: Ints) -> pl.DataFrame:
    """One event's lines: order and, in columns, the keys that the rebuild reads."""
    columns = values.uniform(rows)
    if columns is None:
        pairs = values.pairs(orders, rows)
        keys = pairs["key"].unique()
        columns = {}
        for key in (key for key in (*NUMBER_KEYS, *_TEXT_KEYS) if key in keys):
            told = pairs.filter(pl.col("key") == key).select("order", "value")
            if key in NUMBER_KEYS:
                told = told.filter(_number("value").is_not_null())
            first = told.unique("order", keep="first", maintain_order=True)
            columns[key] = orders.to_frame().join(first, on="order", how="left", maintain_order="left")["value"]
    own = [key for key in (*NUMBER_KEYS, *_TEXT_KEYS) if key in columns]
    frame = pl.DataFrame([orders, *(columns[key].alias(key) for key in own)])
    frame = frame.with_columns_seq(_number(key) for key in own if key in NUMBER_KEYS)
    if kinds := [key for key in ("proof_kind", "kind") if key in own]:
        frame = frame.with_columns(pl.coalesce(kinds).alias("proof_kind"))
    if "is_pinned" in own:
        frame = frame.with_columns(pl.col("is_pinned") == "true")
    return frame.drop("kind") if "kind" in own else frame


def _number(name: str) -> pl.Expr:
    """Text of a figure as a number; null where it is none, or cannot be."""
    numbers = pl.col(name).str.strip_suffix("ms").cast(pl.Int64, strict=False)
    return pl.when(numbers.is_between(-_MOST_MS, _MOST_MS)).then(numbers).alias(name)


def _in_time(offsets_ms: pl.Series) -> pl.Series:
    """The TIMELINE offsets, null where a single line is far out of time: what does not stay there is no restart."""
    told = offsets_ms.is_not_null().to_numpy()
    stray = strays(offsets_ms.drop_nulls().to_numpy().astype(np.float64), STRAY_MS)
    return offsets_ms.scatter(np.flatnonzero(told)[stray], None) if stray.any() else offsets_ms


def _restarts(frame: pl.DataFrame, engine_starts: Ints) -> pl.Series:
    """How many restarts lie before each mark: an engine start, or TIMELINE offsets that begin anew.

    Files with stderr lines count as one log, in the order given (a rotated set goes on where it was cut); files with
    tracing lines alone are counted beside them.
    """
    by_source = frame.lazy().group_by("source").agg((pl.col("family") != "tracing").any().alias("has_stderr")).collect()
    both = set(by_source.filter("has_stderr")["source"])
    has_stderr = frame["source"].is_in(list(both)).to_numpy()
    if has_stderr.all():
        return pl.Series("restart", _restarts_of_one(frame["offset_ms"], engine_starts)).cast(pl.UInt16)
    counted = np.zeros(frame.height, dtype=np.uint16)
    for part in (has_stderr, ~has_stderr):
        rows = np.flatnonzero(part)
        starts = np.searchsorted(rows, engine_starts[part[engine_starts]])
        counted[rows] = _restarts_of_one(frame["offset_ms"].gather(rows), starts)
    return pl.Series("restart", counted)


def restarts_of_log(marks: pl.DataFrame) -> Ints:
    """How many restarts lie before each mark of one log that has stderr lines, or one that has none."""
    return _restarts_of_one(marks["offset_ms"], np.flatnonzero((marks["event"] == "engine_start").to_numpy()))


def _restarts_of_one(offsets_ms: pl.Series, starts: Ints) -> Ints:
    """The restarts before each line of one log, from its TIMELINE offsets and where the engine says that it starts."""
    # A log that begins with a start has restarted no more often for it.
    starts = starts[starts > 0]
    offsets_ms = _in_time(offsets_ms)
    timed = np.flatnonzero(offsets_ms.is_not_null().to_numpy())
    falls = 1 + np.flatnonzero(np.diff(offsets_ms.drop_nulls().to_numpy()) < -_RESTART_FALL_MS)
    # An engine start is followed by offsets that begin anew: the two are one restart.
    announced = np.searchsorted(starts, timed[falls], side="right") > np.searchsorted(starts, timed[falls - 1], "right")
    new = np.zeros(len(offsets_ms), dtype=np.int64)
    new[starts] = 1
    new[timed[falls[~announced]]] = 1
    return np.cumsum(new)
