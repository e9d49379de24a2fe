"""Counts what a run has done, once, while ever newer parts of it are looked at.

Parts overlap, so that each call is seen whole. Per GPU there is a time up to which seconds and bytes are counted; a
part adds what lies between that and the last unlock in it. A call is counted when it is over, and remembered until
it can no longer be seen.
"""

from dataclasses import dataclass, field

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.segments import windows
from gputrace.trace import Trace

# Samples this young may still change: GPM lags by up to 0.4 s, and lines arrive after what they tell.
SETTLE_NS = 2_000_000_000
# The finalizer ends a call after its unlock; a call that says nothing more for so long will not.
FINISH_NS = 30_000_000_000
PATIENCE_NS = 120_000_000_000
# What a part must hold before the time that is counted up to: whole calls and the syntheses that fed them.
LEAD_NS = 180_000_000_000
# The longest time that is kept for a call to end in.
MOST_KEPT_NS = 900_000_000_000
# The same call, seen again in another part, lies no further off than this and its uncertainty.
_SAME_MS = 5.0
_SAME_NAMED_NS = 1_000_000_000


@dataclass(frozen=True)
class Called:
    """One call that is over: its phases in seconds are there if it is complete."""

    gpu: int
    worker: int | None
    complete: bool
    failed: bool
    phases_s: dict[str, float]


@dataclass
class Increment:
    """What one part adds. Seconds by (gpu, state); payload bytes by (gpu, direction); lost by (gpu, cause, state)."""

    state_s: dict[tuple[int, str], float] = field(default_factory=dict)
    payload_bytes: dict[tuple[int, str], float] = field(default_factory=dict)
    lost_s: dict[tuple[int, str, str], float] = field(default_factory=dict)
    calls: list[Called] = field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    gpu: int
    name: tuple[int | None, str | None, int | None]
    at_ns: int
    slack_ns: int

    def is_same(self, other: "_Seen") -> bool:
        """Whether both are one call. Where both are named, the time only tells a retry apart."""
        if self.gpu != other.gpu:
            return False
        apart = abs(self.at_ns - other.at_ns)
        if None not in (self.name[1], other.name[1]):
            return self.name == other.name and apart <= _SAME_NAMED_NS
        return apart <= max(self.slack_ns, other.slack_ns)


