"""The engine's lines: TIMELINE records on stderr, tracing lines on stdout."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gputrace.simulate.schedule import CallRecord, Schedule, SynthesisRecord
from gputrace.simulate.text import Fields, Printer, debug, option
from gputrace.simulate.variants import LogVariant

_PIPELINE, _POOL = "cuzk_core::pipeline", "cuzk_core::pinned_pool"
_CIRCUITS = {
    "porep-c2": "porep-32g",
    "snap-update": "snap-32g",
    "window-post": "wpost-32g",
    "winning-post": "winning-32g",
}
_GIB = 1 << 30
_BEFORE = 8e-6
_ON_GPU = ("ntt", "batch_add", "tail")


@dataclass
class Run:
    """One run of the prover being printed.

    `syntheses` are those of the schedule by partition; `hinted` says when the size of each kind's circuit was first
    known; `buffer_number` has, for each pinned allocation (synthesis, time), how many there were by then.
    """

    printer: Printer
    schedule: Schedule
    variant: LogVariant
    syntheses: dict[int, SynthesisRecord]
    hinted: dict[str, float]
    buffer_number: dict[tuple[int, float], int]

    @classmethod
    def of(cls, printer: Printer, schedule: Schedule, variant: LogVariant) -> "Run":
        """What is known of the whole run before its first line."""
        hinted: dict[str, float] = {}
        for synthesis in schedule.syntheses:
            kind = synthesis.work.kind
            hinted[kind] = min(hinted.get(kind, math.inf), math.inf if math.isnan(synthesis.end) else synthesis.end)
        allocations = sorted((at, s.index) for s in schedule.syntheses for at in s.allocated)
        numbers = {(index, at): count for count, (at, index) in enumerate(allocations, start=1)}
        return cls(printer, schedule, variant, {s.index: s for s in schedule.syntheses}, hinted, numbers)


def print_start(printer: Printer, schedule: Schedule) -> None:
    """What the engine says when it starts; offset 0 is taken just before the first of these."""
    limits = schedule.limits
    printer.tracing("main", 0.00002, "starting cuzk engine", {"pipeline_enabled": "true"})
    total = limits.gpus * limits.workers_per_gpu
    gpus = f"[{', '.join(map(str, range(limits.gpus)))}]"
    counts = {"num_gpus": limits.gpus, "gpu_workers_per_device": limits.workers_per_gpu, "total_workers": total}
    printer.tracing("main", 0.00009, "initializing GPU workers", {**counts, "gpus": gpus})
    for worker in range(total):
        gpu, sub_id = divmod(worker, limits.workers_per_gpu)
        ids = {"worker_id": worker, "gpu": gpu, "sub_id": sub_id}
        printer.tracing("main", 0.00012, "pipeline GPU worker started", ids)
    printer.tracing("main", 0.0002, "cuzk engine started")


def _is_snap(kind: str) -> bool:
    return kind == "snap-update"


def _detail(partition: int | None, key: str, otherwise: str) -> str:
    return otherwise if partition is None or not key else f"{key}={partition}"


def _told_partition(call: CallRecord) -> int | None:
    """The partition that the GPU worker knows: WindowPoSt and whole proofs have none."""
    return None if call.work.kind == "window-post" else call.work.partition


def print_synthesis(run: Run, synthesis: SynthesisRecord, first_of_job: bool) -> None:
    """The lines of one synthesis."""
    printer, schedule, variant = run.printer, run.schedule, run.variant
    work, clocks = synthesis.work, printer.clocks
    job, partition, snap = work.job, work.partition, _is_snap(work.kind)
    thread: object = ("synth", synthesis.index)
    ids: Fields = {"job_id": job, "partition": partition}
    start = synthesis.start
    if first_of_job:
        told = start if math.isnan(work.enqueued) else min(start, work.enqueued)
        count = schedule.partitions[job, work.attempt]
        enqueued = {"job_id": job, "proof_kind": work.kind, "priority": 1, "queue_position": 0}
        printer.tracing(thread, told, "job enqueued", enqueued, target="cuzk_core::scheduler")
        kind = "SnapDeals " if snap else ""
        message = f"dispatching per-partition {kind}synthesis (budget-gated)"
        printer.tracing(
            thread, start, message, {"job_id": job, "num_partitions": count, "budget_available_gib": "311.5"}
        )
    if synthesis.skipped:
        printer.tracing(thread, start, "skipping synthesis for failed job", ids)
        return
    key = variant.snap_partition if snap else variant.timeline_partition
    printer.timeline(thread, start, "SYNTH_START", job, _detail(partition, key, f"kind={work.kind}"))
    if math.isnan(synthesis.begun):
        return
    name = "synthesize_snap_deals_partition" if snap else "synthesize_partition"
    span = (name, {"job_id": debug(job), "partition": partition}) if partition is not None else None
    circuit: Fields = {"circuit_id": _CIRCUITS.get(work.kind, work.kind)}
    known = run.hinted[work.kind] < synthesis.begun
    hint = "using cached capacity hint for synthesis" if known else "no capacity hint cached — first synthesis grows"
    printer.tracing(thread, synthesis.begun, hint, circuit, target=_PIPELINE, span=span)
    if variant.timing_lines and work.pinned:
        _print_buffers(run, synthesis, span)
    if math.isnan(synthesis.queued):
        return
    end, by = synthesis.end, synthesis.queued
    synth_ms = clocks.steady_ms(synthesis.begun, end)
    size = {**circuit, "num_constraints": work.constraints, "num_aux": work.constraints * 29 // 30, "num_inputs": 1}
    early = end - 30 * _BEFORE
    printer.tracing(thread, early, "cached synthesis capacity hint", size, target=_PIPELINE, span=span, by=end)
    if partition is not None:
        done: dict[str, object] = {"partition": partition, "synth_ms": synth_ms}
        if variant.timing_lines:
            done["is_pinned"] = "true" if work.pinned else "false"
        message = f"{'SnapDeals ' if snap else ''}partition synthesis complete"
        printer.tracing(thread, end - 10 * _BEFORE, message, done, target=_PIPELINE, span=span, by=end)
    tail = f"synth_ms={synth_ms}"
    detail = f"{_detail(partition, key, '')},{tail}".lstrip(",")
    printer.timeline(thread, end, "SYNTH_END", job, detail, by=by - 2 * _BEFORE)
    if partition is None:
        spoken: tuple[str, Fields] = ("synthesis complete, sending to GPU", {"job_id": job, "synth_ms": synth_ms})
    else:
        spoken = (variant.snap_pushed if snap else variant.pushed, {**ids, "synth_ms": synth_ms})
    printer.tracing(thread, end, *spoken, by=by - _BEFORE)
    whole = "monolithic" if variant.queue_event == "GPU_QUEUE" else ""
    printer.timeline(thread, end, variant.queue_event, job, _detail(partition, key, whole), by=by)


def _print_buffers(run: Run, synthesis: SynthesisRecord, span: tuple[str, Fields] | None) -> None:
    """The pinned pool's lines: a buffer each for a, b and c, new or used again."""
    printer, work, thread = run.printer, synthesis.work, ("synth", synthesis.index)
    gib = _buffer_gib(work.constraints)
    asked = {"circuit_id": _CIRCUITS.get(work.kind, work.kind), "num_constraints": work.constraints, "scalar_size": 32}
    message = "attempting pinned memory synthesis"
    printer.tracing(thread, synthesis.begun, message, {**asked, "buf_gib": gib}, target=_PIPELINE, span=span)
    for at in synthesis.allocated:
        number = run.buffer_number[synthesis.index, at]
        fields = {"size_gib": gib, "total_buffers": number, "total_gib": gib * number}
        printer.tracing(thread, at, "pinned pool: allocated new buffer", fields, target=_POOL)
    if math.isnan(synthesis.work_begun):
        return
    for left in range(3 - work.new_buffers, 0, -1):
        fields = {"size_gib": gib, "free_remaining": left - 1}
        printer.tracing(thread, synthesis.work_begun, "pinned pool: checkout (reuse)", fields, target=_POOL)
    message = "pinned prover created for partition synthesis"
    printer.tracing(thread, synthesis.work_begun, message, target=_PIPELINE, span=span)


