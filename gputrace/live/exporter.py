"""Serves metrics of a capture that another process is writing.

Every few seconds the newest part is read and analysed; a scrape only hands out what is known by then.
"""

import ipaddress
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import prometheus_client

from gputrace.analysis.diagnose import account
from gputrace.errors import GputraceError, InputError
from gputrace.live.exporter_command import parse_address
from gputrace.live.follow import Follower
from gputrace.live.metrics import Metrics
from gputrace.live.recorder_rows import count_rows
from gputrace.live.tally import LEAD_NS, Tally
from gputrace.trace import Trace

DEFAULT_PERIOD_S = 15.0
# An old capture is taken in parts of so much of its time.
STEP_NS = 300_000_000_000
# A capture that has not grown for so long is taken as it is: nobody is writing.
QUIET_S = 30.0
# Less than this of a run says nothing.
LEAST_NS = 5_000_000_000
# How long a prover's log may let wait for itself.
LOG_WAIT_NS = 120_000_000_000

Load = Callable[[list[str]], Trace]


class Exporter:
    """Metrics of the capture in `folder`, brought up to date by `update`.

    `load` makes a trace of a folder. Counts from now on; with `from_start` from the capture's beginning. `now` is Unix
    time in seconds; once `stop` is set, an update ends early. Raises `InputError` where there is no such folder.
    """

    def __init__(
        self,
        folder: str,
        load: Load,
        *,
        from_start: bool = False,
        now: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
        stop: Event | None = None,
    ) -> None:
        if not Path(folder).is_dir():
            raise InputError(f"{folder}: not a folder; give the capture that `gputrace record` writes")
        self.metrics = Metrics()
        self._load, self._now, self._say = load, now, say
        self._stop = stop or Event()
        self._follower = Follower(Path(folder))
        self._tally = Tally()
        self._from_start = from_start
        self._until_ns: int | None = None
        self._was_final = False
        self._fresh = False
        self._last_error = ""
        self._started = False

    def update(self) -> None:
        """Takes in what was written since the last time. What fails is counted and said once, and tried again."""
        begun = time.perf_counter()
        with self.metrics.update:
            self.metrics.updates.inc()
        try:
            self._start()
            while not self._stop.is_set() and self._step():
                pass
            self._last_error = ""
        # It must outlive whatever a prover may print: one odd line must not end the monitoring of weeks.
        except Exception as error:
            with self.metrics.update:
                self.metrics.errors.inc()
            message = str(error) if isinstance(error, GputraceError | OSError) else f"{type(error).__name__}: {error}"
            if message != self._last_error:
                self._say(f"gputrace: {' '.join(message.split())}")
            self._last_error = message
        with self.metrics.update:
            self.metrics.took.set(time.perf_counter() - begun)

    def _start(self) -> None:
        if self._started:
            return
        if self._from_start:
            self._follower.read(until_ns=0)
            self._until_ns = self._next_until_ns()
        else:
            self._follower.start_at_end()
            while any(self._follower.read().values()):
                if (latest_ns := self._follower.last_ns()) is not None:
                    self._follower.trim(latest_ns - LEAD_NS)
            # A capture without a line yet is counted from its first.
            self._tally.floor_ns = self._follower.last_ns()
            self._fresh = self._tally.floor_ns is not None
        self._started = True

    def _next_until_ns(self) -> int | None:
        """How far to read next: an old capture in steps, then always all there is."""
        next_ns = self._follower.next_ns()
        return None if next_ns is None else next_ns + STEP_NS

    def _step(self) -> bool:
        """Takes in one part; true where more is waiting."""
        new = self._follower.read(self._until_ns)
        counts = [count_rows(self._follower.rows(name, lines)) for name, lines in new.items() if _is_of_gpu(name)]
        with self.metrics.update:
            for found in counts:
                self.metrics.add_rows(found)
        self._until_ns = self._next_until_ns()
        latest_ns = self._follower.last_ns()
        if latest_ns is not None:
            self._analyse(new, latest_ns, final=self._until_ns is None and self._is_quiet())
        return self._until_ns is not None

    def _is_quiet(self) -> bool:
        changed_s = self._follower.newest_change_s()
        return changed_s is not None and self._now() - changed_s >= QUIET_S

    def _analyse(self, new: dict[str, list[str]], latest_ns: int, final: bool) -> None:
        logs = [name for name in self._follower.series if not name.endswith(".csv")]
        news = any(new.get(name) for name in logs) if logs else any(new.values())
        self._fresh = self._fresh or news or (final and not self._was_final)
        self._was_final = final
        first_ns = self._follower.first_ns() or latest_ns
        # A capture of samples alone is one; but a prover that has only just started has not written its log yet.
        wait_ns = LEAST_NS if logs else LOG_WAIT_NS
        if not self._fresh or (not final and latest_ns - first_ns < wait_ns):
            return
        with tempfile.TemporaryDirectory(prefix="gputrace-export-") as folder:
            self._follower.write(Path(folder))
            trace = self._load([folder])
        diagnosis = account(trace)
        found = self._tally.add(trace, diagnosis, latest_ns, final)
        left = self._tally.give_up_s(latest_ns)
        with self.metrics.update:
            self.metrics.add(found)
            self.metrics.leave_uncounted(left)
            self.metrics.show(diagnosis, trace.clock, self._tally.counted_ns)
        self._fresh = False
        self._follower.trim(self._tally.needed_ns(latest_ns))


def _is_of_gpu(name: str) -> bool:
    return name.endswith(".csv") and not name.startswith("host")


def serve(
    folder: str,
    address: str,
    load: Load,
    *,
    from_start: bool = False,
    period_s: float = DEFAULT_PERIOD_S,
    stop: Event | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> None:
    """Serves the metrics of a capture at HOST:PORT until `stop` is set, looking at it every `period_s` seconds.

    Raises `UsageError` for what is no address and `InputError` for one that cannot be listened at.
    """
    host, port = parse_address(address)
    # Classic text has no place for the times at which counters were made.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    stopped = stop or Event()
    exporter = Exporter(folder, load, from_start=from_start, say=say, stop=stopped)
    try:
        server, thread = prometheus_client.start_http_server(port, host, exporter.metrics.registry)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--prometheus {address}: cannot listen there: {reason}") from error
    try:
        shown = f"[{host}]" if ":" in host else host
        reach = "this host only" if _is_loopback(host) else "reachable from other hosts, without a password"
        say(f"Serving http://{shown}:{server.server_port}/metrics ({reach})")
        # What was there before is counted as a whole: a scrape waits for that.
        with exporter.metrics.update:
            exporter.update()
        while not stopped.wait(period_s):
            exporter.update()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
