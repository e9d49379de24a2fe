"""Changed order, restarts, cut ends and company change no call."""

import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from gputrace.loading import load
from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.scenarios import PRESETS
from gputrace.trace import Trace
from tests.integration.test_mutations import EFFORT, MS, lines_of
from tests.integration.test_wrapped_captures import Line, encoded

IDENTITY = ["restart", "job", "partition", "worker", "gpu"]
FIGURES = ["mutex_held_ms", "gpu_total_ms", "ntt_msm_h_ms", "mutex_wait_ms", "total_start_fn_ms"]
FLOATING = re.compile(r"CUZK_TIMING: (?:prep_msm_ms|b_g2_msm_ms|async_dealloc_ms|split_vectors_ms)=")
# By how much a line may be moved against others: writing takes a thread a few ms.
JITTER_NS = 3 * MS


def log_of(into: Path, lines: list[Line], name: str = "prover.log") -> str:
    path = into / name
    path.write_bytes(encoded(lines, "plain"))
    return str(path)


def calls_of(trace: Trace, *columns: str) -> list[tuple[object, ...]]:
    """The complete calls: who they were and what they took."""
    complete = trace.calls.filter("complete")
    return sorted(complete.select(*(columns or (*IDENTITY, *FIGURES))).iter_rows(), key=repr)


def printed(simulation: Simulation) -> pl.DataFrame:
    """The truth of every call, as far as the log can tell it: window posts print no partition."""
    without = pl.col("kind") == "window-post"
    return simulation.calls.with_columns(pl.when(~without).then("partition").alias("partition"))


def jittered(chance: random.Random, lines: list[Line]) -> list[Line]:
    """The lines in an order in which they could have come as well: tracing lines against stderr, floating lines
    against all others, each by up to 3 ms; the lines of one stream that do not float keep theirs."""

    def place(line: Line) -> float:
        floats = line[0] == "stdout" or FLOATING.match(line[2]) is not None
        return line[1] + (chance.uniform(-JITTER_NS, JITTER_NS) if floats else 0.0)

    moved = sorted(((place(line), at, line) for at, line in enumerate(lines)), key=lambda one: one[:2])
    # Tracing lines are one stream: their order stays.
    said = iter([line for line in lines if line[0] == "stdout"])
    return [next(said) if line[0] == "stdout" else line for _, _, line in moved]


@cache
def run(name: str, seed: int, partitions: int = 24) -> Simulation:
    preset = PRESETS[name]
    options = replace(preset.options, ansi=False)
    return play(replace(preset, partitions=partitions, tear_share=0.0, options=options), seed)


@pytest.mark.parametrize("name", ["pageable", "pinned", "barrier", "one-worker", "mixed-kinds", "small"])
def test_order_within_its_limits_changes_no_call(name: str, tmp_path: Path) -> None:
    lines = lines_of(run(name, 5))
    known = load([log_of(tmp_path, lines)])
    for seed in range(3 * EFFORT):
        chance = random.Random(f"{name} {seed}")
        got = load([log_of(tmp_path, jittered(chance, lines))])
        assert calls_of(got) == calls_of(known)
        assert got.quality.marks_by_event == known.quality.marks_by_event
        moved = (
            got.calls.filter("complete")
            .join(known.calls, on=[*IDENTITY, "mutex_held_ms"], nulls_equal=True)
            .select((pl.col("lock_ns") - pl.col("lock_ns_right")).abs().max())
            .item()
        )
        assert moved <= 6 * MS


# --- runs one after the other ---------------------------------------------------------------------------------------


def later(simulation: Simulation, seed: int) -> Simulation:
    """Another run of the same kind, begun after this one has ended."""
    begin_ns = simulation.lines[-1].at_ns + 9_000 * MS
    return play(replace(simulation.scenario, epoch_ns=begin_ns), seed)


