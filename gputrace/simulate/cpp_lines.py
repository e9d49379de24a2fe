"""The C++ lines of one call: CUZK_TIMING and CUZK_NTT_H, each printed at the end of what it measures."""

import math

from gputrace.simulate.schedule import NTT_PHASES, CallRecord
from gputrace.simulate.text import Printer
from gputrace.simulate.variants import LogVariant

_MIB = 1 << 20
# What is printed before a thread lets others go on is written this long before that.
_BEFORE = 8e-6


def print_cpp(printer: Printer, variant: LogVariant, call: CallRecord) -> None:
    """All C++ lines of a call that it lived to print. Threads: ("call", n), which is joined with ("prep", n)."""
    if math.isnan(call.entry) or (variant.whole_call_mutex and math.isnan(call.lock)):
        return
    thread: object = ("call", call.index)
    entry = call.lock if variant.whole_call_mutex else call.entry
    if math.isnan(call.split_end):
        return
    split_ms = printer.clocks.wall_ms(max(entry, call.split_end - call.work.split_vectors), call.split_end)
    setup_ms = printer.clocks.wall_ms(entry, call.split_end)
    if variant.prestage:
        _timing(printer, thread, entry + 1e-5, "host_register=fallback err=801", by=call.split_end - 2 * _BEFORE)
    _timing(
        printer, thread, call.split_end - _BEFORE, f"split_vectors_ms={split_ms} setup_to_split_ms={setup_ms}",
        by=call.split_end - _BEFORE / 2,
    )  # fmt: skip
    _print_prep(printer, call)
    if math.isnan(call.lock):
        return
    if variant.lock_lines:
        clocks = printer.clocks
        pre_lock_ms, wait_ms = clocks.steady_ms(call.entry, call.asked), clocks.steady_ms(call.asked, call.lock)
        at = call.printed("lock", call.lock)
        _timing(printer, thread, at, f"pre_lock_cpu_ms={pre_lock_ms} mutex_wait_ms={wait_ms}")
    if variant.prestage:
        _print_prestage(printer, variant, call)
    _print_gpu(printer, variant, call)
    _print_end(printer, variant, call)


def _timing(printer: Printer, thread: object, at: float, text: str, by: float = math.inf) -> None:
    if not math.isnan(at):
        printer.native(thread, at, f"CUZK_TIMING: {text}", by)


def _print_prep(printer: Printer, call: CallRecord) -> None:
    thread: object = ("prep", call.index)
    printer.join(thread, ("call", call.index))
    ms = printer.clocks.steady_ms
    if not math.isnan(call.prep_end):
        # Printed before the barrier is told.
        text = f"prep_msm_ms={ms(call.split_end, call.prep_end)}"
        _timing(printer, thread, call.prep_end - _BEFORE, text, by=call.prep_end)
    if not math.isnan(call.b_g2_end):
        text = f"b_g2_msm_ms={ms(call.prep_end, call.b_g2_end)} num_circuits={call.work.num_circuits}"
        _timing(printer, thread, call.b_g2_end - _BEFORE, text, by=call.b_g2_end)


def _print_prestage(printer: Printer, variant: LogVariant, call: CallRecord) -> None:
    thread: object = ("call", call.index)
    domain = 1 << call.work.domain_log2
    need_da = 32 * domain // _MIB
    # Free at first, then not: both outcomes are in a log.
    enough = call.index % 5 != 4
    free = 15_000 if enough else 9_000
    vram = f"free_mib={free} usable_mib={free - 512} need_da_mib={need_da} need_dbc_mib={2 * need_da} total_mib=16384"
    by = call.gpu_begin - _BEFORE
    _timing(printer, thread, call.lock, f"prestage_vram {vram}", by=by)
    done = f"prestage_setup=ok domain={domain} lot_of_memory=1"
    if variant.prestage == "timed":
        done += " sync_ms=0 trim_ms=1 alloc_ms=4 upload_ms=12 total_ps_ms=18"
    _timing(printer, thread, call.lock, done if enough else "prestage_setup=skip_vram", by=by)


