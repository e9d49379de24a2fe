"""What each GPU did: every interval of its window divided into compute, copy-only and idle seconds."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.pieces import Pieces
from gputrace.analysis.segments import COMPUTE_PHASES, Windows
from gputrace.analysis.thresholds import Thresholds
from gputrace.ingest.samples import TX_WIRE_PER_PAYLOAD, WIRE_PER_PAYLOAD, samples_of
from gputrace.rows import ordered, repeated, where
from gputrace.trace import GpuInfo, Trace

Floats = npt.NDArray[np.float64]


INFERRED, UNKNOWN = "inferred from phases", "unknown"


@dataclass
class GpuView:
    """One GPU's window, sampled and segmented; arrays run over samples or pieces as said.

    `sm_active` is nan where unknown and `sm_source` says where it is from; `sampled` is false where there is no trace
    and the segments themselves stand in for samples.
    """

    info: GpuInfo
    samples: pl.DataFrame
    segments: pl.DataFrame
    pieces: Pieces
    seconds: Floats
    rx_wire: Floats
    tx_wire: Floats
    compute_s: Floats
    sm_source: str
    sampled: bool

    @property
    def sm_measured(self) -> bool:
        """Whether SM activity was sampled, not inferred."""
        return self.sm_source not in (INFERRED, UNKNOWN)

    @property
    def knows_compute(self) -> bool:
        """Whether anything says when the GPU computed."""
        return self.sm_source != UNKNOWN

    @property
    def limit_wire_bytes_per_s(self) -> float:
        """The link's limit; where it is unknown, the highest rate this run reached."""
        if self.info.link_limit_bytes_per_s:
            return self.info.link_limit_bytes_per_s
        rate = self.rx_wire / np.maximum(self.seconds, 1e-9)
        return float(np.nanmax(rate)) if np.isfinite(rate).any() else float("nan")

    def copying(self, thresholds: Thresholds, of: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.bool_]:
        """Which samples, or which `of` them, saw traffic above the threshold, either way. Unknown traffic is none."""
        readings = (self.rx_wire, self.tx_wire, self.seconds)
        rx, tx, seconds = readings if of is None else (reading[of] for reading in readings)
        # Nothing is above nan, and nan above nothing.
        floor = thresholds.copy_link_share * self.limit_wire_bytes_per_s * seconds
        return np.asarray((rx > floor) | (tx > floor))

    def states(self, thresholds: Thresholds) -> pl.DataFrame:
        """gpu, start_ns, end_ns, compute_s, copy_only_s, idle_s, rx/tx payload rates; the seconds add up."""
        rest = self.seconds - self.compute_s
        copying = self.copying(thresholds)
        return pl.DataFrame(
            {
                "gpu": np.full(len(rest), self.info.gpu),
                "start_ns": self.samples["start_ns"],
                "end_ns": self.samples["end_ns"],
                "compute_s": self.compute_s,
                "copy_only_s": np.where(copying, rest, 0.0),
                "idle_s": np.where(copying, 0.0, rest),
                "rx_bytes_per_s": self.rx_wire / WIRE_PER_PAYLOAD / np.maximum(self.seconds, 1e-9),
                "tx_bytes_per_s": self.tx_wire / TX_WIRE_PER_PAYLOAD / np.maximum(self.seconds, 1e-9),
            }
        ).with_columns(pl.col("rx_bytes_per_s", "tx_bytes_per_s").fill_nan(None))


def gpu_views(trace: Trace, segments: pl.DataFrame, windows: Windows) -> list[GpuView]:
    """A view of every GPU that has calls with times. Samples are used only where the log is on their clock."""
    views = []
    known = {info.gpu: info for info in trace.gpus}
    # Without a log there is nothing that the samples' clock could differ from.
    clocked = trace.clock.method != "none" or trace.marks.is_empty()
    usable = trace.samples if clocked else trace.samples.clear()
    for number in np.unique(windows.frame["gpu"].to_numpy()).tolist():
        own = where(windows.frame, windows.frame["gpu"] == number)
        tiles = ordered(where(segments, segments["gpu"] == number), "start_ns")
        clipped = usable if usable.is_empty() else _clip(samples_of(usable, number), own)
        sampled = clipped.height > 0
        if not sampled:
            clipped = tiles[["gpu", "start_ns", "end_ns"]].hstack(
                [
                    repeated(name, None, tiles.height, pl.Float64)
                    for name in ("rx_wire_bytes", "tx_wire_bytes", "sm_active")
                ]
            )
        views.append(_view(known.get(number, GpuInfo(number)), clipped, tiles, sampled))
    return views


