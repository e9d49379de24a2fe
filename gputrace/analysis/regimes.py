"""Cuts a run into regimes: stretches of calls whose phases behave alike.

    first  count  start_ns  end_ns  reason                        bistable
    0      25     ...       ...     start of the run              False
    25     21     ...       ...     ntt_kernels 531 -> 862 ms     True

Stretches follow each other without a hole, from a restart's first lock to its last unlock.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from gputrace.analysis.changes import Change, Floats, alternates, change_points, changes
from gputrace.analysis.phases import concurrent
from gputrace.analysis.segments import timed_holds
from gputrace.analysis.thresholds import MIN_CALLS, REGIME_LEAST_SHARE
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace

_BESIDE = ("prep_msm", "b_g2_msm", "mutex_wait")
_CYCLE, _HELD, _BETWEEN, _ALLOCATING = "lock to lock", "mutex_held", "between holds", "allocating"
_NAMED_IN_REASON = 3


@dataclass(frozen=True)
class Stretch:
    """Calls `first` to `first + len(calls)` in order of lock; `calls` are their numbers in `Trace.calls`."""

    first: int
    calls: pl.Series
    start_ns: int
    end_ns: int
    reason: str
    bistable: bool


@dataclass(frozen=True)
class Quantities:
    """What is known of each call in order of lock: call, restart, lock_ns, unlock_ns, and one column a quantity, ms."""

    frame: pl.DataFrame
    on_gpu: tuple[str, ...]
    beside: tuple[str, ...]

    def values(self, names: tuple[str, ...]) -> Floats:
        """The named columns as an array, calls by quantities."""
        return self.frame.select(names).to_numpy().astype(np.float64)


def quantities(trace: Trace, bursts: pl.DataFrame) -> Quantities:
    """The vectors that are searched for changes. What a call lacks is taken from the calls beside it."""
    holds = timed_holds(trace).sort("restart", "lock_ns")
    durations = (
        trace.phases.filter(pl.col("name").is_in([*LEAVES_UNDER_MUTEX, *_BESIDE]))
        .with_columns(pl.col("name").cast(pl.String))
        .group_by("call", "name")
        .agg(pl.col("duration_ms").sum().cast(pl.Float64))
    )
    names = durations["name"].unique().to_list()
    leaves = tuple(name for name in LEAVES_UNDER_MUTEX if name in names)
    beside = tuple(name for name in _BESIDE if name in names)
    wide = durations.pivot("name", index="call", values="duration_ms") if names else durations.select("call").unique()
    next_lock = pl.col("lock_ns").shift(-1).over("gpu", "restart")
    frame = (
        holds.select("call", "gpu", "restart", "lock_ns", "unlock_ns")
        .join(wide, on="call", how="left", maintain_order="left")
        .with_columns(
            ((pl.col("unlock_ns") - pl.col("lock_ns")) / 1e6).alias(_HELD),
            ((next_lock - pl.col("unlock_ns")) / 1e6).alias(_BETWEEN),
            ((next_lock - pl.col("lock_ns")) / 1e6).alias(_CYCLE),
        )
    )
    start, end = frame["lock_ns"].to_numpy(), frame["unlock_ns"].to_numpy()
    share = concurrent(bursts, start, end) if bursts.height and frame.height else np.zeros(frame.height)
    usual_ms = float(frame[_HELD].median() or 0.0)  # type: ignore[arg-type]
    # A call that meets allocations differs from one that does not, whatever its phases say.
    frame = frame.with_columns(pl.Series(_ALLOCATING, share * usual_ms))
    on_gpu = (*leaves, _HELD, _BETWEEN, _CYCLE)
    filled = [
        pl.col(name).fill_null(strategy="forward").fill_null(strategy="backward").over("restart").fill_null(0.0)
        for name in (*on_gpu, *beside)
    ]
    return Quantities(frame.with_columns(filled), on_gpu, (*beside, _ALLOCATING))


def find_stretches(trace: Trace, bursts: pl.DataFrame) -> list[Stretch]:
    """The regimes of a run, in order of time; several GPUs' calls are taken together, in order of lock."""
    known = quantities(trace, bursts)
    if known.frame.is_empty():
        return []
    found: list[Stretch] = []
    run_s = sum(_seconds(own) for _, own in known.frame.group_by("restart"))
    first = 0
    for (restart,), own in known.frame.group_by("restart", maintain_order=True):
        part = Quantities(own, known.on_gpu, known.beside)
        begun = "start of the run" if not found else f"the prover was started again (run {int(str(restart)) + 1})"
        found += _of_restart(part, first, begun, run_s, trace)
        first += own.height
    return found


