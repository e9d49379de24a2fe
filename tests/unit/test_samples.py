"""Readings become wire bytes: wraps, lag, dead sensors, impossible rates, holes, coverage."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.ingest.gpm import COUNTER_MODULUS, GPM_PER_COUNTER
from gputrace.ingest.samples import (
    LANE_BYTES_PER_S,
    Sampled,
    link_limit_bytes_per_s,
    to_samples,
)
from gputrace.trace import Quality
from tests.unit.support import MS

Floats = npt.NDArray[np.float64]

STEP_NS = 100 * MS
BEGIN_NS = 1_773_425_800_000_000_000
GEN5_X16 = 3.938e9 * 16


def codes(quality: Quality) -> list[str]:
    return [notice.code for notice in quality.notices]


def counters(steps: Floats, first: int = 0) -> Floats:
    """Readings of a 32-bit counter that `steps` bytes passed between."""
    return np.asarray((first + np.concatenate([[0.0], np.cumsum(steps)])) % COUNTER_MODULUS)


def lagged_gpm(steps: Floats, lag_steps: float = 1.0) -> Floats:
    """GPM's rate at each reading (0.6 % low), late by `lag_steps` steps."""
    total = np.concatenate([[0.0], np.cumsum(steps)]) * GPM_PER_COUNTER
    at = np.arange(len(total), dtype=np.float64)
    seen = np.interp(at - lag_steps, at, total, left=0.0)
    return np.asarray(np.diff(seen, prepend=0.0) / (STEP_NS / 1e9))


def read(quality: Quality | None = None, steps: int | None = None, **columns: object) -> Sampled:
    """Samples of one GPU read every 0.1 s; columns as `to_samples` names them."""
    values = {name: value for name, value in columns.items() if value is not None}
    rows = steps + 1 if steps is not None else max(len(v) for v in values.values() if hasattr(v, "__len__"))
    times = values.pop("time_ns", BEGIN_NS + np.arange(rows) * STEP_NS)
    frame = pl.DataFrame({"time_ns": times}).with_columns(pl.col("time_ns").cast(pl.Int64))
    for name, value in values.items():
        given_value: Any = value if hasattr(value, "__len__") else [value] * rows
        frame = frame.with_columns(pl.Series(name, given_value, dtype=pl.Float64))
    return to_samples(frame, {}, quality if quality is not None else Quality())


# --- counters ------------------------------------------------------------------------------------------------------


def test_a_counter_is_unwrapped_over_a_wrap() -> None:
    rx = np.array([1e9, 4e9, 3e9, 2e9])
    tx = np.array([5e6, 5e6, 5e6, 5e6])
    sampled = read(rx_counter_bytes=counters(rx, 4_000_000_000), tx_counter_bytes=counters(tx, COUNTER_MODULUS - 1))
    assert sampled.samples["rx_wire_bytes"].to_list() == rx.tolist()
    assert sampled.samples["tx_wire_bytes"].to_list() == tx.tolist()
    assert sampled.samples["coverage"].to_list() == [1.0] * 4
    assert sampled.gpus[0].pcie_source == "counters"


@given(
    steps=st.lists(st.integers(1, COUNTER_MODULUS - 1), min_size=2, max_size=30),
    first=st.integers(0, COUNTER_MODULUS - 1),
)
def test_any_steps_below_the_modulus_come_back(steps: list[int], first: int) -> None:
    rx = np.array(steps, dtype=np.float64)
    sampled = read(rx_counter_bytes=counters(rx, first), tx_counter_bytes=counters(rx, first))
    assert sampled.samples["rx_wire_bytes"].to_list() == rx.tolist()


def test_the_counters_own_times_are_the_ends_of_the_intervals() -> None:
    stamps = BEGIN_NS + np.array([40, 140, 245, 340]) * MS
    sampled = read(
        rx_counter_bytes=counters(np.full(3, 1e8)),
        tx_counter_bytes=counters(np.full(3, 1e6)),
        counter_time_ns=stamps.astype(np.float64),
    )
    # Float64 holds nanoseconds of today to 256 ns.
    assert sampled.samples["start_ns"].to_numpy() == pytest.approx(stamps[:-1], abs=300)
    assert sampled.samples["end_ns"].to_numpy() == pytest.approx(stamps[1:], abs=300)


