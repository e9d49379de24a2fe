"""A log of several GPUs, whose blocks interleave anonymously, comes apart."""

import csv
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.loading import load
from tests.captures import diagnosis, read
from tests.two_gpus import write_two_gpus

PAIRS = [("pageable-heavy", "pageable-membw"), ("pageable-heavy", "one-worker"), ("pinned-heavy", "light-then-heavy")]
KEYS = ["job", "partition", "mutex_held_ms", "ntt_msm_h_ms", "gpu_total_ms", "mutex_wait_ms", "pre_lock_cpu_ms"]


def calls_of(frame: pl.DataFrame) -> set[tuple[object, ...]]:
    return set(frame.filter("complete").select(KEYS).iter_rows())


@pytest.mark.parametrize("pair", PAIRS, ids=" + ".join)
@pytest.mark.parametrize("streams", [("stdout", "stderr"), ("stderr",)], ids=["both streams", "stderr"])
def test_every_call_is_on_its_own_gpu(pair: tuple[str, str], streams: tuple[str, ...], tmp_path: Path) -> None:
    trace = load(write_two_gpus(*pair, tmp_path, streams))
    for gpu, name in enumerate(pair):
        assert calls_of(trace.calls.filter(pl.col("gpu") == gpu)) == calls_of(read(name).calls)


def test_each_gpu_has_its_own_account(tmp_path: Path) -> None:
    pair = PAIRS[0]
    found = diagnose(load(write_two_gpus(*pair, tmp_path)))
    assert [gpu.gpu for gpu in found.gpus] == [0, 1]
    for gpu, name in enumerate(pair):
        alone = diagnosis(name).gpus[0]
        assert found.gpus[gpu].compute_share == pytest.approx(alone.compute_share, abs=0.01)
        assert found.gpus[gpu].copy_only_share == pytest.approx(alone.copy_only_share, abs=0.01)


def swap_gpus(trace: str) -> None:
    with Path(trace).open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with Path(trace).open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "gpu": 1 - int(row["gpu"])})


def test_the_traces_order_of_gpus_is_found(tmp_path: Path) -> None:
    log, trace = write_two_gpus(*PAIRS[0], tmp_path)
    swap_gpus(trace)
    read_back = load([log, trace])
    assert any(notice.code == "gpu-map" for notice in read_back.quality.notices)
    found = diagnose(read_back)
    for gpu, name in enumerate(PAIRS[0]):
        assert found.gpus[gpu].compute_share == pytest.approx(diagnosis(name).gpus[0].compute_share, abs=0.01)


def test_a_given_map_is_used(tmp_path: Path) -> None:
    log, trace = write_two_gpus(*PAIRS[0], tmp_path)
    swapped = load([log, trace], gpu_map={0: 1, 1: 0})
    right = load([log, trace])
    assert swapped.samples.filter(pl.col("gpu") == 0).height == right.samples.filter(pl.col("gpu") == 1).height
