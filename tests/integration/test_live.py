"""A live view of real captures: while they grow, and replayed to their end."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.headline import main_cause
from gputrace.live import panels
from gputrace.live.feed import Following, Replay
from gputrace.live.plain import frame
from gputrace.live.session import Session
from gputrace.live.state import Board
from tests.captures import diagnosis, docker_lines, folder, read

STEP_S = 4.0


class Hands:
    """A clock set by hand, in seconds."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def growing(name: str, into: Path, clock: Hands) -> Iterator[int]:
    """Writes a capture as it came: log lines by their arrival, readings by their time; cut anywhere, as writes are."""
    log = b"".join(b"%d %s\n" % (at, text.encode()) for _, at, text in docker_lines(name)).splitlines(keepends=True)
    rows = gzip.decompress((folder(name) / "nvml.csv.gz").read_bytes()).splitlines(keepends=True)
    at_column = rows[0].decode().strip().split(",").index("t_wall_ns")
    readings = [(int(row.split(b",")[at_column]), row) for row in rows[1:] if row.endswith(b"\n")]
    stamped = [(int(line.split(b" ", 1)[0]), line.split(b" ", 1)[1]) for line in log]
    into.mkdir()
    (into / "nvml.csv").write_bytes(rows[0])
    now_ns, left = readings[0][0], {"nvml.csv": b"", "prover.log": b""}
    last_ns = max(readings[-1][0], stamped[-1][0])
    while now_ns < last_ns:
        now_ns += round(STEP_S * 1e9)
        clock.at += STEP_S
        for target, timed in (("nvml.csv", readings), ("prover.log", stamped)):
            due = left[target] + b"".join(line for at, line in timed if at <= now_ns)
            timed[:] = [(at, line) for at, line in timed if at > now_ns]
            # The last line is torn in its middle; its rest comes with the next step.
            cut = len(due) - 7 if timed else len(due)
            left[target] = due[cut:] if cut > 0 else due
            with (into / target).open("ab") as file:
                file.write(due[: max(0, cut)])
        yield now_ns


def test_the_screen_follows_a_growing_capture(tmp_path: Path) -> None:
    name, clock = "pageable-heavy", Hands()
    whole = read(name)
    feed = Following([str(tmp_path / "capture")], 300.0, clock=clock)
    session = Session(feed, 300.0, monotonic=clock)
    shown_calls = open_ends = 0
    lag_s = []
    for written_ns in growing(name, tmp_path / "capture", clock):
        session.work()
        shown = session.shown()
        if shown.moment is None:
            continue
        lag_s.append((written_ns - shown.moment.now_ns) / 1e9)
        for worker in shown.moment.workers:
            if worker.call is None:
                continue
            mine = whole.calls.filter(
                (pl.col("worker") == worker.worker)
                & (pl.col("partition") == worker.partition)
                & (pl.col("job") == worker.job)
            )
            begun = mine["start_ns"].min()
            assert begun is not None and int(begun) <= shown.moment.now_ns + 50_000_000  # type: ignore[arg-type]
            ended = mine["end_ns"].max()
            # It had not ended, or the line that says so was torn just there.
            assert ended is None or int(ended) >= shown.moment.now_ns - 1_500_000_000  # type: ignore[arg-type]
            shown_calls += 1
            open_ends += worker.open_end
        assert shown.moment.calls_ended <= whole.calls.height
    assert shown_calls >= 15 and open_ends >= 5
    assert max(lag_s[:-3]) < 1.0
    session.work(at_once=True)
    assert session.judgement is not None and session.judgement.cause == "pageable-h2d"
    assert "main cause: pageable-h2d" in frame(session.shown())
    feed.close()