def burst_run(steps: int = 600, seed: int = 3) -> tuple[Floats, Floats]:
    """rx with bursts of 5.2 GB a step (they alias: the counter holds 4.29 GB) and a tx that never wraps."""
    rng = np.random.default_rng(seed)
    rx = np.full(steps, 1.2e8)
    tx = rng.uniform(1e6, 5e6, steps)
    for begin in np.arange(10, steps - 10, 17) + rng.integers(0, 5, len(np.arange(10, steps - 10, 17))):
        rx[begin : begin + 4] = [2.0e9, 5.2e9, 5.2e9, 1.0e9]
        tx[begin : begin + 4] += 4e8
    return rx, tx


@pytest.mark.parametrize("lag_steps", [0.0, 1.0, 1.7])
def test_the_total_of_aliased_counters_comes_back_within_a_wrap(lag_steps: float) -> None:
    rx, tx = burst_run()
    quality = Quality()
    sampled = read(
        quality,
        rx_counter_bytes=counters(rx),
        tx_counter_bytes=counters(tx),
        gpm_rx_bytes_per_s=lagged_gpm(rx, lag_steps),
        gpm_tx_bytes_per_s=lagged_gpm(tx, lag_steps),
        link_gen=5.0,
        link_width=16.0,
    )
    got = sampled.samples["rx_wire_bytes"].to_numpy()
    hidden = int((rx > COUNTER_MODULUS).sum())
    assert hidden == 70
    assert abs(got.sum() - rx.sum()) <= COUNTER_MODULUS
    assert abs(quality.counter_wraps - hidden) <= 1
    # The wraps are where the bursts are.
    assert (np.abs(got - rx) < 1.0).mean() > 0.95
    assert not sampled.samples["over_limit"].any()


@given(seed=st.integers(0, 10_000), lag_steps=st.floats(0.0, 2.0))
@settings(max_examples=25)
def test_no_wrap_is_added_where_the_totals_agree(seed: int, lag_steps: float) -> None:
    # Single steps disagree with GPM by gigabytes, because it lags; the run's total does not.
    rng = np.random.default_rng(seed)
    rx = np.where(rng.random(200) < 0.3, rng.uniform(2e9, 4.2e9, 200), 1e8)
    rx[-5:] = 0.0
    tx = np.where(rx > 1e9, 4e8, 1e6)
    gpm_rx = lagged_gpm(rx, lag_steps)
    assert np.abs(gpm_rx[1:] * 0.1 / GPM_PER_COUNTER - rx).max() > COUNTER_MODULUS / 2 or lag_steps < 0.9
    quality = Quality()
    sampled = read(
        quality,
        rx_counter_bytes=counters(rx),
        tx_counter_bytes=counters(tx),
        gpm_rx_bytes_per_s=gpm_rx,
        gpm_tx_bytes_per_s=lagged_gpm(tx, lag_steps),
        link_gen=5.0,
        link_width=16.0,
    )
    assert quality.counter_wraps == 0
    assert sampled.samples["rx_wire_bytes"].to_numpy() == pytest.approx(rx)