@pytest.mark.parametrize("form", ["merged", "two-files"])
@pytest.mark.parametrize("name", ["pageable", "small"])
def test_a_restart_gives_the_calls_of_both_runs(name: str, form: str, tmp_path: Path) -> None:
    first = run(name, 6)
    second = later(first, 7)
    streams = ("stdout", "stderr") if form == "two-files" else (None,)

    def files(*runs: Simulation) -> list[str]:
        chosen = [[line for one in runs for line in lines_of(one) if stream in (None, line[0])] for stream in streams]
        names = [f"{len(runs)}-{runs[0].seed}-{stream}.log" for stream in streams]
        return [log_of(tmp_path, lines, file) for lines, file in zip(chosen, names, strict=True)]

    alone = [load(files(one)) for one in (first, second)]
    expected = sorted(((number, *row[1:]) for number, one in enumerate(alone) for row in calls_of(one)), key=repr)
    assert calls_of(load(files(first, second))) == expected
    apart = load([*files(first), *files(second)])
    assert calls_of(apart) == expected
    assert apart.quality.lines == len(first.lines) + len(second.lines)


@pytest.mark.parametrize("name", ["pageable", "mixed-kinds", "small"])
@pytest.mark.parametrize("seed", range(4 * EFFORT))
def test_a_log_that_begins_or_ends_in_the_middle_keeps_its_whole_calls(name: str, seed: int, tmp_path: Path) -> None:
    lines = lines_of(run(name, 8))
    whole = load([log_of(tmp_path, lines)])
    chance = random.Random(f"cut {name} {seed}")
    begin = chance.randrange(len(lines) // 2)
    end = chance.randrange(begin + len(lines) // 3, len(lines))
    got = load([log_of(tmp_path, lines[begin:end])])
    assert got.quality.lines == end - begin
    # Those whose first and last word, and all between, are in what is left.
    columns = ["job", "partition", "worker", "gpu", "first_line", "last_line", *FIGURES]
    known = {
        (*row[:4], row[4] - begin, row[5] - begin, *row[6:])
        for row in whole.calls.filter("complete").select(columns).iter_rows()
    }
    found = got.calls.filter("complete").select(columns).iter_rows()
    named = {row for row in found if row[0] is not None}
    assert named <= known, sorted(named - known)
    # Every call that was picked up after the beginning and whose end was printed is there.
    truth = printed(run(name, 8)).filter(pl.col("outcome") == "ok")
    window = truth.filter(
        (pl.col("pickup_ns") > lines[begin][1] + 5 * MS) & (pl.col("finish_ns") < lines[end - 1][1] - 5 * MS)
    )
    expected = Counter(window.select("job", "partition", "worker").iter_rows())
    assert expected <= Counter((row[0], row[1], row[2]) for row in named)


# --- retries, kinds, names ------------------------------------------------------------------------------------------

# Outcomes of calls that print every line of their hold.
HELD = ("ok", "finalize", "discarded")
ODD_IDS = (
    "wdpost-1000-2-[12 34 56 78]",
    "a client's, own id {n}",
    "[x], [y z] {n}",
    "ps-snap-1000-{n}-7",
    "one,two,,{n}",
    "{{braces}} {n}: x",
)


@pytest.mark.parametrize("form", ["merged", "two-files", "stderr"])
@pytest.mark.parametrize("seed", range(2 * EFFORT))
def test_retried_jobs_of_several_kinds_with_odd_names(form: str, seed: int, tmp_path: Path) -> None:
    base = PRESETS["mixed-kinds"]
    scenario = replace(
        base,
        partitions=30,
        per_job=5,
        failing={3: "ntt", 11: "batch_add", 17: "finalize"},
        retry=True,
        job_ids=ODD_IDS,
        options=replace(base.options, ansi=seed == 0),
    )
    simulation = play(scenario, seed)
    paths = []
    for file, text in simulation.files(form).items():
        (tmp_path / file).write_text(text)
        paths.append(str(tmp_path / file))
    got = load(paths)
    truth = printed(simulation).filter(pl.col("outcome").is_in(HELD))
    columns = ["job", "partition", "worker"]
    found = Counter(got.calls.filter("complete").select(columns).iter_rows())
    assert found == Counter(truth.select(columns).iter_rows())
    if form == "stderr":
        return
    kinds = Counter(got.calls.filter("complete").select(*columns, "kind").iter_rows())
    assert kinds == Counter(truth.select(*columns, "kind").iter_rows())
    ok = got.calls.filter("complete").sort("lock_ns")
    off_ms = (ok["unlock_ns"] - truth.sort("lock_ns")["unlock_ns"]).abs() / MS
    assert float(off_ms.max() or 0.0) < 10.0  # type: ignore[arg-type]
