"""The metrics of a run, by the Prometheus conventions: base units, `_total` for what only grows.

Labels take values from short lists (GPUs, workers, phases, causes, states, directions): no job and no call has a
series of its own. docs/metrics.md is checked against this.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Metric, ProcessCollector
from prometheus_client.registry import Collector

from gputrace import __version__
from gputrace.analysis.blame import UNEXPLAINED
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.headline import main_cause
from gputrace.analysis.hypotheses import ALL
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.live.recorder_rows import LATE_MS, RowCounts
from gputrace.live.tally import Increment
from gputrace.trace import Clock

# Phases last from under a millisecond (warm allocations) to tens of seconds (waits for the mutex).
PHASE_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
CLOCK_METHODS = ("timeline+tracing", "wrapper", "receipt", "correlation", "none")
CAUSES = (*(hypothesis.id for hypothesis in ALL), UNEXPLAINED)
# So that a prover with numbers gone wild cannot fill the monitoring system.
MOST_WORKERS = 256


@dataclass(frozen=True)
class Described:
    """What there is to know of a metric: `kind` is counter, gauge, histogram or info."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Metrics(Collector):
    """All metrics. A scrape sees whole updates only: holding `update` keeps it off."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.update = threading.RLock()
        self.described: list[Described] = []
        self._inner = CollectorRegistry()
        self._workers: set[int] = set()
        self._make_counters()
        self._make_recorder_counters()
        self._make_gauges()
        ProcessCollector(registry=self._inner)
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """For the registry that is served."""
        with self.update:
            return list(self._inner.collect())

    def describe(self) -> Iterable[Metric]:
        """For the registry: nothing is collected to learn the names."""
        return []

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.described.append(Described(name, "counter", labels, meaning))
        return Counter(name, meaning, labels, registry=self._inner)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        self.described.append(Described(name, "gauge", labels, meaning))
        return Gauge(name, meaning, labels, registry=self._inner)

    def _make_counters(self) -> None:
        new = self._counter
        self.payload = new(
            "gputrace_pcie_payload_bytes_total", "Bytes copied over PCIe in counted time", "gpu", "direction"
        )
        self.wire = new(
            "gputrace_pcie_wire_bytes_total", "The same with packet headers, as the link carries it", "gpu", "direction"
        )
        self.state = new("gputrace_state_seconds_total", "Counted time by what the GPU did", "gpu", "state")
        self.lost = new("gputrace_lost_seconds_total", "Copy-only and idle time by cause", "gpu", "cause", "state")
        by = ("gpu", "worker")
        self.completed = new("gputrace_calls_completed_total", "Calls with all of their GPU lines", *by)
        self.failed = new("gputrace_calls_failed_total", "Calls for which the prover reported an error", *by)
        self.incomplete = new(
            "gputrace_calls_incomplete_total", "Calls that never got all of their GPU lines and did not fail", *by
        )
        self.uncounted = new(
            "gputrace_uncounted_seconds_total", "Time without a finished call, too long to wait for one", "gpu"
        )
        name, meaning = "gputrace_phase_duration_seconds", "Durations of the phases of complete calls"
        self.described.append(Described(name, "histogram", ("gpu", "phase"), meaning))
        self.phases = Histogram(name, meaning, ("gpu", "phase"), buckets=PHASE_BUCKETS_S, registry=self._inner)

    def _make_recorder_counters(self) -> None:
        new = self._counter
        self.rows = new("gputrace_recorder_rows_total", "Rows that the recorder wrote", "gpu")
        self.late = new("gputrace_recorder_late_rows_total", f"Rows more than {LATE_MS:g} ms late", "gpu")
        self.holes = new("gputrace_recorder_holes_total", "Rows before which nothing was observed", "gpu")
        self.failed_reads = new("gputrace_recorder_failed_reads_total", "Readings that failed", "gpu")
        self.updates = new("gputrace_exporter_updates_total", "Looks at the capture")
        self.errors = new("gputrace_exporter_update_errors_total", "Looks at the capture that failed")

    def _make_gauges(self) -> None:
        new = self._gauge
        self.link_limit = new(
            "gputrace_link_limit_bytes_per_second", "What the PCIe link carries one way, wire bytes", "gpu"
        )
        self.line_rate = new(
            "gputrace_line_rate_bytes_per_second", "Highest payload rate that the run sustained lately", "gpu"
        )
        self.held = new("gputrace_mutex_held_ratio", "Share of the time with the GPU mutex held, lately", "gpu")
        self.supported = new("gputrace_verdict_supported", "1 where the evidence of late supports this cause", "cause")
        self.undetermined = new("gputrace_verdict_undetermined", "1 where the evidence of late leaves it open", "cause")
        self.main_cause = new("gputrace_main_cause", "1 for the supported cause that lost most, lately", "cause")
        self.counted_until = new(
            "gputrace_counted_until_timestamp_seconds", "Up to when time is counted, Unix time", "gpu"
        )
        self.last_row = new("gputrace_recorder_last_row_timestamp_seconds", "End of the newest row, Unix time", "gpu")
        self.clock_method = new("gputrace_clock_method", "1 for how log lines were put on the wall clock", "method")
        self.clock_uncertainty = new(
            "gputrace_clock_uncertainty_seconds", "How far log lines may be off on the samples' clock"
        )
        self.clock_uncertainty.set(float("nan"))
        self.took = new("gputrace_exporter_update_duration_seconds", "How long the last look took")
        self.described.append(Described("gputrace_build_info", "info", ("version",), "Version of gputrace; always 1"))
        Info("gputrace_build", "Version of gputrace", registry=self._inner).info({"version": __version__})

    def know_gpu(self, gpu: int) -> None:
        """Begins this GPU's series at 0, so that their first increase is seen."""
        for direction in ("rx", "tx"):
            self.payload.labels(gpu, direction)
            self.wire.labels(gpu, direction)
        for state in ("compute", "copy_only", "idle"):
            self.state.labels(gpu, state)
        for cause in CAUSES:
            self.lost.labels(gpu, cause, "copy_only")
            self.lost.labels(gpu, cause, "idle")

    def add(self, found: Increment) -> None:
        """Adds what a part of the run adds."""
        for (gpu, state), seconds in found.state_s.items():
            self.know_gpu(gpu)
            self.state.labels(gpu, state).inc(max(seconds, 0.0))
        for (gpu, direction), size in found.payload_bytes.items():
            self.payload.labels(gpu, direction).inc(max(size, 0.0))
            self.wire.labels(gpu, direction).inc(max(size, 0.0) * WIRE_PER_PAYLOAD_OF[direction])
        for (gpu, cause, state), seconds in found.lost_s.items():
            self.lost.labels(gpu, cause, state).inc(max(seconds, 0.0))
        for call in found.calls:
            worker = self._worker(call.worker)
            counters = (self.completed, self.failed, self.incomplete)
            outcomes = (call.complete, call.failed, not call.complete and not call.failed)
            for counter, counts in zip(counters, outcomes, strict=True):
                counter.labels(call.gpu, worker).inc(float(counts))
            for phase, seconds in call.phases_s.items():
                self.phases.labels(call.gpu, phase).observe(seconds)

    def add_rows(self, counts: dict[int, RowCounts]) -> None:
        """Adds what the recorder wrote since the last time, by GPU as it numbers them."""
        for gpu, found in counts.items():
            self.rows.labels(gpu).inc(found.rows)
            self.late.labels(gpu).inc(found.late)
            self.holes.labels(gpu).inc(found.holes)
            self.failed_reads.labels(gpu).inc(found.failed_reads)
            self.last_row.labels(gpu).set(found.last_ns / 1e9)

    def leave_uncounted(self, seconds: dict[int, float]) -> None:
        """Adds time that will not be counted."""
        for gpu, uncounted_s in seconds.items():
            self.uncounted.labels(gpu).inc(uncounted_s)

    def show(self, diagnosis: Diagnosis, clock: Clock, counted_ns: dict[int, int]) -> None:
        """Sets what the newest part of the run says now."""
        for gpu in diagnosis.gpus:
            for gauge, value in (
                (self.link_limit, gpu.link_limit_bytes_per_s),
                (self.line_rate, gpu.line_rate_bytes_per_s),
                (self.held, gpu.mutex_held_share),
            ):
                gauge.labels(gpu.gpu).set(float("nan") if value is None else value)
        main = main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses)
        for finding in diagnosis.hypotheses:
            self.supported.labels(finding.id).set(finding.verdict == "supported")
            self.undetermined.labels(finding.id).set(finding.verdict == "undetermined")
            self.main_cause.labels(finding.id).set(finding.id == main)
        for method in CLOCK_METHODS:
            self.clock_method.labels(method).set(method == clock.method)
        self.clock_uncertainty.set(float("nan") if clock.uncertainty_s is None else clock.uncertainty_s)
        for number, until_ns in counted_ns.items():
            self.counted_until.labels(number).set(until_ns / 1e9)

    def _worker(self, worker: int | None) -> str:
        if worker is None:
            return "unknown"
        if worker not in self._workers and len(self._workers) >= MOST_WORKERS:
            return "other"
        self._workers.add(worker)
        return str(worker)