def test_a_wrap_is_not_added_beyond_what_the_link_carries() -> None:
    # GPM claims three times what a Gen5 x16 link could have moved.
    rx = np.full(100, 4e9)
    quality = Quality()
    sampled = read(
        quality,
        rx_counter_bytes=counters(rx),
        tx_counter_bytes=counters(np.full(100, 1e6)),
        gpm_rx_bytes_per_s=np.full(101, 2e11),
        gpm_tx_bytes_per_s=np.full(101, 1e7),
        link_gen=5.0,
        link_width=16.0,
    )
    assert quality.counter_wraps == 0
    assert sampled.samples["rx_wire_bytes"].to_numpy() == pytest.approx(rx)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_wraps_are_added_on_a_link_that_is_not_known() -> None:
    rx, tx = burst_run()
    quality = Quality()
    sampled = read(
        quality,
        rx_counter_bytes=counters(rx),
        tx_counter_bytes=counters(tx),
        gpm_rx_bytes_per_s=lagged_gpm(rx),
        gpm_tx_bytes_per_s=lagged_gpm(tx),
    )
    assert abs(sampled.samples["rx_wire_bytes"].sum() - rx.sum()) <= COUNTER_MODULUS
    assert quality.counter_wraps > 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_row_in_which_the_counters_could_not_be_read() -> None:
    stamps: list[float | None] = [float(BEGIN_NS + n * STEP_NS) for n in range(6)]
    readings: list[float | None] = [1e9, 2e9, None, 4e9, 4.1e9, 4.2e9]
    stamps[2] = None
    sampled = read(rx_counter_bytes=readings, tx_counter_bytes=readings, counter_time_ns=stamps)
    frame = sampled.samples
    assert (frame["end_ns"] > frame["start_ns"]).all()
    assert frame["start_ns"].min() == BEGIN_NS
    assert frame["rx_wire_bytes"].sum() == pytest.approx(3.2e9) or frame["rx_wire_bytes"].null_count() == 2


def test_without_gpm_steps_that_could_hide_a_wrap_are_counted() -> None:
    quality = Quality()
    read(
        quality,
        rx_counter_bytes=counters(np.array([1e9, 4e9, 1e9])),
        tx_counter_bytes=counters(np.full(3, 1e6)),
        link_gen=5.0,
        link_width=16.0,
    )
    # 6.3 GB fit into a step: where 1 GB was seen, 5.3 GB may have passed; where 4 GB were, 8.3 GB may not.
    assert quality.counter_ambiguous == 2
    assert quality.counter_wraps == 0


def test_dead_counters_are_said_to_be_dead_and_gpm_is_used() -> None:
    quality = Quality()
    dead = np.zeros(21)
    sampled = read(
        quality,
        rx_counter_bytes=dead,
        tx_counter_bytes=dead,
        gpm_rx_bytes_per_s=np.full(21, 1e9),
        gpm_tx_bytes_per_s=np.full(21, 1e8),
    )
    assert codes(quality) == ["sensor-dead", "gpm-lag-assumed"]
    assert sampled.gpus[0].pcie_source == "gpm"
    assert sampled.samples["rx_wire_bytes"].to_numpy() == pytest.approx(1e8 / GPM_PER_COUNTER)


def test_dead_counters_without_gpm_leave_the_windows() -> None:
    quality = Quality()
    dead = np.zeros(21)
    sampled = read(quality, rx_counter_bytes=dead, tx_counter_bytes=dead, rx_window_bytes_per_s=2e9)
    assert codes(quality) == ["sensor-dead", "pcie-windows"]
    assert sampled.gpus[0].pcie_source == "window"


def test_a_trace_without_pcie_readings_says_so() -> None:
    quality = Quality()
    sampled = read(quality, gpu_util=np.full(11, 0.5))
    assert codes(quality) == ["no-pcie"]
    assert sampled.gpus[0].pcie_source is None
    assert sampled.samples["rx_wire_bytes"].null_count() == 10
    assert sampled.gpus[0].sm_source == "utilization.gpu"


