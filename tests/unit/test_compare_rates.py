"""False alarms and finds over simulated pairs; docs/comparing.md has the whole table."""

import numpy as np
import pytest

from benchmarks.compare_rates import holds_changed, simulated_side
from gputrace.analysis.compare import Comparison, Side, compare
from gputrace.render.compare_text import CompareTextRenderer


def halves(run: Side) -> tuple[Side, Side]:
    """The first and the second half of a run's calls."""
    middle = run.calls.height // 2
    parts = (run.calls[:middle], run.calls[middle:])
    first, second = (Side(run.name, part, compute_source="gpm", resamples=run.resamples) for part in parts)
    return first, second


@pytest.mark.parametrize("phi", [0.3, 0.6])
def test_halves_of_a_steady_run_are_equal_nineteen_times_in_twenty(phi: float) -> None:
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(200):
        comparison = compare(*halves(simulated_side(rng, 80, phi)))
        alarms += any(change.verdict == "changed" for change in comparison.changes)
    assert alarms <= 10


def compared(count: int, phi: float, slower: float) -> list[Comparison]:
    rng = np.random.default_rng(12)
    return [compare(simulated_side(rng, 200, phi), simulated_side(rng, 200, phi, slower=slower)) for _ in range(count)]


def test_a_twentieth_is_found_nine_times_in_ten_with_200_calls() -> None:
    comparisons = compared(60, 0.0, 1.05)
    spread = comparisons[0].change("mutex_held_ms.mean")
    assert spread.calls_before == 200
    assert sum(map(holds_changed, comparisons)) >= 54


def test_what_is_not_found_has_the_smallest_detectable_change() -> None:
    comparisons = compared(3, 0.6, 1.01)
    for comparison in comparisons:
        unseen = [change for change in comparison.changes if change.verdict == "not-shown"]
        assert unseen
        assert all(change.detectable is not None and change.detectable >= change.matters for change in unseen)
        text = CompareTextRenderer().render(comparison)
        assert "the smallest they could have shown is" in text
        assert "the last column is the smallest that would have been" in text


def test_a_change_of_the_smallest_detectable_size_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(13)
    sides = [simulated_side(rng, 100, 0.3) for _ in range(40)]
    smallest = np.median(
        [
            compare(one, other).change("mutex_held_ms.mean").detectable_relative
            for one, other in zip(sides[::2], sides[1::2], strict=True)
        ]
    )
    found = sum(
        compare(one, simulated_side(rng, 100, 0.3, slower=1.0 + smallest)).change("mutex_held_ms.mean").verdict
        == "changed"
        for one in sides
    )
    # 32 of 40 are expected; the correction is a little milder where other figures changed as well.
    assert 26 <= found <= 40


def test_a_difference_too_small_to_matter_is_not_called_a_change() -> None:
    rng = np.random.default_rng(14)
    before = simulated_side(rng, 400, 0.0, variation=0.005)
    after = simulated_side(rng, 400, 0.0, variation=0.005, slower=1.01)
    held = compare(before, after).change("mutex_held_ms.mean")
    assert held.verdict == "small"
    assert held.difference_low is not None and held.difference_low > 0


def test_few_calls_are_undetermined() -> None:
    rng = np.random.default_rng(15)
    comparison = compare(simulated_side(rng, 7, 0.0), simulated_side(rng, 100, 0.0, slower=2.0))
    assert {change.verdict for change in comparison.changes} == {"undetermined"}
    assert "at least 8 are needed" in comparison.change("mutex_held_ms.median").why
    assert comparison.headline.startswith("Undetermined")
