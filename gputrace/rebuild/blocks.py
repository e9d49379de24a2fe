"""The C++ lines of one hold of the GPU mutex, as blocks.

Lines under the mutex form clean consecutive blocks per GPU, from `mutex_acquired` to `mutex_released`. Builds of
before 2026-03-13 print neither: there a block begins with the first GPU line and ends with `tail_msm`.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from gputrace.rebuild.columns import Bools, Floats, Ints, first_known, floats, ints, nothing
from gputrace.rebuild.separate import interleaved, separate
from gputrace.rebuild.sequence import FIGURES_OF, Sequence
from gputrace.rebuild.timebounds import TimeBounds

NTT_H_PARTS = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")
UNDER_MUTEX = (
    "mutex_acquired",
    "d_a_allocated",
    "pool_threshold_set",
    "ntt_h",
    "ntt_msm_h",
    "barrier_wait",
    "batch_add",
    "tail_msm",
    "mutex_released",
)
_NEEDED = ("mutex_acquired", "ntt_h", "ntt_msm_h", "barrier_wait", "batch_add", "tail_msm", "mutex_released")
# Several circuits print one ntt_h each; allocations come as they are needed.
_MAY_REPEAT = ("ntt_h", "d_a_allocated", "pool_threshold_set")
# A block grows in this order; a line that would go back begins a new block.
RANK = {name: rank for rank, name in enumerate(UNDER_MUTEX)}
_FIGURES = tuple(key for own in FIGURES_OF.values() for key in own)


class Lines(NamedTuple):
    """Where each block has its line of one event: position in the log, line in its input, the input, its arrival."""

    order: Floats
    line: Floats
    source: Floats
    arrival_ns: Floats

    @classmethod
    def none(cls, count: int) -> "Lines":
        """No block has such a line."""
        return cls(nothing(count), nothing(count), nothing(count), nothing(count))


class Circuits(NamedTuple):
    """What ntt_h lines print, an entry a line: the block's number, which line of that block it is, and its parts."""

    block: Ints
    nth: Ints
    ms: dict[str, Floats]


@dataclass(frozen=True)
class Blocks:
    """Holds of the GPU mutex, an entry each, in order of their locks.

    `lines` has the events that any block prints, `ms` the figures. `missing` says, in words, the kinds of lines that
    others of the log have and a block has not; null where it is complete. `source` is the input of the first line.
    """

    restart: Ints
    first_order: Ints
    last_order: Ints
    source: Ints
    lines: dict[str, Lines]
    ms: dict[str, Floats]
    circuits: Circuits
    warmup: Bools

    def __len__(self) -> int:
        return len(self.restart)

    @cached_property
    def missing(self) -> pl.Series:
        """See above."""
        lacks = [
            pl.when(pl.Series(np.isnan(self.lines[event].order))).then(pl.lit(event))
            for event in _NEEDED
            if event in self.lines and not np.isnan(self.lines[event].order).all()
        ]
        said = pl.select(pl.concat_str(lacks, separator=", ", ignore_nulls=True)) if lacks else None
        if said is None:
            return pl.Series([None] * len(self), dtype=pl.String)
        return said.to_series().replace("", None)

    @cached_property
    def order_locked(self) -> Ints:
        """Position of the lock's line, or of the first line after it."""
        return first_known(self.order("mutex_acquired"), self.first_order.astype(np.float64)).astype(np.int64)

    @cached_property
    def order_unlocked(self) -> Ints:
        """Position of the unlock's line, or of the last line before it."""
        return first_known(self.order("mutex_released"), self.last_order.astype(np.float64)).astype(np.int64)

    @cached_property
    def held_ms(self) -> Floats:
        """Mutex held; in builds that do not print it, the GPU thread's total, which is a few ms less."""
        return first_known(self.figure("mutex_held_ms"), self.figure("gpu_total_ms"))

    @cached_property
    def before_lock_ms(self) -> Floats:
        """Entry to lock, where printed; where only the lock's line is lost, what the last line's two figures leave."""
        left = np.maximum(0.0, self.figure("total_start_fn_ms") - self.figure("mutex_held_ms") - 1.0)
        return first_known(self.figure("pre_lock_cpu_ms") + self.figure("mutex_wait_ms"), left)

    @cached_property
    def waited(self) -> Bools:
        """Whether the call had to wait for the mutex."""
        return np.nan_to_num(self.figure("mutex_wait_ms")) > 1

    @cached_property
    def latest_arrival_ns(self) -> Floats:
        """When the last of a block's stamped lines came."""
        return np.asarray(np.fmax.reduce([nothing(len(self)), *(own.arrival_ns for own in self.lines.values())]))

    def figure(self, key: str) -> Floats:
        """A figure that blocks print, ms."""
        return self.ms[key] if key in self.ms else nothing(len(self))

    def event_lines(self, event: str) -> Lines:
        """Where blocks have an event's line."""
        return self.lines[event] if event in self.lines else Lines.none(len(self))

    def order(self, event: str) -> Floats:
        """Position of an event's line."""
        return self.event_lines(event).order

    @cached_property
    def circuit_count(self) -> Ints:
        """How many ntt_h lines each block has."""
        return np.bincount(self.circuits.block, minlength=len(self))

    def circuit_part(self, nth: int, part: str) -> Floats:
        """One part of every block's ntt_h line of this number, ms."""
        values = nothing(len(self))
        if part in self.circuits.ms:
            own = self.circuits.nth == nth
            values[self.circuits.block[own]] = self.circuits.ms[part][own]
        return values

    def circuit_ms(self, part: str) -> Floats:
        """One part of ntt_h, summed over a block's circuits."""
        if part not in self.circuits.ms:
            return np.zeros(len(self))
        known_ms = np.nan_to_num(self.circuits.ms[part])
        return np.bincount(self.circuits.block, known_ms, minlength=len(self)).astype(np.float64)

    @classmethod
    def of(cls, blocks: "Rows[Block]") -> "Blocks":
        """Blocks that were put together line by line."""
        lines = {event: Lines.none(len(blocks)) for event in RANK if any(event in block.lines for block in blocks)}
        keys = [key for key in _FIGURES if any(key in block.ms for block in blocks)]
        told = [(number, nth, own) for number, block in enumerate(blocks) for nth, own in enumerate(block.circuits)]
        for number, block in enumerate(blocks):
            for event, line in block.lines.items():
                own = lines[event]
                own.line[number], own.source[number] = line, block.sources.get(event, block.source)
                own.order[number] = block.orders.get(event, np.nan)
                own.arrival_ns[number] = block.arrivals.get(event, np.nan)
        edges = [(block.restart, block.first_order, block.last_order, block.source) for block in blocks]
        restart, first_order, last_order, source = np.array(edges, dtype=np.int64).reshape(-1, 4).T
        return cls(
            restart,
            first_order,
            last_order,
            source,
            lines,
            {key: np.array([block.ms.get(key, np.nan) for block in blocks], dtype=np.float64) for key in keys},
            Circuits(
                np.array([number for number, _, _ in told], dtype=np.int64),
                np.array([nth for _, nth, _ in told], dtype=np.int64),
                {part: np.array([own.get(part, np.nan) for _, _, own in told]) for part in NTT_H_PARTS},
            ),
            np.array([block.warmup for block in blocks], dtype=bool),
        )


