"""Puts a log without any time at all (C++ lines only) on the clock of a GPU trace.

Within a hold of the mutex every duration is known; between holds nothing is, except that a worker that waited got the
mutex the moment it was free. So holds are placed one after the other, rigidly where there was a wait, with a gap of any
length where there was none, such that traffic and SM activity predicted by their phases differ least from what was
sampled (dynamic programming over a grid of time). What each kind of phase looks like is learnt from the placement and
the placement repeated.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.rebuild.blocks import NTT_H_PARTS, Blocks
from gputrace.rebuild.columns import Floats, first_known

STEP_S = 0.02
# The placement must explain this share of the trace's variance, and this much more than the best one elsewhere.
MIN_EXPLAINED = 0.35
MIN_MARGIN = 0.08
_ELSEWHERE_S = 1.0
_PASSES = 4
# A gap is as likely short as long; without any price the holds would drift apart in noise.
_GAP_COST = 0.002
_MOST_CELLS = 100_000_000
_PHASES = (*NTT_H_PARTS, "barrier_wait", "batch_add", "tail_msm", "rest")
# First guesses of traffic (square root of the share of the peak) and SM activity; learnt anew from the data.
_FIRST_RX = {"ntt_kernels": 0.35, "coset_intt_sync": 0.5, "msm_invoke": 0.6, "batch_add": 0.9, "tail_msm": 0.2}
_FIRST_SM = {"ntt_kernels": 0.05, "coset_intt_sync": 0.8, "msm_invoke": 0.8, "batch_add": 0.3, "tail_msm": 0.25}


@dataclass(frozen=True)
class Placement:
    """Lock time of each block, ns; share of variance explained, and how much more than the best placement elsewhere."""

    lock_ns: list[int]
    explained: float
    margin: float
    uncertainty_s: float

    @property
    def believed(self) -> bool:
        """Whether the placement is good and unique."""
        return self.explained >= MIN_EXPLAINED and self.margin >= MIN_MARGIN


@dataclass(frozen=True)
class Hold:
    """One hold of the mutex as the log tells it: how long, of what (phases and ms, in order), after a wait or not."""

    held_ms: float
    spans: list[tuple[str, float]]
    waited: bool


def holds_of(blocks: Blocks) -> list[Hold]:
    """The holds of all blocks whose length is known."""
    parts_ms = {part: blocks.circuit_ms(part) for part in NTT_H_PARTS}
    sum_ms = np.sum(list(parts_ms.values()), axis=0)
    columns = {"rest": np.maximum(0.0, first_known(blocks.figure("ntt_msm_h_ms"), sum_ms) - sum_ms)}
    columns |= {part: np.maximum(0.0, ms) for part, ms in parts_ms.items()}
    columns |= {name: np.nan_to_num(blocks.figure(f"{name}_ms")) for name in ("barrier_wait", "batch_add", "tail_msm")}
    return [
        Hold(float(blocks.held_ms[number]), [(name, float(ms[number])) for name, ms in columns.items()], bool(waited))
        for number, waited in enumerate(blocks.waited)
        if not np.isnan(blocks.held_ms[number])
    ]


def place(holds: list[Hold], samples: pl.DataFrame) -> Placement | None:
    """Places the holds of one GPU on its samples; None where there is too little to compare."""
    if len(holds) < 3 or samples.height < 50 or not samples["rx_wire_bytes"].count():
        return None
    begin, end = int(samples["start_ns"].min()), int(samples["end_ns"].max())  # type: ignore[arg-type]
    steps = int((end - begin) / 1e9 / STEP_S)
    seen = _observe(samples, begin, steps)
    templates = [_phase_of_step(hold) for hold in holds]
    length = [len(template) for template in templates]
    if sum(length) > steps or steps * len(holds) > _MOST_CELLS:
        return None
    rigid = [False] + [hold.waited for hold in holds[1:]]
    levels = np.array([[_FIRST_RX.get(name, 0.0), _FIRST_SM.get(name, 0.0)] for name in _PHASES])
    levels /= np.maximum(seen.std(axis=0), 1e-9) / np.maximum(np.quantile(seen, 0.98, axis=0), 1e-9)
    scaled = seen / np.maximum(seen.std(axis=0), 1e-9)
    solved: _Solved | None = None
    for _ in range(_PASSES):
        solved = _solve(scaled, templates, levels, rigid)
        levels = _learn(scaled, templates, solved.at, levels)
    assert solved is not None
    lock_ns = _refined(solved.at, holds, rigid, begin)
    return Placement(lock_ns, solved.explained, solved.margin, 0.1)


def _observe(samples: pl.DataFrame, begin_ns: int, steps: int) -> Floats:
    """Square root of rx rate, and SM activity (0 where unknown), on the grid: steps x 2."""
    start, end = samples["start_ns"].to_numpy(), samples["end_ns"].to_numpy()
    middle = begin_ns + (np.arange(steps) + 0.5) * STEP_S * 1e9
    at = np.clip(np.searchsorted(start, middle, side="right") - 1, 0, len(start) - 1)
    rate = samples["rx_wire_bytes"].fill_null(0.0).to_numpy() / np.maximum(end - start, 1)
    busy = samples["sm_active"].fill_null(0.0).to_numpy()
    return np.column_stack([np.sqrt(rate[at]), busy[at]])


def _phase_of_step(hold: Hold) -> npt.NDArray[np.int64]:
    """Which phase (index in _PHASES) each step of a hold is in."""
    edges = np.cumsum([ms for _, ms in hold.spans]) / 1e3
    steps = max(1, round(hold.held_ms / 1e3 / STEP_S))
    middle = (np.arange(steps) + 0.5) * STEP_S
    names = [name for name, _ in hold.spans] + ["rest"]
    return np.array([_PHASES.index(names[i]) for i in np.searchsorted(edges, middle, side="right")], dtype=np.int64)


@dataclass(frozen=True)
class _Solved:
    """Step at which each block locks, and how well that explains the trace."""

    at: list[int]
    explained: float
    margin: float


def _solve(seen: Floats, templates: list[npt.NDArray[np.int64]], levels: Floats, rigid: list[bool]) -> _Solved:
    steps = len(seen)
    around = ((seen - seen.mean(axis=0)) ** 2).sum(axis=1)
    # Outside the log anything may happen, idling included: a hold must not be drawn out there to explain an idle time.
    outside = np.concatenate([[0.0], np.cumsum(np.minimum(around, (seen**2).sum(axis=1)))])
    # Between holds nothing is copied and nothing computed.
    between = np.concatenate([[0.0], np.cumsum((seen**2).sum(axis=1) + _GAP_COST)])
    costs = [_template_cost(seen, levels[template]) for template in templates]
    forward: list[Floats] = []
    for k, cost in enumerate(costs):
        if k == 0:
            forward.append(cost + outside[: len(cost)])
            continue
        n = len(templates[k - 1])
        shifted = _shift(forward[-1], n, steps, len(cost))
        if not rigid[k]:
            open_since = np.minimum.accumulate(shifted - between[: len(shifted)])
            shifted = open_since + between[: len(shifted)]
        else:
            shifted = _blur(shifted)
        forward.append(shifted + cost)
    backward: list[Floats] = [np.empty(0)] * len(costs)
    last = len(costs) - 1
    for k in range(last, -1, -1):
        n = len(templates[k])
        ends = np.arange(len(costs[k])) + n
        if k == last:
            backward[k] = outside[-1] - outside[ends]
            continue
        following = np.full(steps + 1, np.inf)
        following[: len(costs[k + 1])] = backward[k + 1] + costs[k + 1]
        if not rigid[k + 1]:
            reversed_min = np.minimum.accumulate((following + between[: steps + 1])[::-1])[::-1]
            following = reversed_min - between[: steps + 1]
        else:
            following = _blur(following)
        backward[k] = following[ends]
    total = float(around.sum())
    at = _trace_back(forward, backward, templates, between, rigid)
    probe = len(costs) // 2
    through = forward[probe] + backward[probe]
    best = float(through.min())
    far = np.abs(np.arange(len(through)) - at[probe]) * STEP_S > _ELSEWHERE_S
    runner_up = float(through[far].min()) if far.any() else total
    return _Solved(at, 1.0 - best / total, (runner_up - best) / total)


def _template_cost(seen: Floats, expected: Floats) -> Floats:
    """Sum of squares of seen - expected for a hold that begins at each step."""
    n = len(expected)
    squares = np.concatenate([[0.0], np.cumsum((seen**2).sum(axis=1))])
    cross = sum(np.correlate(seen[:, c], expected[:, c], mode="valid") for c in range(seen.shape[1]))
    return np.asarray(squares[n:] - squares[:-n] - 2.0 * cross + float((expected**2).sum()))


def _shift(values: Floats, n: int, steps: int, length: int) -> Floats:
    """`values` moved by n steps: the cost of being free at each step."""
    moved = np.full(steps + 1, np.inf)
    moved[n : n + len(values)] = values
    return moved[:length]


def _blur(values: Floats) -> Floats:
    """The least of each step and its neighbours: durations are rounded to the grid."""
    padded = np.concatenate([[np.inf], values, [np.inf]])
    return np.asarray(np.minimum(np.minimum(padded[:-2], padded[1:-1]), padded[2:]))


def _trace_back(
    forward: list[Floats],
    backward: list[Floats],
    templates: list[npt.NDArray[np.int64]],
    between: Floats,
    rigid: list[bool],
) -> list[int]:
    last = len(forward) - 1
    at = [0] * (last + 1)
    at[last] = int(np.argmin(forward[last] + backward[last]))
    for k in range(last, 0, -1):
        n = len(templates[k - 1])
        latest = at[k] - n
        if rigid[k]:
            options = [s for s in (latest - 1, latest, latest + 1) if 0 <= s < len(forward[k - 1])]
            at[k - 1] = min(options, key=lambda step: float(forward[k - 1][step]))
        else:
            reach = forward[k - 1][: latest + 1]
            at[k - 1] = int(np.argmin(reach - between[n : n + len(reach)]))
    return at


def _learn(seen: Floats, templates: list[npt.NDArray[np.int64]], at: list[int], levels: Floats) -> Floats:
    """Mean of what was seen in each kind of phase under a placement."""
    phase = np.concatenate(templates)
    where = np.concatenate(
        [np.arange(step, step + len(template)) for step, template in zip(at, templates, strict=True)]
    )
    learnt = levels.copy()
    counts = np.bincount(phase, minlength=len(_PHASES))
    for c in range(seen.shape[1]):
        sums = np.bincount(phase, seen[where, c], minlength=len(_PHASES))
        learnt[:, c] = np.where(counts > 5, sums / np.maximum(counts, 1), levels[:, c])
    return learnt


def _refined(at: list[int], holds: list[Hold], rigid: list[bool], begin_ns: int) -> list[int]:
    """Lock times, ns: holds that follow one another without a gap share the error of the grid."""
    lock_ns: list[int] = []
    start = 0
    while start < len(at):
        stop = start + 1
        while stop < len(at) and rigid[stop]:
            stop += 1
        offsets = np.concatenate([[0.0], np.cumsum([hold.held_ms + 0.5 for hold in holds[start : stop - 1]])])
        placed = np.array(at[start:stop]) * STEP_S * 1e3
        origin_ms = float(np.median(placed - offsets))
        lock_ns += [begin_ns + int((origin_ms + offset) * 1e6) for offset in offsets]
        start = stop
    return lock_ns
