"""Cuts a run into regimes: stretches of calls whose phases behave alike.

    first  count  start_ns  end_ns  reason                        bistable
    0      25     ...       ...     start of the run              False
    25     21     ...       ...     ntt_kernels 531 -> 862 ms     True

Stretches follow each other without a hole, from a restart's first lock to its last unlock.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.phases import concurrent
from gputrace.analysis.regimes.change_points import Change, Floats, alternates, change_points, changes, scaled
from gputrace.analysis.segments import timed_holds
from gputrace.analysis.thresholds import MIN_CALLS, REGIME_LEAST_SHARE
from gputrace.rows import Places, where
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
        return self.frame[list(names)].to_numpy().astype(np.float64)

    @cached_property
    def cycles(self) -> Floats:
        """From lock to lock, ms."""
        return self.values((_CYCLE,))[:, 0]

    @cached_property
    def tested(self) -> Floats:
        """The quantities `on_gpu`, in which a cut must show."""
        return self.values(self.on_gpu)

    @cached_property
    def gpu(self) -> npt.NDArray[np.int32]:
        """The GPU of each call."""
        return self.frame["gpu"].to_numpy()


def quantities(trace: Trace, bursts: pl.DataFrame) -> Quantities:
    """The vectors that are searched for changes. What a call lacks is taken from the calls beside it."""
    holds = timed_holds(trace)
    if not (holds["restart"].is_sorted() and holds["lock_ns"].is_sorted()):
        holds = holds.sort("restart", "lock_ns")
    places = Places(holds["call"])
    leaves = tuple(name for name in LEAVES_UNDER_MUTEX if trace.named_phases.of(name).height)
    beside = tuple(name for name in _BESIDE if trace.named_phases.of(name).height)
    durations = [_durations_ms(trace.named_phases.of(name), places).alias(name) for name in (*leaves, *beside)]
    next_lock = pl.col("lock_ns").shift(-1).over("gpu", "restart")
    frame = (
        holds[["call", "gpu", "restart", "lock_ns", "unlock_ns"]]
        .hstack(durations)
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
    frame = frame.hstack([pl.Series(_ALLOCATING, share * usual_ms)])
    on_gpu = (*leaves, _HELD, _BETWEEN, _CYCLE)
    filled = [
        pl.col(name).fill_null(strategy="forward").fill_null(strategy="backward").over("restart").fill_null(0.0)
        for name in (*on_gpu, *beside)
        if frame[name].null_count()
    ]
    return Quantities(frame.with_columns(filled), on_gpu, (*beside, _ALLOCATING))


def _durations_ms(phases: pl.DataFrame, places: Places) -> pl.Series:
    """How long phases took at each place, those of several circuits added up; null where there is none."""
    known = places.counts(phases["call"]) > 0
    return pl.Series(np.where(known, places.sums(phases["call"], phases["duration_ms"]), np.nan), nan_to_null=True)


def find_stretches(trace: Trace, bursts: pl.DataFrame, least_share: float = REGIME_LEAST_SHARE) -> list[Stretch]:
    """The regimes of a run, in order of time. A regime is one for all GPUs: it ends where any of them changes.

    Each takes at least `least_share` of the run's time.
    """
    known = quantities(trace, bursts)
    if known.frame.is_empty():
        return []
    found: list[Stretch] = []
    restarts = known.frame["restart"]
    runs = {run: where(known.frame, restarts == run) for run in np.unique(restarts.to_numpy()).tolist()}
    least_s = least_share * sum(map(_seconds, runs.values()))
    first = 0
    for restart, own in runs.items():
        part = Quantities(own, known.on_gpu, known.beside)
        begun = "start of the run" if not found else f"the prover was started again (run {restart + 1})"
        found += _of_restart(part, first, begun, least_s, trace)
        first += own.height
    if found and trace.goes_on_from_ns:
        found[0] = replace(found[0], start_ns=min(found[0].start_ns, *trace.goes_on_from_ns.values()))
    return found


def _seconds(calls: pl.DataFrame) -> float:
    return (int(calls["unlock_ns"].max()) - int(calls["lock_ns"].min())) / 1e9  # type: ignore[arg-type]


def _of_restart(known: Quantities, first: int, begun: str, least_s: float, trace: Trace) -> list[Stretch]:
    cuts, reasons = _earned(known, _candidates(known), least_s)
    running = _running(trace, known.frame)
    edges = [0, *cuts, known.frame.height]
    locks, ends = known.frame["lock_ns"], int(known.frame["unlock_ns"].max())  # type: ignore[arg-type]
    found = []
    for number, (low, high) in enumerate(pairwise(edges)):
        reason = begun if number == 0 else reasons[number - 1].words
        if number:
            reason += _load(running, edges[number - 1 : number + 2])
        found.append(
            Stretch(
                first + low,
                known.frame["call"][low:high],
                int(locks[low]),
                int(locks[high]) if high < known.frame.height else ends,
                reason,
                _takes_turns(known.frame[low:high]),
            )
        )
    return found


def _candidates(known: Quantities) -> list[int]:
    """Where a regime may begin, by all GPUs' calls together and by each GPU's own."""
    # The cycle is the sum of the others: it is tested, but not searched.
    searched = tuple(name for name in (*known.on_gpu, *known.beside) if name != _CYCLE)
    values, cycles, gpu = known.values(searched), known.cycles, known.gpu
    rows = [np.flatnonzero(gpu == number) for number in np.unique(gpu)]
    z = np.zeros_like(values)
    for own in rows:
        z[own] = scaled(values[own], float(np.median(cycles[own])))
    cuts = set(change_points(z))
    if len(rows) > 1:
        cuts.update(int(own[cut]) for own in rows for cut in change_points(z[own]))
    return sorted(cuts)


@dataclass(frozen=True)
class _Reason:
    """What changed at a cut, largest first; `share` is the largest change as a share of its GPU's cycle."""

    words: str
    share: float