@dataclass(slots=True)
class Block:
    """One hold of the GPU mutex, put together line by line.

    `ms` has every figure printed in it, `orders`, `lines` and `arrivals` the line of each event. `source` is the input
    of its first line, `sources` that of events whose line is in another (a log was rotated meanwhile).
    """

    restart: int
    first_order: int
    last_order: int
    source: int
    orders: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    ms: dict[str, int] = field(default_factory=dict)
    circuits: list[dict[str, int]] = field(default_factory=list)
    warmup: bool = False

    def put_source(self, event: str, source: int) -> None:
        """Keeps the input of an event's line."""
        if source != self.source:
            self.sources[event] = source
        else:
            self.sources.pop(event, None)

    @property
    def order_locked(self) -> int:
        """Position of the lock's line, or of the first line after it."""
        return self.orders.get("mutex_acquired", self.first_order)


@dataclass(frozen=True)
class MutexLine:
    """One line printed under the GPU mutex. `ms` has its figures; `circuit` those of an ntt_h line."""

    event: str
    order: int
    restart: int
    source: int
    line: int
    arrival_ns: int | None
    gpu_tid: int
    ms: dict[str, int]
    circuit: dict[str, int] | None = None


def collect_blocks(sequence: Sequence, bounds: TimeBounds) -> Blocks:
    """All blocks in order of their locks. One is complete when it has every kind of line that this log has at all.

    Old builds print no mutex lines, and a log may lack one kind altogether: their blocks are not all incomplete.
    `bounds` says when a position of the log was written; it is needed where several GPUs' blocks interleave.
    """
    mixed = interleaved(sequence)
    clean = None if mixed else _clean_blocks(sequence)
    if clean is not None:
        return clean
    lines = _mutex_lines(sequence)
    groups = separate(lines, bounds) if mixed else _consecutive(lines)
    return Blocks.of(sorted((_block_of(group) for group in groups), key=lambda block: block.order_locked))


_HEAD = ("event", "order", "restart", "source", "line", "arrival_ns", "gpu_tid")


