"""Cells of time keep what is in them: the sums of the account, and its extremes."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from gputrace.analysis.diagnosis import Diagnosis, GpuFinding, Regime, Window
from gputrace.render.over_time import axis_of, lost_share, over_time, regime_lane, regime_mark
from gputrace.render.text import TextRenderer
from gputrace.render.text_parts import sparkline
from gputrace.trace import Trace
from tests.captures import diagnosis

S = 1_000_000_000


def made(states: list[tuple[int, int, float, float | None]], end_s: int, gpu: int = 0) -> Diagnosis:
    """States as (from s, to s, compute share, rx)."""
    frame = pl.DataFrame(
        [
            (gpu, a * S, b * S, share * (b - a), 0.0, (1 - share) * (b - a), rx)
            for a, b, share, rx in states
        ],
        schema={
            "gpu": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "compute_s": pl.Float64,
            "copy_only_s": pl.Float64, "idle_s": pl.Float64, "rx_bytes_per_s": pl.Float64,
        },
        orient="row",
    )  # fmt: skip
    blame = frame.select("gpu", "start_ns", "end_ns", "copy_only_s", "idle_s", pl.lit("prep-barrier").alias("cause"))
    return Diagnosis(
        window=Window(0, end_s * S, float(end_s), 0.0, 0.0),
        gpus=(GpuFinding(gpu, compute_share=0.5),),
        states=frame,
        blame=blame,
    )


def test_a_short_stall_is_seen_though_the_mean_hides_it() -> None:
    found = made([(0, 49, 1.0, 9e9), (49, 50, 0.0, 0.0), (50, 100, 1.0, 9e9)], 100)
    axis = axis_of(found, 2)
    assert axis is not None
    (gpu,) = over_time(found, axis)
    assert gpu.compute.high == (1.0, 1.0)
    assert gpu.compute.mean == pytest.approx((0.98, 1.0))
    assert gpu.compute.low == (0.0, 1.0)
    assert gpu.rx is not None and gpu.rx.low == (0.0, 9e9)
    assert lost_share(found, "prep-barrier", axis) == pytest.approx((0.02, 0.0))
    assert lost_share(found, "pageable-h2d", axis) == (0.0, 0.0)


def test_what_was_not_measured_is_blank_and_not_zero() -> None:
    found = made([(0, 10, 0.5, None), (30, 40, 0.5, 1e9)], 40)
    axis = axis_of(found, 4)
    assert axis is not None
    (gpu,) = over_time(found, axis)
    assert gpu.compute.mean == (0.5, None, None, 0.5)
    assert gpu.rx is not None and gpu.rx.mean == (None, None, None, 1e9)
    assert sparkline(gpu.compute.mean) == "▅  ▅"
    assert lost_share(found, "prep-barrier", axis) == (0.5, None, None, 0.5)


def test_what_was_measured_for_a_nanosecond_only_is_drawn() -> None:
    found = made([(0, 10, 0.5, None), (10, 20, 0.5, 36e6)], 10)
    found.states = found.states.with_columns(
        start_ns=pl.Series([0, 10 * S - 1]), end_ns=pl.Series([10 * S - 1, 10 * S])
    )
    axis = axis_of(found, 4)
    assert axis is not None
    (gpu,) = over_time(found, axis)
    assert gpu.rx is not None and gpu.rx.mean == gpu.rx.high == (None, None, None, 36e6)
    assert "rx 36.0 MB/s" in TextRenderer(67).render(Trace(), found)


def test_sparklines_have_eight_heights() -> None:
    assert sparkline([0.0, 0.124, 0.126, 0.5, 0.874, 0.876, 1.0, 1.7, -1.0, None]) == "▁▁▂▅▇███▁ "


def test_regimes_are_marked_by_their_numbers() -> None:
    found = made([(0, 100, 0.5, None)], 100)
    found.regimes = tuple(Regime(a * S, b * S, 5, "x", "", {}, None, {}) for a, b in ((0, 40), (60, 100)))
    axis = axis_of(found, 10)
    assert axis is not None and regime_lane(found, axis) == "1111  2222"
    assert "".join(map(regime_mark, range(8, 12))) == "9ABC"
    assert "regime                 111" in TextRenderer().render(Trace(), found)


@pytest.mark.parametrize("cells", [1, 7, 55, 200])
def test_cells_add_up_to_the_account_of_a_real_run(cells: int) -> None:
    found = diagnosis("merged-fast")
    axis = axis_of(found, cells)
    assert axis is not None
    assert axis.edges[0] == found.window.start_ns and axis.edges[-1] == found.window.end_ns
    (gpu,) = over_time(found, axis)
    means = np.array([value for value in gpu.compute.mean if value is not None])
    assert len(means) == cells
    assert means.mean() == pytest.approx(found.gpus[0].compute_share, abs=2e-3)
    assert all(
        low - 1e-9 <= mean <= high + 1e-9  # type: ignore[operator]
        for low, mean, high in zip(gpu.compute.low, gpu.compute.mean, gpu.compute.high, strict=True)
    )
    for cause in found.gaps.by_cause:
        share = lost_share(found, cause.cause, axis)
        assert sum(value or 0.0 for value in share) * axis.cell_s == pytest.approx(cause.total_s, rel=0.02, abs=0.05)


def test_nothing_is_drawn_where_nothing_has_a_time() -> None:
    assert axis_of(Diagnosis(), 50) is None
    assert "Over time" not in TextRenderer().render(Trace(), Diagnosis(headline="Nothing."))


def test_many_gpus_share_a_table_of_patterns() -> None:
    finding = GpuFinding(
        0, "NVIDIA H200", compute_share=0.5, copy_only_share=0.25, idle_share=0.25, mutex_held_share=1.0
    )
    found = made([(0, 100, 0.5, 1e9)], 100)
    found.gpus = tuple(replace(finding, gpu=number) for number in range(8))
    text = TextRenderer(full=False).render(Trace(), found)
    assert "8 GPUs: NVIDIA H200" in text
    assert text.count("█" * 18 + "▓" * 9 + "░" * 9) == 8
    assert "#" * 18 + "%" * 9 + "." * 9 in TextRenderer(ascii=True, full=False).render(Trace(), found)
