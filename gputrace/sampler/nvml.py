"""The one door to NVML: pynvml's library, called through structures that are made once.

pynvml makes its structures, looks its function up and takes a lock on every call; at twenty calls a second for weeks
that is time taken from the prover. Here each call is bound once to its function, handle and result.
"""

import math
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, c_ulonglong
from typing import Any

import pynvml

from gputrace.sampler.driver import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, NOT_SUPPORTED, DriverError

# NVML's nvmlValueType_t of a counter -> its member of the union and its bits.
_COUNTER_TYPES = {1: ("uiVal", 32), 2: ("ulVal", 64), 3: ("ullVal", 64)}
# nvmlDeviceGetPcieThroughput answers in KB/s; measured to be 1000 bytes.
_KB = 1000.0
_MIB = float(1 << 20)
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
# What one call reads as an unsigned int: column -> symbol, arguments between handle and result.
_UNSIGNED: dict[str, tuple[str, tuple[int, ...]]] = {
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
    "sm_clock_max_mhz": ("nvmlDeviceGetMaxClockInfo", (pynvml.NVML_CLOCK_SM,)),
    "power_mw": ("nvmlDeviceGetPowerUsage", ()),
    "link_gen": ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    "link_width": ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    "link_gen_max": ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    "link_width_max": ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", ()),
}
_GPM_METRICS = (
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
)
_GPM_UNITS = (_MIB, _MIB, 0.01, 0.01)


def _error(code: int) -> DriverError:
    return DriverError(code, str(pynvml.NVMLError(code)))


