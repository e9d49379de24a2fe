"""Logs without any time are put on the clock of the GPU trace, and only where there is one place for them."""

from pathlib import Path

import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.loading import load
from gputrace.trace import Trace
from tests.captures import WITH_DOCKER, docker_lines, log_and_trace, read

# Another run's trace that is long enough to hold the log.
FOREIGN = {
    "pageable-heavy": "light-then-heavy",
    "pageable-membw": "pinned-heavy",
    "pinned-heavy": "pageable-heavy",
    "light-then-heavy": "pinned-heavy",
    "one-worker": "pageable-heavy",
}


def only_c_lines(name: str, into: Path) -> str:
    """The capture's CUZK lines and nothing else: no time, no worker, no partition."""
    path = into / "cuzk.log"
    lines = [text for stream, _, text in docker_lines(name) if stream == "stderr" and text.startswith("CUZK")]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def errors_ms(trace: Trace, name: str) -> list[float]:
    found = trace.calls.filter("complete")["lock_ns"]
    known = read(name).calls.filter("complete")["lock_ns"]
    return ((found - known).abs() / 1e6).to_list()


@pytest.mark.parametrize("name", WITH_DOCKER)
def test_c_lines_alone_find_their_place(name: str, tmp_path: Path) -> None:
    trace = load([only_c_lines(name, tmp_path), log_and_trace(name)[1]])
    assert trace.clock.method == "correlation"
    assert trace.clock.unique
    off = errors_ms(trace, name)
    assert sorted(off)[len(off) // 2] < 100
    # The truth lies inside the stated uncertainty.
    assert trace.clock.uncertainty_s is not None
    assert max(off) < trace.clock.uncertainty_s * 1e3


@pytest.mark.parametrize("name", WITH_DOCKER)
def test_another_runs_trace_is_refused(name: str, tmp_path: Path) -> None:
    trace = load([only_c_lines(name, tmp_path), log_and_trace(FOREIGN[name])[1]])
    assert trace.clock.method == "none"
    assert not trace.clock.unique
    found = diagnose(trace)
    assert all(phase.rx_bytes_per_s is None for phase in found.phases)
    assert any(notice.code == "not-aligned" for notice in trace.quality.notices)


def test_a_placed_log_gives_the_diagnosis(tmp_path: Path) -> None:
    found = diagnose(load([only_c_lines("pageable-membw", tmp_path), log_and_trace("pageable-membw")[1]]))
    assert found.hypotheses[0].id == "pageable-h2d"
    ntt = next(phase for phase in found.phases if phase.name == "ntt_kernels")
    assert ntt.rx_bytes_per_call_median == pytest.approx(3.12e9, rel=0.1)


@pytest.mark.parametrize("name", WITH_DOCKER)
def test_timeline_offsets_alone_find_their_clock(name: str, tmp_path: Path) -> None:
    path = tmp_path / "prover.stderr"
    path.write_text("".join(f"{text}\n" for stream, _, text in docker_lines(name) if stream == "stderr"))
    trace = load([str(path), log_and_trace(name)[1]])
    assert trace.clock.method == "correlation"
    off = errors_ms(trace, name)
    assert sorted(off)[len(off) // 2] < 100
