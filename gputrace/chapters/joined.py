"""Chapters put together: one diagnosis, and what is known of the run that it is of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from gputrace.analysis.diagnosis import (
    CallSummary,
    Diagnosis,
    Gap,
    Gaps,
    GpuFinding,
    HypothesisFinding,
    Job,
    WhatIf,
    Window,
)
from gputrace.analysis.gaps import MOST_LISTED, causes
from gputrace.analysis.headline import main_cause, sentence
from gputrace.analysis.jobs import jobs_of
from gputrace.analysis.outlook import Outlook, with_recoverable
from gputrace.analysis.stability import Tried, Variation
from gputrace.chapters.chapter import STRETCHES, Chapter
from gputrace.chapters.phases import PhasesOfRun
from gputrace.chapters.regimes import joined_regimes
from gputrace.chapters.spread import Spread, added_up
from gputrace.chapters.verdicts import joined_verdicts
from gputrace.chapters.workers import joined_interleavings
from gputrace.ingest.log_result import LogResult
from gputrace.trace import InputInfo, Notice, Quality, Trace

# So many notices of a kind are told in full.
_MOST_ALIKE = 3


@dataclass
class Gathered:
    """Chapters one after the other. What would add up to much is put together at once: values of phases, and the
    longest gaps."""

    chapters: list[Chapter] = field(default_factory=list)
    phases: PhasesOfRun = field(default_factory=PhasesOfRun)
    longest: list[Gap] = field(default_factory=list)

    def add(self, chapter: Chapter) -> None:
        """Takes one more chapter."""
        self.phases.add(chapter.phases)
        gaps = chapter.diagnosis.gaps
        self.longest = sorted([*self.longest, *gaps.list], key=lambda gap: -gap.duration_ms)[:MOST_LISTED]
        diagnosis = replace(chapter.diagnosis, gaps=replace(gaps, list=()))
        self.chapters.append(replace(chapter, phases={}, diagnosis=diagnosis))

    def diagnosis(self, ahead: Outlook) -> Diagnosis:
        """The diagnosis of all chapters; `ahead` is what was foreseen for the last one.

        `states` and `blame` have a few rows a chapter, `call_bytes` none.
        """
        return _diagnosis(self.chapters, self.phases, self.longest, ahead)


def _diagnosis(chapters: Sequence[Chapter], phases: PhasesOfRun, gaps: Sequence[Gap], ahead: Outlook) -> Diagnosis:
    own = [chapter.diagnosis for chapter in chapters]
    blame = pl.concat([one.blame for one in own])
    calls = _calls(chapters)
    what_if = _for_all(ahead.what_if, calls.complete, own[-1].calls.complete)
    diagnosis = Diagnosis(
        window=_window([one.window for one in own]),
        gpus=_gpus(chapters),
        calls=calls,
        jobs=listed_jobs(chapters),
        phases=phases.findings(),
        gaps=_gaps([one.gaps for one in own], blame, gaps),
        hypotheses=with_recoverable(joined_verdicts(chapters), what_if),
        regimes=joined_regimes([one.regimes for one in own]),
        interleaving=joined_interleavings([one.interleaving for one in own]),
        bounds=ahead.bounds,
        what_if=what_if,
        replay=ahead.error,
        what_if_missing=ahead.missing,
        states=pl.concat([one.states for one in own]),
        blame=blame,
    )
    has_log, has_phases = any(c.has_log for c in chapters), any(c.has_phases for c in chapters)
    diagnosis.headline = sentence(diagnosis, has_log, has_phases)
    diagnosis.variations = _variations(
        chapters, diagnosis.hypotheses, main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses)
    )
    diagnosis.headline_stable = all(variation.same for variation in diagnosis.variations)
    return diagnosis


def _for_all(effects: Sequence[WhatIf], calls: int, foreseen: int) -> tuple[WhatIf, ...]:
    """Seconds saved over all calls of the run, by the rates foreseen for the last chapter's."""
    scale = (calls - 1) / (foreseen - 1) if foreseen > 1 else 1.0

    def scaled(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * scale

    return tuple(
        replace(
            one, saved_s=scaled(one.saved_s), saved_s_low=scaled(one.saved_s_low), saved_s_high=scaled(one.saved_s_high)
        )
        for one in effects
    )


def _window(windows: Sequence[Window]) -> Window:
    known = [window for window in windows if window.start_ns is not None]
    if not known:
        return Window()
    return Window(
        start_ns=known[0].start_ns,
        end_ns=known[-1].end_ns,
        duration_s=sum(window.duration_s or 0.0 for window in known),
        ramp_up_s=known[0].ramp_up_s,
        drain_s=known[-1].drain_s,
    )


def _gpus(chapters: Sequence[Chapter]) -> tuple[GpuFinding, ...]:
    """Shares are of the seconds of all chapters; the line rate is the highest of them."""
    told: dict[int, list[tuple[GpuFinding, float, float]]] = {}
    for chapter in chapters:
        states = chapter.diagnosis.states.group_by("gpu").agg(
            pl.sum_horizontal("compute_s", "copy_only_s", "idle_s").sum()
        )
        seconds = dict(states.iter_rows())
        for finding in chapter.diagnosis.gpus:
            window_s = chapter.windows_s.get(finding.gpu, 0.0)
            told.setdefault(finding.gpu, []).append((finding, seconds.get(finding.gpu, window_s), window_s))
    return tuple(_gpu(told[gpu]) for gpu in sorted(told))


def _gpu(told: Sequence[tuple[GpuFinding, float, float]]) -> GpuFinding:
    """`told`: a chapter's finding, the seconds that its states account for, and those of its window."""
    findings = [finding for finding, _, _ in told]
    accounted_s, window_s = [seconds for _, seconds, _ in told], [seconds for _, _, seconds in told]
    rates = [(one.line_rate_bytes_per_s, one.line_rate_from) for one in findings if one.line_rate_bytes_per_s]
    rate, rate_from = max(rates, key=lambda pair: pair[0], default=(None, None))

    def share(name: str, weights: Sequence[float]) -> float | None:
        values = [getattr(one, name) for one in findings]
        known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
        total = sum(seconds for _, seconds in known)
        return sum(value * seconds for value, seconds in known) / total if total else None

    def total(name: str) -> float | None:
        known = [getattr(one, name) for one in findings if getattr(one, name) is not None]
        return sum(known) if known else None

    return replace(
        findings[-1],
        line_rate_bytes_per_s=rate,
        line_rate_from=rate_from,
        compute_share=share("compute_share", accounted_s),
        copy_only_share=share("copy_only_share", accounted_s),
        idle_share=share("idle_share", accounted_s),
        mutex_held_share=share("mutex_held_share", window_s),
        rx_payload_bytes=total("rx_payload_bytes"),
        tx_payload_bytes=total("tx_payload_bytes"),
    )


def _calls(chapters: Sequence[Chapter]) -> CallSummary:
    own = [chapter.diagnosis.calls for chapter in chapters]
    runs = (
        pl.concat([chapter.unlocks for chapter in chapters])
        .group_by("restart")
        .agg(pl.col("calls").sum(), ((pl.col("last_ns").max() - pl.col("first_ns").min()) / 1e9).alias("span_s"))
    )
    timed = runs.filter((pl.col("calls") > 1) & (pl.col("span_s") > 0))
    workers = added_up(summary.by_worker for summary in own)
    residuals = Spread.sum(chapter.residuals_ms for chapter in chapters)
    return CallSummary(
        count=sum(summary.count for summary in own),
        complete=sum(summary.complete for summary in own),
        failed=sum(summary.failed for summary in own),
        warmup=sum(summary.warmup for summary in own),
        per_s=float((timed["calls"] - 1).sum()) / float(timed["span_s"].sum()) if timed.height else None,
        by_worker={worker: int(workers[worker]) for worker in sorted(workers, key=int)},
        residual_ms_median=residuals.quantiles(0.5)[0] if residuals.count else None,
    )


def all_jobs(chapters: Sequence[Chapter]) -> pl.DataFrame:
    """`job_parts` of the run: a job that lies in several chapters is one."""
    sums = pl.col("partitions", "waited_ns", "waits", "done", "held_ns", "holds").sum()
    return (
        pl.concat([chapter.jobs for chapter in chapters])
        .group_by("job", maintain_order=True)
        .agg(
            sums,
            pl.col("start_ns").min(),
            pl.col("end_ns", "unlock_ns", "finish_ns").max(),
            pl.col("kind").drop_nulls().first(),
        )
        .filter(pl.col("partitions") > 0)
    )


def listed_jobs(chapters: Sequence[Chapter]) -> tuple[Job, ...]:
    """The jobs in order of their first synthesis; of very many, those that took longest."""
    jobs = all_jobs(chapters)
    if jobs.height > MOST_LISTED:
        length = (pl.coalesce("finish_ns", "end_ns") - pl.col("start_ns")).alias("length")
        jobs = jobs.with_columns(length).sort("length", descending=True, nulls_last=True).head(MOST_LISTED)
    return jobs_of(jobs.sort("start_ns", nulls_last=True, maintain_order=True))


def _gaps(own: Sequence[Gaps], blame: pl.DataFrame, longest: Sequence[Gap]) -> Gaps:
    states_s = sum(gaps.total_s / gaps.share_of_window for gaps in own if gaps.total_s and gaps.share_of_window)
    total_s = sum(gaps.total_s or 0.0 for gaps in own)
    return Gaps(
        threshold_ms=own[0].threshold_ms,
        count=sum(gaps.count for gaps in own),
        total_s=total_s,
        below_threshold_s=sum(gaps.below_threshold_s or 0.0 for gaps in own),
        share_of_window=total_s / states_s if states_s else None,
        by_cause=causes(blame),
        list=tuple(longest),
    )


def _variations(
    chapters: Sequence[Chapter], hypotheses: Sequence[HypothesisFinding], chosen: str | None
) -> tuple[Variation, ...]:
    """The main cause of the run under other thresholds. A cause that lost most in all chapters together and is not
    the main one of some is judged there as under the usual thresholds."""
    usual = {finding.id for finding in hypotheses if finding.verdict == "supported"}
    tries: dict[tuple[str, float], list[Tried]] = {}
    for chapter in chapters:
        for one in chapter.tried:
            tries.setdefault((one.threshold, one.value), []).append(one)
    found = []
    for own in tries.values():
        lost_s = added_up(one.lost_s for one in own)
        first = next(iter(lost_s), None)
        leading = [one for one in own if next(iter(one.lost_s), None) == first]
        judged = sum(one.main_cause == first for one in leading) * 2 > len(leading) if leading else first in usual
        found.append(replace(own[0], lost_s=lost_s, main_cause=first if judged else None).against(chosen))
    return tuple(found)


def joined_trace(
    chapters: Sequence[Chapter],
    diagnosis: Diagnosis,
    infos: list[InputInfo],
    log: LogResult,
    events: Mapping[str, int],
) -> Trace:
    """What is known of the run, without frames; `events` are its records by event."""
    own = [chapter.quality for chapter in chapters]
    marks, placed = sum(events.values()), sum(chapter.marks_placed for chapter in chapters)
    quality = Quality(
        lines=log.lines,
        marks=marks,
        marks_by_event=dict(sorted(events.items())),
        marks_placed=placed,
        marks_unplaced=marks - placed,
        torn_repaired=log.torn_repaired,
        torn_lost=log.torn_lost,
        unrecognised_of_known_family=log.unrecognised,
        samples=sum(info.rows for info in infos if info.kind == "samples"),
        samples_missing=sum(one.samples_missing for one in own),
        counter_wraps=sum(one.counter_wraps for one in own),
        counter_ambiguous=sum(one.counter_ambiguous for one in own),
    )
    size = f" of some {diagnosis.calls.count // len(chapters)} calls each" if marks else ""
    quality.notice(
        "in-chapters",
        f"a long run, judged in {len(chapters)} chapters{size}: sums and quantiles are of all of it, verdicts and "
        f"regimes those of the chapters put together, predictions replay the end of the run, highs and lows over time "
        f"are means of a {STRETCHES}th of a chapter",
        len(chapters),
    )
    jobs = all_jobs(chapters).height
    if jobs > len(diagnosis.jobs):
        quality.notice("jobs-listed", f"of {jobs} jobs the {MOST_LISTED} that took longest are listed", jobs)
    quality.notices += _together([notice for one in own for notice in one.notices])
    first = next((chapter for chapter in chapters if chapter.clock.method != "none"), chapters[0])
    gpus = {gpu.gpu: gpu for chapter in reversed(chapters) for gpu in chapter.gpus}
    return Trace(inputs=infos, gpus=[gpus[number] for number in sorted(gpus)], clock=first.clock, quality=quality)


def _together(notices: Sequence[Notice]) -> list[Notice]:
    """Equal notices as one, counts added; of a kind whose words differ only the first few in full."""
    texts: dict[str, dict[str, int]] = {}
    for notice in notices:
        of_code = texts.setdefault(notice.code, {})
        of_code[notice.text] = of_code.get(notice.text, 0) + notice.count
    found = []
    for code, counts in texts.items():
        told = list(counts.items())
        found += [Notice(code, text, count) for text, count in told[:_MOST_ALIKE]]
        if rest := told[_MOST_ALIKE:]:
            found.append(Notice(code, f"the like in {len(rest)} more chapters", sum(count for _, count in rest)))
    return found
