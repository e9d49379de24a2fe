"""Puts a log that has only relative times (TIMELINE offsets, no tracing lines) on the clock of a GPU trace.

The phases say when bytes should cross the link and when SMs should be busy; the trace says when they did. The offset
at which the two agree best is the clock. It is believed only if it agrees clearly better than any other offset: a
periodic run agrees with itself shifted by a period.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

_STEP_S = 0.05
# The best fit must be at least this good, and this much better than the best one further than `_SAME_S` away.
MIN_CORRELATION = 0.55
MIN_MARGIN = 0.1
_SAME_S = 1.0
# Nine days: longer is a damaged time, and would take all memory.
_MOST_STEPS = 1 << 24
# An hour of calls tells GPUs apart.
_COMPARED_NS = 3_600_000_000_000
_STREAM = ("msm_invoke", "batch_add")
_COMPUTE = ("coset_intt_sync", "msm_invoke")


@dataclass(frozen=True)
class Alignment:
    """`offset_ns` added to the log's times puts them on the trace's clock. `margin` is over the second-best fit."""

    offset_ns: int
    correlation: float
    margin: float
    uncertainty_s: float

    @property
    def believed(self) -> bool:
        """Whether the fit is good and unique."""
        return self.correlation >= MIN_CORRELATION and self.margin >= MIN_MARGIN


def _profile(spans: pl.DataFrame, begin_ns: int, steps: int) -> Floats:
    """Share of each step covered by the spans (start_ns, end_ns), from `begin_ns` on."""
    edges = begin_ns + np.arange(steps + 1) * _STEP_S * 1e9
    starts = np.sort(spans["start_ns"].to_numpy()).astype(np.float64)
    ends = np.sort(spans["end_ns"].to_numpy()).astype(np.float64)

    def covered(knots: Floats, at: Floats) -> Floats:
        count = np.searchsorted(knots, at)
        return np.asarray(count * at - np.concatenate([[0.0], np.cumsum(knots)])[count])

    at: Floats = np.asarray(edges - begin_ns)
    total = covered(np.asarray(starts - begin_ns), at) - covered(np.asarray(ends - begin_ns), at)
    return np.asarray(np.diff(total) / (_STEP_S * 1e9))


def _resample(samples: pl.DataFrame, column: str, begin_ns: int, steps: int) -> Floats:
    """Rate of a per-interval amount on the steps; nan-free."""
    start, end = samples["start_ns"].to_numpy(), samples["end_ns"].to_numpy()
    total = np.concatenate([[0.0], np.cumsum(samples[column].fill_null(0.0).to_numpy())])
    knots = np.concatenate([start[:1], end]).astype(np.float64)
    edges = begin_ns + np.arange(steps + 1) * _STEP_S * 1e9
    return np.asarray(np.diff(np.interp(edges, knots, total)) / _STEP_S)


def _standard(values: Floats) -> Floats:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else values * 0.0


@dataclass(frozen=True)
class _Grid:
    """A stretch of time in equal steps."""

    begin_ns: int
    steps: int

    @classmethod
    def over(cls, frame: pl.DataFrame) -> "_Grid":
        begin, end = int(frame["start_ns"].min()), int(frame["end_ns"].max())  # type: ignore[arg-type]
        return cls(begin, int((end - begin) / 1e9 / _STEP_S))


def _predicted(phases: pl.DataFrame, grid: _Grid) -> tuple[Floats, Floats]:
    """What the phases predict: rx (square root, arbitrary unit; only the order of rates matters) and SM activity."""

    def spans(*names: str) -> Floats:
        return _profile(phases.filter(pl.col("name").is_in(names)), grid.begin_ns, grid.steps)

    rx = 0.3 * spans("ntt_kernels") + spans(*_STREAM) + 0.5 * spans("coset_intt_sync")
    return np.asarray(np.sqrt(rx)), spans(*_COMPUTE)


def _seen(samples: pl.DataFrame, grid: _Grid) -> tuple[Floats, Floats | None]:
    rx = np.sqrt(_resample(samples, "rx_wire_bytes", grid.begin_ns, grid.steps))
    if not samples["sm_active"].count():
        return np.asarray(rx), None
    busy = samples.with_columns((pl.col("sm_active") * (pl.col("end_ns") - pl.col("start_ns")) / 1e9).alias("busy_s"))
    return np.asarray(rx), _resample(busy, "busy_s", grid.begin_ns, grid.steps)


def agreement(phases: pl.DataFrame, samples: pl.DataFrame) -> float:
    """Correlation of what phases predict with what samples show, both on one clock; 0 where they do not overlap.

    Of a long run the first hour is compared that has both. `samples` are in order of time.
    """
    timed = phases.drop_nulls(["start_ns", "end_ns"])
    if timed.is_empty() or samples.is_empty() or not samples["rx_wire_bytes"].count():
        return 0.0
    window = _Grid.over(timed)
    if window.steps * _STEP_S * 1e9 > _COMPARED_NS:
        timed = timed.filter(pl.col("start_ns") >= samples["start_ns"][0])
        timed = timed.filter(pl.col("start_ns") < pl.col("start_ns").min() + _COMPARED_NS)
        if timed.is_empty():
            return 0.0
        window = _Grid.over(timed)
    if window.steps > _MOST_STEPS:
        return 0.0
    end_ns = window.begin_ns + int(window.steps * _STEP_S * 1e9)
    inside = samples.filter((pl.col("end_ns") > window.begin_ns) & (pl.col("start_ns") < end_ns))
    if inside.height < 10 or window.steps < 10:
        return 0.0
    expected, seen = _predicted(timed, window), _seen(inside, window)
    pairs = [(a, b) for a, b in zip(expected, seen, strict=True) if b is not None and np.std(a) and np.std(b)]
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs])) if pairs else 0.0


def align(phases: dict[int, pl.DataFrame], samples: dict[int, pl.DataFrame]) -> Alignment | None:
    """The best offset of a log's phases on the samples' clock; None where there is too little to compare.

    `phases` has, by log GPU, name, start_ns, end_ns on the log's own clock; `samples`, by trace GPU, SAMPLES frames. At
    each offset every log GPU is taken with the trace GPU that it fits best.
    """
    timed = {gpu: own.drop_nulls(["start_ns", "end_ns"]) for gpu, own in phases.items()}
    usable = {gpu: own for gpu, own in samples.items() if own["rx_wire_bytes"].count()}
    if not timed or not usable or all(own.is_empty() for own in timed.values()):
        return None
    log, trace = _Grid.over(pl.concat(timed.values())), _Grid.over(pl.concat(usable.values()))
    if min(log.steps, trace.steps) < 100 or max(log.steps, trace.steps) > _MOST_STEPS:
        return None
    seen = [_seen(own, trace) for own in usable.values()]
    score = np.zeros(log.steps + trace.steps - 1)
    for own in timed.values():
        expected = _predicted(own, log)
        score += np.max([_score(expected, shown) for shown in seen], axis=0)
    score /= len(timed)
    best = int(np.argmax(score))
    lag = np.arange(-(log.steps - 1), trace.steps)
    far = np.abs(lag - lag[best]) * _STEP_S > _SAME_S
    runner_up = float(score[far].max()) if far.any() else 0.0
    offset_ns = trace.begin_ns + int(lag[best] * _STEP_S * 1e9) - log.begin_ns
    return Alignment(offset_ns, float(score[best]), float(score[best]) - runner_up, _STEP_S * 2)


def _score(expected: tuple[Floats, Floats], seen: tuple[Floats, Floats | None]) -> Floats:
    """Mean correlation of rx and SM activity at every lag."""
    parts = [_correlate(a, b) for a, b in zip(expected, seen, strict=True) if b is not None]
    return np.asarray(np.mean(parts, axis=0))


def _correlate(predicted: Floats, seen: Floats) -> Floats:
    """Correlation of the two at every lag, over what the trace covers of the log; short overlaps count less."""
    size = 1 << int(np.ceil(np.log2(len(predicted) + len(seen))))
    a, b = _standard(predicted), _standard(seen)

    def across(x: Floats, y: Floats) -> Floats:
        product = np.fft.irfft(np.conj(np.fft.rfft(x, size)) * np.fft.rfft(y, size), size)
        return np.concatenate([product[-(len(predicted) - 1) :], product[: len(seen)]])

    ones_a, ones_b = np.ones_like(a), np.ones_like(b)
    n = np.maximum(across(ones_a, ones_b), 1.0)
    mean_a, mean_b = across(a, ones_b) / n, across(ones_a, b) / n
    var_a = np.maximum(across(a * a, ones_b) / n - mean_a**2, 1e-9)
    var_b = np.maximum(across(ones_a, b * b) / n - mean_b**2, 1e-9)
    shared = across(a, b) / n - mean_a * mean_b
    enough = np.minimum(1.0, n / (0.5 * len(predicted)))
    return np.asarray(shared / np.sqrt(var_a * var_b) * enough)