def _clip(samples: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The samples inside the windows; those on an edge are cut, with their bytes in proportion.

    `samples` are those of one GPU in order of time.
    """
    parts = [samples.clear()]
    if not samples["end_ns"].is_sorted():
        samples = samples.sort("end_ns")
    for start_ns, end_ns in windows.sort("start_ns").select("start_ns", "end_ns").iter_rows():
        first = int(samples["end_ns"].search_sorted(start_ns, side="right"))
        inside = samples.slice(first, max(0, int(samples["start_ns"].search_sorted(end_ns, side="left")) - first))
        if inside.height < 3:
            parts.append(_cut(inside, start_ns, end_ns))
        else:
            edges = _cut(inside.head(1), start_ns, end_ns), _cut(inside.tail(1), start_ns, end_ns)
            parts += [edges[0], inside.slice(1, inside.height - 2), edges[1]]
    return pl.concat(parts)


def _cut(samples: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    low, high = pl.max_horizontal("start_ns", pl.lit(start_ns)), pl.min_horizontal("end_ns", pl.lit(end_ns))
    kept = (high - low) / (pl.col("end_ns") - pl.col("start_ns"))
    bytes_of = (pl.col("rx_wire_bytes") * kept, pl.col("tx_wire_bytes") * kept)
    return samples.with_columns(low.alias("start_ns"), high.alias("end_ns"), *bytes_of)


# Below this, a step's PCIe reading says nothing about the step: 20 ms seen of a second.
_MIN_COVERAGE = 0.1


def _wire(samples: pl.DataFrame, column: str) -> Floats:
    """Wire bytes a sample; nan where the reading saw too little of the time to speak for it."""
    values = samples[column].cast(pl.Float64).to_numpy()
    coverage = samples["coverage"].median() if "coverage" in samples.columns else 0.0
    if coverage is not None and float(coverage) < _MIN_COVERAGE:  # type: ignore[arg-type]
        return np.full(len(values), np.nan)
    return values


def _view(info: GpuInfo, samples: pl.DataFrame, segments: pl.DataFrame, sampled: bool) -> GpuView:
    pieces = Pieces.cut(samples, segments)
    seconds = (samples["end_ns"] - samples["start_ns"]).to_numpy() / 1e9
    sm_active = samples["sm_active"].cast(pl.Float64).to_numpy()
    computing = segments["name"].is_in(COMPUTE_PHASES).to_numpy()
    known = ~np.isnan(sm_active)
    inferred: Floats = np.zeros(len(seconds))
    if computing.any() and not known.all():
        computes = (pieces.segment >= 0) & computing[pieces.segment]
        inferred = np.asarray(np.bincount(pieces.sample, pieces.seconds * computes, len(seconds)))
    if known.any():
        # A hole in GPM is filled from the phases.
        compute_s = np.where(known, sm_active * seconds, inferred)
        source = info.sm_source or "the trace"
    elif computing.any():
        compute_s, source = inferred, INFERRED
    else:
        # Neither SM readings nor C++ lines: whether the GPU computed cannot be known.
        compute_s, source = inferred, UNKNOWN
    return GpuView(
        info=info,
        samples=samples,
        segments=segments,
        pieces=pieces,
        seconds=seconds,
        rx_wire=_wire(samples, "rx_wire_bytes"),
        tx_wire=_wire(samples, "tx_wire_bytes"),
        compute_s=np.minimum(compute_s, seconds),
        sm_source=source,
        sampled=sampled,
    )
