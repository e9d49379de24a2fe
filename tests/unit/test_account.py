"""The window is tiled without overlap or hole, its seconds add up, and each lost second is charged once."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.segments import alloc_bursts, build_segments, call_modes, windows
from gputrace.trace import Trace
from tests.unit.prover import Planned, schedule
from tests.unit.support import S, frame_of
from tests.unit.traces import (
    LINE_RATE,
    USUAL,
    Activity,
    calls_frame,
    ns,
    phases_frame,
    queue_frame,
    queue_of,
    run,
    sampled,
    trace_of,
)


def never() -> pl.DataFrame:
    return alloc_bursts(Trace())


# --- tiling --------------------------------------------------------------------------------------------------------

any_length = st.sampled_from([0.0, 0.0, 0.4, 1.0, 33.0, 250.0, 4000.0])


@st.composite
def plans(draw: st.DrawFn) -> list[Planned]:
    """Up to eight calls by two workers, with phases of any length, none included."""
    plan = []
    at = 1000.0
    for n in range(draw(st.integers(1, 8))):
        call = Planned(
            n % 2,
            n,
            start=at,
            prep=draw(any_length),
            d_b_alloc=draw(any_length),
            ntt_kernels=draw(any_length),
            coset_intt_sync=draw(any_length),
            msm_init=draw(any_length),
            msm_invoke=draw(any_length),
            msm_dtor=draw(any_length),
            batch_add=draw(any_length),
            tail_msm=draw(any_length),
            release=draw(any_length),
            pinned=draw(st.sampled_from([None, True, False])),
        )
        at += draw(st.floats(1.0, 3000.0))
        plan.append(call)
    return schedule(plan)


def check_tiling(trace: Trace, segments: pl.DataFrame) -> None:
    spans = windows(trace).frame
    for (gpu,), own in segments.group_by("gpu", maintain_order=True):
        (window,) = spans.filter(pl.col("gpu") == gpu).select("start_ns", "end_ns").iter_rows()
        starts, ends = own["start_ns"].to_list(), own["end_ns"].to_list()
        assert (starts[0], ends[-1]) == window
        assert starts[1:] == ends[:-1]
        assert all(end > start for start, end in zip(starts, ends, strict=True))
    assert segments["gpu"].n_unique() == spans["gpu"].n_unique()


@given(plan=plans(), knows_queue=st.booleans())
@settings(max_examples=60)
def test_segments_tile_the_window(plan: list[Planned], knows_queue: bool) -> None:
    trace = trace_of(plan, queue=queue_of(plan) if knows_queue else ())
    check_tiling(trace, build_segments(trace, alloc_bursts(trace)))


@given(
    plan=plans(),
    shifts=st.lists(st.tuples(st.integers(-300, 300), st.integers(-300, 300)), min_size=1, max_size=20),
)
@settings(max_examples=40)
def test_segments_tile_whatever_the_phases_times(plan: list[Planned], shifts: list[tuple[int, int]]) -> None:
    # Clock error and floored durations may put phases over each other and out of the hold.
    trace = trace_of(plan, queue=queue_of(plan))
    begin_ns, end_ns = zip(*(shifts[n % len(shifts)] for n in range(trace.phases.height)), strict=True)
    trace.phases = trace.phases.with_columns(
        pl.col("start_ns") + pl.Series(begin_ns) * 1_000_000, pl.col("end_ns") + pl.Series(end_ns) * 1_000_000
    )
    check_tiling(trace, build_segments(trace, never()))


def two_gpus(plan: Sequence[Planned]) -> Trace:
    """The same calls on two GPUs, the second half a second later."""
    later = [Planned(**{**vars(call), "start": call.start + 500.0, "lock": call.lock + 500.0}) for call in plan]
    trace = trace_of(plan, USUAL)
    trace.calls = pl.concat([trace.calls, calls_frame(later, gpu=1, first=len(plan))])
    trace.phases = pl.concat([trace.phases, phases_frame(later, gpu=1, first=len(plan))])
    trace.samples = pl.concat([trace.samples, sampled(later, USUAL, gpu=1)])
    trace.syntheses = queue_frame(queue_of(plan))
    return trace


def test_segments_tile_the_windows_of_two_gpus() -> None:
    trace = two_gpus(run(5, between_ms=400.0))
    segments = build_segments(trace, never())
    check_tiling(trace, segments)
    # A call's segments are on its own GPU.
    homes = dict(trace.calls.select("call", "gpu").iter_rows())
    assert all(homes[call] == gpu for call, gpu in segments.select("call", "gpu").iter_rows())


def test_a_restart_is_a_hole_in_nobodys_window() -> None:
    plan = run(6, between_ms=100.0)
    for call in plan[3:]:
        call.start += 60_000.0
        call.lock += 60_000.0
    trace = trace_of(plan, USUAL)
    trace.calls = trace.calls.with_columns((pl.col("call") >= 3).cast(pl.UInt16).alias("restart"))
    spans = windows(trace)
    assert spans.frame.height == 2
    assert spans.total_s < 30.0
    segments = build_segments(trace, never())
    assert float((segments["end_ns"] - segments["start_ns"]).sum()) / 1e9 == pytest.approx(spans.total_s)
    assert diagnose(trace).states["end_ns"].max() == spans.frame["end_ns"].max()


def test_phases_keep_their_place_and_their_call() -> None:
    plan = run(3)
    trace = trace_of(plan)
    segments = build_segments(trace, never())
    for n, call in enumerate(plan):
        for name in ("ntt_kernels", "coset_intt_sync", "batch_add", "tail_msm"):
            (row,) = segments.filter((pl.col("call") == n) & (pl.col("name") == name)).rows(named=True)
            start, end = call.edges[name]
            assert (row["start_ns"], row["end_ns"]) == (ns(start), ns(end))


def test_a_streaming_msm_has_a_head_of_its_own() -> None:
    segments = build_segments(trace_of(run(2)), never()).filter(pl.col("name") == "msm_invoke")
    parts = segments.select("part", ((pl.col("end_ns") - pl.col("start_ns")) / 1e6).alias("ms")).rows()
    assert [part for part, _ in parts] == ["head", "", "head", ""]
    assert all(ms == 25.0 for part, ms in parts if part == "head")


def test_where_the_copy_is() -> None:
    pageable, pinned = run(1, ntt_kernels=3000.0), run(1, ntt_kernels=2.0, coset_intt_sync=450.0)
    assert call_modes(trace_of(pageable))["mode"].to_list() == ["in-ntt"]
    assert call_modes(trace_of(pinned))["mode"].to_list() == ["in-sync"]


def test_bursts_of_allocations() -> None:
    # Every 1.5 s for a while, and once much later; a burst begins one usual distance before its first line.
    bursts = alloc_bursts(trace_of(run(1), allocations_ms=[2000, 3500, 5000, 40_000]))
    assert bursts["buffers"].to_list() == [3, 1]
    assert bursts["start_ns"].to_list() == [ns(500), ns(38_500)]
    assert bursts["end_ns"].to_list() == [ns(5000), ns(40_000)]
    assert never().is_empty()


# --- the account ---------------------------------------------------------------------------------------------------


@st.composite
def any_samples(draw: st.DrawFn, plan: Sequence[Planned]) -> pl.DataFrame:
    """Samples of any length with any reading in them, missing ones included; they need not cover the run."""
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    begin = min(call.lock for call in plan) + draw(st.sampled_from([-300.0, 0.0, 150.0]))
    end = max(call.unlock for call in plan) + draw(st.sampled_from([-20.0, 0.0, 300.0]))
    steps = rng.uniform(20.0, 250.0, max(2, int((end - begin) / 100.0)))
    ticks = begin + np.concatenate([[0.0], np.cumsum(steps)])
    kept = rng.random(len(steps)) < draw(st.sampled_from([1.0, 0.8]))
    kept[0] = True
    holes = draw(st.sampled_from([0.0, 0.2, 1.0]))
    lanes = draw(st.sampled_from([16, 4]))
    rows: list[dict[str, object]] = [
        {
            "gpu": 0,
            "start_ns": ns(ticks[n]),
            "end_ns": ns(ticks[n + 1]),
            "rx_wire_bytes": None if rng.random() < holes / 2 else float(rng.choice([0.0, 1e7, 3e8, 5e9])),
            "tx_wire_bytes": float(rng.choice([0.0, 1e8])),
            "coverage": 1.0,
            "sm_active": None if rng.random() < holes else float(rng.uniform(0.0, 1.0)),
            "link_gen": 5,
            "link_gen_max": 5,
            "link_width": lanes,
            "link_width_max": 16,
        }
        for n in np.flatnonzero(kept)
    ]
    return frame_of(schema.SAMPLES, rows)


@given(data=st.data())
@settings(max_examples=20)
def test_states_add_up_and_every_lost_second_is_charged_once(data: st.DataObject) -> None:
    plan = data.draw(plans())
    samples = data.draw(any_samples(plan))
    trace = trace_of(plan, queue=queue_of(plan), allocations_ms=data.draw(st.sampled_from([[], [1500.0, 2500.0]])))
    trace.samples = samples
    if data.draw(st.booleans()):
        waits = [{"source": 0, "line": 900 + n, "event": "budget_wait", "log_ns": ns(700.0 * n)} for n in range(9)]
        trace.marks = pl.concat([trace.marks, frame_of(schema.MARKS, waits)])
    diagnosis = diagnose(trace)
    states, blame = diagnosis.states, diagnosis.blame
    length_s = ((states["end_ns"] - states["start_ns"]) / S).to_numpy()
    parts = states.select("compute_s", "copy_only_s", "idle_s").to_numpy()
    assert parts.sum(axis=1) == pytest.approx(length_s)
    assert (parts >= -1e-12).all()
    lost_s = float((states["copy_only_s"] + states["idle_s"]).sum())
    assert float((blame["copy_only_s"] + blame["idle_s"]).sum()) == pytest.approx(lost_s, abs=1e-6)
    assert float(blame["copy_only_s"].sum()) == pytest.approx(float(states["copy_only_s"].sum()), abs=1e-6)
    assert sum(cause.total_s for cause in diagnosis.gaps.by_cause) == pytest.approx(lost_s, abs=1e-6)
    by_cause = blame.group_by("cause").agg(pl.col("copy_only_s").sum(), pl.col("idle_s").sum())
    charged_s = float(by_cause["copy_only_s"].sum()) + float(by_cause["idle_s"].sum())
    assert float(states["compute_s"].sum()) + charged_s == pytest.approx(float(length_s.sum()), abs=1e-6)
    assert (blame["copy_only_s"] >= 0).all() and (blame["idle_s"] >= 0).all()
    assert sum(cause.share for cause in diagnosis.gaps.by_cause) == pytest.approx(1.0 if lost_s else 0.0)
    assert blame["cause"].null_count() == 0


def test_each_gpu_accounts_for_itself() -> None:
    diagnosis = diagnose(two_gpus(run(6, between_ms=400.0)))
    assert [gpu.gpu for gpu in diagnosis.gpus] == [0, 1]
    for gpu in (0, 1):
        states = diagnosis.states.filter(pl.col("gpu") == gpu)
        blame = diagnosis.blame.filter(pl.col("gpu") == gpu)
        lost_s = float((states["copy_only_s"] + states["idle_s"]).sum())
        assert lost_s > 1.0
        assert float((blame["copy_only_s"] + blame["idle_s"]).sum()) == pytest.approx(lost_s)


def test_the_account_without_samples_comes_from_the_phases() -> None:
    plan = run(10)
    diagnosis = diagnose(trace_of(plan))
    kernels = sum(c.coset_intt_sync + c.msm_invoke + c.batch_add + c.tail_msm for c in plan) / 1e3
    assert float(diagnosis.states["compute_s"].sum()) == pytest.approx(kernels, rel=1e-6)
    assert diagnosis.gpus[0].state_source == "inferred from phases; no GPU trace"
    assert diagnosis.gpus[0].copy_only_share is None


def test_samples_not_on_the_logs_clock_are_not_used() -> None:
    trace = trace_of(run(10), USUAL)
    trace.clock = type(trace.clock)()
    assert diagnose(trace).gpus[0].state_source == "inferred from phases; no GPU trace"


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_that_were_put_in(seed: int) -> None:
    plan = run(12, seed=seed)
    (gpu,) = diagnose(trace_of(plan, USUAL)).gpus
    window_s = (plan[-1].unlock - plan[0].lock) / 1e3
    busy_s = sum(
        (end - start) / 1e3 * USUAL.get(name, Activity()).sm for c in plan for name, (start, end) in c.edges.items()
    )
    assert gpu.compute_share == pytest.approx(busy_s / window_s, abs=0.01)
    copied = sum(
        (end - start) / 1e3 * USUAL.get(name, Activity()).rx for c in plan for name, (start, end) in c.edges.items()
    )
    assert gpu.rx_payload_bytes == pytest.approx(copied * 256 / 276, rel=0.01)
    assert gpu.line_rate_bytes_per_s == pytest.approx(LINE_RATE * 256 / 276, rel=0.05)
    shares = (gpu.compute_share, gpu.copy_only_share, gpu.idle_share)
    assert sum(share or 0.0 for share in shares) == pytest.approx(1.0)
