"""Two calls that hold one mutex at once are told of."""

import polars as pl

from gputrace import schema
from gputrace.rebuild.holds import check_holds
from gputrace.trace import Trace
from tests.captures import read


def held(*spans_ms: tuple[int, int, int], uncertainty_ms: float = 0.5) -> Trace:
    """A trace with calls (gpu, lock, unlock)."""
    rows = [
        {
            "call": number,
            "gpu": gpu,
            "restart": 0,
            "lock_ns": lock * 1_000_000,
            "unlock_ns": unlock * 1_000_000,
            "uncertainty_ms": uncertainty_ms,
        }
        for number, (gpu, lock, unlock) in enumerate(spans_ms)
    ]
    return Trace(calls=schema.CALLS.fit(pl.DataFrame(rows)))


def codes(trace: Trace) -> list[tuple[str, int]]:
    check_holds(trace)
    return [(notice.code, notice.count) for notice in trace.quality.notices]


def test_holds_one_after_another_are_fine() -> None:
    assert codes(held((0, 0, 100), (0, 101, 200), (1, 50, 150))) == []


def test_an_overlap_within_what_is_unknown_is_fine() -> None:
    assert codes(held((0, 0, 100), (0, 98, 200))) == []
    assert codes(held((0, 0, 100), (0, 90, 200), uncertainty_ms=5.0)) == []


def test_calls_inside_a_longer_hold_are_counted() -> None:
    trace = held((0, 0, 1000), (0, 100, 200), (0, 300, 400), (1, 100, 200))
    assert codes(trace) == [("holds-overlap", 2)]
    assert "GPU 0 " in trace.quality.notices[0].text


def test_real_runs_have_none() -> None:
    for name in ("pageable-heavy", "pinned-heavy", "merged-fast"):
        assert "holds-overlap" not in {notice.code for notice in read(name).quality.notices}
