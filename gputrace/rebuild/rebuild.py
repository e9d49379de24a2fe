"""Marks and samples to a `Trace`: calls, phases and syntheses on one clock."""

from gputrace.ingest.inputs import Ingested
from gputrace.rebuild.attempts import collect_attempts, failed_partitions
from gputrace.rebuild.blocks import collect_blocks
from gputrace.rebuild.calls import assemble, time_bounds
from gputrace.rebuild.clock import clock_of, fit_epochs
from gputrace.rebuild.floating import attach_floating
from gputrace.rebuild.frames import calls_frame, count_placed
from gputrace.rebuild.gpus import infer_gpus, map_gpus
from gputrace.rebuild.holds import check_holds
from gputrace.rebuild.on_trace import align_with_samples, check_overlap, place_without_times
from gputrace.rebuild.phases import phases_frame
from gputrace.rebuild.sequence import Sequence, to_sequence
from gputrace.rebuild.syntheses import collect_syntheses
from gputrace.rebuild.timebounds import JITTER_MS
from gputrace.trace import Clock, Trace


def rebuild(ingested: Ingested, gpu_map: dict[int, int] | None = None) -> Trace:
    """A `Trace` of everything that was read. `gpu_map` (log GPU to trace GPU) overrides what is found.

    Where no line ties the log to the wall clock, times count from the engine's start and `clock.method` is none.
    """
    trace = Trace(
        inputs=ingested.inputs,
        marks=ingested.marks,
        samples=ingested.samples,
        host=ingested.host,
        copies=ingested.copies,
        gpus=ingested.gpus,
        quality=ingested.quality,
    )
    if ingested.marks.is_empty():
        return trace
    _rebuild_log(trace, ingested, gpu_map)
    return trace


def _rebuild_log(trace: Trace, ingested: Ingested, gpu_map: dict[int, int] | None) -> None:
    sequence = to_sequence(ingested.marks)
    if sequence.damaged:
        trace.quality.notice(
            "records-damaged", "records with a figure that is missing or cannot be were not used", sequence.damaged
        )
    epochs = fit_epochs(sequence)
    attempts = collect_attempts(sequence, epochs)
    bounds, strayed = time_bounds(sequence, epochs)
    if strayed:
        trace.quality.notice(
            "lines-out-of-time", "lines far out of the time of those around them: their times were not used", strayed
        )
    blocks = collect_blocks(sequence, bounds)
    # A stamp in whole seconds says no more than the second.
    arrival_error_ms = max(JITTER_MS, ingested.arrival_resolution_ns / 1e6)
    calls = assemble(blocks, attempts, bounds, arrival_error_ms)
    placement = place_without_times(calls, trace.samples) if not bounds.orders else None
    attach_floating(sequence, calls, bounds)
    inferred = infer_gpus(calls)
    if inferred > 1:
        trace.quality.notice(
            "gpus-inferred",
            f"the log names no GPU; from who held a mutex while whom, its workers share {inferred} GPUs",
        )
    trace.clock = clock_of(epochs, spoken=sequence.frame["log_ns"].count() > 0, stamped=ingested.arrival_method)
    if not epochs:
        trace.clock = placement or _clock_without_pairs(sequence, arrival_error_ms, ingested.arrival_method)
    trace.syntheses = collect_syntheses(sequence, epochs)
    trace.calls = calls_frame(calls, trace.syntheses, failed_partitions(sequence))
    trace.phases = phases_frame(calls, trace.calls)
    count_placed(trace.quality, calls, sequence)
    if trace.clock.method == "none":
        align_with_samples(trace)
    map_gpus(trace, gpu_map)
    check_overlap(trace)
    check_holds(trace)


def _clock_without_pairs(sequence: Sequence, arrival_error_ms: float, stamped: str) -> Clock:
    if sequence.frame["arrival_ns"].count():
        return Clock(method=stamped, unique=True, uncertainty_s=arrival_error_ms / 1e3)
    if sequence.frame["log_ns"].count() and not sequence.of("SYNTH_START", "GPU_START").height:
        # Tracing lines alone carry their own times.
        return Clock(method="timeline+tracing", unique=True, uncertainty_s=0.001)
    return Clock()
