"""One capture to its summary: fetched where it is not a local folder, read, rebuilt, accounted for."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from gputrace.analysis.diagnose import account
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.headline import headline, main_cause
from gputrace.errors import InputError
from gputrace.fleet.captures import CaptureRef, file_system
from gputrace.fleet.summary import CaptureSummary, Failure, FailureKind, GpuDay, Outcome, rounded
from gputrace.ingest.inputs import ingest
from gputrace.rebuild.rebuild import rebuild
from gputrace.resources import parsers_dir
from gputrace.sampler.capture import META
from gputrace.trace import Trace

GB = 1e9
DEFAULT_MOST_BYTES = 20 * GB
# What changes a summary: everything that is between a log and a verdict.
_ROOMS = ("ingest", "rebuild", "analysis", "schema.py", "trace.py", "fleet/analyse.py", "fleet/summary.py")
_DAY_FORMAT = "%Y-%m-%d"
_MOST_META_BYTES = 1 << 20


@cache
def analysis_version() -> str:
    """gputrace's version and a digest of the code and formats that make a summary: another one, another summary."""
    from gputrace import __version__

    package = Path(__file__).parents[1]
    digest = sha256()
    for room in _ROOMS:
        place = package / room
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    for file in sorted(parsers_dir().glob("*.toml")):
        digest.update(file.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


@dataclass(frozen=True)
class Task:
    """How every capture is analysed. `analysis` is the version that the summaries must be of.

    `storage` are fsspec's options for URLs; they may hold secrets and are never written anywhere. `scratch` is where
    copies of remote captures go for a while (None: the system's temporary folder).
    """

    analysis: str
    timezone: str | None = None
    most_bytes: float = DEFAULT_MOST_BYTES
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    scratch: str | None = None

    def __call__(self, capture: CaptureRef) -> Outcome:
        """The summary, or why there is none; never raises for what is wrong with one capture."""
        try:
            return self._summary(capture)
        except InputError as error:
            kind: FailureKind = "input" if capture.remote or os.path.lexists(capture.path) else "unreachable"
            return Failure(capture.path, kind, str(error))
        except (OSError, MemoryError) as error:
            return Failure(capture.path, "unreachable", _in_a_line(error))
        except Exception as error:  # one capture that trips the analysis must not cost the fleet its table
            return Failure(capture.path, "bug", f"a bug of gputrace, please report it: {_in_a_line(error)}")

    def _summary(self, capture: CaptureRef) -> CaptureSummary:
        if capture.size > self.most_bytes:
            text = f"{capture.size / GB:.1f} GB, more than the {self.most_bytes / GB:g} GB of --max-capture-gb"
            # Another limit may be given next time.
            raise _TooLargeError(f"{capture.path}: {text}")
        if not capture.remote:
            return summarise(capture.path, capture.path, self.analysis, self.timezone)
        with tempfile.TemporaryDirectory(prefix="gputrace-fleet-", dir=self.scratch) as folder:
            fetch(capture, Path(folder), self.storage)
            where = str(Path(folder) / capture.files[0][0]) if capture.single else folder
            try:
                return summarise(where, capture.path, self.analysis, self.timezone)
            except InputError as error:
                raise InputError(str(error).replace(folder, capture.path)) from error


class _TooLargeError(OSError):
    """A capture over the limit."""


def _in_a_line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return said if isinstance(error, _TooLargeError) else f"{type(error).__name__}: {said}"


def fetch(capture: CaptureRef, folder: Path, options: Mapping[str, Any]) -> None:
    """Copies a remote capture's files. Raises `OSError` where one cannot be had."""
    files, root = file_system(capture.path, options)
    for name, _ in capture.files:
        source = root if capture.single else f"{root.rstrip('/')}/{name}"
        try:
            files.get_file(source, str(folder / name))
        except OSError:
            raise
        except Exception as error:  # client libraries of stores have error trees of their own
            raise OSError(_in_a_line(error)) from error


def summarise(where: str, capture: str, analysis: str, timezone: str | None = None) -> CaptureSummary:
    """The summary of the capture at `where`, under the name `capture`. Raises `InputError` if it cannot be used."""
    trace = rebuild(ingest([where], timezone=timezone))
    diagnosis = account(trace)
    meta = _meta(Path(where))
    start_ns, end_ns = _span(trace, diagnosis)
    return CaptureSummary(
        capture=capture,
        analysis=analysis,
        host=_host(meta),
        deploy=_text(meta.get("deploy")),
        start_ns=start_ns,
        end_ns=end_ns,
        gpus={gpu.gpu: gpu.name for gpu in diagnosis.gpus},
        days=_days(trace, diagnosis),
        calls=diagnosis.calls.count,
        calls_complete=diagnosis.calls.complete,
        calls_failed=diagnosis.calls.failed,
        calls_per_s=rounded(diagnosis.calls.per_s),
        phase_medians_ms={phase.name: phase.median_ms for phase in diagnosis.phases},
        verdicts={finding.id: finding.verdict for finding in diagnosis.hypotheses},
        main_cause=main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses),
        headline=headline(trace, diagnosis).replace(where, capture),
        clock=trace.clock.method,
        simulated=meta.get("simulated") is True,
        problems=tuple(f"{n.code}: {n.text.replace(where, capture)}" for n in trace.quality.notices),
    )


