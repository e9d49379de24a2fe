"""Makes a cuzk prover log of a given size.

A parser is measured fairly only on a log that is mostly *not* about proving, that never says the same thing
twice, and whose proving lines fit together: a log made by repeating one block can be cached or skipped, and
one that breaks the pipeline's rules stops the rebuild early. So the lines of interest come from a simulated
prover (one GPU, two workers handing over one mutex, a bounded pool of syntheses) and keep the real one's
order and sums; between them stand a daemon's ordinary lines.
"""

import argparse
import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.log_lines import ENGINE_STARTED, ORDINARY_LINES, WORKER_STARTED, as_text, partition_templates

EPOCH_US = 1_773_425_462_104_311  # wall time of the engine's start, offset 0 of the TIMELINE records
DAEMON_START_US = -2_000_000  # against the engine's start, as all other *_us and *_ms instants here
BYTES_PER_MEGABYTE = 1_000_000
LINES_PER_BLOCK = 8_000
PARTITIONS_PER_JOB = 10
SYNTHESES_AT_ONCE = 9
PARTITIONS_IN_MEMORY = 14  # the memory budget: a synthesis starts only once an older partition is released
WORKERS = 2


class Mark(NamedTuple):
    """A line of interest. The ordinal keeps lines of the same instant in the order they were made."""

    at_us: int
    ordinal: int
    is_tracing: bool
    text: str


@dataclass(frozen=True)
class Plan:
    """What one GPU is given to do: a job every `job_every_ms` from `first_job_ms` on; 0: all the time."""

    gpu: int = 0
    first_job_ms: int = 0
    job_every_ms: int = 0

    def earliest_ms(self, number: int) -> int:
        """When the partition of this number can be synthesised at the earliest."""
        return self.first_job_ms + number // PARTITIONS_PER_JOB * self.job_every_ms


@dataclass
class Work:
    """When one GPU copied and computed: edges of the stretches in ms, begin and end in turn, in order of time."""

    copies_ms: list[int] = field(default_factory=list)
    kernels_ms: list[int] = field(default_factory=list)


