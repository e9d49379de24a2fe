"""Every bundled format is proven by its own samples, and a broken one is refused by name."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gputrace.errors import InputError
from gputrace.ingest.families import parse_lines
from gputrace.ingest.formats import RecordFormat, TableFormat, WrapperFormat, bundled_formats, load_format
from gputrace.ingest.tables import matches, read_table
from gputrace.ingest.wrappers import ANSI_COLOUR, unwrap
from gputrace.resources import parsers_dir
from tests.unit.support import marks_of, whole_lines

FORMATS = bundled_formats()
BROKEN = Path(__file__).parent / "broken_formats"

RECORD_SAMPLES = [
    pytest.param(family, sample, id=f"{family.name}-{sample['event']}-{number}")
    for family in FORMATS.records
    for number, sample in enumerate(family.samples)
]
WRAPPER_SAMPLES = [
    pytest.param(wrapper, sample, id=f"{wrapper.name}-{number}")
    for wrapper in FORMATS.wrappers
    for number, sample in enumerate(wrapper.samples)
]
TABLE_SAMPLES = [
    pytest.param(table, sample, id=f"{table.name}-{number}")
    for table in FORMATS.tables
    for number, sample in enumerate(table.samples)
]


def values_of(mark: dict[str, Any]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in mark["values"]}


def test_every_file_of_parsers_is_loaded() -> None:
    names = {known.name for kind in (FORMATS.records, FORMATS.wrappers, FORMATS.tables) for known in kind}
    assert names == {path.stem for path in parsers_dir().glob("*.toml")}


@pytest.mark.parametrize(("family", "sample"), RECORD_SAMPLES)
def test_a_record_sample_gives_its_mark(family: RecordFormat, sample: dict[str, Any]) -> None:
    marks, unknown = parse_lines(whole_lines(sample["line"]), FORMATS)

    assert unknown == []
    assert marks.height == 1
    mark = marks.row(0, named=True)
    assert (mark["family"], mark["event"]) == (family.name, sample["event"])
    assert values_of(mark) == sample["values"]
    identified = ("log_ns", "offset_ms", "job", "worker", "partition", "gpu")
    expected = sample.get("columns", {})
    assert set(expected) <= set(identified)
    # A sample need not repeat the time that its line begins with; what it leaves out must else be null.
    checked = [name for name in identified if name in expected or name != "log_ns"]
    assert {name: mark[name] for name in checked} == {name: expected.get(name) for name in checked}


@pytest.mark.parametrize("family", FORMATS.records, ids=lambda family: family.name)
def test_every_event_rule_is_used_by_a_sample(family: RecordFormat) -> None:
    shown = {sample["event"] for sample in family.samples}
    assert {rule.name for rule in family.events} - shown == set()


@pytest.mark.parametrize("family", FORMATS.records, ids=lambda family: family.name)
def test_every_needle_is_in_a_sample(family: RecordFormat) -> None:
    lines = "\n".join(sample["line"] for sample in family.samples)
    assert [needle for needle in family.needles if needle not in lines] == []


@pytest.mark.parametrize("family", FORMATS.records, ids=lambda family: family.name)
def test_an_event_rule_tells_by_exactly_one_thing(family: RecordFormat) -> None:
    for rule in family.events:
        assert sum(mark is not None for mark in (rule.key, rule.text, rule.level)) == 1, rule


@pytest.mark.parametrize(("wrapper", "sample"), WRAPPER_SAMPLES)
def test_a_wrapper_sample_is_unwrapped(wrapper: WrapperFormat, sample: dict[str, Any]) -> None:
    raw = pl.DataFrame({"line": [7], "raw": [sample["line"]]}, schema={"line": pl.UInt32, "raw": pl.String})

    inner = unwrap(raw, wrapper)

    assert inner.height == 1
    row = inner.row(0, named=True)
    assert row["line"] == 7
    plain = pl.Series([sample["text"]]).str.replace_all(ANSI_COLOUR, "")[0]
    assert row["text"] == plain
    assert row["stream"] == sample.get("stream")
    assert row["arrival_ns"] == sample.get("arrival_ns")


def test_a_line_that_is_not_wrapped_comes_back_as_it_is() -> None:
    raw = pl.DataFrame(
        {"line": [1], "raw": ["CUZK_TIMING: prep_msm_ms=1\r"]}, schema={"line": pl.UInt32, "raw": pl.String}
    )
    for wrapper in (None, *FORMATS.wrappers):
        row = unwrap(raw, wrapper).row(0, named=True)
        assert row == {"line": 1, "text": "CUZK_TIMING: prep_msm_ms=1", "stream": None, "arrival_ns": None}


@pytest.mark.parametrize(("table", "sample"), TABLE_SAMPLES)
def test_a_table_sample_is_read(table: TableFormat, sample: dict[str, Any]) -> None:
    readings, broken = read_table("sample", sample["text"].encode(), table)

    assert broken == 0
    assert readings.height == len(sample["rows"])
    for row, expected in zip(readings.iter_rows(named=True), sample["rows"], strict=True):
        known = {name: value for name, value in row.items() if value is not None}
        assert {name: known.get(name) for name in expected} == pytest.approx(expected)
        assert known["time_ns"] == expected["time_ns"]


@pytest.mark.parametrize(("table", "sample"), TABLE_SAMPLES)
def test_a_table_sample_is_taken_for_its_own_format_only(table: TableFormat, sample: dict[str, Any]) -> None:
    assert [other.name for other in FORMATS.tables if matches(sample["text"], other)] == [table.name]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_samples", "no [[sample]]"),
        ("unknown_kind", "'recrods'"),
        ("no_kind", "None"),
        ("bad_toml", "not a format description"),
        ("records_without_pattern", "pattern"),
        ("records_misspelt_event_key", "kye"),
        ("wrapper_without_layout", "layout"),
        ("table_without_time", "time"),
        ("table_column_without_unit", "unit"),
        ("column_misspelt_target", "haeder"),
    ],
)
def test_a_broken_format_is_refused_by_name(name: str, says: str) -> None:
    path = BROKEN / f"{name}.toml"
    with pytest.raises(InputError) as refused:
        load_format(path)
    assert str(path) in str(refused.value)
    assert says in str(refused.value)
    assert refused.value.exit_code == 3


def test_every_broken_format_is_tried() -> None:
    tried = next(m for m in test_a_broken_format_is_refused_by_name.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {path.stem for path in BROKEN.glob("*.toml")} == {name for name, _ in tried.args[1]}


def test_a_format_file_that_is_missing_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml"):
        load_format(tmp_path / "gone.toml")


def test_a_format_file_that_is_not_text_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b'kind = "records"\nname = "\xff\xfe"\n')
    with pytest.raises(InputError, match=r"binary\.toml"):
        load_format(path)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("CUZK_TIMING: gpu_tid=0 batch_add_ms=403 new_in_next_build=7", "new_in_next_build", "7"),
        ("CUZK_NTT_H: d_b_alloc=0ms ntt_kernels=1ms copies_ms=900 total=1ms", "copies_ms", "900"),
        ("TIMELINE,5,GPU_END,j,worker=0,partition=1,gpu_ms=9,queue_depth=3", "queue_depth", "3"),
        (
            "2026-03-13T18:16:51.527911Z  INFO cuzk_core::engine: GPU_TIMING spawn_blocking prove_start worker_id=0 "
            'partition=Some(3) spawn_to_enter_ms=0 prove_start_ms=9911 note="two words"',
            "note",
            "two words",
        ),
    ],
)
def test_a_key_that_nobody_knows_is_kept(line: str, key: str, value: str) -> None:
    marks = marks_of(line)
    assert marks.height == 1
    assert values_of(marks.row(0, named=True))[key] == value


def test_a_record_of_a_known_family_that_nobody_knows_is_kept_and_counted() -> None:
    marks, unknown = parse_lines(whole_lines("CUZK_TIMING: brand_new_ms=3"), FORMATS)
    assert marks["event"].to_list() == ["unknown"]
    assert values_of(marks.row(0, named=True)) == {"brand_new_ms": "3"}
    assert unknown == [1]


@pytest.mark.parametrize(
    ("line", "event", "key", "value"),
    [
        ("CUZK_TIMING: split_vectors_ms=-28 setup_to_split_ms=-29", "split_vectors", "setup_to_split_ms", "-29"),
        ("CUZK_TIMING: async_dealloc_ms=-3", "async_dealloc", "async_dealloc_ms", "-3"),
        ("CUZK_NTT_H: d_b_alloc=-1ms ntt_kernels=-2ms total=-3ms", "ntt_h", "ntt_kernels", "-2ms"),
    ],
)
def test_negative_values_are_accepted(line: str, event: str, key: str, value: str) -> None:
    marks = marks_of(line)
    assert marks["event"].to_list() == [event]
    assert values_of(marks.row(0, named=True))[key] == value
