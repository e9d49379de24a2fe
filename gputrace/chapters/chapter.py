"""One chapter of a long run: what is kept of it once it has been judged. Its frames are let go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from gputrace import schema
from gputrace.analysis.diagnose import examine
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.analysis.jobs import job_parts
from gputrace.analysis.outlook import Outlook, outlook
from gputrace.analysis.parts import part_of
from gputrace.analysis.pipeline.scenarios import Scenario
from gputrace.analysis.stability import Tried
from gputrace.analysis.thresholds import REGIME_LEAST_SHARE
from gputrace.chapters.cut import Cut
from gputrace.chapters.phases import PhaseSpread, phase_spreads
from gputrace.chapters.spread import Spread
from gputrace.rows import Places, line_numbers, where, with_values
from gputrace.trace import Clock, GpuInfo, Quality, Trace

# Regimes are judged one by one, chapter by chapter: what is shorter in its chapter is not told apart.
_LEAST_REGIME_SHARE = 5 * REGIME_LEAST_SHARE
_EVER = (-(1 << 62), 1 << 62)
# The states and causes of a chapter are kept as so many stretches of equal length.
STRETCHES = 48


@dataclass(frozen=True)
class GivenBack:
    """When a GPU's mutex was given back last, and in which run of the prover (counted over restarts)."""

    restart: int
    at_ns: int


@dataclass(frozen=True)
class Begins:
    """What a chapter has to know of those before it: how many calls they had, and each GPU's last unlock."""

    calls: int = 0
    given_back: Mapping[int, GivenBack] | None = None


@dataclass(frozen=True)
class Chapter:
    """What is kept of a chapter.

    `diagnosis` has everything but predictions and headline; of its frames `states` and `blame` are summed over
    stretches of the chapter, `call_bytes` is empty. `unlocks` has, per restart, the complete calls and their first and
    last unlock; `windows_s` the seconds of each GPU's window.
    """

    diagnosis: Diagnosis
    tried: tuple[Tried, ...]
    phases: dict[str, PhaseSpread]
    jobs: pl.DataFrame
    unlocks: pl.DataFrame
    residuals_ms: Spread
    windows_s: dict[int, float]
    marks_placed: int
    clock: Clock
    quality: Quality
    gpus: list[GpuInfo]
    has_log: bool
    has_phases: bool


@dataclass(frozen=True)
class Judged:
    """A chapter, and the part of the run that it is, from which predictions can still be made."""

    chapter: Chapter
    trace: Trace
    diagnosis: Diagnosis

    def outlook(self, scenarios: Sequence[Scenario] | None) -> Outlook:
        """What changes would do to the chapter's calls; those worth it where none are given."""
        return outlook(self.trace, self.diagnosis, scenarios)


@dataclass(frozen=True)
class Own:
    """What belongs to a chapter, and what the next one begins with. `syntheses` are those begun in it: of others that
    its calls wait for, `trace` has copies."""

    trace: Trace
    ends: Begins = field(default_factory=Begins)
    syntheses: pl.DataFrame = field(default_factory=schema.SYNTHESES.empty)
    is_last: bool = False