class Prover:
    """One GPU and its workers, in whole milliseconds; partitions are proved in the order they are queued."""

    def __init__(self, rng: random.Random, gpu: int = 0) -> None:
        self.work = Work()
        self._first_worker = gpu * WORKERS
        self._between = rng.randint
        self._worker_free_ms = [0] * WORKERS
        self._last_entry_ms = 0
        self._mutex_free_ms = 0
        self._finalizer_free_ms = 0

    def load_at(self, instant_ms: int) -> float:
        """How much the host's memory is fought over: 1 when calm; rises and falls over twenty minutes."""
        return 1.0 + 0.9 * math.sin(math.pi * instant_ms / 1_200_000) ** 2

    def prove(self, queued_ms: int) -> tuple[dict[str, int], dict[str, str | int]]:
        """The instants of one partition on the GPU, and the values printed about it."""
        between, load = self._between, self.load_at(queued_ms)
        worker = min(range(WORKERS), key=self._worker_free_ms.__getitem__)
        # 40 ms after the last entry, the last call has asked for the mutex: it goes in the order of entry.
        pickup = max(queued_ms, self._worker_free_ms[worker], self._last_entry_ms + 40)
        hot_path, spawn, split = between(0, 2), between(0, 3), between(8, 27)
        gpu_start = pickup + hot_path
        entry = gpu_start + spawn
        setup = split + between(0, 1)
        pre_lock = setup + between(0, 2)
        prep_end = entry + setup + (prep := int(between(700, 1300) * load))
        b_g2_end = prep_end + (b_g2 := int(between(900, 1500) * load))
        lock = max(entry + pre_lock, self._mutex_free_ms)
        mutex_wait = lock - entry - pre_lock

        alloc, copy, coset = between(0, 3), int(between(420, 560) * load**1.5), between(31, 36)
        init, msm, dtor = between(0, 1), between(294, 330), between(0, 1)
        ntt = alloc + copy + coset + init + msm + dtor
        ntt_end = lock + ntt
        barrier_end = max(ntt_end, prep_end)
        batch_end = barrier_end + (batch := between(34, 60))
        tail_end = batch_end + (tail := between(130, 210))
        unlock = tail_end + between(2, 6)

        leave = unlock + int(between(90, 160) * load)
        returned = leave + between(0, 4)
        # Finalizers give their results one after another: the job tracker has one lock.
        finished = max(b_g2_end, returned, self._finalizer_free_ms) + between(0, 3)
        trim, dealloc = between(0, 25), between(28, 60)
        self._worker_free_ms[worker] = returned
        self._last_entry_ms = entry
        self._mutex_free_ms = unlock
        self._finalizer_free_ms = finished + trim + 1
        copied = lock + alloc + copy + coset
        self.work.copies_ms.extend((lock + alloc, copied))
        self.work.kernels_ms.extend((copied + init, ntt_end - dtor, barrier_end, tail_end))

        instants = {
            "pickup": pickup,
            "gpu_start": gpu_start,
            "split": entry + setup,
            "lock": lock,
            "prep_end": prep_end,
            "b_g2_end": b_g2_end,
            "ntt_end": ntt_end,
            "barrier_end": barrier_end,
            "batch_end": batch_end,
            "tail_end": tail_end,
            "unlock": unlock,
            "leave": leave,
            "returned": returned,
            "finished": finished,
            "trimmed": finished + trim,
            "deallocated": finished + trim + dealloc,
        }
        values: dict[str, str | int] = {
            "worker": self._first_worker + worker,
            "hot_path_ms": hot_path,
            "spawn_ms": spawn,
            "split_ms": split,
            "setup_ms": setup,
            "pre_lock_ms": pre_lock,
            "mutex_wait_ms": mutex_wait,
            "prep_ms": prep,
            "b_g2_ms": b_g2,
            "alloc_ms": alloc,
            "copy_ms": copy,
            "coset_ms": coset,
            "init_ms": init,
            "msm_ms": msm,
            "dtor_ms": dtor,
            "ntt_ms": ntt,
            "barrier_ms": barrier_end - ntt_end,
            "batch_ms": batch,
            "tail_ms": tail,
            "gpu_total_ms": tail_end - lock,
            "held_ms": unlock - lock,
            "start_fn_ms": unlock - entry,
            "prove_start_ms": leave - entry,
            "spawn_wall_ms": returned - gpu_start,
            "pre_prove_ms": returned - pickup,
            "gpu_ms": finished - entry,
            "trim_ms": trim,
            "finish_ms": finished - returned,
            "finalizer_ms": finished + trim - returned,
            "dealloc_ms": dealloc,
        }
        return instants, values


