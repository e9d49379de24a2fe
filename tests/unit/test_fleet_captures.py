"""Which captures a pattern names, and when one counts as changed."""

import json
import os
from pathlib import Path

import pytest

from gputrace.errors import UsageError
from gputrace.fleet.captures import find_captures, storage_options
from gputrace.fleet.store import Store
from gputrace.fleet.summary import Failure, from_json, to_json
from tests.fleets import summary


def put(file: Path, text: str = "x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    root = tmp_path / "fleet"
    put(root / "a" / "2026-03-13" / "meta.json")
    put(root / "a" / "2026-03-13" / "prover.log")
    put(root / "a" / "2026-03-13" / "truth" / "calls.parquet")
    put(root / "a" / "2026-03-14" / "prover.log")
    put(root / "b" / "prover.log")
    put(root / ".state" / "kept.json")
    put(root / "README.md")
    (root / "c" / "came-to-nothing").mkdir(parents=True)
    return root


def named(*patterns: object) -> list[str]:
    return [capture.path for capture in find_captures([str(pattern) for pattern in patterns])[0]]


def test_a_folder_of_captures_names_each_once(fleet: Path) -> None:
    expected = [str(fleet / inner) for inner in ("a/2026-03-13", "a/2026-03-14", "b", "c/came-to-nothing")]
    assert named(fleet) == expected
    assert named(fleet, fleet / "a" / "*", fleet / "b") == expected
    assert named(f"{fleet}/*/2026-*") == expected[:2]
    assert named(f"{fleet}/a/2026-03-13/") == expected[:1]


def test_a_relative_path_is_the_same_capture(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleet)
    assert find_captures(["b"]) == find_captures([str(fleet / "b")])


def test_a_file_is_a_capture_of_its_own(fleet: Path) -> None:
    (capture,), missed = find_captures([str(fleet / "b" / "prover.log")])
    assert capture.single and capture.files == (("prover.log", 1),) and missed == []


def test_what_names_nothing_is_told(fleet: Path) -> None:
    found, missed = find_captures([str(fleet / "b"), str(fleet / "no"), str(fleet / "no*")])
    assert len(found) == 1
    assert [failure.reason for failure in missed] == [f"{fleet / name}: no capture is there" for name in ("no", "no*")]


def key_of(folder: Path) -> str:
    return find_captures([str(folder)])[0][0].key


def test_a_change_of_any_input_changes_the_key(fleet: Path) -> None:
    capture = fleet / "a" / "2026-03-13"
    keys = [key_of(capture)]
    put(capture / "truth" / "more")
    put(capture / ".unfinished")
    assert key_of(capture) == keys[0]
    put(capture / "prover.log", "longer")
    keys.append(key_of(capture))
    os.utime(capture / "prover.log", (1, 1))
    keys.append(key_of(capture))
    put(capture / "nvml.csv")
    keys.append(key_of(capture))
    (capture / "nvml.csv").rename(capture / "other.csv")
    keys.append(key_of(capture))
    assert len(set(keys)) == 5


def test_storage_options_are_json_or_a_file(tmp_path: Path) -> None:
    assert storage_options(None) == {}
    told = {"endpoint_url": "http://127.0.0.1:1"}
    assert storage_options(json.dumps(told)) == told
    assert storage_options(str(put(tmp_path / "options.json", json.dumps(told)))) == told
    for wrong in ("{", "[1]", str(tmp_path / "no.json")):
        with pytest.raises(UsageError, match="--storage-options"):
            storage_options(wrong)


def test_an_unknown_scheme_is_a_wrong_request() -> None:
    with pytest.raises(UsageError, match="nothing3"):
        find_captures(["nothing3://bucket/a"])


@pytest.mark.parametrize(
    "outcome", [summary("a"), Failure("/fleet/a/00-0", "input", "damaged")], ids=["summary", "failure"]
)
def test_an_outcome_is_kept_until_capture_or_analysis_change(fleet: Path, tmp_path: Path, outcome: object) -> None:
    assert not isinstance(outcome, str)
    capture = find_captures([str(fleet / "b")])[0][0]
    store = Store(tmp_path / "state", "1")
    store.open()
    assert store.get(capture) is None
    store.put(capture, outcome)  # type: ignore[arg-type]
    assert store.get(capture) == outcome
    assert from_json(json.loads(json.dumps(to_json(outcome)))) == outcome  # type: ignore[arg-type]
    assert Store(tmp_path / "state", "2").get(capture) is None
    put(fleet / "b" / "prover.log", "longer")
    assert store.get(find_captures([str(fleet / "b")])[0][0]) is None


def test_half_a_file_and_what_another_try_may_change_are_not_kept(fleet: Path, tmp_path: Path) -> None:
    capture = find_captures([str(fleet / "b")])[0][0]
    store = Store(tmp_path / "state", "1")
    store.open()
    store.put(capture, Failure(capture.path, "killed", "out of memory"))
    assert store.get(capture) is None
    store.put(capture, summary("a"))
    (file,) = (tmp_path / "state").iterdir()
    file.write_text(file.read_text()[:-20])
    assert store.get(capture) is None
