"""Samples read part by part are those of the whole, whatever lies on an edge; what needs the whole is known from it."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.inputs import Ingested, ingest
from gputrace.ingest.opening import ByteSource
from gputrace.ingest.trace_parts import Extent, extent_of, read_part
from gputrace.ingest.traces import TraceInput, TraceOptions, recognise, use_traces
from gputrace.trace import Quality
from tests.unit.support import MS

BEGIN_NS = 1_773_425_800_000_000_000
STEP_NS = 100 * MS
STEPS, GPUS = 3_000, 2


def recording(folder: Path, **changed: object) -> Path:
    """Five minutes of two GPUs, a step's rows one after the other; `changed` are columns of other values."""
    rng = np.random.default_rng(1)
    step, gpu = np.repeat(np.arange(STEPS), GPUS), np.tile(np.arange(GPUS), STEPS)
    moved = rng.integers(0, 3_000_000_000, (STEPS, GPUS))
    frame = pl.DataFrame(
        {
            "gpu": gpu,
            "t_end_ns": BEGIN_NS + step * STEP_NS,
            "t_mono_ns": step * STEP_NS,
            "rx_wire_bytes_total": np.cumsum(moved, axis=0).ravel(),
            "tx_wire_bytes_total": np.cumsum(moved // 20, axis=0).ravel(),
            "gpm_interval_ms": 100.0,
            "gpm_sm_active": rng.random(STEPS * GPUS),
            "sm_clock_mhz": 1_980,
            "link_gen": np.where(step < 20, 5, 1),
            "link_width": 16,
            "hole": False,
        }
    ).with_columns(**changed)  # type: ignore[arg-type]
    path = folder / "recording.parquet"
    frame.write_parquet(path, row_group_size=500)
    return path


def recognised(path: Path) -> tuple[TraceInput, Extent]:
    trace = recognise(str(path), ByteSource(str(path)), bundled_formats(), TraceOptions())
    assert trace is not None
    extent = extent_of(trace)
    assert extent is not None
    return trace, extent


def parts(path: Path, *cuts_s: float) -> list[Ingested]:
    trace, extent = recognised(path)
    edges = [extent.first_ns, *(BEGIN_NS + round(at * 1e9) for at in cuts_s), extent.last_ns]
    found = []
    for from_ns, to_ns in pairwise(edges):
        part = read_part(trace, extent, from_ns, to_ns)
        assert part is not None
        found.append(Ingested())
        use_traces(found[-1], [part], {}, True)
    return found


def assert_same(path: Path, *cuts_s: float) -> list[Ingested]:
    """The parts of a recording, after a look at whether they are the whole."""
    whole, own = ingest([str(path)]), parts(path, *cuts_s)
    together = pl.concat([one.samples for one in own]).unique(["gpu", "start_ns"]).sort("gpu", "start_ns")
    assert_frame_equal(together, whole.samples.sort("gpu", "start_ns"), rel_tol=1e-12)
    assert [one.gpus for one in own] == [whole.gpus] * len(own)

    def counts(quality: Quality) -> tuple[int, int]:
        return quality.samples, quality.samples_missing

    assert tuple(map(sum, zip(*(counts(one.quality) for one in own), strict=True))) == counts(whole.quality)
    return own


@pytest.mark.parametrize("cuts_s", [(100.0,), (99.95, 200.03), (0.05, 0.15, 299.85)])
def test_parts_are_the_whole_wherever_they_are_cut(tmp_path: Path, cuts_s: tuple[float, ...]) -> None:
    assert_same(recording(tmp_path), *cuts_s)


def test_a_sample_on_a_cut_is_in_both_parts(tmp_path: Path) -> None:
    before, after = parts(recording(tmp_path), 100.05)
    assert before.samples["end_ns"].max() == BEGIN_NS + 1001 * STEP_NS
    assert after.samples["start_ns"].min() == BEGIN_NS + 1000 * STEP_NS


def test_the_rows_that_a_cut_needs_are_found_however_far_they_are(tmp_path: Path) -> None:
    # 140 s without a row: the step across them is one sample, and the cut lies in its middle.
    path = recording(tmp_path)
    frame = pl.read_parquet(path)
    frame.filter(~pl.col("t_mono_ns").is_between(100 * 10**9, 240 * 10**9)).write_parquet(path)
    for part in assert_same(path, 170.0):
        lengths = part.samples.select((pl.col("end_ns") - pl.col("start_ns")).max().alias("longest"))["longest"]
        assert lengths.to_list() == [140 * 10**9 + 2 * STEP_NS]


def test_a_link_that_rests_in_a_part_is_the_link_of_the_whole(tmp_path: Path) -> None:
    _, late = parts(recording(tmp_path), 100.0)
    assert [(gpu.link_gen, gpu.link_width) for gpu in late.gpus] == [(5, 16), (5, 16)]
    assert late.samples["link_gen"].unique().to_list() == [1]


def test_totals_that_rest_in_a_part_are_not_dead(tmp_path: Path) -> None:
    resting = {name: pl.col(name).clip(0, pl.col(name).get(4_000)) for name in ("rx_wire_bytes_total",)}
    rates = {"gpm_rx_bytes_per_s": pl.lit(1e6), "gpm_tx_bytes_per_s": pl.lit(1e6)}
    *_, last = assert_same(recording(tmp_path, **resting, **rates), 250.0)
    assert {gpu.pcie_source for gpu in last.gpus} == {"counters"}
    assert last.samples["rx_wire_bytes"].unique().to_list() == [0.0]


def test_the_extent_is_known_without_the_rows(tmp_path: Path) -> None:
    trace, extent = recognised(recording(tmp_path))
    assert (extent.first_ns, extent.last_ns) == (BEGIN_NS, BEGIN_NS + (STEPS - 1) * STEP_NS)
    assert (extent.rows, extent.gpus) == (STEPS * GPUS, [0, 1])
    assert trace.readings is None
    assert read_part(trace, extent, extent.last_ns + 1, extent.last_ns + STEP_NS) is None


def test_a_csv_has_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "recording.csv"
    pl.read_parquet(recording(tmp_path)).write_csv(path)
    trace = recognise(str(path), ByteSource(str(path)), bundled_formats(), TraceOptions())
    assert trace is not None
    assert extent_of(trace) is None
