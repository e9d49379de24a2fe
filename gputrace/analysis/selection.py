"""Selecting part of a run by time, GPU, worker, job or regime."""

import re
from dataclasses import dataclass, replace

import polars as pl

from gputrace.analysis.diagnosis import Regime
from gputrace.analysis.parts import part_of
from gputrace.analysis.segments import windows
from gputrace.errors import InputError, UsageError
from gputrace.ingest.trace_times import parse_instant
from gputrace.nearest import did_you_mean
from gputrace.trace import Notice, Trace

# Lock and unlock are computed from lines of whole milliseconds: so much outside an edge is still inside.
_EDGE_MS = 2.0
_MOST_LISTED = 8


@dataclass(frozen=True)
class Selection:
    """What is wanted of a run, as a user writes it; None where nothing is said.

    `start`, `end`: seconds into the window, or a time as 2026-11-29T11:47:29Z (without a zone: `timezone`, or UTC).
    `last_s`: seconds before `end`, or before the end of the window. `regime`: its number from 1, or part of its label.
    """

    start: str | None = None
    end: str | None = None
    last_s: float | None = None
    gpu: int | None = None
    worker: int | None = None
    job: str | None = None
    regime: str | None = None
    timezone: str | None = None

    def __str__(self) -> str:
        said = {
            "--from": self.start, "--to": self.end, "--last": self.last_s, "--gpu": self.gpu, "--worker": self.worker,
            "--job": self.job, "--regime": self.regime,
        }  # fmt: skip
        return " ".join(
            f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
            for option, value in said.items()
            if value is not None
        )


def select(trace: Trace, selection: Selection) -> Trace:
    """The trace of a part of a run; what was left out is counted in its notices.

    By time (`start`, `end`, `last_s`, `regime`) whole calls are kept, those whose lock and unlock both lie inside, with
    what belongs to them; samples and host readings are cut at the edges. By GPU, the other GPUs' rows go. By worker or
    job nothing goes: those calls become the trace's `focus`, so that the GPU's time stays that of everyone who used it.

    Raises `InputError` where nothing matches or there is no wall clock, `UsageError` where the request contradicts
    itself.
    """
    chosen, said = trace, str(selection)
    if not said:
        return trace
    notices: list[Notice] = []
    span = _span(trace, selection)
    if selection.gpu is not None:
        chosen = _of_gpu(chosen, selection.gpu)
    if span is not None:
        chosen = _within(chosen, *span, said, notices)
    focus = _focus(chosen, selection)
    kept = len(focus) if focus is not None else chosen.calls.height
    if not kept and (trace.calls.height or chosen.samples.is_empty()):
        raise InputError(f"{said}: no call matches; {_known(trace, selection, span)}")
    notices.insert(0, Notice("selection", f"{said}: {kept} of {trace.calls.height} calls are looked at"))
    if focus is not None:
        notices.append(
            Notice(
                "selection-focus",
                "calls, phases and jobs are those selected; the GPU's time, its causes and regimes are everyone's",
            )
        )
    quality = replace(trace.quality, notices=[*notices, *trace.quality.notices])
    return replace(chosen, focus=focus, quality=quality)


def _window(trace: Trace) -> tuple[int, int]:
    frame = windows(trace).frame
    if frame.is_empty():
        raise InputError(
            "no call of the log has a time: a part of it cannot be selected by time; select by --gpu, --worker or --job"
        )
    return int(frame["start_ns"].min()), int(frame["end_ns"].max())  # type: ignore[arg-type]


def _span(trace: Trace, selection: Selection) -> tuple[int, int] | None:
    """From and to in ns; None where no time is given."""
    if selection.start is not None and selection.last_s is not None:
        raise UsageError("--from and --last both say where to begin: give one of them")
    if selection.last_s is not None and not selection.last_s > 0:
        raise UsageError(f"--last {selection.last_s:g}: must be more than 0 seconds")
    if all(v is None for v in (selection.start, selection.end, selection.last_s, selection.regime)):
        return None
    start_ns, end_ns = begin_ns, stop_ns = _window(trace)
    if selection.regime is not None:
        # Only a regime needs all of the analysis, which is slow to load.
        from gputrace.analysis.diagnose import diagnose

        regime = _find_regime(diagnose(trace, scenarios=()).regimes, selection.regime)
        start_ns, end_ns = regime.start_ns, regime.end_ns
    if selection.end is not None:
        end_ns = min(end_ns, _instant(trace, "--to", selection.end, begin_ns, selection.timezone))
    if selection.start is not None:
        start_ns = max(start_ns, _instant(trace, "--from", selection.start, begin_ns, selection.timezone))
    if selection.last_s is not None:
        start_ns = max(start_ns, end_ns - round(selection.last_s * 1e9))
    if start_ns >= end_ns:
        raise InputError(f"{selection}: empty; the window is 0 to {(stop_ns - begin_ns) / 1e9:.1f} s")
    return start_ns, end_ns


