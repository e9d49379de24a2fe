"""Comparisons of real captures, of simulated ones, and of saved reports, by library and by command line."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import gputrace
from gputrace.analysis.compare import Comparison, Side, compare
from gputrace.analysis.compare.per_call import per_call
from gputrace.analysis.compare.regimes import match
from gputrace.analysis.compare.saved import side_of_report
from gputrace.analysis.compare.side import Span, side_of_trace
from gputrace.analysis.diagnosis import Diagnosis, Regime
from gputrace.errors import InputError, UsageError
from gputrace.ingest.saved_reports import SUPPORTED, read_report
from gputrace.loading import load, load_run
from gputrace.render.compare_json import CompareJsonRenderer
from gputrace.render.compare_markdown import CompareMarkdownRenderer
from gputrace.render.compare_text import CompareTextRenderer
from gputrace.render.json_report import SCHEMA, JsonRenderer
from gputrace.simulate.capture import play, write_capture
from gputrace.simulate.recipe import MEDIUM
from gputrace.simulate.scenarios import PRESETS, Scenario
from tests.captures import CAPTURES, diagnosis, folder, read
from tests.integration.test_command_line import run


@cache
def side(name: str) -> Side:
    return side_of_trace(read(name), name, diagnosis(name))


def saved(name: str, calls: bool) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(JsonRenderer(calls).render(read(name), diagnosis(name)))
    return report


@cache
def pinned() -> Comparison:
    return compare(side("pageable-heavy"), side("pinned-heavy"))


@pytest.mark.parametrize("name", CAPTURES)
def test_parts_of_calls_add_up_to_the_report(name: str) -> None:
    calls, told = per_call(read(name), diagnosis(name)), diagnosis(name)
    lost = {cause.cause: cause.total_s for cause in told.gaps.by_cause}
    for cause, seconds in lost.items():
        assert calls[f"lost_s.{cause}"].sum() == pytest.approx(seconds, abs=1e-6)
    states = told.states.select(pl.col("compute_s", "copy_only_s", "idle_s").sum()).row(0)
    assert calls.select(pl.col("compute_s", "copy_only_s", "idle_s").sum()).row(0) == pytest.approx(states, abs=1e-6)
    finished = calls.drop_nulls("since_s")
    assert finished.height / finished["since_s"].sum() == pytest.approx(told.calls.per_s, rel=1e-9)
    median = {phase.name: phase.median_ms for phase in told.phases}
    assert calls["mutex_held_ms"].median() == median["mutex_held"]


def test_pinned_memory_moves_the_copy_and_the_sum_is_compared() -> None:
    total, ntt = pinned().change("ntt_plus_coset_ms.median"), pinned().change("ntt_kernels_ms.median")
    assert ntt.before == pytest.approx(825, abs=10) and ntt.after == pytest.approx(0, abs=2)
    assert total.before == pytest.approx(858, abs=10) and total.after == pytest.approx(97, abs=3)
    assert any("moved from ntt_kernels to coset_intt_sync" in notice for notice in pinned().notices)


def test_pinned_copies_under_that_load_made_the_run_slower() -> None:
    rate = pinned().change("calls_per_s")
    assert rate.before == pytest.approx(0.62, abs=0.01) and rate.after == pytest.approx(0.34, abs=0.01)
    assert rate.relative_high is not None and rate.relative_high < 0
    assert rate.improved is False
    assert "Perhaps, not sure among all figures: calls per second lower by 46 % (" in pinned().headline
    # 20 holds from 0.7 to 10 s say little about a usual one: the comparison says so.
    held = pinned().change("mutex_held_ms.median")
    assert held.verdict == "not-shown"
    assert held.detectable_relative is not None and held.detectable_relative > 0.5
    copy_only = pinned().change("copy_only_share")
    assert copy_only.verdict == "changed"
    assert copy_only.difference == pytest.approx(-0.455, abs=0.02)


def test_less_load_made_holds_shorter() -> None:
    comparison = compare(side("pageable-heavy"), side("pageable-membw"))
    held = comparison.change("mutex_held_ms.median")
    assert held.verdict == "changed" and held.improved
    assert held.relative == pytest.approx(-0.25, abs=0.02)
    assert held.relative_low is not None and held.relative_high is not None
    assert held.relative_low < -0.25 < held.relative_high < -0.15
    assert comparison.change("lost_s_per_call.pageable-h2d").verdict == "changed"
    assert comparison.headline.startswith("Changed: calls per second higher by 36 %")


def test_halves_of_one_capture_show_no_change_in_what_the_gpu_does() -> None:
    whole = side("pageable-membw")
    middle = whole.calls.height // 2
    comparison = compare(replace(whole, calls=whole.calls[:middle]), replace(whole, calls=whole.calls[middle:]))
    under_mutex = (
        "mutex_held_ms.median",
        "mutex_held_ms.mean",
        "calls_per_s",
        "compute_share",
        "ntt_kernels_ms.median",
    )
    for name in under_mutex:
        change = comparison.change(name)
        assert change.verdict == "not-shown"
        assert change.detectable_relative is not None and change.detectable_relative < 0.5
    # Freeing a/b/c did slow down during that run: 225-410 ms in its first half, 273-560 ms in its second.
    assert {c.name for c in comparison.changes if c.verdict == "changed"} <= {
        "release_abc_ms.mean",
        "release_abc_ms.median",
    }


@pytest.mark.parametrize("name", ["pageable-heavy", "told-story"])
def test_a_run_equals_its_own_saved_report(name: str) -> None:
    comparison = compare(side(name), saved(name, calls=True))
    assert len(comparison.changes) > 30
    for change in comparison.changes:
        assert change.verdict == "not-shown", change
        assert change.difference == 0.0
        assert change.block_before == change.block_after
        assert change.difference_low is not None and change.difference_low <= 0.0


def test_a_report_without_calls_is_compared_without_intervals_and_says_why() -> None:
    comparison = compare(side("pageable-membw"), saved("pageable-heavy", calls=False), names=("new", "old.json"))
    held = comparison.change("mutex_held_ms.median")
    assert held.before == diagnosis_median("pageable-membw") and held.after == diagnosis_median("pageable-heavy")
    assert {change.verdict for change in comparison.changes} == {"undetermined"}
    assert held.difference_low is None and "--calls" in held.why
    assert any("old.json" in notice and "--calls" in notice for notice in comparison.notices)
    assert comparison.change("ntt_plus_coset_ms.mean").after == pytest.approx(855, abs=5)


def diagnosis_median(name: str) -> float:
    return next(phase.median_ms for phase in diagnosis(name).phases if phase.name == "mutex_held")


def test_reports_of_before_accounts_were_written_still_give_durations() -> None:
    report = saved("pageable-heavy", calls=True)
    for call in report["calls_list"]:
        del call["account"], call["restart"]
        for phase in call["phases"].values():
            del phase["duration_ms"]
    comparison = compare(side("pageable-heavy"), report)
    held = comparison.change("mutex_held_ms.median")
    assert held.verdict == "not-shown" and held.difference == pytest.approx(0.0, abs=2.0)
    assert comparison.change("calls_per_s").difference == 0.0
    assert comparison.change("compute_share").verdict == "undetermined"


def cut_in_regimes(name: str, *labels: str) -> Diagnosis:
    """The diagnosis with regimes of equal numbers of calls, whatever the analysis finds itself."""
    calls = read(name).calls.drop_nulls("lock_ns").sort("lock_ns")
    size = calls.height // len(labels)
    regimes = []
    for number, label in enumerate(labels):
        own = calls[number * size : (number + 1) * size if number < len(labels) - 1 else calls.height]
        start, end = int(own["lock_ns"][0]), max(own["unlock_ns"].drop_nulls().to_list()) + 1
        medians = {"mutex_held": float(own["mutex_held_ms"].median() or 0.0)}  # type: ignore[arg-type]
        regimes.append(Regime(start, end, own.height, label, "", medians, None, {}))
    return replace(diagnosis(name), regimes=tuple(regimes))


def test_regimes_are_matched_shown_and_selected() -> None:
    one = side_of_trace(read("light-then-heavy"), "one", cut_in_regimes("light-then-heavy", "light", "heavy"))
    other = side_of_trace(read("light-then-heavy"), "other", cut_in_regimes("light-then-heavy", "light", "heavy"))
    comparison = compare(one, other)
    labels = [(pair.before and pair.before.label, pair.after and pair.after.label) for pair in comparison.regimes]
    assert labels == [("light", "light"), ("heavy", "heavy")]
    assert all(change.difference == 0.0 for pair in comparison.regimes for change in pair.changes)
    assert "Regime 1 (light) before, 1 (light) after" in CompareTextRenderer().render(comparison)
    light, heavy = compare(one, other, regime="light"), compare(one, other, regime="2")
    assert light.before.calls + heavy.before.calls == comparison.before.calls
    assert (light.change("mutex_held_ms.median").before or 0) < (heavy.change("mutex_held_ms.median").before or 0)
    assert light.regime == "light" and not light.regimes
    gate = compare(one, other, regime="light", fail_if=["mutex_held_ms.median > 1300"]).gates[0]
    assert not gate.failed and compare(one, other, regime="2", fail_if=["mutex_held_ms > 1300"]).gates[0].failed
    with pytest.raises(UsageError, match="it has 1 \\(light\\), 2 \\(heavy\\)"):
        compare(one, other, regime="dark")
    with pytest.raises(UsageError, match="has no regimes"):
        compare(replace(one, regimes=()), other, regime="light")


def test_regimes_without_a_common_label_are_matched_by_their_phases() -> None:
    def span(number: int, label: str, held: float) -> Span:
        return Span(number, label, 0, 1, 10, {"mutex_held": held})

    before, after = [span(1, "a", 900), span(2, "b", 1900)], [span(1, "x", 2000), span(2, "y", 950), span(3, "b", 400)]
    pairs = [(one and one.number, other and other.number) for one, other in match(before, after)]
    assert pairs == [(1, 2), (2, 3), (None, 1)]
    assert [(one and one.number, other and other.number) for one, other in match(before, [])] == [(1, None), (2, None)]


def test_another_source_of_sm_activity_makes_shares_undetermined() -> None:
    comparison = compare(side("pageable-heavy"), replace(side("pageable-heavy"), compute_source="inferred from phases"))
    assert comparison.change("compute_share").verdict == "undetermined"
    assert comparison.change("lost_s_per_call").verdict == "undetermined"
    assert comparison.change("mutex_held_ms.median").verdict == "not-shown"
    assert any("not comparable" in notice for notice in comparison.notices)


def captured(scenario: Scenario, seed: int, into: Path) -> Side:
    write_capture(play(scenario, seed), into)
    return side_of_trace(load([str(into)]), into.name)


def test_simulated_captures_end_to_end(tmp_path: Path) -> None:
    scenario = replace(PRESETS["pageable"], partitions=60)
    slow = replace(scenario, circuits=(replace(MEDIUM, ntt_kernels=1.4 * MEDIUM.ntt_kernels),))
    first, second = (captured(scenario, seed, tmp_path / f"steady-{seed}") for seed in (1, 2))
    slower = captured(slow, 3, tmp_path / "slower")
    same = compare(first, second)
    assert [change.name for change in same.changes if change.verdict == "changed"] == []
    found = compare(first, slower)
    for name in ("ntt_kernels_ms.median", "ntt_plus_coset_ms.median", "mutex_held_ms.median"):
        change = found.change(name)
        assert change.verdict == "changed" and change.improved is False
    copy = found.change("ntt_kernels_ms.median")
    assert copy.relative_low is not None and copy.relative_high is not None
    assert 0.2 < copy.relative_low < copy.relative_high < 0.45
    # When syntheses run out, the last calls of a run copy faster: its mean is not sure, and is not said to be.
    mean = found.change("ntt_kernels_ms.mean")
    assert mean.block_before is not None and copy.block_before is not None
    assert mean.block_before > copy.block_before
    assert found.change("tail_msm_ms.median").verdict != "changed"


def test_the_library_compares_traces() -> None:
    comparison = gputrace.compare(read("one-worker"), read("one-worker"))
    assert comparison.headline.startswith("No change shown in")


def test_saved_reports_are_recognised_by_their_schema(tmp_path: Path) -> None:
    assert SCHEMA in SUPPORTED
    report = saved("one-worker", calls=False)
    text = json.dumps(report, sort_keys=True)
    plain, zipped = tmp_path / "plain.json", tmp_path / "report.json.gz"
    plain.write_text(text)
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read_report(str(plain)) == read_report(str(zipped)) == report
    quoted = tmp_path / "lines.json"
    quoted.write_text(json.dumps({"log": text}) + "\n" + json.dumps({"log": "more"}) + "\n")
    assert read_report(str(quoted)) is None
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(zipped.read_bytes()[:300])
    assert read_report(str(cut)) is None
    assert read_report(str(folder("one-worker"))) is None
    assert read_report(str(folder("one-worker") / "prover.docker.json.gz")) is None
    with pytest.raises(UsageError, match="nothing can be added"):
        load_run([str(plain), str(folder("one-worker"))])


def _dropped(key: str) -> Callable[[dict[str, Any]], str]:
    return lambda report: json.dumps({name: value for name, value in report.items() if name != key})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda report: json.dumps({**report, "schema": "gputrace.report/2"}), "this version reads gputrace.report/1"),
        (lambda report: json.dumps({**report, "schema": "other/1"}), "'other/1' is not read"),
        (lambda report: json.dumps(report)[:-200], "damaged"),
        (_dropped("phases"), "not a whole JSON report"),
        (_dropped("gpus"), "not a whole JSON report"),
        (lambda report: json.dumps({**report, "phases": 3}), "not a whole JSON report"),
        (lambda report: json.dumps({**report, "calls_list": [{"call": 1}]}), "not a whole JSON report"),
        (lambda report: json.dumps({**report, "gaps": {**report["gaps"], "by_cause": [1]}}), "not a whole JSON report"),
    ],
)
def test_a_bad_saved_report_is_one_line_and_code_3(
    spoil: Callable[[dict[str, Any]], str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text(spoil(saved("one-worker", calls=False)))
    with pytest.raises(InputError, match=said) as raised:
        side_of_report(load_run([str(path)]), str(path))  # type: ignore[arg-type]
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_the_json_is_the_contract() -> None:
    whole = json.loads(CompareJsonRenderer().render(compare(side("pageable-heavy"), side("pageable-membw"))))
    assert whole["schema"] == "gputrace.compare/1"
    assert set(whole) == {
        "schema", "headline", "regime", "before", "after", "interval", "false_alarms", "power", "changes", "regimes",
        "gates", "notices",
    }  # fmt: skip
    assert set(whole["changes"][0]) == {
        "name", "title", "unit", "better", "headline", "before", "after", "difference", "difference_low",
        "difference_high", "relative", "relative_low", "relative_high", "calls_before", "calls_after", "block_before",
        "block_after", "p_value", "adjusted_p", "detectable", "detectable_relative", "matters", "verdict", "why",
        "improved", "words",
    }  # fmt: skip


def test_markdown_has_the_conclusion_first_and_escapes_names() -> None:
    text = CompareMarkdownRenderer().render(
        compare(replace(side("pageable-heavy"), name="a|b`<i>"), side("pageable-membw"))
    )
    assert text.startswith("**Changed: calls per second higher by 36 % (")
    assert "| compute share | 23.1 % | 32.1 % |" in text
    assert "`a|b<i>`" in text
    for row in (line for line in text.splitlines() if line.startswith("|")):
        assert row.count("|") == 6


PAIR = (str(folder("pageable-heavy")), str(folder("pageable-membw")))


def test_a_gate_that_fails_is_code_4_with_its_reason_and_the_report_is_still_written(tmp_path: Path) -> None:
    target = tmp_path / "compare.json"
    done = run("compare", *reversed(PAIR), "--fail-if", "mutex_held_ms.median > 1.05x", "--json", str(target))
    assert done.returncode == 4
    (reason,) = [line for line in done.stderr.splitlines() if line.startswith("gputrace: ")]
    assert reason.startswith("gputrace: gate failed: mutex_held_ms.median > 1.05x: mutex_held_ms.median before 11")
    assert "after 15" in reason and "= 1.05 x before" in reason and "excludes it: sure" in reason
    assert json.loads(target.read_text())["gates"][0]["failed"] is True
    assert "Changed: " in done.stdout and max(map(len, done.stdout.splitlines())) <= 80


def test_a_gate_that_holds_is_code_0_and_a_bad_one_code_2_before_anything_is_read() -> None:
    assert run("compare", *PAIR, "--fail-if", "calls_per_s < 0.95x", "--markdown", "-").returncode == 0
    bad = run("compare", "no-such-file", "nor-this", "--fail-if", "mutex_hold_ms > 1")
    assert bad.returncode == 2 and "did you mean mutex_held_ms?" in bad.stderr
    assert run("compare", "no-such-file", "nor-this").returncode == 3


def test_sides_of_several_files_are_given_with_before_and_after(tmp_path: Path) -> None:
    files = [str(folder("one-worker") / name) for name in ("prover.merged.gz", "nvml.csv.gz")]
    target = tmp_path / "out.md"
    done = run("compare", files[0], files[0], "--before", files[1], "--after", files[1], "--markdown", str(target))
    assert done.returncode == 0 and "compute share" in target.read_text()
    again = run("compare", files[0], files[0], "--markdown", str(target))
    assert again.returncode == 2 and "--force" in again.stderr


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_trace_without_calls_shows_shares_without_intervals() -> None:
    trace = load([str(folder("one-worker") / "nvml.csv.gz")])
    comparison = compare(trace, trace)
    assert [change.name for change in comparison.changes] == ["compute_share", "copy_only_share", "idle_share"]
    assert all(change.verdict == "undetermined" and change.difference == 0.0 for change in comparison.changes)
    assert any("0 calls" in notice for notice in comparison.notices)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_log_without_times_compares_its_durations(tmp_path: Path) -> None:
    text = gzip.decompress((folder("one-worker") / "prover.merged.gz").read_bytes()).decode(errors="replace")
    log = tmp_path / "stderr.log"
    log.write_text("\n".join(line for line in text.splitlines() if "CUZK" in line))
    trace = load([str(log)])
    report = json.loads(JsonRenderer(calls=True).render(trace, gputrace.analyze(trace)))
    comparison = compare(trace, report)
    held = comparison.change("mutex_held_ms.mean")
    assert held.verdict == "not-shown" and held.difference == 0.0 and held.calls_after == 24
