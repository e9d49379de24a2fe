"""The state of a PCIe link while it carries something: reported generation and width, replays, and what it reaches."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.thresholds import HEALTHY_LINK_SHARE, Thresholds
from gputrace.ingest.samples import LANE_BYTES_PER_S, WIRE_PER_PAYLOAD

# Phases that read pinned memory as fast as the link goes. One that is shorter than a sample cannot show its rate.
_STREAMS = ("batch_add", "coset_intt_sync")
_FEW_CALLS = 5
_FEWEST_SAMPLES = 1.0
# Rates within this of the line rate are it.
_AT_LINE_RATE = 0.7
# Of the limit, by a pinned copy on a healthy link (measured on an H200: 88-97 %).
_USUAL_SHARE = 0.9
# Replays are retried packets; one in a while is normal, and each costs about a packet.
_REPLAYS_PER_S = 10.0


@dataclass(frozen=True)
class LinkState:
    """One GPU's link. Rates are payload bytes/s; None where the trace does not say.

    `gen` and `width` are medians under load, `*_max` what GPU and slot could do; `streamed_s` is how long phases ran
    that read pinned memory at the run's best rate; `replays` what was added while it was watched.
    """

    gpu: int
    gen: int | None
    width: int | None
    gen_max: int | None
    width_max: int | None
    replays: int | None
    watched_s: float
    line_rate: float | None
    streamed_s: float

    @property
    def limit(self) -> float | None:
        """What the reported link carries."""
        return _payload(self.gen, self.width)

    @property
    def limit_max(self) -> float | None:
        """What the link would carry at its most."""
        return _payload(self.gen_max or self.gen, self.width_max or self.width)

    @property
    def below_maximum(self) -> bool | None:
        """Whether it runs below its most under load; None where the most is unknown."""
        if self.limit is None or (self.gen_max is None and self.width_max is None):
            return None
        return (self.gen or 0) < (self.gen_max or 0) or (self.width or 0) < (self.width_max or 0)

    @property
    def reached(self) -> float | None:
        """Share of the reported limit that the run reached at best."""
        if self.limit is None or self.line_rate is None:
            return None
        return self.line_rate / self.limit

    @property
    def replaying(self) -> bool:
        """Whether replays grow at a pace that says something of the link."""
        return bool(self.replays and self.replays > _REPLAYS_PER_S * self.watched_s)

    @property
    def slow(self) -> bool:
        """Whether a phase that could show it carried far less than what the link reports."""
        return self.reached is not None and self.reached < HEALTHY_LINK_SHARE and self.streamed_s > 0

    def shortfall(self) -> float:
        """Share of a line-rate copy's time that a link at its most, and alone, would save; 0 for a healthy one."""
        carried = min(1.0, (self.reached or 0.0) / _USUAL_SHARE) if self.slow else 1.0
        if self.below_maximum and self.limit and self.limit_max:
            carried *= self.limit / self.limit_max
        return 1.0 - carried


def _payload(gen: int | None, width: int | None) -> float | None:
    lane = LANE_BYTES_PER_S.get(gen or 0)
    return lane * width / WIRE_PER_PAYLOAD if lane and width else None


def link_state(view: GpuView, moved: Transfers, thresholds: Thresholds) -> LinkState:
    """The link of one GPU over its window. A link falls back to Gen1 when idle: only what it says under load counts."""
    samples = view.samples
    loaded = samples.filter(pl.Series(view.copying(thresholds))) if view.sampled else samples.clear()

    def under_load(column: str) -> int | None:
        values = loaded[column].drop_nulls() if column in loaded.columns else pl.Series([], dtype=pl.Int32)
        return int(values.median()) if len(values) else None  # type: ignore[arg-type]

    replays = samples["pcie_replays"].drop_nulls() if "pcie_replays" in samples.columns else pl.Series([])
    steps = np.diff(replays.to_numpy()) if len(replays) > 1 else np.array([])
    return LinkState(
        gpu=view.info.gpu,
        gen=under_load("link_gen") or view.info.link_gen,
        width=under_load("link_width") or view.info.link_width,
        gen_max=under_load("link_gen_max"),
        width_max=under_load("link_width_max"),
        # A counter that falls was reset with the driver.
        replays=int(steps[steps > 0].sum()) if len(replays) > 1 else None,
        watched_s=float(view.seconds.sum()),
        line_rate=moved.line_rate_bytes_per_s,
        streamed_s=_streamed_s(moved),
    )


def _streamed_s(moved: Transfers) -> float:
    """Seconds in phases that read pinned memory, long enough to show it, at the run's best rate."""
    best = moved.instances.filter(
        pl.col("name").is_in(_STREAMS)
        & (pl.col("seconds") > _FEWEST_SAMPLES * moved.cadence_s)
        & (pl.col("rx_bytes_per_s") >= _AT_LINE_RATE * (moved.line_rate_bytes_per_s or np.inf))
    )
    return float(best["seconds"].sum()) if best.height >= _FEW_CALLS else 0.0
