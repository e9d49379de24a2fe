"""Long runs for tests of the page: a real capture repeated, every repetition stretched and jittered on its own.

No two repetitions are alike, so that what is packed of them has the entropy of a real run. The frames are made
directly: a day of eight GPUs has millions of phases, and reading a log of it would take longer than drawing it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from gputrace.analysis.diagnosis import CallSummary, Diagnosis, GpuFinding, Window
from gputrace.analysis.gaps import find_gaps
from gputrace.analysis.thresholds import Thresholds
from gputrace.render import html
from gputrace.render.timeline import Timeline, build_timeline
from gputrace.render.timeline.build import Budget
from gputrace.schema import BLAME, CALLS, CONTAINS_OTHERS, PHASES, SAMPLES
from gputrace.trace import GpuInfo, Trace
from tests.captures import diagnosis, read

Floats = npt.NDArray[np.float64]

_PERIOD_NS = 100_000_000


def long_run(hours: float, gpus: int, capture: str = "pageable-heavy") -> tuple[Trace, Diagnosis]:
    """A run of that length read every 0.1 s, and a diagnosis with its states, lost seconds and gaps."""
    trace, found = read(capture), diagnosis(capture)
    random = np.random.default_rng(1)
    rows = int(hours * 36_000)
    begin = found.window.start_ns or 0
    one = _one_gpu(0, rows, begin, trace, found, random)
    samples, states, blame, phases, calls = (_on_every(frame, gpus) for frame in one)
    info = trace.gpus[0]
    window = Window(begin, begin + rows * _PERIOD_NS, hours * 3600.0, 0.0, 0.0)
    made = Trace(
        inputs=trace.inputs,
        calls=calls,
        phases=phases,
        samples=samples,
        gpus=[GpuInfo(**{**vars(info), "gpu": gpu}) for gpu in range(gpus)],
        clock=trace.clock,
    )
    told = Diagnosis(
        headline="A long run",
        window=window,
        gpus=tuple(_finding(found.gpus[0], gpu) for gpu in range(gpus)),
        calls=CallSummary(count=calls.height, complete=calls.height),
        phases=found.phases,
        gaps=find_gaps(one[1], one[2], 500.0, Thresholds()),
        hypotheses=found.hypotheses,
        regimes=tuple(
            replace(regime, start_ns=window.start_ns or 0, end_ns=window.end_ns or 0) for regime in found.regimes[:1]
        ),
        states=states,
        blame=blame,
    )
    return made, told


def day_on_eight_gpus(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a day on eight GPUs. One GPU is built, with an eighth of the budget, and shown eight times.

    That takes an eighth of the time, and as much room: each GPU is packed apart. `benchmarks/page.py` builds all eight.
    """
    trace, told = long_run(24, 1)
    # Strips of durations are of no interest here, and cost as much again.
    told.phases = ()
    most = Budget()
    eighth = Budget(most.bars // 8, most.values // 8, most.cells // 8, most.finest_sum_s)

    def eight(trace: Trace, diagnosis: Diagnosis, colours: dict[str, Any]) -> Timeline:
        made = build_timeline(trace, diagnosis, colours, eighth)
        assert made is not None
        (first,) = made.figures
        figures = tuple(
            replace(first, gpu=gpu, panels=tuple(replace(p, key=f"gpu{gpu}-{p.kind}") for p in first.panels))
            for gpu in range(8)
        )
        return replace(made, figures=figures)

    monkeypatch.setattr(html, "build_timeline", eight)
    return html.HtmlRenderer().render(trace, told)


def _on_every(frame: pl.DataFrame, gpus: int) -> pl.DataFrame:
    """The frame once for each GPU, with calls of their own. Each GPU is packed apart, so alike ones save nothing."""
    most = int(frame["call"].max() or 0) + 1 if "call" in frame.columns else 0  # type: ignore[arg-type]
    parts = [frame.with_columns(pl.lit(gpu).cast(frame["gpu"].dtype).alias("gpu")) for gpu in range(gpus)]
    if most > 1:
        parts = [part.with_columns(pl.col("call") + gpu * most) for gpu, part in enumerate(parts)]
    return pl.concat(parts)


def _finding(finding: GpuFinding, gpu: int) -> GpuFinding:
    return replace(finding, gpu=gpu)


def _one_gpu(
    gpu: int, rows: int, begin: int, trace: Trace, found: Diagnosis, random: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    edges = begin + _PERIOD_NS * np.arange(rows + 1) + random.integers(-3_000_000, 3_000_000, rows + 1)
    edges[0], edges[-1] = begin, begin + rows * _PERIOD_NS
    length_s = np.diff(edges) / 1e9

    def noisy(values: Floats, most: float) -> Floats:
        """One value a row: the capture's in order, each off by some percent."""
        repeated = np.resize(np.nan_to_num(values), rows)
        noise = random.standard_normal(rows, dtype=np.float32) * 0.05 + 1
        return np.asarray(np.clip(repeated * noise, 0, most), dtype=np.float64)

    own = found.states
    share = noisy((own["compute_s"] / (own["end_ns"] - own["start_ns"]) * 1e9).to_numpy(), 1.0)
    rest = (1 - share) * length_s
    copies = np.resize((own["copy_only_s"] > 0).to_numpy(), rows)
    times = {"gpu": pl.Series(np.full(rows, gpu, dtype=np.int32)), "start_ns": edges[:-1], "end_ns": edges[1:]}
    moved = {
        f"{name}_wire_bytes": noisy(own[f"{name}_bytes_per_s"].to_numpy() * factor, 63e9) * length_s
        for name, factor in (("rx", 276 / 256), ("tx", 280 / 256))
    }
    samples = SAMPLES.fit(pl.DataFrame({**times, **moved, "sm_active": share}))
    seconds = {"copy_only_s": np.where(copies, rest, 0.0), "idle_s": np.where(copies, 0.0, rest)}
    rate = moved["rx_wire_bytes"] / length_s / (276 / 256)
    states = pl.DataFrame({**times, "compute_s": share * length_s, **seconds, "rx_bytes_per_s": rate})
    causes = found.blame["cause"].gather(np.resize(np.arange(found.blame.height), rows))
    blame = pl.DataFrame({**times, "cause": causes, **seconds})
    blame = BLAME.fit(blame)
    phases, calls = _phases(gpu, rows, begin, trace, random)
    return samples, states, blame, phases, calls


def _phases(
    gpu: int, rows: int, begin: int, trace: Trace, random: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    leaves = trace.phases.filter(~pl.col("name").is_in(list(CONTAINS_OTHERS))).drop_nulls(["start_ns", "end_ns"])
    first, last = int(leaves["start_ns"].min()), int(leaves["end_ns"].max())  # type: ignore[arg-type]
    period = last - first
    tiles = max(rows * _PERIOD_NS // period, 1)
    scale = random.uniform(0.9, 0.999, tiles)[:, None]
    shift = begin + np.arange(tiles)[:, None] * period
    shape = (tiles, leaves.height)
    start = shift + ((leaves["start_ns"].to_numpy() - first) * scale).astype(np.int64)
    length = (leaves["end_ns"] - leaves["start_ns"]).to_numpy() * scale * random.uniform(0.9, 1.0, shape)
    numbers = leaves["call"].rank("dense").to_numpy().astype(np.int64) - 1
    most = int(numbers.max()) + 1
    call = (gpu * tiles + np.arange(tiles)[:, None]) * most + numbers
    row = np.tile(np.arange(leaves.height), tiles)
    phases = PHASES.fit(
        pl.DataFrame(
            {
                "call": call.ravel(),
                "gpu": pl.Series(np.full(row.size, gpu)),
                "worker": leaves["worker"].gather(row),
                "name": leaves["name"].gather(row),
                "duration_ms": (length / 1e6).round().astype(np.int64).ravel(),
                "start_ns": start.ravel(),
                "end_ns": (start + length.astype(np.int64)).ravel(),
            }
        )
    )
    every = np.unique(call)
    calls = pl.DataFrame({"call": every, "gpu": np.full(every.size, gpu), "worker": every % 2, "partition": every % 10})
    job = pl.Series([f"job-{gpu}-{i}" for i in range(every.size // 10 + 2)]).gather(every // 10 - every[0] // 10)
    calls = calls.with_columns(job.alias("job"), pl.lit(True).alias("complete"), pl.lit(False).alias("warmup"))
    return phases, CALLS.fit(calls)
