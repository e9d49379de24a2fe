"""All GPUs of a machine, and what becomes of them when the driver goes away and comes back."""

from typing import Any

from gputrace.errors import InputError
from gputrace.sampler import driver, link
from gputrace.sampler.one_gpu import OneGpu, Options
from gputrace.sampler.rows import SampleRow

# How long to wait before a lost GPU is looked for again: doubled from the first to the last. Where other GPUs still
# answer, opening the driver again costs them a hole, so it is tried more rarely.
_FIRST_RETRY_S = 1.0
_LAST_RETRY_S = 30.0
_LAST_RETRY_BESIDE_OTHERS_S = 600.0


class GpuSampler:
    """Rows of every GPU. The driver is open from here to `close`; InputError where there is none to open.

    A GPU that is lost, or a driver that was unloaded, gives rows that say so (`hole`, and `failed` is `gpu_lost` or
    `driver_lost`) while it is looked for again; everything else goes on.
    """

    def __init__(
        self, nvml: driver.Driver, clock: driver.Clock, period_s: float = 0.1, options: Options | None = None
    ) -> None:
        self._nvml, self._clock = nvml, clock
        self._news: list[dict[str, Any]] = []
        self._retry_s, self._retry_ns = _FIRST_RETRY_S, 0
        self._open = False
        options = options or Options()
        try:
            nvml.open()
            self._open = True
            self._versions = nvml.versions()
            count = nvml.count()
        except driver.DriverError as error:
            self.close()
            raise InputError(f"the NVIDIA driver does not answer ({error.reason}): no GPU can be sampled") from error
        self.gpus: list[OneGpu] = []
        if not count:
            self.close()
            raise InputError("the NVIDIA driver answers, but knows no GPU; `nvidia-smi -L` should list one")
        self.gpus += [OneGpu(index, period_s, clock, options) for index in range(count)]
        for gpu in self.gpus:
            if gpu.lost is not None:  # with the driver, at one before it
                continue
            try:
                gpu.bind(nvml.device(gpu.index))
            except driver.DriverError as error:
                self._lose(gpu, error)

    def describe(self) -> dict[str, Any]:
        """Static facts: versions of driver and NVML, and per GPU what it is, its sources, and why others are not.

        Keys of a GPU: index, name, uuid, pci_bus_id, mig, virtualization, link_limit_bytes_per_s, poll_s (how often
        its counters must be read; null where it has none), sources {counters, gpm, window: bool},
        unavailable {name: reason}, lost (reason or null).
        """
        return {
            **self._versions,
            "gpus": [
                {
                    "index": gpu.index,
                    **gpu.facts,
                    "link_limit_bytes_per_s": gpu.limit_bytes_per_s,
                    "poll_s": link.POLL_SHARE * gpu.counters.wrap_s if gpu.counters is not None else None,
                    "sources": gpu.sources(),
                    "unavailable": dict(gpu.unavailable),
                    "lost": gpu.lost,
                }
                for gpu in self.gpus
            ],
        }

    def polls_per_row(self, period_s: float) -> int:
        """How often the counters are read in each row of this length."""
        wraps = [gpu.counters.wrap_s for gpu in self.gpus if gpu.counters is not None]
        return link.polls_per_row(period_s, min(wraps, default=None))

    def poll(self) -> None:
        """Reads the counters of all GPUs, between two rows."""
        for gpu in self.gpus:
            try:
                gpu.poll()
            except driver.DriverError as error:
                self._lose(gpu, error)

    def step(self, deadline_ns: int | None = None) -> list[SampleRow]:
        """One row for each GPU; they are late against `deadline_ns` of the monotonic clock (None: now)."""
        deadline_ns = self._clock.mono_ns() if deadline_ns is None else deadline_ns
        if any(gpu.lost for gpu in self.gpus) and self._clock.mono_ns() >= self._retry_ns:
            self._open_again()
        rows = []
        for gpu in self.gpus:
            try:
                rows.append(gpu.row(deadline_ns))
            except driver.DriverError as error:
                self._lose(gpu, error)
                rows.append(gpu.lost_row(deadline_ns))
        return rows

    def take_events(self) -> list[dict[str, Any]]:
        """What was noticed since this was last asked: {event, gpu (null: all), t_ns, detail}, oldest first."""
        news, self._news = self._news, []
        for gpu in self.gpus:
            news += gpu.take_news()
        return sorted(news, key=lambda event: event["t_ns"])

    def close(self) -> None:
        """Lets go of the driver."""
        for gpu in getattr(self, "gpus", []):
            gpu.release(None)
        if self._open:
            self._nvml.close()
            self._open = False

    def _tell(self, event: str, gpu: int | None, detail: str) -> None:
        self._news.append({"event": event, "gpu": gpu, "t_ns": self._clock.wall_ns(), "detail": detail})

    def _lose(self, gpu: OneGpu, error: driver.DriverError) -> None:
        if error.driver_gone:
            self._tell("driver-lost", None, error.reason)
            for each in self.gpus:
                each.release("driver_lost")
        else:
            self._tell("gpu-lost", gpu.index, error.reason)
            gpu.release("gpu_lost")
        if all(each.lost for each in self.gpus) and self._open:
            # Its device files are let go, so that the driver can be unloaded and loaded again.
            self._nvml.close()
            self._open = False
        self._retry_s = _FIRST_RETRY_S
        self._retry_ns = self._clock.mono_ns() + round(self._retry_s * 1e9)

    def _open_again(self) -> None:
        beside_others = any(gpu.lost is None for gpu in self.gpus)
        last_s = _LAST_RETRY_BESIDE_OTHERS_S if beside_others else _LAST_RETRY_S
        self._retry_s = min(2 * self._retry_s, last_s)
        try:
            if self._open:
                for gpu in self.gpus:
                    gpu.release(None)
                self._nvml.close()
                self._open = False
            self._nvml.open()
            self._open = True
            self._versions = self._nvml.versions()
            found = self._found()
        except driver.DriverError as error:
            for gpu in self.gpus:
                if gpu.lost is None:
                    self._tell("gpu-lost", gpu.index, error.reason)
                    gpu.release("driver_lost")
            found = {}
        for gpu in self.gpus:
            was_lost = gpu.lost
            try:
                if (device := found.get(gpu.facts.get("uuid"), found.get(gpu.index))) is None:
                    raise driver.DriverError(driver.GPU_NOT_FOUND, "it is not there")
                gpu.bind(device)
            except driver.DriverError as error:
                if was_lost is None:
                    self._tell("gpu-lost", gpu.index, error.reason)
                gpu.release("gpu_lost")
                continue
            if was_lost is not None:
                self._tell("gpu-back", gpu.index, "it answers again; its counters go on from here")
        if all(gpu.lost for gpu in self.gpus) and self._open:
            self._nvml.close()
            self._open = False
        self._retry_ns = self._clock.mono_ns() + round(self._retry_s * 1e9)
        if not any(gpu.lost for gpu in self.gpus):
            self._retry_s = _FIRST_RETRY_S

    def _found(self) -> dict[str | int | None, driver.Device]:
        """Devices by uuid; by index those that never told one."""
        found: dict[str | int | None, driver.Device] = {}
        untold = {gpu.index for gpu in self.gpus if gpu.facts.get("uuid") is None}
        for index in range(self._nvml.count()):
            try:
                device = self._nvml.device(index)
                found[device.facts()["uuid"] or index] = device
            except driver.DriverError as error:
                if error.driver_gone:
                    raise
                continue
            if index in untold:
                found[index] = device
        return found
