"""The log as one sequence: marks in order, numbers as numbers, restarts counted."""

from dataclasses import dataclass

import polars as pl

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


@dataclass(frozen=True)
class Sequence:
    """Marks with their numbers in columns.

    `frame` has the columns of MARKS less `values`, plus `order` (position in the log; within one stream it is the
    order of writing), `restart`, `proof_kind`, `is_pinned` and one Int64 column per key of NUMBER_KEYS.
    `damaged` counts lines left out because a figure of theirs is missing or cannot be.
    """

    frame: pl.DataFrame
    damaged: int = 0

    def of(self, *events: str) -> pl.DataFrame:
        """Marks of these events, in order."""
        return self.frame.filter(pl.col("event").is_in(events))


def to_sequence(marks: pl.DataFrame) -> Sequence:
    """Before: MARKS. After: a `Sequence`; files with stderr lines first, so that restarts are found in them."""
    numbered = marks.with_row_index("order")
    pairs = (
        numbered.select("order", "values")
        .explode("values")
        .filter(pl.col("values").is_not_null())
        .select("order", pl.col("values").struct.field("key"), pl.col("values").struct.field("value"))
    )
    numbers = pairs.filter(pl.col("key").is_in(NUMBER_KEYS)).with_columns(
        pl.col("value").str.strip_suffix("ms").cast(pl.Int64, strict=False)
    )
    numbers = numbers.filter(pl.col("value").is_between(-_MOST_MS, _MOST_MS))
    wide = numbers.pivot(
        on="key", on_columns=list(NUMBER_KEYS), index="order", values="value", aggregate_function="first"
    )
    texts = pairs.filter(pl.col("key").is_in(["proof_kind", "kind", "is_pinned"])).pivot(
        on="key",
        on_columns=["proof_kind", "kind", "is_pinned"],
        index="order",
        values="value",
        aggregate_function="first",
    )
    frame = (
        numbered.drop("values")
        .join(wide, on="order", how="left")
        .join(texts, on="order", how="left")
        .with_columns(
            pl.coalesce("proof_kind", "kind").alias("proof_kind"),
            (pl.col("is_pinned") == "true").alias("is_pinned"),
        )
        .sort("order")
    )
    damaged = pl.any_horizontal(
        (pl.col("event") == event) & pl.any_horizontal(pl.col(figures).is_null())
        for event, figures in FIGURES_OF.items()
    )
    whole = frame.filter(~damaged.fill_null(False))
    return Sequence(whole.with_columns(_restarts(whole).alias("restart")), frame.height - whole.height)


def _restarts(frame: pl.DataFrame) -> pl.Series:
    """How many restarts lie before each mark: an engine start, or TIMELINE offsets that begin anew.

    Files with stderr lines count as one log, in the order given (a rotated set goes on where it was cut); files with
    tracing lines alone are counted beside them.
    """
    has_stderr = (pl.col("family") != "tracing").any().over("source").alias("has_stderr")
    place = pl.int_range(pl.len())
    seen = frame.select(
        has_stderr,
        started=(pl.col("event") == "engine_start") & (place.over(has_stderr) > 0),
        fell=(
            (pl.col("offset_ms") - pl.col("offset_ms").forward_fill().shift(1).over(has_stderr)) < -_RESTART_FALL_MS
        ).fill_null(False),
        timed=pl.col("offset_ms").is_not_null(),
    )
    # An engine start is followed by offsets that begin anew: the two are one restart.
    last_start = pl.when("started").then(place).forward_fill().over("has_stderr")
    last_time = pl.when("timed").then(place).forward_fill().shift(1).over("has_stderr")
    announced = (last_start > last_time.fill_null(-1)).fill_null(False)
    counted = seen.select("has_stderr", new=pl.col("started") | (pl.col("fell") & ~announced))
    return counted.select(pl.col("new").cum_sum().over("has_stderr").cast(pl.UInt16).alias("restart"))["restart"]
