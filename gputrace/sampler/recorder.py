"""The recording itself: one loop that stamps the log, and a thread of its own for the GPUs, whose reads may block.

SIGINT, SIGTERM and SIGHUP end the recording cleanly. They are for the recorder alone: a prover that it started has a
session of its own and goes on, writing to the capture's raw files.
"""

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from gputrace.errors import RecordingError
from gputrace.sampler.attach import ChildLog, LogSource
from gputrace.sampler.capture import Capture
from gputrace.sampler.clocks import StepDetector
from gputrace.sampler.context import read_status
from gputrace.sampler.driver import Clock
from gputrace.sampler.host import HostSampler, host_line
from gputrace.sampler.notify import Notifier
from gputrace.sampler.rows import SampleRow, csv_line

_TICK_S = 0.1
_GATHER_S = 0.001
_HOST_NS = 1_000_000_000
_HEIRS_NS = 1_000_000_000
_GPU_WAIT_S = 2.0
# Never that many rows wait: the loop takes them every tick.
_MOST_WAITING = 100_000
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OnRows = Callable[[Sequence[SampleRow]], None]


class GpuLoop(Protocol):
    """Reads the GPUs until told to stop, in a thread of its own."""

    def describe(self) -> dict[str, Any]:
        """Static facts, for meta.json: `gpus` is a list of one object each."""

    def take_events(self) -> list[dict[str, Any]]:
        """What was noticed since this was last asked: event, gpu, t_ns, detail."""

    def run(self, on_rows: OnRows, stop: threading.Event) -> None:
        """Gives rows of a step at a time to `on_rows`, until `stop` is set."""


@dataclass
class Ended:
    """How a recording ended: why, the exit code, and a line for the terminal if there is something to say."""

    why: str
    exit_code: int = 0
    message: str | None = None


