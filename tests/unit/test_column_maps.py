"""Tables of somebody's own are read with a column map."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from gputrace.errors import UsageError
from gputrace.ingest.inputs import ingest
from gputrace.ingest.traces import TraceOptions
from tests.captures import folder
from tests.unit.trace_inputs import BEGIN_NS, MS, SECOND, codes, given, refused, write

MAP = "time=ts_ns:ns,rx_window_bytes_per_s=rx_mb:MB/s,tx_window_bytes_per_s=tx_mb:MB/s,sm_active=sm:%,gpu=card"


def own_frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "ts_ns": [BEGIN_NS + 50 * MS * step for step in range(5)],
            "rx_mb": [0.0, 1.0, 2.0, None, 4.0],
            "tx_mb": [0, 1, 2, 3, 4],
            "sm": [0.0, 100.0, 50.0, 50.0, 50.0],
            "card": [3] * 5,
        }
    )


@pytest.mark.parametrize("form", ["csv", "semicolons", "quoted", "parquet", "map file"])
def test_a_file_of_somebodys_own_is_read_with_a_column_map(form: str, tmp_path: Path) -> None:
    path = tmp_path / "own"
    frame = own_frame()
    options = TraceOptions.of(columns=MAP)
    if form == "parquet":
        frame.write_parquet(path)
    elif form == "quoted":
        frame.with_columns(note=pl.lit("a, b")).write_csv(path, quote_style="non_numeric")
    else:
        frame.write_csv(path, separator=";" if form == "semicolons" else ",")
    if form == "map file":
        toml = 'kind = "table"\ntime = { column = "ts_ns", unit = "ns" }\n[columns]\n' + "".join(
            f'{target} = {{ header = "{header}", unit = "{unit}" }}\n'
            for target, header, unit in (
                ("rx_window_bytes_per_s", "rx_mb", "MB/s"),
                ("tx_window_bytes_per_s", "tx_mb", "MB/s"),
                ("sm_active", "sm", "%"),
                ("gpu", "card", ""),
            )
        )
        options = TraceOptions.of(column_map=write(tmp_path / "map.toml", toml))
    read = ingest([str(path)], trace_options=options)
    assert [(gpu.gpu, gpu.pcie_source, gpu.sm_source) for gpu in read.gpus] == [(3, "window", "sm active")]
    assert read.samples["rx_wire_bytes"].to_list() == [0.05e6, 0.1e6, None, 0.2e6]
    assert read.samples["coverage"].to_list() == pytest.approx([0.4] * 4)
    assert read.samples["sm_active"].to_list() == [1.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("how", "cells", "zoned"),
    [
        ("s", ["1795952850.25", "1795952851"], True),
        ("ms", ["1795952850250", "1795952851000"], True),
        ("iso", ["2026-11-29T11:47:30.25Z", "2026-11-29T11:47:31Z"], True),
        ("iso", ["2026-11-29 12:47:30,25+01:00", "2026-11-29 12:47:31+01:00"], True),
        ("iso", ["2026-11-29 11:47:30.25", "2026-11-29 11:47:31"], False),
        ("%d.%m.%Y %H:%M:%S%.f", ["29.11.2026 11:47:30.25", "29.11.2026 11:47:31"], False),
    ],
)
def test_times_of_a_column_map(how: str, cells: list[str], zoned: bool, tmp_path: Path) -> None:
    text = "t;util\n" + "".join(f"{cell};50\n" for cell in cells)
    read = given(tmp_path, text, columns=f"time=t:{how},gpu_util=util:%")
    assert (read.samples["start_ns"][0], read.samples["end_ns"][0]) == (BEGIN_NS + SECOND // 4, BEGIN_NS + SECOND)
    assert ("trace-timezone-assumed" in codes(read)) is not zoned


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rx_window_bytes_per_s=rx:MB/s", "time"),
        ("time=t:ns", "names no column"),
        ("time=t:ns,rx=rx:MB/s", "'rx' is no reading"),
        ("time=t:ns,gpu_util=u:percent", "'percent'"),
        ("time=t:fortnights,gpu_util=u:%", "fortnights"),
        ("nonsense", "TARGET=COLUMN"),
    ],
)
def test_a_column_map_that_says_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        TraceOptions.of(columns=text)


def test_parquet_of_unknown_columns_says_what_to_give(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    own_frame().write_parquet(buffer)
    assert "--columns" in refused(tmp_path, buffer.getvalue())
    assert "cannot be read" in refused(tmp_path, buffer.getvalue()[:200])


def test_parquet_of_a_known_sampler_needs_no_map(tmp_path: Path) -> None:
    trace = folder("pageable-heavy") / "nvml.csv.gz"
    path = tmp_path / "nvml.parquet"
    pl.read_csv(trace).write_parquet(path)
    plain, packed = ingest([str(trace)]), ingest([str(path)])
    assert packed.samples.equals(plain.samples)


def test_the_command_line_passes_the_options_on(tmp_path: Path) -> None:
    own_frame().write_csv(tmp_path / "own.csv")
    command = [sys.executable, "-m", "gputrace", "report", str(tmp_path / "own.csv"), "--columns", MAP, "--json", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(done.stdout)["gpus"][0]["gpu"] == 3
    wrong = subprocess.run([*command, "--column-map", "x.toml"], capture_output=True, check=False)
    assert wrong.returncode == 2
    assert len(wrong.stderr.splitlines()) == 1
