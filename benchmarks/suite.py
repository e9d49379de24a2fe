"""Times gputrace beside what one would otherwise type, and keeps the table and the plot of `docs/speed.md`.

    python -m benchmarks.suite                                 # the parts of `make bench`: a few minutes
    python -m benchmarks.suite --only ingest-1gb --rounds 5
    python -m benchmarks.suite --list

A part replaces its own rows in `benchmarks/figures.json`; the document is written from all of them. A missed goal is
shown, never an error: a timing that fails a build teaches people to rerun builds. The exit code is 1 where a command
failed.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import BYTES_PER_MEGABYTE, Contender, cached, gputrace, grep_awk, race, rg_count
from benchmarks.figures import Figures, Row
from benchmarks.inputs import SPARSE, log_of, month_of, samples_of

STREAMED = (
    "{python} -m benchmarks.make_log --megabytes {megabytes} --output /dev/stdout"
    " | {python} -m gputrace report - --json -"
)
# What a command has loaded when it begins its work. That the recorder needs neither polars nor altair, a test holds.
LOADED = {
    "what gputrace record loads": "gputrace.cli, gputrace.live.exporter_command, gputrace.sampler.recording",
    "what gputrace report loads to read": "gputrace.loading",
    "polars alone": "polars",
}
MONTH_ROWS, DAY_ROWS = 26_000_000, 864_000


@dataclass(frozen=True)
class Part:
    """One part of the suite; `usual` ones are run where none is named."""

    name: str
    what: str
    run: Callable[[int], list[Row]]
    usual: bool = False


def _goal(report: Contender, rival: Contender, most_ratio: float, most_mb: float) -> tuple[str, bool]:
    met = report.best_s <= most_ratio * rival.best_s and report.peak_mb < most_mb
    return f"at most {most_ratio:g} x grep and awk, under {most_mb:g} MB", met


def ingest(megabytes: float, most_ratio: float, interesting_every: int = 8) -> Callable[[int], list[Row]]:
    """A whole report of one log beside grep and awk, and beside what only finds the lines."""

    def run(rounds: int) -> list[Row]:
        log = log_of(megabytes, interesting_every)
        rival, limit, report = grep_awk(log), rg_count(log), gputrace("report", str(log), "--json", "-")
        race([rival, limit, report], rounds)
        goal, met = _goal(report, rival, most_ratio, 400)
        return [Row.of(rival, rival), Row.of(limit, rival), Row.of(report, rival, goal, met)]

    return run


def streamed(megabytes: float) -> Callable[[int], list[Row]]:
    """A log that is never on the disk; the generator takes a core, so that only the memory is compared."""

    def run(_rounds: int) -> list[Row]:
        script = STREAMED.format(python=sys.executable, megabytes=megabytes)
        report = Contender(
            f"{megabytes / 1e3:g} GB | gputrace report - --json -", ["bash", "-o", "pipefail", "-c", script]
        )
        report.run_once()
        return [Row.of(report, None, "under 480 MB", report.peak_mb < 480)]

    return run


def commands(megabytes: float) -> Callable[[int], list[Row]]:
    """The other commands on logs of this size."""

    def run(rounds: int) -> list[Row]:
        log, other = log_of(megabytes), log_of(megabytes, seed=2)
        rival = grep_awk(log)
        timed = [
            gputrace("what-if", str(log), "--json", "-"),
            gputrace("compare", str(log), str(other), "--json", "-"),
        ]
        race([rival, *timed], rounds)
        return [Row.of(rival, rival), *(Row.of(one, rival) for one in timed)]

    return run


def again(megabytes: float) -> Callable[[int], list[Row]]:
    """A log reported on again, and once more when a hundredth has been appended a moment ago."""

    def run(rounds: int) -> list[Row]:
        whole = log_of(megabytes)
        with tempfile.TemporaryDirectory(dir=whole.parent) as place:
            log, kept = Path(place) / whole.name, Path(place) / "cache"
            report = gputrace("report", str(log), "--json", "-")
            first, second, grown = (cached(report, kept, when) for when in ("first", "again", "grown by a hundredth"))
            for _ in range(rounds):
                with whole.open("rb") as source, log.open("wb") as copy:
                    most = int(megabytes * BYTES_PER_MEGABYTE * 0.99)
                    while copy.tell() < most and (data := source.read(min(1 << 24, most - copy.tell()))):
                        copy.write(data)
                    copy.flush()
                    first.run_once()
                    second.run_once()
                    copy.write(source.read())
                grown.run_once()
                report.run_once()
                shutil.rmtree(kept, ignore_errors=True)
        return [Row.of(one, None) for one in (report, first, second, grown)]

    return run


def samples(rows: int, gpus: int, most_s: float, most_mb: float) -> Callable[[int], list[Row]]:
    """Samples of 0.1 s alone."""

    def run(_rounds: int) -> list[Row]:
        report = gputrace("report", str(samples_of(rows, gpus)), "--json", "-")
        report.run_once()
        met = report.best_s < most_s and report.peak_mb < most_mb
        return [Row.of(report, None, f"under {most_s:g} s and {most_mb:g} MB", met)]

    return run


def month(calls: int, gpus: int, days: float, most_s: float, most_mb: float) -> Callable[[int], list[Row]]:
    """Samples of 0.1 s and the log of the calls that they show."""

    def run(_rounds: int) -> list[Row]:
        log, samples_file = month_of(calls, gpus, days)
        report = gputrace("report", str(log), str(samples_file), "--json", "-")
        report.run_once()
        met = report.best_s < most_s and report.peak_mb < most_mb
        return [Row.of(report, None, f"under {most_s:g} s and {most_mb:g} MB", met)]

    return run


def start_up(rounds: int) -> list[Row]:
    """What is paid before anything is read."""
    shown = gputrace("--help")
    loaded = [Contender(name, [sys.executable, "-c", f"import {modules}"]) for name, modules in LOADED.items()]
    race([shown, *loaded], max(5, rounds))
    return [Row.of(shown, None, "under 0.25 s", shown.best_s < 0.25), *(Row.of(one, None) for one in loaded)]


def growth(sizes_mb: tuple[float, ...]) -> Callable[[int], list[Row]]:
    """Time and memory over the size of the log."""

    def run(rounds: int) -> list[Row]:
        found = []
        for megabytes in sizes_mb:
            report = gputrace("report", str(log_of(megabytes)), "--json", "-")
            race([report], rounds)
            found.append(Row.of(report, None, megabytes=megabytes))
        return found

    return run


PARTS = (
    Part("start-up", "before anything is read", start_up, usual=True),
    Part("ingest-100mb", "100 MB, one line in eight of interest", ingest(100, 1.0), usual=True),
    Part("ingest-1gb", "1 GB, one line in eight of interest", ingest(1_000, 1.0)),
    Part("ingest-1gb-sparse", "1 GB, one line in a hundred of interest", ingest(1_000, 0.7, SPARSE)),
    Part("ingest-10gb", "10 GB through a pipe", streamed(10_000)),
    Part("commands", "other commands, logs of 100 MB", commands(100), usual=True),
    Part("again", "1 GB, reported on again and grown", again(1_000)),
    Part("samples-day", "a day of samples of one GPU", samples(DAY_ROWS, 1, 10, 2_000), usual=True),
    Part("samples-month", "a month of samples of one GPU", samples(MONTH_ROWS, 1, 60, 2_000)),
    Part("month-8", "a month of eight GPUs, samples and 300,000 calls", month(300_000, 8, 30, 180, 2_000)),
    Part("growth", "time and memory over the size", growth((10, 31.6, 100, 316, 1_000, 3_160, 10_000))),
)


def main() -> int:
    """Runs the parts asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=[part.name for part in PARTS], help="a part; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many rounds counts")
    parser.add_argument("--list", action="store_true", help="name the parts")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(f"{part.name:20}{part.what}{'' if part.usual else ' (only by name)'}" for part in PARTS))
        return 0
    figures, failed = Figures.kept(), False
    for part in PARTS:
        if part.name not in chosen.only if chosen.only else not part.usual:
            continue
        rows = part.run(chosen.rounds)
        failed |= any(row.failure for row in rows)
        figures.put(part.name, part.what, chosen.rounds, rows)
        print(figures.table(part.name), flush=True)
    figures.write()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
