"""A `Trace` to a `Diagnosis`: account, bytes, blame, verdicts, headline."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace import schema
from gputrace.analysis.account import GpuView, gpu_views
from gputrace.analysis.bandwidth import Transfers, transfers
from gputrace.analysis.blame import CHARGED_BY, charge, lost_pieces
from gputrace.analysis.diagnosis import CallSummary, CauseTotal, Diagnosis, GpuFinding, PhaseFinding, Window
from gputrace.analysis.durations import Durations, durations_of
from gputrace.analysis.gaps import causes, find_gaps
from gputrace.analysis.headline import headline, main_cause, main_cause_of
from gputrace.analysis.hypotheses import Case, judge_all
from gputrace.analysis.jobs import summarise_jobs
from gputrace.analysis.outlook import outlook, with_recoverable
from gputrace.analysis.phases import summarise_phases, with_transfer
from gputrace.analysis.pipeline.scenarios import Scenario
from gputrace.analysis.records import Records
from gputrace.analysis.regimes.cases import judge_regimes
from gputrace.analysis.regimes.stretches import find_stretches
from gputrace.analysis.segments import Windows, alloc_bursts, build_segments, windows
from gputrace.analysis.signs.signs import Signs, find_signs
from gputrace.analysis.stability import Tried
from gputrace.analysis.thresholds import REGIME_LEAST_SHARE, Thresholds
from gputrace.analysis.workers.interleaving import interleavings
from gputrace.ingest.samples import WIRE_PER_PAYLOAD, WIRE_PER_PAYLOAD_OF
from gputrace.rows import where, with_values
from gputrace.trace import Trace

DEFAULT_GAP_MS = 500.0


@dataclass(frozen=True)
class _Measured:
    """What does not depend on thresholds: windows, segments, samples on them, and the fits."""

    records: Records
    windows: Windows
    bursts: pl.DataFrame
    segments: pl.DataFrame
    views: list[GpuView]
    moved: list[Transfers]
    signs: Signs
    lost: list[pl.DataFrame]


def diagnose(
    trace: Trace,
    gap_ms: float = DEFAULT_GAP_MS,
    thresholds: Thresholds | None = None,
    scenarios: Sequence[Scenario] | None = None,
) -> Diagnosis:
    """The diagnosis of one trace; `scenarios` are the changes to predict, those worth it where not given."""
    examined = examine(trace, gap_ms, thresholds)
    diagnosis = examined.diagnosis
    ahead = outlook(trace, diagnosis, scenarios)
    diagnosis.bounds, diagnosis.what_if = ahead.bounds, ahead.what_if
    diagnosis.replay, diagnosis.what_if_missing = ahead.error, ahead.missing
    diagnosis.hypotheses = with_recoverable(diagnosis.hypotheses, diagnosis.what_if)
    diagnosis.headline = headline(trace, diagnosis)
    chosen = main_cause(diagnosis.gaps.by_cause, diagnosis.hypotheses)
    diagnosis.variations = tuple(one.against(chosen) for one in examined.tried)
    diagnosis.headline_stable = all(variation.same for variation in diagnosis.variations)
    diagnosis.phases = examined.in_focus
    return diagnosis


@dataclass(frozen=True)
class Examined:
    """What happened, without predictions and headline; and what other thresholds make of the causes.

    `in_focus` are the phases of the calls that tables are about; those of the diagnosis are everybody's, and so are the
    `durations` of phases in complete calls.
    """

    diagnosis: Diagnosis
    tried: tuple[Tried, ...]
    in_focus: tuple[PhaseFinding, ...]
    durations: Mapping[str, Durations]
    windows: Windows


def examine(
    trace: Trace,
    gap_ms: float = DEFAULT_GAP_MS,
    thresholds: Thresholds | None = None,
    least_regime_share: float = REGIME_LEAST_SHARE,
) -> Examined:
    """Examines a trace; a regime takes at least `least_regime_share` of the time."""
    limits = thresholds or Thresholds()
    measured = _measure(trace, limits)
    spans, bursts, segments, moved = measured.windows, measured.bursts, measured.segments, measured.moved
    stretches = find_stretches(trace, bursts, least_regime_share)
    in_regimes = [stretch.calls for stretch in stretches]
    classed = _classes(measured, limits)
    # What the GPU's time went to concerns every call, whoever asked about some of them.
    everybodys = trace if trace.focus is None else replace(trace, focus=None)
    durations = durations_of(trace, where(trace.calls, trace.calls["complete"]), in_regimes)
    phases = summarise_phases(everybodys, moved, bursts, in_regimes, durations)
    blame, states = _blame(measured, limits), _states(measured, limits)
    gaps = find_gaps(states, blame, gap_ms, limits)
    case = _case(trace, measured, phases, limits, blame, gaps.by_cause)
    diagnosis = Diagnosis(
        window=_window(trace, spans),
        gpus=_gpus(trace, measured, limits),
        calls=_calls(trace),
        jobs=summarise_jobs(trace),
        phases=tuple(case.phases.values()),
        gaps=gaps,
        hypotheses=judge_all(case),
        regimes=judge_regimes(case, stretches, durations, spans, classed),
        interleaving=interleavings(trace, segments),
        states=states,
        blame=blame,
        call_bytes=_call_bytes(moved),
    )
    tried = _tried(trace, measured, diagnosis, limits)
    own = diagnosis.phases if trace.focus is None else classed(summarise_phases(trace, moved, bursts, in_regimes))
    return Examined(diagnosis, tried, own, durations, spans)


def account(trace: Trace, thresholds: Thresholds | None = None) -> Diagnosis:
    """What a trace says of a run still going on: states, bytes, lost seconds by cause, verdicts.

    Everything in it is as `diagnose` has it; regimes, interleaving, predictions and the headline are left out. It takes
    a tenth of the time.
    """
    limits = thresholds or Thresholds()
    measured = _measure(trace, limits)
    phases = summarise_phases(replace(trace, focus=None), measured.moved, measured.bursts)
    blame, states = _blame(measured, limits), _states(measured, limits)
    gaps = find_gaps(states, blame, DEFAULT_GAP_MS, limits)
    case = _case(trace, measured, phases, limits, blame, gaps.by_cause)
    return Diagnosis(
        window=_window(trace, measured.windows),
        gpus=_gpus(trace, measured, limits),
        calls=_calls(trace),
        phases=tuple(case.phases.values()),
        gaps=gaps,
        hypotheses=judge_all(case),
        states=states,
        blame=blame,
        call_bytes=_call_bytes(measured.moved),
    )


def _measure(trace: Trace, limits: Thresholds) -> _Measured:
    bursts = alloc_bursts(trace)
    spans = windows(trace)
    segments = build_segments(trace, bursts)
    views = gpu_views(trace, segments, spans)
    moved = [transfers(view) for view in views]
    signs = find_signs(trace, views, moved, bursts, limits)
    lost = [lost_pieces(view, own, trace, signs) for view, own in zip(views, moved, strict=True)]
    return _Measured(Records(trace.marks), spans, bursts, segments, views, moved, signs, lost)


def _states(measured: _Measured, limits: Thresholds) -> pl.DataFrame:
    told = [view.states(limits) for view in measured.views if view.knows_compute]
    return schema.STATES.fit(pl.concat(told)) if told else schema.STATES.empty()


def _call_bytes(moved: Sequence[Transfers]) -> pl.DataFrame:
    return schema.CALL_BYTES.fit(pl.concat([m.instances for m in moved])) if moved else schema.CALL_BYTES.empty()


def _blame(measured: _Measured, limits: Thresholds) -> pl.DataFrame:
    parts = [
        charge(lost, view, moved, limits, measured.signs.links[view.info.gpu].shortfall())
        for lost, view, moved in zip(measured.lost, measured.views, measured.moved, strict=True)
        if view.knows_compute
    ]
    return pl.concat(parts) if parts else schema.BLAME.empty()


def _classes(measured: _Measured, limits: Thresholds) -> Callable[[tuple[PhaseFinding, ...]], tuple[PhaseFinding, ...]]:
    """What gives phases their transfer class, by this run's rates."""
    floors = [
        limits.copy_link_share * view.limit_wire_bytes_per_s / WIRE_PER_PAYLOAD
        for view in measured.views
        if view.sampled
    ]
    line_floors = [floor for floor in (m.line_floor(limits) for m in measured.moved) if floor]
    return lambda phases: with_transfer(phases, min(floors, default=None), max(line_floors, default=None))


