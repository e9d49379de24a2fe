"""Two captures of one GPU each, made into one capture of a host with two: one engine, one epoch, mixed lines."""

import csv
import gzip
import io
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gputrace.loading import load
from tests.captures import docker_lines, folder, log_and_trace

_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def _epoch_ns(name: str) -> int:
    offset_s = load([log_and_trace(name)[0]]).clock.offset_s
    assert offset_s is not None
    return round(offset_s * 1e9)


def _on_gpu_1(text: str, shift_ns: int, workers: int) -> str:
    """A line of the second capture as the second GPU's workers of the first capture's engine would print it."""

    def later(found: re.Match[str]) -> str:
        stamp = datetime.fromisoformat(found[0].replace("Z", "+00:00")) + timedelta(microseconds=shift_ns // 1000)
        return stamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    colour = r"((?:\x1b\[[0-9;]*m)*)"
    text = _UTC.sub(later, text)
    text = re.sub(r"\bworker=(\d+)", lambda m: f"worker={int(m[1]) + workers}", text)
    text = re.sub(rf"worker_id{colour}={colour}(\d+)", lambda m: f"worker_id{m[1]}={m[2]}{int(m[3]) + workers}", text)
    text = re.sub(rf"(?<!_)gpu{colour}={colour}0\b", lambda m: f"gpu{m[1]}={m[2]}1", text)
    return text.replace(" on gpu 0", " on gpu 1")


def write_two_gpus(first: str, second: str, into: Path, streams: tuple[str, ...] = ("stdout", "stderr")) -> list[str]:
    """Writes `prover.log` and `nvml.csv`; the first capture's calls are on GPU 0, the second's on GPU 1."""
    shift_ns = _epoch_ns(first) - _epoch_ns(second)
    workers = 1 + max(int(w) for _, _, text in docker_lines(first) for w in re.findall(r"\bworker=(\d+)", text))
    lines = [(at, text) for stream, at, text in docker_lines(first) if stream in streams]
    lines += [
        (at + shift_ns, _on_gpu_1(text, shift_ns, workers))
        for stream, at, text in docker_lines(second)
        if stream in streams
    ]
    log, trace = into / "prover.log", into / "nvml.csv"
    log.write_text("".join(f"{text}\n" for _, text in sorted(lines, key=lambda line: line[0])))
    with trace.open("w", newline="") as out:
        writer: csv.DictWriter[str] | None = None
        for gpu, name in enumerate((first, second)):
            moved_ns = gpu * shift_ns
            text = gzip.decompress((folder(name) / "nvml.csv.gz").read_bytes()).decode()
            reader = csv.DictReader(io.StringIO(text))
            if writer is None:
                writer = csv.DictWriter(out, ["gpu", *(reader.fieldnames or [])])
                writer.writeheader()
            for row in reader:
                row["t_wall_ns"] = str(int(row["t_wall_ns"]) + moved_ns)
                row["cnt_ts_us"] = str(int(row["cnt_ts_us"]) + moved_ns // 1000)
                writer.writerow({"gpu": gpu, **row})
    return [str(log), str(trace)]
