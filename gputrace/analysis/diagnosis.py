"""What the analysis concludes: plain values, ready for every renderer.

Field names are those of the JSON report (version 1). Rates are payload bytes per second unless the name says
wire; shares are 0..1; unknown is None.
"""

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from gputrace import schema
from gputrace.analysis.evidence import Evidence as Evidence
from gputrace.analysis.stability import Variation
from gputrace.analysis.tables import DiagnosisTables
from gputrace.display import Displayed

Verdict = Literal["supported", "refuted", "undetermined"]


@dataclass(frozen=True)
class Window:
    """First lock to last unlock, over all GPUs. Before it is `ramp_up_s`, after it `drain_s`: charged to nobody."""

    start_ns: int | None = None
    end_ns: int | None = None
    duration_s: float | None = None
    ramp_up_s: float | None = None
    drain_s: float | None = None


@dataclass(frozen=True)
class GpuFinding:
    """One GPU: what it is, what its link carried, and the account of its window.

    `line_rate_from`: the phase whose fit shows the line rate (a phase may be shorter than a sample), or sample.
    """

    gpu: int
    name: str | None = None
    link_gen: int | None = None
    link_width: int | None = None
    link_limit_bytes_per_s: float | None = None
    line_rate_bytes_per_s: float | None = None
    line_rate_from: str | None = None
    compute_share: float | None = None
    copy_only_share: float | None = None
    idle_share: float | None = None
    mutex_held_share: float | None = None
    rx_payload_bytes: float | None = None
    tx_payload_bytes: float | None = None
    state_source: str | None = None


@dataclass(frozen=True)
class CallSummary:
    """Counts of calls. `per_s` is (n-1) / (last - first unlock), summed over restarts."""

    count: int = 0
    complete: int = 0
    failed: int = 0
    warmup: int = 0
    per_s: float | None = None
    by_worker: dict[str, int] = field(default_factory=dict)
    residual_ms_median: float | None = None


@dataclass(frozen=True)
class Job:
    """One job's stages, from TIMELINE. Seconds; a stage that the log does not show is None."""

    job: str
    kind: str | None
    partitions: int
    done: int
    queue_s: float | None
    synth_s: float | None
    gpu_s: float | None
    finalise_s: float | None
    total_s: float | None


@dataclass(frozen=True)
class Driver:
    """Something that a variable phase goes with: Spearman rank correlation over `n` calls."""

    name: str
    spearman: float
    p_value: float
    n: int


@dataclass(frozen=True)
class PhaseFinding:
    """One kind of phase over all complete calls."""

    name: str
    contains_others: bool
    count: int
    min_ms: float
    p5_ms: float
    median_ms: float
    mean_ms: float
    p95_ms: float
    max_ms: float
    phase_class: str
    class_reason: str
    under_mutex: bool
    share_of_mutex_held: float | None = None
    rx_bytes_per_s: dict[str, float] | None = None
    rx_bytes_per_call_median: float | None = None
    rx_method: str | None = None
    sm_share_median: float | None = None
    transfer: str = "unknown"
    drivers: tuple[Driver, ...] = ()


@dataclass(frozen=True)
class Gap:
    """A stretch with little compute, with its main cause and where the log shows it.

    One stretch may have several causes (a release, then the next call's copy): `causes` has lost seconds by each.
    """

    gpu: int
    start_ns: int
    end_ns: int
    duration_ms: float
    state: str
    cause: str
    phase: str | None
    call: int | None
    rx_bytes_per_s: float | None
    causes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CauseTotal:
    """GPU seconds of the window charged to one cause; `share` is of all lost seconds."""

    cause: str
    total_s: float
    share: float
    copy_only_s: float
    idle_s: float


@dataclass(frozen=True)
class Gaps:
    """The lost seconds by cause (all of them) and the list of gaps over the threshold."""

    threshold_ms: float
    count: int = 0
    total_s: float | None = None
    below_threshold_s: float | None = None
    share_of_window: float | None = None
    by_cause: tuple[CauseTotal, ...] = ()
    list: tuple[Gap, ...] = ()


