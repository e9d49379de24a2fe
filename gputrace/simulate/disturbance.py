"""What goes wrong in a run from outside the pipeline: clocks, link, another process, a slow log, memory that is short.

Each is physics, not a verdict: a `Disturbance` says what the hardware and the host do when, the pipeline shows what
comes of it. Times are seconds since the engine's start.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SW_POWER_CAP = 0x4
# GT/s times the share that encoding leaves: 8b/10b to Gen2, 128b/130b from Gen3 on.
_LANE_GBITS = {1: 2.0, 2: 4.0, 3: 7.877, 4: 15.754, 5: 31.508}


@dataclass(frozen=True)
class Throttle:
    """SM clocks held down to `clock` (share of the maximum) for a while; `reasons` is NVML's event bitmask."""

    start: float
    end: float
    clock: float
    reasons: int = SW_POWER_CAP


@dataclass(frozen=True)
class OtherProcess:
    """Another process's kernels, which alone would keep the SMs active for `sm` of the time."""

    start: float
    end: float
    sm: float


@dataclass(frozen=True)
class Link:
    """The PCIe link from `since` on (always, by default); before, it is as wide and fast as it can be.

    `passing`: share of the link's rate that gets through, below 1 where packets are replayed. `idle_gen`: what the GPU
    lowers the link to while it has nothing to do, as many do to save power; 0 if it does not.
    """

    gen: int = 5
    width: int = 16
    gen_max: int = 5
    width_max: int = 16
    passing: float = 1.0
    replays_per_s: float = 0.0
    since: float = -math.inf
    idle_gen: int = 0

    @property
    def share(self) -> float:
        """Its rate against that of the link at its best."""
        best = _LANE_GBITS[self.gen_max] * self.width_max
        return self.passing * _LANE_GBITS[self.gen] * self.width / best


@dataclass(frozen=True)
class SlowSink:
    """A log reader that blocks who prints: a share of the prints, each for `low` to `high` seconds, in its windows."""

    low: float
    high: float
    share: float = 1.0
    windows: tuple[tuple[float, float], ...] = ((0.0, math.inf),)


@dataclass(frozen=True)
class Shortage:
    """A stretch in which no synthesis gets its memory: `entry` is evicted at its start, and loaded again at its end.

    `reload` is how long the load takes, seconds; 0 where nothing has to be loaded again.
    """

    start: float
    end: float
    reload: float = 0.0
    entry: str = "srs:porep-32g"
    freed_gib: float = 44.1


@dataclass(frozen=True)
class Disturbance:
    """Everything that disturbs one run. `lists_processes`: the recorder has a column of other processes."""

    throttles: tuple[Throttle, ...] = ()
    others: tuple[OtherProcess, ...] = ()
    link: Link = field(default_factory=Link)
    sink: SlowSink | None = None
    shortages: tuple[Shortage, ...] = ()
    lists_processes: bool = False

    def clock(self, at: float) -> float:
        """SM clock, share of the maximum."""
        return min((t.clock for t in self.throttles if t.start <= at < t.end), default=1.0)

    def reasons(self, at: float) -> int:
        """Why the clocks are held down, as NVML's bitmask."""
        mask = 0
        for throttle in self.throttles:
            mask |= throttle.reasons if throttle.start <= at < throttle.end else 0
        return mask

    def other_sm(self, at: float) -> float:
        """What other processes ask of the SMs, share of the time."""
        return max((o.sm for o in self.others if o.start <= at < o.end), default=0.0)

    def link_share(self, at: float) -> float:
        """The link's rate, share of its best."""
        return self.link.share if at >= self.link.since else 1.0

    def short_until(self, at: float) -> float:
        """When memory is there again, `at` itself if it is not short."""
        return max((s.end for s in self.shortages if s.start <= at < s.end), default=at)

    @property
    def edges(self) -> list[float]:
        """When speeds change, in order."""
        times = {self.link.since}
        times |= {t for throttle in self.throttles for t in (throttle.start, throttle.end)}
        times |= {t for other in self.others for t in (other.start, other.end)}
        return sorted(t for t in times if math.isfinite(t))

    def blocked(self, at: float, rng: random.Random) -> float:
        """How long a line printed now blocks its thread."""
        sink = self.sink
        if sink is None or not any(start <= at < end for start, end in sink.windows) or rng.random() >= sink.share:
            return 0.0
        return rng.uniform(sink.low, sink.high)


class Steps:
    """A count over time, made from +1 and -1: how many of something run."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        changes: dict[float, int] = {}
        for start, end in spans:
            if end > start:
                changes[start] = changes.get(start, 0) + 1
                changes[end] = changes.get(end, 0) - 1
        self.times = sorted(changes)
        self._counts: list[int] = []
        for time in self.times:
            self._counts.append((self._counts[-1] if self._counts else 0) + changes[time])

    def at(self, time: float) -> int:
        """The count at a time."""
        index = bisect_right(self.times, time) - 1
        return self._counts[index] if index >= 0 else 0

    def between(self, start: float, end: float) -> list[float]:
        """The times inside (start, end) at which it changes."""
        return self.times[bisect_right(self.times, start) : bisect_right(self.times, end)]


_TABLES = {"throttles": Throttle, "others": OtherProcess, "shortages": Shortage}


def disturbance_from(told: Mapping[str, Any]) -> Disturbance:
    """A disturbance from TOML tables: arrays throttles, others, shortages; tables link and sink. TypeError if wrong."""
    values: dict[str, Any] = dict(told)
    for key, kind in _TABLES.items():
        if key in values:
            values[key] = tuple(kind(**one) for one in values[key])
    if "link" in values:
        values["link"] = Link(**values["link"])
    if "sink" in values:
        sink = dict(values["sink"])
        if "windows" in sink:
            sink["windows"] = tuple((float(start), float(end)) for start, end in sink["windows"])
        values["sink"] = SlowSink(**sink)
    return Disturbance(**values)
