"""The ways to know what passes over PCIe, each with its own trouble.

counters   cumulative wire bytes, 32 bits wide on the drivers seen: exact while they are read before they come round.
gpm        means since the last reading, on Hopper and later: nothing is missed, but about 0.6 % low.
window     a call that watches for 20 ms and blocks meanwhile: last resort, in a thread of its own.
"""

import threading
from collections.abc import Callable

from gputrace.sampler import driver, link

# The driver's own time of a reading is believed where it lies within the call, give or take this.
_STAMP_SLACK_NS = 2_000_000
# Counters that have not moved for so long while another source saw so much are dead (an idle link moves them by about
# a megabyte a second; GPM lags by up to 0.2 s, so what it says just after they stopped proves nothing).
_STILL_NS = 1_000_000_000
_UNSEEN_BYTES = 64 << 20
# Means over less say nothing: such an interval arises only where GPM was just found.
_SHORTEST_GPM_NS = 5_000_000


class Counters:
    """Cumulative counters without wraps: totals since they were first read, and whether any could have been missed.

    `alive` is False while the counters stand still although another source sees traffic, and while they have only ever
    said 0 (so do dead ones, for ever).
    """

    def __init__(self, reader: driver.Counters, limit: float, clock: driver.Clock) -> None:
        self.wrap_s = link.wrap_s(reader.bits, limit)
        self._mask = (1 << reader.bits) - 1
        self._reader, self._clock = reader, clock
        self._rx, self._tx, stamp_us = reader.read()
        self.read_ns, self.read_wall_ns = self._when(clock.mono_ns(), stamp_us)
        self.rx_total = self.tx_total = 0
        self.alive = bool(self._rx or self._tx)
        self.gap = False
        self._moved_ns = self.read_ns
        self._unseen = 0.0

    def rebind(self, reader: driver.Counters, limit: float, reset: bool) -> None:
        """Goes on with a new reader; with `reset` what the counters did meanwhile is unknown."""
        self.wrap_s = link.wrap_s(reader.bits, limit)
        self._mask = (1 << reader.bits) - 1
        self._reader = reader
        if reset:
            before_ns = self._clock.mono_ns()
            self._rx, self._tx, stamp_us = reader.read()
            self.read_ns, self.read_wall_ns = self._when(before_ns, stamp_us)
            # That they stood still while nobody looked proves nothing against them.
            self._moved_ns, self._unseen, self.gap = self.read_ns, 0.0, True

    def poll(self) -> bool:
        """Reads both counters: True, or DriverError where they cannot be read (the next reading bridges the time)."""
        before_ns = self._clock.mono_ns()
        rx, tx, stamp_us = self._reader.read()
        last_ns = self.read_ns
        self.read_ns, self.read_wall_ns = self._when(before_ns, stamp_us)
        if self.read_ns - last_ns > self.wrap_s * 1e9:
            self.gap = True
        if rx != self._rx or tx != self._tx:
            self.rx_total += (rx - self._rx) & self._mask
            self.tx_total += (tx - self._tx) & self._mask
            self._rx, self._tx = rx, tx
            # Back from the dead: what it missed is unknown.
            self.gap = self.gap or self._unseen > _UNSEEN_BYTES
            self._moved_ns, self._unseen, self.alive = self.read_ns, 0.0, True
        return True

    def take_gap(self) -> bool:
        """Whether bytes can have been missed since this was last asked."""
        gap, self.gap = self.gap, False
        return gap

    @property
    def doubtful(self) -> bool:
        """Whether another source is needed to tell a dead sensor from an idle link."""
        return not self.alive or self.read_ns - self._moved_ns > _STILL_NS

    def others_saw(self, seen_bytes: float) -> bool:
        """Notes what another source saw pass; True where that proves the counters dead for the first time."""
        if self.read_ns - self._moved_ns < _STILL_NS:
            return False
        proven = self._unseen > _UNSEEN_BYTES
        self._unseen += seen_bytes
        if self._unseen <= _UNSEEN_BYTES:
            return False
        self.alive = False
        return not proven

    def _when(self, before_ns: int, stamp_us: int) -> tuple[int, int]:
        after_ns, wall_ns = self._clock.mono_ns(), self._clock.wall_ns()
        read_ns = after_ns - (wall_ns - stamp_us * 1000)
        if not before_ns - _STAMP_SLACK_NS <= read_ns <= after_ns + _STAMP_SLACK_NS:
            read_ns = (before_ns + after_ns) // 2
        return read_ns, wall_ns - (after_ns - read_ns)


class Gpm:
    """GPM's means with the time that each covers."""

    def __init__(self, reader: driver.Gpm, clock: driver.Clock) -> None:
        self._reader, self._clock = reader, clock
        self._read_ns = clock.mono_ns()

    def read(self) -> tuple[float, tuple[float | None, float | None, float | None, float | None]] | tuple[()]:
        """The interval in ms, and rx and tx in bytes/s, SM and DRAM activity as shares over it; () if too short."""
        before_ns = self._clock.mono_ns()
        if before_ns - self._read_ns < _SHORTEST_GPM_NS:
            return ()
        values = self._reader.read()
        interval_ms = (before_ns - self._read_ns) / 1e6
        self._read_ns = before_ns
        return interval_ms, values

    def close(self) -> None:
        """Gives GPM's samples back."""
        self._reader.close()


class Window:
    """The blocking throughput call in a thread of its own, from `start` to `stop`."""

    def __init__(self, read: Callable[[], tuple[float, float]], period_s: float) -> None:
        self._read, self._period_s = read, period_s
        self._stop = threading.Event()
        self._new: tuple[float, float] | None = None
        self._error: driver.DriverError | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the thread reads."""
        return self._thread is not None

    def start(self) -> None:
        """Begins to read, once a period or as often as the call lets it."""
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._watch, name="pcie-window", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread; one that a call holds is left to end by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
            self._thread = None
        self._new = None

    def take(self) -> tuple[float, float] | None:
        """The newest reading not taken yet, rx and tx in bytes/s; DriverError where the last one failed."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        new, self._new = self._new, None
        return new

    def _watch(self) -> None:
        # A thread that outlived its stop must not go on when another is started: each has its own event.
        stop = self._stop
        while not stop.is_set():
            began = driver.SystemClock.mono_ns()
            try:
                self._new = self._read()
                wait_s = self._period_s
            except driver.DriverError as error:
                self._error, wait_s = error, max(1.0, self._period_s)
            stop.wait(max(0.0, wait_s - (driver.SystemClock.mono_ns() - began) / 1e9))