@dataclass
class Tally:
    """`floor_ns`: nothing before it is counted (None: everything is)."""

    floor_ns: int | None = None
    counted_ns: dict[int, int] = field(default_factory=dict)
    _calls: list[_Seen] = field(default_factory=list)
    _pending_ns: int | None = None
    _begin_ns: int = 0
    _knows_log: bool = False

    def add(self, trace: Trace, diagnosis: Diagnosis, latest_ns: int, final: bool) -> Increment:
        """What this part adds. `latest_ns`: the newest time in it; `final`: nothing more is expected for now."""
        self._knows_log = self._knows_log or not trace.marks.is_empty()
        found = Increment()
        if trace.marks.is_empty() and self._knows_log:
            # The prover is silent: what its GPU does is known when it speaks again.
            return found
        self._add_seconds(found, trace, diagnosis, latest_ns, final)
        self._add_calls(found, trace, latest_ns, final)
        return found

    def needed_ns(self, latest_ns: int) -> int:
        """What is older than this need not be kept."""
        first = min([*self.counted_ns.values(), *([self._pending_ns] if self._pending_ns else [])], default=None)
        oldest = latest_ns - MOST_KEPT_NS
        return oldest if first is None else max(oldest, first - LEAD_NS)

    def give_up_s(self, latest_ns: int) -> dict[int, float]:
        """Moves on where a GPU's time cannot be kept until its call ends; the seconds left uncounted, by GPU."""
        least = latest_ns - MOST_KEPT_NS + LEAD_NS
        left = {gpu: (least - at) / 1e9 for gpu, at in self.counted_ns.items() if at < least}
        self.counted_ns |= dict.fromkeys(left, least)
        if self._pending_ns is not None and self._pending_ns < least:
            self._pending_ns = None
        return left

    def _add_seconds(self, found: Increment, trace: Trace, diagnosis: Diagnosis, latest_ns: int, final: bool) -> None:
        known = {gpu.gpu: gpu for gpu in diagnosis.gpus}
        spans = windows(trace).frame.group_by("gpu").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        for gpu, start_ns, end_ns in spans.iter_rows():
            low = max(self.counted_ns.get(gpu, start_ns), self.floor_ns or start_ns)
            high = end_ns if final else min(end_ns, latest_ns - SETTLE_NS)
            if high <= low:
                continue
            self.counted_ns[gpu] = high
            own = _within(diagnosis.states.filter(pl.col("gpu") == gpu), low, high)
            finding = known.get(gpu)
            if finding is None or finding.compute_share is None:
                continue
            # Without readings of the link, what is not compute is neither known to copy nor to be idle.
            knows_link = finding.copy_only_share is not None
            for state in ("compute", "copy_only", "idle") if knows_link else ("compute",):
                found.state_s[gpu, state] = _sum(own, pl.col(f"{state}_s") * pl.col("share"))
            if knows_link:
                seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9 * pl.col("share")
                for direction in ("rx", "tx"):
                    found.payload_bytes[gpu, direction] = _sum(own, pl.col(f"{direction}_bytes_per_s") * seconds)
            if not diagnosis.blame.is_empty():
                lost = _within(diagnosis.blame.filter(pl.col("gpu") == gpu), low, high)
                by_cause = lost.group_by("cause").agg(
                    (pl.col("copy_only_s") * pl.col("share")).sum(), (pl.col("idle_s") * pl.col("share")).sum()
                )
                for cause, copy_only_s, idle_s in by_cause.iter_rows():
                    found.lost_s[gpu, cause, "copy_only"] = copy_only_s
                    found.lost_s[gpu, cause, "idle"] = idle_s

    def _add_calls(self, found: Increment, trace: Trace, latest_ns: int, final: bool) -> None:
        phases = trace.phases.group_by("call", "name").agg(pl.col("duration_ms").sum())
        by_call = {
            int(str(call)): dict(own.select("name", pl.col("duration_ms") / 1e3).iter_rows())
            for (call,), own in phases.group_by("call")
        }
        begun, ended = pl.coalesce("lock_ns", "start_ns"), pl.coalesce("unlock_ns", "end_ns", "finish_ns")
        calls = trace.calls.select(
            "call", "gpu", "worker", "job", "partition", "complete", "failed", "finish_ns", "uncertainty_ms",
            begun.alias("begun_ns"), ended.alias("ended_ns"),
        ).filter(pl.coalesce("ended_ns", "begun_ns").is_not_null())  # fmt: skip
        waiting: list[int] = []
        for call in calls.sort(pl.coalesce("ended_ns", "begun_ns")).iter_rows(named=True):
            at_ns = call["ended_ns"] if call["ended_ns"] is not None else call["begun_ns"]
            slack_ms = (call["uncertainty_ms"] or 0.0) + _SAME_MS
            name = (call["worker"], call["job"], call["partition"])
            seen = _Seen(call["gpu"] or 0, name, at_ns, int(slack_ms * 1e6))
            if at_ns < max(self._begin_ns, self.floor_ns or 0) or any(seen.is_same(other) for other in self._calls):
                continue
            if not (_is_over(call, at_ns, latest_ns) or (final and call["complete"])):
                waiting.append(at_ns)
                continue
            self._calls.append(seen)
            durations = by_call.get(call["call"], {}) if call["complete"] else {}
            found.calls.append(Called(seen.gpu, call["worker"], call["complete"], call["failed"], durations))
        self._pending_ns = min(waiting, default=None)
        if self.counted_ns:
            # From the next part on, calls at the edge of what is kept may lack lines.
            self._begin_ns = max(self._begin_ns, self.needed_ns(latest_ns) + (LEAD_NS - PATIENCE_NS) // 2)
        oldest = self.needed_ns(latest_ns) - PATIENCE_NS
        self._calls = [seen for seen in self._calls if seen.at_ns >= oldest]


def _is_over(call: dict[str, object], at_ns: int, latest_ns: int) -> bool:
    if call["failed"]:
        return latest_ns - at_ns >= SETTLE_NS
    if call["complete"]:
        # A finished proof says so; a log without such lines has only the time.
        patience = SETTLE_NS if call["finish_ns"] is not None else FINISH_NS
        return latest_ns - at_ns >= patience
    return latest_ns - at_ns >= PATIENCE_NS


def _within(frame: pl.DataFrame, low_ns: int, high_ns: int) -> pl.DataFrame:
    """Rows that touch the span, with the `share` of each that lies in it."""
    inside = pl.min_horizontal("end_ns", pl.lit(high_ns)) - pl.max_horizontal("start_ns", pl.lit(low_ns))
    return frame.filter((pl.col("end_ns") > low_ns) & (pl.col("start_ns") < high_ns)).with_columns(
        (inside / (pl.col("end_ns") - pl.col("start_ns"))).alias("share")
    )


def _sum(frame: pl.DataFrame, what: pl.Expr) -> float:
    return float(frame.select(what.sum()).item() or 0.0)
