"""A small discrete-event kernel: processes are generators that yield a delay in seconds or an event to wait for."""

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Generic, TypeVar

Kind = TypeVar("Kind")
Process = Generator["float | Until | Event", None, None]
# Below this a task is done: times are seconds, and a log's smallest unit is a microsecond.
_NOTHING = 1e-10


class Until(float):
    """A process that yields it goes on at this time, rather than after a delay."""


class Event:
    """Happens once; processes that wait for it go on then, in the order in which they began to wait."""

    __slots__ = ("_loop", "_waiting", "happened")

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._waiting: list[Process] = []
        self.happened = False

    def happen(self) -> None:
        """Lets everybody who waits go on; a second time does nothing."""
        if self.happened:
            return
        self.happened = True
        for process in self._waiting:
            self._loop.start(process)

    def wait(self, process: Process) -> None:
        """Resumes `process` when this happens, at once if it has."""
        if self.happened:
            self._loop.start(process)
        else:
            self._waiting.append(process)


class Loop:
    """The clock. What falls on one instant happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._serial = 0
        # Time, order, and what happens then: a process goes on, or an action is called.
        self._heap: list[tuple[float, int, Process | None, Callable[[], None] | None]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Calls `action` at `time`."""
        self._serial += 1
        heapq.heappush(self._heap, (time if time > self.now else self.now, self._serial, None, action))

    def start(self, process: Process) -> None:
        """Begins or resumes a process now."""
        self._serial += 1
        heapq.heappush(self._heap, (self.now, self._serial, process, None))

    def event(self) -> Event:
        """A new event of this loop."""
        return Event(self)

    def run(self, until: float) -> None:
        """Runs until nothing is left to do, or to the time `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, process, action = heapq.heappop(heap)
            if process is None:
                assert action is not None
                action()
                continue
            # A process runs for as long as nothing else is due before it.
            for wanted in process:
                if isinstance(wanted, Event):
                    if not wanted.happened or (heap and heap[0][0] <= self.now):
                        wanted.wait(process)
                        break
                elif wanted != 0.0:
                    time = wanted if isinstance(wanted, Until) else self.now + wanted
                    if time == self.now:
                        continue
                    if time > until or time < self.now or (heap and heap[0][0] <= time):
                        self._serial += 1
                        heapq.heappush(heap, (time if time > self.now else self.now, self._serial, process, None))
                        break
                    self.now = time

    def stop(self) -> None:
        """Forgets what is still to do."""
        self._heap.clear()


class Mutex:
    """Held by one at a time; given to who asked first, or to anyone of those who wait where `rng` is given."""

    def __init__(self, loop: Loop, handover: float = 0.0, rng: random.Random | None = None) -> None:
        self._loop = loop
        self._handover = handover
        self._rng = rng
        self._held = False
        self._waiting: deque[Event] = deque()

    def acquire(self) -> Event:
        """An event that happens when the mutex is the caller's."""
        mine = self._loop.event()
        if self._held:
            self._waiting.append(mine)
        else:
            self._held = True
            mine.happen()
        return mine

    def release(self) -> None:
        """Gives the mutex on; the next holder has it `handover` later."""
        self._loop.at(self._loop.now + self._handover, self._next)

    def _next(self) -> None:
        if not self._waiting:
            self._held = False
            return
        if self._rng is not None:
            self._waiting.rotate(-self._rng.randrange(len(self._waiting)))
        self._waiting.popleft().happen()


class Shared(Generic[Kind]):
    """Tasks that go on together, each at a rate that may change while it runs; beyond `servers` they queue, in order.

    `rate(kind, n)` is the speed of a task of that kind while `n` tasks run here; a task has as much to do as it would
    take in seconds at speed 1. Who changes what the rate depends on calls `changing()` first and `changed()` after.
    """

    def __init__(self, loop: Loop, rate: Callable[[Kind, int], float], servers: int | None = None) -> None:
        self._loop = loop
        self._rate = rate
        self._servers = servers
        self._left: dict[Event, float] = {}
        self._kind: dict[Event, Kind] = {}
        self._since = 0.0
        self._version = 0

    def run(self, kind: Kind, work: float) -> Event:
        """Begins a task; the event happens when it is done."""
        done = self._loop.event()
        if work <= _NOTHING:
            done.happen()
            return done
        self.changing()
        self._left[done], self._kind[done] = work, kind
        self.changed()
        return done

    def stop(self, task: Event) -> None:
        """Ends a task before its time."""
        if task in self._left:
            self.changing()
            self._end(task)
            self.changed()

    def changing(self) -> None:
        """Takes account of what was done at the rates that hold until now."""
        now, left = self._loop.now, self._left
        elapsed = now - self._since
        self._since = now
        if elapsed > 0 and left:
            n = self._at_once
            for task in itertools.islice(left, n):
                left[task] -= elapsed * self._rate(self._kind[task], n)

    def changed(self) -> None:
        """Ends what is done and plans the next end at the rates that hold from now."""
        self._version += 1
        left = self._left
        if not left:
            return
        if min(left.values()) <= _NOTHING:
            for task in [task for task, seconds in left.items() if seconds <= _NOTHING]:
                self._end(task)
        n = self._at_once
        soonest = math.inf
        for task, seconds in itertools.islice(left.items(), n):
            rate = self._rate(self._kind[task], n)
            if rate > 0 and seconds / rate < soonest:
                soonest = seconds / rate
        if soonest < math.inf:
            self._loop.at(self._loop.now + soonest, partial(self._due, self._version))

    @property
    def empty(self) -> bool:
        """Whether nothing runs or waits here: then no change of rates matters."""
        return not self._left

    @property
    def _at_once(self) -> int:
        """How many tasks run; those behind them wait."""
        n = len(self._left)
        return n if self._servers is None or n < self._servers else self._servers

    def _due(self, version: int) -> None:
        if version == self._version:
            self.changing()
            self.changed()

    def _end(self, task: Event) -> None:
        del self._left[task], self._kind[task]
        task.happen()
