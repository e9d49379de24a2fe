"""What feeds a live view: tails of files that grow and rotate, a replay's clock, a recorder's process."""

import os
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from gputrace.errors import InputError, UsageError
from gputrace.live import recording
from gputrace.live.feed import Clock, Following, is_growing
from gputrace.live.judge import Budget
from gputrace.live.run import live
from gputrace.live.segments import newest
from gputrace.live.tail import Tail

HEADER = b"t_wall_ns,gpu\n"
NVML = b"timestamp, index, pcie.link.gen.current\n"


class Hands:
    """A clock set by hand, in seconds."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def lines(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(first, last))


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path, clock = tmp_path / "log", Hands()
    path.write_bytes(b"line 0\nline 1\nli")
    tail = Tail(path, clock)
    assert tail.read() == 16 and tail.text() == lines(0, 2)
    assert tail.read() == 0
    with path.open("ab") as file:
        file.write(b"ne 2\nline 3\n")
    assert tail.read() == 12 and tail.text() == lines(0, 4)


@pytest.mark.parametrize("how", ["rename", "copytruncate"])
def test_a_tail_follows_a_rotation_without_losing_or_doubling_a_line(how: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(lines(0, 10))
    tail = Tail(path, Hands())
    tail.read()
    if how == "rename":
        with path.open("ab") as file:
            # Written after the last look and before the rotation.
            file.write(lines(10, 12))
        path.rename(tmp_path / "log.1")
        assert tail.read() == len(lines(10, 12))
        path.write_bytes(lines(12, 15))
    else:
        path.write_bytes(lines(10, 12))
        tail.read()
        with path.open("ab") as file:
            file.write(lines(12, 15))
    tail.read()
    assert tail.text() == lines(0, 15)


def test_a_tail_begins_near_the_end_of_a_long_file_and_keeps_a_tables_header(tmp_path: Path) -> None:
    sample = Path(__file__).parent.parent.parent / "sample_logs" / "h200-pageable" / "nvml.csv.gz"
    import gzip

    table = gzip.decompress(sample.read_bytes())
    header, _, _ = table.partition(b"\n")
    path = tmp_path / "nvml.csv"
    path.write_bytes(table)
    tail = Tail(path, Hands(), most_bytes=20_000)
    tail.read()
    text = tail.text()
    assert text.startswith(header + b"\n") and text.count(header) == 1
    assert 19_000 < len(text) <= 20_000 + len(header) + 1
    assert table.endswith(text[len(header) + 1 :])


def test_a_tail_never_keeps_more_than_it_may(tmp_path: Path) -> None:
    path, clock = tmp_path / "log", Hands()
    path.write_bytes(b"")
    tail = Tail(path, clock, most_bytes=5000)
    for step in range(200):
        with path.open("ab") as file:
            file.write(lines(step * 20, step * 20 + 20))
        clock.at += 1
        tail.read()
        tail.forget_before(clock.at - 10)
        assert tail.kept_bytes <= 5000
    assert tail.text().endswith(lines(3980, 4000))
    assert tail.text().startswith(b"line 37") or tail.text().startswith(b"line 38")


def test_a_clock_keeps_within_its_run() -> None:
    hands = Hands()
    clock = Clock(0, 100_000_000_000, 10.0, hands)
    hands.at += 2
    assert clock.now_ns == 20_000_000_000
    clock.pause()
    hands.at += 50
    assert clock.now_ns == 20_000_000_000
    clock.pause()
    clock.faster(2)
    hands.at += 1
    assert clock.now_ns == 40_000_000_000 and clock.speed == 20
    clock.seek(-10)
    assert clock.now_ns == 30_000_000_000
    clock.seek(-1000)
    assert clock.now_ns == 0 and not clock.ended
    hands.at += 1000
    assert clock.now_ns == 100_000_000_000 and clock.ended


def test_only_the_newest_pieces_are_opened(tmp_path: Path) -> None:
    now = time.time()
    for number, age_s in ((1, 7200), (2, 3600), (3, 200), (4, 0)):
        for form in ("csv", "parquet") if number < 4 else ("csv",):
            path = tmp_path / f"samples-{number:06d}.{form}"
            path.write_bytes(b"PAR1\0" if form == "parquet" else b"t\n")
            os.utime(path, (now - age_s, now - age_s))
    (tmp_path / "meta.json").write_text("{}")
    chosen = [path.name for path in newest(tmp_path.iterdir(), 300.0)]
    assert chosen == ["meta.json", "samples-000003.parquet", "samples-000004.csv"]


def test_a_piece_in_parquet_is_cut_to_the_window(tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    capture.mkdir()
    frame = pl.DataFrame({"t_end_ns": pl.Series(range(0, 1000, 10)) * 1_000_000_000, "gpu": [0] * 100})
    frame.write_parquet(capture / "samples-000001.parquet")
    feed = Following([str(capture)], window_s=100.0)
    assert feed.load() is None and "none of the inputs" in feed.waiting
    assert feed._folder is not None
    cut = pl.read_parquet(Path(feed._folder.name) / "0" / "samples-000001.parquet")
    assert cut["t_end_ns"].min() == 870_000_000_000 and cut.height == 13
    feed.close()


def test_an_old_capture_is_not_growing(tmp_path: Path) -> None:
    path = tmp_path / "prover.log"
    path.write_text("x\n")
    assert is_growing([str(tmp_path)])
    os.utime(path, (1, 1))
    assert not is_growing([str(tmp_path)])
    with pytest.raises(InputError, match="cannot be opened"):
        is_growing([str(tmp_path / "absent")])
    with pytest.raises(UsageError, match="live follows files"):
        is_growing(["-"])


def test_speed_has_limits() -> None:
    with pytest.raises(UsageError, match="--speed 0: must be"):
        live(["x"], speed=0.0)


def test_a_budget_allows_what_it_has() -> None:
    hands = Hands()
    budget = Budget(0.05, 1.0, hands)
    spent = 0.0
    for _ in range(2000):
        hands.at += 0.5
        if budget.allows():
            budget.spend(0.4)
            spent += 0.4
    assert 0.05 * 1000 - 0.5 <= spent <= 0.05 * 1000 + 1.5


RECORDER = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
folder.mkdir()
(folder / "arguments").write_text(" ".join(sys.argv[1:]))
def end(*_):
    (folder / "ended").write_text("cleanly")
    sys.exit(0)
signal.signal(signal.SIGINT, end)
(folder / "meta.json").write_text("{}")
time.sleep(60)
"""


def test_a_recorder_is_a_process_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    running = recording.start(["--log", "prover.log"], folder, (sys.executable, "-c", RECORDER))
    assert running.running
    assert (folder / "arguments").read_text() == f"-o {folder} --log prover.log"
    assert os.getsid(running._process.pid) != os.getsid(0)
    assert running.stop() == 0
    assert (folder / "ended").read_text() == "cleanly"


def test_a_recorder_that_cannot_start_says_why(tmp_path: Path) -> None:
    failing = (sys.executable, "-c", "import sys; sys.exit('gputrace: no such log')")
    with pytest.raises(InputError, match="the recorder ended at once: gputrace: no such log"):
        recording.start(["--log", "x"], tmp_path / "capture", failing)
