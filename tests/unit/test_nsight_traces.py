"""Exports of Nsight Systems as GPU traces: copies and kernels, or sampled metrics; never written to, never run."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from gputrace.ingest.inputs import ingest
from gputrace.ingest.samples import TX_WIRE_PER_PAYLOAD, WIRE_PER_PAYLOAD
from gputrace.ingest.traces import TraceOptions
from gputrace.loading import load
from tests.unit.trace_inputs import BEGIN_NS, LOG, MS, codes, refused, said, write


def nsight_export(
    path: Path, *, start: bool = True, kernels: bool = True, copies: bool = True, metrics: bool = False
) -> str:
    """A second: 0.1 s copied from pageable memory, 0.2 s kernels (two overlap), 0.1 s copied out, and so on."""
    database = sqlite3.connect(path)
    if start:
        database.execute(
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)"
        )
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (BEGIN_NS,))
    database.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, busLocation TEXT)")
    database.execute("INSERT INTO TARGET_INFO_GPU VALUES (2, 'NVIDIA H200', '0000:41:00.0')")
    database.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)")
    database.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 77)")
    if kernels:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER)"
        )
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7)",
            [(100 * MS, 250 * MS), (200 * MS, 300 * MS), (120 * MS, 130 * MS)],
        )
    if copies:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, bytes INTEGER, "
            "copyKind INTEGER, srcKind INTEGER, dstKind INTEGER)"
        )
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, ?, ?, ?, ?)",
            [
                (0, 100 * MS, 300_000_000, 1, 0, 2),
                (50 * MS, 90 * MS, 100_000_000, 1, 1, 2),
                (300 * MS, 400 * MS, 500_000_000, 2, 2, 1),
                (400 * MS, 401 * MS, 1_000, 8, 2, 2),
                (401 * MS, 401 * MS, 64, 1, 1, 2),
            ],
        )
    if metrics:
        database.execute(
            "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)"
        )
        database.execute("CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, metricId INTEGER, metricName TEXT)")
        gpu_type = (1 << 56) + 2
        for number, name in (
            (1, "SMs Active [Throughput %]"),
            (2, "PCIe RX Throughput [Throughput %]"),
            (3, "PCIe TX Throughput [Throughput %]"),
            (4, "GR Active [Throughput %]"),
        ):
            database.execute("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?)", (gpu_type, number, name))
            database.executemany(
                "INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?)",
                [(step * MS, gpu_type, number, 50 if number == 1 else 10) for step in range(400)],
            )
    database.commit()
    database.close()
    return str(path)


def test_nsight_copies_and_kernels_become_samples(tmp_path: Path) -> None:
    read = ingest([nsight_export(tmp_path / "report.sqlite")])
    samples = read.samples
    assert [(g.gpu, g.name, g.pcie_source, g.sm_source) for g in read.gpus] == [
        (2, "NVIDIA H200", "copies", "kernels running")
    ]
    assert samples["start_ns"][0] == BEGIN_NS
    assert samples["rx_wire_bytes"].sum() == pytest.approx(400_000_064 * WIRE_PER_PAYLOAD)
    assert samples["tx_wire_bytes"].sum() == pytest.approx(500_000_000 * TX_WIRE_PER_PAYLOAD)
    seconds = (samples["end_ns"] - samples["start_ns"]) / 1e9
    assert (samples["sm_active"] * seconds).sum() == pytest.approx(0.2)
    assert samples["coverage"].unique().to_list() == [1.0]


def test_nsight_says_where_every_copy_came_from(tmp_path: Path) -> None:
    path = nsight_export(tmp_path / "report.sqlite")
    copies = load([path]).copies
    assert copies.select("gpu", "kind", "source_memory", "target_memory", "bytes").rows() == [
        (2, "h2d", "pageable", "device", 300_000_000),
        (2, "h2d", "pinned", "device", 100_000_000),
        (2, "d2h", "device", "pinned", 500_000_000),
        (2, "d2d", "device", "device", 1_000),
        (2, "h2d", "pinned", "device", 64),
    ]
    assert copies["start_ns"][0] == BEGIN_NS


def test_nsight_metrics_are_used_where_they_were_sampled(tmp_path: Path) -> None:
    both = ingest([nsight_export(tmp_path / "both.sqlite", metrics=True)])
    assert (both.gpus[0].pcie_source, both.gpus[0].sm_source) == ("copies", "sm active")
    assert both.samples["sm_active"][0] == pytest.approx(0.5)
    alone = ingest([nsight_export(tmp_path / "alone.sqlite", kernels=False, copies=False, metrics=True)])
    assert alone.gpus[0].pcie_source == "metrics"
    assert "Gen5 x16" in said(alone, "pcie-link-assumed")
    assert alone.samples["rx_wire_bytes"][0] == pytest.approx(0.1 * 3.938e9 * 16 * 0.02)
    assert alone.copies.is_empty()


def test_nsight_is_read_compressed_and_as_a_dump(tmp_path: Path) -> None:
    path = Path(nsight_export(tmp_path / "report.sqlite"))
    plain = ingest([str(path)])
    packed = tmp_path / "report.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    database = sqlite3.connect(path)
    dump = write(tmp_path / "report.sql", "PRAGMA foreign_keys=OFF;\n" + "\n".join(database.iterdump()))
    database.close()
    for other in (str(packed), dump):
        read = ingest([other])
        assert read.samples.equals(plain.samples)
        assert read.copies.equals(plain.copies)


def test_nsight_is_never_written_to(tmp_path: Path) -> None:
    path = Path(nsight_export(tmp_path / "report.sqlite"))
    before = path.read_bytes()
    path.chmod(0o444)
    ingest([str(path)])
    assert path.read_bytes() == before
    assert [other.name for other in tmp_path.iterdir()] == ["report.sqlite"]


def test_nsight_without_a_start_has_no_clock(tmp_path: Path) -> None:
    path = nsight_export(tmp_path / "report.sqlite", start=False)
    read = ingest([LOG, path])
    assert read.samples.is_empty()
    assert "trace-without-time" in codes(read)
    told = ingest([LOG, path], trace_options=TraceOptions.of(start="2026-11-29T11:47:30Z"))
    assert told.samples["start_ns"][0] == BEGIN_NS


def test_sqlite_that_is_no_export_is_refused(tmp_path: Path) -> None:
    assert "without kernels" in refused(tmp_path, _database("CREATE TABLE t (x)"))
    broken = _database("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId)")
    assert "without kernels" in refused(tmp_path, broken)
    assert "cannot be read" in refused(tmp_path, broken[:100] + bytes(range(256)) * 40)
    odd = _database(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('a', 2, 0), (NULL, 3, 0), (1, 9223372036854775807, 0)",
    )
    assert "30 days" in refused(tmp_path, odd)


def test_a_dump_may_not_do_more_than_make_tables(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    text = f"CREATE TABLE GPU_METRICS (timestamp, typeId, metricId, value);\nATTACH '{evil}' AS e;\n"
    assert "cannot be read" in refused(tmp_path, text)
    assert not evil.exists()


def _database(*statements: str) -> bytes:
    database = sqlite3.connect(":memory:")
    for statement in statements:
        database.execute(statement)
    database.commit()
    return bytes(database.serialize())
