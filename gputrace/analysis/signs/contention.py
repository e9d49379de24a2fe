"""Whether a pageable copy goes slower the more syntheses run beside it, by how much, and what that costs.

The copy's rate, call by call, against the load in the same seconds. Calls follow one another, and so do loads: a
p-value that takes them for independent is too small. It is found here by shifting the loads along the calls, forwards
and backwards: every shift keeps the serial dependence of both and breaks what ties them (a circular-shift permutation
test). A run whose load changes once has nearly no shift unlike itself, and no power there; so the verdict rests on an
interval instead: of the rank correlation, over runs put together of blocks of this one (moving-block bootstrap, Künsch
1989, blocks of twice the cube root of n). The slope is Theil and Sen's, the median of the slopes of all pairs, with its
95 % interval by Sen (1968).
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.phases import concurrent, mean_ranks
from gputrace.rows import ordered, where, with_values
from gputrace.trace import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# More than this and all pairs of calls are too many: every so many calls are taken.
_MOST_CALLS = 600
# The lightest load is that of this share of the calls.
_LIGHT_SHARE = 0.2
MIN_COPIES = 16
_RESAMPLES = 1000
_RESAMPLED_AT_ONCE = 50
_CLEARLY = 0.4
_Z_95 = NormalDist().inv_cdf(0.975)
# By circular shifts; a run whose load changes once cannot do better than about 0.1.
_NOT_BY_CHANCE = 0.15


@dataclass(frozen=True)
class Relation:
    """How something goes with a load: rank correlation, p by circular shifts, slope a unit; `series` is load and value.

    `light` and `heavy` are medians of what is related, over the fifth of the calls with least and with most load.
    """

    load: str
    n: int
    spearman: float
    p_value: float
    slope: float
    slope_low: float
    slope_high: float
    light: float
    heavy: float
    load_light: float
    load_heavy: float
    series: tuple[Floats, Floats] = field(repr=False, compare=False)

    @cached_property
    def spearman_interval(self) -> tuple[float, float]:
        """The rank correlation's 99 % interval."""
        return _interval(*self.series)

    @property
    def falls(self) -> bool:
        """Whether it falls with the load, beyond doubt: of noise 1-3 % of runs of 40 calls seem to (simulated)."""
        return self.spearman <= -_CLEARLY and self.p_value <= _NOT_BY_CHANCE and self.spearman_interval[1] < 0


@dataclass(frozen=True)
class Contention:
    """`copy`: the copy's payload rate (bytes/s) against each load, most telling first. `preparation`: durations in ms.

    `excess_s`: seconds that the copies would have been shorter at the rate of the lightest load.
    """

    copy: tuple[Relation, ...]
    preparation: dict[str, Relation]
    copied_s: float
    excess_s: float


def relate(load_name: str, load: Floats, value: Floats) -> Relation | None:
    """The relation of one series to a load, in the order of the calls; None where either is constant or too short."""
    known = np.isfinite(load) & np.isfinite(value)
    load, value = load[known], value[known]
    n = min(len(load), _MOST_CALLS)
    if n < MIN_COPIES:
        return None
    if len(load) > n:
        kept = np.linspace(0, len(load) - 1, n).astype(int)
        load, value = load[kept], value[kept]
    if np.ptp(load) == 0 or np.ptp(value) == 0:
        return None
    a, b = mean_ranks(load), mean_ranks(value)
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    found = float((a * b).mean())
    spectrum = np.fft.rfft(b)
    forwards = np.fft.irfft(np.conj(np.fft.rfft(a)) * spectrum, n) / n
    backwards = np.fft.irfft(np.conj(np.fft.rfft(a[::-1])) * spectrum, n) / n
    shifted = np.concatenate([forwards[1:], backwards])
    p_value = (1.0 + float((np.abs(shifted) >= abs(found) - 1e-12).sum())) / (1.0 + len(shifted))
    slope, low, high = _slope(load, value)
    order = np.argsort(load, kind="stable")
    few = max(3, int(_LIGHT_SHARE * n))
    light, heavy = order[:few], order[-few:]
    return Relation(
        load_name,
        n,
        found,
        p_value,
        slope,
        low,
        high,
        float(np.median(value[light])),
        float(np.median(value[heavy])),
        float(np.median(load[light])),
        float(np.median(load[heavy])),
        (load, value),
    )