def _case(
    trace: Trace,
    measured: _Measured,
    phases: tuple[PhaseFinding, ...],
    limits: Thresholds,
    blame: pl.DataFrame,
    by_cause: Sequence[CauseTotal],
) -> Case:
    """The evidence under these thresholds."""
    classed = _classes(measured, limits)(phases)
    return Case(
        trace,
        measured.records,
        measured.windows.total_s,
        measured.views,
        measured.moved,
        measured.bursts,
        measured.signs,
        blame,
        by_cause,
        {phase.name: phase for phase in classed},
        limits,
    )


def _tried(trace: Trace, measured: _Measured, diagnosis: Diagnosis, limits: Thresholds) -> tuple[Tried, ...]:
    """Causes with every threshold halved and doubled; of no GPU's time: none."""
    if not diagnosis.gpus:
        return ()
    sampled = any(view.sampled for view in measured.views)
    found = []
    for (name, value), varied in limits.variations().items():
        blame = _blame(measured, varied) if sampled and name in CHARGED_BY else diagnosis.blame
        by_cause = diagnosis.gaps.by_cause if blame is diagnosis.blame else causes(blame)
        case = replace(_case(trace, measured, diagnosis.phases, varied, blame, by_cause), tells=False)
        found.append(Tried(name, getattr(limits, name), value, case.charged_s, main_cause_of(case)))
    return tuple(found)


