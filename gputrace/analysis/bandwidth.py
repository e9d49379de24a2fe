"""What each phase of each call copied, and how busy the SMs were in it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.pieces import Fit, divide, fit_kinds
from gputrace.analysis.thresholds import LINE_RATE_LINK_SHARE, OVERLAP_SAMPLES, Thresholds
from gputrace.ingest.samples import WIRE_PER_PAYLOAD

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# A fitted rate counts for the line rate only if it is this sure.
_SURE_ERROR_SHARE = 0.2
_MANY = 20


@dataclass(frozen=True)
class Transfers:
    """What the fits say of one GPU.

    `kind_of` gives each segment its kind: phase (and part), where the call's copy is, and whether buffers were being
    allocated. `volume` is payload bytes per segment of a kind, `sm` the share of a kind's time with SMs active.
    `instances` has one row per call and phase: call, name, mode, bursting, seconds, rx_payload_bytes, rx_bytes_per_s,
    rx_method, sm_share; null where the trace has no such reading. `line_rate_from` is a phase whose fit shows the line
    rate, or sample.
    """

    kinds: list[str]
    kind_of: Ints
    volume: Fit | None
    sm: Fit | None
    instances: pl.DataFrame
    line_rate_bytes_per_s: float | None
    line_rate_from: str | None
    link_payload_bytes_per_s: float | None
    cadence_s: float

    def line_floor(self, thresholds: Thresholds) -> float | None:
        """Payload bytes/s from which a copy counts as running at line rate; None where nothing was copied."""
        if not self.line_rate_bytes_per_s:
            return None
        link_floor = LINE_RATE_LINK_SHARE * (self.link_payload_bytes_per_s or 0.0)
        return max(thresholds.staged_share * self.line_rate_bytes_per_s, link_floor)


def transfers(view: GpuView) -> Transfers:
    """Fits one GPU's samples and gives each phase its bytes."""
    segments, pieces = view.segments, view.pieces
    labels = segments.select(
        pl.concat_str(
            "name", pl.lit("|"), "part", pl.lit("|"), "mode", pl.lit("|"), pl.col("bursting").cast(pl.String)
        ).alias("kind")
    )["kind"]
    kinds = labels.unique(maintain_order=True).to_list()
    index = {kind: i for i, kind in enumerate(kinds)}
    kind_of = np.array([index[label] for label in labels.to_list()], dtype=np.int64)
    length_s = (segments["end_ns"] - segments["start_ns"]).to_numpy() / 1e9
    cadence_s = float(np.median(view.seconds)) if len(view.seconds) else 0.0
    in_segment = pieces.segment >= 0
    piece_kind = np.where(in_segment, kind_of[pieces.segment], -1) if len(kind_of) else pieces.segment
    volume = sm = None
    if view.sampled and len(kinds) and np.isfinite(view.rx_wire).any():
        share = np.where(in_segment, pieces.seconds / np.maximum(length_s[pieces.segment], 1e-9), 0.0)
        volume = fit_kinds(share, pieces.sample, piece_kind, kinds, view.rx_wire / WIRE_PER_PAYLOAD)
    if view.sampled and len(kinds) and view.sm_measured:
        sm = fit_kinds(pieces.seconds, pieces.sample, piece_kind, kinds, view.compute_s, highest=1.0)
    line, line_from = _line_rate(view, kinds, kind_of, length_s, volume)
    resolved = _resolved(view, kind_of, length_s, volume, line)
    instances = _instances(view, kind_of, length_s, volume, resolved, sm, cadence_s)
    limit = view.info.link_limit_bytes_per_s
    link = limit / WIRE_PER_PAYLOAD if limit else None
    return Transfers(kinds, kind_of, volume, sm, instances, line, line_from, link, cadence_s)


