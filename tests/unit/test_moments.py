"""When a cause cost most."""

import polars as pl

from gputrace import schema
from gputrace.analysis.moments import costliest
from tests.captures import diagnosis

S = 1_000_000_000


def blame(*rows: tuple[float, float, int | None, str | None, str, float]) -> pl.DataFrame:
    """Rows of start_s, end_s, call, phase, cause, idle_s on GPU 0; the line is the row's number from 1."""
    return pl.DataFrame(
        [
            {
                "gpu": 0, "start_ns": int(start * S), "end_ns": int(end * S), "call": call, "phase": phase, "source": 2,
                "line": number, "cause": cause, "copy_only_s": 0.0, "idle_s": idle,
            }
            for number, (start, end, call, phase, cause, idle) in enumerate(rows, 1)
        ],
        schema=schema.BLAME.polars(),
    )  # fmt: skip


def test_adjacent_rows_are_one_stretch_and_a_pause_parts_them() -> None:
    found = costliest(
        blame(
            (0.0, 1.0, 7, "ntt_kernels", "copy", 0.5),
            (1.0, 2.0, 7, "ntt_kernels", "copy", 0.75),
            (2.1, 2.2, 7, "batch_add", "copy", 0.0625),
            (5.0, 6.0, 7, "ntt_kernels", "copy", 1.0),
            (2.0, 2.1, 7, "barrier_wait", "wait", 0.1),
        )
    )
    first, second = found["copy"]
    assert (first.start_ns, first.end_ns, first.lost_s) == (0, int(2.2 * S), 1.3125)
    assert (first.call, first.phase, first.source, first.line) == (7, "ntt_kernels", 2, 1)
    assert (second.start_ns, second.end_ns, second.lost_s) == (5 * S, 6 * S, 1.0)
    assert found["wait"][0].phase == "barrier_wait"


def test_calls_are_apart_and_a_loss_outside_every_call_is_kept() -> None:
    found = costliest(
        blame(
            (0.0, 1.0, 1, "ntt_kernels", "copy", 0.5),
            (1.0, 2.0, 2, "ntt_kernels", "copy", 0.75),
            (2.0, 3.0, None, None, "copy", 0.25),
            (3.0, 4.0, 3, "ntt_kernels", "copy", 0.125),
            (4.0, 5.0, 4, None, "none", 0.0),
        )
    )
    assert [(moment.call, moment.lost_s) for moment in found["copy"]] == [(2, 0.75), (1, 0.5), (None, 0.25)]
    assert found["copy"][2].phase is None
    assert "none" not in found


def test_nothing_lost_has_no_moment() -> None:
    assert costliest(blame()) == {}


def test_moments_of_a_capture_lie_in_its_window_and_cost_no_more_than_their_length() -> None:
    found = diagnosis("light-then-heavy")
    totals = {total.cause: total.total_s for total in found.gaps.by_cause}
    moments = costliest(found.blame)
    assert moments.keys() == {cause for cause, total in totals.items() if total > 0}
    assert found.window.start_ns is not None and found.window.end_ns is not None
    for cause, own in moments.items():
        assert 1 <= len(own) <= 3
        assert sum(moment.lost_s for moment in own) <= totals[cause] + 1e-6
        assert [m.lost_s for m in own] == sorted((m.lost_s for m in own), reverse=True)
        for moment in own:
            assert found.window.start_ns <= moment.start_ns < moment.end_ns <= found.window.end_ns
            # A sample's loss is divided among the phases in it by their kind: within a sample of the length.
            assert moment.lost_s <= (moment.end_ns - moment.start_ns) / 1e9 + 0.1
    longest = moments["pageable-h2d"][0]
    assert longest.phase == "ntt_kernels" and longest.line is not None