def _interval(load: Floats, value: Floats) -> tuple[float, float]:
    """99 % interval of the rank correlation, by moving blocks; the same for the same run."""
    n = len(load)
    length = min(n, max(2, round(2.0 * n ** (1.0 / 3.0))))
    rng = np.random.default_rng(0)
    begins = rng.integers(0, n - length + 1, size=(_RESAMPLES, -(-n // length)))
    correlations = []
    for some in np.split(begins, range(_RESAMPLED_AT_ONCE, _RESAMPLES, _RESAMPLED_AT_ONCE)):
        rows = (some[:, :, None] + np.arange(length)).reshape(len(some), -1)[:, :n]
        a, b = _ranks(load, rows), _ranks(value, rows)
        a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
        spread = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
        correlations.append(np.where(spread > 0, (a * b).sum(axis=1) / np.maximum(spread, 1e-12), 0.0))
    low, high = np.quantile(np.concatenate(correlations), [0.005, 0.995])
    return float(low), float(high)


def _ranks(values: Floats, rows: Ints) -> Floats:
    """The `mean_ranks` of `values[rows]` within each row: counted, as every row has the same few values.

    Sorting each row takes ten times as long.
    """
    distinct, code = np.unique(values, return_inverse=True)
    codes = code.astype(np.int32)[rows]
    of_row = codes + np.arange(len(rows), dtype=np.int32)[:, None] * len(distinct)
    counts = np.bincount(of_row.ravel(), minlength=len(rows) * len(distinct)).reshape(len(rows), -1)
    up_to = np.cumsum(counts, axis=1)
    return np.asarray(np.take((up_to - (counts - 1) / 2.0).ravel(), of_row))


def _slope(load: Floats, value: Floats) -> tuple[float, float, float]:
    """Theil and Sen's slope and its 95 % interval by Sen (1968), with his variance for ties.

    scipy has it, in a module that takes half a second to import.
    """
    n = len(load)
    rises = load[:, None] > load
    slopes = np.sort((value[:, None] - value)[rises] / (load[:, None] - load)[rises])

    def spread(size: Ints | int) -> Ints | int:
        return size * (size - 1) * (2 * size + 5)

    ties = sum(int(np.sum(spread(np.unique(side, return_counts=True)[1]))) for side in (load, value))
    reach = _Z_95 * math.sqrt((spread(n) - ties) / 18.0)
    low = max(round((len(slopes) - reach) / 2.0) - 1, 0)
    high = min(round((len(slopes) + reach) / 2.0), len(slopes) - 1)
    return float(np.median(slopes)), float(slopes[low]), float(slopes[high])


def contention(trace: Trace, instances: pl.DataFrame, copy_floor: float) -> Contention:
    """The relations of one trace; `instances` as in `Transfers`; below `copy_floor` (bytes/s) nothing is copied.

    Calls beside pinned allocations are left out.
    """
    slow = (instances["name"] == "ntt_kernels") & (instances["mode"] == "in-ntt") & ~instances["bursting"]
    copies = where(instances, slow & (instances["rx_bytes_per_s"] > copy_floor))
    ntt = with_values(trace.named_phases.of("ntt_kernels"), "start_ns") if copies.height else trace.phases.clear()
    copies = (
        copies.join(ntt.group_by("call").agg(pl.col("start_ns").min(), pl.col("end_ns").max()), on="call")
        .join(trace.calls.filter(~pl.col("warmup") & ~pl.col("pinned").fill_null(False)).select("call"), on="call")
        .sort("start_ns")
    )
    rate = copies["rx_bytes_per_s"].to_numpy()
    relations = _against_loads(trace, copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy(), rate)
    preparation = {}
    for name in ("prep_msm", "b_g2_msm"):
        own = ordered(with_values(trace.named_phases.of(name), "start_ns"), "start_ns")
        found = _against_loads(
            trace,
            own["start_ns"].to_numpy(),
            own["end_ns"].to_numpy(),
            own["duration_ms"].cast(pl.Float64).to_numpy(),
            ("concurrent syntheses",),
        )
        if found:
            preparation[name] = found[0]
    copied_s, excess_s = float(copies["seconds"].sum()), 0.0
    if relations:
        light = max(relations[0].light, relations[0].heavy)
        excess_s = float((copies["seconds"] * (1.0 - copies["rx_bytes_per_s"] / light)).clip(0.0).sum())
    return Contention(relations, preparation, copied_s, excess_s)


def _against_loads(
    trace: Trace,
    start_ns: npt.NDArray[np.int64],
    end_ns: npt.NDArray[np.int64],
    value: Floats,
    wanted: tuple[str, ...] = ("concurrent syntheses", "host CPU", "page faults"),
) -> tuple[Relation, ...]:
    found = []
    for name, load in _loads(trace, start_ns, end_ns).items():
        relation = relate(name, load, value) if name in wanted else None
        if relation is not None:
            found.append(relation)
    return tuple(sorted(found, key=lambda relation: relation.spearman_interval[1]) if len(found) > 1 else found)


def _loads(trace: Trace, start_ns: npt.NDArray[np.int64], end_ns: npt.NDArray[np.int64]) -> dict[str, Floats]:
    """Mean load during each interval, by name; host readings only where they are on the log's clock."""
    loads: dict[str, Floats] = {}
    if not len(start_ns):
        return loads
    if trace.syntheses["start_ns"].count():
        loads["concurrent syntheses"] = concurrent(trace.syntheses, start_ns, end_ns)
    if trace.clock.method == "none":
        return loads
    for name, column in (("host CPU", "cpu_share"), ("page faults", "page_faults_per_s")):
        rows = ordered(with_values(trace.host, column), "start_ns")
        if rows.height:
            knots = rows["end_ns"].to_numpy().astype(np.float64)
            lengths = ((rows["end_ns"] - rows["start_ns"]) * rows[column]).to_numpy()
            total = np.cumsum(lengths)
            span = np.interp(end_ns, knots, total) - np.interp(start_ns, knots, total)
            covered = (start_ns >= knots[0]) & (end_ns <= knots[-1])
            loads[name] = np.where(covered, span / np.maximum(end_ns - start_ns, 1), np.nan)
    return loads
