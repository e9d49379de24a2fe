"""Parts of a run: what is kept, what is counted, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.selection import Selection, select
from gputrace.errors import InputError, UsageError
from gputrace.loading import load
from gputrace.render.json_report import report_object
from gputrace.trace import Clock, Trace
from tests.captures import SAMPLES, diagnosis, read
from tests.integration.test_command_line import run
from tests.two_gpus import write_two_gpus

NAME = "light-then-heavy"


def begin_ns() -> int:
    start = diagnosis(NAME).window.start_ns
    assert start is not None
    return start


def notices(trace: Trace) -> dict[str, int]:
    return {notice.code: notice.count for notice in trace.quality.notices}


def said(trace: Trace, code: str) -> str:
    return next(notice.text for notice in trace.quality.notices if notice.code == code)


def test_nothing_asked_changes_nothing() -> None:
    assert select(read(NAME), Selection()) is read(NAME)


def test_seconds_keep_whole_calls_and_cut_the_rest() -> None:
    whole, part = read(NAME), select(read(NAME), Selection(start="30", end="60"))
    low, high = begin_ns() + 30_000_000_000, begin_ns() + 60_000_000_000
    inside = whole.calls.filter((pl.col("lock_ns") >= low) & (pl.col("unlock_ns") <= high))
    assert part.calls["call"].to_list() == inside["call"].to_list()
    assert set(part.phases["call"]) == set(inside["call"])
    for frame in (part.samples, part.host):
        assert (frame["start_ns"].min(), frame["end_ns"].max()) == (low, high)
    edge = whole.samples.filter((pl.col("start_ns") < low) & (pl.col("end_ns") > low)).row(0, named=True)
    kept = part.samples.row(0, named=True)
    share = (edge["end_ns"] - low) / (edge["end_ns"] - edge["start_ns"])
    assert kept["rx_wire_bytes"] == pytest.approx(edge["rx_wire_bytes"] * share)
    assert part.syntheses.filter((pl.col("end_ns") < low) & (pl.col("picked_up_ns") < low)).is_empty()
    assert said(part, "selection") == f"--from 30 --to 60: {inside.height} of 48 calls are looked at"
    assert notices(part)["selection-cut"] == 2
    assert "selection" not in notices(whole)


def test_the_diagnosis_of_a_part_is_of_that_part() -> None:
    part = diagnose(select(read(NAME), Selection(start="30", end="60")))
    assert part.window.duration_s is not None and 27.0 < part.window.duration_s <= 30.0
    charged = sum(cause.total_s for cause in part.gaps.by_cause)
    assert charged == pytest.approx(part.gaps.total_s)
    assert part.jobs and all(job.gpu_s is None or job.gpu_s <= 30.0 for job in part.jobs)


def test_last_seconds_and_wall_times_say_the_same() -> None:
    end_ns = diagnosis(NAME).window.end_ns
    assert end_ns is not None
    last = select(read(NAME), Selection(last_s=20.0))
    wall = pl.Series([end_ns - 20_000_000_000]).cast(pl.Datetime("ns")).dt.to_string("%Y-%m-%dT%H:%M:%S%.6fZ")[0]
    since = select(read(NAME), Selection(start=wall))
    assert last.calls.equals(since.calls) and 8 <= last.calls.height < 20
    before_end = select(read(NAME), Selection(end="40", last_s=10.0))
    assert before_end.calls["lock_ns"].min() >= begin_ns() + 30_000_000_000 - 2_000_000  # type: ignore[operator]


def test_times_without_a_zone_take_the_one_given() -> None:
    utc = select(read(NAME), Selection(start="2026-11-29T11:51:00Z"))
    berlin = select(read(NAME), Selection(start="2026-11-29T12:51:00", timezone="Europe/Berlin"))
    assert utc.calls.equals(berlin.calls) and 0 < utc.calls.height < 48


@pytest.mark.parametrize("wanted", ["2", "contention"])
def test_a_regime_is_found_by_number_and_by_label(wanted: str) -> None:
    regime = diagnosis(NAME).regimes[1]
    part = select(read(NAME), Selection(regime=wanted))
    found = diagnose(part)
    assert found.calls.complete == regime.calls
    assert found.window.duration_s == pytest.approx(regime.duration_s, abs=0.01)
    assert found.gaps.total_s == pytest.approx(regime.lost_s, rel=0.02)
    assert len(found.regimes) == 1


def test_both_regimes_together_have_every_timed_call() -> None:
    kept = [select(read("pinned-heavy"), Selection(regime=number)).calls["call"] for number in ("1", "2")]
    timed = read("pinned-heavy").calls.drop_nulls("unlock_ns")["call"]
    assert set(timed) <= set(pl.concat(kept))
    assert not set(kept[0]) & set(kept[1])


def test_a_worker_has_its_own_tables_and_the_gpu_keeps_its_account() -> None:
    whole, part = diagnosis(NAME), diagnose(select(read(NAME), Selection(worker=1)))
    mine = read(NAME).calls.filter((pl.col("worker") == 1) & pl.col("complete"))
    assert part.calls.complete == mine.height < whole.calls.complete
    assert set(part.calls.by_worker) == {"1"}
    held = next(phase for phase in part.phases if phase.name == "mutex_held")
    assert held.count == mine.height
    assert held.max_ms == mine["mutex_held_ms"].max()
    # As reports give them: sums made by several threads differ in the last digits.
    before, after = report_object(read(NAME), whole), report_object(read(NAME), part)
    for key in ("headline", "window", "gpus", "gaps", "regimes", "hypotheses"):
        assert after[key] == before[key]
    assert "no-work-queued" not in {cause.cause for cause in part.gaps.by_cause if cause.share > 0.02}
    assert "selection-focus" in notices(select(read(NAME), Selection(worker=1)))


def test_a_job_has_its_own_calls() -> None:
    job = diagnosis(NAME).jobs[1]
    part = select(read(NAME), Selection(job=job.job))
    found = diagnose(part)
    assert found.jobs == (job,)
    assert found.calls.count == read(NAME).calls.filter(pl.col("job") == job.job).height
    assert found.window == diagnosis(NAME).window


def test_a_worker_within_a_time() -> None:
    part = select(read(NAME), Selection(start="30", end="60", worker=0))
    assert part.calls["worker"].n_unique() == 2
    assert part.calls_in_focus["worker"].unique().to_list() == [0]


def test_one_gpu_of_two(tmp_path: Path) -> None:
    both = load(write_two_gpus("pageable-heavy", "pinned-heavy", tmp_path))
    regimes = diagnose(both).regimes
    assert [regime.reason.startswith("GPU 1: ntt_kernels") for regime in regimes] == [False, True]
    first, second = (diagnose(select(both, Selection(gpu=gpu))) for gpu in (0, 1))
    assert (first.calls.complete, second.calls.complete) == (41, 21)
    assert [gpu.gpu for gpu in second.gpus] == [1]
    assert [regime.label for regime in first.regimes] == ["pageable copy under contention"]
    assert [regime.label for regime in second.regimes] == [
        "pinned buffers being allocated",
        "pinned, waiting for prep_msm, bistable",
    ]


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        (Selection(worker=9), InputError, "--worker 9: no call matches; this run: its workers are 0, 1"),
        (Selection(gpu=3), InputError, "its GPUs are 0"),
        (Selection(job="x"), InputError, "--job x: no call matches"),
        (Selection(start="90"), InputError, "the window is 0 to 75.3 s"),
        (Selection(start="50", end="40"), InputError, "--from 50 --to 40: empty"),
        (Selection(start="10.0", end="10.1"), InputError, "no call matches"),
        (Selection(regime="3"), InputError, "there is no such regime; the run has 1 'pageable copy, light"),
        (Selection(regime="pageable"), InputError, "more than one regime is called so"),
        (Selection(regime="chaining"), InputError, "no regime is called so"),
        (Selection(start="yesterday"), UsageError, "--from yesterday: not a time"),
        (Selection(end="-3"), UsageError, "--to -3: not a time"),
        (Selection(start="3", last_s=5.0), UsageError, "give one of them"),
        (Selection(last_s=0.0), UsageError, "must be more than 0"),
        (Selection(last_s=float("nan")), UsageError, "must be more than 0"),
    ],
)
def test_what_cannot_be_selected_is_said(selection: Selection, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as raised:
        select(read(NAME), selection)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_log_without_a_wall_clock_takes_seconds_only() -> None:
    trace = replace(read(NAME), clock=Clock())
    assert select(trace, Selection(start="30")).calls.height > 10
    with pytest.raises(InputError, match="no wall clock; give seconds"):
        select(trace, Selection(start="2026-11-29T11:51:00Z"))


def test_on_the_command_line() -> None:
    done = run("report", str(SAMPLES[NAME]), "--regime", "2", "--worker", "1", "--json", "-", "--calls")
    report = json.loads(done.stdout)
    assert report["calls"]["by_worker"] == {"1": 11}
    assert {call["worker"] for call in report["calls_list"]} == {1}
    assert report["quality"]["notices"][0]["code"] == "selection"
    failed = run("report", str(SAMPLES[NAME]), "--worker", "7")
    assert failed.returncode == 3
    assert failed.stderr.startswith("gputrace: --worker 7: no call matches")
    assert run("report", str(SAMPLES[NAME]), "--from", "1", "--last", "2").returncode == 2