def _seconds(calls: pl.DataFrame) -> float:
    return (int(calls["unlock_ns"].max()) - int(calls["lock_ns"].min())) / 1e9  # type: ignore[arg-type]


def _of_restart(known: Quantities, first: int, begun: str, run_s: float, trace: Trace) -> list[Stretch]:
    cycle = float(np.median(known.values((_CYCLE,))))
    # The cycle is the sum of the others: it is tested, but not searched.
    searched = tuple(name for name in (*known.on_gpu, *known.beside) if name != _CYCLE)
    cuts = change_points(known.values(searched), cycle)
    cuts, reasons = _earned(known, cuts, run_s)
    edges = [0, *cuts, known.frame.height]
    locks, ends = known.frame["lock_ns"], int(known.frame["unlock_ns"].max())  # type: ignore[arg-type]
    held = known.values((_HELD,))[:, 0]
    found = []
    for number, (low, high) in enumerate(pairwise(edges)):
        reason = begun if number == 0 else _reason(reasons[number - 1])
        if number:
            reason += _load(trace, known.frame, edges[number - 1 : number + 2])
        found.append(
            Stretch(
                first + low,
                known.frame["call"][low:high],
                int(locks[low]),
                int(locks[high]) if high < known.frame.height else ends,
                reason,
                alternates(held[low:high]),
            )
        )
    return found


def _earned(known: Quantities, cuts: list[int], run_s: float) -> tuple[list[int], list[list[Change]]]:
    """The cuts whose two sides differ in a way that matters; the weakest goes first, and its neighbours are joined."""
    values = known.values(known.on_gpu)
    cycles = known.values((_CYCLE,))[:, 0]
    kept = list(cuts)
    while kept:
        edges = [0, *kept, len(values)]
        sides = [(edges[i], edges[i + 1], edges[i + 2]) for i in range(len(kept))]
        reasons = [
            changes(values[low:cut], values[cut:high], known.on_gpu, float(np.median(cycles[low:high])))
            if _long_enough(known.frame, low, cut, high, run_s)
            else []
            for low, cut, high in sides
        ]
        sizes = [
            own[0].size / float(np.median(cycles[s[0] : s[2]])) if own else 0.0
            for own, s in zip(reasons, sides, strict=True)
        ]
        if min(sizes) > 0.0:
            return kept, reasons
        kept.pop(int(np.argmin(sizes)))
    return [], []


def _long_enough(calls: pl.DataFrame, low: int, cut: int, high: int, run_s: float) -> bool:
    return all(
        end - start >= MIN_CALLS and _seconds(calls[start:end]) >= REGIME_LEAST_SHARE * run_s
        for start, end in ((low, cut), (cut, high))
    )


def _reason(found: list[Change]) -> str:
    # The hold and the cycle contain the phases: they speak only where no phase does.
    parts = [change for change in found if change.name not in (_HELD, _CYCLE)] or found
    return ", ".join(f"{c.name} {c.before:.0f} -> {c.after:.0f} ms" for c in parts[:_NAMED_IN_REASON])


def _load(trace: Trace, calls: pl.DataFrame, edges: list[int]) -> str:
    """How many syntheses ran before and after a cut, where that changed by a quarter or more."""
    if not trace.syntheses["start_ns"].count():
        return ""
    running = concurrent(trace.syntheses, calls["lock_ns"].to_numpy(), calls["unlock_ns"].to_numpy())
    before, after = (float(running[low:high].mean()) for low, high in pairwise(edges))
    if abs(after - before) < 0.25 * max(before, after):
        return ""
    return f"; syntheses running {before:.1f} -> {after:.1f}"
