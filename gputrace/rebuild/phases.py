"""Lays the phases of each call on the wall clock.

A phase is printed at its end, in whole milliseconds, floored. Inside a block phases follow one another, so edges are
sums of printed durations from the lock; each floored value is taken with half a millisecond more.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gputrace.rebuild.attempts import Attempt
from gputrace.rebuild.blocks import NTT_H_PARTS
from gputrace.rebuild.calls import Call
from gputrace.rebuild.floating import Floating


class Row(NamedTuple):
    """A row of the phases frame less `call`, `gpu` and `worker`."""

    name: str
    duration_ms: int
    start_ns: int | None
    end_ns: int | None
    uncertainty_ms: float | None
    under_mutex: bool
    source: int | None
    line: int | None


def _steady(value_ms: int) -> float:
    """Expected true length of a floored duration."""
    return value_ms + 0.5 if value_ms > 0 else 0.0


def phases_of(call: Call) -> Iterator[Row]:
    """All phases of a call; start and end are None where no time is known."""
    yield from _before_lock(call)
    yield from _under_mutex(call)
    yield from _on_cpu(call)


def _row(
    call: Call, name: str, duration_ms: int, start_ns: float | None, end_ns: float | None,
    at: tuple[int | None, int | None], under_mutex: bool = False,
) -> Row:  # fmt: skip
    return Row(
        name,
        duration_ms,
        None if start_ns is None else int(start_ns),
        None if end_ns is None else int(end_ns),
        call.uncertainty_ms,
        under_mutex,
        *at,
    )


def _at(line: Floating | Attempt) -> tuple[int | None, int | None]:
    return line.source, line.line


def _after(start_ns: float | None, duration_ms: float) -> float | None:
    return None if start_ns is None else start_ns + duration_ms * 1e6


def _before_lock(call: Call) -> Iterator[Row]:
    block, entry = call.block, call.entry_ns
    if call.split is not None:
        yield _row(call, "split_vectors", call.split.ms, entry, _after(entry, _steady(call.split.ms)), _at(call.split))
    if block is None or "pre_lock_cpu_ms" not in block.ms:
        return
    pre_lock, wait, line = block.ms["pre_lock_cpu_ms"], block.ms["mutex_wait_ms"], block.at("mutex_acquired")
    asked = _after(entry, _steady(pre_lock))
    yield _row(call, "pre_lock", pre_lock, entry, asked, line)
    yield _row(call, "mutex_wait", wait, asked, call.lock_ns, line)


def _under_mutex(call: Call) -> Iterator[Row]:
    block, lock = call.block, call.lock_ns
    if block is None:
        return
    ms = block.ms
    if "mutex_held_ms" in ms:
        yield _row(call, "mutex_held", ms["mutex_held_ms"], lock, call.unlock_ns, block.at("mutex_released"), True)
    gpu_end = _after(lock, _steady(ms["gpu_total_ms"])) if "gpu_total_ms" in ms else None
    if "gpu_total_ms" in ms:
        yield _row(call, "gpu_total", ms["gpu_total_ms"], lock, gpu_end, block.at("tail_msm"), True)
    parts_ms = [sum(circuit.get(part, 0) for part in NTT_H_PARTS) for circuit in block.circuits]
    ntt_ms = _steady(ms["ntt_msm_h_ms"]) if "ntt_msm_h_ms" in ms else float(sum(parts_ms))
    at = _after(lock, ntt_ms)
    if "ntt_msm_h_ms" in ms:
        yield _row(call, "ntt_msm_h", ms["ntt_msm_h_ms"], lock, at, block.at("ntt_msm_h"), True)
    # The parts end with ntt_msm_h; what is before them is the allocation of d_a in a first call.
    edge = _after(lock, max(0.0, ntt_ms - sum(parts_ms)))
    for circuit in block.circuits:
        for part in NTT_H_PARTS:
            if part in circuit:
                end = _after(edge, max(0, circuit[part]))
                yield _row(call, part, circuit[part], edge, end, block.at("ntt_h"), True)
                edge = end
    for name in ("barrier_wait", "batch_add"):
        if f"{name}_ms" in ms:
            end = _after(at, _steady(ms[f"{name}_ms"]))
            yield _row(call, name, ms[f"{name}_ms"], at, end, block.at(name), True)
            at = end
    if "tail_msm_ms" in ms:
        # Its end is known from gpu_total; what lies before its start is printing.
        end = gpu_end or _after(at, _steady(ms["tail_msm_ms"]))
        yield _row(
            call,
            "tail_msm",
            ms["tail_msm_ms"],
            _after(end, -_steady(ms["tail_msm_ms"])),
            end,
            block.at("tail_msm"),
            True,
        )


def _on_cpu(call: Call) -> Iterator[Row]:
    begun = _after(call.entry_ns, _steady(call.setup_ms or 0))
    if call.prep is not None:
        end = _after(begun, _steady(call.prep.ms))
        yield _row(call, "prep_msm", call.prep.ms, begun, end, _at(call.prep))
        begun = end
        if call.b_g2 is not None:
            yield _row(call, "b_g2_msm", call.b_g2.ms, begun, _after(begun, _steady(call.b_g2.ms)), _at(call.b_g2))
    elif call.b_g2 is not None:
        yield _row(call, "b_g2_msm", call.b_g2.ms, None, None, _at(call.b_g2))
    if call.release_abc_ms is not None and call.attempt is not None:
        end = call.end_ns
        yield _row(call, "release_abc", call.release_abc_ms, call.unlock_ns, end, _at(call.attempt))
    if call.dealloc is not None:
        end = None if call.dealloc.arrival_ns is None else float(call.dealloc.arrival_ns)
        yield _row(call, "async_dealloc", call.dealloc.ms, _after(end, -call.dealloc.ms), end, _at(call.dealloc))
