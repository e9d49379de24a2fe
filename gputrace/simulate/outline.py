"""The model of `pipeline` for those who only ask for waits and holds, as predictions do by the hundred.

The same times come out, many times as fast: what lies between two waits is one delay, and what nobody waits for is left
out. Nothing fails here, nothing disturbs from outside, and no pinned buffer is allocated.
"""

import random
from collections.abc import Sequence
from functools import partial

from gputrace.simulate.events import Event, Mutex, Process, Shared
from gputrace.simulate.flow import Flow
from gputrace.simulate.schedule import CallTimes, CallWork, Limits, Outline, SynthesisRecord
from gputrace.simulate.speed import Demand, Strain, pool_slowness, speed


def outline(works: Sequence[CallWork], limits: Limits, seed: int = 0, calls: int | None = None) -> Outline:
    """When these partitions, synthesised in the order given, hold the mutex; to the end, or to so many calls' unlocks.

    Of what comes after the last of these unlocks there is only what its worker sets off when it is free again.

    Raises `ValueError` unless the works are of one circuit, do not fail and need no new buffers, and the limits are
    those of builds with one mutex per GPU, whose hot path takes no job tracker: all else is for the model in detail.
    """
    if limits.whole_call_mutex or limits.tracked_hot_path:
        raise ValueError("an outline has one mutex per GPU, and a hot path without the job tracker")
    if any(work.fails is not None or work.num_circuits > 1 or work.new_buffers for work in works):
        raise ValueError("an outline has works of one circuit that do not fail and need no new buffers")
    made = Outline(limits)
    _Waits(works, made, seed, calls).loop.run()
    return made


class _Waits(Flow[CallTimes]):
    """The state while waits and holds are found."""

    def __init__(self, works: Sequence[CallWork], made: Outline, seed: int, most_calls: int | None) -> None:
        limits = made.limits
        super().__init__(works, limits, made.calls, made.syntheses)
        loop = self.loop
        fair = None if limits.fifo_mutex else random.Random(f"pipeline {seed}")
        self._mutexes = [Mutex(loop, limits.handover, fair) for _ in range(limits.gpus)]
        self._copies = Shared(loop, lambda _: self._copy_speed)
        self._copy_speed = 1.0
        self._rated_for = 0
        self._unlocks_left = most_calls
        loop.at(limits.start_up, self._dispatch)

    def _count(self, running: int) -> None:
        self._running += running

    def _dispatch(self) -> None:
        super()._dispatch()
        # Every change of what runs ends here; most often one synthesis follows another, and no rate changes.
        if self._running != self._rated_for:
            self._rated_for = self._running
            self._change_rates()

    def _change_rates(self) -> None:
        limits, strain = self.limits, Strain(syntheses=self._running)
        if limits.prep_slowdown:
            self._pool.changing()
            self._pool_slowness = pool_slowness(strain, limits)
            self._pool.changed()
        if limits.copy_slowdown:
            self._copies.changing()
            self._copy_speed = speed(Demand(staged=True), strain, limits)
            self._copies.changed()

    def _synthesise(self, synthesis: SynthesisRecord) -> None:
        work = synthesis.work
        end = self.loop.now + work.construct + work.synth + self.limits.push
        self.loop.at(end, partial(self._synthesised, synthesis))

    def _take(self, synthesis: SynthesisRecord, gpu: int, worker: int) -> None:
        call = CallTimes(synthesis.index, synthesis.work, gpu, worker)
        self._calls.append(call)
        self.loop.start(self._pass(call))

    def _pass(self, call: CallTimes) -> Process:
        """One turn of a worker's loop."""
        work, limits, loop = call.work, self.limits, self.loop
        yield limits.wake_up
        call.pickup = loop.now
        self._place_free("pickup")
        yield work.hot_path + work.spawn + work.setup
        call.split_end = loop.now
        prepared = loop.event()
        joined = loop.event()
        loop.start(self._prepare(call, prepared, joined))
        yield max(0.0, work.pre_lock - work.setup)
        call.asked = loop.now
        mutex = self._mutexes[call.gpu]
        yield mutex.acquire()
        call.lock = loop.now
        yield from self._on_gpu(call, prepared)
        call.unlock = loop.now
        mutex.release()
        if self._was_last():
            loop.stop()
        yield work.release_abc
        call.returned = loop.now
        self._place_free("returned")
        if limits.place_freed == "finalised":
            loop.start(self._finalise(call, joined))
        yield limits.turn_around
        self._worker_free(call.worker)

    def _was_last(self) -> bool:
        if self._unlocks_left is not None:
            self._unlocks_left -= 1
        return self._unlocks_left == 0

    def _on_gpu(self, call: CallTimes, prepared: Event) -> Process:
        work, limits, loop = call.work, self.limits, self.loop
        before = limits.launch + work.d_b_alloc
        if call.gpu not in self._warm:
            before += limits.warmup_alloc
            self._warm.add(call.gpu)
        if self._domain.get(call.gpu) != work.domain_log2:
            before += limits.allocate_d_a
            self._domain[call.gpu] = work.domain_log2
        after = max(work.pinned_copy, work.coset_intt_sync) + work.msm_init + work.msm_invoke + work.msm_dtor
        if work.pinned or not limits.copy_slowdown:
            yield before + work.ntt_kernels + after + limits.ntt_tail
        else:
            yield before
            yield self._copies.run(work.ntt_kernels)
            yield after + limits.ntt_tail
        call.barrier_begin = loop.now
        if limits.barrier:
            yield prepared
        call.barrier_end = loop.now + limits.wake_up
        yield limits.wake_up + work.batch_add + work.tail_msm + work.after_gpu

    def _prepare(self, call: CallTimes, prepared: Event, joined: Event) -> Process:
        yield self._pool.run(call.work.prep_msm)
        prepared.happen()
        yield self._pool.run(call.work.b_g2_msm)
        call.b_g2_end = self.loop.now
        joined.happen()

    def _finalise(self, call: CallTimes, joined: Event) -> Process:
        yield joined
        yield call.work.finish
        yield self._tracker.acquire()
        yield call.work.process
        self._tracker.release()
        self._place_free("finalised")
