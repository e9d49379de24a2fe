"""Charges every lost second to one cause.

A sample's lost time (what is not compute) is divided among the segments it covers, in proportion to their own lost
time: their length times the share in which their kind leaves the SMs idle. Each part is then charged by the first
rule that fits. Parts of a sample add up to its lost time, so nothing is lost or counted twice.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace import schema
from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.pieces import divide
from gputrace.analysis.segments import BETWEEN_HOLDS, COMPUTE_PHASES
from gputrace.analysis.signs.signs import Signs
from gputrace.analysis.thresholds import STALLED_FACTOR, Thresholds
from gputrace.ingest.samples import WIRE_PER_PAYLOAD
from gputrace.rows import Places, line_numbers, repeated, where, with_values
from gputrace.schema import PHASE_NAMES
from gputrace.trace import Trace

UNEXPLAINED = "unexplained"
# Where SMs and link are used less than this for long, a row covers so much time: a hundredth of what counts as a copy.
STILL_SHARE, ROW_S = 1e-4, 10.0
# The thresholds that decide what a second is charged to, where a GPU was sampled; without samples none does.
CHARGED_BY = ("copy_link_share", "staged_share")

_NAMES = pl.Enum(sorted({*PHASE_NAMES, *BETWEEN_HOLDS, "in_call"}))
# Which phase of which call, as one number: to join by it takes a third of the time of a join by call and name.
_OF_PHASE = (
    pl.col("call").cast(pl.UInt64) * len(_NAMES.categories) + pl.col("name").cast(_NAMES, strict=False).to_physical()
).alias("of_phase")


def _rules(copy_floor: float, line_floor: float | None) -> list[tuple[pl.Expr, str]]:
    """Condition and cause, in order; the first that holds decides.

    Columns: name, mode, bursting, stalled, pinned, warmup, copying (the sample), rate (payload bytes/s of the phase
    instance, null without a trace), and those of `_flags`.
    """
    name, rate = pl.col("name"), pl.col("rate")
    moves = (rate > copy_floor).fill_null(False)
    at_line_rate = (rate >= line_floor).fill_null(False) if line_floor else pl.lit(False)
    not_pinned = ~pl.col("pinned").fill_null(False)
    in_ntt = name == "ntt_kernels"
    kernels = name.is_in(COMPUTE_PHASES)
    return [
        (name == "barrier_wait", "prep-barrier"),
        ((name == "d_b_alloc") & pl.col("bursting"), "pinned-alloc-stall"),
        (name.is_in(["d_b_alloc", "msm_init", "msm_dtor"]), "device-allocation"),
        # The copy stops while the driver pins memory: no traffic inside a copying phase.
        (in_ntt & pl.col("bursting") & ~pl.col("copying"), "pinned-alloc-stall"),
        # A copy that stands still without a known allocation: the log may lack the lines that would explain it.
        (in_ntt & moves & not_pinned & ~pl.col("copying"), UNEXPLAINED),
        (in_ntt & moves & not_pinned & ~at_line_rate, "pageable-h2d"),
        # From pinned memory ntt_kernels only launches: whatever the copy engine does meanwhile, its time is launching.
        (in_ntt & pl.col("pinned") & rate.is_not_null() & ~pl.col("bursting"), "launch-overhead"),
        (in_ntt & moves, "line-rate-copy"),
        # Without a trace, the log's own word that the buffers are pageable must do.
        (in_ntt & rate.is_null() & (pl.col("pinned") == False) & (pl.col("mode") == "in-ntt"), "pageable-h2d"),  # noqa: E712
        (in_ntt & rate.is_null(), UNEXPLAINED),
        (in_ntt, "launch-overhead"),
        (kernels & pl.col("stalled") & pl.col("bursting"), "pinned-alloc-stall"),
        (kernels & pl.col("copying") & at_line_rate, "line-rate-copy"),
        (kernels, "kernel-phase-idle"),
        (name == "release_abc", "release-abc"),
        ((name == "no_work") & pl.col("pressed"), "memory-budget"),
        (name == "no_work", "no-work-queued"),
        ((name == "pre_lock") & pl.col("whole_call"), "mutex-contention"),
        ((name == "pre_lock") & pl.col("slow_log"), "slow-log-sink"),
        (name.is_in(["pre_lock", "pickup"]), "host-hot-path"),
        ((name == "mutex_held") & (pl.col("warmup") | pl.col("allocates")), "device-allocation"),
        ((name == "mutex_held") & pl.col("slow_log"), "slow-log-sink"),
        # A hold over the whole call: what neither computes nor copies in it is work on the CPU, or a wait for it.
        ((name == "mutex_held") & pl.col("whole_call") & ~pl.col("copying"), "mutex-contention"),
    ]


def lost_pieces(view: GpuView, moved: Transfers, trace: Trace, signs: Signs) -> pl.DataFrame:
    """The lost seconds of one GPU, piece by piece in order of time, with what the rules look at; no thresholds yet.

    In the middle of a long time in which nothing moves, several pieces are one row.

    After: gpu, sample, start_ns, end_ns, call, name, source, line, lost_s and the columns that
    `_rules` names less `copying`.
    """
    pieces, segments = view.pieces, view.segments
    inside = pieces.segment >= 0
    idle_share = np.ones(len(pieces.seconds))
    if len(moved.kind_of):
        if moved.sm is not None:
            busy = moved.sm.value[moved.kind_of]
        else:
            busy = segments["name"].is_in(COMPUTE_PHASES).cast(float).to_numpy()
        idle_share = np.where(inside, 1.0 - busy[pieces.segment], 1.0)
    lost_s = divide(view.seconds - view.compute_s, pieces.sample, pieces.seconds * idle_share, pieces.seconds)
    usual = pl.col("seconds").filter(~pl.col("bursting")).median().over("name", "mode")
    instances = moved.instances.select(
        _OF_PHASE,
        pl.col("rx_bytes_per_s").alias("rate"),
        (pl.col("seconds") > STALLED_FACTOR * usual).fill_null(True).alias("stalled"),
    )
    known = trace.calls[["call", "pinned", "warmup", "first_line"]].hstack(
        [trace.calls["source"].alias("first_source"), _allocating(trace)]
    )
    table = (
        segments.with_columns(_OF_PHASE)
        .join(instances, on="of_phase", how="left", maintain_order="left")
        .join(known, on="call", how="left", maintain_order="left")
        .join(_lines(trace), on="of_phase", how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("line").is_null()).then("first_source").otherwise("source").alias("source"),
            pl.coalesce("line", "first_line").alias("line"),
        )
    )
    table = table[[name for name in table.columns if name not in ("gpu", "of_phase")]]
    table = table.hstack([pl.Series("segment", np.arange(table.height))])
    first = _row_begins(view, signs)
    last = np.append(first[1:], len(lost_s))[: len(first)] - 1
    rows = pl.DataFrame(
        {
            "segment": pieces.segment[first],
            "sample": pieces.sample[first],
            "sample_start": view.samples["start_ns"].to_numpy()[pieces.sample[first]],
            "sample_end": view.samples["end_ns"].to_numpy()[pieces.sample[last]],
            "lost_s": np.add.reduceat(lost_s, first) if len(first) else lost_s,
        }
    )
    pieces_of = (
        where(rows, rows["lost_s"] > 0)
        .join(table, on="segment", how="left", maintain_order="left")
        .with_columns(
            pl.lit(view.info.gpu).alias("gpu"),
            pl.max_horizontal("start_ns", "sample_start").alias("start_ns"),
            pl.min_horizontal("end_ns", "sample_end").alias("end_ns"),
        )
    )
    return pieces_of.hstack(_flags(pieces_of, signs))


def _row_begins(view: GpuView, signs: Signs) -> npt.NDArray[np.int64]:
    """Which pieces begin a row: nearly all. In the middle of a long time in which nothing moves, a row has many."""
    pieces, start_ns, end_ns = view.pieces, view.samples["start_ns"].to_numpy(), view.samples["end_ns"].to_numpy()
    count = len(pieces.sample)
    if not view.sampled or count < 2:
        return np.arange(count)
    moved = np.fmax(np.nan_to_num(view.rx_wire), np.nan_to_num(view.tx_wire))
    floor = STILL_SHARE * view.limit_wire_bytes_per_s * view.seconds
    still = ((moved <= floor) & (view.compute_s <= STILL_SHARE * view.seconds))[pieces.sample]
    pressed = signs.pressure.covers((start_ns + end_ns) // 2)[pieces.sample]
    before, after = pieces.sample[:-1], pieces.sample[1:]
    goes_on = (
        (still[:-1] & still[1:])
        & (pieces.segment[:-1] == pieces.segment[1:])
        & (end_ns[before] == start_ns[after])
        & (pressed[:-1] == pressed[1:])
    )
    return thinned(goes_on, round(ROW_S / max(float(np.median(view.seconds)), 1e-9)))


def thinned(goes_on: npt.NDArray[np.bool_], in_a_row: int) -> npt.NDArray[np.int64]:
    """Which items begin a row, where the inner part of a run has `in_a_row` of them a row, and its ends one.

    `goes_on`: whether each item but the first goes on with the one before it. The ends are half a row long.
    """
    count, in_a_row = len(goes_on) + 1, max(2, in_a_row)
    run_begins = np.append(0, np.flatnonzero(~goes_on) + 1)
    length = np.diff(run_begins, append=count)
    place = np.arange(count) - np.repeat(run_begins, length)
    margin = in_a_row // 2
    inner = (place >= margin) & (place < np.repeat(length, length) - margin)
    return np.flatnonzero(~inner | ((place - margin) % in_a_row == 0))


def _lines(trace: Trace) -> pl.DataFrame:
    """of_phase, source, line: the log line that tells of a phase; of a wait for a call, the line of its lock."""
    told = trace.phases[["call", "name", "source", "line"]]
    waits = trace.named_phases.of("pre_lock")[told.columns]
    between = [
        pl.DataFrame([waits["call"], repeated("name", name, waits.height), waits["source"], waits["line"]])
        for name in ("no_work", "pickup", "between_calls")
    ]
    lines = pl.concat([told, *between]).select(_OF_PHASE, "source", "line")
    return lines.group_by("of_phase").agg(pl.col("source", "line").first())


def _allocating(trace: Trace) -> pl.Series:
    """`allocates`: whether the log has a d_a_cache line among each call's lines under the mutex."""
    told = with_values(where(trace.marks[["source", "line"]], trace.marks["event"] == "d_a_allocated"))
    lines = np.sort(line_numbers(told["source"], told["line"]))
    calls = with_values(trace.calls[["call", "source", "first_line", "last_line"]])
    before = np.searchsorted(lines, line_numbers(calls["source"], calls["first_line"]), side="left")
    up_to = np.searchsorted(lines, line_numbers(calls["source"], calls["last_line"]), side="right")
    allocating = calls["call"].filter(pl.Series(up_to > before))
    return pl.Series("allocates", Places(allocating).of(trace.calls["call"]) >= 0)


