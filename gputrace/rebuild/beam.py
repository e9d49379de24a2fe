"""Takes mixed lines of several GPUs' holds apart one by one: what the log has no times around, or is not whole.

What tells holds apart: each prints its lines in one order; its figures add up (ntt_msm_h is the sum of its circuits,
gpu_total of its phases, total_start_fn of waits and hold); and each line is printed when its figures say, counted from
the lock. Lines are given to open holds one after the other; the best partial solutions are
kept, because the line that decides comes later than those it decides about.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from gputrace.rebuild.timebounds import JITTER_MS, TimeBounds

if TYPE_CHECKING:
    from gputrace.rebuild.blocks import MutexLine

_BEAM = 128
_SAME_TIME_NS = 4e6
_MOST_MS = 500.0
# A partial solution this much worse than the best will not win: one lost line costs less.
_HOPELESS_MS = 600.0
_DECIDED_MS = 60.0
# Of two holds that a line fits, the one that would have printed it sooner: lines come in order of time.
_SOONER_WEIGHT = 0.01
# A hold that is never given its next line: a log that ends, or a line that was lost.
_ABANDONED_MS = 400.0
# A hold without a line that all others have.
_SKIPPED_MS = 150.0
_STAGES = ("mutex_acquired", "ntt_h", "ntt_msm_h", "barrier_wait", "batch_add", "tail_msm", "mutex_released")
_ALLOCATIONS = ("d_a_allocated", "pool_threshold_set")


@dataclass(frozen=True)
class Kinds:
    """The kinds of lines that a log has at all: what none of its holds prints is not missing in any."""

    events: frozenset[str]

    @classmethod
    def by(cls, lines: "list[MutexLine]") -> "Kinds":
        """What these lines are."""
        return cls(frozenset(line.event for line in lines))

    @property
    def has_lock(self) -> bool:
        """Whether holds begin with a line of their own."""
        return "mutex_acquired" in self.events

    @property
    def last(self) -> str:
        """The line that ends a hold."""
        return "mutex_released" if "mutex_released" in self.events else "tail_msm"


class _Hold(NamedTuple):
    """An open hold: what it has printed so far. `figures` are ms by key; times are of its lock, ns.

    `allocates` is true once it printed an allocation: then ntt_msm_h also holds a cudaMalloc, which may take seconds.
    """

    lines: tuple[int, ...]
    stage: int
    ntt_ms: int
    circuits: int
    figures: tuple[tuple[str, int], ...]
    low_ns: float
    high_ns: float
    allocates: bool = False

    def ms(self, key: str) -> int | None:
        return next((value for name, value in self.figures if name == key), None)

    @property
    def says(self) -> tuple[object, ...]:
        """What tells it from other holds: two that say the same, at the same time, are interchangeable."""
        at = (round(self.low_ns / _SAME_TIME_NS), round(self.high_ns / _SAME_TIME_NS)) if self.bounded else (0, 0)
        return self.stage, self.ntt_ms, self.circuits, self.figures, self.allocates, at

    @property
    def bounded(self) -> bool:
        return isfinite(self.low_ns) and isfinite(self.high_ns)


@dataclass
class _State:
    """A partial solution: its cost in ms, the holds still open, and those closed, newest first.

    `now_ns` is how late it is at least, by what was given to holds so far: lines are printed in order of time.
    """

    cost: float
    holds: tuple[_Hold, ...]
    closed: "tuple[tuple[int, ...], object] | None"
    now_ns: float


def likeliest_holds(lines: "list[MutexLine]", bounds: TimeBounds, kinds: Kinds) -> "list[list[MutexLine]]":
    """The lines of each hold of one run, in order of their locks. Takes some ms a line: for few, or without times."""
    states = [_State(0.0, (), None, float("-inf"))]
    for number, line in enumerate(lines):
        low, high = _written(line, bounds)
        grown: dict[object, _State] = {}
        for state in states:
            for following in _give(state, number, line, low, high, kinds):
                # Solutions whose open holds say the same go on alike: the cheaper one will do.
                said = tuple(sorted(hash(hold.says) for hold in following.holds))
                known = grown.get(said)
                if known is None or following.cost < known.cost:
                    grown[said] = following
        least = min(state.cost for state in grown.values())
        # Where lines have times of their own, a few tens of ms decide.
        # Damaged times may contradict each other.
        far = min(_HOPELESS_MS, _DECIDED_MS + max(0.0, high - low) / 1e6) if isfinite(high - low) else _HOPELESS_MS
        near = [state for state in grown.values() if state.cost <= least + far]
        states = sorted(near, key=lambda state: state.cost)[:_BEAM]
    groups: list[tuple[int, ...]] = []
    chain = _close_all(states[0]).closed if states else None
    while chain is not None:
        groups.append(chain[0])
        chain = chain[1]  # type: ignore[assignment]
    return [[lines[number] for number in group] for group in sorted(groups)]


def _written(line: "MutexLine", bounds: TimeBounds) -> tuple[float, float]:
    if line.arrival_ns is not None:
        return float(line.arrival_ns), float(line.arrival_ns)
    return bounds.span_ns(line.order)


def _close_all(state: _State) -> _State:
    closed = state.closed
    for hold in state.holds:
        closed = (hold.lines, closed)
    return _State(state.cost + _ABANDONED_MS * len(state.holds), (), closed, state.now_ns)


def _give(state: _State, number: int, line: "MutexLine", low: float, high: float, kinds: Kinds) -> Iterator[_State]:
    """All ways to go on with a line: a new hold, or one of those that may print it next."""
    if line.event == "mutex_acquired" or (line.event == "ntt_h" and not kinds.has_lock) or not state.holds:
        figures = tuple(line.ms.items())
        ntt = (line.circuit or {}).get("total", 0)
        stage = 0 if line.event in _ALLOCATIONS else _STAGES.index(line.event)
        fresh = _Hold((number,), stage, ntt, int(line.event == "ntt_h"), figures, low, high)
        # A hold whose lock was not seen: the log begins in the middle.
        surprise = 0.0 if line.event == "mutex_acquired" or not kinds.has_lock else _SKIPPED_MS
        if line.event == kinds.last:
            yield _State(state.cost + surprise, state.holds, ((number,), state.closed), max(state.now_ns, low))
        else:
            yield _State(state.cost + surprise, (*state.holds, fresh), state.closed, max(state.now_ns, low))
        if line.event == "mutex_acquired":
            return
    taken = not state.holds
    tried: set[tuple[object, ...]] = set()
    for at, hold in enumerate(state.holds):
        if hold.says in tried:
            continue
        tried.add(hold.says)
        cost = _cost(hold, line, max(low, state.now_ns), high, kinds)
        if cost is None:
            continue
        since_lock = _since_lock(hold, line)
        late = line.event == "ntt_h" and hold.allocates
        printed = low if since_lock is None or late else max(low, hold.low_ns + since_lock * 1e6)
        now_ns = max(state.now_ns, min(printed, high))
        if isfinite(state.now_ns):
            cost += _SOONER_WEIGHT * min(_MOST_MS, (now_ns - state.now_ns) / 1e6)
        taken = True
        others = state.holds[:at] + state.holds[at + 1 :]
        lines = (*hold.lines, number)
        if line.event == kinds.last:
            yield _State(state.cost + cost, others, (lines, state.closed), now_ns)
            continue
        ntt = hold.ntt_ms + (line.circuit or {}).get("total", 0)
        stage = hold.stage if line.event in _ALLOCATIONS else _STAGES.index(line.event)
        begun = hold._replace(
            lines=lines,
            stage=stage,
            ntt_ms=ntt,
            circuits=hold.circuits + (line.event == "ntt_h"),
            figures=hold.figures + tuple(line.ms.items()),
            allocates=hold.allocates or line.event in _ALLOCATIONS,
        )
        begun = _narrowed(begun, hold, line, low, high)
        yield _State(state.cost + cost, (*state.holds[:at], begun, *state.holds[at + 1 :]), state.closed, now_ns)
    if not taken:
        # A line that fits no hold: it is kept as one of its own.
        yield _State(state.cost + _ABANDONED_MS, state.holds, ((number,), state.closed), state.now_ns)


def _cost(hold: _Hold, line: "MutexLine", low: float, high: float, kinds: Kinds) -> float | None:
    """How badly a line fits a hold, ms; None where it cannot be its next."""
    if line.event in _ALLOCATIONS:
        return 0.0 if hold.stage == 0 else None
    stage = _STAGES.index(line.event)
    again = line.event == "ntt_h" and hold.stage == stage
    if stage < hold.stage or (stage == hold.stage and not again):
        return None
    skipped = sum(name in kinds.events for name in _STAGES[hold.stage + 1 : stage])
    cost = _SKIPPED_MS * skipped
    since_lock = _since_lock(hold, line)
    if line.event == "ntt_msm_h" and hold.circuits:
        # -1..+2 ms a circuit.
        off = line.ms["ntt_msm_h_ms"] - hold.ntt_ms
        cost += max(0.0, -off - hold.circuits)
        if not hold.allocates:
            cost += max(0.0, off - 2.0 * hold.circuits)
    if line.event == "tail_msm":
        parts = [
            hold.ms("ntt_msm_h_ms"),
            hold.ms("barrier_wait_ms") or 0,
            hold.ms("batch_add_ms"),
            line.ms["tail_msm_ms"],
        ]
        if None not in parts:
            off = line.ms["gpu_total_ms"] - sum(part for part in parts if part is not None)
            cost += max(0.0, -off) + max(0.0, off - 5.0)
    if line.event == "mutex_released":
        pre, wait, total = hold.ms("pre_lock_cpu_ms"), hold.ms("mutex_wait_ms"), hold.ms("gpu_total_ms")
        if pre is not None and wait is not None:
            off = line.ms["total_start_fn_ms"] - pre - wait - line.ms["mutex_held_ms"]
            cost += max(0.0, -off) + max(0.0, off - 3.0)
        if total is not None:
            after = line.ms["mutex_held_ms"] - total
            cost += max(0.0, -after) + 0.02 * max(0.0, after)
    if since_lock is not None:
        late_ms = max(0.0, (low - hold.high_ns) / 1e6 - since_lock - JITTER_MS)
        # The allocation comes before the circuits' own time and is not in it.
        cost += 0.0 if line.event == "ntt_h" and hold.allocates else late_ms
        cost += max(0.0, since_lock - (high - hold.low_ns) / 1e6 - JITTER_MS)
    return cost if cost < _MOST_MS else None


def _narrowed(begun: _Hold, hold: _Hold, line: "MutexLine", low: float, high: float) -> _Hold:
    """The hold with what this line says about the time of its lock."""
    since_lock = _since_lock(hold, line)
    if since_lock is None or (line.event == "ntt_h" and hold.allocates):
        return begun
    earliest = max(hold.low_ns, low - (since_lock + JITTER_MS) * 1e6)
    latest = min(hold.high_ns, high - (since_lock - JITTER_MS) * 1e6)
    return begun if earliest > latest else begun._replace(low_ns=earliest, high_ns=latest)


def _since_lock(hold: _Hold, line: "MutexLine") -> float | None:
    """When after its lock a hold prints this line, ms, as its figures say."""
    if hold.ms("mutex_wait_ms") is None:
        return None
    if line.event == "ntt_h":
        return float(hold.ntt_ms + (line.circuit or {}).get("total", 0))
    if line.event == "ntt_msm_h":
        return float(line.ms["ntt_msm_h_ms"])
    if line.event == "mutex_released":
        return float(line.ms["mutex_held_ms"])
    if line.event == "tail_msm":
        return float(line.ms["gpu_total_ms"])
    ntt = hold.ms("ntt_msm_h_ms")
    if ntt is None:
        return None
    barrier = line.ms.get("barrier_wait_ms", hold.ms("barrier_wait_ms") or 0)
    return float(ntt + barrier + line.ms.get("batch_add_ms", 0))
