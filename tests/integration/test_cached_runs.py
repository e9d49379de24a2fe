"""A report from the cache is the report without it, and whatever changes makes another."""

import gzip
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputrace import api
from gputrace.analysis.diagnosis import Diagnosis, Gaps
from gputrace.cache.runs import rebuilt
from gputrace.cache.store import Store
from gputrace.errors import InputError
from gputrace.loading import load, load_whole
from gputrace.trace import Trace
from tests.captures import folder

FORMS = ("json", "text", "markdown")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The cache, turned on, in a folder of its own."""
    made = Store(tmp_path / "store")
    monkeypatch.setenv("GPUTRACE_CACHE", str(made.folder))
    return made


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A copy of a real capture, last changed some time ago, its log in plain text."""
    copy = tmp_path / "capture"
    shutil.copytree(folder("one-worker"), copy)
    log = copy / "prover.merged.gz"
    (copy / "prover.log").write_bytes(gzip.decompress(log.read_bytes()))
    log.unlink()
    (copy / "prover.docker.json.gz").unlink()
    for file in copy.iterdir():
        os.utime(file, (1_790_000_000, 1_790_000_000))
    return copy


def reports(*paths: Path, cache: bool = True) -> list[str]:
    run = load_whole([str(path) for path in paths], cache=cache)
    diagnosis = run.diagnose(500.0)
    return [api.report(run.trace, diagnosis, form) for form in FORMS]


def kinds(store: Store) -> dict[str, int]:
    return {kind: len(store.names(f"{kind}-")) for kind in ("trace", "diagnosis")}


def test_a_report_from_the_cache_is_the_same(store: Store, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reports(capture, cache=False)
    assert store.names() == []
    assert reports(capture) == expected
    assert kinds(store) == {"trace": 1, "diagnosis": 1}
    monkeypatch.setattr("gputrace.cache.runs.rebuilt", lambda *_: pytest.fail("read again"))
    monkeypatch.setattr("gputrace.cache.runs._diagnose", lambda *_: pytest.fail("reckoned again"))
    assert reports(capture) == expected


def test_an_edit_in_the_middle_that_keeps_size_and_date_is_seen(store: Store, capture: Path) -> None:
    log = capture / "prover.log"
    before = log.stat()
    first = load(capture)
    text = log.read_text()
    at = text.index("gpu_total_ms=", len(text) // 2) + len("gpu_total_ms=")
    digit = "1" if text[at] != "1" else "2"
    log.write_text(text[:at] + digit + text[at + 1 :])
    os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (log.stat().st_size, log.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert not load(capture).marks.equals(first.marks)
    assert load(capture).marks.equals(load(capture, cache=False).marks)


def test_other_options_and_other_inputs_are_other_runs(
    store: Store, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load_whole([str(capture)])
    load(capture, timezone="Europe/Berlin")
    load(capture, gpu_map={0: 0})
    load(capture / "prover.log")
    assert kinds(store)["trace"] == 4
    monkeypatch.setattr("gputrace.cache.runs._diagnose", lambda _, gap_ms, __: Diagnosis(gaps=Gaps(gap_ms)))
    for _ in range(2):
        assert [run.diagnose(gap_ms).gaps.threshold_ms for gap_ms in (500.0, 900.0)] == [500.0, 900.0]
    part = run.part(run.trace, "selection")
    assert part.key == run.key
    assert run.part(load(capture), "selection").key != run.key
    (capture / "truth.csv").write_text("never read")
    assert load(capture).calls.equals(run.trace.calls)


def test_an_appended_log_is_another_run(store: Store, capture: Path) -> None:
    log = capture / "prover.log"
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) * 2 // 3])
    shorter = load(capture)
    log.write_bytes(whole)
    longer = load(capture)
    assert shorter.calls.height < longer.calls.height
    assert longer.calls.equals(load(capture, cache=False).calls)


def test_broken_entries_are_left_out(store: Store, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputrace.cache.runs._diagnose", lambda *_: Diagnosis(headline="reckoned"))
    expected = load(capture, cache=False)
    for _ in range(2):
        run = load_whole([str(capture)])
        assert run.trace.calls.equals(expected.calls) and run.diagnose().headline == "reckoned"
        for file in store.folder.iterdir():
            file.write_bytes(file.read_bytes()[:-100])


def test_a_file_that_changes_while_it_is_read_is_not_kept_as_a_run(
    store: Store, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed_meanwhile(*given: Any) -> Trace:
        with (capture / "prover.log").open("a") as log:
            log.write("CUZK_TIMING: prep_msm_ms=1\n")
        return rebuilt(*given)

    monkeypatch.setattr("gputrace.cache.runs.rebuilt", changed_meanwhile)
    run = load_whole([str(capture)])
    assert run.key is None and kinds(store)["trace"] == 0


def test_what_comes_through_a_pipe_is_not_kept(store: Store, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((capture / "prover.log").read_bytes())))
    assert load("-").calls.height and kinds(store)["trace"] == 0


def test_errors_are_the_same_with_and_without(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    for paths in ([tmp_path / "empty.log"], [tmp_path / "none.log"]):
        for cache in (True, False):
            with pytest.raises(InputError, match=paths[0].name):
                load(paths, cache=cache)
    assert kinds(store) == {"trace": 0, "diagnosis": 0}


def test_the_command_line(store: Store, capture: Path) -> None:
    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "gputrace", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    log = str(capture / "prover.log")
    expected = run("report", log, "--no-cache")
    assert "0 entries" in run("cache")
    load_whole([log]).diagnose(500.0)
    assert run("report", log) == expected
    assert kinds(store) == {"trace": 1, "diagnosis": 1}
    assert "entries removed" in run("cache", "--clear")
    assert store.names() == []
