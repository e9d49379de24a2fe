"""The builds of the prover by what they print, from the first timing lines to today's."""

from dataclasses import dataclass, replace

from gputrace.simulate.schedule import Limits


@dataclass(frozen=True)
class LogVariant:
    """Which lines a build prints, and in what shape.

    `lock_lines`: pre_lock_cpu, barrier_wait and mutex_held; `ntt_h`: CUZK_NTT_H and the allocation lines; `prestage`:
    "", "plain" or "timed"; `timing_lines`: GPU_TIMING, FIN_TIMING, the pinned pool and is_pinned; `timeline_partition`:
    the key for a partition in synthesis events ("" before there was one), `snap_partition` the same for SnapDeals.
    """

    name: str
    lock_lines: bool = True
    ntt_h: bool = True
    epilogue: bool = False
    prestage: str = ""
    timing_lines: bool = True
    queue_event: str = "GPU_QUEUE"
    timeline_partition: str = "partition"
    snap_partition: str = "partition"
    pushed: str = "partition synthesis complete, pushing to GPU queue"
    snap_pushed: str = "partition synthesis complete, pushing to GPU queue"
    whole_call_mutex: bool = False
    split_api: bool = True

    def apply(self, limits: Limits) -> Limits:
        """The limits as this build has them: what its mutex covers, and who joins the prep thread."""
        return replace(limits, whole_call_mutex=self.whole_call_mutex, split_api=self.split_api)


_SENDING = "partition synthesis complete, sending to GPU"
_V4 = LogVariant(
    "V4",
    lock_lines=False,
    ntt_h=False,
    epilogue=True,
    timing_lines=False,
    queue_event="CHAN_SEND",
    timeline_partition="",
    snap_partition="",
    pushed=_SENDING,
    snap_pushed=_SENDING,
    whole_call_mutex=True,
    split_api=False,
)
_V8 = replace(_V4, name="V8", timeline_partition="partition", snap_partition="partition", whole_call_mutex=False)
_V9A = replace(_V8, name="V9a", prestage="plain")
_V9B = replace(_V8, name="V9b", prestage="timed")
_V12 = replace(_V9A, name="V12", epilogue=False, split_api=True)
_VD = replace(_V12, name="Vd", prestage="", ntt_h=True)
_VG = replace(_VD, name="Vg", snap_partition="snap_partition", snap_pushed=f"SnapDeals {_SENDING}")
# The working tree of 2026-03-13 that the background articles ran: the engine's lines of today, the C++ lines of Vg.
_VS = LogVariant("Vs", lock_lines=False)
_M = LogVariant("M")

VARIANTS = {variant.name: variant for variant in (_V4, _V8, _V9A, _V9B, _V12, _VD, _VG, _VS, _M)}