def start_marks(gpus: int, *, ansi: bool) -> Iterator[Mark]:
    """The engine's first lines."""
    yield Mark(0, 0, *as_text(ENGINE_STARTED, ansi=ansi))
    for worker in range(gpus * WORKERS):
        line = WORKER_STARTED.format(worker=worker, gpu=worker // WORKERS, place=worker % WORKERS)
        yield Mark(170 + 20 * worker, 1 + worker, *as_text(line, ansi=ansi))


def marks(rng: random.Random, *, ansi: bool, plan: Plan | None = None, prover: Prover | None = None) -> Iterator[Mark]:
    """The lines of one GPU's pipeline in the order of time, without end."""
    plan = plan or Plan()
    templates = partition_templates(ansi=ansi)
    prover, ordinals = prover or Prover(rng), count()
    synthesising: list[tuple[int, int, int]] = []  # a heap of (end, partition's number, duration)
    pending: list[Mark] = []  # a heap: calls overlap, so lines are not made in the order of time
    released_ms: list[int] = []
    proved_of_job: Counter[int] = Counter()

    def ids(number: int) -> dict[str, str | int]:
        job, partition = divmod(number, PARTITIONS_PER_JOB)
        return {"job": f"porep-{1000 + plan.gpu}-{4200 + job}", "partition": partition, "gpu": plan.gpu}

    def tell(instants_ms: dict[str, int], values: dict[str, str | int]) -> None:
        apart_us = rng.randint(0, 9)
        for template in templates:
            if (instant_ms := instants_ms.get(template.instant)) is not None:
                text = template.text.format_map(values | {"offset_ms": instant_ms})
                at_us = instant_ms * 1000 + template.offset_us + apart_us
                heapq.heappush(pending, Mark(at_us, next(ordinals), template.is_tracing, text))

    def synthesise(number: int, start_ms: int) -> None:
        synth_ms = int(rng.randint(7_800, 11_600) * prover.load_at(start_ms))
        heapq.heappush(synthesising, (start_ms + synth_ms + rng.randint(1, 9), number, synth_ms))
        tell({"synth_start": start_ms}, ids(number))

    for number in range(SYNTHESES_AT_ONCE):
        synthesise(number, plan.earliest_ms(number))
    for started in count(SYNTHESES_AT_ONCE):
        end_ms, number, synth_ms = heapq.heappop(synthesising)
        # All that is still to be told comes after the first synthesis to end.
        while pending and pending[0].at_us < end_ms * 1000:
            yield heapq.heappop(pending)
        instants_ms, values = prover.prove(end_ms)
        released_ms.append(instants_ms["returned"])
        proved_of_job[number // PARTITIONS_PER_JOB] += 1
        is_last = proved_of_job[number // PARTITIONS_PER_JOB] == PARTITIONS_PER_JOB
        more = ids(number) | {"synth_ms": synth_ms, "filled": int(is_last)}
        tell({"synth_end": end_ms} | instants_ms, more | values)
        must_be_released = started - PARTITIONS_IN_MEMORY
        room_ms = released_ms[must_be_released] if must_be_released >= 0 else 0
        synthesise(started, max(end_ms, room_ms, plan.earliest_ms(started)))


def endless_marks(*, seed: int, ansi: bool) -> Iterator[Mark]:
    """The lines of interest of an engine with one GPU that has always work."""
    return chain(start_marks(1, ansi=ansi), marks(random.Random(seed + 1), ansi=ansi))


def log_lines(told: Iterable[Mark], *, interesting_every: int, seed: int, ansi: bool) -> Iterator[str]:
    """The whole log: before each line of interest come the ordinary ones, evenly in time."""
    rng = random.Random(seed)
    ordinary = [as_text(line, ansi=ansi)[1].format for line in ORDINARY_LINES.strip("\n").splitlines()]
    dim, plain = ("\x1b[2m", "\x1b[0m") if ansi else ("", "")
    random_bits = rng.getrandbits
    serial = seed
    this_second, date = -1, ""

    def stamp(at_us: int) -> str:
        nonlocal this_second, date
        second, micros = divmod(EPOCH_US + at_us, 1_000_000)
        if second != this_second:
            this_second, date = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{dim}{date}.{micros:06d}Z{plain}"

    last_us = DAEMON_START_US
    for mark in told:
        gap_us = mark.at_us - last_us
        for step in range(1, interesting_every):
            bits = random_bits(52)
            serial += 1 + (bits >> 49)
            request_id = serial * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF  # as unique, but looks random
            line = ordinary[bits & 15](serial, request_id, bits >> 4 & 0xFFFF, bits >> 18 & 0xFFFF, bits >> 33 & 0xFFFF)
            yield stamp(last_us + gap_us * step // interesting_every) + line
        yield stamp(mark.at_us) + mark.text if mark.is_tracing else mark.text
        last_us = mark.at_us


def write_log(path: Path, *, megabytes: float, interesting_every: int = 8, seed: int = 1, ansi: bool = False) -> int:
    """Writes at most that many megabytes, to the last whole line, and returns the number of lines."""
    told = endless_marks(seed=seed, ansi=ansi)
    lines = log_lines(told, interesting_every=interesting_every, seed=seed, ansi=ansi)
    left, written = int(megabytes * BYTES_PER_MEGABYTE), 0
    with path.open("wb") as file:
        while left > 0:
            block = "".join(islice(lines, LINES_PER_BLOCK)).encode()
            left -= len(block)
            if left < 0:
                block = block[: block.rfind(b"\n", 0, left) + 1]
            file.write(block)
            written += block.count(b"\n")
    return written


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.make_log", description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=300, help="size of the log, in 10^6 bytes")
    parser.add_argument("--interesting-every", type=int, default=8, help="one line in so many is of interest")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same log")
    parser.add_argument("--ansi", action="store_true", help="colour the tracing lines, as the daemon does")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    chosen = parser.parse_args()
    lines = write_log(
        chosen.output,
        megabytes=chosen.megabytes,
        interesting_every=chosen.interesting_every,
        seed=chosen.seed,
        ansi=chosen.ansi,
    )
    print(f"{chosen.output}: {lines} lines, {chosen.output.stat().st_size / BYTES_PER_MEGABYTE:.1f} MB")


if __name__ == "__main__":
    main()
