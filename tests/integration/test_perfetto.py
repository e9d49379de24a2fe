"""The Perfetto file, parsed back with Perfetto's own classes: slices and counters equal the frames."""

import io
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.ingest.samples import WIRE_PER_PAYLOAD_OF
from gputrace.loading import load
from gputrace.render.perfetto import PerfettoRenderer
from gputrace.render.perfetto.counters import steps
from gputrace.render.perfetto.lanes import CUT_NS, Begin, Slice, nest
from gputrace.schema import CONTAINS_OTHERS
from gputrace.trace import Trace
from tests.captures import ROOT, docker_lines, folder, read
from tests.perfetto_reader import ReadSlice, ReadTrace, read_perfetto

REAL = ("pageable-heavy", "told-story", "light-then-heavy")


def told(trace: Trace, found: Diagnosis) -> ReadTrace:
    out = io.BytesIO()
    PerfettoRenderer().write(trace, found, out)
    return read_perfetto(out.getvalue())


@cache
def diagnosis(name: str) -> Diagnosis:
    """Without predictions, which no track shows."""
    return diagnose(read(name), scenarios=())


@cache
def written(name: str) -> ReadTrace:
    return told(read(name), diagnosis(name))


def times(item: ReadSlice) -> tuple[int, int]:
    """The times of a slice; where it was cut by less than a microsecond to nest, its own are arguments."""
    own = item.args.get("start_ns", item.start_ns), item.args.get("end_ns", item.end_ns)
    assert abs(own[0] - item.start_ns) < CUT_NS and abs(own[1] - item.end_ns) < CUT_NS
    return own


@pytest.mark.parametrize("name", REAL)
def test_phases_are_slices_to_the_nanosecond(name: str) -> None:
    placed = read(name).phases.filter(pl.col("end_ns") >= pl.col("start_ns"))
    expected = Counter(placed.select("call", "name", "start_ns", "end_ns", "duration_ms", "line").iter_rows())
    phases = [item for item in written(name).on(": ") if "duration_ms" in item.args and "call" in item.args]
    phases = [item for item in phases if "worker" in item.track]
    got = Counter(
        (item.args["call"], item.name, *times(item), item.args["duration_ms"], item.args.get("line")) for item in phases
    )
    assert got == expected
    assert len(phases) > 500


@pytest.mark.parametrize("name", REAL)
def test_phases_nest_in_those_that_contain_them(name: str) -> None:
    leaves = [item for item in written(name).on(": GPU") if item.args.get("under_mutex")]
    nested = [item for item in leaves if item.name not in CONTAINS_OTHERS]
    inside = sum(item.inside is not None for item in nested)
    # What overlaps its container by the rounding of whole milliseconds has a track of its own.
    assert inside >= 0.9 * len(nested)
    for item in nested:
        if item.inside is not None:
            assert item.inside.args["call"] == item.args["call"]
    kept_in = {item.name: item.inside.name if item.inside else None for item in leaves if item.name in CONTAINS_OTHERS}
    assert kept_in == {"mutex_held": None, "gpu_total": "mutex_held", "ntt_msm_h": "gpu_total"}


@pytest.mark.parametrize("name", REAL)
def test_calls_are_slices_and_end_the_flow_of_their_synthesis(name: str) -> None:
    trace = read(name)
    calls = trace.calls.drop_nulls(["start_ns", "end_ns"])
    found = written(name).on(": calls")
    assert Counter((item.args["call"], *times(item)) for item in found) == Counter(
        calls.select("call", "start_ns", "end_ns").iter_rows()
    )
    made = written(name).on("synthesis")
    timed = trace.syntheses.drop_nulls(["start_ns", "end_ns"])
    assert Counter(times(item) for item in made) == Counter(timed.select("start_ns", "end_ns").iter_rows())
    begun = {flow: item for item in made for flow in item.flows}
    ended = {flow: item for item in found for flow in item.flows_ended}
    assert set(begun) == set(ended)
    assert len(ended) >= 0.9 * len(found)
    for flow, call in ended.items():
        assert begun[flow].args["job"] == call.args["job"]
        assert begun[flow].args.get("partition") == call.args.get("partition")
        assert begun[flow].end_ns <= call.start_ns + 5_000_000


@pytest.mark.parametrize("name", ["pageable-heavy", "told-story"])
def test_counters_are_the_readings_and_holes_are_told(name: str) -> None:
    trace, file = read(name), written(name)
    for direction in ("rx", "tx"):
        rate = pl.col(f"{direction}_wire_bytes") / WIRE_PER_PAYLOAD_OF[direction]
        rate = rate / (pl.col("end_ns") - pl.col("start_ns")) * 1e9
        frame = trace.samples.filter(pl.col("gpu") == 0).select("start_ns", rate.alias("value"))
        check(file, f"{direction} payload", frame)
    states = diagnosis(name).states
    length_s = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    for state in ("compute", "copy_only", "idle"):
        frame = states.select("start_ns", "end_ns", (pl.col(f"{state}_s") / length_s).alias("value"))
        check(file, f"state: {state.replace('_', '-')}", frame.filter(pl.col("end_ns") > pl.col("start_ns")))


def check(file: ReadTrace, counter: str, frame: pl.DataFrame) -> None:
    [track] = [track for track in file.counters if track.endswith(f"/{counter}")]
    known = frame.drop_nulls("value").sort("start_ns")
    values = file.counters[track]
    unread = {item.start_ns for item in file.slices if item.track.endswith(f"/not read: {counter}")}
    readings = [(at, value) for at, value in values if at not in unread]
    assert [at for at, _ in readings] == known["start_ns"].to_list()
    assert [value for _, value in readings] == pytest.approx(known["value"].to_list())
    assert all(value == 0 for at, value in values if at in unread)


