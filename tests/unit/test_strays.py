"""A line far out of time says nothing of when the lines around it were written; a step that stays does."""

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gputrace.ingest.inputs import ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.rebuild.timebounds import strays
from gputrace.trace import Trace
from tests.captures import folder

ERROR = "%s ERROR cuzk_core::engine: GPU proving failed job_id=snap-1000-42 partition=3 error=boom"
LONG_AGO = ERROR % "2026-03-13T10:10:04.312907Z"
NEXT_DAY = ERROR % "2026-03-14T10:10:04.312907Z"


@cache
def lines() -> list[str]:
    return gzip.decompress((folder("told-story") / "prover.log.gz").read_bytes()).decode().splitlines()


def trace_of(text: list[str], into: Path) -> Trace:
    (into / "prover.log").write_text("\n".join(text) + "\n")
    return rebuild(ingest([str(into / "prover.log")]))


def counts(trace: Trace) -> list[int]:
    return [notice.count for notice in trace.quality.notices if notice.code == "lines-out-of-time"]


@pytest.mark.parametrize(
    ("stray", "share"),
    [
        pytest.param(LONG_AGO, 1.0, id="old at the end"),
        pytest.param(NEXT_DAY, 0.5, id="future in the middle"),
        pytest.param("TIMELINE,5,SYNTH_START,snap-1000-99,partition=1", 1.0, id="old offset at the end"),
        pytest.param("TIMELINE,90000000,SYNTH_START,snap-1000-99,partition=1", 0.5, id="future offset in the middle"),
    ],
)
def test_a_stray_line_changes_no_call(stray: str, share: float, tmp_path: Path) -> None:
    at = int(len(lines()) * share)
    with_stray = trace_of([*lines()[:at], stray, *lines()[at:]], tmp_path)
    without = trace_of(lines(), tmp_path)
    told = ("first_line", "last_line")
    assert with_stray.calls.drop(told).equals(without.calls.drop(told))
    assert with_stray.phases.drop("line").equals(without.phases.drop("line"))
    assert counts(with_stray) == [1]
    assert counts(without) == []


def test_what_goes_on_after_a_step_is_no_stray() -> None:
    before, after = np.arange(0.0, 100.0), np.arange(10.0, 16.0)
    assert not strays(np.concatenate([before, after]), 5.0).any()
    assert strays(np.concatenate([before, after[:2]]), 5.0).nonzero()[0].tolist() == [100, 101]


def test_lines_late_by_less_than_the_reach_are_no_strays() -> None:
    times = np.arange(0.0, 100.0)
    times[50], times[70] = 46.0, 74.0
    assert not strays(times, 5.0).any()
    times[50], times[70] = 40.0, 80.0
    assert strays(times, 5.0).nonzero()[0].tolist() == [50, 70]
