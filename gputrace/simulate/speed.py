"""How fast each part of a call goes: what it asks of wire, SMs and host, and how these are strained."""

from typing import NamedTuple

from gputrace.simulate.schedule import CallWork, Limits

PAYLOAD_PER_CONSTRAINT = 96.0
PAYLOAD_PER_POINT = 96.0
# batch_add adds while points stream in: with the link at its best the wire is what it waits for.
_BATCH_ADD_SM = 0.7
_TAIL_WIRE = 0.03


class Demand(NamedTuple):
    """Shares of a part's undisturbed time that it needs of wire and SMs alone.

    `staged`: it copies through the host's bounce buffer; `held_up`: it stands while the driver pins memory.
    """

    wire: float = 0.0
    sm: float = 0.0
    staged: bool = False
    held_up: bool = True


class Strain(NamedTuple):
    """What the parts of all calls have to share at one moment: shares of the best, and running syntheses."""

    clock: float = 1.0
    other_sm: float = 0.0
    link: float = 1.0
    syntheses: int = 0
    allocating: bool = False


def abc_bytes(work: CallWork) -> float:
    """Payload of a, b and c of one circuit."""
    return PAYLOAD_PER_CONSTRAINT * work.constraints


def demand(name: str, work: CallWork, line_rate: float) -> Demand:
    """What a phase asks for; `pinned_copy` is the part of coset_intt_sync in which pinned a/b/c come over the wire."""
    if name == "ntt_kernels" and not work.pinned:
        return Demand(wire=_share(abc_bytes(work), work.ntt_kernels, line_rate), staged=True)
    if name == "pinned_copy":
        return Demand(wire=1.0)
    if name == "coset_intt_sync":
        return Demand(sm=1.0)
    if name == "msm_invoke":
        streamed = PAYLOAD_PER_POINT * ((1 << work.domain_log2) - 1)
        return Demand(wire=_share(streamed, work.msm_invoke, line_rate), sm=1.0)
    if name == "batch_add":
        return Demand(wire=1.0, sm=_BATCH_ADD_SM, held_up=False)
    if name == "tail_msm":
        return Demand(wire=_TAIL_WIRE, sm=1.0, held_up=False)
    return Demand()


def _share(payload: float, seconds: float, line_rate: float) -> float:
    return min(1.0, payload / line_rate / seconds) if seconds > 0 else 0.0


def speed(asked: Demand, strain: Strain, limits: Limits) -> float:
    """The speed of a part, 1 when nothing is in its way: what it waits for longest decides.

    Two processes take turns on the SMs, so kernels beside one that wants a share u of them take 1 + u times as long.
    """
    kernels = asked.sm * (1.0 + strain.other_sm) / strain.clock
    wire = asked.wire / strain.link
    host = 1.0 + limits.copy_slowdown * strain.syntheses if asked.staged else 1.0
    slowest = max(1.0, kernels, wire, host)
    return (limits.allocation_rate if strain.allocating and asked.held_up else 1.0) / slowest


def pool_slowness(strain: Strain, limits: Limits) -> float:
    """How many times as long prep_msm and b_g2_msm take because of the host's memory, their threads aside."""
    return 1.0 + limits.prep_slowdown * strain.syntheses
