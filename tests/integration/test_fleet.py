"""Fleets on real clusters: workers and schedulers killed, corrupt captures, a store behind S3's API.

`GPUTRACE_FLEET=300` analyses as many captures as the product promises; without it a few, for the same questions.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gputrace.cli import app
from gputrace.errors import ClusterError, InputError, UsageError
from gputrace.fleet import engine as engines
from gputrace.fleet.analyse import Task, analysis_version
from gputrace.fleet.captures import CaptureRef, find_captures
from gputrace.fleet.engine import Engine, Found, engine_of, gather, serial
from gputrace.fleet.result import Fleet
from gputrace.fleet.run import FleetOptions, Progress, survey
from gputrace.fleet.summary import Failure
from gputrace.render.fleet_html import FleetHtmlRenderer
from gputrace.render.fleet_json import FleetJsonRenderer
from tests.captures import folder as real_capture
from tests.deadly import Deadly
from tests.fleets import spoil, write_fleet

ROOT = Path(__file__).parents[2]
CAPTURES = int(os.environ.get("GPUTRACE_FLEET", "6"))
LARGE = CAPTURES >= 300
HOSTS = 30 if LARGE else 3
# Workers cost more than the few captures of an everyday run.
KILLED_WITH = "2" if LARGE else "0"

pytestmark = pytest.mark.xdist_group("fleet")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet in which one capture is corrupt."""
    folder = tmp_path_factory.mktemp("fleet") / "captures"
    spoil(write_fleet(folder, CAPTURES, HOSTS)[CAPTURES // 2])
    return folder


def documents(fleet: Fleet) -> tuple[str, str]:
    return FleetJsonRenderer().render(fleet), FleetHtmlRenderer().render(fleet)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the serial engine's results are."""
    return tmp_path_factory.mktemp("serial")


@pytest.fixture(scope="module")
def one_by_one(root: Path, kept: Path) -> tuple[str, str]:
    """What the serial engine makes of it."""
    fleet = survey([str(root)], FleetOptions(state=kept), serial)
    assert len(fleet.captures) == CAPTURES - 1
    (failure,) = fleet.failures
    assert failure.kind == "input" and "none of the inputs is a prover log" in failure.reason
    return documents(fleet)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with engines._local(2) as running:
        yield running


def on(client: Any) -> Engine:
    return lambda captures, task: gather(client, captures, task)


def test_a_worker_killed_and_a_corrupt_capture_change_nothing(
    client: Any, root: Path, tmp_path: Path, one_by_one: tuple[str, str]
) -> None:
    pids: dict[str, int] = client.run(os.getpid)
    killed: list[int] = []

    def kill(now: Progress) -> None:
        if now.done == CAPTURES // 3 and not killed:
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    fleet = survey([str(root)], FleetOptions(state=tmp_path), on(client), kill)
    assert killed and len(pids) == 2
    assert documents(fleet) == one_by_one


def test_a_capture_that_kills_its_workers_fails_alone(client: Any, root: Path) -> None:
    captures, _ = find_captures([str(root)])
    victim = captures[1].path
    outcomes = dict(gather(client, captures[:6], Deadly(analysis_version(), victim=victim)))
    kinds = {capture.path: outcome.kind for capture, outcome in outcomes.items() if isinstance(outcome, Failure)}
    assert kinds == {c.path: "killed" if c.path == victim else "bug" for c in captures[:6]}


def wait_for(condition: Callable[[], object], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_run_killed_with_its_scheduler_goes_on(root: Path, tmp_path: Path, one_by_one: tuple[str, str]) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "gputrace", "fleet", str(root), "--state", str(state), "--workers", KILLED_WITH]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: len(list(state.glob("*.json"))) >= CAPTURES // 3 or running.poll() is not None)
    assert running.poll() is None, "it ended before it could be killed"
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = len(list(state.glob("*.json")))
    assert kept < CAPTURES
    seen: list[Progress] = []
    assert documents(survey([str(root)], FleetOptions(state=state), serial, seen.append)) == one_by_one
    assert seen[0].unchanged == kept and seen[-1].done == CAPTURES - kept
    # Once more: nothing is left to do, not even for the corrupt one.
    assert documents(survey([str(root)], FleetOptions(state=state), _none_left, seen.append)) == one_by_one
    assert seen[-1] == Progress(CAPTURES, CAPTURES, 0, 1)


def _none_left(captures: Sequence[CaptureRef], task: Task) -> Iterator[Found]:
    raise AssertionError("nothing was to be analysed")


CLUSTER = """
import distributed
if __name__ == "__main__":
    own = {"host": "127.0.0.1", "protocol": "tcp", "processes": False, "dashboard_address": None}
    print(distributed.LocalCluster(n_workers=1, threads_per_worker=1, **own).scheduler_address, flush=True)
    input()
"""


@contextmanager
def cluster() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A scheduler with a worker as somebody else runs it, in a process of its own."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], cwd=ROOT, text=True, **pipes) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().strip(), running
        finally:
            running.kill()


def test_somebody_elses_scheduler_killed(root: Path, tmp_path: Path, one_by_one: tuple[str, str]) -> None:
    options = FleetOptions(state=tmp_path / "state")
    with cluster() as (address, scheduler):

        def kill(now: Progress) -> None:
            if now.done == CAPTURES // 3:
                scheduler.kill()

        with pytest.raises(ClusterError, match="run the same again to go on"):
            survey([str(root)], options, engine_of(None, address), kill)
    seen: list[Progress] = []
    assert documents(survey([str(root)], options, serial, seen.append)) == one_by_one
    assert CAPTURES // 3 <= seen[0].unchanged < CAPTURES


def test_the_command_writes_every_document(
    root: Path, kept: Path, tmp_path: Path, one_by_one: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    html, json, tables = (str(tmp_path / name) for name in ("fleet.html", "fleet.json", "tables"))
    outputs = ["--html", html, "--json", json, "--tables", tables]
    app(["fleet", str(root), "--state", str(kept), "--workers", "0", *outputs], standalone_mode=False)
    assert (Path(json).read_text(), Path(html).read_text()) == one_by_one
    assert (Path(tables) / "gpus.parquet").is_file()
    shown = capsys.readouterr()
    assert f"{CAPTURES} of {CAPTURES} captures: 0 analysed, {CAPTURES} unchanged, 1 failed" in shown.err
    assert "Failed captures" in shown.out and "Hosts by lost seconds" in shown.out
    with pytest.raises(UsageError, match="exists; --force"):
        app(["fleet", str(root), "--json", json], standalone_mode=False)
    with pytest.raises(UsageError, match="give one of them"):
        app(["fleet", str(root), "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"], standalone_mode=False)


def test_stopped_by_the_keyboard_it_says_how_to_go_on(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(captures: Sequence[CaptureRef], task: Task) -> Iterator[Found]:
        yield captures[0], task(captures[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "serial", stopped)
    with pytest.raises(SystemExit) as ended:
        app(["fleet", str(root), "--state", str(tmp_path), "--workers", "0"], standalone_mode=False)
    assert ended.value.code == 130 and len(list(tmp_path.iterdir())) == 1
    assert f"Stopped: 1 of {CAPTURES} captures: 1 analysed" in capsys.readouterr().err


@pytest.mark.parametrize("library", ["fsspec.core", "distributed"])
def test_libraries_that_are_missing_are_named(library: str, root: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UsageError, match=r"pip install 'gputrace\[fleet\]'"):
        patch.setitem(sys.modules, library, None)
        survey([str(root)], FleetOptions(state=tmp_path), engine_of(1, None))


def test_a_scheduler_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "_CONNECT_S", 1)
    with pytest.raises(ClusterError, match="no Dask scheduler answers there"):
        survey([str(root)], FleetOptions(state=tmp_path), engine_of(None, "tcp://127.0.0.1:9"))


def test_nothing_that_can_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture is there"):
        survey([str(tmp_path / "no")], FleetOptions(state=tmp_path / "state"))
    capture = tmp_path / "bad"
    capture.mkdir()
    (capture / "prover.log").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="none of 1 captures can be used; the first: none of the inputs"):
        survey([str(capture)], FleetOptions(state=tmp_path / "state"))


def _scratch(dask_worker: Any) -> list[str]:
    return [path.name for path in Path(dask_worker.local_directory).iterdir()]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """moto's server on the loopback; fsspec's options for it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test"}
    server.stop()


def test_captures_behind_s3_are_those_on_disk(client: Any, root: Path, tmp_path: Path, s3: dict[str, Any]) -> None:
    import s3fs

    bucket = s3fs.S3FileSystem(**s3)
    bucket.mkdir("captures")
    local = sorted(root.glob("*/day-00"))[:2]
    for capture in local:
        bucket.put(str(capture), f"captures/fleet/{capture.parent.name}/{capture.name}", recursive=True)
    bucket.put(str(real_capture("one-worker")), "captures/fleet/real", recursive=True)
    bucket.pipe("captures/fleet/bad/prover.log", bytes(range(256)))
    options = FleetOptions(state=tmp_path / "state", storage=s3)
    seen: list[Progress] = []
    fleet = survey(["s3://captures/fleet/"], options, on(client) if LARGE else serial, seen.append)
    # The copies are gone.
    assert [left for folder in client.run(_scratch).values() for left in folder if left.startswith("gputrace")] == []
    assert [failure.capture for failure in fleet.failures] == ["s3://captures/fleet/bad"]
    there = {capture.capture.removeprefix("s3://captures/fleet/"): capture for capture in fleet.captures}
    here = survey([*map(str, local), str(real_capture("one-worker"))], FleetOptions(state=tmp_path / "other"))
    for expected in here.captures:
        name = "real" if expected.capture.endswith("one-worker") else expected.capture.removeprefix(f"{root}/")
        told = there.pop(name)
        assert (told.days, told.verdicts, told.headline) == (expected.days, expected.verdicts, expected.headline)
    assert there == {}
    # A changed object is analysed anew, and it alone; globs name the same captures.
    bucket.pipe("captures/fleet/bad/prover.log", b"something else")
    survey(["s3://captures/fleet/*/", "s3://captures/fleet/host-*/*/"], options, serial, seen.append)
    assert (seen[-1].unchanged, seen[-1].done) == (3, 1)


def test_a_capture_over_the_limit_is_not_fetched(root: Path, tmp_path: Path) -> None:
    small = FleetOptions(state=tmp_path, most_bytes=1000)
    with pytest.raises(InputError, match="more than the 1e-06 GB of --max-capture-gb"):
        survey([str(next(root.glob("*/*")))], small)
