"""What the GPU does in each phase: payload bytes in, and how busy the SMs are."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from gputrace.simulate.schedule import CallRecord, Schedule, Span
from gputrace.simulate.speed import PAYLOAD_PER_POINT, Strain, abc_bytes, demand, speed

_SM = {
    "ntt_kernels": 0.03,
    "coset_intt_sync": 0.96,
    "msm_invoke": 0.95,
    "batch_add": 0.9,
    "tail_msm": 0.85,
}
# Launching alone keeps the SMs half busy if it is quick; a slow launch leaves them waiting.
_LAUNCH_SM, _QUICK_S = 0.5, 0.01
_MOST_SM = 0.97


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
    for piece in _even(schedule, call, rates):
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


def _even(schedule: Schedule, call: CallRecord, rates: Rates) -> Iterator[Piece]:
    """The stretches as they are when nothing holds them up; a phase that copies at two rates has two."""
    work = call.work
    for name, start, end, circuit in call.gpu_spans:
        length = end - start
        if length <= 0:
            continue
        sm = _own_sm(schedule, call, Span(name, start, end, circuit), rates)
        line_rate = rates.line_rate * schedule.disturbance.link_share(start)
        if name == "ntt_kernels":
            if work.pinned:
                yield Piece(name, circuit, start, end, 0.0, _LAUNCH_SM if length < _QUICK_S else sm)
            else:
                yield Piece(name, circuit, start, end, abc_bytes(work), sm)
        elif name == "coset_intt_sync" and work.pinned:
            copied = next((copy.end for copy in call.pinned_copies if copy.circuit == circuit), start)
            yield Piece(name, circuit, start, copied, abc_bytes(work), 0.1)
            if copied < end:
                yield Piece(name, circuit, copied, end, 0.0, sm)
        elif name == "msm_invoke":
            total = PAYLOAD_PER_POINT * ((1 << work.domain_log2) - 1)
            first = min(total, rates.fill_s * rates.line_rate, length * line_rate)
            filled = start + first / line_rate
            yield Piece(name, circuit, start, filled, first, sm)
            if filled < end:
                yield Piece(name, circuit, filled, end, total - first, sm)
        elif name in ("batch_add", "tail_msm"):
            # A failed phase is cut short; a disturbed one moves the same bytes in more time.
            moved = getattr(rates, name) * min(length, getattr(work, name))
            yield Piece(name, circuit, start, end, moved, sm)


def _own_sm(schedule: Schedule, call: CallRecord, span: Span, rates: Rates) -> float:
    """How busy the prover itself keeps the SMs: less where the wire or another process's turn holds kernels up."""
    usual, disturbance = rates.sm.get(span.name, 0.0), schedule.disturbance
    at = (span.start + span.end) / 2
    strain = Strain(disturbance.clock(at), disturbance.other_sm(at), disturbance.link_share(at))
    asked = demand(span.name, call.work, schedule.limits.line_rate)
    if not asked.sm:
        return usual
    return min(max(usual, _MOST_SM), usual * speed(asked, strain, schedule.limits) / strain.clock)


def phase_bytes(schedule: Schedule, call: CallRecord, rates: Rates) -> dict[tuple[str, int], float]:
    """Payload bytes into the GPU by (phase, circuit)."""
    found: dict[tuple[str, int], float] = {}
    for piece in pieces(schedule, call, rates):
        key = (piece.phase, piece.circuit)
        found[key] = math.fsum((found.get(key, 0.0), piece.rx_bytes))
    return found
