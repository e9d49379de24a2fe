"""What becomes of the lines on their way into files: two streams, one descriptor, pipes that deliver late."""

import random
import re
from collections.abc import Iterable

from gputrace.simulate.text import Line

# Rust's eprintln! writes a TIMELINE record in nine pieces; the last is its newline.
_RECORD = re.compile(r"(TIMELINE,)(\d+)(,)([A-Z_]+)(,)(.*?)(,)((?:[a-z_]+=[^,=]*(?:,[a-z_]+=[^,=]*)*|monolithic)?)$")
_APART_NS = 50_000_000
FORMS = ("merged", "two-files", "stdout", "stderr", "cpp")


def delivered(lines: Iterable[Line], jitter_s: float, seed: int = 0) -> list[Line]:
    """Lines in order of arrival at a reader of two pipes: each up to `jitter_s` late, in order within a stream."""
    rng = random.Random(f"delivered {seed}")
    last: dict[str, int] = {}
    arrived = []
    for line in lines:
        at_ns = max(last.get(line.stream, 0), line.at_ns + int(rng.random() * jitter_s * 1e9))
        last[line.stream] = at_ns
        arrived.append(line._replace(at_ns=at_ns))
    return sorted(arrived, key=lambda line: line.at_ns)


def torn(lines: list[Line], share: float, seed: int = 0) -> list[Line]:
    """Lines of one descriptor in which about `share` of the TIMELINE records are torn by whole lines of others.

    A record is torn only where others write within 50 ms, and never by another Rust line on stderr, for which Rust
    has a lock. What comes back has the stream `merged` where text of both streams is in one line.
    """
    rng = random.Random(f"torn {seed}")
    result: list[Line] = []
    at = 0
    while at < len(lines):
        record = lines[at]
        at += 1
        found = _RECORD.match(record.text)
        foreign: list[Line] = []
        if found is not None and rng.random() < share:
            most = rng.choice((1, 1, 2))
            for line in lines[at : at + most]:
                if _holds_lock(line) or line.at_ns - record.at_ns > _APART_NS:
                    break
                foreign.append(line)
        if found is None or not foreign:
            result.append(record)
            continue
        at += len(foreign)
        pieces = found.groups()
        cuts = sorted(rng.sample(range(1, len(pieces) + 1), len(foreign)))
        begun = 0
        for cut, line in zip(cuts, foreign, strict=True):
            stream = line.stream if line.stream == record.stream else "merged"
            result.append(Line(line.at_ns, stream, "".join(pieces[begun:cut]) + line.text))
            begun = cut
        result.append(Line(foreign[-1].at_ns + 3000, record.stream, "".join(pieces[begun:])))
    return result


def _holds_lock(line: Line) -> bool:
    return line.stream == "stderr" and not line.text.startswith("CUZK_")


def as_files(lines: list[Line], form: str, tear_share: float = 0.0, seed: int = 0) -> dict[str, str]:
    """File names and texts of a log: merged, two-files, stdout, stderr or cpp (C++ lines only)."""
    if form == "merged":
        return {"prover.merged": _text(torn(lines, tear_share, seed) if tear_share else lines)}
    of = {stream: [line for line in lines if line.stream == stream] for stream in ("stdout", "stderr")}
    if form == "cpp":
        return {"prover.stderr": _text(line for line in of["stderr"] if line.text.startswith("CUZK_"))}
    if tear_share:
        of["stderr"] = torn(of["stderr"], tear_share, seed)
    chosen = ("stdout", "stderr") if form == "two-files" else (form,)
    return {f"prover.{stream}": _text(of[stream]) for stream in chosen}


def _text(lines: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in lines)
