"""The pipeline of the prover: syntheses, GPU workers, one mutex per GPU, the C++ pool, the finalizer.

Inputs are service times and limits; waits, barriers and idle times are outputs. The same inputs and seed give the same
schedule. Times are seconds since the engine's start.

    synthesis -> queue -> worker: pickup, hot path -> call -> returned -> next pickup
                             call: entry, setup, mutex wait | d_b_alloc .. msm_dtor, barrier, batch_add, tail | release
                      prep thread: from the end of setup: prep_msm (the barrier waits for it), then b_g2_msm
                        finalizer: after the return: joins the prep thread, finishes the proof, frees the place
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gputrace.simulate.disturbance import Disturbance
from gputrace.simulate.events import Device, Event, Mutex, Process, Together
from gputrace.simulate.flow import Flow
from gputrace.simulate.schedule import NTT_PHASES, CallRecord, CallWork, Limits, Schedule, Span, SynthesisRecord
from gputrace.simulate.speed import Demand, Strain, demand, pool_slowness, speed


def simulate(
    works: Sequence[CallWork],
    limits: Limits,
    seed: int = 0,
    until: float = math.inf,
    disturbance: Disturbance | None = None,
) -> Schedule:
    """The schedule of these partitions, synthesised in the order given. What runs at `until` stays open."""
    rng = random.Random(f"pipeline {seed}")
    pipeline = _Pipeline(works, limits, rng, disturbance or Disturbance())
    pipeline.loop.run(until)
    for call in pipeline.schedule.calls:
        if call.outcome == "ok" and math.isnan(call.finalised):
            call.outcome = "open"
    return pipeline.schedule


class _Pipeline(Flow[CallRecord]):
    """The state while a schedule is made."""

    def __init__(self, works: Sequence[CallWork], limits: Limits, rng: random.Random, disturbance: Disturbance) -> None:
        partitions = dict(Counter((work.job, work.attempt) for work in works))
        self.schedule = Schedule(limits, partitions, disturbance=disturbance)
        super().__init__(works, limits, self.schedule.calls, self.schedule.syntheses)
        loop = self.loop
        self.disturbance = disturbance
        self._allocating = 0
        fair = None if limits.fifo_mutex else rng
        n_mutexes = 1 if limits.whole_call_mutex else limits.gpus
        self._mutexes = [Mutex(loop, limits.handover, fair) for _ in range(n_mutexes)]
        self._driver = Mutex(loop)
        self._freeing = Mutex(loop)
        self._device: Device[Demand] = Device(loop, self._device_rate)
        self._log = random.Random(f"log {rng.random()}" if disturbance.sink else "log")
        self._strain = Strain()
        self._undisturbed = disturbance == Disturbance()
        # Nothing strains the device but copies beside syntheses.
        self._calm = self._undisturbed and limits.allocation_rate >= 1.0
        for edge in disturbance.edges:
            loop.at(edge, self._count)
        loop.at(limits.start_up, self._dispatch)

    # Speeds of what slows down beside other things.

    def _device_rate(self, asked: Demand) -> float:
        return speed(asked, self._strain, self.limits)

    def _count(self, running: int = 0, allocating: int = 0) -> None:
        together: tuple[Together, ...] = (self._pool, self._device)
        for tasks in together:
            tasks.changing()
        self._running += running
        self._allocating += allocating
        self._strain = self._strained()
        self._pool_slowness = pool_slowness(self._strain, self.limits)
        for tasks in together:
            tasks.changed()

    def _strained(self) -> Strain:
        if self._undisturbed:
            return Strain(syntheses=self._running, allocating=self._allocating > 0)
        now, disturbance = self.loop.now, self.disturbance
        return Strain(
            disturbance.clock(now),
            disturbance.other_sm(now),
            disturbance.link_share(now),
            self._running,
            self._allocating > 0,
        )

    def _print(self, call: CallRecord, line: str) -> Iterable[float]:
        """A line under the mutex; its thread waits as long as the log makes it."""
        return () if self.disturbance.sink is None else self._blocked(call, line)

    def _blocked(self, call: CallRecord, line: str) -> Iterator[float]:
        begun = self.loop.now
        waits = self.disturbance.blocked(begun, self._log)
        if waits > 0:
            yield waits
            call.blocked[line] = begun, self.loop.now

    # Syntheses.

    def _there(self, work: CallWork) -> float:
        there = super()._there(work)
        return there if self._undisturbed else self.disturbance.short_until(there)

    def _synthesise(self, synthesis: SynthesisRecord) -> None:
        self.loop.start(self._synthesis(synthesis))

    def _synthesis(self, synthesis: SynthesisRecord) -> Process:
        work = synthesis.work
        yield work.construct
        synthesis.begun = self.loop.now
        for _ in range(work.new_buffers):
            yield self._driver.acquire()
            self._count(allocating=1)
            begun = self.loop.now
            yield self.limits.allocate
            self._count(allocating=-1)
            self._driver.release()
            synthesis.allocated.append(self.loop.now)
            self.schedule.allocations.append((begun, self.loop.now))
        synthesis.work_begun = self.loop.now
        yield work.synth
        synthesis.end = self.loop.now
        yield self.limits.push
        self._synthesised(synthesis)

    # Workers.

    def _take(self, synthesis: SynthesisRecord, gpu: int, worker: int) -> None:
        call = CallRecord(synthesis.index, synthesis.work, gpu, worker)
        self._calls.append(call)
        self.loop.start(self._pass(call))

    def _pass(self, call: CallRecord) -> Process:
        """One turn of a worker's loop."""
        work, limits = call.work, self.limits
        yield limits.wake_up
        call.pickup = self.loop.now
        self._place_free("pickup")
        yield work.hot_path
        call.status_end = self.loop.now
        if limits.tracked_hot_path:
            yield self._tracker.acquire()
            self._tracker.release()
        call.checked = call.started = self.loop.now
        if (work.job, work.attempt) in self._failed:
            call.started, call.skipped = math.nan, True
            call.outcome = "skipped"
            self._place_free("returned")
            self._place_free("finalised")
            self._worker_free(call.worker)
            return
        yield work.spawn
        call.entry = self.loop.now
        joined = self.loop.event()
        if limits.whole_call_mutex:
            yield from self._whole_call(call, joined)
        else:
            yield from self._split_call(call, joined)
        call.returned = self.loop.now
        self._place_free("returned")
        if call.outcome in ("ntt", "batch_add", "tail"):
            self._failed.add((work.job, work.attempt))
            self._place_free("finalised")
        else:
            self.loop.start(self._finalise(call, joined))
            if not limits.split_api:
                yield joined
        yield limits.turn_around
        self._worker_free(call.worker)

    def _split_call(self, call: CallRecord, joined: Event) -> Process:
        work = call.work
        yield work.setup
        call.split_end = self.loop.now
        prep = self._start_prep(call, joined)
        yield max(0.0, work.pre_lock - work.setup)
        call.asked = self.loop.now
        mutex = self._mutexes[call.gpu]
        yield mutex.acquire()
        call.lock = self.loop.now
        yield from self._print(call, "lock")
        yield from self._on_gpu(call, prep)
        call.held_end = self.loop.now
        yield from self._print(call, "unlock")
        call.unlock = self.loop.now
        mutex.release()
        if not self.limits.split_api:
            yield joined
        yield work.release_abc

    def _whole_call(self, call: CallRecord, joined: Event) -> Process:
        """The first builds: one mutex for the process, from entry to return."""
        work, mutex = call.work, self._mutexes[0]
        call.asked = self.loop.now
        yield mutex.acquire()
        call.lock = self.loop.now
        yield work.setup
        call.split_end = self.loop.now
        prep = self._start_prep(call, joined)
        yield max(0.0, work.pre_lock - work.setup)
        yield from self._on_gpu(call, prep)
        yield joined
        call.held_end = call.unlock = self.loop.now
        mutex.release()
        yield work.release_abc

    # The GPU thread.

    def _on_gpu(self, call: CallRecord, prep: Event) -> Process:
        work, limits, loop = call.work, self.limits, self.loop
        yield limits.launch
        call.gpu_begin = loop.now
        call.warmup = call.gpu not in self._warm
        call.new_domain = self._domain.get(call.gpu) != work.domain_log2
        self._warm.add(call.gpu)
        self._domain[call.gpu] = work.domain_log2
        if call.new_domain:
            yield limits.allocate_d_a
        for circuit in range(work.num_circuits):
            for name in NTT_PHASES:
                begin = loop.now
                if name == "coset_intt_sync" and work.pinned_copy:
                    yield self._on_device("pinned_copy", work, work.pinned_copy)
                    call.pinned_copies.append(Span("pinned_copy", begin, loop.now, circuit))
                yield self._on_device(name, work, self._seconds(call, name, circuit))
                call.add_span(name, begin, loop.now, circuit)
                if name == "ntt_kernels" and work.fails == "ntt":
                    call.fail("ntt", loop.now)
                    self._stop_prep(call)
                    yield work.after_gpu
                    return
            yield from self._print(call, f"ntt_h {circuit}")
        yield limits.ntt_tail
        call.ntt_end = loop.now
        yield from self._print(call, "ntt_msm_h")
        call.barrier_begin = loop.now
        if limits.barrier:
            yield prep
        yield limits.wake_up
        call.barrier_end = loop.now
        call.add_span("barrier_wait", call.barrier_begin, loop.now)
        yield from self._print(call, "barrier")
        for name in ("batch_add", "tail_msm"):
            begin = loop.now
            if work.fails in (name, name.removesuffix("_msm")):
                yield getattr(work, name) / 2
                call.add_span(name, begin, loop.now)
                call.fail(str(work.fails), loop.now)
                yield work.after_gpu
                return
            yield self._on_device(name, work, getattr(work, name))
            call.add_span(name, begin, loop.now)
            if name == "tail_msm":
                call.gpu_end = loop.now
            yield from self._print(call, name)
        yield work.after_gpu

    def _on_device(self, name: str, work: CallWork, seconds: float) -> Event | float:
        """What may be slowed down while it runs is a task; anything else just takes its time."""
        if self._calm and (name != "ntt_kernels" or work.pinned):
            return seconds
        return self._device.run(demand(name, work, self.limits.line_rate), seconds)

    def _seconds(self, call: CallRecord, name: str, circuit: int) -> float:
        """An NTT phase's own time, less the copy that its first part is for pinned memory."""
        seconds = float(getattr(call.work, name))
        if name == "d_b_alloc" and call.warmup and circuit == 0:
            return seconds + self.limits.warmup_alloc
        return max(0.0, seconds - call.work.pinned_copy) if name == "coset_intt_sync" else seconds

    # The prep thread.

    def _start_prep(self, call: CallRecord, joined: Event) -> Event:
        prepared = self.loop.event()
        self.loop.start(self._prepare(call, prepared, joined))
        return prepared

    def _prepare(self, call: CallRecord, prepared: Event, joined: Event) -> Process:
        work = call.work
        task = self._pool.run(work.prep_msm)
        call.prep_task = task
        yield task
        call.prep_task = None
        if not call.prep_stopped:
            call.prep_end = self.loop.now
            prepared.happen()
            yield self._pool.run(work.b_g2_msm * work.num_circuits)
            call.b_g2_end = self.loop.now
        joined.happen()

    def _stop_prep(self, call: CallRecord) -> None:
        """The error flag ends the classification; a G2 MSM that has begun goes on."""
        if call.prep_task is not None:
            call.prep_stopped = True
            self._pool.stop(call.prep_task)

    # The finalizer.

    def _finalise(self, call: CallRecord, joined: Event) -> Process:
        work = call.work
        key = (work.job, work.attempt)
        yield joined
        yield work.finish
        call.joined = self.loop.now
        if work.fails == "finalize":
            call.fail("finalize", self.loop.now)
            self._failed.add(key)
        else:
            call.finished = self.loop.now
            self.loop.start(self._free(call))
        asked = self.loop.now
        yield self._tracker.acquire()
        call.tracker_wait = self.loop.now - asked
        if call.outcome == "ok" and key in self._failed:
            call.outcome = "discarded"
        yield work.process
        call.finalised = self.loop.now
        self._tracker.release()
        self._place_free("finalised")

    def _free(self, call: CallRecord) -> Process:
        yield self._freeing.acquire()
        call.dealloc_begin = self.loop.now
        yield call.work.dealloc
        call.dealloc_end = self.loop.now
        self._freeing.release()
