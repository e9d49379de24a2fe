"""One GPU: its sources found by trying, and one row a step from those that answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from gputrace.sampler import driver, link
from gputrace.sampler.rows import SampleRow
from gputrace.sampler.sources import Counters, Gpm, Window

# How often each reading is taken, seconds (0: every row); the rows between repeat it. The driver itself renews
# utilization every 0.2 s and power every 0.1 s; the others change with the job or never.
READ_EVERY_S = {
    "gpu_util": 0.0,
    "sm_clock_mhz": 0.0,
    "clock_event_reasons": 0.0,
    "power_mw": 0.5,
    "memory_used_mib": 0.5,
    "link_gen": 0.5,
    "link_width": 0.5,
    "processes": 1.0,
    "pcie_replays": 2.0,
    "sm_clock_max_mhz": 10.0,
    "link_gen_max": 10.0,
    "link_width_max": 10.0,
}
# A row so much longer than the period is a hole, whatever the counters say: what happened in it has no place in it.
_HOLE_PERIODS = 2.0
# A window's thread reads at every row's period, or as often as its 41 ms let it; it is missed after so many rows.
_WINDOW_MISSED_ROWS = 10
_WINDOW_S = 0.020
_GPM_COLUMNS = ("gpm_rx_bytes_per_s", "gpm_tx_bytes_per_s", "gpm_sm_active", "gpm_dram_active")


@dataclass(frozen=True)
class Options:
    """What is read. `window`: the blocking throughput call always, never, or (auto) where nothing better works.

    `own_pids` gives the prover's process ids; without it every process is counted, none as somebody else's.
    """

    counters: bool = True
    gpm: bool = True
    readings: bool = True
    window: Literal["auto", "always", "never"] = "auto"
    own_pids: Callable[[], frozenset[int]] | None = None


class OneGpu:
    """Reads one GPU; DriverError leaves it only where the GPU or the driver is gone."""

    def __init__(self, index: int, period_s: float, clock: driver.Clock, options: Options) -> None:
        self.index = index
        self.lost: str | None = None
        self.facts: dict[str, str | None] = {}
        self.limit_bytes_per_s = link.limit_bytes_per_s(None, None)
        self.counters: Counters | None = None
        self.unavailable: dict[str, str] = {}
        self.news: list[dict[str, Any]] = []
        self._period_s, self._clock, self._options = period_s, clock, options
        self._gpm: Gpm | None = None
        self._window: Window | None = None
        self._read: dict[str, tuple[Callable[[], int], int, int]] = {}
        self._pids: tuple[Callable[[], list[int]], int] | None = None
        self._values: dict[str, Any] = {}
        self._failed: list[str] = []
        self._step = 0
        self._end_ns = clock.mono_ns()
        self._window_quiet = 0
        self._gpm_answered: set[str] = set()
        self._after_loss = False

    def bind(self, device: driver.Device) -> None:
        """Finds what this GPU offers; called again when it comes back, with its totals going on."""
        lost = self.lost is not None
        self.facts = device.facts()
        self.unavailable, self._values, self._step = {}, {}, 0
        self._bind_readings(device)
        self._bind_counters(device, reset=lost)
        if self._options.gpm:
            reader = self._try("gpm", device.gpm)
            self._gpm = Gpm(reader, self._clock) if reader else None
        if self._options.window != "never":
            read = self._try("window", device.throughput)
            self._window = Window(read, self._period_s) if read else None
            if self._window is not None and self._options.window == "always":
                self._window.start()
        self.lost = None
        self._after_loss = lost

    def release(self, reason: str | None) -> None:
        """Lets go of everything bound to the driver; with a reason the GPU counts as lost."""
        if reason is not None and self.lost is None:
            self.lost = reason
        if self._window is not None:
            self._window.stop()
        if self._gpm is not None and reason is None:
            try:
                self._gpm.close()
            except driver.DriverError as error:
                self._tell("close-failed", error.reason)
        self._window = self._gpm = None

    def sources(self) -> dict[str, bool]:
        """Which sources were found."""
        return {
            "counters": self.counters is not None and "counters" not in self.unavailable,
            "gpm": self._gpm is not None,
            "window": self._window is not None,
        }

    def poll(self) -> bool:
        """Reads the counters, at a row's end and between; whether that went well."""
        if self.counters is None or self.lost is not None or "counters" in self.unavailable:
            return False
        return self._guard("counters", self.counters.poll) is not None

    def row(self, deadline_ns: int) -> SampleRow:
        """What happened since the last row."""
        if self.lost is not None:
            return self.lost_row(deadline_ns)
        counted = self.poll()
        counters = self.counters
        if counters is not None and counted:
            mono_ns, wall_ns = counters.read_ns, counters.read_wall_ns
        else:
            mono_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
        length_ns = max(0, mono_ns - self._end_ns)
        # The length is the monotonic clock's: a step of the wall clock moves a row, it does not stretch one.
        cells: dict[str, Any] = {"t_start_ns": wall_ns - length_ns, "t_end_ns": wall_ns, "t_mono_ns": mono_ns}
        cells["late_ms"] = (mono_ns - deadline_ns) / 1e6
        seen = self._read_gpm(cells) + self._read_window(cells, length_ns / 1e9)
        if counted:
            self._judge_counters(seen)
        gap = False
        if counters is not None and counters.alive and "counters" not in self.unavailable:
            cells["pcie_source"] = "counters"
            if counted:
                cells["rx_wire_bytes_total"], cells["tx_wire_bytes_total"] = counters.rx_total, counters.tx_total
                gap = counters.take_gap()
        else:
            cells["pcie_source"] = self._second_source(cells)
        if self._options.readings:
            self._read_others()
        cells |= self._values
        power_mw = cells.pop("power_mw", None)
        cells["power_w"] = None if power_mw is None else power_mw / 1000
        cells["hole"] = gap or self._after_loss or length_ns > _HOLE_PERIODS * self._period_s * 1e9
        cells["failed"] = ";".join(dict.fromkeys(self._failed))
        self._failed, self._after_loss, self._end_ns = [], False, mono_ns
        self._step += 1
        return SampleRow(gpu=self.index, **cells)

    def lost_row(self, deadline_ns: int) -> SampleRow:
        """A row that says that this GPU was not there."""
        mono_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
        start_ns = wall_ns - max(0, mono_ns - self._end_ns)
        self._end_ns, self._failed = mono_ns, []
        late_ms = (mono_ns - deadline_ns) / 1e6
        return SampleRow(self.index, start_ns, wall_ns, mono_ns, late_ms, hole=True, failed=self.lost or "gpu_lost")

    def take_news(self) -> list[dict[str, Any]]:
        """What was noticed since this was last asked."""
        news, self.news = self.news, []
        return news

    def _tell(self, event: str, detail: str) -> None:
        self.news.append({"event": event, "gpu": self.index, "t_ns": self._clock.wall_ns(), "detail": detail})

    def _try(self, name: str, find: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return find(*arguments)
        except driver.DriverError as error:
            if error.gpu_gone or error.driver_gone:
                raise
            self.unavailable[name] = error.reason
            return None

    def _guard(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except driver.DriverError as error:
            if error.gpu_gone or error.driver_gone:
                raise
            self._failed.append(name)
            return None

    def _bind_readings(self, device: driver.Device) -> None:
        self._read, self._pids = {}, None
        wanted = READ_EVERY_S if self._options.readings else {"link_gen_max": 0.0, "link_width_max": 0.0}
        for offset, (name, every_s) in enumerate(wanted.items()):
            every = max(1, round(every_s / self._period_s))
            if name == "processes":
                pids = self._try(name, device.processes)
                # That the call is there does not mean that it is allowed.
                if pids is not None and self._try(name, pids) is not None:
                    self._pids = (pids, every)
                continue
            read = self._try(name, device.reading, name)
            value = self._try(name, read) if read is not None else None
            if value is not None:
                self._read[name] = (read, every, offset)
                self._values[name] = value
        self.limit_bytes_per_s = link.limit_bytes_per_s(
            self._values.get("link_gen_max"), self._values.get("link_width_max")
        )

    def _bind_counters(self, device: driver.Device, reset: bool) -> None:
        reader = self._try("counters", device.counters) if self._options.counters else None
        if reader is None:
            return
        if self.counters is None:
            self.counters = Counters(reader, self.limit_bytes_per_s, self._clock)
            self._end_ns = self.counters.read_ns
        else:
            self.counters.rebind(reader, self.limit_bytes_per_s, reset)

    def _read_gpm(self, cells: dict[str, Any]) -> float:
        read = self._guard("gpm", self._gpm.read) if self._gpm is not None else None
        if not read:
            return 0.0
        interval_ms, means = read
        cells["gpm_interval_ms"] = interval_ms
        for name, mean in zip(_GPM_COLUMNS, means, strict=True):
            cells[name] = mean
            if mean is not None:
                self._gpm_answered.add(name)
            elif name in self._gpm_answered:
                self._failed.append(name)
        rx, tx = means[:2]
        return float(((rx or 0.0) + (tx or 0.0)) * interval_ms / 1e3)

    def _read_window(self, cells: dict[str, Any], length_s: float) -> float:
        window = self._window
        if window is None:
            return 0.0
        if self._options.window == "auto":
            self._start_or_stop(window, cells)
        if not window.running:
            return 0.0
        try:
            rates = window.take()
        except driver.DriverError as error:
            if error.gpu_gone or error.driver_gone:
                raise
            if error.unsupported:
                self.unavailable["window"] = error.reason
                window.stop()
                self._window = None
                return 0.0
            rates, self._window_quiet = None, _WINDOW_MISSED_ROWS
        if rates is None:
            self._window_quiet += 1
            if self._window_quiet > _WINDOW_MISSED_ROWS:
                self._failed.append("window")
            return 0.0
        self._window_quiet = 0
        cells["rx_window_bytes_per_s"], cells["tx_window_bytes_per_s"] = rates
        return float(sum(rates)) * min(_WINDOW_S, length_s)

    def _start_or_stop(self, window: Window, cells: dict[str, Any]) -> None:
        better = cells.get("gpm_rx_bytes_per_s") is not None
        if self.counters is not None and "counters" not in self.unavailable:
            better = better or not self.counters.doubtful
        if better and window.running:
            window.stop()
        elif not better and not window.running:
            window.start()

    def _judge_counters(self, seen_bytes: float) -> None:
        assert self.counters is not None
        if "counters-dead" in self.unavailable:
            if self.counters.alive:
                del self.unavailable["counters-dead"]
                self._tell("counters-alive", "the PCIe byte counters move again")
        elif self.counters.others_saw(seen_bytes):
            self.unavailable["counters-dead"] = (
                "the PCIe byte counters stand still while data passes: the sensor is dead"
            )
            self._tell("counters-dead", self.unavailable["counters-dead"])

    def _second_source(self, cells: dict[str, Any]) -> str:
        if cells.get("gpm_rx_bytes_per_s") is not None:
            return "gpm"
        return "window" if self._window is not None and self._window.running else "none"

    def _read_others(self) -> None:
        for name, (read, every, offset) in self._read.items():
            if every == 1 or (self._step + offset) % every == 0:
                self._values[name] = self._guard(name, read)
        if self._pids is not None and self._step % self._pids[1] == 0:
            pids = self._guard("processes", self._pids[0])
            self._values["processes"] = None if pids is None else len(pids)
            if self._options.own_pids is not None:
                own = self._options.own_pids()
                self._values["other_processes"] = None if pids is None else sum(pid not in own for pid in pids)
