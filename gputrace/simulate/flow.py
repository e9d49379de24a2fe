"""What begins when: syntheses while there are places, calls while there are partitions in the queue and idle workers.

What a synthesis and a call do is left to the model in detail (`pipeline`) and to that of waits and holds (`outline`).
Times are seconds since the engine's start.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from gputrace.simulate.events import Loop, Mutex, Shared
from gputrace.simulate.schedule import CallTimes, CallWork, Limits, SynthesisRecord

Call = TypeVar("Call", bound=CallTimes)


class Flow(ABC, Generic[Call]):
    """Places, the queue, the workers and the C++ pool, while a schedule is made."""

    def __init__(
        self, works: Sequence[CallWork], limits: Limits, calls: list[Call], syntheses: list[SynthesisRecord]
    ) -> None:
        self.loop = loop = Loop()
        self.limits = limits
        self._calls, self._syntheses = calls, syntheses
        self._works = deque(enumerate(works))
        self._running = 0
        self._in_flight = 0
        self._failed: set[tuple[str, int]] = set()
        self._queue: deque[SynthesisRecord] = deque()
        workers = limits.gpus * limits.workers_per_gpu
        late = limits.workers_ready[:workers]
        self._idle = deque(range(len(late), workers))
        for worker, ready in enumerate(late):
            loop.at(ready, partial(self._worker_free, worker))
        servers = max(1, int(limits.pool_threads // limits.threads_per_task))
        self._pool = Shared(loop, self._pool_rate, servers if limits.pool_order == "fifo" else None)
        self._pool_slowness = 1.0
        self._tracker = Mutex(loop)
        # What GPUs have been used for before, by GPU.
        self._warm: set[int] = set()
        self._domain: dict[int, int] = {}

    @abstractmethod
    def _count(self, running: int) -> None:
        """So many more syntheses run."""

    @abstractmethod
    def _synthesise(self, synthesis: SynthesisRecord) -> None:
        """Sets a synthesis going."""

    @abstractmethod
    def _take(self, synthesis: SynthesisRecord, gpu: int, worker: int) -> None:
        """Sets a worker's pass over a partition going."""

    def _pool_rate(self, n: int) -> float:
        limits = self.limits
        fair_share = limits.pool_threads / (n * limits.threads_per_task)
        return (fair_share if fair_share < 1.0 else 1.0) / self._pool_slowness

    def _there(self, work: CallWork) -> float:
        """When the partition can be synthesised, from now on."""
        return work.arrives if work.arrives > self.loop.now else self.loop.now

    def _dispatch(self) -> None:
        """Starts syntheses while there is a place; a partition that is not there yet holds up those behind it."""
        limits = self.limits
        while self._works:
            index, work = self._works[0]
            if self._running >= (work.parallel_syntheses or limits.parallel_syntheses):
                return
            if self._in_flight >= (work.in_flight or limits.in_flight):
                return
            there = self._there(work)
            if there > self.loop.now:
                self.loop.at(there, self._dispatch)
                return
            self._works.popleft()
            synthesis = SynthesisRecord(index, work, start=self.loop.now)
            self._syntheses.append(synthesis)
            if (work.job, work.attempt) in self._failed:
                synthesis.skipped = True
                continue
            self._in_flight += 1
            self._count(running=1)
            self._synthesise(synthesis)

    def _synthesised(self, synthesis: SynthesisRecord) -> None:
        synthesis.queued = self.loop.now
        self._count(running=-1)
        self._queue.append(synthesis)
        self._pick_up()
        self._dispatch()

    def _place_free(self, when: str) -> None:
        """Gives up a partition's place, if that is what happens at this point."""
        if self.limits.place_freed == when:
            self._in_flight -= 1
            self._dispatch()

    def _pick_up(self) -> None:
        while self._queue and self._idle:
            worker = self._idle.popleft()
            self._take(self._next_queued(), worker // self.limits.workers_per_gpu, worker)

    def _next_queued(self) -> SynthesisRecord:
        if self.limits.queue_order == "fifo":
            return self._queue.popleft()
        # Partitions are numbered in order of their jobs.
        chosen = min(self._queue, key=lambda synthesis: synthesis.index)
        self._queue.remove(chosen)
        return chosen

    def _worker_free(self, worker: int) -> None:
        self._idle.append(worker)
        self._pick_up()
