"""GPU traces of every kind: real outputs of the usual tools, and made ones for what could not be recorded."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gputrace.errors import InputError
from gputrace.ingest import trace_times
from gputrace.ingest.inputs import ingest
from gputrace.ingest.tables import READINGS, TEXT_UNIT, UNIT_FACTORS, read_trace
from gputrace.loading import load
from tests.captures import DATA
from tests.unit.trace_inputs import BEGIN_NS, LOG, SECOND, TABLES, codes, given, refused, said, write

PEERS = DATA / "peer-outputs"

# --- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_of_a_description_is_known_and_shown_by_a_sample(table: Any) -> None:
    shown = {name for sample in table.samples for row in sample["rows"] for name in row}
    told_by_others = {"gpu_uuid", "gpu_bus_id", "gpu_name"}
    if table.name != "nvml-csv":
        assert {column.target for column in table.columns} - shown - told_by_others == set()
    for column in table.columns:
        assert column.target in READINGS
        assert column.unit == TEXT_UNIT or column.unit in UNIT_FACTORS


# --- real outputs ---------------------------------------------------------------------------------------------------

PEER_ROWS = {
    "dmon_gpm1-2-20-21_DT_c3.out": ("nvidia-smi-dmon", 3),
    "dmon_pucvmet_TD_c3.out": ("nvidia-smi-dmon", 3),
    "dmon_put_DT_c3.out": ("nvidia-smi-dmon", 3),
    "dmon_put_DT_csv-nounit_c2.out": ("nvidia-smi-dmon", 2),
    "dmon_put_DT_csv_c3.out": ("nvidia-smi-dmon", 3),
    "dmon_t_c2.out": ("nvidia-smi-dmon", 2),
    "dmon_t_gpm20-21_csv_c4.out": ("nvidia-smi-dmon", 4),
    "query_csv_lms100.out": ("nvidia-smi-query", 12),
    "query_csv_nounits_once.out": ("nvidia-smi-query", 1),
    "nvtop-3.2.0_s.out": ("nvtop", 1),
    "nvtop-3.3.1_s.out": ("nvtop", 1),
    "nvtop-3.3.2_s.out": ("nvtop", 1),
    "nvtop-HEAD_s.out": ("nvtop", 1),
    "nvtop-HEAD_s_P.out": ("nvtop", 1),
    "nvtop-3.3.2_l_d1.out.gz": ("nvtop", 17),
    "nvtop-HEAD_l_d1.out.gz": ("nvtop", 17),
    "nvtop-HEAD_l_d5_f.out": ("nvtop", 4),
}


@pytest.mark.parametrize("name", PEER_ROWS)
def test_a_real_output_is_read_without_loss(name: str) -> None:
    read = ingest([str(PEERS / name)])
    assert [(info.format, info.rows) for info in read.inputs] == [PEER_ROWS[name]]
    assert "rows-broken" not in codes(read)
    assert read.samples.height == max(0, PEER_ROWS[name][1] - 1)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pmon_c3_DT.out", "pmon lists processes"),
        ("query_compute_apps_csv.out", "lists processes"),
        ("pci_getCounters.out", "one reading"),
        ("gpustat_json.out", "one reading"),
        ("dmon_put_DT_csv-noheader_c2.out", "--trace-columns put"),
        ("query_csv_noheader_nounits_lms100.out", "--trace-columns"),
    ],
)
def test_a_real_output_that_cannot_serve_says_what_would(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ingest([str(PEERS / name)])


def test_every_recorded_output_is_tried() -> None:
    tried = set(PEER_ROWS) | {
        "pmon_c3_DT.out",
        "query_compute_apps_csv.out",
        "pci_getCounters.out",
        "gpustat_json.out",
        "dmon_put_DT_csv-noheader_c2.out",
        "query_csv_noheader_nounits_lms100.out",
    }
    assert {path.name for path in PEERS.iterdir()} - {"README.md"} == tried


# --- nvtop ----------------------------------------------------------------------------------------------------------


def stamped(text: str, stamps: list[str]) -> str:
    """nvtop's arrays with the n-th stamp before every line of the n-th."""
    lines, number = [], -1
    for line in text.splitlines():
        number += line == "["
        lines.append(f"{stamps[number]} {line}")
    return "\n".join(lines) + "\n"


