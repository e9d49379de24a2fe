"""What the engine says about each pass of a worker: picked up, started, returned, finished.

TIMELINE (stderr) and tracing (stdout) tell the same story in two voices; either may be missing.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from gputrace.rebuild.clock import Epoch, written_ns
from gputrace.rebuild.columns import Bools, Floats, Ints, first_known, floats, ints, rows_at
from gputrace.rebuild.pairing import nth_keys, places
from gputrace.rebuild.sequence import Sequence

NEVER = 1 << 62
# By how much times of two accounts of one pass may contradict each other.
_SAME_PASS_MS = 20.0

# One worker's pass over one partition. Orders are positions in the log; times are ns, null where unknown.
ATTEMPTS = pl.Schema(
    {
        "worker": pl.Int32(),
        "job": pl.String(),
        # Stands for the job where jobs are only compared.
        "job_number": pl.Int64(),
        "partition": pl.Int32(),
        "restart": pl.UInt16(),
        "gpu": pl.Int32(),
        "kind": pl.String(),
        "pickup_ns": pl.Int64(),
        "start_order": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_order": pl.Int64(),
        "next_pickup_order": pl.Int64(),
        "finish_ns": pl.Int64(),
        "spawn_to_enter_ms": pl.Int64(),
        "prove_start_ms": pl.Int64(),
        "spawned_ns": pl.Int64(),
        "gpu_ms": pl.Int64(),
        "line": pl.UInt32(),
        "source": pl.UInt16(),
    }
)
# What a line may name beside worker and partition.
_NAMES = ("job", "job_number", "gpu", "kind")
_PASS = ["worker", "job_number", "partition"]


@dataclass(frozen=True)
class Attempts:
    """Attempts, a row each with the columns of ATTEMPTS: by the position of their start, those without one last."""

    frame: pl.DataFrame

    def __len__(self) -> int:
        return self.frame.height

    def figure(self, name: str) -> Floats:
        """A column of numbers, NaN where unknown."""
        return floats(self.frame[name])

    @cached_property
    def closed_order(self) -> Ints:
        """The call's block ends before this position: the proof is finished, or its worker took the next one."""
        ends = self.frame.select(pl.min_horizontal("end_order", "next_pickup_order").fill_null(NEVER))
        return ints(ends.to_series())

    @cached_property
    def entry_ns(self) -> Floats:
        """Entry into the C function: forward from GPU_START, else backward from the return."""
        # TIMELINE is floored to 1 ms: half of it is the expected remainder.
        forward = self.figure("start_ns") + 0.5e6 + np.nan_to_num(self.figure("spawn_to_enter_ms")) * 1e6
        return first_known(forward, self.entry_backward_ns)

    @cached_property
    def entry_backward_ns(self) -> Floats:
        """Entry from the time of the return and its duration."""
        return self.figure("spawned_ns") - (self.figure("prove_start_ms") + 0.5) * 1e6


def collect_attempts(sequence: Sequence, epochs: dict[int, Epoch]) -> Attempts:
    """All attempts, by the position of their start (those without a TIMELINE start last, by time)."""
    spoken = _from_tracing(sequence)
    written = _from_timeline(sequence, epochs)
    other = _same_passes(written, spoken, epochs)
    told = rows_at(spoken, other)
    written = written.with_columns(
        told[name] for name in ("gpu", "kind", "spawn_to_enter_ms", "prove_start_ms", "spawned_ns")
    )
    left = np.setdiff1d(np.arange(spoken.height), other)
    frame = pl.concat([written, _by_time(spoken, left)]) if len(left) else written
    gpu_of = dict(sequence.of("worker_started", columns=("worker", "gpu")).iter_rows())
    if gpu_of:
        named = pl.col("worker").replace_strict(gpu_of, default=None, return_dtype=pl.Int32)
        frame = frame.with_columns(pl.coalesce("gpu", named).alias("gpu"))
    return Attempts(frame)


def _by_time(spoken: pl.DataFrame, left: Ints) -> pl.DataFrame:
    """The attempts that are left, by time; those of one time in the order in which their passes came first."""
    ranked = spoken.with_columns(pl.int_range(pl.len()).min().over(_PASS).alias("first_of_pass"))[left]
    return ranked.sort(pl.coalesce("spawned_ns", "pickup_ns", 0), "first_of_pass", maintain_order=True).drop(
        "first_of_pass"
    )