def _instant(trace: Trace, option: str, text: str, begin_ns: int, timezone: str | None) -> int:
    """Seconds into the window (up to eight digits) or a wall-clock time."""
    if re.fullmatch(r"\d{1,8}(\.\d*)?", text.strip()):
        return begin_ns + round(float(text) * 1e9)
    at_ns = parse_instant(text, timezone, option)
    if trace.clock.method == "none" and not trace.marks.is_empty():
        raise InputError(f"{option} {text}: this log has no wall clock; give seconds into the window")
    return at_ns


def _find_regime(regimes: tuple[Regime, ...], wanted: str) -> Regime:
    listed = ", ".join(f"{n} {regime.label!r}" for n, regime in enumerate(regimes, 1)) or "none"
    if wanted.strip().isdigit():
        number = int(wanted)
        if not 1 <= number <= len(regimes):
            raise InputError(f"--regime {wanted}: there is no such regime; the run has {listed}")
        return regimes[number - 1]
    matching = [regime for regime in regimes if wanted.lower() in regime.label.lower()]
    if len(matching) != 1:
        many = "more than one regime is" if matching else "no regime is"
        near = "" if matching else did_you_mean(wanted, [regime.label for regime in regimes], 0.4)
        raise InputError(f"--regime {wanted}: {many} called so{near}; the run has {listed}")
    return matching[0]


def _of_gpu(trace: Trace, gpu: int) -> Trace:
    mine = pl.col("gpu") == gpu
    calls = trace.calls.filter(mine)
    return replace(
        trace,
        calls=calls,
        phases=trace.phases.filter(pl.col("call").is_in(calls["call"].implode())),
        samples=trace.samples.filter(mine),
        copies=trace.copies.filter(mine),
        gpus=[info for info in trace.gpus if info.gpu == gpu],
    )


def _within(trace: Trace, start_ns: int, end_ns: int, said: str, notices: list[Notice]) -> Trace:
    slack = ((pl.col("uncertainty_ms").fill_null(0.0) + _EDGE_MS) * 1e6).cast(pl.Int64)
    begun, ended = pl.coalesce("lock_ns", "start_ns"), pl.coalesce("unlock_ns", "end_ns")
    # A call that the log does not finish is placed by the one time that it has.
    timed = trace.calls.with_columns(
        pl.coalesce(begun, ended).alias("begun"), pl.coalesce(ended, begun).alias("ended"), slack.alias("slack")
    )
    inside = (pl.col("begun") >= start_ns - pl.col("slack")) & (pl.col("ended") <= end_ns + pl.col("slack"))
    kept = timed.filter(inside)
    untimed = timed["begun"].null_count()
    across = timed.filter(~inside & (pl.col("begun") < end_ns) & (pl.col("ended") > start_ns)).height
    if across:
        notices.append(Notice("selection-cut", f"calls lie across an edge of {said} and are left out", across))
    if untimed:
        notices.append(Notice("selection-untimed", f"calls without a time are left out by {said}", untimed))
    return part_of(trace, kept["call"], start_ns, end_ns)


def _focus(trace: Trace, selection: Selection) -> pl.Series | None:
    if selection.worker is None and selection.job is None:
        return None
    wanted = pl.lit(True)
    if selection.worker is not None:
        wanted &= pl.col("worker") == selection.worker
    if selection.job is not None:
        wanted &= pl.col("job") == selection.job
    return trace.calls.filter(wanted)["call"]


def _known(trace: Trace, selection: Selection, span: tuple[int, int] | None) -> str:
    """What the run has of what was asked for."""
    parts = []
    if span is not None:
        begin_ns, end_ns = _window(trace)
        parts.append(f"its window is 0 to {(end_ns - begin_ns) / 1e9:.1f} s")
    for column, wanted in (("gpu", selection.gpu), ("worker", selection.worker), ("job", selection.job)):
        if wanted is not None:
            values = trace.calls[column].drop_nulls().unique().sort().to_list()
            more = f" and {len(values) - _MOST_LISTED} more" if len(values) > _MOST_LISTED else ""
            name = "GPU" if column == "gpu" else column
            parts.append(f"its {name}s are {', '.join(map(str, values[:_MOST_LISTED])) or 'not named'}{more}")
    near = _near_job(trace, selection)
    return "this run: " + "; ".join(parts) + near


def _near_job(trace: Trace, selection: Selection) -> str:
    """The job that was probably meant."""
    return "" if selection.job is None else did_you_mean(selection.job, trace.calls["job"].drop_nulls().unique())
