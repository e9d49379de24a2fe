"""What a live view says of a moment, against the frames themselves."""

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from gputrace.live.feed import last_seconds
from gputrace.live.state import RECENT_S, STRIP_CELLS, Board
from gputrace.live.workers import OWN_PHASES
from gputrace.loading import load
from gputrace.schema import LEAVES_UNDER_MUTEX
from gputrace.trace import Trace
from tests.captures import SAMPLES, diagnosis, docker_lines, folder, read
from tests.two_gpus import write_two_gpus

NAMES = ("pageable-heavy", "pinned-heavy", "light-then-heavy", "one-worker")


def moments(trace: Trace, count: int = 150) -> list[int]:
    board = Board(trace)
    return [int(t) for t in np.random.default_rng(7).integers(board.start_ns, board.end_ns, count)]


@pytest.mark.parametrize("name", NAMES)
def test_each_worker_does_what_the_phases_frame_says(name: str) -> None:
    trace = read(name)
    board = Board(trace)
    own = trace.phases.filter(pl.col("name").is_in(OWN_PHASES) & pl.col("worker").is_not_null())
    seen: set[str] = set()
    for now_ns in moments(trace):
        current = own.filter((pl.col("start_ns") <= now_ns) & (pl.col("end_ns") > now_ns))
        for worker in board.at(now_ns).workers:
            mine = current.filter(pl.col("worker") == worker.worker)
            seen.add(worker.doing)
            if worker.doing in OWN_PHASES:
                begun = mine.filter(pl.col("name") == worker.doing)
                assert worker.since_ns in begun["start_ns"].to_list()
                assert worker.call in begun["call"].to_list()
                assert worker.for_s(now_ns) == pytest.approx((now_ns - worker.since_ns) / 1e9)
            else:
                assert mine.is_empty()
                holds = trace.calls.filter(
                    (pl.col("worker") == worker.worker)
                    & (pl.col("lock_ns") <= now_ns)
                    & (pl.col("unlock_ns").is_null() | (pl.col("unlock_ns") > now_ns))
                )
                assert (worker.doing == "held") == (holds.height > 0)
    assert len(seen & set(LEAVES_UNDER_MUTEX)) >= 3
    assert seen & {"queue", "no-work", "mutex_wait", "held"}


@pytest.mark.parametrize("name", NAMES)
def test_states_add_up_and_are_those_of_the_report(name: str) -> None:
    trace = read(name)
    board, states = Board(trace), diagnosis(name).states
    whole = 0
    for now_ns in moments(trace, 60):
        (gpu,) = board.at(now_ns).gpus
        if gpu.compute_share is None:
            continue
        assert gpu.copy_only_share is not None and gpu.idle_share is not None
        assert gpu.compute_share + gpu.copy_only_share + gpu.idle_share == pytest.approx(1.0)
        assert len(gpu.strip) == STRIP_CELLS
        inside = states.filter((pl.col("end_ns") > now_ns - RECENT_S * 1e9) & (pl.col("end_ns") <= now_ns))
        if inside["start_ns"].min() in (None, states["start_ns"].min()) or now_ns > states["end_ns"].max():  # type: ignore[operator]
            # The report's window begins and ends with the mutex; the screen's does not.
            continue
        seconds = float((inside["end_ns"] - inside["start_ns"]).sum()) / 1e9
        assert gpu.compute_share == pytest.approx(float(inside["compute_s"].sum()) / seconds, abs=2e-3)
        assert gpu.copy_only_share == pytest.approx(float(inside["copy_only_s"].sum()) / seconds, abs=2e-3)
        whole += 1
    assert whole >= 15


def test_rates_are_the_counters_of_the_last_second() -> None:
    trace = read("pageable-heavy")
    samples = trace.samples
    now_ns = int(samples["end_ns"][400])
    (gpu,) = Board(trace).at(now_ns).gpus
    last = samples.filter((pl.col("end_ns") <= now_ns) & (pl.col("end_ns") > now_ns - 1_000_000_000))
    seconds = float((last["end_ns"] - last["start_ns"]).sum()) / 1e9
    wire = float(last["rx_wire_bytes"].sum()) / seconds
    limit = trace.gpus[0].link_limit_bytes_per_s
    assert gpu.rx_link_share is not None and limit is not None
    assert gpu.rx_link_share == pytest.approx(wire / limit, rel=1e-3)


