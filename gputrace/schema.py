"""The frames of a `Trace` and a `Diagnosis`: columns, units and meaning. The data dictionary is made from this.

Times are integer Unix nanoseconds (`*_ns`); a null time means that nothing places the row on the wall clock.
Durations printed by the prover stay whole milliseconds (`*_ms`). Bytes are bytes; `wire` counts what crossed
the link, packet headers included, `payload` what was copied.
"""

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Column:
    """One column of a frame: its type and, in a sentence, what it means."""

    dtype: pl.DataType
    meaning: str


@dataclass(frozen=True, eq=False)
class FrameSchema:
    """A frame's name, meaning and columns."""

    name: str
    meaning: str
    columns: dict[str, Column]

    def polars(self) -> pl.Schema:
        """The polars schema of this frame."""
        return pl.Schema({name: column.dtype for name, column in self.columns.items()})

    def empty(self) -> pl.DataFrame:
        """A frame without rows."""
        return pl.DataFrame(schema=self.polars())

    def fit(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with exactly these columns: missing ones null, others dropped, types cast."""
        if not frame.width:
            return self.empty()
        return frame.select(
            (pl.col(name) if name in frame.columns else pl.lit(None)).cast(column.dtype).alias(name)
            for name, column in self.columns.items()
        )


_NS, _MS, _TEXT, _INT, _FLOAT, _BOOL = (
    pl.Int64(),
    pl.Int64(),
    pl.String(),
    pl.Int32(),
    pl.Float64(),
    pl.Boolean(),
)

MARKS = FrameSchema(
    "marks",
    "recognised log records, in the order of the log",
    {
        "source": Column(pl.UInt16(), "index of the input in `Trace.inputs`"),
        "line": Column(pl.UInt32(), "line number in that input, from 1; of the record's first piece if torn"),
        "stream": Column(_TEXT, "stdout or stderr where the wrapper says which, else null"),
        "family": Column(_TEXT, "the line's format: cuzk-timing, cuzk-ntt-h, timeline, tracing"),
        "event": Column(_TEXT, "which record of the family it is"),
        "log_ns": Column(_NS, "time printed in the line itself (tracing: UTC)"),
        "arrival_ns": Column(_NS, "time that a wrapper (docker, ...) stamped on the line"),
        "offset_ms": Column(_MS, "TIMELINE: milliseconds since the engine's start"),
        "job": Column(_TEXT, "job id, where the line names one"),
        "worker": Column(_INT, "GPU worker, where the line names one"),
        "partition": Column(_INT, "partition, where the line names one"),
        "gpu": Column(_INT, "GPU as the prover numbers it, where the line names one"),
        "values": Column(
            pl.List(pl.Struct({"key": pl.String(), "value": pl.String()})),
            "every other key=value of the line, as text, known or not",
        ),
        "repaired": Column(_BOOL, "the record had been torn by other writes and was put together again"),
    },
)

CALLS = FrameSchema(
    "calls",
    "passes through the GPU proving function: one partition on one GPU",
    {
        "call": Column(pl.UInt32(), "number of the call, in order of the log"),
        "source": Column(pl.UInt16(), "index of the input that holds the call's first line"),
        "restart": Column(pl.UInt16(), "which run of the prover, counted over restarts in the log"),
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "worker": Column(_INT, "GPU worker"),
        "job": Column(_TEXT, "job id"),
        "partition": Column(_INT, "partition of the job"),
        "kind": Column(_TEXT, "proof kind"),
        "pinned": Column(_BOOL, "a/b/c lie in pinned memory, as the log says (is_pinned); null if it does not"),
        "complete": Column(_BOOL, "all of the call's GPU lines are there"),
        "failed": Column(_BOOL, "the prover reported an error for it, and its proof was not finished"),
        "missing": Column(_TEXT, "kinds of GPU lines that it lacks, where it is not complete"),
        "warmup": Column(_BOOL, "first call on its GPU after a start: allocates, so it is not typical"),
        "start_ns": Column(_NS, "entry into the function"),
        "lock_ns": Column(_NS, "GPU mutex taken"),
        "unlock_ns": Column(_NS, "GPU mutex given back"),
        "end_ns": Column(_NS, "the worker is free again: a/b/c released, function returned to the engine"),
        "finish_ns": Column(_NS, "proof finalised (GPU_END)"),
        "uncertainty_ms": Column(_FLOAT, "half-width of the error of lock_ns and unlock_ns"),
        "residual_ms": Column(_FLOAT, "how far the log's own figures disagree under this binding; small is sure"),
        "num_circuits": Column(_INT, "circuits proved in this call"),
        "pre_lock_cpu_ms": Column(_MS, "entry to the request for the mutex"),
        "mutex_wait_ms": Column(_MS, "wait for the mutex"),
        "mutex_held_ms": Column(_MS, "mutex held"),
        "gpu_total_ms": Column(_MS, "GPU thread, start to the end of the tail MSMs"),
        "ntt_msm_h_ms": Column(_MS, "NTT and H MSM of all circuits"),
        "total_start_fn_ms": Column(_MS, "entry to unlock"),
        "prep_msm_ms": Column(_MS, "CPU preparation of the MSMs"),
        "b_g2_msm_ms": Column(_MS, "CPU MSM in G2"),
        "release_abc_ms": Column(_MS, "unlock to the function's return: freeing a/b/c"),
        "gpu_ms": Column(_MS, "entry to finalised proof, as GPU_END prints it"),
        "first_line": Column(pl.UInt32(), "first log line of the call's mutex-held block"),
        "last_line": Column(pl.UInt32(), "last log line of that block"),
    },
)

PHASES = FrameSchema(
    "phases",
    "named, timed parts of calls",
    {
        "call": Column(pl.UInt32(), "the call it belongs to"),
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "worker": Column(_INT, "GPU worker"),
        "name": Column(_TEXT, "phase name, as in the glossary"),
        "duration_ms": Column(_MS, "duration as printed, or derived where the phase has no line of its own"),
        "start_ns": Column(_NS, "start on the wall clock"),
        "end_ns": Column(_NS, "end on the wall clock"),
        "uncertainty_ms": Column(_FLOAT, "half-width of the error of both ends"),
        "under_mutex": Column(_BOOL, "the GPU mutex is held during it"),
        "source": Column(pl.UInt16(), "index of the input that holds that line"),
        "line": Column(pl.UInt32(), "log line that reports it"),
    },
)

SYNTHESES = FrameSchema(
    "syntheses",
    "circuit syntheses on the CPU, from TIMELINE and tracing lines",
    {
        "job": Column(_TEXT, "job id"),
        "partition": Column(_INT, "partition"),
        "restart": Column(pl.UInt16(), "which run of the prover"),
        "start_ns": Column(_NS, "SYNTH_START"),
        "end_ns": Column(_NS, "SYNTH_END"),
        "queued_ns": Column(_NS, "GPU_QUEUE: handed to the GPU workers"),
        "picked_up_ns": Column(_NS, "GPU_PICKUP: a worker took it"),
        "synth_ms": Column(_MS, "as printed"),
        "pinned": Column(_BOOL, "a/b/c were synthesised into pinned buffers"),
        "line": Column(pl.UInt32(), "log line of SYNTH_START"),
    },
)

SAMPLES = FrameSchema(
    "samples",
    "readings of one GPU, each over one interval",
    {
        "gpu": Column(_INT, "GPU as the trace numbers it"),
        "start_ns": Column(_NS, "start of the interval"),
        "end_ns": Column(_NS, "end of the interval"),
        "rx_wire_bytes": Column(_FLOAT, "wire bytes into the GPU (host to device) during the interval"),
        "tx_wire_bytes": Column(_FLOAT, "wire bytes out of the GPU during the interval"),
        "coverage": Column(
            _FLOAT, "share of the interval that the PCIe reading saw: 1 for counters, 0.2 for a 20 ms window"
        ),
        "sm_active": Column(_FLOAT, "share of the interval with SMs active, 0..1, corrected for lag"),
        "gpu_util": Column(_FLOAT, "utilization.gpu, 0..1: counts copy engines on recent drivers"),
        "sm_clock_mhz": Column(_FLOAT, "SM clock"),
        "power_w": Column(_FLOAT, "board power"),
        "memory_used_mib": Column(_FLOAT, "GPU memory in use"),
        "link_gen": Column(_INT, "PCIe generation at the time"),
        "link_width": Column(_INT, "PCIe lanes at the time"),
        "sm_clock_max_mhz": Column(_FLOAT, "highest SM clock that the GPU can run at"),
        "clock_event_reasons": Column(pl.Int64(), "NVML's bit mask of why clocks are what they are"),
        "link_gen_max": Column(_INT, "highest PCIe generation of GPU and slot"),
        "link_width_max": Column(_INT, "most PCIe lanes of GPU and slot"),
        "pcie_replays": Column(pl.Int64(), "packets that the link sent again, counted since the driver was loaded"),
        "other_processes": Column(_INT, "processes other than the prover that compute on this GPU"),
        "over_limit": Column(_BOOL, "the reading exceeded what the link can carry and was not believed"),
    },
)

HOST = FrameSchema(
    "host",
    "readings of the host, each over one interval",
    {
        "start_ns": Column(_NS, "start of the interval"),
        "end_ns": Column(_NS, "end of the interval"),
        "cpu_share": Column(_FLOAT, "share of all cores busy, 0..1"),
        "memory_used_mib": Column(_FLOAT, "memory in use"),
        "page_faults_per_s": Column(_FLOAT, "page faults a second"),
    },
)

COPIES = FrameSchema(
    "copies",
    "single copies as a profiler recorded them; empty without such a trace",
    {
        "gpu": Column(_INT, "GPU as the trace numbers it"),
        "start_ns": Column(_NS, "start of the copy"),
        "end_ns": Column(_NS, "end of the copy"),
        "bytes": Column(pl.Int64(), "payload"),
        "kind": Column(_TEXT, "h2d, d2h, d2d, p2p or other"),
        "source_memory": Column(_TEXT, "where it was copied from: pageable, pinned, device, array, managed"),
        "target_memory": Column(_TEXT, "where it was copied to, in the same words"),
    },
)

STATES = FrameSchema(
    "states",
    "the account of each GPU's window: every interval divided into compute, copy-only and idle seconds",
    {
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "start_ns": Column(_NS, "start of the interval"),
        "end_ns": Column(_NS, "end of the interval"),
        "compute_s": Column(_FLOAT, "seconds with SMs active; the three parts add up to the interval"),
        "copy_only_s": Column(_FLOAT, "the rest, where rx or tx exceeds 1 % of the link"),
        "idle_s": Column(_FLOAT, "the rest otherwise"),
        "rx_bytes_per_s": Column(_FLOAT, "payload into the GPU (host to device), bytes per second"),
        "tx_bytes_per_s": Column(_FLOAT, "payload out of the GPU, bytes per second"),
    },
)

BLAME = FrameSchema(
    "blame",
    "the lost seconds of the states, each charged to one cause; they add up to all of them",
    {
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "start_ns": Column(_NS, "start of the stretch in which they were lost"),
        "end_ns": Column(_NS, "its end"),
        "call": Column(pl.UInt32(), "the call that held the mutex, or between holds the call that came next"),
        "phase": Column(
            _TEXT,
            "phase under the mutex (mutex_held: a part that no phase explains; in_call: no phase has a time), or what "
            "kept the next call: release_abc, no_work, pre_lock, pickup, between_calls",
        ),
        "source": Column(pl.UInt16(), "index of the input that holds that line"),
        "line": Column(pl.UInt32(), "log line that reports the phase"),
        "cause": Column(_TEXT, "what they are charged to: a hypothesis id, or unexplained"),
        "copy_only_s": Column(_FLOAT, "seconds lost while a copy ran"),
        "idle_s": Column(_FLOAT, "seconds lost while nothing ran"),
    },
)

CALL_BYTES = FrameSchema(
    "call_bytes",
    "what each phase of each call copied, and how busy the SMs were in it",
    {
        "call": Column(pl.UInt32(), "the call it belongs to"),
        "name": Column(_TEXT, "as `phase` in blame"),
        "mode": Column(_TEXT, "where the call's copy of a/b/c is: in-ntt, in-sync, unknown"),
        "bursting": Column(_BOOL, "pinned buffers were being allocated during it"),
        "seconds": Column(_FLOAT, "its length on the wall clock"),
        "rx_payload_bytes": Column(_FLOAT, "payload into the GPU during it; null where that cannot be resolved"),
        "rx_bytes_per_s": Column(_FLOAT, "the same per second of it"),
        "rx_method": Column(
            _TEXT, "overlap: measured in the samples of this very phase; fit: the mean of its kind by a joint fit"
        ),
        "sm_share": Column(_FLOAT, "share of it with SMs active, 0..1, by a joint fit of its kind"),
    },
)

FRAMES = (MARKS, CALLS, PHASES, SYNTHESES, SAMPLES, HOST, COPIES)
DIAGNOSIS_FRAMES = (STATES, BLAME, CALL_BYTES)

# Phases under the GPU mutex that contain no other, in the order of a call.
LEAVES_UNDER_MUTEX = (
    "d_b_alloc",
    "ntt_kernels",
    "coset_intt_sync",
    "msm_init",
    "msm_invoke",
    "msm_dtor",
    "barrier_wait",
    "batch_add",
    "tail_msm",
)
CONTAINS_OTHERS = ("mutex_held", "gpu_total", "ntt_msm_h")
PHASE_NAMES = (
    "pre_lock",
    "mutex_wait",
    *CONTAINS_OTHERS,
    *LEAVES_UNDER_MUTEX,
    "split_vectors",
    "prep_msm",
    "b_g2_msm",
    "release_abc",
    "async_dealloc",
)