def _translated(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call of pynvml answers, its errors turned into DriverError."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        raise DriverError(error.value, str(error)) from error


def _function(name: str) -> Any:
    # By index a function of our own: pynvml keeps its own types on its own.
    try:
        return pynvml.nvmlLib[name]
    except AttributeError as error:
        raise _error(FUNCTION_NOT_FOUND) from error


def _bound(name: str, *arguments: Any) -> Callable[[], None]:
    function = _function(name)

    def call() -> None:
        code = function(*arguments)
        if code:
            raise _error(code)

    return call


def _reader(result: Any, value: Callable[[Any], int], name: str, *arguments: Any) -> Callable[[], int]:
    """A call that fills `result`, and the number in it."""
    function, place = _function(name), byref(result)

    def read() -> int:
        code = function(*arguments, place)
        if code:
            raise _error(code)
        return value(result)

    return read


class _Counters:
    def __init__(self, handle: Any) -> None:
        values = (pynvml.c_nvmlFieldValue_t * 2)()
        self._tx, self._rx = values[0], values[1]
        self._tx.fieldId = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES
        self._rx.fieldId = pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
        self._tx_value, self._rx_value = self._tx.value, self._rx.value
        self._call = _bound("nvmlDeviceGetFieldValues", handle, c_int(2), byref(values))
        self._member, self.bits = "uiVal", 32
        self.read()
        if self._rx.valueType not in _COUNTER_TYPES:
            raise DriverError(NOT_SUPPORTED, f"a counter of NVML value type {self._rx.valueType} is unknown")
        self._member, self.bits = _COUNTER_TYPES[self._rx.valueType]

    def read(self) -> tuple[int, int, int]:
        self._call()
        code = self._rx.nvmlReturn or self._tx.nvmlReturn
        if code:
            raise _error(code)
        return getattr(self._rx_value, self._member), getattr(self._tx_value, self._member), self._rx.timestamp


class _Gpm:
    def __init__(self, handle: Any) -> None:
        if not _translated(pynvml.nvmlGpmQueryDeviceSupport, handle).isSupportedDevice:
            raise DriverError(NOT_SUPPORTED, "this GPU has no GPM (it came with Hopper)")
        self._samples = [_translated(pynvml.nvmlGpmSampleAlloc)]
        try:
            self._samples.append(_translated(pynvml.nvmlGpmSampleAlloc))
            get = [_bound("nvmlGpmSampleGet", handle, sample) for sample in self._samples]
            get[0]()
            self._request = pynvml.c_nvmlGpmMetricsGet_t()
            self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            self._request.numMetrics = len(_GPM_METRICS)
            metrics = self._request.metrics
            self._metrics = [metrics[at] for at in range(len(_GPM_METRICS))]
            for metric, number in zip(self._metrics, _GPM_METRICS, strict=True):
                metric.metricId = number
            self._compare = _bound("nvmlGpmMetricsGet", byref(self._request))
        except DriverError:
            self.close()
            raise
        self._get, self._last = get, 0

    def read(self) -> tuple[float | None, float | None, float | None, float | None]:
        new = 1 - self._last
        self._get[new]()
        self._request.sample1, self._request.sample2 = self._samples[self._last], self._samples[new]
        self._last = new
        self._compare()
        rx, tx, sm, dram = (
            metric.value * unit if not metric.nvmlReturn and math.isfinite(metric.value) else None
            for metric, unit in zip(self._metrics, _GPM_UNITS, strict=True)
        )
        return rx, tx, sm, dram

    def close(self) -> None:
        for sample in self._samples:
            _translated(pynvml.nvmlGpmSampleFree, sample)
        self._samples = []


class NvmlDevice:
    """One GPU behind NVML."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def facts(self) -> dict[str, str | None]:
        """name, uuid, pci_bus_id, mig, virtualization; None where NVML does not say."""

        def ask(call: Callable[..., Any], shown: Callable[[Any], str]) -> str | None:
            try:
                return shown(_translated(call, self._handle))
            except DriverError as error:
                if error.gpu_gone or error.driver_gone:
                    raise
                return None

        return {
            "name": ask(pynvml.nvmlDeviceGetName, str),
            "uuid": ask(pynvml.nvmlDeviceGetUUID, str),
            "pci_bus_id": ask(pynvml.nvmlDeviceGetPciInfo, lambda info: str(info.busId)),
            "mig": ask(pynvml.nvmlDeviceGetMigMode, lambda modes: "on" if modes[0] else "off"),
            "virtualization": ask(
                pynvml.nvmlDeviceGetVirtualizationMode, lambda mode: _VIRTUALIZATION.get(mode, str(mode))
            ),
        }

    def counters(self) -> _Counters:
        """Fields 197 and 198, which came with driver R555."""
        return _Counters(self._handle)

    def gpm(self) -> _Gpm:
        """GPM's PCIe, SM and DRAM metrics."""
        return _Gpm(self._handle)

    def throughput(self) -> Callable[[], tuple[float, float]]:
        """rx and tx, bytes/s; blocks 20 ms for each."""
        rate = c_uint()
        name = "nvmlDeviceGetPcieThroughput"
        rx = _bound(name, self._handle, c_int(pynvml.NVML_PCIE_UTIL_RX_BYTES), byref(rate))
        tx = _bound(name, self._handle, c_int(pynvml.NVML_PCIE_UTIL_TX_BYTES), byref(rate))

        def read() -> tuple[float, float]:
            rx()
            received = rate.value * _KB
            tx()
            return received, rate.value * _KB

        return read

    def reading(self, name: str) -> Callable[[], int]:
        """One whole number a call, as the column of that name; `power_mw` for power."""
        if name in _UNSIGNED:
            symbol, arguments = _UNSIGNED[name]
            return _reader(c_uint(), lambda number: number.value, symbol, self._handle, *map(c_int, arguments))
        if name == "gpu_util":
            utilization = pynvml.c_nvmlUtilization_t()
            return _reader(utilization, lambda shares: shares.gpu, "nvmlDeviceGetUtilizationRates", self._handle)
        if name == "memory_used_mib":
            memory = pynvml.c_nvmlMemory_t()
            return _reader(memory, lambda held: held.used >> 20, "nvmlDeviceGetMemoryInfo", self._handle)
        if name == "clock_event_reasons":
            symbol = "nvmlDeviceGetCurrentClocksEventReasons"
            if not hasattr(pynvml.nvmlLib, symbol):  # its name before R535
                symbol = "nvmlDeviceGetCurrentClocksThrottleReasons"
            return _reader(c_ulonglong(), lambda reasons: reasons.value, symbol, self._handle)
        raise KeyError(name)

    def processes(self) -> Callable[[], list[int]]:
        """Ids of the processes with a compute context on this GPU."""
        function = _function("nvmlDeviceGetComputeRunningProcesses_v3")
        handle = self._handle
        room = (pynvml.c_nvmlProcessInfo_t * 64)()

        def read() -> list[int]:
            nonlocal room
            while True:
                count = c_uint(len(room))
                code = function(handle, byref(count), byref(room))
                if not code:
                    return [room[at].pid for at in range(count.value)]
                if code != INSUFFICIENT_SIZE:
                    raise _error(code)
                room = (pynvml.c_nvmlProcessInfo_t * (2 * max(count.value, len(room))))()

        return read


class Nvml:
    """NVML as the loader finds it."""

    def open(self) -> None:
        """Loads the library where that was not done, and starts it."""
        _translated(pynvml.nvmlInit)

    def close(self) -> None:
        """Lets go of the driver; a driver that is gone already is no error."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    def versions(self) -> dict[str, str | None]:
        """The driver's version and NVML's."""
        return {
            "driver": str(_translated(pynvml.nvmlSystemGetDriverVersion)),
            "nvml": str(_translated(pynvml.nvmlSystemGetNVMLVersion)),
        }

    def count(self) -> int:
        """How many GPUs there are."""
        return int(_translated(pynvml.nvmlDeviceGetCount))

    def device(self, index: int) -> NvmlDevice:
        """The GPU at this index."""
        return NvmlDevice(_translated(pynvml.nvmlDeviceGetHandleByIndex, index))
