"""The language of `--fail-if`, and what a gate says."""

import numpy as np
import pytest

from benchmarks.compare_rates import simulated_side
from gputrace.analysis.compare import GateOutcome, Side, compare, enforce
from gputrace.analysis.compare.expressions import Both, Limit, Not, parse
from gputrace.errors import GateError, UsageError

RNG = np.random.default_rng(21)
BEFORE, SAME, SLOWER = (simulated_side(RNG, 120, 0.2, slower=factor) for factor in (1.0, 1.0, 1.3))


def gate(expression: str, after: Side = SLOWER) -> GateOutcome:
    return compare(BEFORE, after, fail_if=[expression]).gates[0]


def test_and_binds_before_or_and_not_before_both() -> None:
    condition = parse("calls_per_s > 1 or not calls_per_s > 2 and calls_per_s > 3")
    assert isinstance(condition, Both) and condition.word == "or"
    assert isinstance(condition.right, Both) and condition.right.word == "and"
    assert isinstance(condition.right.left, Not)


def test_parentheses_group() -> None:
    condition = parse("(calls_per_s > 1 or calls_per_s > 2) and not (calls_per_s > 3)")
    assert isinstance(condition, Both) and condition.word == "and"


@pytest.mark.parametrize(
    ("text", "name", "operator", "value", "relative"),
    [
        ("mutex_held_ms.median > 1.05x", "mutex_held_ms.median", ">", 1.05, True),
        ("ntt_kernels_ms.p95>900", "ntt_kernels_ms.p95", ">", 900.0, False),
        ("mutex_held_ms <= .5x", "mutex_held_ms.median", "<=", 0.5, True),
        ("lost_s.pageable-h2d > 1e1", "lost_s.pageable-h2d", ">", 10.0, False),
        ("ntt_plus_coset_ms.mean >= 900", "ntt_plus_coset_ms.mean", ">=", 900.0, False),
        ("failed_calls > 0", "failed_calls", ">", 0.0, False),
    ],
)
def test_limits(text: str, name: str, operator: str, value: float, relative: bool) -> None:
    limit = parse(text)
    assert isinstance(limit, Limit)
    assert (limit.figure.name, limit.operator, limit.value, limit.relative) == (name, operator, value, relative)


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("mutex_hold_ms > 3", 1, "did you mean mutex_held_ms"),
        ("calls_per_s > 1 and mutex_held_ms.meidan > 3", 21, "did you mean median"),
        ("lost_s.pageable > 3", 1, "did you mean pageable-h2d"),
        ("zebra > 3", 1, "known are calls_per_s"),
        ("calls_per_s.mean > 3", 1, "it is one number"),
        ("calls_per_s >", 14, "the end"),
        ("calls_per_s 3", 13, "expected >"),
        ("calls_per_s == 3", 13, "'=' means nothing here"),
        ("(calls_per_s > 3", 17, "expected )"),
        ("calls_per_s > 3 calls_per_s > 4", 17, "expected and, or"),
        ("calls_per_s > mutex_held_ms", 15, "expected a number"),
        ("3 < calls_per_s", 1, "expected a figure"),
        ("calls_per_s > 3xx", 16, "expected and, or"),
        ("__import__('os')", 12, "means nothing here"),
        ("", 1, "expected a figure"),
    ],
)
def test_a_bad_expression_is_told_with_its_place(text: str, column: int, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert f"column {column}: " in str(raised.value)
    assert said in str(raised.value)


def test_a_failed_gate_names_values_limit_and_certainty_in_one_line() -> None:
    outcome = gate("mutex_held_ms.median > 1.05x")
    assert outcome.failed and outcome.judged
    (measured,) = outcome.measured
    assert measured.true and measured.sure
    assert measured.before is not None and measured.limit == pytest.approx(1.05 * measured.before)
    assert measured.low is not None and measured.limit is not None and measured.low > measured.limit
    with pytest.raises(GateError) as raised:
        enforce([outcome])
    message = str(raised.value)
    assert "\n" not in message and raised.value.exit_code == 4
    for part in (f"before {measured.before:.0f} ms", f"after {measured.after:.0f} ms", "limit", "excludes it: sure"):
        assert part in message


def test_a_limit_within_the_interval_is_not_sure_and_still_judged() -> None:
    middle = gate("mutex_held_ms.median > 0", SAME).measured[0].after
    assert middle is not None
    outcome = gate(f"mutex_held_ms.median > {middle - 1:.0f}", SAME)
    assert outcome.failed
    assert outcome.measured[0].sure is False
    assert "includes it: not sure" in outcome.reason


def test_gates_that_hold_raise_nothing() -> None:
    outcome = gate("mutex_held_ms.median > 1.5x or compute_share < 0.1")
    assert not outcome.failed
    enforce([outcome])


@pytest.mark.parametrize(
    ("expression", "failed", "judged"),
    [
        ("split_vectors_ms > 3", True, False),
        ("not split_vectors_ms > 3", True, False),
        ("split_vectors_ms > 3 or calls_per_s > 0", True, True),
        ("split_vectors_ms > 3 or calls_per_s > 100", True, False),
        ("split_vectors_ms > 3 and calls_per_s > 100", False, True),
    ],
)
def test_what_is_unknown_fails_the_gate_where_it_decides(expression: str, failed: bool, judged: bool) -> None:
    outcome = gate(expression)
    assert (outcome.failed, outcome.judged) == (failed, judged)
    assert judged or "cannot be judged: split_vectors_ms.median: unknown in" in outcome.reason


def test_a_known_cause_that_nothing_is_charged_to_is_zero() -> None:
    outcome = gate("lost_s.release-abc > 0")
    assert not outcome.failed
    assert outcome.measured[0].after == 0.0


def test_extremes_are_judged_without_an_interval() -> None:
    outcome = gate("mutex_held_ms.max > 1")
    assert outcome.failed
    assert "no interval" in outcome.reason
