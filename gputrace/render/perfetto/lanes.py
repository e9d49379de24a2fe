"""Slices on lanes where they nest: Perfetto wants every slice of a track to lie within the one it began in."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

# Times are made of sums of floating-point nanoseconds since 1970, which are good to 256 ns: phases that follow each
# other may overlap by as much. What overlaps by less than this is cut, and says its own times as arguments.
CUT_NS = 1_000


@dataclass(frozen=True)
class Slice:
    """One slice: times in nanoseconds, `rank` orders slices of the same start (outer first), `args` as shown.

    `flow` is the number of a flow that passes through it; `flow_ends` says that it is the last slice of that flow.
    """

    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any] = field(default_factory=dict)
    rank: int = 0
    flow: int | None = None
    flow_ends: bool = False

    def cut(self, start_ns: int, end_ns: int) -> "Slice":
        """The slice with other ends; those it had are in its arguments."""
        if (start_ns, end_ns) == (self.start_ns, self.end_ns):
            return self
        told = {"start_ns": self.start_ns, "end_ns": self.end_ns} | self.args
        return replace(self, start_ns=start_ns, end_ns=end_ns, args=told)


@dataclass(frozen=True)
class Begin:
    """A slice begins on a lane."""

    lane: int
    slice: Slice


@dataclass(frozen=True)
class End:
    """The innermost slice of a lane ends."""

    lane: int
    time_ns: int


@dataclass
class _Lane:
    """Slices open on one lane, outermost first, and the time of the last thing that happened on it."""

    number: int
    opened: list[Slice] = field(default_factory=list)
    latest_ns: int | None = None

    def fitted(self, item: Slice) -> Slice | None:
        """The slice as it nests here, given that what is over by its start has been closed; None where it does not."""
        start_ns, end_ns = item.start_ns, item.end_ns
        if self.latest_ns is not None:
            start_ns = max(start_ns, self.latest_ns)
        if self.opened and end_ns > self.opened[-1].end_ns:
            end_ns = self.opened[-1].end_ns
        end_ns = max(start_ns, end_ns)
        fits = start_ns - item.start_ns < CUT_NS and abs(item.end_ns - end_ns) < CUT_NS
        return item.cut(start_ns, end_ns) if fits else None

    def close(self, until_ns: int | None) -> Iterator[End]:
        """Ends of what is over by `until_ns` (None: of everything), innermost first."""
        while self.opened and (until_ns is None or self.opened[-1].end_ns <= until_ns):
            self.latest_ns = self.opened.pop().end_ns
            yield End(self.number, self.latest_ns)


def nest(slices: Iterable[Slice]) -> Iterator[Begin | End]:
    """Begins and ends of slices, in order of time on every lane, each slice on the first lane where it nests.

    A slice nests where it lies within the innermost slice open there, or where none is open. One that overlaps another
    by more than `CUT_NS`, say by the rounding of its log's milliseconds, gets the next lane.
    """
    lanes: list[_Lane] = []
    for item in sorted(slices, key=_order):
        for lane in lanes:
            yield from lane.close(item.start_ns)
            # One that goes on after the innermost slice follows it rather than being cut down to nothing.
            if lane.opened and item.end_ns > lane.opened[-1].end_ns:
                yield from lane.close(item.start_ns + CUT_NS - 1)
            fitted = lane.fitted(item)
            if fitted is not None:
                break
        else:
            lane, fitted = _Lane(len(lanes)), item
            lanes.append(lane)
        lane.opened.append(fitted)
        lane.latest_ns = fitted.start_ns
        yield Begin(lane.number, fitted)
    for lane in lanes:
        yield from lane.close(None)


def _order(item: Slice) -> tuple[int, int, bool, int]:
    """By start; of the same start the outer first, and what takes no time before what follows it."""
    return item.start_ns, item.rank, item.end_ns > item.start_ns, -item.end_ns
