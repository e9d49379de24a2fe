"""Each regime judged on its own calls: label, main cause, verdicts, lost seconds.

The rates that copies are measured against (the run's line rate, what each kind of phase copies) stay those of the
whole run: a regime of a minute may not reach the line rate itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.diagnosis import PhaseFinding, Regime
from gputrace.analysis.durations import Durations
from gputrace.analysis.gaps import causes
from gputrace.analysis.headline import main_cause
from gputrace.analysis.hypotheses import Case, judge_all
from gputrace.analysis.parts import part_of
from gputrace.analysis.phases import summarise_regime
from gputrace.analysis.pieces import Pieces
from gputrace.analysis.regimes.stretches import Stretch
from gputrace.analysis.segments import Windows, call_modes
from gputrace.analysis.thresholds import (
    ALLOCATING_SHARE,
    CHAINING_LOST_SHARE,
    CONTENTION_RATE_SHARE,
    HOST_BUSY_SHARE,
    HOST_LIGHT_SHARE,
)
from gputrace.rows import Places, where

Classed = Callable[[tuple[PhaseFinding, ...]], tuple[PhaseFinding, ...]]


def judge_regimes(
    case: Case, stretches: Sequence[Stretch], durations: Mapping[str, Durations], spans: Windows, classed: Classed
) -> tuple[Regime, ...]:
    """A `Regime` for every stretch. `classed` gives phases their transfer class, by the whole run's rates.

    `durations` are those of complete calls, in regimes as in `stretches`.
    """
    fastest = _fastest_copies(case.moved)
    # Records are asked for by time, samples are in the views: to cut all of them would take most of a regime's time.
    marks, samples = case.trace.marks.clear(), case.trace.samples.clear()
    case = replace(case, trace=replace(case.trace, focus=None, marks=marks, samples=samples))
    found = []
    for number, stretch in enumerate(stretches):
        inside = {name: own.in_regime(number) for name, own in durations.items()}
        told = {name: own for name, own in inside.items() if len(own.call)}
        found.append(_judge(_restricted(case, stretch, told, spans, classed), stretch, fastest))
    return tuple(found)


def _judge(case: Case, stretch: Stretch, fastest: float | None) -> Regime:
    findings = judge_all(case)
    cause = main_cause(case.by_cause, findings)
    largest = case.by_cause[0].cause if case.by_cause else None
    known = any(view.knows_compute for view in case.views)
    stalled = any(finding.id == "pinned-alloc-stall" and finding.verdict == "supported" for finding in findings)
    return Regime(
        start_ns=stretch.start_ns,
        end_ns=stretch.end_ns,
        calls=len(stretch.calls),
        label=_label(case, stretch, cause, largest, stalled, fastest),
        reason=stretch.reason,
        phase_medians_ms={name: phase.median_ms for name, phase in case.phases.items()},
        main_cause=cause,
        verdicts={finding.id: finding.verdict for finding in findings},
        lost_s=case.lost_s if known else None,
        duration_s=(stretch.end_ns - stretch.start_ns) / 1e9,
        bistable=stretch.bistable,
    )


def _restricted(
    case: Case, stretch: Stretch, durations: Mapping[str, Durations], spans: Windows, classed: Classed
) -> Case:
    """The case with only what happened in the stretch."""
    start_ns, end_ns = stretch.start_ns, stretch.end_ns
    trace = part_of(case.trace, stretch.calls, start_ns, end_ns)
    both = [narrowed(view, own, stretch) for view, own in zip(case.views, case.moved, strict=True)]
    moved = [own for _, own in both]
    bursts = _clipped(case.bursts, start_ns, end_ns)
    middle = (case.blame["start_ns"] + case.blame["end_ns"]).to_numpy() // 2
    blame = where(case.blame, (middle >= start_ns) & (middle < end_ns))
    phases = classed(summarise_regime(durations, where(trace.calls, trace.calls["complete"]), moved))
    inside = _clipped(spans.frame, start_ns, end_ns)
    return replace(
        case,
        trace=trace,
        window_s=Windows(inside).total_s,
        views=[view for view, _ in both],
        moved=moved,
        bursts=bursts,
        blame=blame,
        by_cause=causes(blame),
        phases={phase.name: phase for phase in phases},
        span=(start_ns, end_ns),
        tells=False,
    )


def _clipped(frame: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    begins, ends = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    clipped = frame.with_columns(
        pl.Series("start_ns", np.maximum(begins, start_ns)), pl.Series("end_ns", np.minimum(ends, end_ns))
    )
    return where(clipped, clipped["end_ns"] > clipped["start_ns"])


def narrowed(view: GpuView, moved: Transfers, stretch: Stretch) -> tuple[GpuView, Transfers]:
    """A GPU's view and transfers, samples and segments of the stretch only (by their middles); the fits stay.

    Nothing is copied but which piece belongs to what.
    """

    def inside(frame: pl.DataFrame) -> slice:
        middle = (frame["start_ns"].to_numpy() + frame["end_ns"].to_numpy()) // 2
        return slice(*np.searchsorted(middle, [stretch.start_ns, stretch.end_ns]).tolist())

    samples, segments = inside(view.samples), inside(view.segments)
    kept = slice(*np.searchsorted(view.pieces.sample, [samples.start, samples.stop]).tolist())
    segment = view.pieces.segment[kept]
    pieces = Pieces(
        view.pieces.seconds[kept],
        view.pieces.sample[kept] - samples.start,
        np.where((segment >= segments.start) & (segment < segments.stop), segment - segments.start, -1),
    )
    part = replace(
        view,
        samples=view.samples[samples],
        segments=view.segments[segments],
        pieces=pieces,
        seconds=view.seconds[samples],
        rx_wire=view.rx_wire[samples],
        tx_wire=view.tx_wire[samples],
        compute_s=view.compute_s[samples],
    )
    own = where(moved.instances, Places(stretch.calls).of(moved.instances["call"]) >= 0)
    return part, replace(moved, kind_of=moved.kind_of[segments], instances=own)


# Labels.


@dataclass(frozen=True)
class _Seen:
    """What a label is chosen by. `host_cpu` is the mean share of all cores busy, None where it was not recorded."""

    cause: str | None
    largest: str | None
    known: bool
    lost_share: float
    allocating: bool
    pinned: bool
    slowed: bool
    host_cpu: float | None


BY_CAUSE = {
    "pinned-alloc-stall": "pinned buffers being allocated",
    "no-work-queued": "no work queued",
    "release-abc": "waiting for a/b/c to be freed",
    "host-hot-path": "the engine's own work between calls",
    "line-rate-copy": "copies at line rate, no kernels beside them",
    "kernel-phase-idle": "SMs idle inside kernel phases",
    "launch-overhead": "slow launches",
    "device-allocation": "device memory being allocated",
}


def _name(seen: _Seen) -> str:
    """The first rule that fits; the table is in docs/definitions.md."""
    if seen.allocating:
        return "pinned buffers being allocated"
    if not seen.known:
        return "what the GPU did is not known"
    if seen.lost_share < CHAINING_LOST_SHARE:
        return "chaining: the GPU is busy"
    if seen.cause == "pageable-h2d":
        return _pageable(seen)
    if seen.cause == "prep-barrier":
        return f"{'pinned' if seen.pinned else 'pageable'}, waiting for prep_msm"
    if seen.cause is not None:
        return BY_CAUSE.get(seen.cause, f"lost to {seen.cause}")
    return f"no supported cause; most is charged to {seen.largest}" if seen.largest else "nothing lost"


def _pageable(seen: _Seen) -> str:
    if seen.slowed or (seen.host_cpu is not None and seen.host_cpu >= HOST_BUSY_SHARE):
        return "pageable copy under contention"
    if seen.host_cpu is not None and seen.host_cpu < HOST_LIGHT_SHARE:
        return "pageable copy, light load"
    return "pageable copy"


def _label(
    case: Case, stretch: Stretch, cause: str | None, largest: str | None, stalled: bool, fastest: float | None
) -> str:
    modes = call_modes(case.trace)["mode"]
    allocating_s = float((case.bursts["end_ns"] - case.bursts["start_ns"]).sum()) / 1e9
    host_cpu = case.trace.host["cpu_share"].mean()
    ntt = case.phases.get("ntt_kernels")
    rate = ntt.rx_bytes_per_s["median"] if ntt is not None and ntt.rx_bytes_per_s else None
    seen = _Seen(
        cause=cause,
        largest=largest,
        known=any(view.knows_compute for view in case.views),
        lost_share=case.lost_s / case.window_s if case.window_s else 0.0,
        # One process allocates for all its GPUs: on one that is not stalled it says nothing.
        allocating=stalled and allocating_s >= ALLOCATING_SHARE * (stretch.end_ns - stretch.start_ns) / 1e9,
        pinned=bool((modes == "in-sync").sum() > len(modes) / 2),
        slowed=rate is not None and fastest is not None and rate < CONTENTION_RATE_SHARE * fastest,
        host_cpu=None if host_cpu is None else float(host_cpu),  # type: ignore[arg-type]
    )
    return f"{_name(seen)}, bistable" if stretch.bistable else _name(seen)


def _fastest_copies(moved: Sequence[Transfers]) -> float | None:
    """Payload bytes/s that one copy in twenty of the run's pageable copies reaches; None where none was measured."""
    rates = [
        own.instances["rx_bytes_per_s"].filter(
            (own.instances["name"] == "ntt_kernels") & (own.instances["mode"] == "in-ntt")
        )
        for own in moved
    ]
    told = pl.concat(rates) if rates else pl.Series([], dtype=pl.Float64)
    return float(told.quantile(0.95)) if told.count() else None  # type: ignore[arg-type]