# --- windows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step_ms", "coverage"), [(10, 1.0), (20, 1.0), (100, 0.2), (1000, 0.02)])
def test_coverage_of_window_readings(step_ms: int, coverage: float) -> None:
    quality = Quality()
    sampled = read(
        quality,
        time_ns=BEGIN_NS + np.arange(11) * step_ms * MS,
        rx_window_bytes_per_s=np.full(11, 2e9),
        tx_window_bytes_per_s=np.full(11, 1e9),
    )
    assert sampled.samples["coverage"].to_list() == pytest.approx([coverage] * 10)
    assert sampled.samples["rx_wire_bytes"].to_list() == pytest.approx([2e9 * step_ms / 1e3] * 10)
    assert sampled.samples["tx_wire_bytes"].to_list() == pytest.approx([1e9 * step_ms / 1e3] * 10)
    (notice,) = quality.notices
    assert f"{coverage:.0%}" in notice.text
    assert ("too little" in notice.text) == (coverage < 0.1)


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gen", sorted(LANE_BYTES_PER_S))
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_link_limits_grow_with_width_and_generation(gen: int, width: int) -> None:
    limit = link_limit_bytes_per_s(gen, width)
    assert limit == LANE_BYTES_PER_S[gen] * width
    slower = link_limit_bytes_per_s(gen - 1, width)
    assert slower is None or slower < limit


def test_published_link_limits() -> None:
    assert link_limit_bytes_per_s(3, 16) == pytest.approx(15.75e9, rel=0.01)
    assert link_limit_bytes_per_s(4, 16) == pytest.approx(31.5e9, rel=0.01)
    assert link_limit_bytes_per_s(5, 16) == pytest.approx(63.0e9, rel=0.01)


@pytest.mark.parametrize(("gen", "width"), [(None, 16), (5, None), (None, None), (0, 16), (9, 16), (5, 0)])
def test_an_unknown_link_has_no_limit(gen: int | None, width: int | None) -> None:
    assert link_limit_bytes_per_s(gen, width) is None


def test_the_link_is_what_it_reached_not_what_it_fell_back_to() -> None:
    sampled = read(gpu_util=np.full(4, 0.5), link_gen=[1.0, 5.0, 5.0, 1.0], link_width=[16.0] * 4)
    (gpu,) = sampled.gpus
    assert (gpu.link_gen, gpu.link_width) == (5, 16)
    assert gpu.link_limit_bytes_per_s == pytest.approx(GEN5_X16)


def test_a_rate_above_the_link_is_flagged_and_not_believed() -> None:
    quality = Quality()
    rates = np.array([0.0, 1e9, 9e9, 4.0e9, 4.02e9])
    sampled = read(
        quality, rx_window_bytes_per_s=rates, tx_window_bytes_per_s=np.full(5, 1e8), link_gen=1.0, link_width=16.0
    )
    # Gen1 x16 carries 4 GB/s; a reading may exceed that by 2 %, by the clock error of a step.
    assert sampled.samples["over_limit"].to_list() == [False, True, False, False]
    assert sampled.samples["rx_wire_bytes"].to_list() == pytest.approx([1e8, None, 4.0e8, 4.02e8], nan_ok=True)
    assert [(n.code, n.count) for n in quality.notices if n.code == "rate-above-link"] == [("rate-above-link", 1)]


# --- SM activity ---------------------------------------------------------------------------------------------------


@given(
    active=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=60),
    jitter=st.lists(st.integers(-30, 30), min_size=60, max_size=60),
    row_us=st.integers(0, 50_000),
)
@settings(max_examples=60)
def test_resampling_sm_activity_conserves_its_sum(active: list[float], jitter: list[int], row_us: int) -> None:
    rows = len(active)
    steps = np.full(rows - 1, 1e8)
    stamps = BEGIN_NS + (np.arange(rows) * 100 + np.array(jitter[:rows])) * MS
    # Quiet ends, so that nothing of the activity lies before the first or after the last interval.
    shares = np.concatenate([np.zeros(6), active, np.zeros(6)])
    rows += 12
    stamps = BEGIN_NS + (np.arange(rows) * 100 + np.resize(jitter, rows)) * MS
    sampled = read(
        rx_counter_bytes=counters(np.resize(steps, rows - 1)),
        tx_counter_bytes=counters(np.resize(steps, rows - 1)),
        counter_time_ns=stamps.astype(np.float64),
        gpm_sm_active=shares,
        row_us=float(row_us),
    )
    frame = sampled.samples
    length_s = (frame["end_ns"] - frame["start_ns"]).to_numpy() / 1e9
    share = frame["sm_active"].to_numpy()
    assert ((share >= 0.0) & (share <= 1.0))[~np.isnan(share)].all()
    assert np.nansum(share * length_s) == pytest.approx(shares.sum() * 0.1, abs=1e-6)