def _buffer_gib(constraints: int) -> float:
    return math.ceil(constraints * 32 / 4096) * 4096 / _GIB


def print_call(run: Run, call: CallRecord, cpp: Callable[[], None]) -> None:
    """What a worker and the finalizer say of one pass; `cpp` prints the C++ lines at their place."""
    if math.isnan(call.pickup):
        return
    printer, variant = run.printer, run.variant
    work, clocks, partition = call.work, printer.clocks, _told_partition(call)
    job, thread, worker = work.job, ("call", call.index), ("worker", call.worker)
    printer.join(thread, worker, ("synth", call.index))
    has_partition = partition is not None and bool(variant.timeline_partition)
    where = f"worker={call.worker},partition={partition}" if has_partition else f"worker={call.worker}"
    ids: Fields = {"worker_id": call.worker, "partition": option(partition)}
    of_span = {"worker_id": call.worker, "gpu": call.gpu, "job_id": job, "proof_kind": work.kind, "batch_size": 1}
    span: tuple[str, Fields] = ("gpu_worker", {**of_span, "partition": option(partition)})
    hot_path_end = math.inf if math.isnan(call.checked) else call.checked
    printer.timeline(thread, call.pickup, "GPU_PICKUP", job, where, by=hot_path_end - 3 * _BEFORE)
    if not variant.timing_lines:
        marker = {"batched": "false", "partitioned": "true", "partition": option(partition)}
        by = hot_path_end - 2 * _BEFORE
        printer.tracing(thread, call.pickup, "GPU worker picked up synthesized proof", marker, span=span, by=by)
    if call.skipped:
        fields = {"job_id": job, "partition": partition}
        message = "skipping GPU prove for failed partitioned job"
        printer.tracing(thread, call.pickup, message, fields, span=span, by=hot_path_end)
        printer.join(worker, thread)
        return
    if math.isnan(call.started):
        return
    if variant.timing_lines:
        shares = {
            "status_ms": clocks.steady_ms(call.pickup, call.status_end),
            "fail_check_ms": clocks.steady_ms(call.status_end, call.checked),
            "mark_busy_ms": 0,
            "total_overhead_ms": clocks.steady_ms(call.pickup, call.started),
        }
        message = "GPU_TIMING hot_path pre-prove overhead"
        printer.tracing(thread, call.started - 2 * _BEFORE, message, {**ids, **shares}, span=span, by=call.started)
    printer.timeline(thread, call.started, "GPU_START", job, where, by=call.entry)
    cpp()
    if math.isnan(call.returned):
        return
    # The worker goes on to its next turn when it has said all this.
    free = call.returned + run.schedule.limits.turn_around
    if work.pinned and variant.timing_lines and call.outcome not in _ON_GPU:
        for _ in range(3):
            gib = {"size_gib": _buffer_gib(work.constraints)}
            printer.tracing(thread, call.unlock + _BEFORE, "pinned pool: checkin", gib, target=_POOL, by=call.returned)
    if call.outcome in _ON_GPU:
        _print_panic(printer, thread, call.returned, f"{call.outcome}: CUDA error", by=free)
    elif variant.timing_lines:
        spent = {
            "spawn_to_enter_ms": clocks.steady_ms(call.started, call.entry),
            "prove_start_ms": clocks.steady_ms(call.entry, call.returned),
        }
        printer.tracing(thread, call.returned, "GPU_TIMING spawn_blocking prove_start", {**ids, **spent}, by=free)
    if variant.timing_lines:
        wall = {
            "total_pre_prove_ms": clocks.steady_ms(call.pickup, call.returned + 5e-5),
            "spawn_blocking_wall_ms": clocks.steady_ms(call.started, call.returned + 5e-5),
        }
        message = "GPU_TIMING prove_start returned"
        printer.tracing(thread, call.returned + 5e-5, message, {**ids, **wall}, span=span, by=free)
    if call.outcome in _ON_GPU:
        fields = {"job_id": job, "partition": partition, "error": "task 17 panicked"}
        message = "GPU prove start task panicked"
        printer.tracing(thread, call.returned + 6e-5, message, fields, level="ERROR", span=span, by=free)
    printer.join(worker, thread)


