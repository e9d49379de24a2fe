"""GPM's readings, which lag: by how much, what they say of wraps that 32-bit counters hid, how busy the SMs were."""

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.trace import Quality

COUNTER_MODULUS = 1 << 32
# GPM's bytes against the counters', measured on an H200 over copies of known size.
GPM_PER_COUNTER = 0.994
# A reading may exceed the limit by the clock error of a step; above this it is not believed.
LIMIT_TOLERANCE = 1.02
DEFAULT_LAG_S = 0.1
_MAX_LAG_S = 0.4
# A counter's own time this far from its row's, beyond what they usually differ, is damage; so is a row that took as
# long.
MOST_APART_NS = 60e9
# The lag is sought in so many steps at most, those that carried most: ten minutes of 0.1 s settle it to 10 ms.
_LAG_STEPS = 6_000

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def column(rows: pl.DataFrame, name: str) -> Floats | None:
    """A reading, nan where it is null; None where no row has it."""
    if name not in rows.columns or rows[name].null_count() == rows.height:
        return None
    return rows[name].cast(pl.Float64).to_numpy().astype(np.float64, copy=False)


def read_ns(rows: pl.DataFrame, time_ns: Ints) -> Ints:
    """When GPM was read: at the end of a row, where the row says how long it took."""
    took = column(rows, "row_us")
    if took is None:
        return time_ns
    believable = np.where((took >= 0) & (took * 1e3 <= MOST_APART_NS), took, 0.0)
    return time_ns + (believable * 1e3).astype(np.int64)


def _interval_ns(rows: pl.DataFrame, time_ns: Ints) -> Floats:
    interval = column(rows, "gpm_interval_ms")
    if interval is not None:
        return np.nan_to_num(interval) * 1e6
    steps = np.diff(time_ns).astype(np.float64)
    return np.concatenate([steps[:1], steps])


def lag_s(rows: pl.DataFrame, time_ns: Ints, counter_ns: Ints, tx: Floats, gpm_tx: Floats) -> float:
    """By how much GPM lags: where its bytes fit the counters' best. tx is used because it never wraps at 0.1 s.

    `tx` are bytes between consecutive `counter_ns`.
    """
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(tx))])
    end_ns = read_ns(rows, time_ns)[1:]
    length_ns = _interval_ns(rows, time_ns)[1:]
    seen = np.nan_to_num(gpm_tx[1:]) * length_ns / 1e9
    if len(seen) > _LAG_STEPS:
        carried = np.concatenate([[0.0], np.cumsum(seen)])
        begin = int(np.argmax(carried[_LAG_STEPS:] - carried[:-_LAG_STEPS]))
        most = slice(begin, begin + _LAG_STEPS)
        end_ns, length_ns, seen = end_ns[most], length_ns[most], seen[most]
    if len(seen) < 30 or np.std(seen) == 0:
        return DEFAULT_LAG_S
    best_lag, best_fit = DEFAULT_LAG_S, 0.0
    for lag in np.arange(-0.05, _MAX_LAG_S, 0.01):
        end = end_ns - lag * 1e9
        predicted = np.interp(end, counter_ns, total) - np.interp(end - length_ns, counter_ns, total)
        fit = float(np.corrcoef(predicted, seen)[0, 1]) if np.std(predicted) else 0.0
        if fit > best_fit:
            best_lag, best_fit = float(lag), fit
    return best_lag


def added_wraps(
    rx: Floats,
    end_ns: Ints,
    lag_s: float,
    rows: pl.DataFrame,
    time_ns: Ints,
    gpm_rx: Floats,
    limit: float | None,
    quality: Quality,
) -> Floats:
    """The rx steps (between consecutive `end_ns`) with whole wraps added: as many as GPM's total asks for, where GPM's
    nearby sum lacks most."""
    step_s = np.diff(end_ns) / 1e9
    gpm_end = read_ns(rows, time_ns) - lag_s * 1e9
    length_ns = _interval_ns(rows, time_ns)
    gpm_bytes = np.nan_to_num(gpm_rx) * length_ns / 1e9 / GPM_PER_COUNTER
    # GPM's bytes laid on the counters' steps, through their running sum.
    knots = np.concatenate([[gpm_end[0] - length_ns[0]], gpm_end])
    total = np.concatenate([[0.0], np.cumsum(gpm_bytes)])
    expected = np.diff(np.interp(end_ns, knots, total))
    base = np.nan_to_num(rx)
    room = np.full(len(base), np.inf) if limit is None else limit * LIMIT_TOLERANCE * step_s - base
    most = np.maximum(0.0, np.floor(room / COUNTER_MODULUS))
    wanted = int(np.rint((expected.sum() - base.sum()) / COUNTER_MODULUS))
    added = np.zeros(len(base), dtype=np.int64)
    neighbourhood = np.ones(3)
    lacking = expected - base
    if wanted > 0:
        for _ in range(wanted):
            near = np.convolve(lacking - added * COUNTER_MODULUS, neighbourhood, mode="same")
            own = lacking - added * COUNTER_MODULUS
            # The neighbourhood says that bytes are missing here, the step itself where.
            score = np.where(added < most, near + own, -np.inf)
            step = int(np.argmax(score))
            if not np.isfinite(score[step]) or score[step] <= 0:
                break
            added[step] += 1
    left = np.abs(np.convolve(lacking - added * COUNTER_MODULUS, neighbourhood, mode="same"))
    ambiguous = (most > 0) & (left > COUNTER_MODULUS / 2)
    quality.counter_wraps += int(added.sum())
    quality.counter_ambiguous += int(ambiguous.sum())
    return np.asarray(rx + added * COUNTER_MODULUS)


def sm_active(rows: pl.DataFrame, time_ns: Ints, lag_s: float, edges_ns: Ints) -> Floats | None:
    """SM activity between consecutive edges, 0..1, conserving its running sum; None where GPM was not read."""
    active = column(rows, "gpm_sm_active")
    if active is None:
        return None
    read = read_ns(rows, time_ns) - lag_s * 1e9
    first_ns = _interval_ns(rows, time_ns)[0]
    length_ns = np.concatenate([[first_ns], np.diff(read)])
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(active) * length_ns)])
    knots = np.concatenate([[read[0] - first_ns], read])
    span = np.diff(np.interp(edges_ns, knots, total))
    # A reading that is missing is not idleness: only the time that was read counts.
    missing = np.isnan(active)
    if missing.any():
        known = np.concatenate([[0.0], np.cumsum(np.where(missing, 0.0, length_ns))])
        seen = np.diff(np.interp(edges_ns, knots, known))
    else:
        seen = np.diff(np.clip(edges_ns, knots[0], knots[-1]))
    step_ns = np.diff(edges_ns)
    share = np.clip(span / np.maximum(seen if missing.any() else step_ns, 1), 0.0, 1.0)
    share[(seen < 0.5 * step_ns) | (edges_ns[1:] < knots[0]) | (edges_ns[:-1] > knots[-1])] = np.nan
    return np.asarray(share, dtype=np.float64)