@dataclass(frozen=True, repr=False)
class HypothesisFinding(Displayed, shows=("id", "verdict", "confidence", "lost_s", "recoverable_s", "evidence")):
    """A verdict on one candidate explanation.

    `lost_s` are the lost seconds charged to it; None unless it is supported.
    `stretched_s`: seconds by which it made phases longer that count as compute or are charged to another cause already;
    never to be added to lost seconds. `changes_mind`: what would overturn the verdict.
    """

    id: str
    title: str
    verdict: Verdict
    confidence: float
    lost_s: float | None = None
    recoverable_s: float | None = None
    evidence: tuple[Evidence, ...] = ()
    knob: str = ""
    next_step: str = ""
    stretched_s: float | None = None
    changes_mind: str = ""

    @property
    def at_stake_s(self) -> float:
        """Seconds that the verdict is about: lost to it or stretched by it."""
        return max(self.lost_s or 0.0, self.stretched_s or 0.0)

    @property
    def main_reason(self) -> str:
        """Why it is not supported, in a line: the first evidence against it, or what is missing."""
        against = next((item.text for item in self.evidence if not item.supports), "")
        return (self.next_step or against) if self.verdict == "undetermined" else (against or self.next_step)


@dataclass(frozen=True, repr=False)
class Regime(Displayed, shows=("label", "calls", "duration_s", "lost_s", "main_cause", "reason")):
    """A stretch of the run in which the phases behave alike. `reason` says what changed where it begins.

    `verdicts` are those on its own calls alone; `main_cause` is the supported cause that lost most in it, None where
    there is none.
    """

    start_ns: int
    end_ns: int
    calls: int
    label: str
    reason: str
    phase_medians_ms: dict[str, float]
    main_cause: str | None
    verdicts: dict[str, Verdict]
    lost_s: float | None = None
    duration_s: float | None = None
    bistable: bool = False


@dataclass(frozen=True)
class Bound:
    """The most calls a second that one resource could sustain at this run's service times.

    `resource` is mutex, cpp-pool, synthesis, pcie or worker-loop; `servers` how many work at once; `service_ms` the
    mean time that one call takes of one of them; `busy_share` of them in the window, 0..1.
    """

    resource: str
    servers: float
    service_ms: float
    busy_share: float | None
    max_calls_per_s: float
    what: str


@dataclass(frozen=True)
class Effect:
    """One quantity under a scenario: `now` measured, `replay` the model on the run unchanged, `predicted` low..high."""

    now: float | None
    replay: float | None
    predicted: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Replay:
    """How far the pipeline model is off on the run unchanged; shares of what was seen, unlocks of the elapsed time."""

    rate: float
    mutex_wait_median: float
    barrier_wait_s: float
    barrier_wait_share: float
    unlock_worst: float
    held_median: float


@dataclass(frozen=True, repr=False)
class WhatIf(
    Displayed,
    shows=("scenario", "calls_per_s.now", "calls_per_s.predicted", "calls_per_s.low", "calls_per_s.high", "limited_by"),
):
    """What a change to the pipeline is predicted to do; `level` is what the intervals are meant to cover.

    `calls_per_s` is that of a run with the change, other calls and all; `saved_s` the seconds by which these same calls
    would be done sooner (negative: later), so its interval tells whether there is a gain: `gains` is True or False
    where it leaves 0 out. `limited_by`: the resource that sets the rate then. `notes` say what the prediction leans on.
    """

    scenario: str
    title: str
    calls_per_s: Effect
    mutex_held_ms_median: Effect
    compute_share: Effect
    saved_s: float | None
    saved_s_low: float | None
    saved_s_high: float | None
    limited_by: str
    level: float = 0.8
    notes: tuple[str, ...] = ()

    @property
    def gains(self) -> bool | None:
        """Whether these calls would be done sooner; None where that cannot be said."""
        if self.saved_s_low is None or self.saved_s_high is None:
            return None
        return True if self.saved_s_low > 0 else False if self.saved_s_high < 0 else None


@dataclass(frozen=True)
class WaitsFor:
    """Seconds that `waiter` waited for the GPU mutex while `holder` held it, by the phase that the holder was in.

    Workers by number; `holder` None is a call whose worker the log does not name. `by_phase_s` adds up to `total_s`;
    `mutex_held` in it is a part of the hold that no phase explains.
    """

    waiter: int
    holder: int | None
    waits: int
    total_s: float
    by_phase_s: dict[str, float]


