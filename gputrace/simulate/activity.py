"""What the GPU does in each phase: payload bytes in, and how busy the SMs are."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from gputrace.simulate.schedule import CallRecord, Schedule

_SM = {
    "ntt_kernels": 0.03,
    "coset_intt_sync": 0.96,
    "msm_invoke": 0.95,
    "batch_add": 0.9,
    "tail_msm": 0.85,
}


@dataclass(frozen=True)
class Rates:
    """Payload rates, bytes/s, and shares.

    a, b and c (96 bytes a constraint) are copied in `ntt_kernels` from pageable memory, at line rate at the beginning
    of `coset_intt_sync` from pinned memory. `msm_invoke` streams 96 bytes a point, its first `fill_s` at line rate.
    `tx_share`: bytes out per byte in; `sm`: share of a phase with SMs active.
    """

    line_rate: float = 55e9
    fill_s: float = 0.025
    batch_add: float = 55e9
    tail_msm: float = 1.5e9
    idle_wire: float = 1.2e6
    tx_share: float = 0.08
    sm: Mapping[str, float] = field(default_factory=lambda: dict(_SM))


class Piece(NamedTuple):
    """A stretch of time in which bytes flow evenly; `phase` and `circuit` say to what it belongs."""

    phase: str
    circuit: int
    start: float
    end: float
    rx_bytes: float
    sm: float


def pieces(schedule: Schedule, call: CallRecord, rates: Rates) -> Iterator[Piece]:
    """The stretches of one call in order of time, with what is held up while pinned buffers are allocated."""
    for piece in _even(call, rates):
        if piece.phase in ("ntt_kernels", "msm_invoke"):
            yield from _held_up(piece, schedule.allocations, schedule.limits.allocation_rate)
        else:
            yield piece


def _held_up(piece: Piece, allocations: list[tuple[float, float]], rate: float) -> Iterator[Piece]:
    """A stretch cut at allocations, during which things go on at `rate`."""
    inside = [(max(a, piece.start), min(b, piece.end)) for a, b in allocations if a < piece.end and b > piece.start]
    if not inside or rate >= 1.0:
        yield piece
        return
    edges = [piece.start, *(edge for span in inside for edge in span), piece.end]
    # Free and held-up stretches by turns, a free one first.
    weights = [(b - a) * (rate if n % 2 else 1.0) for n, (a, b) in enumerate(pairwise(edges))]
    total = math.fsum(weights)
    for n, (start, end) in enumerate(pairwise(edges)):
        if end > start and total > 0:
            share = weights[n] / total
            yield piece._replace(
                start=start, end=end, rx_bytes=piece.rx_bytes * share, sm=piece.sm * (rate if n % 2 else 1.0)
            )


def _even(call: CallRecord, rates: Rates) -> Iterator[Piece]:
    """The stretches as they are when nothing holds them up; a phase that copies at two rates has two."""
    work = call.work
    for name, start, end, circuit in call.gpu_spans:
        length = end - start
        if length <= 0:
            continue
        sm = rates.sm.get(name, 0.0)
        if name == "ntt_kernels":
            if work.pinned:
                yield Piece(name, circuit, start, end, 0.0, 0.5)
            else:
                yield Piece(name, circuit, start, end, 96.0 * work.constraints, sm)
        elif name == "coset_intt_sync" and work.pinned:
            abc_bytes = 96.0 * work.constraints
            copied = start + min(length, abc_bytes / rates.line_rate)
            yield Piece(name, circuit, start, copied, abc_bytes, 0.1)
            if copied < end:
                yield Piece(name, circuit, copied, end, 0.0, sm)
        elif name == "msm_invoke":
            total = 96.0 * ((1 << work.domain_log2) - 1)
            filled = start + min(length, rates.fill_s, total / rates.line_rate)
            first = min(total, (filled - start) * rates.line_rate)
            yield Piece(name, circuit, start, filled, first, sm)
            if filled < end:
                yield Piece(name, circuit, filled, end, total - first, sm)
        elif name == "batch_add":
            yield Piece(name, circuit, start, end, rates.batch_add * length, sm)
        elif name == "tail_msm":
            yield Piece(name, circuit, start, end, rates.tail_msm * length, sm)


def phase_bytes(schedule: Schedule, call: CallRecord, rates: Rates) -> dict[tuple[str, int], float]:
    """Payload bytes into the GPU by (phase, circuit)."""
    found: dict[tuple[str, int], float] = {}
    for piece in pieces(schedule, call, rates):
        key = (piece.phase, piece.circuit)
        found[key] = math.fsum((found.get(key, 0.0), piece.rx_bytes))
    return found