def _clean_blocks(sequence: Sequence) -> Blocks | None:
    """The blocks where each hold's lines follow one another in order, from lock to unlock; None where they do not.

    What `_consecutive` and `_block_of` give then, without an object a line.
    """
    marks = sequence.of(*RANK, columns=_HEAD)
    if marks.is_empty() or (marks["gpu_tid"].fill_null(0) != 0).any():
        return None
    rank = marks["event"].replace_strict(RANK, return_dtype=pl.Int64).to_numpy()
    restart = ints(marks["restart"])
    locks = rank == RANK["mutex_acquired"]
    restarted = np.diff(restart, prepend=restart[:1]) != 0
    begins = locks | restarted
    begins[0] = True
    step = np.diff(rank, prepend=rank[:1])
    again = np.isin(rank, [RANK[event] for event in _MAY_REPEAT])
    if (~begins & ((step < 0) | ((step == 0) & ~again))).any():
        return None
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    released = np.zeros(len(first), dtype=bool)
    released[group[rank == RANK["mutex_released"]]] = True
    if (locks[first[:-1]] & ~released[:-1] & ~restarted[first[1:]]).any():
        # A lock while another hold is open.
        return None
    last = np.append(first[1:], len(rank)) - 1
    warmup = np.zeros(len(first), dtype=bool)
    warmup[group[rank == RANK["pool_threshold_set"]]] = True
    lines, ms = {}, dict[str, Floats]()
    circuits = Circuits(np.array([], dtype=np.int64), np.array([], dtype=np.int64), {})
    for event, number in RANK.items():
        own = np.flatnonzero(rank == number)
        if not len(own):
            continue
        owners, told = group[own], sequence.figures_of(event)
        lines[event] = _lines_of(marks[own], owners, len(first))
        if event == "ntt_h":
            nth = np.arange(len(owners)) - np.searchsorted(owners, owners)
            circuits = Circuits(owners, nth, {part: floats(told[part]) for part in NTT_H_PARTS if part in told.columns})
            continue
        for key in (key for key in _FIGURES if key in told.columns):
            known = told[key].is_not_null().to_numpy()
            ms.setdefault(key, nothing(len(first)))[owners[known]] = told[key].drop_nulls().to_numpy()
    orders, sources = ints(marks["order"]), ints(marks["source"])
    return Blocks(restart[first], orders[first], orders[last], sources[first], lines, ms, circuits, warmup)


def _lines_of(marks: pl.DataFrame, owners: Ints, count: int) -> Lines:
    """Where each of `count` blocks has its line of one event: the first one's position, of all else the last's."""
    lines = Lines.none(count)
    lines.order[owners[::-1]] = ints(marks["order"])[::-1]
    lines.line[owners], lines.source[owners] = ints(marks["line"]), ints(marks["source"])
    stamped = marks["arrival_ns"].is_not_null().to_numpy()
    lines.arrival_ns[owners[stamped]] = ints(marks["arrival_ns"].drop_nulls())
    return lines


def _mutex_lines(sequence: Sequence) -> list[MutexLine]:
    parts = (*NTT_H_PARTS, "total")
    found = []
    for event, order, restart, source, line, arrival_ns, tid, *numbers in sequence.of(
        *RANK, columns=(*_HEAD, *parts, *_FIGURES)
    ).iter_rows():
        circuit: dict[str, int] | None = None
        ms: dict[str, int] = {}
        if event == "ntt_h":
            circuit = {part: value for part, value in zip(parts, numbers, strict=False) if value is not None}
        else:
            ms = {key: value for key, value in zip(_FIGURES, numbers[len(parts) :], strict=True) if value is not None}
        found.append(MutexLine(event, order, restart, source, line, arrival_ns, tid or 0, ms, circuit))
    return found


def _consecutive(lines: list[MutexLine]) -> list[list[MutexLine]]:
    """Lines of one GPU: each hold's lines follow one another."""
    groups: list[list[MutexLine]] = []
    seen: set[tuple[str, int]] = set()
    for line in lines:
        if not groups or _begins(line, groups[-1][0], seen):
            groups.append([])
            seen = set()
        groups[-1].append(line)
        seen.add((line.event, line.gpu_tid))
    return groups


def _begins(line: MutexLine, first: MutexLine, seen: set[tuple[str, int]]) -> bool:
    """Whether a line cannot belong to the block that is open."""
    if line.event == "mutex_acquired" or line.restart != first.restart:
        return True
    if (line.event, line.gpu_tid) in seen:
        # Several circuits print one ntt_h each; the allocations may repeat.
        return line.event not in _MAY_REPEAT or ("ntt_msm_h", 0) in seen
    rank = RANK[line.event]
    return any(RANK[event] > rank for event, gpu_tid in seen if event in _NEEDED and gpu_tid == line.gpu_tid)


def _block_of(lines: list[MutexLine]) -> Block:
    first, last = lines[0], lines[-1]
    block = Block(first.restart, first.order, last.order, first.source)
    for line in lines:
        if line.gpu_tid:
            # A call fanned out over several GPUs prints a set a GPU: the slowest decides how long it takes.
            for key, ms in line.ms.items():
                block.ms[key] = max(block.ms.get(key, ms), ms)
            continue
        block.orders.setdefault(line.event, line.order)
        block.lines[line.event] = line.line
        block.put_source(line.event, line.source)
        if line.arrival_ns is not None:
            block.arrivals[line.event] = line.arrival_ns
        if line.circuit is not None:
            block.circuits.append(line.circuit)
        block.ms.update(line.ms)
        # Printed once per GPU and process; d_a is allocated again whenever the circuit's size changes.
        block.warmup = block.warmup or line.event == "pool_threshold_set"
    for line in lines:
        # Only another GPU's set is whole.
        if line.event not in block.lines:
            block.lines[line.event] = line.line
            block.put_source(line.event, line.source)
    return block