def test_sm_activity_is_put_back_by_gpms_lag() -> None:
    rng = np.random.default_rng(1)
    busy = (rng.random(300) < 0.4).astype(np.float64)
    tx = 1e6 + 4e8 * busy
    rx = 1e7 + 1e8 * busy
    late = np.concatenate([[0.0, 0.0], busy[:-1]])
    sampled = read(
        rx_counter_bytes=counters(rx),
        tx_counter_bytes=counters(tx),
        gpm_rx_bytes_per_s=lagged_gpm(rx),
        gpm_tx_bytes_per_s=lagged_gpm(tx),
        gpm_sm_active=late,
    )
    got = sampled.samples["sm_active"].to_numpy()
    assert got[2:-2] == pytest.approx(busy[2:-2], abs=0.02)
    assert sampled.gpus[0].sm_source == "gpm"


def test_a_hole_in_gpm_is_not_idleness() -> None:
    shares: list[float | None] = [1.0] * 40
    shares[10:30] = [None] * 20
    sampled = read(
        rx_counter_bytes=counters(np.full(39, 1e8)), tx_counter_bytes=counters(np.full(39, 1e8)), gpm_sm_active=shares
    )
    inside = sampled.samples["sm_active"][14:26]
    assert inside.null_count() == len(inside)


# --- holes and shape -----------------------------------------------------------------------------------------------


def test_holes_are_counted() -> None:
    kept = [0, 1, 2, 3, 6, 7, 8, 9, 20, 21, 22, 23]
    quality = Quality()
    read(quality, time_ns=BEGIN_NS + np.array(kept) * STEP_NS, gpu_util=np.full(len(kept), 0.5))
    assert quality.samples == len(kept) - 1
    assert quality.samples_missing == 2 + 10


def test_a_late_reading_is_not_a_hole() -> None:
    quality = Quality()
    read(quality, time_ns=BEGIN_NS + np.array([0, 100, 240, 300, 400, 460, 600]) * MS, gpu_util=np.full(7, 0.5))
    assert quality.samples_missing == 0


def test_a_time_read_twice_counts_once() -> None:
    quality = Quality()
    sampled = read(quality, time_ns=BEGIN_NS + np.array([0, 1, 1, 2]) * STEP_NS, gpu_util=np.full(4, 0.5))
    assert sampled.samples.height == quality.samples == 2


@given(order=st.permutations(range(8)))
def test_rows_may_come_in_any_order(order: list[int]) -> None:
    steps = np.array([1e9, 2e9, 3e9, 4e9, 3e9, 2e9, 1e9])
    rows = {"time_ns": BEGIN_NS + np.arange(8) * STEP_NS, "rx": counters(steps)}
    pick = np.array(order)
    sampled = read(time_ns=rows["time_ns"][pick], rx_counter_bytes=rows["rx"][pick], tx_counter_bytes=rows["rx"][pick])
    assert sampled.samples["rx_wire_bytes"].to_list() == steps.tolist()


def test_gpus_are_kept_apart() -> None:
    quality = Quality()
    steps = {0: np.full(5, 1e9), 1: np.full(5, 3e9)}
    rows = [
        {"time_ns": BEGIN_NS + n * STEP_NS, "gpu": float(gpu), "rx_counter_bytes": value, "tx_counter_bytes": value}
        for n in range(6)
        for gpu in (0, 1)
        for value in [float(counters(steps[gpu], 7)[n])]
    ]
    sampled = to_samples(pl.DataFrame(rows), {1: "a GPU"}, quality)
    assert [(gpu.gpu, gpu.name) for gpu in sampled.gpus] == [(0, None), (1, "a GPU")]
    for gpu, own in steps.items():
        assert sampled.samples.filter(pl.col("gpu") == gpu)["rx_wire_bytes"].to_list() == own.tolist()
    assert quality.samples == 10