def _meta(where: Path) -> dict[str, Any]:
    try:
        with (where / META).open("rb") as file:
            told = json.loads(file.read(_MOST_META_BYTES))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _host(meta: Mapping[str, Any]) -> str | None:
    """What a person wrote wins over what the recorder saw."""
    context = meta.get("context")
    return _text(meta.get("host")) or _text(context.get("host") if isinstance(context, dict) else None)


def _span(trace: Trace, diagnosis: Diagnosis) -> tuple[int | None, int | None]:
    """The window, or what the inputs say where nothing of the log has a time."""
    window = diagnosis.window
    if window.start_ns is not None:
        return window.start_ns, window.end_ns
    known = [(i.first_ns, i.last_ns) for i in trace.inputs if i.used and i.first_ns is not None]
    ends = [last for _, last in known if last is not None]
    return min((first for first, _ in known), default=None), max(ends, default=None)


def _days(trace: Trace, diagnosis: Diagnosis) -> tuple[GpuDay, ...]:
    if diagnosis.states.is_empty():
        return ()
    day = pl.from_epoch("start_ns", time_unit="ns").dt.strftime(_DAY_FORMAT).alias("day")
    seconds = ((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9).alias("window_s")
    states = (
        diagnosis.states.with_columns(day)
        .group_by("gpu", "day")
        .agg(seconds, pl.col("compute_s", "copy_only_s", "idle_s").sum())
        .sort("gpu", "day")
    )
    charged = (
        diagnosis.blame.with_columns(day)
        .group_by("gpu", "day", "cause")
        .agg((pl.col("copy_only_s") + pl.col("idle_s")).sum().alias("lost_s"))
        .sort("gpu", "day", "lost_s", "cause", descending=[False, False, True, False])
    )
    done = trace.calls.filter(pl.col("complete")).with_columns(
        pl.from_epoch(pl.coalesce("unlock_ns", "end_ns"), time_unit="ns").dt.strftime(_DAY_FORMAT).alias("day")
    )
    calls = {(gpu, when): count for gpu, when, count in done.group_by("gpu", "day").len().iter_rows()}
    split = {gpu.gpu: gpu.idle_share is not None for gpu in diagnosis.gpus}
    losses: dict[tuple[int, str], dict[str, float]] = {}
    for gpu, when, cause, lost_s in charged.iter_rows():
        losses.setdefault((gpu, when), {})[cause] = float(f"{lost_s:.9g}")
    return tuple(
        GpuDay(
            gpu=gpu,
            day=when,
            window_s=float(f"{window_s:.9g}"),
            compute_s=float(f"{compute_s:.9g}"),
            copy_only_s=rounded(copy_s) if split.get(gpu) else None,
            idle_s=rounded(idle_s) if split.get(gpu) else None,
            calls=int(calls.get((gpu, when), 0)),
            lost_by_cause_s=losses.get((gpu, when), {}),
        )
        for gpu, when, window_s, compute_s, copy_s, idle_s in states.iter_rows()
    )