def _union_s(held: pl.DataFrame) -> float:
    """Seconds in which the mutex was held, by whom ever: calls that seem to hold it at once count once."""
    spans = held.sort("lock_ns").with_columns(pl.col("unlock_ns").cum_max().shift(1).alias("until_ns"))
    begin = pl.max_horizontal("lock_ns", "until_ns")
    return float(spans.select((pl.col("unlock_ns") - begin).clip(lower_bound=0).sum()).item()) / 1e9


def _window(trace: Trace, spans: Windows) -> Window:
    if spans.frame.is_empty():
        return Window()
    start, end = int(spans.frame["start_ns"].min()), int(spans.frame["end_ns"].max())  # type: ignore[arg-type]
    begun = [t for t in (trace.syntheses["start_ns"].min(), trace.calls["start_ns"].min()) if t is not None]
    ended = [t for t in (trace.calls["finish_ns"].max(), trace.calls["end_ns"].max()) if t is not None]
    return Window(
        start_ns=start,
        end_ns=end,
        duration_s=spans.total_s,
        ramp_up_s=max(0.0, (start - min(int(t) for t in begun)) / 1e9) if begun else None,  # type: ignore[arg-type]
        drain_s=max(0.0, (max(int(t) for t in ended) - end) / 1e9) if ended else None,  # type: ignore[arg-type]
    )


def _gpus(trace: Trace, measured: _Measured, limits: Thresholds) -> tuple[GpuFinding, ...]:
    found = []
    for view, moved in zip(measured.views, measured.moved, strict=True):
        total, compute_s = float(view.seconds.sum()), float(view.compute_s.sum())
        rest, copying = view.seconds - view.compute_s, view.copying(limits)
        copy_only_s, idle_s = float(rest[copying].sum()), float(rest[~copying].sum())
        held = with_values(where(trace.calls, trace.calls["gpu"] == view.info.gpu), "unlock_ns")
        span = where(measured.windows.frame, measured.windows.frame["gpu"] == view.info.gpu)
        window_s = float((span["end_ns"] - span["start_ns"]).sum()) / 1e9
        info = view.info
        known = view.knows_compute and view.sampled and np.isfinite(view.rx_wire).any()
        found.append(
            GpuFinding(
                gpu=info.gpu,
                name=info.name,
                link_gen=info.link_gen,
                link_width=info.link_width,
                link_limit_bytes_per_s=info.link_limit_bytes_per_s,
                line_rate_bytes_per_s=moved.line_rate_bytes_per_s,
                line_rate_from=moved.line_rate_from,
                compute_share=compute_s / total if total and view.knows_compute else None,
                copy_only_share=copy_only_s / total if total and known else None,
                idle_share=idle_s / total if total and known else None,
                mutex_held_share=_union_s(held) / window_s if window_s and held.height else None,
                rx_payload_bytes=_payload(view.rx_wire, "rx") if known else None,
                tx_payload_bytes=_payload(view.tx_wire, "tx") if known else None,
                state_source=view.sm_source if view.sampled else "inferred from phases; no GPU trace",
            )
        )
    return tuple(found)


def _payload(wire: npt.NDArray[np.float64], direction: str) -> float:
    return float(np.nansum(wire)) / WIRE_PER_PAYLOAD_OF[direction]


def _calls(trace: Trace) -> CallSummary:
    calls = trace.calls_in_focus
    if calls.is_empty():
        return CallSummary()
    complete = where(calls, calls["complete"])
    ended = with_values(complete, "unlock_ns")
    restart, unlock_ns = ended["restart"].to_numpy(), ended["unlock_ns"].to_numpy()
    rates = []
    for run in np.unique(restart):
        unlocks = unlock_ns[restart == run]
        span_s = float(np.ptp(unlocks)) / 1e9
        if len(unlocks) > 1 and span_s > 0:
            rates.append((len(unlocks) - 1, span_s))
    workers = complete["worker"].drop_nulls().value_counts().sort("worker").iter_rows()
    residual = complete["residual_ms"].median()
    return CallSummary(
        count=calls.height,
        complete=complete.height,
        failed=int(calls["failed"].sum()),
        warmup=int(calls["warmup"].sum()),
        per_s=sum(n for n, _ in rates) / sum(s for _, s in rates) if rates else None,
        by_worker={str(worker): int(count) for worker, count in workers},
        residual_ms_median=None if residual is None else float(residual),  # type: ignore[arg-type]
    )
