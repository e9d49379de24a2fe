"""A recording of known copies, made by `gputrace record` on an H200, read back: every byte is where it was copied.

`tests/data/h200-known-copies` is the capture; its prover.stdout says what was copied when (`tests/gpu/workload.py`).
"""

import json

import numpy as np
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.loading import load
from gputrace.trace import Trace
from tests.captures import DATA

CAPTURE = DATA / "h200-known-copies"
# A phase begins and ends within a row, and bytes in flight at its ends are counted a moment later.
MARGIN_NS = 300_000_000


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load([str(CAPTURE)])


def copied() -> list[tuple[str, str, int, int, int]]:
    """Phase, direction, start, end, payload bytes."""
    phases = [json.loads(line) for line in (CAPTURE / "prover.stdout").read_text(encoding="utf-8").splitlines()]
    return [
        (phase["phase"], way, phase["start_ns"], phase["end_ns"], phase[f"{way}_bytes"])
        for phase in phases
        for way in ("rx", "tx")
        if phase[f"{way}_bytes"]
    ]


@pytest.mark.parametrize(("phase", "way", "start_ns", "end_ns", "payload"), copied(), ids=lambda value: str(value)[:16])
def test_bytes_are_those_that_were_copied(
    trace: Trace, phase: str, way: str, start_ns: int, end_ns: int, payload: int
) -> None:
    low, high = trace.samples["start_ns"].to_numpy(), trace.samples["end_ns"].to_numpy()
    wire = trace.samples[f"{way}_wire_bytes"].fill_null(0.0).to_numpy()
    inside = np.minimum(high, end_ns + MARGIN_NS) - np.maximum(low, start_ns - MARGIN_NS)
    share = np.clip(inside / (high - low), 0.0, 1.0)
    assert float((wire * share).sum()) / WIRE_PER_PAYLOAD_OF[way] == pytest.approx(payload, rel=0.005), phase


def test_the_recording_is_reported_without_more(trace: Trace) -> None:
    found = diagnose(trace)
    (gpu,) = found.gpus
    assert gpu.state_source == "gpm"
    assert gpu.line_rate_bytes_per_s == pytest.approx(55.3e9, rel=0.02)
    assert gpu.rx_payload_bytes == pytest.approx(sum(size for _, way, *_, size in copied() if way == "rx"), rel=0.005)
    assert "no prover log was given" in found.headline
    # Making a context and ending a process block the driver: those intervals are not invented.
    assert trace.quality.samples_missing >= 3