@pytest.mark.parametrize("name", ["pageable-heavy", "pinned-heavy"])
def test_a_moment_knows_nothing_later(name: str) -> None:
    trace = read(name)
    board = Board(trace)
    complete = trace.calls.filter("complete")
    for now_ns in moments(trace, 25):
        moment = board.at(now_ns, window_s=30.0)
        begin_ns = now_ns - 30_000_000_000
        ended = complete.filter((pl.col("unlock_ns") <= now_ns) & (pl.col("unlock_ns") > begin_ns))
        assert moment.calls_ended == ended.height
        begun = trace.syntheses.filter(pl.col("start_ns") <= now_ns)
        running = begun.filter(pl.col("end_ns").is_null() | (pl.col("end_ns") > now_ns))
        assert moment.syntheses_running == (running.height if begun.height else None)
        held = trace.phases.filter(pl.col("call").is_in(ended["call"].implode()) & (pl.col("name") == "mutex_held"))
        shown = {phase.name: phase for phase in moment.phases}
        if held.height:
            values = held["duration_ms"].to_numpy()
            assert shown["mutex_held"].count == held.height
            assert shown["mutex_held"].median_ms == pytest.approx(float(np.median(values)))
            assert shown["mutex_held"].p95_ms == pytest.approx(float(np.quantile(values, 0.95)))
            assert shown["mutex_held"].max_ms == values.max()
        else:
            assert "mutex_held" not in shown


def test_without_readings_a_gpu_has_no_state() -> None:
    trace = read("pageable-heavy")
    board = Board(trace)
    (late,) = board.at(board.end_ns + 20_000_000_000).gpus
    assert late.state is None and late.compute_share is None and late.rx_bytes_per_s is None
    assert late.age_s is not None and late.age_s >= 20
    (early,) = board.at(board.start_ns - 1).gpus
    assert early.age_s is None


def test_a_log_alone_infers_states_from_phases() -> None:
    log = SAMPLES["pageable-heavy"] / "prover.merged.gz"
    trace = load([str(log)])
    board = Board(trace)
    now_ns = int(trace.calls["lock_ns"][20])
    (gpu,) = board.at(now_ns).gpus
    assert gpu.source.startswith("inferred") and gpu.rx_bytes_per_s is None
    assert gpu.compute_share is not None and 0 < gpu.compute_share < 1


def test_every_gpu_and_its_workers(tmp_path: Path) -> None:
    trace = load(write_two_gpus("pageable-heavy", "pageable-membw", tmp_path))
    board = Board(trace)
    moment = board.at((board.start_ns + board.end_ns) // 2)
    assert [gpu.gpu for gpu in moment.gpus] == [0, 1]
    assert [(worker.gpu, worker.worker) for worker in moment.workers] == [(0, 0), (0, 1), (1, 2), (1, 3)]


def cut_log(name: str, until_line: str, into: Path) -> Trace:
    """The capture's log up to and with the line that contains `until_line` for the tenth time."""
    lines = gzip.decompress((folder(name) / "prover.merged.gz").read_bytes()).decode().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if until_line in line][9]
    (into / "prover.log").write_text("".join(lines[: at + 1]))
    return load([str(into / "prover.log")])


@pytest.mark.parametrize(
    ("until_line", "doing", "after"),
    [("mutex_wait_ms=", "held", "mutex_wait"), ("ntt_msm_h_ms=", "held", "msm_invoke"), ("GPU_START", "in-call", None)],
)
def test_a_call_whose_end_is_not_printed_shows_what_was_printed_last(
    until_line: str, doing: str, after: str | None, tmp_path: Path
) -> None:
    trace = cut_log("one-worker", until_line, tmp_path)
    board = Board(trace)
    (worker,) = board.at(board.end_ns + 5_000_000_000).workers
    assert worker.open_end and worker.doing == doing
    assert worker.after == after or (after == "msm_invoke" and worker.after in ("msm_invoke", "msm_dtor"))
    assert worker.for_s(board.end_ns + 5_000_000_000) >= 4.9


def test_a_log_without_a_wall_clock_is_not_mixed_with_readings(tmp_path: Path) -> None:
    (tmp_path / "prover.stderr").write_text(
        "\n".join(text for stream, _, text in docker_lines("pageable-heavy") if stream == "stderr") + "\n"
    )
    trace = load([str(tmp_path / "prover.stderr")])
    assert trace.clock.method == "none"
    trace.samples = read("pageable-heavy").samples
    board = Board(trace)
    assert (board.end_ns - board.start_ns) / 1e9 < 120
    assert board.at(board.end_ns - 20_000_000_000).workers
    kept = last_seconds(trace, 20.0)
    assert 5 < kept.calls.height < trace.calls.height
