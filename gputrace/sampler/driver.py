"""What the sampler asks of a driver: the shapes that the door to NVML fills, and stand-ins in tests as well."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

# Error codes of NVML (nvml.h) that the sampler tells apart.
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 1, 2, 3, 9, 12
INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 7, 13, 15, 16, 18
GPU_NOT_FOUND = 28

_DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
_GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
_NEVER = frozenset({INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND})


class DriverError(Exception):
    """A call to the driver failed: NVML's code, and what it says of it."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def driver_gone(self) -> bool:
        """The whole driver must be opened again."""
        return self.code in _DRIVER_GONE

    @property
    def gpu_gone(self) -> bool:
        """This GPU answers no more until it is opened again."""
        return self.code in _GPU_GONE

    @property
    def unsupported(self) -> bool:
        """Asking again will not help."""
        return self.code in _NEVER


class Counters(Protocol):
    """The cumulative PCIe wire-byte counters, both read in one call; `bits` says when they wrap."""

    bits: int

    def read(self) -> tuple[int, int, int]:
        """rx bytes, tx bytes, and the driver's own time of the reading in Unix microseconds (0: not given)."""
        ...


class Gpm(Protocol):
    """Means over the time since the last reading (Hopper and later)."""

    def read(self) -> tuple[float | None, float | None, float | None, float | None]:
        """PCIe rx and tx in bytes/s, SM and DRAM activity as shares 0..1; None where one failed."""
        ...

    def close(self) -> None: ...


class Device(Protocol):
    """One GPU. What is not there raises DriverError when it is asked for."""

    def facts(self) -> dict[str, str | None]:
        """name, uuid, pci_bus_id, mig (on, off), virtualization; None where the driver does not say."""
        ...

    def counters(self) -> Counters: ...

    def gpm(self) -> Gpm: ...

    def throughput(self) -> Callable[[], tuple[float, float]]:
        """rx and tx in bytes/s, each over a window of 20 ms for which the call blocks."""
        ...

    def reading(self, name: str) -> Callable[[], int]:
        """One of `READINGS`."""
        ...

    def processes(self) -> Callable[[], list[int]]:
        """Ids of the processes that compute on this GPU."""
        ...


class Driver(Protocol):
    """The driver's library."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def versions(self) -> dict[str, str | None]:
        """driver and nvml."""
        ...

    def count(self) -> int: ...

    def device(self, index: int) -> Device: ...


class Clock(Protocol):
    """Time as the sampler sees it."""

    def wall_ns(self) -> int: ...

    def mono_ns(self) -> int: ...

    def wait(self, stop: threading.Event, until_ns: int) -> None:
        """Returns at `until_ns` of the monotonic clock, or sooner where `stop` is set."""
        ...


# A plain sleep costs half of what waiting for an event does; a stop can wait for so short a one.
_SHORT_WAIT_S = 0.25


class SystemClock:
    """The machine's clocks."""

    wall_ns = staticmethod(time.time_ns)
    mono_ns = staticmethod(time.monotonic_ns)

    def wait(self, stop: threading.Event, until_ns: int) -> None:
        """Sleeps until `until_ns`, or until `stop` is set."""
        left_s = (until_ns - time.monotonic_ns()) / 1e9
        if left_s > _SHORT_WAIT_S:
            stop.wait(left_s)
        elif left_s > 0 and not stop.is_set():
            time.sleep(left_s)
