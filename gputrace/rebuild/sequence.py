"""The log as one sequence: marks in order, numbers as numbers, restarts counted."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace import schema
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


@dataclass(frozen=True)
class Sequence:
    """Marks with their numbers in columns.

    `frame` has the columns of MARKS less `values`, plus `order` (position in the log; within one stream it is the
    order of writing) and `restart`. `figures` has by event, in the same order, what its lines print: `order`, an Int64
    column per key of NUMBER_KEYS that they have, and `proof_kind` and `is_pinned` where they have those.
    `damaged` counts lines left out because a figure of theirs is missing or cannot be.
    """

    frame: pl.DataFrame
    figures: dict[str, pl.DataFrame]
    damaged: int = 0

    def of(self, *events: str, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """Marks of these events, in order; with all columns, or with these. What no line of them has is null."""
        wanted = [*self.frame.columns, *NUMBER_KEYS, "proof_kind", "is_pinned"] if columns is None else list(columns)
        plain = ["order", *(name for name in wanted if name in self.frame.columns and name != "order")]
        rows = self.frame.lazy().filter(pl.col("event").is_in(events)).select(plain).collect()
        told = [
            own.select("order", *(name for name in wanted if name in own.columns and name != "order"))
            for event in events
            if (own := self.figures.get(event)) is not None
        ]
        if told := [own for own in told if own.width > 1]:
            figures = told[0] if len(told) == 1 else pl.concat(told, how="diagonal").sort("order")
            rows = rows.join(figures, on="order", how="left", maintain_order="left")
        kinds = {"proof_kind": pl.String, "is_pinned": pl.Boolean}
        missing = [pl.lit(None, kinds.get(name, pl.Int64)).alias(name) for name in wanted if name not in rows.columns]
        return rows.with_columns(missing).select(wanted)


def to_sequence(marks: pl.DataFrame) -> Sequence:
    """Before: MARKS. After: a `Sequence`; files with stderr lines first, so that restarts are found in them."""
    numbered = marks.select(PLAIN).with_row_index("order")
    texts = marks.select("event", "values").with_row_index("order")
    figures, damaged = {}, []
    for event in marks["event"].unique().drop_nulls().sort().to_list():
        own = _figures(texts.lazy().filter(pl.col("event") == event).select("order", "values").collect())
        needed = FIGURES_OF.get(event, ())
        if needed:
            missing = pl.any_horizontal(pl.col(key).is_null() if key in own.columns else pl.lit(True) for key in needed)
            damaged.append(own.filter(missing)["order"])
            own = own.filter(~missing)
        figures[event] = own
    left_out = pl.concat(damaged) if damaged else pl.Series("order", [], pl.UInt32)
    whole = numbered if left_out.is_empty() else numbered.filter(~pl.col("order").is_in(left_out.implode()))
    return Sequence(whole.with_columns(restarts(whole).alias("restart")), figures, len(left_out))


def _figures(own: pl.DataFrame) -> pl.DataFrame:
    """One event's lines: order and, in columns, the keys that the rebuild reads. Before: order, values."""
    columns = _uniform(own)
    if columns is None:
        pairs = (
            own.explode("values")
            .filter(pl.col("values").is_not_null())
            .select("order", pl.col("values").struct.field("key"), pl.col("values").struct.field("value"))
        )
        keys = pairs["key"].unique()
        columns = {}
        for key in (*NUMBER_KEYS, *_TEXT_KEYS):
            if key not in keys:
                continue
            told = pairs.filter(pl.col("key") == key).select("order", "value")
            if key in NUMBER_KEYS:
                told = told.with_columns(_number(told["value"])).drop_nulls()
            first = told.unique("order", keep="first", maintain_order=True)
            columns[key] = own.select("order").join(first, on="order", how="left", maintain_order="left")["value"]
    else:
        columns = {key: _number(values) if key in NUMBER_KEYS else values for key, values in columns.items()}
    frame = own.select("order").with_columns(values.alias(key) for key, values in columns.items())
    if kinds := [key for key in ("proof_kind", "kind") if key in columns]:
        frame = frame.with_columns(pl.coalesce(kinds).alias("proof_kind"))
    if "is_pinned" in columns:
        frame = frame.with_columns(pl.col("is_pinned") == "true")
    return frame.drop("kind", strict=False)


def _uniform(own: pl.DataFrame) -> dict[str, pl.Series] | None:
    """The values by key where all lines have the same keys in the same order, as they mostly do; else None."""
    lengths = own["values"].list.len()
    count = lengths.max()
    if not isinstance(count, int) or lengths.null_count() or lengths.min() != count:
        return None
    if count == 0:
        return {}
    flat = own["values"].explode()
    keys, values = flat.struct.field("key"), flat.struct.field("value")
    found: dict[str, pl.Series] = {}
    for place in range(count):
        key = keys[place]
        if key in found or not (keys.gather_every(count, place) == key).all():
            return None
        found[key] = values.gather_every(count, place)
    return {key: found[key] for key in (*NUMBER_KEYS, *_TEXT_KEYS) if key in found}


def _number(values: pl.Series) -> pl.Series:
    """Text of a figure as a number; null where it is none, or cannot be."""
    numbers = values.str.strip_suffix("ms").cast(pl.Int64, strict=False)
    return pl.select(pl.when(numbers.is_between(-_MOST_MS, _MOST_MS)).then(numbers).alias("value")).to_series()


def _in_time(offsets_ms: pl.Series) -> pl.Series:
    """The TIMELINE offsets, null where a single line is far out of time: what does not stay there is no restart."""
    told = offsets_ms.is_not_null().to_numpy()
    stray = strays(offsets_ms.drop_nulls().to_numpy().astype(np.float64), STRAY_MS)
    return offsets_ms.scatter(np.flatnonzero(told)[stray], None) if stray.any() else offsets_ms


def restarts(frame: pl.DataFrame) -> pl.Series:
    """How many restarts lie before each mark: an engine start, or TIMELINE offsets that begin anew.

    Files with stderr lines count as one log, in the order given (a rotated set goes on where it was cut); files with
    tracing lines alone are counted beside them.
    """
    has_stderr = (pl.col("family") != "tracing").any().over("source").alias("has_stderr")
    place = pl.int_range(pl.len())
    offset_ms = pl.col("offset_ms")
    seen = frame.with_columns(_in_time(frame["offset_ms"])).select(
        has_stderr,
        started=(pl.col("event") == "engine_start") & (place.over(has_stderr) > 0),
        fell=((offset_ms - offset_ms.forward_fill().shift(1).over(has_stderr)) < -_RESTART_FALL_MS).fill_null(False),
        timed=offset_ms.is_not_null(),
    )
    # An engine start is followed by offsets that begin anew: the two are one restart.
    last_start = pl.when("started").then(place).forward_fill().over("has_stderr")
    last_time = pl.when("timed").then(place).forward_fill().shift(1).over("has_stderr")
    announced = (last_start > last_time.fill_null(-1)).fill_null(False)
    counted = seen.select("has_stderr", new=pl.col("started") | (pl.col("fell") & ~announced))
    return counted.select(pl.col("new").cum_sum().over("has_stderr").cast(pl.UInt16).alias("restart"))["restart"]