def loop() -> str:
    return gzip.decompress((PEERS / "nvtop-HEAD_l_d1.out.gz").read_bytes()).decode()


def test_nvtop_values_are_read_from_text(tmp_path: Path) -> None:
    read = given(tmp_path, (PEERS / "nvtop-3.3.1_s.out").read_text() * 2, start="2026-11-29T11:47:30Z")
    row = read.samples.row(0, named=True)
    assert (row["sm_clock_mhz"], row["power_w"], row["gpu_util"]) == (1980.0, 138.0, 0.0)
    assert row["memory_used_mib"] == pytest.approx(5441585152 / 2**20)
    assert read.gpus[0].name == "NVIDIA H200"


@pytest.mark.parametrize("form", ["%.s", "iso"])
def test_nvtop_through_ts_has_its_times(form: str, tmp_path: Path) -> None:
    times = [BEGIN_NS + number * 146_000_000 for number in range(17)]
    if form == "%.s":
        stamps = [f"{time // SECOND}.{time % SECOND // 1000:06d}" for time in times]
    else:
        stamps = [
            f"{t}Z" for t in pl.Series(times).cast(pl.Datetime("ns")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_list()
        ]
    read = given(tmp_path, stamped(loop(), stamps))
    assert read.samples["end_ns"].to_list() == times[1:]
    assert "trace-time-built" not in codes(read)


def test_default_stamps_of_ts_get_the_logs_year_and_places_within_their_second(tmp_path: Path) -> None:
    # Seven arrays a second, as ts stamps them: whole seconds, no year, no zone.
    stamps = [f"Nov 29 11:47:{30 + number // 7}" for number in range(17)]
    trace = write(tmp_path / "nvtop", stamped(loop(), stamps))
    read = ingest([LOG, trace])
    assert "trace-times-spread" in codes(read)
    assert read.samples["start_ns"].to_list() == sorted(set(read.samples["start_ns"].to_list()))
    assert read.samples.height == 16
    assert read.inputs[1].first_ns is not None
    assert abs(read.inputs[1].first_ns - BEGIN_NS) < SECOND


def test_a_stamp_without_year_over_new_year() -> None:
    stamps = ["Dec 31 23:59:59", "Jan  1 00:00:00"]
    new_year = 1_798_761_600 * SECOND
    for hint in (new_year - 3600 * SECOND, new_year + 40 * 86_400 * SECOND):
        assert trace_times.read_stamps(stamps, hint).time_ns.to_list() == [new_year - SECOND, new_year]


def test_nvtop_without_times_is_built_from_the_start_that_is_told(tmp_path: Path) -> None:
    read = given(tmp_path, loop(), start="2026-11-29T11:47:30Z", period_s=0.2)
    assert read.samples["start_ns"][0] == BEGIN_NS
    assert read.samples["end_ns"][-1] == BEGIN_NS + 16 * SECOND // 5
    assert "the start given" in said(read, "trace-time-built")
    usual = given(tmp_path, loop(), start="2026-11-29T11:47:30Z")
    assert usual.samples["end_ns"][0] == BEGIN_NS + 146_000_000
    assert "off by up to" in said(usual, "trace-time-built")


def test_nvtop_without_times_is_not_used_beside_a_log(tmp_path: Path) -> None:
    trace = write(tmp_path / "nvtop.json", loop())
    read = ingest([LOG, trace])
    assert read.samples.is_empty()
    assert [info.used for info in read.inputs] == [True, False]
    assert "ts '%.s'" in said(read, "trace-without-time")
    done = load([LOG, trace])
    assert done.phases["start_ns"].count() > 0


def test_the_files_date_is_believed_where_it_falls_into_the_log(tmp_path: Path) -> None:
    import os

    trace = write(tmp_path / "nvtop.json", loop())
    begin_ns = ingest([LOG]).inputs[0].first_ns
    assert begin_ns is not None
    end_ns = begin_ns + 20 * SECOND
    os.utime(trace, ns=(end_ns, end_ns))
    read = ingest([LOG, trace])
    assert abs(int(read.samples["end_ns"][-1]) - end_ns) < 1000
    assert "last change" in said(read, "trace-time-built")


def test_two_gpus_of_nvtop_are_told_apart(tmp_path: Path) -> None:
    one = '{"device_name": "A", "gpu_util": "10%"}, {"device_name": "B", "gpu_util": "20%"}'
    read = given(tmp_path, f"[{one}]\n[{one}]\n[{one}]\n", start="2026-11-29T11:47:30Z")
    assert [(gpu.gpu, gpu.name) for gpu in read.gpus] == [(0, "A"), (1, "B")]
    assert read.samples.filter(pl.col("gpu") == 1)["gpu_util"].to_list() == pytest.approx([0.2, 0.2])


def test_an_nvtop_stream_that_breaks_off_keeps_what_is_whole(tmp_path: Path) -> None:
    text = loop()
    read = given(tmp_path, text[: len(text) // 2], start="2026-11-29T11:47:30Z")
    assert read.inputs[0].rows == text[: len(text) // 2].count("\n]")
    assert next(notice.count for notice in read.quality.notices if notice.code == "rows-broken") == 1


def test_nvtop_without_a_gpu_says_so(tmp_path: Path) -> None:
    assert "no GPU" in refused(tmp_path, "No GPU to monitor.\n")


# --- nvidia-smi dmon ------------------------------------------------------------------------------------------------


def test_dmon_without_header_is_read_with_its_letters(tmp_path: Path) -> None:
    text = (PEERS / "dmon_put_DT_csv-noheader_c2.out").read_text()
    with_header = ingest([str(PEERS / "dmon_put_DT_csv-nounit_c2.out")])
    for header in ("put", "gpu, pwr, gtemp, mtemp, sm, mem, enc, dec, jpg, ofa, rxpci, txpci"):
        read = given(tmp_path, text, header=header)
        assert read.inputs[0].rows == 2
        assert read.samples["gpu_util"].to_list() == [0.25]
        assert read.samples.columns == with_header.samples.columns
    assert "14 columns" in refused(tmp_path, text, header="pc")


def test_letters_of_an_older_driver(tmp_path: Path) -> None:
    read = given(
        tmp_path,
        " 20261129, 12:23:12, 0, 176, 46, 16, 4, 0, 0\n 20261129, 12:23:13, 0, 170, 46, 8, 4, 0, 0\n",
        header="pu",
    )
    assert read.samples.select("gpu_util", "power_w").row(0) == (0.08, 170.0)


def test_dmon_with_the_time_only_takes_its_day_from_the_log(tmp_path: Path) -> None:
    text = "#Time         gpu  rxpci  txpci\n#HH:MM:SS     Idx   MB/s   MB/s\n" + "".join(
        f" 11:47:{second:02d}       0      {second}     10\n" for second in range(30, 50)
    )
    read = ingest([LOG, write(tmp_path / "dmon", text)])
    assert read.inputs[1].first_ns == BEGIN_NS
    assert "trace-date-inferred" in codes(read)


def test_times_of_day_go_on_after_midnight() -> None:
    times = trace_times.times_of_day(pl.Series(["23:59:59", "00:00:00"]), BEGIN_NS)
    assert times[1] - times[0] == SECOND


def test_dmon_gpm_columns_are_means_over_the_whole_step() -> None:
    read = ingest([str(PEERS / "dmon_t_gpm20-21_csv_c4.out")])
    assert read.gpus[0].pcie_source == "gpm"
    known = read.samples.filter(pl.col("rx_wire_bytes").is_not_null())
    assert known["coverage"].to_list() == [1.0, 1.0]
    assert known["rx_wire_bytes"][0] == pytest.approx(10621 * 2**20 * 1.051 / 0.994)


def test_dmon_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    text = (PEERS / "dmon_put_DT_c3.out").read_text()
    read = given(tmp_path, text + "\n" + text + " 20261129    12:23:16       0    1\n")
    assert read.inputs[0].rows == 3
    assert "3 rows" in said(read, "rows-repeated")
    assert [n.count for n in read.quality.notices if n.code == "rows-broken"] == [1]


# --- nvidia-smi --query-gpu -----------------------------------------------------------------------------------------


def test_a_query_without_header_is_read_with_its_list(tmp_path: Path) -> None:
    fields = "timestamp,index,name,utilization.gpu,utilization.memory,memory.used,clocks.sm,power.draw"
    fields += ",pcie.link.gen.current,pcie.link.width.current"
    read = given(tmp_path, (PEERS / "query_csv_noheader_nounits_lms100.out").read_text(), header=fields)
    assert read.inputs[0].rows == 12
    gpu = read.gpus[0]
    assert (gpu.name, gpu.link_gen, gpu.link_width) == ("NVIDIA H200", 5, 16)
    assert read.samples.select("gpu_util", "sm_clock_mhz", "power_w").row(0) == (0.32, 1980.0, 159.4)


def test_gpus_without_an_index_are_told_apart_by_order(tmp_path: Path) -> None:
    rows = [
        f"2026/11/29 11:47:{30 + step // 10}.{step % 10}{gpu * 3:02d}, {10 * gpu + 10} %"
        for step in range(12)
        for gpu in range(2)
    ]
    read = given(tmp_path, "\n".join(["timestamp, utilization.gpu [%]", *rows]))
    assert "2 GPUs" in said(read, "gpus-by-order")
    means = read.samples.group_by("gpu").agg(pl.col("gpu_util").mean()).sort("gpu")
    assert means["gpu_util"].to_list() == pytest.approx([0.1, 0.2])


def test_one_gpu_without_an_index_stays_one(tmp_path: Path) -> None:
    text = re.sub(r"^([^,]*), [^,]*,", r"\1,", (PEERS / "query_csv_lms100.out").read_text(), flags=re.MULTILINE)
    read = given(tmp_path, text)
    assert [gpu.gpu for gpu in read.gpus] == [0]
    assert read.samples.height == 11


# --- DCGM and Prometheus --------------------------------------------------------------------------------------------


def test_dcgmi_dmon_gives_means_of_the_interval(tmp_path: Path) -> None:
    rows = "".join(f"GPU {gpu}     0.5     {gpu + 1}000000   2000000000\n" for _ in range(3) for gpu in (1, 0))
    text = "#Entity   SMACT        PCITX        PCIRX\nID\n" + rows + "GPU-I 3     0.5     1   2\n"
    read = given(tmp_path, text, start="2026-11-29T11:47:30Z")
    assert [(gpu.gpu, gpu.pcie_source, gpu.sm_source) for gpu in read.gpus] == [
        (1, "mean", "sm active"),
        (0, "mean", "sm active"),
    ]
    assert read.samples["rx_wire_bytes"].to_list() == pytest.approx([2e8] * 4)
    assert read.samples["sm_active"].to_list() == [0.5] * 4
    assert read.samples["start_ns"].min() == BEGIN_NS - 300_000_000
    assert "not-a-gpu" in codes(read)


def test_a_range_query_in_a_file_a_metric_becomes_one_trace(tmp_path: Path) -> None:
    paths = []
    for name, value in (
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "1e9"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "2e9"),
        ("DCGM_FI_PROF_SM_ACTIVE", "0.25"),
    ):
        series = [
            {
                "metric": {"__name__": name, "gpu": str(gpu), "modelName": "NVIDIA H200"},
                "values": [[BEGIN_NS / SECOND + 15 * step, value] for step in range(4)],
            }
            for gpu in range(2)
        ]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": series}}
        paths.append(write(tmp_path / f"{name}.json", json.dumps(answer)))
    read = ingest(paths)
    assert all(info.used for info in read.inputs)
    assert [(gpu.gpu, gpu.name) for gpu in read.gpus] == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]
    assert read.samples.height == 6
    row = read.samples.row(0, named=True)
    assert (row["rx_wire_bytes"], row["tx_wire_bytes"], row["sm_active"], row["coverage"]) == (15e9, 30e9, 0.25, 1.0)


def test_scrapes_one_after_the_other_through_ts(tmp_path: Path) -> None:
    line = 'gpu_pcie_rx_throughput_MiBps{{devicename="NVIDIA H200",index="{gpu}"}} {value}'
    text = "".join(
        f"{BEGIN_NS // SECOND + step}.5 " + line.format(gpu=gpu, value=step) + "\n"
        for step in range(3)
        for gpu in range(2)
    )
    read = given(tmp_path, text)
    assert read.samples.height == 4
    assert read.samples["start_ns"][0] == BEGIN_NS + SECOND // 2
    assert read.samples["rx_wire_bytes"].to_list()[:2] == [1024e3, 2 * 1024e3]


def test_mig_instances_are_left_out_and_said_to_be(tmp_path: Path) -> None:
    text = "".join(
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0"{more}}} 0.5 {BEGIN_NS // 1_000_000 + 1000 * step}\n'
        for step in range(3)
        for more in ("", ',GPU_I_ID="1"')
    )
    read = given(tmp_path, text)
    assert read.samples.height == 2
    assert "3 readings" in said(read, "not-a-gpu")


# --- what is wrong in a trace -----------------------------------------------------------------------------------------


def test_counts_of_a_trace_add_up() -> None:
    table = next(table for table in TABLES if table.name == "nvidia-smi-query")
    text = (
        PEERS / "query_csv_lms100.out"
    ).read_text() + "2026/11/29 12:2, cut\n, 0, x, 1 %, 1 %, 1 MiB, 1 MHz, 1 W, 5, 16\n"
    readings = read_trace("here", text.encode(), table)
    assert (readings.frame.height, readings.broken) == (12, 2)


@pytest.mark.parametrize(
    "cell", ["99999999999999999999999", "-1", "1e400", "nan", "", "inf", "N/A", "[Unknown Error]", "12;3"]
)
def test_damaged_cells_are_null_or_leave_their_row_out(cell: str, tmp_path: Path) -> None:
    rows = [f"2026/11/29 12:23:1{second}.000, 0, 50 %" for second in range(4)]
    for column in range(3):
        cells = rows[2].split(", ")
        cells[column] = cell
        damaged = [*rows[:2], ", ".join(cells), rows[3]]
        read = given(tmp_path, "\n".join(["timestamp, index, utilization.gpu [%]", *damaged]))
        assert read.samples["gpu"].unique().to_list() == [0]
        assert read.samples.height in (2, 3)


@pytest.mark.parametrize("time", ["1e300", "nan", "-5", "9999999999999"])
def test_times_out_of_range_are_counted(time: str, tmp_path: Path) -> None:
    values = ",".join(f'[{at},"50"]' for at in ("1795952850", "1795952851", "1795952852"))
    series = f'{{"metric":{{"__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"0"}},"values":[{values},["{time}","50"]]}}'
    read = given(tmp_path, f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}')
    assert read.samples.height == 2
    assert [notice.count for notice in read.quality.notices if notice.code == "rows-broken"] == [1]


def test_a_gpu_with_one_row_is_left_out_alone(tmp_path: Path) -> None:
    text = "timestamp, index, utilization.gpu [%]\n" + "".join(
        f"2026/11/29 12:23:1{second}.000, {gpu}, 50 %\n" for second, gpu in ((0, 0), (1, 0), (2, 1))
    )
    read = given(tmp_path, text)
    assert read.samples["gpu"].to_list() == [0]
    assert "too-few-samples" in codes(read)