@dataclass
class Recorder:
    """Wires the sources to a capture. `run` returns when a signal comes or the command that we started is over."""

    capture: Capture
    clock: Clock
    log: LogSource | None = None
    gpus: GpuLoop | None = None
    host: HostSampler | None = None
    status_url: str | None = None
    tick_s: float = _TICK_S
    _rows: deque[SampleRow] = field(default_factory=lambda: deque(maxlen=_MOST_WAITING), init=False)
    _gpu_failure: str | None = field(default=None, init=False)
    _holes: set[int] = field(default_factory=set, init=False)
    _host_due_ns: int = field(default=0, init=False)
    _heirs_due_ns: int = field(default=0, init=False)
    _exit_code: int | None = field(default=None, init=False)
    _signal: int | None = field(default=None, init=False)
    _status: dict[str, Any] | None = field(default=None, init=False)

    def run(self) -> Ended:
        """Records until the end. Raises `RecordingError` where the capture cannot be written any more."""
        stop = threading.Event()
        steps = StepDetector(self.clock)
        thread = threading.Thread(target=self._read_gpus, args=(stop,), name="gpus", daemon=True)
        notifier = Notifier()
        try:
            with self._signals() as wakeup_fd, selectors.DefaultSelector() as selector:
                selector.register(wakeup_fd, selectors.EVENT_READ)
                if notifier.fd is not None:
                    selector.register(notifier.fd, selectors.EVENT_READ)
                self.capture.event("start")
                if self.status_url is not None:
                    threading.Thread(target=self._ask_status, args=(self.status_url,), daemon=True).start()
                if self.gpus is not None:
                    thread.start()
                due_ns = self.clock.mono_ns()
                ended = None
                while ended is None:
                    self._wait(selector, notifier, wakeup_fd, due_ns)
                    self._take_log()
                    if self.clock.mono_ns() >= due_ns:
                        due_ns = self.clock.mono_ns() + round(self.tick_s * 1e9)
                        ended = self._tick(steps)
                    if self._signal is not None:
                        ended = Ended(signal.Signals(self._signal).name, message=self._goes_on())
                stop.set()
                if thread.is_alive():
                    thread.join(_GPU_WAIT_S)
                self._finish(ended)
                return ended
        except RecordingError as error:
            stop.set()
            # The disk may have room for this line though not for what failed; if not, nothing is lost with it.
            with contextlib.suppress(RecordingError):
                self.capture.event("stop", why=str(error))
            going_on = self._goes_on()
            raise RecordingError(f"{error}{f'; {going_on}' if going_on else ''}") from error
        finally:
            stop.set()
            notifier.close()
            self.capture.close()

    def _ask_status(self, url: str) -> None:
        """In a thread: a prover that does not answer must not hold the log up."""
        self._status = read_status(url)

    def _read_gpus(self, stop: threading.Event) -> None:
        assert self.gpus is not None
        try:
            self.gpus.run(self._rows.extend, stop)
        except Exception as error:
            # Whatever the driver does, the log and the host go on being recorded.
            self._gpu_failure = f"{type(error).__name__}: {error}"

    def _wait(self, selector: selectors.BaseSelector, notifier: Notifier, wakeup_fd: int, due_ns: int) -> None:
        pipes = set(self.log.fds()) if self.log is not None else set()
        own = {wakeup_fd, notifier.fd}
        have = {key.fd for key in selector.get_map().values()} - own
        for fd in have - pipes:
            selector.unregister(fd)
        for fd in pipes - have:
            selector.register(fd, selectors.EVENT_READ)
        if self.log is not None:
            notifier.watch(self.log.paths())
        left_s = max(0.0, (due_ns - self.clock.mono_ns()) / 1e9)
        for key, _ in selector.select(min(left_s, self.tick_s)):
            if key.fd == wakeup_fd:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup_fd, 4096)
            elif key.fd == notifier.fd:
                # A line comes in up to ten writes: they are waited for, not looked at one by one.
                time.sleep(_GATHER_S)
                notifier.drain()

    def _take_log(self) -> None:
        if self.log is not None and (lines := self.log.poll()):
            self.capture.log(lines)

    def _tick(self, steps: StepDetector) -> Ended | None:
        self._take_rows()
        now_ns = self.clock.mono_ns()
        if (moved_ns := steps.step_ns()) is not None:
            self._note_step(moved_ns)
        if self.gpus is not None:
            for event in self.gpus.take_events():
                self.capture.event(f"gpu:{event.get('event')}", **{k: v for k, v in event.items() if k != "event"})
        if self._status is not None:
            self.capture.write_meta(status=self._status)
            self._status = None
        if self._gpu_failure is not None:
            self.capture.event("gpus-lost", text=self._gpu_failure)
            self._gpu_failure = None
        if self.host is not None and now_ns >= self._host_due_ns:
            pid = self.log.prover_pid() if self.log is not None else None
            self.capture.host(host_line(self.host.step(pid)))
            self._host_due_ns = now_ns + _HOST_NS if not self._host_due_ns else self._host_due_ns + _HOST_NS
            if self._host_due_ns < now_ns:
                self._host_due_ns = now_ns + _HOST_NS
        self.capture.keep_house()
        return self._child_over(now_ns)

    def _take_rows(self) -> None:
        rows = []
        while self._rows:
            rows.append(self._rows.popleft())
        if not rows:
            return
        self.capture.samples([csv_line(row) for row in rows])
        for row in rows:
            if row.hole and row.gpu not in self._holes:
                self._holes.add(row.gpu)
                unseen_s = (row.t_end_ns - row.t_start_ns) / 1e9
                self.capture.event("hole", gpu=row.gpu, until_ns=row.t_end_ns, seconds=unseen_s, failed=row.failed)
            elif not row.hole:
                self._holes.discard(row.gpu)

    def _note_step(self, moved_ns: int) -> None:
        step = {"t_ns": self.clock.wall_ns(), "t_mono_ns": self.clock.mono_ns(), "seconds": moved_ns / 1e9}
        self.capture.event("clock-step", seconds=moved_ns / 1e9)
        self.capture.write_meta(clock_steps=[*self.capture.meta.get("clock_steps", [])[-99:], step])

    def _child_over(self, now_ns: int) -> Ended | None:
        """Whether the command is over, and whatever it left behind that still writes to its output."""
        if not isinstance(self.log, ChildLog) or now_ns < self._heirs_due_ns:
            return None
        if self._exit_code is None:
            self._exit_code = self.log.exit_code()
            if self._exit_code is None:
                return None
            self.capture.event("command-ended", exit_code=self._exit_code)
        self._heirs_due_ns = now_ns + _HEIRS_NS
        return None if self.log.heirs() else Ended("the command ended", self._exit_code)

    def _finish(self, ended: Ended) -> None:
        self._take_rows()
        if self.log is not None and (lines := self.log.close()):
            self.capture.log(lines)
        self.capture.event("stop", why=ended.why)
        self.capture.write_meta(ended_ns=self.clock.wall_ns(), ended=ended.why, exit_code=ended.exit_code)

    def _goes_on(self) -> str | None:
        if not isinstance(self.log, ChildLog) or self.log.exit_code() is not None:
            return None
        return f"the command goes on as process {self.log.process.pid}"

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """Signals as something to read: SIGCHLD wakes the loop, the others end it. Only in the main thread."""
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        if threading.current_thread() is not threading.main_thread():
            yield read_fd
            os.close(read_fd)
            os.close(write_fd)
            return

        def note(number: int, _frame: object) -> None:
            self._signal = number

        before = {number: signal.signal(number, note) for number in _STOP_SIGNALS}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        old_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        try:
            yield read_fd
        finally:
            signal.set_wakeup_fd(old_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(read_fd)
            os.close(write_fd)