def _earned(known: Quantities, cuts: list[int], least_s: float) -> tuple[list[int], list[_Reason]]:
    """The cuts whose two sides differ in a way that matters; the weakest goes first, and its neighbours are joined."""
    kept = list(cuts)
    seen: dict[tuple[int, int, int], _Reason] = {}

    def reason(at: tuple[int, int, int]) -> _Reason:
        if at not in seen:
            seen[at] = _what_changed(known, at, least_s)
        return seen[at]

    while kept:
        edges = [0, *kept, known.frame.height]
        reasons = [reason((edges[i], edges[i + 1], edges[i + 2])) for i in range(len(kept))]
        weakest = min(range(len(kept)), key=lambda i: reasons[i].share)
        if reasons[weakest].share > 0.0:
            return kept, reasons
        kept.pop(weakest)
    return [], []


def _what_changed(known: Quantities, at: tuple[int, int, int], least_s: float) -> _Reason:
    low, cut, high = at
    best = _Reason("", 0.0)
    if not _long_enough(known.frame, low, cut, high, least_s):
        return best
    values, cycles, gpu = known.tested, known.cycles, known.gpu
    gpus = np.unique(gpu)
    for number in gpus:
        before, after = (a + np.flatnonzero(gpu[a:b] == number) for a, b in ((low, cut), (cut, high)))
        cycle = float(np.median(cycles[np.concatenate([before, after])])) if len(before) + len(after) else 0.0
        found = changes(values[before], values[after], known.on_gpu, cycle, len(gpus))
        if found and found[0].size / max(cycle, 1e-9) > best.share:
            which = f"GPU {number}: " if len(gpus) > 1 else ""
            best = _Reason(which + _words(found), found[0].size / max(cycle, 1e-9))
    return best


def _takes_turns(calls: pl.DataFrame) -> bool:
    """Whether holds take turns on at least half of the GPUs."""
    gpu, held_ms = calls["gpu"].to_numpy(), calls[_HELD].to_numpy()
    told = [alternates(held_ms[gpu == number]) for number in np.unique(gpu)]
    return sum(told) >= max(1.0, len(told) / 2)


def _long_enough(calls: pl.DataFrame, low: int, cut: int, high: int, least_s: float) -> bool:
    return all(
        end - start >= MIN_CALLS and _seconds(calls[start:end]) >= least_s for start, end in ((low, cut), (cut, high))
    )


def _words(found: list[Change]) -> str:
    # The hold and the cycle contain the phases: they speak only where no phase does.
    parts = [change for change in found if change.name not in (_HELD, _CYCLE)] or found
    return ", ".join(f"{c.name} {c.before:.0f} -> {c.after:.0f} ms" for c in parts[:_NAMED_IN_REASON])


def _running(trace: Trace, calls: pl.DataFrame) -> Floats | None:
    """How many syntheses ran during each call; None where the log shows none."""
    if not trace.syntheses["start_ns"].count():
        return None
    return concurrent(trace.syntheses, calls["lock_ns"].to_numpy(), calls["unlock_ns"].to_numpy())


def _load(running: Floats | None, edges: list[int]) -> str:
    """How many syntheses ran before and after a cut, where that changed by a quarter or more."""
    if running is None:
        return ""
    before, after = (float(running[low:high].mean()) for low, high in pairwise(edges))
    if abs(after - before) < 0.25 * max(before, after):
        return ""
    return f"; syntheses running {before:.1f} -> {after:.1f}"