def _fit(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of ATTEMPTS: what is not known yet is null."""
    return frame.select_seq(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in ATTEMPTS.items()
    )


def _same_passes(written: pl.DataFrame, spoken: pl.DataFrame, epochs: dict[int, Epoch]) -> Ints:
    """For each attempt of TIMELINE the number of the tracing lines' attempt that is the same pass; -1 without one.

    Each takes the first of its worker, job and partition that time allows and no other took.
    """
    ours = written[[*_PASS, "restart", "start_ns"]].with_row_index("ours")
    theirs = spoken[[*_PASS, "spawned_ns", "pickup_ns"]].with_row_index("theirs")
    own_keys, other_keys = nth_keys(ours[_PASS], theirs[_PASS])
    other = places(other_keys, own_keys)
    tied = ours.hstack(rows_at(theirs[["theirs", "spawned_ns", "pickup_ns"]], other))
    wrong = (other >= 0) & ~_may_be_one(tied, epochs)
    if wrong.any():
        # Where time contradicts one pair of a pass, the others of that pass shift.
        disputed = tied.filter(pl.Series(wrong)).select(_PASS).unique()
        mine = ours.join(disputed, on=_PASS, how="semi", nulls_equal=True)
        waiting: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in theirs.join(disputed, on=_PASS, how="semi", nulls_equal=True).sort("theirs").to_dicts():
            waiting[tuple(row[key] for key in _PASS)].append(row)
        for row in mine.sort("ours").to_dicts():
            queue = waiting[tuple(row[key] for key in _PASS)]
            allowed = np.flatnonzero(_may_be_one(pl.DataFrame([row | their for their in queue], tied.schema), epochs))
            other[row["ours"]] = queue.pop(int(allowed[0]))["theirs"] if len(allowed) else -1
    return other


def _may_be_one(pairs: pl.DataFrame, epochs: dict[int, Epoch]) -> Bools:
    """Whether times allow that two accounts are of one pass: a log that begins or ends in the middle lacks some."""
    reach_ns = {restart: int((epoch.uncertainty_ms + _SAME_PASS_MS) * 1e6) for restart, epoch in epochs.items()}
    reach = pl.col("restart").cast(pl.Int64).replace_strict(reach_ns, default=None, return_dtype=pl.Int64)
    returned_before = pl.col("spawned_ns") < pl.col("start_ns") - reach
    begun_after = pl.col("pickup_ns") > pl.col("start_ns") + reach
    allowed = ~(returned_before.fill_null(False) | begun_after.fill_null(False))
    return pairs.select(allowed.alias("allowed"))["allowed"].to_numpy()


def _differs(*names: str) -> pl.Expr:
    """Whether any of the columns is another than in the row before; true of the first row."""
    first = pl.int_range(pl.len()) == 0
    return pl.any_horizontal(first, *(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names))


class _Passes:
    """Lines of workers, one worker after the other, cut where one is the first of a new pass."""

    def __init__(self, lines: pl.DataFrame, new: pl.Expr) -> None:
        begins = lines.select(new.alias("new"))["new"].to_numpy()
        self.lines = lines
        self.number = np.cumsum(begins) - 1
        self._first = np.flatnonzero(begins)
        self._last = np.append(self._first[1:], len(begins))[: len(self._first)] - 1

    @property
    def first(self) -> pl.DataFrame:
        """The first line of each."""
        return self.lines[self._first]

    @property
    def last(self) -> pl.DataFrame:
        """The last line of each."""
        return self.lines[self._last]

    def last_but(self, event: str) -> pl.DataFrame:
        """The last line of each that does not end with this event; else the one before that, null where none is."""
        place = self._last - (self.last["event"] == event).to_numpy()
        return rows_at(self.lines, np.where(place < self._first, -1, place))


def _from_timeline(sequence: Sequence, epochs: dict[int, Epoch]) -> pl.DataFrame:
    """Before: GPU_PICKUP, GPU_START and GPU_END. After: ATTEMPTS, those that started, in order of their first line."""
    columns = (
        "order", "event", "restart", "worker", "job", "job_number", "partition", "offset_ms", "gpu_ms", "line",
        "source",
    )  # fmt: skip
    marks = sequence.of("GPU_PICKUP", "GPU_START", "GPU_END", columns=columns).sort("order")
    marks = marks.with_columns(written_ns(marks, epochs).alias("at_ns"))
    begun = marks.filter(pl.col("event") != "GPU_END").sort("restart", "worker", maintain_order=True)
    is_start = pl.col("event") == "GPU_START"
    another = _differs("restart", "worker")
    passes = _Passes(begun, another | is_start.shift(1).fill_null(False) | _differs("job_number", "partition"))
    started = passes.last.with_columns(pl.when(is_start).then(pl.col("order", "at_ns")))
    following = passes.first.select("order", same=~another).shift(-1)
    attempts = passes.first.with_columns(
        pickup_ns=passes.last_but("GPU_START")["at_ns"],
        start_order=started["order"],
        start_ns=started["at_ns"],
        next_pickup_order=following.select(pl.when("same").then("order")).to_series(),
    ).sort("order")
    ends = marks.filter(pl.col("event") == "GPU_END")
    end = rows_at(ends[["order", "at_ns", "gpu_ms"]], _ends_of(attempts, ends))
    attempts = attempts.with_columns(end_order=end["order"], finish_ns=end["at_ns"], gpu_ms=end["gpu_ms"])
    return _fit(attempts.filter(pl.col("start_order").is_not_null()))


def _ends_of(attempts: pl.DataFrame, ends: pl.DataFrame) -> Ints:
    """For each attempt the number of the GPU_END that finishes it, or -1: first begun, first finished.

    An end whose partition nobody is at finishes a pass of its worker and job that names no partition.
    """
    keys = ["restart", *_PASS]
    ours, theirs = attempts[[*keys, "order"]], ends.select(*keys, pl.col("order").alias("end_order"))
    own_keys, end_keys = nth_keys(ours[keys], theirs[keys])
    ours, theirs = ours.with_row_index("ours"), theirs.with_row_index("theirs")
    tied = theirs.hstack(rows_at(ours[["ours", "order"]], places(own_keys, end_keys)))
    found = np.full(attempts.height, -1)
    # An end before its attempt began, or without one, is another's.
    wrong = tied.filter(pl.col("order").is_null() | (pl.col("order") > pl.col("end_order")))
    if wrong.height:
        work = ["restart", "worker", "job_number"]
        disputed = wrong.select(work).unique()
        for number, end in _first_in_first_out(
            ours.join(disputed, on=work, how="semi", nulls_equal=True),
            theirs.join(disputed, on=work, how="semi", nulls_equal=True),
        ):
            found[number] = end
        tied = tied.join(disputed, on=work, how="anti", nulls_equal=True)
    found[ints(tied["ours"])] = ints(tied["theirs"])
    return found


def _first_in_first_out(ours: pl.DataFrame, theirs: pl.DataFrame) -> list[tuple[int, int]]:
    """Attempts and their ends by number, found line by line."""
    keys = ("restart", *_PASS)
    begun = [(row["order"], False, row["ours"], *(row[key] for key in keys)) for row in ours.to_dicts()]
    ended = [(row["end_order"], True, row["theirs"], *(row[key] for key in keys)) for row in theirs.to_dicts()]
    unfinished: dict[tuple[object, ...], list[int]] = defaultdict(list)
    found = []
    for _, is_end, number, restart, worker, job, partition in sorted(begun + ended, key=lambda line: line[0]):
        queue = unfinished[restart, worker, job, partition]
        if not is_end:
            queue.append(number)
        elif queue or (queue := unfinished[restart, worker, job, None]):
            found.append((queue.pop(0), number))
    return found


def _from_tracing(sequence: Sequence) -> pl.DataFrame:
    """Before: the lines around a call of the C++ function. After: ATTEMPTS, in order of their first line."""
    columns = (
        "order", "event", "worker", "job", "job_number", "partition", "gpu", "proof_kind", "log_ns",
        "spawn_to_enter_ms", "prove_start_ms", "line", "source",
    )  # fmt: skip
    marks = sequence.of("hot_path", "prove_start_spawned", "prove_start_returned", columns=columns)
    marks = marks.rename({"proof_kind": "kind"})
    returned = pl.col("event") == "prove_start_returned"
    # The log may begin in the middle: the return names the job, the line before it does not.
    begun = marks.filter(~returned).sort("worker", maintain_order=True)
    passes = _Passes(begun, _differs("worker") | (pl.col("event") == "hot_path") | _differs("partition"))
    spawned = pl.col("event") == "prove_start_spawned"
    done = passes.last.with_columns(pl.when(spawned).then(pl.col("spawn_to_enter_ms", "prove_start_ms", "log_ns")))
    attempts = passes.first.with_columns(
        pl.when(~spawned).then(pl.col("job", "job_number", "gpu", "kind")),
        done["spawn_to_enter_ms"],
        done["prove_start_ms"],
        pl.when(~spawned).then("log_ns").alias("pickup_ns"),
        done["log_ns"].alias("spawned_ns"),
    ).sort("order")
    nameless = attempts.filter(pl.col("job").is_null()).select("worker", "partition", pl.col("order").alias("began"))
    if nameless.height:
        attempts = attempts.join(
            _named_by_returns(marks.filter(returned), passes, nameless), left_on="order", right_on="began", how="left"
        ).with_columns(pl.coalesce(f"{name}_named", name).alias(name) for name in _NAMES)
    return _fit(attempts)


def _named_by_returns(returns: pl.DataFrame, passes: _Passes, nameless: pl.DataFrame) -> pl.DataFrame:
    """Job, GPU and kind of attempts whose first line names no job: as the first return that does, else the last."""
    latest = passes.lines.select("order", "worker", began=passes.first["order"].gather(passes.number))
    lines = pl.concat([returns.select("order", "worker"), latest], how="diagonal").sort("order")
    lines = lines.with_columns(pl.col("began").forward_fill().over("worker"))
    told = returns.join(lines.select("order", "began"), on="order")
    told = told.join(nameless, on=["worker", "partition", "began"], how="semi", nulls_equal=True)
    # Returns that name no job may follow one another; the first with a job ends that.
    jobless = pl.col("job").is_null()
    until = (~jobless).cast(pl.Int64).cum_sum().over("began") - (~jobless).cast(pl.Int64)
    return (
        told.sort("order")
        .filter(until == 0)
        .group_by("began")
        .agg(pl.col(name).last().alias(f"{name}_named") for name in _NAMES)
    )


def failed_partitions(sequence: Sequence) -> set[tuple[str | None, int | None]]:
    """Job and partition of every error line that names them."""
    errors = sequence.of("error", columns=("job", "partition")).filter(pl.col("job").is_not_null())
    return set(errors.iter_rows())
