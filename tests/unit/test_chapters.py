"""Chapters: what is cut is all there, each mark in one of them; what adds up, adds up to the whole."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from gputrace import schema
from gputrace.analysis.diagnosis import Regime
from gputrace.chapters.cut import Cut, Size, cuts
from gputrace.chapters.regimes import joined_regimes
from gputrace.chapters.spread import Spread
from gputrace.chapters.stillness import without_stillness
from gputrace.trace import GpuInfo

_VALUES = st.lists(st.integers(0, 50).map(float), max_size=60)


@given(parts=st.lists(_VALUES, max_size=5), shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5))
def test_spreads_add_up_to_that_of_all_values(parts: list[list[float]], shares: list[float]) -> None:
    values = np.array([value for part in parts for value in part])
    spread = Spread.sum(Spread.of(np.array(part)) for part in parts)
    assert spread.count == len(values)
    if len(values):
        assert spread.quantiles(*shares) == pytest.approx(np.quantile(values, shares).tolist())
        assert spread.mean == pytest.approx(values.mean())


def test_values_that_are_not_whole_are_kept_to_a_thousandth_and_their_sum_exactly() -> None:
    values = np.random.default_rng(1).lognormal(20.0, 3.0, 10_000)
    spread = Spread.of(values)
    assert len(spread.values) < 9_000
    assert spread.total == values.sum()
    assert spread.quantiles(0.1, 0.5, 0.9) == pytest.approx(np.quantile(values, [0.1, 0.5, 0.9]), rel=1e-3)


def _marks(events: Sequence[tuple[str, int | None]]) -> pl.DataFrame:
    """Marks of lines 1, 2, ...: event and TIMELINE offset, ms."""
    rows = {
        "line": range(1, len(events) + 1),
        "family": ["timeline"] * len(events),
        "event": [event for event, _ in events],
        "offset_ms": [offset for _, offset in events],
    }
    return schema.MARKS.fit(pl.DataFrame(rows, schema_overrides={"offset_ms": pl.Int64}))


@given(
    count=st.integers(0, 120),
    lot=st.integers(1, 40),
    seconds=st.sampled_from([np.inf, 5.0, 17.0]),
    sizes=st.tuples(st.integers(1, 30), st.integers(0, 20), st.integers(0, 9)),
)
def test_every_mark_is_one_chapters_own(count: int, lot: int, seconds: float, sizes: tuple[int, int, int]) -> None:
    size = Size(sizes[0], seconds, *sizes[1:])
    marks = _marks([("GPU_START", 1000 * n) for n in range(count)])
    found = list(cuts((marks[at : at + lot] for at in range(0, max(count, 1), lot)), size))
    own = [cut.marks.filter(cut.is_own)["line"].to_list() for cut in found]
    assert [line for lines in own for line in lines] == marks["line"].to_list()
    assert [cut.is_last for cut in found] == [False] * (len(found) - 1) + [True]
    for cut in found:
        # Surroundings are without holes, and no larger than asked for.
        lines = cut.marks["line"].to_numpy()
        assert (np.diff(lines) == 1).all()
        assert (lines <= cut.seam.after_line).sum() <= max(1, size.marks_before)


def _of(events: Sequence[tuple[str, int | None]], size: Size) -> list[Cut]:
    return list(cuts([_marks(events)], size))


@given(
    restarts=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    lot=st.integers(1, 40),
    seconds=st.sampled_from([np.inf, 5.0, 17.0]),
    sizes=st.tuples(st.integers(1, 30), st.integers(0, 20), st.integers(0, 9)),
)
def test_cutting_goes_on_where_any_chapter_began(
    restarts: list[int], lot: int, seconds: float, sizes: tuple[int, int, int]
) -> None:
    size = Size(sizes[0], seconds, *sizes[1:])
    runs = [[("engine_start", None), *(("GPU_START", 1000 * n) for n in range(count))] for count in restarts]
    marks = _marks([event for run in runs for event in run])
    found = list(cuts([marks], size))
    for number, cut in enumerate(found):
        from_line = max(0, cut.seam.from_line - lot)
        later = marks.filter(pl.col("line") > from_line)
        again = list(cuts((later[at : at + lot] for at in range(0, later.height, lot)), size, cut.seam))
        assert [(one.seam.after_line, one.last_line, one.seam.restarts) for one in again] == [
            (one.seam.after_line, one.last_line, one.seam.restarts) for one in found[number:]
        ]
        for one, expected in zip(again, found[number:], strict=True):
            assert_frame_equal(one.marks, expected.marks)


def test_a_chapter_knows_how_often_the_prover_was_started_before_it() -> None:
    run = [("engine_start", None), ("worker_started", None), *(("GPU_START", 1000 * n) for n in range(20))]
    found = _of([*run, *run, *run], Size(marks=15, marks_before=3, marks_after=2))
    began = [(cut.marks.filter(cut.is_own)["line"][0] - 1) // len(run) for cut in found]
    # The surroundings before may reach into the run before.
    assert all(began[n] - 1 <= cut.seam.restarts <= began[n] for n, cut in enumerate(found))
    assert found[-1].seam.restarts > 0


def test_what_the_engine_said_when_it_started_goes_with_every_chapter() -> None:
    run = [("engine_start", None), ("worker_started", None), *(("GPU_START", 1000 * n) for n in range(60))]
    for cut in _of(run, Size(marks=15, marks_before=3, marks_after=2)):
        assert cut.marks["event"].to_list()[:2] == ["engine_start", "worker_started"]


def _regime(start_s: float, end_s: float, label: str, ntt_ms: float, reason: str = "start of the run") -> Regime:
    medians = {"mutex_held": 1000.0, "ntt_kernels": ntt_ms}
    calls = int(end_s - start_s)
    ends = int(start_s * 1e9), int(end_s * 1e9)
    return Regime(*ends, calls, label, reason, medians, None, {}, lost_s=1.0, duration_s=end_s - start_s)


def test_a_regime_goes_on_over_the_edge_of_a_chapter() -> None:
    (one,) = joined_regimes([[_regime(0, 50, "same", 500.0)], [_regime(50, 120, "same", 540.0)]])
    assert (one.calls, one.lost_s, one.duration_s, one.reason) == (120, 2.0, 120.0, "start of the run")


def test_a_regime_begins_where_a_phase_moves_by_a_tenth_of_a_hold() -> None:
    before, after = joined_regimes([[_regime(0, 50, "same", 500.0)], [_regime(50, 120, "same", 640.0)]])
    assert after.reason == "ntt_kernels 500 -> 640 ms"
    assert before.end_ns == after.start_ns


def test_a_regime_too_short_for_the_run_goes_to_the_neighbour_like_it() -> None:
    cut = "ntt_kernels 500 -> 900 ms"
    chapter = [_regime(0, 900, "a", 500.0), _regime(900, 910, "b", 850.0, cut), _regime(910, 1800, "b", 900.0, cut)]
    found = joined_regimes([chapter])
    assert [(regime.label, regime.calls) for regime in found] == [("a", 900), ("b", 900)]


_TICK_NS = 100_000_000


def _samples(busy: Sequence[bool], gpu: int = 0) -> pl.DataFrame:
    """Samples of 0.1 s of one GPU: a GB and half of the SMs where it is busy, a kB and nothing where not."""
    starts = [_TICK_NS * n for n in range(len(busy))]
    rows = {
        "gpu": [gpu] * len(busy),
        "start_ns": starts,
        "end_ns": [start + _TICK_NS for start in starts],
        "rx_wire_bytes": [1e9 if one else 1e3 for one in busy],
        "tx_wire_bytes": [0.0] * len(busy),
        "sm_active": [0.5 if one else 0.0 for one in busy],
        "sm_clock_mhz": [float(1000 + n % 7) for n in range(len(busy))],
        "link_gen": [5] * len(busy),
    }
    return schema.SAMPLES.fit(pl.DataFrame(rows))


@given(
    stretches=st.lists(st.tuples(st.booleans(), st.integers(1, 700)), min_size=1, max_size=6), gpus=st.integers(1, 3)
)
@settings(max_examples=40)
def test_seconds_and_bytes_of_a_stillness_are_kept(stretches: list[tuple[bool, int]], gpus: int) -> None:
    busy = [is_busy for is_busy, length in stretches for _ in range(length)]
    samples = pl.concat([_samples(busy, gpu) for gpu in range(gpus)])
    infos = [GpuInfo(gpu, link_limit_bytes_per_s=64e9) for gpu in range(gpus)]
    found = without_stillness(samples, infos)
    assert found.schema == samples.schema
    for gpu in range(gpus):
        own, whole = found.filter(pl.col("gpu") == gpu), samples.filter(pl.col("gpu") == gpu)
        assert (own["end_ns"][:-1] == own["start_ns"][1:]).all()
        assert (own["start_ns"][0], own["end_ns"][-1]) == (whole["start_ns"][0], whole["end_ns"][-1])
        assert own["rx_wire_bytes"].sum() == pytest.approx(whole["rx_wire_bytes"].sum())
        seconds = (own["end_ns"] - own["start_ns"]) / 1e9
        assert (own["sm_active"] * seconds).sum() == pytest.approx(0.05 * sum(busy))
        # What is not still is as it was, and nothing is longer than ten seconds.
        assert own.filter(pl.col("sm_active") > 0).equals(whole.filter(pl.col("sm_active") > 0))
        assert (seconds <= 10.0).all()


def test_a_long_stillness_is_a_row_for_ten_seconds_less_its_ends() -> None:
    found = without_stillness(_samples([False] * 36_000), [GpuInfo(0, link_limit_bytes_per_s=64e9)])
    assert found.height == 100 + 359


def test_what_nobody_measured_is_not_called_still() -> None:
    samples = _samples([False] * 500)
    assert without_stillness(samples, [GpuInfo(0)]).height == 500
    blind = samples.with_columns(pl.lit(None, pl.Float64).alias("sm_active"))
    assert without_stillness(blind, [GpuInfo(0, link_limit_bytes_per_s=64e9)]).height == 500