def _print_gpu(printer: Printer, variant: LogVariant, call: CallRecord) -> None:
    """The GPU thread's lines. It is joined before the call's last line, so both are one thread here."""
    thread: object = ("call", call.index)
    ms = printer.clocks.steady_ms
    if variant.ntt_h and call.warmup:
        _timing(printer, thread, call.gpu_begin, f"set pool release threshold to MAX on gpu {call.gpu}")
    if variant.ntt_h and call.new_domain:
        domain_mib = (32 << call.work.domain_log2) // _MIB
        alloc = call.span("d_b_alloc")
        at = alloc.start if alloc else call.gpu_begin
        _timing(printer, thread, at, f"d_a_cache allocated {domain_mib} MiB on gpu {call.gpu}")
    for circuit in range(call.work.num_circuits if variant.ntt_h else 0):
        spans = [call.span(name, circuit) for name in NTT_PHASES]
        done = [span for span in spans if span is not None]
        if len(done) == len(NTT_PHASES):
            parts = " ".join(f"{s.name}={printer.clocks.wall_ms(s.start, s.end)}ms" for s in done)
            total_ms = printer.clocks.wall_ms(done[0].start, done[-1].end)
            at = call.printed(f"ntt_h {circuit}", done[-1].end)
            printer.native(thread, at, f"CUZK_NTT_H: {parts} total={total_ms}ms")
    if not math.isnan(call.ntt_end):
        at = call.printed("ntt_msm_h", call.ntt_end)
        _timing(printer, thread, at, f"gpu_tid=0 ntt_msm_h_ms={ms(call.gpu_begin, call.ntt_end)}")
    if variant.lock_lines and not math.isnan(call.barrier_end):
        at = call.printed("barrier", call.barrier_end)
        _timing(printer, thread, at, f"gpu_tid=0 barrier_wait_ms={ms(call.barrier_begin, call.barrier_end)}")
    batch, tail = call.span("batch_add"), call.span("tail_msm")
    if batch is not None and call.outcome != "batch_add":
        at = call.printed("batch_add", batch.end)
        _timing(printer, thread, at, f"gpu_tid=0 batch_add_ms={ms(batch.start, batch.end)}")
    if tail is not None and not math.isnan(call.gpu_end):
        text = f"tail_msm_ms={ms(tail.start, tail.end)} gpu_total_ms={ms(call.gpu_begin, call.gpu_end)}"
        # Joined before unlock.
        at = call.printed("tail_msm", tail.end)
        _timing(printer, thread, at, f"gpu_tid=0 {text}", by=at + call.work.after_gpu / 2)


def _print_end(printer: Printer, variant: LogVariant, call: CallRecord) -> None:
    thread: object = ("call", call.index)
    ms = printer.clocks.steady_ms
    if math.isnan(call.unlock):
        return
    if variant.lock_lines:
        held_ms, total_ms = ms(call.lock, call.held_end), ms(call.entry, call.held_end)
        # The last act before unlock; where the log makes its thread wait, the figures are from before.
        text = f"mutex_held_ms={held_ms} total_start_fn_ms={total_ms}"
        _timing(printer, thread, call.unlock - _BEFORE, text, by=call.unlock)
    if variant.epilogue and not math.isnan(call.returned):
        total_ms = ms(call.entry, call.unlock)
        by = call.unlock if variant.whole_call_mutex else call.returned
        text = f"epilogue_ms=0 pre_destructor_ms={total_ms}"
        printer.join(thread, ("prep", call.index))
        _timing(printer, thread, by - _BEFORE, text, by=by)
    if not math.isnan(call.dealloc_end):
        dealloc: object = ("dealloc", call.index)
        printer.join(dealloc, ("prep", call.index))
        dealloc_ms = printer.clocks.wall_ms(call.dealloc_begin, call.dealloc_end)
        _timing(printer, dealloc, call.dealloc_end, f"async_dealloc_ms={dealloc_ms}")