def _instances(
    view: GpuView,
    kind_of: Ints,
    length_s: Floats,
    volume: Fit | None,
    resolved: Bools,
    sm: Fit | None,
    cadence_s: float,
) -> pl.DataFrame:
    pieces, segments = view.pieces, view.segments
    fitted = covered = np.full(len(length_s), np.nan)
    if volume is not None:
        inside = pieces.segment >= 0
        expected = np.where(
            inside,
            volume.value[kind_of[pieces.segment]] * pieces.seconds / np.maximum(length_s[pieces.segment], 1e-9),
            0.0,
        )
        parts = divide(view.rx_wire / WIRE_PER_PAYLOAD, pieces.sample, expected, pieces.seconds)
        covered = np.bincount(pieces.segment[inside], parts[inside], len(length_s))
        fitted = np.where(resolved, volume.value[kind_of], np.nan)
    busy = sm.value[kind_of] if sm is not None and len(kind_of) else np.full(len(length_s), np.nan)
    by_segment = segments.select("call", "name", "mode", "bursting").with_columns(
        pl.Series("seconds", length_s),
        pl.Series("covered", covered).fill_nan(None),
        pl.Series("fitted", fitted).fill_nan(None),
        pl.Series("busy_s", busy * length_s).fill_nan(None),
    )

    def total(column: str) -> pl.Expr:
        return pl.when(pl.col(column).is_not_null().all()).then(pl.col(column).sum()).alias(column)

    whole = by_segment.group_by("call", "name", maintain_order=True).agg(
        pl.col("mode").first(),
        pl.col("bursting").any(),
        pl.col("seconds").sum(),
        total("covered"),
        total("fitted"),
        total("busy_s"),
    )
    # What a phase is taken for is decided by its kind: half by overlap and half by fit would be neither.
    long = pl.col("seconds").median().over("name", "mode", "bursting") >= OVERLAP_SAMPLES * cadence_s
    return whole.select(
        "call",
        "name",
        "mode",
        "bursting",
        "seconds",
        pl.when(long).then("covered").otherwise("fitted").alias("rx_payload_bytes"),
        (pl.when(long).then("covered").otherwise("fitted") / pl.max_horizontal("seconds", pl.lit(1e-9))).alias(
            "rx_bytes_per_s"
        ),
        pl.when(pl.col("fitted").is_null())
        .then(None)
        .otherwise(pl.when(long).then(pl.lit("overlap")).otherwise(pl.lit("fit")))
        .alias("rx_method"),
        (pl.col("busy_s") / pl.max_horizontal("seconds", pl.lit(1e-9))).alias("sm_share"),
    )


def _resolved(view: GpuView, kind_of: Ints, length_s: Floats, volume: Fit | None, line_rate: float | None) -> Bools:
    """Per segment, whether its kind's fit means anything: phases of a millisecond are lost in the fit's error.

    It does if two standard errors could not be a copy at line rate, and the rate is one that the link can carry.
    """
    if volume is None or line_rate is None:
        return np.zeros(len(kind_of), dtype=bool)
    by_kind = np.array([float(np.median(length_s[kind_of == i])) for i in range(len(volume.kinds))])
    most = by_kind * (view.info.link_limit_bytes_per_s or np.inf) / WIRE_PER_PAYLOAD
    sure = (2.0 * volume.error < by_kind * line_rate) & (volume.value <= most)
    return np.asarray(sure[kind_of])


def _quantile(values: Floats, counts: Floats, share: float) -> float:
    """The quantile of values that occur several times each, as `numpy.quantile` interpolates it."""
    order = np.argsort(values)
    ends = np.cumsum(counts[order])
    place = (ends[-1] - 1.0) * share
    low, high = values[order][np.searchsorted(ends, [np.floor(place), np.ceil(place)], side="right")]
    return float(low + (high - low) * (place - np.floor(place)))


def _line_rate(
    view: GpuView, kinds: list[str], kind_of: Ints, length_s: Floats, volume: Fit | None
) -> tuple[float | None, str | None]:
    """The highest payload rate that the run sustained, and where: in a whole sample, or a phase whose fit is sure."""
    rates = view.rx_wire / WIRE_PER_PAYLOAD / np.maximum(view.seconds, 1e-9)
    known = np.isfinite(rates)
    if not known.any():
        return None, None
    # A sample that stands for many, in a long time in which nothing moved, counts as so many.
    usual_s = max(float(np.median(view.seconds)), 1e-9)
    counts = np.maximum(1.0, view.seconds[known] // (usual_s * _MANY) * _MANY)
    best, shown_by = _quantile(rates[known], counts, 0.995), "sample"
    fitted = [] if volume is None else list(zip(kinds, volume.value, volume.error, strict=True))
    for i, (kind, value, error) in enumerate(fitted):
        lengths = length_s[kind_of == i]
        if len(lengths) >= 5 and value > 0 and error < _SURE_ERROR_SHARE * value and value / np.median(lengths) > best:
            best, shown_by = float(value / np.median(lengths)), kind.split("|")[0]
    limit = view.info.link_limit_bytes_per_s
    return (best if limit is None else min(best, limit / WIRE_PER_PAYLOAD)), shown_by
