"""A recording from what the command line says: finds the log and the GPUs, makes the capture, records."""

import contextlib
import datetime
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputrace.errors import InputError, UsageError
from gputrace.nearest import near_path
from gputrace.sampler import attach, clients, meanings
from gputrace.sampler.bandwidth import MemoryBandwidth
from gputrace.sampler.capture import RAW, Capture, Limits
from gputrace.sampler.context import host_context
from gputrace.sampler.driver import Clock, SystemClock
from gputrace.sampler.host import HostSampler
from gputrace.sampler.loop import check_period
from gputrace.sampler.recorder import Ended, GpuLoop, Recorder

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)(i?)B?", re.I)
_SMALLEST_BYTES = 2 << 20
_COMPANION_ENDS_S = 5.0


@dataclass(frozen=True)
class Request:
    """What to record and where to; one of `log`, `journal`, `docker`, `pid` and `command` at most."""

    output: str | None = None
    log: str | None = None
    journal: str | None = None
    docker: str | None = None
    pid: int | None = None
    command: Sequence[str] = ()
    period_s: float = 0.1
    gpus: Sequence[int] = ()
    max_size: str | None = None
    keep: int | None = None
    status_url: str | None = None


OpenGpus = Callable[[Request, Clock, Callable[[], frozenset[int]] | None], GpuLoop]


def parse_size(text: str) -> int:
    """`5GB`, `512MiB`, `1.5T` as bytes. Raises `UsageError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--max-size {text}: not a size; write it as 5GB or 512MiB")
    base = 1024 if found[3] else 1000
    size = round(float(found[1]) * float(base ** " KMGT".index(found[2].upper() or " ")))
    if size < _SMALLEST_BYTES:
        raise UsageError(f"--max-size {text}: a capture needs at least 2MiB")
    return size


def default_folder(host: str, now: datetime.datetime) -> Path:
    """`gputrace-HOST-20261129-164500`."""
    return Path(f"gputrace-{host.partition('.')[0] or 'host'}-{now:%Y%m%d-%H%M%S}")


def open_gpus(request: Request, clock: Clock, own_pids: Callable[[], frozenset[int]] | None) -> GpuLoop:
    """The machine's GPUs. Raises `InputError` where there are none, `UsageError` for one that is not there."""
    from gputrace.sampler.gpu import GpuSampler
    from gputrace.sampler.gpus import SampledGpus
    from gputrace.sampler.nvml import Nvml
    from gputrace.sampler.one_gpu import Options

    sampler = GpuSampler(Nvml(), clock, request.period_s, Options(own_pids=own_pids))
    known = [gpu["index"] for gpu in sampler.describe()["gpus"]]
    if absent := sorted(set(request.gpus) - set(known)):
        sampler.close()
        raise UsageError(f"--gpu {absent[0]}: there is no such GPU; there are {', '.join(map(str, known))}")
    return SampledGpus(sampler, request.period_s, clock, frozenset(request.gpus) or None)


