"""Where the log comes from: clients' lines, a process's open files, and what is said where there is none."""

import json
import select
import time
from pathlib import Path

import pytest

from gputrace.errors import InputError, UsageError
from gputrace.sampler.attach import files_of_process, streams_left_out
from gputrace.sampler.clients import Client, ClientLog, docker, journal
from gputrace.sampler.recording import Request, parse_size, record
from tests.recording import FakeClock


def test_a_line_of_the_journal_keeps_its_time_and_its_bytes() -> None:
    parse = journal("cuzk").parse
    stamp = "1773425801616361"
    assert parse(json.dumps({"MESSAGE": "a line", "__REALTIME_TIMESTAMP": stamp}).encode(), "stdout") == (
        1773425801616361000,
        "journal",
        b"a line",
    )
    coloured = {"MESSAGE": [27, 91, 50, 109, 120], "__REALTIME_TIMESTAMP": stamp}
    assert parse(json.dumps(coloured).encode(), "stdout")[2] == b"\x1b[2mx"
    with pytest.raises(ValueError):
        parse(b"not json", "stdout")


def test_a_line_of_a_container_keeps_its_time_and_its_stream() -> None:
    parse = docker("cuzk").parse
    assert parse(b"2026-03-13T18:16:41.616361Z CUZK_TIMING: a=1", "stderr") == (
        1773425801616361000,
        "stderr",
        b"CUZK_TIMING: a=1",
    )
    assert parse(b"Error: No such container: cuzk", "stderr") == (None, "recorder", b"Error: No such container: cuzk")


def test_clients_go_on_where_they_were() -> None:
    assert journal("u").command(None)[-2:] == ["-n", "0"]
    assert journal("u").command(1773425801616361000)[-2:] == ["--since", "@1773425801"]
    assert docker("c").command(1773425801616361000)[-3:] == ["--since", "1773425801.616361000", "c"]


def test_a_client_that_ends_is_started_again_and_no_line_comes_twice(tmp_path: Path) -> None:
    """It prints two lines a start, from the last one it was asked for on, as --since does."""
    clock, starts = FakeClock(), []

    def command(after_ns: int | None) -> list[str]:
        starts.append(after_ns)
        first = 0 if after_ns is None else after_ns
        return ["sh", "-c", f"echo {first} line {first}; echo {first + 1} line {first + 1}"]

    def parse(line: bytes, pipe: str) -> tuple[int | None, str, bytes]:
        stamp, _, text = line.partition(b" ")
        return int(stamp), pipe, text

    log = ClientLog(Client("fake", command, parse, "cannot be started"), clock)
    seen: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(seen) < 6 and time.monotonic() < deadline:
        seen += [text for _, _, text, _ in log.poll()]
        clock.pass_ns(1_000_000_000)
        select.select(log.fds(), [], [], 0.05)
    log.close()
    assert seen == [b"line %d" % number for number in range(len(seen))] and len(seen) >= 6
    assert starts[:4] == [None, 1, 2, 3]


def test_a_client_that_is_not_there_is_one_line() -> None:
    client = Client(
        "fake", lambda _: ["/no/such/client"], lambda line, pipe: (None, pipe, line), "it cannot be started"
    )
    with pytest.raises(InputError, match="it cannot be started: No such file"):
        ClientLog(client, FakeClock())


def process(root: Path, cgroup: str = "0::/\n", **links: str) -> Path:
    fd = root / "proc/42/fd"
    fd.mkdir(parents=True)
    (root / "proc/42/cgroup").write_text(cgroup)
    for name, target in links.items():
        (fd / name[1:]).symlink_to(target)
    return root


def test_files_of_a_process_by_stream(tmp_path: Path) -> None:
    for name in ("out", "err"):
        (tmp_path / name).write_text("")
    root = process(tmp_path, _1=str(tmp_path / "out"), _2=str(tmp_path / "err"))
    assert files_of_process(42, root) == {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}


def test_both_streams_in_one_file_are_one_log(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("")
    root = process(tmp_path, _1=str(tmp_path / "both"), _2=str(tmp_path / "both"))
    assert files_of_process(42, root) == {"log": tmp_path / "both"}


@pytest.mark.parametrize(
    ("target", "cgroup", "says"),
    [
        ("pipe:[77]", "0::/docker/abc\n", "use --docker NAME"),
        ("pipe:[77]", "0::/user.slice\n", "give the file that its reader writes with --log FILE"),
        ("socket:[77]", "0::/system.slice/cuzk.service\n", "use --journal cuzk.service"),
        ("/dev/pts/3", "0::/\n", "a terminal"),
        ("/dev/null", "0::/\n", "start it with -- COMMAND"),
    ],
)
def test_output_that_is_no_file_says_what_to_do_instead(tmp_path: Path, target: str, cgroup: str, says: str) -> None:
    root = process(tmp_path, cgroup, _1=target, _2=target)
    with pytest.raises(InputError, match="not a file") as raised:
        files_of_process(42, root)
    assert says in str(raised.value)


def test_a_stream_that_is_no_file_beside_one_that_is_is_told(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("")
    root = process(tmp_path, _1="pipe:[77]", _2=str(tmp_path / "err"))
    found = files_of_process(42, root)
    assert found == {"stderr": tmp_path / "err"}
    (said,) = streams_left_out(42, found, root)
    assert said.startswith("stdout of process 42 is not recorded: a pipe: give the file")
    assert streams_left_out(42, {"log": tmp_path / "err"}, root) == []


def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such process"):
        files_of_process(42, tmp_path)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5GB", 5 * 10**9),
        ("512MiB", 512 << 20),
        ("3000000", 3_000_000),
        ("1.5g", 1_500_000_000),
        ("4k", None),
        ("x", None),
    ],
)
def test_sizes(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(UsageError):
            parse_size(text)
    else:
        assert parse_size(text) == size


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        (Request(log="a", command=["b"]), UsageError, "give one of them"),
        (Request(period_s=0.001), UsageError, "period"),
        (Request(keep=0), UsageError, "--keep"),
        (Request(log="/no/such/folder/log"), InputError, "not a file that can be followed"),
        (Request(max_size="1kB"), UsageError, "at least"),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Request, error: type[Exception], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        record(request_, print, clock=FakeClock())
    assert list(tmp_path.iterdir()) == []