def test_a_hole_in_the_readings_is_a_slice_and_no_value() -> None:
    trace = read("pageable-heavy")
    middle = trace.samples.with_row_index("row").with_columns(
        pl.when(pl.col("row").is_between(100, 119)).then(None).otherwise("rx_wire_bytes").alias("rx_wire_bytes")
    )
    gone = middle.filter(~pl.col("row").is_between(200, 209)).drop("row")
    file = told(replace(trace, samples=gone), diagnosis("pageable-heavy"))
    rows = trace.samples
    holes = [item for item in file.slices if item.track.endswith("/not read: rx payload")]
    spans = [(item.start_ns, item.end_ns) for item in holes]
    assert (rows["start_ns"][100], rows["start_ns"][120]) in spans
    assert (rows["end_ns"][199], rows["start_ns"][210]) in spans
    for start_ns, end_ns in spans:
        values = [value for at, value in file.counters["GPU 0: NVIDIA H200/rx payload"] if start_ns <= at < end_ns]
        assert values in ([], [0.0])


def test_steps_end_where_a_reading_ends() -> None:
    frame = pl.DataFrame(
        {"start_ns": [0, 10, 20, 9_000_000], "end_ns": [10, 20, 30, 9_000_010], "value": [1.0, None, 2.0, 3.0]}
    )
    assert list(steps(frame)) == [(0, 1.0), (10, None), (20, 2.0), (30, None), (9_000_000, 3.0), (9_000_010, None)]


@pytest.mark.parametrize("name", ["told-story", "light-then-heavy"])
def test_gaps_and_regimes_are_tracks(name: str) -> None:
    found, file = diagnosis(name), written(name)
    gaps = [item for item in file.slices if item.track.split("/")[-1].startswith("gaps")]
    assert Counter((item.name, item.start_ns, item.end_ns) for item in gaps) == Counter(
        (gap.cause, gap.start_ns, gap.end_ns) for gap in found.gaps.list
    )
    regimes = file.on("run/regimes")
    assert [(item.name, item.start_ns) for item in regimes] == [(one.label, one.start_ns) for one in found.regimes]


def test_the_trace_is_on_the_wall_clock_and_says_so() -> None:
    file = written("pageable-heavy")
    assert {clock for clock, _ in file.clocks} == {6, 1} and len({at for _, at in file.clocks}) == 1
    [about] = file.on("about this trace")
    assert about.args["times"] == "Unix time"
    assert about.args["headline"] == diagnosis("pageable-heavy").headline


def test_a_log_without_a_clock_has_relative_times_and_no_readings(tmp_path: Path) -> None:
    log = tmp_path / "prover.stderr"
    log.write_text("".join(f"{line}\n" for stream, _, line in docker_lines("one-worker") if stream == "stderr"))
    trace = load([str(log)])
    assert trace.clock.method == "none"
    file = told(trace, diagnose(trace, scenarios=()))
    [about] = file.on("about this trace")
    assert about.args["times"].startswith("relative")
    assert not file.clocks
    assert len([item for item in file.slices if item.name == "mutex_held"]) > 10
    assert max(item.end_ns for item in file.slices) < 10_000 * 1e9


def test_samples_alone_make_a_trace() -> None:
    trace = load([str(folder("pageable-heavy") / "nvml.csv.gz")])
    file = told(trace, diagnose(trace, scenarios=()))
    assert any(track.endswith("/rx payload") for track in file.counters)


def test_slices_that_overlap_get_lanes_of_their_own() -> None:
    us = 1_000
    items = [
        Slice(name, start * us, end * us)
        for name, start, end in (("a", 0, 10), ("b", 5, 12), ("c", 5, 8), ("d", 10, 10), ("e", 12, 13))
    ]
    done = list(nest(items))
    lanes = {step.slice.name: step.lane for step in done if isinstance(step, Begin)}
    assert lanes == {"a": 0, "b": 1, "c": 0, "d": 0, "e": 0}
    assert sum(1 if isinstance(step, Begin) else -1 for step in done) == 0


def test_an_overlap_below_a_microsecond_is_cut_and_told() -> None:
    begun = [step for step in nest([Slice("a", 0, 5_000), Slice("b", 4_744, 9_000)]) if isinstance(step, Begin)]
    assert [(step.lane, step.slice.start_ns) for step in begun] == [(0, 0), (0, 5_000)]
    assert begun[1].slice.args == {"start_ns": 4_744, "end_ns": 9_000}


def test_the_manual_names_every_track_and_argument() -> None:
    manual = (ROOT / "docs" / "exports.md").read_text().split("## Perfetto")[1].split("\n## ")[0]
    file = written("told-story")
    for track in {item.track for item in file.slices} | set(file.counters):
        _, _, name = track.partition("/")
        name = re.sub(r" \(\d+\)$", "", re.sub(r"^not read: .*", "not read: NAME", name))
        name = re.sub(r"^worker \d+: ", "", name)
        assert f"`{name}`" in manual or f"`worker w: {name}`" in manual, name
    for item in [*file.on("worker"), *file.on("/gaps")]:
        for argument in item.args:
            assert f"`{re.sub(r'^lost_s .*', 'lost_s CAUSE', argument)}`" in manual, argument
