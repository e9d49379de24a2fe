"""Each second and each call is counted once, however the parts overlap."""

import polars as pl
import pytest

from gputrace import schema
from gputrace.analysis.diagnosis import Diagnosis, GpuFinding
from gputrace.live.tally import LEAD_NS, MOST_KEPT_NS, PATIENCE_NS, Tally
from gputrace.trace import Trace

S = 1_000_000_000
T0 = 1_795_952_850 * S


def part(*calls: dict[str, object], gpu: int = 0) -> tuple[Trace, Diagnosis]:
    """A trace of calls (seconds from T0) and an account of it: a tenth of each second computes, the rest copies."""
    rows = [
        {
            "call": number,
            "gpu": gpu,
            "restart": 0,
            "worker": 0,
            "complete": True,
            "failed": False,
            "uncertainty_ms": 0.5,
        }
        | {key: T0 + int(float(value) * S) if key.endswith("_ns") else value for key, value in call.items()}  # type: ignore[arg-type]
        for number, call in enumerate(calls)
    ]
    frame = schema.CALLS.fit(pl.DataFrame(rows, infer_schema_length=None))
    phases = schema.PHASES.fit(
        pl.DataFrame([{"call": row["call"], "gpu": gpu, "name": "ntt_kernels", "duration_ms": 250} for row in rows])
    )
    marks = schema.MARKS.fit(pl.DataFrame({"source": [0], "line": [1], "event": ["x"]}))
    held = frame.select(pl.col("lock_ns").min(), pl.col("unlock_ns").max()).row(0)
    begins = list(range(held[0], held[1], S))
    states = pl.DataFrame(
        {
            "gpu": [gpu] * len(begins),
            "start_ns": begins,
            "end_ns": [at + S for at in begins],
            "compute_s": [0.1] * len(begins),
            "copy_only_s": [0.9] * len(begins),
            "idle_s": [0.0] * len(begins),
            "rx_bytes_per_s": [4e9] * len(begins),
            "tx_bytes_per_s": [1e9] * len(begins),
        }
    )
    blame = states.select("gpu", "start_ns", "end_ns", "copy_only_s", "idle_s").with_columns(
        pl.lit("pageable-h2d").alias("cause")
    )
    gpus = (GpuFinding(gpu, compute_share=0.1, copy_only_share=0.9, idle_share=0.0),)
    return Trace(calls=frame, phases=phases, marks=marks), Diagnosis(gpus=gpus, states=states, blame=blame)


def call(
    lock: float, unlock: float | None, partition: int, finish: float | None = None, **more: object
) -> dict[str, object]:
    made: dict[str, object] = {"lock_ns": lock, "job": "j", "partition": partition, **more}
    if unlock is not None:
        made |= {"unlock_ns": unlock, "finish_ns": unlock + 0.5 if finish is None else finish}
    return made


def test_overlapping_parts_add_up() -> None:
    tally = Tally()
    calls = [call(i * 10, i * 10 + 9, i) for i in range(12)]
    seconds, counted, lost, rx = 0.0, 0, 0.0, 0.0
    for seen in range(2, 13):
        found = tally.add(*part(*calls[max(0, seen - 4) : seen]), T0 + (seen * 10 + 5) * S, final=False)
        seconds += sum(found.state_s.values())
        lost += sum(found.lost_s.values())
        rx += found.payload_bytes.get((0, "rx"), 0.0)
        counted += len(found.calls)
    # First lock to last unlock.
    assert seconds == pytest.approx(119.0)
    assert lost == pytest.approx(119.0 * 0.9)
    assert rx == pytest.approx(119.0 * 4e9)
    assert counted == 12


def test_the_same_part_again_adds_nothing() -> None:
    tally = Tally()
    seen = part(call(0, 9, 0), call(10, 19, 1))
    first = tally.add(*seen, T0 + 60 * S, final=False)
    again = tally.add(*seen, T0 + 61 * S, final=True)
    assert len(first.calls) == 2
    assert (again.state_s, again.calls) == ({}, [])