def record(
    request: Request,
    say: Callable[[str], None],
    open_gpus: OpenGpus = open_gpus,
    clock: Clock | None = None,
    companion: Callable[[str], Sequence[str]] | None = None,
) -> Ended:
    """Records until a signal comes or the command is over; `say` gets a line for each thing that matters.

    `companion` makes, of the capture's folder, the command of a process that runs beside the recording and is told to
    end (SIGTERM) with it; the recording goes on without it.

    Raises `UsageError` and `InputError` before anything is started, `RecordingError` where the capture cannot be
    written any more.
    """
    clock = clock or SystemClock()
    check_period(request.period_s)
    ways = [request.log, request.journal, request.docker, request.pid, tuple(request.command) or None]
    if sum(way is not None for way in ways) > 1:
        raise UsageError("--log, --journal, --docker, --pid and -- COMMAND each say where the log is: give one of them")
    if request.keep is not None and request.keep < 1:
        raise UsageError("--keep: at least one segment of each kind is kept")
    limits = Limits(parse_size(request.max_size) if request.max_size else None, request.keep)
    folder = Path(request.output) if request.output else default_folder(socket.gethostname(), datetime.datetime.now())
    # A log that cannot be followed is said before the folder is made.
    log = None if request.command else _attach(request, clock)
    capture = Capture(folder, clock, limits)
    bandwidth = MemoryBandwidth()
    # In the folder before anything is started: what is there says what it is at any moment.
    capture.write_meta(
        started_ns=clock.wall_ns(),
        started_mono_ns=clock.mono_ns(),
        period_s=request.period_s,
        limits={"max_bytes": limits.max_bytes, "keep": limits.keep},
        columns={"samples": meanings.SAMPLES, "host": meanings.HOST},
        memory_bandwidth={"source": bandwidth.source, "why_not": bandwidth.why_not},
    )
    found = [log]
    gpus, why_none = _try_gpus(request, clock, found, open_gpus)
    if request.command:
        # Last, so that its first lines are stamped as they come.
        log = found[0] = attach.ChildLog(request.command, folder, clock)
        capture.consumed = dict.fromkeys(RAW, 0)
    described = gpus.describe() if gpus is not None else {"gpus": [], "why_none": why_none}
    buses = [str(gpu["pci_bus_id"]) for gpu in described["gpus"] if gpu.get("pci_bus_id")]
    pid = log.prover_pid() if log is not None else None
    capture.write_meta(
        log=log.describe() if log is not None else None,
        sampler=described,
        context=host_context(prover_pid=pid, bus_ids=buses),
    )
    if request.pid is not None:
        for line in attach.streams_left_out(request.pid, attach.files_of_process(request.pid)):
            say(line)
    say(f"recording to {folder}: {_what(described, log, why_none)}; Ctrl-C ends it")
    recorder = Recorder(capture, clock, log, gpus, HostSampler(clock, bandwidth=bandwidth), request.status_url)
    with _beside(companion, folder, say):
        return recorder.run()


@contextlib.contextmanager
def _beside(
    companion: Callable[[str], Sequence[str]] | None, folder: Path, say: Callable[[str], None]
) -> Iterator[None]:
    if companion is None:
        yield
        return
    try:
        process = subprocess.Popen(companion(str(folder)), stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        say(f"the process beside the recording could not be started: {error.strerror}")
        yield
        return
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_COMPANION_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _attach(request: Request, clock: Clock) -> attach.LogSource | None:
    if request.log is not None:
        path = Path(request.log)
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"{path}: not a file that can be followed{near_path(str(path))}")
        return attach.FileLog({"log": path}, clock)
    if request.pid is not None:
        return attach.FileLog(attach.files_of_process(request.pid), clock, request.pid)
    if request.journal is not None:
        return clients.ClientLog(clients.journal(request.journal), clock)
    if request.docker is not None:
        return clients.ClientLog(clients.docker(request.docker), clock)
    return None


def _try_gpus(
    request: Request, clock: Clock, logs: list[attach.LogSource | None], open_gpus: OpenGpus
) -> tuple[GpuLoop | None, str | None]:
    """The GPUs, or why there are none: the host and the log are worth recording all the same.

    `logs` holds the log, once there is one: only then is it known which processes are the prover's.
    """

    def own_pids() -> frozenset[int]:
        return logs[0].prover_pids() if logs[0] is not None else frozenset()

    known = bool(request.command) or (logs[0] is not None and logs[0].prover_pid() is not None)
    try:
        return open_gpus(request, clock, own_pids if known else None), None
    except InputError as error:
        return None, str(error)


def _what(described: dict[str, Any], log: attach.LogSource | None, why_none: str | None) -> str:
    gpus = len(described["gpus"])
    parts = [f"{gpus} GPU{'s' if gpus > 1 else ''}" if gpus else f"no GPU ({why_none})", "the host"]
    if log is None:
        parts.append("no log (--log, --journal, --docker, --pid or -- COMMAND)")
    else:
        said = log.describe()
        process = f" as process {said['pid']}" if said["how"] == "command" else ""
        parts.append(f"the log ({said['how']}{process})")
    return ", ".join(parts)
