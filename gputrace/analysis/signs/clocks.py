"""SM clocks while the SMs work: what they were, what they could be, why, and what the difference costs."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.thresholds import ACTIVE_SM_SHARE, THROTTLE_REASONS


@dataclass(frozen=True)
class ClockState:
    """One GPU's SM clock over its active samples.

    `full_mhz` is the GPU's own maximum, or the run's highest clock where the trace does not have it (`knows_full`).
    `reasons` has the share of active samples by what held the clock down, None where the trace has no reasons.
    `held_share` is the share with any. `slowed_s` are compute seconds that full clock would have saved:
    compute x (1 - clock / full).
    """

    gpu: int
    active: int
    median_mhz: float | None
    full_mhz: float | None
    knows_full: bool
    reasons: dict[str, float] | None
    held_share: float
    compute_s: float
    slowed_s: float

    @property
    def ratio(self) -> float | None:
        """Median clock as a share of full."""
        return self.median_mhz / self.full_mhz if self.median_mhz and self.full_mhz else None

    @property
    def slowed_share(self) -> float:
        """Share of the compute seconds that full clock would have saved."""
        return self.slowed_s / self.compute_s if self.compute_s else 0.0


def clock_state(view: GpuView) -> ClockState:
    """The clock of one GPU. Active is SM activity above a half: kernels scale with the clock only while they run."""
    samples = view.samples
    busy = view.compute_s / np.maximum(view.seconds, 1e-9) > ACTIVE_SM_SHARE
    if not view.sampled or "sm_clock_mhz" not in samples.columns:
        return ClockState(view.info.gpu, 0, None, None, False, None, 0.0, 0.0, 0.0)
    known = samples["sm_clock_mhz"].is_not_null().to_numpy() & busy
    clock = samples["sm_clock_mhz"].cast(pl.Float64).to_numpy()[known]
    compute_s = view.compute_s[known]
    most = samples["sm_clock_max_mhz"].max() if samples["sm_clock_max_mhz"].count() else None
    full = float(most) if most is not None else float(clock.max()) if len(clock) else None  # type: ignore[arg-type]
    mask = samples["clock_event_reasons"].filter(pl.Series(known))
    reasons = None
    held = 0.0
    if mask.count():
        bits = mask.drop_nulls().to_numpy()
        share = {word: float(np.mean(bits & bit != 0)) for bit, word in THROTTLE_REASONS.items()}
        reasons = {word: part for word, part in share.items() if part > 0}
        held = float(np.mean(bits & sum(THROTTLE_REASONS) != 0))
    slowed = float((compute_s * np.maximum(0.0, 1.0 - clock / full)).sum()) if full and len(clock) else 0.0
    return ClockState(
        gpu=view.info.gpu,
        active=int(known.sum()),
        median_mhz=float(np.median(clock)) if len(clock) else None,
        full_mhz=full,
        knows_full=most is not None,
        reasons=reasons,
        held_share=held,
        compute_s=float(compute_s.sum()),
        slowed_s=slowed,
    )