def _flags(pieces: pl.DataFrame, signs: Signs) -> list[pl.Series]:
    """What else is known of each piece.

    `pressed`: syntheses were short of memory in its middle. Of the whole run: `slow_log`: prints under the mutex are
    slow; `whole_call`: one mutex covers whole calls.
    """
    middle = (pieces["start_ns"] + pieces["end_ns"]).to_numpy() // 2

    def everywhere(name: str, value: bool) -> pl.Series:
        return pl.Series(name, np.full(len(middle), value))

    return [
        pl.Series("pressed", signs.pressure.covers(middle)),
        everywhere("slow_log", signs.prints.slow),
        everywhere("whole_call", signs.whole_call_mutex),
    ]


def charge(
    lost: pl.DataFrame, view: GpuView, moved: Transfers, thresholds: Thresholds, link_shortfall: float = 0.0
) -> pl.DataFrame:
    """The BLAME frame of one GPU: each row of `lost_pieces` with its cause.

    `link_shortfall` is the share of a copy at line rate that the link at its most would have saved: that part of such
    rows is charged to `link-degraded`, in rows of their own.
    """
    copying = view.copying(thresholds, lost["sample"].to_numpy())
    copy_floor = thresholds.copy_link_share * view.limit_wire_bytes_per_s / WIRE_PER_PAYLOAD
    cause = pl.lit(UNEXPLAINED)
    for condition, name in reversed(_rules(copy_floor, moved.line_floor(thresholds))):
        cause = pl.when(condition.fill_null(False)).then(pl.lit(name)).otherwise(cause)
    charged = (
        lost.hstack([pl.Series("copying", copying)])
        .select(
            "gpu",
            "start_ns",
            "end_ns",
            "call",
            pl.col("name").alias("phase"),
            "source",
            "line",
            cause.alias("cause"),
            pl.when("copying").then("lost_s").otherwise(0.0).alias("copy_only_s"),
            pl.when("copying").then(0.0).otherwise("lost_s").alias("idle_s"),
        )
        .cast(schema.BLAME.polars())
    )
    if not link_shortfall:
        return charged
    seconds = pl.col("copy_only_s", "idle_s")
    copied = pl.col("cause") == "line-rate-copy"
    return pl.concat(
        [
            charged.filter(~copied),
            charged.filter(copied).with_columns(seconds * (1.0 - link_shortfall)),
            charged.filter(copied).with_columns(seconds * link_shortfall, pl.lit("link-degraded").alias("cause")),
        ]
    ).sort("start_ns", maintain_order=True)