def test_only_the_window_is_kept(tmp_path: Path) -> None:
    name, clock = "pageable-heavy", Hands()
    feed = Following([str(tmp_path / "capture")], 20.0, clock=clock)
    size, kept = [], []
    for _ in growing(name, tmp_path / "capture", clock):
        trace = feed.load()
        kept.append(feed.kept_bytes)
        size.append(sum(path.stat().st_size for path in (tmp_path / "capture").iterdir()))
        if trace is None or trace.samples.is_empty() or trace.calls.is_empty():
            continue
        board = Board(trace)
        span_s = (int(trace.samples["end_ns"].max()) - int(trace.samples["start_ns"].min())) / 1e9  # type: ignore[arg-type]
        assert span_s <= 20.0 * 1.3 + 0.2
        assert board.end_ns - int(trace.calls["end_ns"].fill_null(board.end_ns).min()) <= 27e9  # type: ignore[arg-type]
    assert size[-1] > 2 * max(kept[-5:])
    assert feed.load() is None
    feed.close()


@pytest.mark.parametrize("name", ["pageable-heavy", "pinned-heavy"])
def test_a_replay_ends_with_the_cause_of_the_report(name: str) -> None:
    clock = Hands()
    session = Session(Replay([str(folder(name))]), 300.0, speed=20.0, monotonic=clock)
    while session.clock is None or not session.clock.ended:
        session.work()
        clock.at += 1.5
    session.work()
    found = diagnosis(name)
    assert session.judgement is not None and session.judgement.at_ns == session.now_ns
    assert session.judgement.cause == main_cause(found.gaps.by_cause, found.hypotheses)
    assert session.diagnosis is not None and found.gaps.total_s is not None
    assert session.diagnosis.gaps.total_s == pytest.approx(found.gaps.total_s, rel=0.01)
    kinds = [finding.kind for finding in session.findings.entries]
    assert kinds.count("cause") >= 1 and kinds.count("regime") >= 1
    long_gaps = [gap for gap in found.gaps.list if gap.duration_ms >= 2000]
    assert len(long_gaps) * 0.8 <= kinds.count("gap") <= len(long_gaps) * 1.2 + 1
    times = [finding.at_ns for finding in session.findings.entries]
    assert times == sorted(times)


def test_going_back_takes_back_what_was_said() -> None:
    clock = Hands()
    session = Session(Replay([str(folder("pinned-heavy"))]), 300.0, start_s=90.0, paused=True, monotonic=clock)
    session.work()
    assert session.judgement is not None and session.findings.entries
    session.seek(-40.0)
    shown = session.shown()
    assert shown.judgement is None and shown.moment is not None
    assert all(finding.at_ns <= shown.moment.now_ns for finding in shown.findings)
    clock.at += 1.0
    session.work()
    assert session.judgement is not None and session.judgement.at_ns == session.now_ns
    entries = session.findings.entries
    assert len({(entry.at_ns, entry.text) for entry in entries}) == len(entries)
    assert [entry.what for entry in entries if entry.kind == "cause"] == ["pinned-alloc-stall"]


def test_a_judgement_that_takes_long_is_shown_as_such() -> None:
    session = Session(Replay([str(folder("pageable-heavy"))]), paused=True, start_s=40.0, monotonic=Hands())
    session.work()
    shown = session.shown()
    assert panels.verdict_title(shown) == "Verdict on the last 5 min, just now"
    assert shown.moment is not None
    later = panels.Shown("x", "following", 300.0, shown.moment, judgement=shown.judgement, judging_s=7.0, absolute=True)
    assert panels.verdict_title(later).endswith("just now, the next has taken 7.0 s so far")


def test_many_gpus_have_a_line_each() -> None:
    board = Board(read("pageable-heavy"))
    moment = board.at(board.start_ns + 40_000_000_000)
    gpus = tuple(replace(moment.gpus[0], gpu=number) for number in range(8))
    shown = panels.Shown("x", "following", 300.0, replace(moment, gpus=gpus))
    text = panels.gpus(shown, 80).plain.split("\n")
    assert [line[:7] for line in text] == [f"GPU {number}  " for number in range(8)]
    assert max(map(len, text)) <= 80 and all(line.endswith("ccCcccCcCccC.cccccCc"[-14:]) for line in text)
