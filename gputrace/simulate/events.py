"""A small discrete-event kernel: processes are generators that yield a delay in seconds or an event to wait for."""

import heapq
import itertools
import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

Kind = TypeVar("Kind")
Process = Generator["float | Event", None, None]
Action = Callable[[], None]
# Below this a task is done: times are seconds, and a log's smallest unit is a microsecond.
_NOTHING = 1e-10


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
        self._serial = itertools.count()
        # Processes that go on and actions to call: later, by time and order; and now, after what was due by now.
        self._later: list[tuple[float, int, Process | Action]] = []
        self._now: deque[Process | Action] = deque()

    def at(self, time: float, action: Action) -> None:
        """Calls `action` at `time`."""
        if time > self.now:
            heapq.heappush(self._later, (time, next(self._serial), action))
        else:
            self._now.append(action)

    def start(self, process: Process) -> None:
        """Begins or resumes a process now."""
        self._now.append(process)

    def event(self) -> Event:
        """A new event of this loop."""
        return Event(self)

    def run(self, until: float = math.inf) -> None:
        """Runs until nothing is left to do, or to the time `until`."""
        later, now = self._later, self._now
        while True:
            if now and not (later and later[0][0] <= self.now):
                due = now.popleft()
            elif later and later[0][0] <= until:
                self.now, _, due = heapq.heappop(later)
            else:
                return
            if callable(due):
                due()
                continue
            # A process runs for as long as nothing else is due before it.
            for wanted in due:
                if isinstance(wanted, Event):
                    if not wanted.happened or now or (later and later[0][0] <= self.now):
                        wanted.wait(due)
                        break
                elif wanted > 0.0:
                    time = self.now + wanted
                    if time == self.now:
                        continue
                    if now or time > until or (later and later[0][0] <= time):
                        heapq.heappush(later, (time, next(self._serial), due))
                        break
                    self.now = time

    def stop(self) -> None:
        """Forgets what is still to do."""
        self._later.clear()
        self._now.clear()


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


class Task(Event):
    """A piece of work that is done beside others; it happens when it is done. `left`: seconds at speed 1."""

    __slots__ = ("left",)

    def __init__(self, loop: Loop, left: float) -> None:
        super().__init__(loop)
        self.left = left


class Together(ABC):
    """Tasks that go on together, at rates that may change while they run.

    Who changes what the rates depend on calls `changing()` first and `changed()` after.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._tasks: list[Task] = []
        self._since = 0.0
        # When the next task is done at the rates that hold now.
        self._due = math.inf
        self._any_done = False

    @abstractmethod
    def _progress(self, seconds: float) -> None:
        """Takes what was done in these seconds, at the rates that held, off what is left; notes whether any is done."""

    @abstractmethod
    def _soonest(self) -> float:
        """Seconds until the first task is done at the rates that hold from now; infinite if none goes on."""

    def stop(self, task: Task) -> None:
        """Ends a task before its time."""
        if task in self._tasks:
            self.changing()
            self._end(task)
            self.changed()

    def changing(self) -> None:
        """Takes account of what was done until now."""
        now = self._loop.now
        elapsed, self._since = now - self._since, now
        if elapsed > 0 and self._tasks:
            self._progress(elapsed)

    def changed(self) -> None:
        """Ends what is done and plans the next end."""
        if self._any_done:
            self._any_done = False
            for task in [task for task in self._tasks if task.left <= _NOTHING]:
                self._end(task)
        self._due = math.inf
        if self._tasks and (seconds := self._soonest()) < math.inf:
            self._due = self._loop.now + seconds
            self._loop.at(self._due, self._look)

    def _begin(self, task: Task) -> Task:
        if task.left <= _NOTHING:
            task.happen()
            return task
        self.changing()
        self._tasks.append(task)
        self.changed()
        return task

    def _end(self, task: Task) -> None:
        self._tasks.remove(task)
        task.happen()

    def _look(self) -> None:
        if self._due <= self._loop.now:
            self.changing()
            self.changed()


class Shared(Together):
    """Tasks that share something, all at one speed; beyond `servers` they queue, in order.

    `rate(n)` is the speed while `n` tasks run; a task has as much to do as it would take in seconds at speed 1.
    """

    def __init__(self, loop: Loop, rate: Callable[[int], float], servers: int | None = None) -> None:
        super().__init__(loop)
        self._rate_of = rate
        self._rate = 0.0
        self._servers = servers

    def run(self, work: float) -> Task:
        """Begins a task; the event happens when it is done."""
        return self._begin(Task(self._loop, work))

    def _running(self) -> list[Task]:
        return self._tasks if self._servers is None else self._tasks[: self._servers]

    def _progress(self, seconds: float) -> None:
        done = seconds * self._rate
        for task in self._running():
            task.left = left = task.left - done
            if left <= _NOTHING:
                self._any_done = True

    def _soonest(self) -> float:
        running = self._running()
        self._rate = rate = self._rate_of(len(running))
        return min([task.left for task in running]) / rate if rate > 0 else math.inf


class Device(Together, Generic[Kind]):
    """Tasks beside one another, each at the speed `rate(kind)` of its kind."""

    def __init__(self, loop: Loop, rate: Callable[[Kind], float]) -> None:
        super().__init__(loop)
        self._rate_of = rate
        self._kind: dict[Task, Kind] = {}
        self._rates: list[float] = []

    def run(self, kind: Kind, work: float) -> Task:
        """Begins a task; the event happens when it is done."""
        task = Task(self._loop, work)
        if work > _NOTHING:
            self._kind[task] = kind
        return self._begin(task)

    def _end(self, task: Task) -> None:
        del self._kind[task]
        super()._end(task)

    def _progress(self, seconds: float) -> None:
        for task, rate in zip(self._tasks, self._rates, strict=True):
            task.left -= seconds * rate
            if task.left <= _NOTHING:
                self._any_done = True

    def _soonest(self) -> float:
        self._rates = [self._rate_of(self._kind[task]) for task in self._tasks]
        due = [task.left / rate for task, rate in zip(self._tasks, self._rates, strict=True) if rate > 0]
        return min(due, default=math.inf)
