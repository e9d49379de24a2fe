"""Readings as counters: a value holds over the interval it was read for, and a hole is told as one.

Perfetto has no way to say that a counter has no value: it draws the last one until the next, and readers of the counter
table expect a number (so NaN, which becomes NULL there, is no way out). A counter therefore drops to 0 where its
reading ends, and a track beside it, `not read: NAME`, has a slice over exactly that hole. A 0 under such a slice is
not a reading.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.trace import Trace

# Intervals further apart than this have a hole between them.
_HOLE_NS = 1_000_000


@dataclass(frozen=True)
class Counter:
    """One counter: `readings` has start_ns, end_ns and value (null: not read), by time."""

    name: str
    unit: str
    description: str
    readings: pl.DataFrame


def gpu_counters(trace: Trace, diagnosis: Diagnosis, gpu: int | None, with_samples: bool) -> Iterator[Counter]:
    """What was read of one GPU, and the account of its time; only counters that have a reading."""
    seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    samples = trace.samples.filter(pl.col("gpu") == gpu) if with_samples else trace.samples.clear()
    states = diagnosis.states.filter(pl.col("gpu") == gpu) if diagnosis.states.height else None
    for direction, words in (("rx", "into the GPU"), ("tx", "out of the GPU")):
        rate = pl.col(f"{direction}_wire_bytes") / WIRE_PER_PAYLOAD_OF[direction] / seconds
        yield from _counter(f"{direction} payload", "B/s", f"payload bytes a second {words} over PCIe", samples, rate)
    for name, unit, words, column in (
        ("SM active", "share", "share of the interval with SMs active, 0..1", "sm_active"),
        ("utilization.gpu", "share", "as the driver says it, 0..1; may count copies", "gpu_util"),
        ("SM clock", "MHz", "SM clock", "sm_clock_mhz"),
        ("power", "W", "board power", "power_w"),
        ("GPU memory", "MiB", "GPU memory in use", "memory_used_mib"),
    ):
        yield from _counter(name, unit, words, samples, pl.col(column))
    if states is not None:
        for name in ("compute", "copy_only", "idle"):
            words = f"share of the interval accounted as {name.replace('_', '-')}, 0..1; the three add up to 1"
            share = pl.col(f"{name}_s") / seconds
            yield from _counter(f"state: {name.replace('_', '-')}", "share", words, states, share)


def host_counters(trace: Trace) -> Iterator[Counter]:
    """What was read of the host."""
    for name, unit, words, column in (
        ("CPU busy", "share", "share of all cores busy, 0..1", "cpu_share"),
        ("host memory", "MiB", "memory in use", "memory_used_mib"),
        ("page faults", "1/s", "page faults a second", "page_faults_per_s"),
    ):
        yield from _counter(name, unit, words, trace.host, pl.col(column))


def steps(readings: pl.DataFrame) -> Iterator[tuple[int, float | None]]:
    """(time, value) wherever a counter gets a value, or None where its reading ends and none follows at once."""
    held: tuple[int, float] | None = None
    for start_ns, end_ns, value in readings.select("start_ns", "end_ns", "value").iter_rows():
        if held is not None and (value is None or start_ns - held[0] > _HOLE_NS):
            yield min(held[0], start_ns), None
        held = None
        if value is not None:
            yield start_ns, value
            held = end_ns, value
    if held is not None:
        yield held[0], None


def _counter(name: str, unit: str, words: str, frame: pl.DataFrame, value: pl.Expr) -> Iterator[Counter]:
    lasting = frame.filter(pl.col("end_ns") > pl.col("start_ns"))
    known = value.cast(pl.Float64).fill_nan(None)
    readings = lasting.sort("start_ns").select("start_ns", "end_ns", known.alias("value"))
    if readings["value"].count():
        yield Counter(name, unit, words, readings)