def test_a_call_that_completes_late_is_counted_once_and_then() -> None:
    tally = Tally()
    early = {name: value for name, value in call(0, 9, 0).items() if name != "finish_ns"} | {"complete": False}
    found = tally.add(*part(early, call(10, 19, 1)), T0 + 30 * S, final=False)
    assert [c.complete for c in found.calls] == [True]
    found = tally.add(*part(call(0, 9.0003, 0, finish=29), call(10, 19.0002, 1)), T0 + 40 * S, final=False)
    assert [(c.complete, c.phases_s) for c in found.calls] == [(True, {"ntt_kernels": 0.25})]
    assert tally.add(*part(call(0, 9, 0, finish=29), call(10, 19, 1)), T0 + 50 * S, final=True).calls == []


def test_a_call_that_never_completes_is_incomplete() -> None:
    tally = Tally()
    torn = call(0, 9, 0) | {"complete": False}
    later = call(10, 19, 1)
    assert len(tally.add(*part(torn, later), T0 + 30 * S, final=False).calls) == 1
    found = tally.add(*part(torn, later), T0 + 10 * S + PATIENCE_NS, final=False)
    assert [(c.complete, c.failed, c.phases_s) for c in found.calls] == [(False, False, {})]


def test_a_retry_is_another_call() -> None:
    tally = Tally()
    failed = call(0, 9, 0) | {"failed": True, "complete": False}
    found = tally.add(*part(failed, call(20, 29, 0)), T0 + 60 * S, final=False)
    assert [(c.failed, c.complete) for c in found.calls] == [(True, False), (False, True)]


def test_calls_without_names_are_told_apart_by_time() -> None:
    tally = Tally()
    unnamed = [call(0, 9, 0) | {"job": None, "partition": None}, call(10, 19, 0) | {"job": None, "partition": None}]
    assert len(tally.add(*part(*unnamed), T0 + 60 * S, final=False).calls) == 2
    assert tally.add(*part(*unnamed), T0 + 61 * S, final=False).calls == []


def test_nothing_before_the_floor_is_counted() -> None:
    tally = Tally(floor_ns=T0 + 15 * S)
    found = tally.add(*part(call(0, 9, 0), call(10, 19, 1)), T0 + 60 * S, final=False)
    assert sum(found.state_s.values()) == pytest.approx(4.0)
    assert len(found.calls) == 1


def test_two_gpus_have_their_own_time() -> None:
    tally = Tally()
    tally.add(*part(call(0, 9, 0)), T0 + 60 * S, final=False)
    found = tally.add(*part(call(5, 25, 1), gpu=1), T0 + 60 * S, final=False)
    assert tally.counted_ns == {0: T0 + 9 * S, 1: T0 + 25 * S}
    assert {gpu for gpu, _ in found.state_s} == {1}


def test_a_silent_prover_is_not_counted_until_it_speaks() -> None:
    tally = Tally()
    tally.add(*part(call(0, 9, 0)), T0 + 60 * S, final=False)
    trace, diagnosis = part(call(100, 150, 1))
    silent = Trace(samples=trace.samples)
    assert tally.add(silent, diagnosis, T0 + 200 * S, final=False).state_s == {}


def test_time_that_cannot_be_kept_is_given_up() -> None:
    tally = Tally()
    tally.add(*part(call(0, 9, 0)), T0 + 60 * S, final=False)
    assert tally.give_up_s(T0 + 60 * S) == {}
    latest_ns = T0 + 9 * S + MOST_KEPT_NS
    assert tally.give_up_s(latest_ns) == {0: pytest.approx(LEAD_NS / 1e9)}
    assert tally.needed_ns(latest_ns) >= latest_ns - MOST_KEPT_NS
    assert tally.give_up_s(latest_ns) == {}
