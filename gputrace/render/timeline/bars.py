"""Single phases as bars: in lanes, and of which calls where the page cannot hold them all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.render.charts.timeline import TimeAxis
from gputrace.schema import CONTAINS_OTHERS, LEAVES_UNDER_MUTEX

# What one worker does one at a time, a lane each; phases of a lane never overlap.
_LANES = {
    "GPU": LEAVES_UNDER_MUTEX,
    "wait": ("pre_lock", "mutex_wait", "release_abc"),
    "prep": ("split_vectors", "prep_msm"),
    "G2": ("b_g2_msm", "async_dealloc"),
}
_OTHER = "other"
_OPENING_S = 120.0
_AROUND_REGIME_S = 30.0
_AROUND_GAP_S = 10.0
_LONGEST_GAP_S = 60.0

Span = tuple[float, float]


@dataclass(frozen=True)
class Held:
    """The bars that the page holds, and for each GPU the stretches in which it holds every one; None is everywhere."""

    bars: pl.DataFrame
    stretches: dict[int, tuple[Span, ...]] | None


def leaves(phases: pl.DataFrame, axis: TimeAxis) -> pl.DataFrame:
    """The phases that can be drawn: gpu, worker, lane, name, call, start_s, end_s; those that contain others cannot."""
    lane_of = {name: lane for lane, names in _LANES.items() for name in names}
    worker = pl.col("worker").cast(pl.String).fill_null("?")
    kind = pl.col("name").replace_strict(lane_of, default=_OTHER, return_dtype=pl.String)
    lasts = (pl.col("end_ns") > pl.col("start_ns")).fill_null(False)
    return phases.filter(lasts & pl.col("gpu").is_not_null() & ~pl.col("name").is_in(list(CONTAINS_OTHERS))).select(
        "gpu",
        "worker",
        (pl.lit("w") + worker + " " + kind).alias("lane"),
        "name",
        "call",
        axis.seconds_of("start_ns").alias("start_s"),
        axis.seconds_of("end_ns").alias("end_s"),
    )


def lane_names(own: pl.DataFrame) -> list[str]:
    """The lanes of one GPU, from the top. Those of the mutex lie under one another: there workers take turns."""
    workers = own["worker"].unique().sort(nulls_last=True).to_list()
    holding, *beside = (*_LANES, _OTHER)
    order = [(number, holding) for number in workers] + [(n, lane) for n in workers for lane in beside]
    used = set(own["lane"].unique())
    return [name for n, lane in order if (name := f"w{'?' if n is None else n} {lane}") in used]


def hold(drawable: pl.DataFrame, diagnosis: Diagnosis, axis: TimeAxis, most: int) -> Held:
    """All bars if they are at most `most`; else whole calls, where a reader will look first.

    In this order, as long as there is room: the first minutes of each GPU, where each regime begins, the longest gaps,
    and more of the first minutes.
    """
    if drawable.height <= most:
        return Held(drawable, None)
    own = {int(str(key[0])): _Calls.of(frame) for key, frame in drawable.partition_by("gpu", as_dict=True).items()}
    room = most
    kept: dict[int, list[Span]] = {gpu: [] for gpu in own}
    for gpu, span in _wanted(sorted(own), diagnosis, axis):
        taken = own[gpu].take(span, room) if gpu in own else None
        if taken is not None:
            room -= taken
            kept[gpu].append(span)
    chosen = pl.concat([calls.chosen(gpu) for gpu, calls in sorted(own.items())])
    bars = drawable.join(chosen, on=["gpu", "call"], how="semi", maintain_order="left")
    return Held(bars, {gpu: _merged(spans) for gpu, spans in kept.items()})


def _wanted(gpus: Sequence[int], diagnosis: Diagnosis, axis: TimeAxis) -> Iterable[tuple[int, Span]]:
    def around(first: float, last: float, margin: float) -> Span:
        return max(first - margin, axis.start_s), min(last + margin, axis.end_s)

    opening = max(axis.start_s, 0.0)
    yield from ((gpu, (opening, opening + _OPENING_S)) for gpu in gpus)
    for regime in diagnosis.regimes:
        at = axis.seconds(regime.start_ns)
        yield from ((gpu, around(at, at, _AROUND_REGIME_S)) for gpu in gpus)
    for gap in diagnosis.gaps.list:
        first, last = axis.seconds(gap.start_ns), axis.seconds(gap.end_ns)
        for edge in {(first, min(last, first + _LONGEST_GAP_S)), (max(first, last - _LONGEST_GAP_S), last)}:
            yield gap.gpu, around(*edge, _AROUND_GAP_S)
    length = 2 * _OPENING_S
    while length < axis.end_s - opening:
        yield from ((gpu, (opening, opening + length)) for gpu in gpus)
        length *= 2


@dataclass
class _Calls:
    """Calls of one GPU in order of their start: when each begins and ends, how many bars it has, whether it is held."""

    number: pl.Series
    start_s: npt.NDArray[np.float64]
    end_s: npt.NDArray[np.float64]
    bars: npt.NDArray[np.int64]
    held: npt.NDArray[np.bool_]
    longest_s: float

    @classmethod
    def of(cls, own: pl.DataFrame) -> "_Calls":
        calls = (
            own.group_by("call")
            .agg(pl.col("start_s").min(), pl.col("end_s").max(), pl.len().cast(pl.Int64).alias("bars"))
            .sort("start_s", "call")
        )
        start, end = calls["start_s"].to_numpy(), calls["end_s"].to_numpy()
        held = np.zeros(calls.height, dtype=bool)
        return cls(calls["call"], start, end, calls["bars"].to_numpy(), held, float((end - start).max()))

    def take(self, span: Span, room: int) -> int | None:
        """Holds the calls that touch the span; how many bars more that is, None where there is no room for them."""
        first = np.searchsorted(self.start_s, span[0] - self.longest_s)
        last = np.searchsorted(self.start_s, span[1], side="right")
        touching = np.arange(first, last)[self.end_s[first:last] >= span[0]]
        new = touching[~self.held[touching]]
        more = int(self.bars[new].sum())
        if more > room:
            return None
        self.held[new] = True
        return more

    def chosen(self, gpu: int) -> pl.DataFrame:
        number = self.number.filter(pl.Series(self.held))
        return pl.DataFrame({"gpu": pl.Series([gpu] * len(number), dtype=pl.Int32), "call": number})


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