def _print_panic(printer: Printer, thread: object, at: float, message: str, by: float = math.inf) -> None:
    where = "thread 'tokio-runtime-worker' panicked at cuzk-core/src/pipeline.rs:1187:14:"
    for text in (where, message, "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"):
        printer.native(thread, at, text, by)


def print_job_ends(run: Run) -> None:
    """What the finalizers say, in the order in which they get the job tracker."""
    done: dict[tuple[str, int], list[CallRecord]] = {}
    calls = [call for call in run.schedule.calls if not math.isnan(call.joined)]
    for call in sorted(calls, key=lambda call: call.joined + call.tracker_wait):
        key = (call.work.job, call.work.attempt)
        own = done.setdefault(key, [])
        if call.outcome in ("ok", "open"):
            own.append(call)
        _print_finalizer(run, call, own)


def _print_finalizer(run: Run, call: CallRecord, done: list[CallRecord]) -> None:
    printer, variant = run.printer, run.variant
    work, clocks, partition = call.work, printer.clocks, _told_partition(call)
    job, thread = work.job, ("fin", call.index)
    printer.join(thread, ("call", call.index), ("prep", call.index))
    ids: Fields = {"job_id": job, "partition": work.partition}
    at, tracked = call.joined, call.joined + call.tracker_wait
    filled = len(done) == run.schedule.partitions[job, work.attempt] and call.outcome in ("ok", "open")
    if call.outcome == "finalize":
        _print_panic(printer, thread, at, "finalize: invalid point")
        fields = {**ids, "error": "task 23 panicked"}
        printer.tracing(thread, at, "partition GPU proving task panicked", fields, level="ERROR")
    else:
        gpu_ms = clocks.steady_ms(call.entry, call.finished)
        proof: Fields = {"proof_count": work.num_circuits, "proof_bytes": 192 * work.num_circuits, "gpu_ms": gpu_ms}
        if variant.split_api:
            printer.tracing(thread, at, "GPU prove complete (split)", proof, target=_PIPELINE)
        else:
            of = {"circuit_id": _CIRCUITS.get(work.kind, work.kind), "partition": option(partition)}
            printer.tracing(thread, at, "GPU prove complete", proof, target=_PIPELINE, span=("gpu_prove", of))
        told = work.partition is not None and bool(variant.timeline_partition)
        where = f"worker={call.worker},partition={work.partition}" if told else f"worker={call.worker}"
        printer.timeline(thread, at, "GPU_END", job, f"{where},gpu_ms={gpu_ms}")
    if math.isnan(tracked):
        return
    by = call.finalised - 2 * _BEFORE if not math.isnan(call.finalised) else math.inf
    if call.outcome == "discarded":
        printer.tracing(thread, tracked, "discarding GPU result for failed job", ids, by=by)
    elif call.outcome != "finalize" and work.partition is not None:
        fields = {**ids, "gpu_ms": gpu_ms, "filled": int(filled)}
        printer.tracing(thread, tracked, "partition GPU prove complete", fields, by=by)
    if math.isnan(call.finalised):
        return
    if filled:
        own = [run.syntheses[c.index] for c in done]
        sums = {
            "job_id": job,
            "proof_len": 192 * len(done),
            "total_ms": clocks.steady_ms(min(s.start for s in own), call.finished),
            "synth_ms": sum(clocks.steady_ms(s.begun, s.end) for s in own),
            "gpu_ms": sum(clocks.steady_ms(c.entry, c.finished) for c in done),
        }
        printer.tracing(thread, tracked, "Phase 7: all partitions complete, proof assembled", sums, by=by)
    if not variant.timing_lines:
        return
    trim_ms = clocks.steady_ms(0.0, work.process)
    path = "discard" if call.outcome == "discarded" else "success"
    if call.outcome != "finalize":
        fields = {**ids, "malloc_trim_ms": trim_ms}
        printer.tracing(thread, by - 4 * _BEFORE, f"FIN_TIMING malloc_trim ({path} path)", fields, by=by)
    finish_ms, wait_ms = clocks.steady_ms(call.returned, call.joined), clocks.steady_ms(0.0, call.tracker_wait)
    steps = {
        "finish_ms": finish_ms, "drop_res_ms": 0, "lock_wait_ms": wait_ms, "process_ms": trim_ms,
        "total_ms": clocks.steady_ms(call.returned, call.finalised),
    }  # fmt: skip
    whole = partition is None
    who: Fields = {"worker_id": call.worker} if whole else {"worker_id": call.worker, "partition": option(partition)}
    kind = "monolithic" if whole else "partition"
    printer.tracing(thread, by, f"FIN_TIMING finalizer {kind}", {**who, **steps}, by=by + _BEFORE)