@dataclass(frozen=True)
class Handovers:
    """Times from one unlock to the next lock. Below the clock's uncertainty they may come out negative."""

    count: int
    total_s: float
    median_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True)
class OffGpuWork:
    """What workers do without needing the GPU, in work-seconds inside the window; the three parts add up.

    `kind`: release (unlock to return), loop (return to the next entry, while work is queued), setup (entry to asking
    for the mutex), prep_msm, b_g2_msm, finalise (return, or b_g2_msm's end if later, to the finished proof).
    `under_other_s` while another worker held the mutex; `under_own_s` beside the worker's own hold, without its
    barrier_wait; `exposed_s` while nobody held it, or its own hold waited for it at the barrier.
    """

    kind: str
    total_s: float
    under_other_s: float
    under_own_s: float
    exposed_s: float


@dataclass(frozen=True)
class ShortestTime:
    """A lower bound on the time of these same calls under another rule for the mutex; not a prediction.

    `limits_s` has the seconds that each thing alone would take (mutex, compute, copy, workers); the longest of them is
    `shortest_s`, by `limited_by`. `assumes` says under what the bound holds.
    """

    id: str
    title: str
    shortest_s: float
    limited_by: str
    limits_s: dict[str, float]
    assumes: tuple[str, ...]


@dataclass(frozen=True)
class Interleaving:
    """How the workers of one GPU shared it: who waited for whom, how the mutex went round, what was hidden.

    `overlap_efficiency` is under_other_s / (under_other_s + exposed_s) over release, loop, setup and prep_msm.
    `waited_s` is every wait for the mutex: `waits` adds up to it together with `waited_unheld_s`, the part in which no
    call of the log held it (hand-overs, holds that the log does not show). `handovers_waited` are those for which the
    next holder was already waiting, `handovers_unwaited` the others. `alternation_share` is the share of hand-overs
    that went to another worker; `longest_run` the most holds in a row by one.
    """

    gpu: int
    workers: tuple[int, ...]
    calls: int
    window_s: float
    held_s: float
    mutex_utilisation: float
    overlap_efficiency: float | None
    off_gpu: tuple[OffGpuWork, ...]
    waited_s: float
    waited_unheld_s: float
    waits: tuple[WaitsFor, ...]
    handovers_waited: Handovers
    handovers_unwaited: Handovers
    handover_uncertainty_ms: float | None
    alternation_share: float | None
    longest_run: int
    shortest: tuple[ShortestTime, ...]
    notes: tuple[str, ...] = ()


@dataclass(repr=False)
class Diagnosis(DiagnosisTables, Displayed, shows=("headline", "headline_stable", "gpus", "hypotheses", "what_if")):
    """Everything that a report shows.

    `states`, `blame` and `call_bytes` are the frames behind the numbers (schemas in `gputrace.schema`): the account of
    each GPU's window, its lost seconds by cause, and what each phase of each call copied. `what_if_missing` says why
    nothing is predicted, where nothing is; `variations` are what `headline_stable` rests on.
    """

    headline: str = ""
    headline_stable: bool = True
    variations: tuple[Variation, ...] = ()
    window: Window = field(default_factory=Window)
    gpus: tuple[GpuFinding, ...] = ()
    calls: CallSummary = field(default_factory=CallSummary)
    jobs: tuple[Job, ...] = ()
    phases: tuple[PhaseFinding, ...] = ()
    gaps: Gaps = field(default_factory=lambda: Gaps(threshold_ms=500.0))
    hypotheses: tuple[HypothesisFinding, ...] = ()
    regimes: tuple[Regime, ...] = ()
    bounds: tuple[Bound, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    what_if_missing: str = ""
    replay: Replay | None = None
    interleaving: tuple[Interleaving, ...] = ()
    states: pl.DataFrame = field(default_factory=schema.STATES.empty)
    blame: pl.DataFrame = field(default_factory=schema.BLAME.empty)
    call_bytes: pl.DataFrame = field(default_factory=schema.CALL_BYTES.empty)