def judge(own: Own, gap_ms: float) -> Judged:
    """Judges a chapter."""
    trace = own.trace
    examined = examine(trace, gap_ms, least_regime_share=_LEAST_REGIME_SHARE)
    diagnosis = examined.diagnosis
    complete = where(trace.calls, trace.calls["complete"])
    told = with_values(complete, "unlock_ns").group_by("restart")
    unlocks = pl.col("unlock_ns")
    spans = examined.windows.frame.group_by("gpu").agg((pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9)
    chapter = Chapter(
        diagnosis=replace(
            diagnosis,
            jobs=(),
            states=_summed_states(diagnosis.states),
            blame=_summed_blame(diagnosis.blame),
            call_bytes=diagnosis.call_bytes.clear(),
        ),
        tried=examined.tried,
        phases=phase_spreads(trace, diagnosis, examined.durations),
        jobs=job_parts(replace(trace, syntheses=own.syntheses)),
        unlocks=told.agg(pl.len().alias("calls"), unlocks.min().alias("first_ns"), unlocks.max().alias("last_ns")),
        residuals_ms=Spread.of(complete["residual_ms"].to_numpy()),
        windows_s=dict(spans.iter_rows()),
        marks_placed=_placed(trace),
        clock=trace.clock,
        quality=trace.quality,
        gpus=trace.gpus,
        has_log=trace.marks.height > 0,
        has_phases=bool(trace.phases["under_mutex"].any()),
    )
    return Judged(chapter, trace, diagnosis)


def own_part(trace: Trace, cut: Cut, begins: Begins) -> Own:
    """The chapter's own calls with what belongs to them, numbered through; and what the next chapter begins with."""
    calls = trace.calls.with_columns(pl.col("first_line").alias("line"))
    is_own = calls.select(cut.is_own.fill_null(False).alias("own"))["own"]
    numbers = calls.filter(is_own)["call"]
    restart = (pl.col("restart") + cut.seam.restarts).cast(pl.UInt16)
    named = np.zeros(int(calls["call"].max() or 0) + 1, dtype=np.uint32)  # type: ignore[arg-type]
    named[numbers.to_numpy()] = begins.calls + np.arange(len(numbers))
    given_back = dict(begins.given_back or {})
    timed = calls.filter(is_own).drop_nulls(["lock_ns", "unlock_ns"]).with_columns(restart).sort("lock_ns")
    first = timed.unique("gpu", keep="first")
    goes_on = {
        gpu: given_back[gpu].at_ns
        for gpu, run, lock_ns in first.select("gpu", "restart", "lock_ns").iter_rows()
        if gpu in given_back and given_back[gpu].restart == run and given_back[gpu].at_ns <= lock_ns
    }
    last = timed.group_by("gpu", "restart").agg(pl.col("unlock_ns").max()).sort("restart")
    given_back |= {gpu: GivenBack(run, at_ns) for gpu, run, at_ns in last.iter_rows()}
    # Of the run's ends nothing is cut off.
    start_ns = (
        min([*goes_on.values(), *timed["lock_ns"].head(1)], default=_EVER[0]) if cut.seam.after_line else _EVER[0]
    )
    end_ns = _EVER[1] if cut.is_last else int(timed["unlock_ns"].max() or start_ns)  # type: ignore[arg-type]
    part = part_of(trace, numbers, start_ns, end_ns)
    own = replace(
        part,
        marks=trace.marks.filter(cut.is_own),
        calls=part.calls.with_columns(restart, pl.Series("call", named[part.calls["call"].to_numpy()])),
        phases=part.phases.with_columns(pl.Series("call", named[part.phases["call"].to_numpy()])),
        syntheses=part.syntheses.with_columns(restart),
        goes_on_from_ns=goes_on,
    )
    syntheses = trace.syntheses.filter(_begun_in(cut, own))
    return Own(own, Begins(begins.calls + len(numbers), given_back), syntheses, cut.is_last)


def _begun_in(cut: Cut, own: Trace) -> pl.Expr:
    """Whether a synthesis belongs to the chapter: by the line of its start, or by its end where no line tells that."""
    first, last = own.calls["start_ns"].min(), own.calls["start_ns"].max()
    ended = pl.col("end_ns").is_between(first, last, closed="right")
    return pl.when(pl.col("line").is_not_null()).then(cut.is_own).otherwise(ended)


def _placed(own: Trace) -> int:
    """Marks that have a time of their own or tell a phase of a call that has one."""
    timeless = own.marks.select(pl.all_horizontal(pl.col("log_ns", "arrival_ns", "offset_ms").is_null())).to_series()
    timed = own.calls.select(pl.any_horizontal(pl.col("start_ns", "lock_ns").is_not_null())).to_series()
    told = where(own.phases[["source", "line"]], Places(own.calls["call"].filter(timed)).of(own.phases["call"]) >= 0)
    tied, told = with_values(where(own.marks[["source", "line"]], timeless)), with_values(told)
    is_told = np.isin(line_numbers(tied["source"], tied["line"]), line_numbers(told["source"], told["line"]))
    return len(timeless) - int(timeless.sum()) + int(is_told.sum())


def _stretch(frame: pl.DataFrame) -> pl.Expr:
    """Which of the stretches of equal length a row's middle lies in."""
    first, last = frame["start_ns"].min(), frame["end_ns"].max()
    length = max(1, int(last) - int(first))  # type: ignore[arg-type]
    middle = (pl.col("start_ns") + pl.col("end_ns")) // 2
    return ((middle - first) * STRETCHES // length).alias("stretch")


def _summed_states(states: pl.DataFrame) -> pl.DataFrame:
    if states.is_empty():
        return states
    seconds = pl.col("end_ns") - pl.col("start_ns")
    rates = [(pl.col(name) * seconds).sum() / seconds.filter(pl.col(name).is_not_null()).sum() for name in _RATES]
    summed = states.group_by("gpu", _stretch(states)).agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        pl.col("compute_s", "copy_only_s", "idle_s").sum(),
        *(rate.fill_nan(None).alias(name) for name, rate in zip(_RATES, rates, strict=True)),
    )
    return summed[states.columns].sort("gpu", "start_ns")


_RATES = ("rx_bytes_per_s", "tx_bytes_per_s")


def _summed_blame(blame: pl.DataFrame) -> pl.DataFrame:
    if blame.is_empty():
        return blame
    summed = blame.group_by("gpu", "cause", "phase", _stretch(blame)).agg(
        pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("copy_only_s", "idle_s").sum()
    )
    nothing = [pl.lit(None, blame.schema[name]).alias(name) for name in ("call", "source", "line")]
    return summed.with_columns(nothing).select(blame.columns).sort("gpu", "start_ns", "cause", "phase")
