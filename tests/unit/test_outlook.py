"""What reports say of fixes, bounds and workers, from made values."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gputrace.analysis.diagnosis import (
    Diagnosis,
    Effect,
    Handovers,
    Interleaving,
    OffGpuWork,
    Regime,
    ShortestTime,
    WaitsFor,
)
from gputrace.render import units
from gputrace.render.html import HtmlRenderer
from gputrace.render.prospect import change, prospect, replay_errors, tightest, whiskers
from gputrace.render.text import TextRenderer
from gputrace.render.timeline import regime_colours
from gputrace.trace import Trace
from tests.made import BOUNDS, SCENARIOS

GOLDEN = Path(__file__).parents[1] / "golden" / "made-outlook.80.txt"
WORKERS = Interleaving(
    gpu=0,
    workers=(0, 1, 2),
    calls=90,
    window_s=100.0,
    held_s=80.0,
    mutex_utilisation=0.8,
    overlap_efficiency=0.75,
    off_gpu=(OffGpuWork("release", 30.0, 20.0, 0.0, 10.0),),
    waited_s=42.5,
    waited_unheld_s=0.5,
    waits=(
        WaitsFor(0, 1, 20, 30.0, {"ntt_kernels": 24.0, "msm_invoke": 3.0, "tail_msm": 2.0, "batch_add": 1.0}),
        WaitsFor(1, None, 9, 12.0, {"mutex_held": 12.0}),
    ),
    handovers_waited=Handovers(60, 0.06, 0.9, 2.2, 4.0),
    handovers_unwaited=Handovers(29, 19.94, 650.0, 900.0, 950.0),
    handover_uncertainty_ms=2.5,
    alternation_share=0.8,
    longest_run=3,
    shortest=(
        ShortestTime("mutex-as-built", "the mutex as built, held without a break", 80.0, "mutex", {"mutex": 80.0}, ()),
    ),
)


def made() -> Diagnosis:
    diagnosis = Diagnosis(headline="Made.", what_if=SCENARIOS, bounds=BOUNDS, interleaving=(WORKERS,))
    diagnosis.calls = replace(diagnosis.calls, per_s=0.181)
    return diagnosis


def test_the_terminal_report_reads_as_kept() -> None:
    text = TextRenderer(80).render(Trace(), made())
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("title", ["What a fix is worth", "Bounds", "Interleaving"])
def test_what_is_not_there_is_not_said(title: str) -> None:
    assert title in TextRenderer(80).render(Trace(), made())
    assert title not in TextRenderer(80).render(Trace(), Diagnosis(headline="Nothing."))


def test_a_page_without_a_timeline_shows_them_too() -> None:
    regime = Regime(0, 10, 3, "only <b>one</b>", "the run begins", {}, None, {})
    page = HtmlRenderer().render(Trace(), replace(made(), regimes=(regime,)))
    for text in ('id="what-if"', 'id="bounds"', 'id="interleaving"', 'id="regimes"', "only &lt;b&gt;one&lt;/b&gt;"):
        assert text in page


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.0, 9.0, "gain"),
        (-1.0, 9.0, "no sure gain"),
        (0.0, 0.0, "no sure gain"),
        (-9.0, -1.0, "loss"),
        (None, None, "unknown"),
    ],
)
def test_an_effect_in_a_word(low: float | None, high: float | None, expected: str) -> None:
    assert prospect(replace(SCENARIOS[0], saved_s_low=low, saved_s_high=high)) == expected


def test_changes_and_the_models_own_error() -> None:
    assert change(Effect(0.5, None, 0.75, None, None)) == pytest.approx(0.5)
    assert change(Effect(0.0, None, 0.75, None, None)) is None
    ((now, replay, error),) = replay_errors(SCENARIOS)
    assert (now, replay, error) == pytest.approx((0.181, 0.185, 0.185 / 0.181 - 1))
    assert replay_errors([replace(SCENARIOS[0], calls_per_s=Effect(0.2, None, 0.3, 0.2, 0.4))]) == []


def test_whiskers_share_one_axis() -> None:
    drawn = whiskers(SCENARIOS)
    assert [row.prospect for row in drawn] == ["gain", "no sure gain", "loss", "unknown"]
    assert len({row.now for row in drawn}) == 1
    first = drawn[0]
    assert first.high is not None and first.low is not None and first.predicted is not None
    assert first.high == pytest.approx(1 / 1.04, abs=1e-4)
    assert first.predicted / first.high == pytest.approx(0.52 / 0.58, rel=1e-3)
    assert first.low / first.high == pytest.approx(0.47 / 0.58, rel=1e-3)
    assert (drawn[3].predicted, drawn[3].low) == (None, None)
    empty = replace(SCENARIOS[3], calls_per_s=Effect(None, None, None, None, None))
    assert [row.now for row in whiskers([empty])] == [None]


def test_the_tightest_bound_is_the_lowest() -> None:
    assert tightest(BOUNDS) is BOUNDS[0]
    assert tightest(()) is None


def test_equal_labels_have_equal_colours() -> None:
    regimes = tuple(Regime(i, i + 1, 1, label, "", {}, None, {}) for i, label in enumerate("abca"))
    colours = regime_colours(Diagnosis(regimes=regimes), {"regimes": ["red", "blue"]})
    assert colours == {"a": "red", "b": "blue", "c": "red"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (units.per_second(None), "unknown"),
        (units.per_second(0.181), "0.18"),
        (units.per_second(0.0123), "0.012"),
        (units.per_second(0.0), "0.00"),
        (units.signed_share(-0.333), "-33%"),
        (units.signed_share(1.891), "+189%"),
        (units.signed_seconds(-14.0), "−14.0 s"),
        (units.signed_seconds(0.2), "0.20 s"),
        (units.signed_seconds(None), "unknown"),
    ],
)
def test_numbers_of_the_outlook(written: str, expected: str) -> None:
    assert written == expected
