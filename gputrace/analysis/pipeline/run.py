"""A trace made ready for what-ifs."""

import statistics
from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.diagnosis import Bound, Diagnosis, Replay
from gputrace.analysis.pipeline.busy import bounds
from gputrace.analysis.pipeline.observe import Observed, observe
from gputrace.analysis.pipeline.replay import best_replay, rate
from gputrace.analysis.pipeline.scenarios import Scenario, parse_scenario
from gputrace.analysis.pipeline.services import Services
from gputrace.trace import Trace

# A wait or a release shorter than this share of the calls' time is not worth a scenario of its own.
_WORTH = 0.01


@dataclass(frozen=True)
class Run:
    """One run, ready for what-ifs: what was seen, its services, and how well the model replays it.

    `copy_bytes` is what a call copies of a/b/c from pageable memory, `rx_bytes_per_call` all that it copies (payload);
    None where they were not measured.
    """

    seen: Observed
    own: Services
    error: Replay
    calls_per_s: float
    held_median_s: float
    compute_share: float | None
    copy_bytes: float | None
    rx_bytes_per_call: float | None
    line_rate_bytes_per_s: float | None
    host_cpu_share: float | None = None

    @property
    def drained(self) -> bool:
        """Whether the log goes on until the last synthesised partition was taken."""
        return all(s.queued is not None and s.picked_up is not None for s in self.seen.syntheses)

    def bounds(self) -> tuple[Bound, ...]:
        """The most that each resource could sustain."""
        return bounds(self.seen, self.own, self.rx_bytes_per_call, self.line_rate_bytes_per_s)

    def scenarios(self) -> list[Scenario]:
        """The changes worth predicting for this run: those that act on something it has."""
        calls = self.seen.calls
        elapsed = max(call.unlock for call in calls) - calls[0].lock
        workers = self.own.limits.workers_per_gpu
        pageable = any(not call.pinned for call in calls)
        names = []
        if pageable:
            names += ["pinned-h2d", f"pinned-h2d+workers={workers + 1}", "pinned-h2d+pool-speed=2"]
        if sum(call.barrier_wait for call in calls) > _WORTH * elapsed:
            names.append("no-barrier")
        if any(call.stalled for call in calls):
            names.append("no-allocation-stall")
        if sum(call.returned - call.unlock for call in calls) > _WORTH * elapsed:
            names.append("no-release")
        return [parse_scenario(name) for name in [*names, f"workers={workers + 1}", "upper-bound"]]


def run_of(trace: Trace, diagnosis: Diagnosis) -> Run:
    """The run of a trace and what was measured on it. Raises `NotReplayableError` where the log does not show enough.

    Of the diagnosis it takes `call_bytes`, `blame` and `gpus`.
    """
    seen = observe(trace)
    _note_stalls(seen, diagnosis.blame)
    own, error = best_replay(seen)
    call_bytes, gpus = diagnosis.call_bytes, diagnosis.gpus
    calls = pl.DataFrame({"call": [call.call for call in seen.calls if not call.pinned]}, schema={"call": pl.UInt32})
    copied = total = None
    if call_bytes.height:
        of_calls = call_bytes.join(calls, on="call", how="semi").filter(pl.col("name") == "ntt_kernels")
        copied = of_calls["rx_payload_bytes"].median()
        total = call_bytes.group_by("call").agg(pl.col("rx_payload_bytes").sum())["rx_payload_bytes"].mean()
    lines = [gpu.line_rate_bytes_per_s for gpu in gpus if gpu.line_rate_bytes_per_s]
    shares = [gpu.compute_share for gpu in gpus if gpu.compute_share is not None]
    cpu = trace.host["cpu_share"].median() if trace.clock.method != "none" else None
    return Run(
        seen=seen,
        own=own,
        error=error,
        calls_per_s=rate(np.array([call.unlock for call in seen.calls])),
        held_median_s=statistics.median(call.held for call in seen.calls),
        compute_share=statistics.fmean(shares) if shares else None,
        copy_bytes=float(copied) if isinstance(copied, float) else None,
        rx_bytes_per_call=float(total) if isinstance(total, float) else None,
        line_rate_bytes_per_s=max(lines, default=None),
        host_cpu_share=float(cpu) if isinstance(cpu, float) else None,
    )


def _note_stalls(seen: Observed, blame: pl.DataFrame) -> None:
    """Gives each call the seconds, by phase, in which allocations of pinned buffers held it up."""
    stalls = (
        blame.filter(pl.col("cause") == "pinned-alloc-stall")
        .group_by("call", "phase")
        .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("seconds"))
    )
    by_call: dict[int, dict[str, float]] = {}
    for call, phase, seconds in stalls.iter_rows():
        by_call.setdefault(call, {})[phase] = seconds
    for one in seen.calls:
        one.stalled = by_call.get(one.call, {})
