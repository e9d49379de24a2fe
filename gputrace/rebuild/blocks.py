"""The C++ lines of one hold of the GPU mutex, as blocks.

Lines under the mutex form clean consecutive blocks per GPU, from `mutex_acquired` to `mutex_released`. Builds of
before 2026-03-13 print neither: there a block begins with the first GPU line and ends with `tail_msm`.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

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


@dataclass(slots=True)
class Block:
    """One hold of the GPU mutex.

    `ms` has every figure printed in it, `lines` and `arrivals` the line of each event, `missing` the kinds of lines
    that others of its log have and it has not. `source` is the input of its first line, `sources` that of events whose
    line is in another (a log was rotated meanwhile).
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
    missing: tuple[str, ...] = ()
    warmup: bool = False

    def put_source(self, event: str, source: int) -> None:
        """Keeps the input of an event's line."""
        if source != self.source:
            self.sources[event] = source
        else:
            self.sources.pop(event, None)

    @property
    def complete(self) -> bool:
        """Whether it has every kind of line that its log has at all."""
        return not self.missing

    @property
    def order_locked(self) -> int:
        """Position of the lock's line, or of the first line after it."""
        return self.orders.get("mutex_acquired", self.first_order)

    @property
    def order_unlocked(self) -> int:
        """Position of the unlock's line, or of the last line before it."""
        return self.orders.get("mutex_released", self.last_order)

    @property
    def held_ms(self) -> int | None:
        """Mutex held; in builds that do not print it, the GPU thread's total, which is a few ms less."""
        return self.ms.get("mutex_held_ms", self.ms.get("gpu_total_ms"))

    @property
    def before_lock_ms(self) -> int | None:
        """Entry to lock, where printed; where only the lock's line is lost, what the last line's two figures leave."""
        if "pre_lock_cpu_ms" in self.ms:
            return self.ms["pre_lock_cpu_ms"] + self.ms["mutex_wait_ms"]
        if "total_start_fn_ms" in self.ms and "mutex_held_ms" in self.ms:
            return max(0, self.ms["total_start_fn_ms"] - self.ms["mutex_held_ms"] - 1)
        return None


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


def collect_blocks(sequence: Sequence, bounds: TimeBounds) -> list[Block]:
    """All blocks in order of their locks. One is complete when it has every kind of line that this log has at all.

    `bounds` says when a position of the log was written; it is needed where several GPUs' blocks interleave.
    """
    mixed = interleaved(sequence)
    blocks = None if mixed else _clean_blocks(sequence)
    if blocks is None:
        lines = _mutex_lines(sequence)
        groups = separate(lines, bounds) if mixed else _consecutive(lines)
        blocks = [_block_of(group) for group in groups]
    printed = {event for block in blocks for event in block.orders}
    needed = [event for event in _NEEDED if event in printed]
    for block in blocks:
        block.missing = tuple(event for event in needed if event not in block.orders)
    return sorted(blocks, key=lambda block: block.order_locked)


_HEAD = ("event", "order", "restart", "source", "line", "arrival_ns", "gpu_tid")


def _clean_blocks(sequence: Sequence) -> list[Block] | None:
    """The blocks where each hold's lines follow one another in order, from lock to unlock; None where they do not.

    What `_consecutive` and `_block_of` give then, without an object a line.
    """
    marks = sequence.of(*RANK, columns=_HEAD)
    if marks.is_empty() or (marks["gpu_tid"].fill_null(0) != 0).any():
        return None
    rank = marks["event"].replace_strict(RANK, return_dtype=pl.Int64).to_numpy()
    restart = marks["restart"].to_numpy().astype(np.int64)
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
    orders, sources = marks["order"].to_numpy(), marks["source"].to_numpy()
    edges = (restart[first], orders[first], orders[last], sources[first])
    blocks = [Block(*row) for row in zip(*(edge.tolist() for edge in edges), strict=True)]
    for event, number in RANK.items():
        _add_lines(blocks, sequence, event, group[rank == number].tolist())
    return blocks


def _add_lines(blocks: list[Block], sequence: Sequence, event: str, owners: list[int]) -> None:
    """Gives blocks their lines of one event; `owners` are the blocks' numbers, in the order of the lines."""
    if not owners:
        return
    keys = (*NTT_H_PARTS, "total") if event == "ntt_h" else tuple(key for own in FIGURES_OF.values() for key in own)
    marks = sequence.of(event, columns=("order", "source", "line", "arrival_ns", *keys))
    keys = tuple(key for key in keys if marks[key].count())
    for owner, (order, source, line, arrival_ns, *numbers) in zip(
        owners, marks.select("order", "source", "line", "arrival_ns", *keys).iter_rows(), strict=True
    ):
        block = blocks[owner]
        block.orders.setdefault(event, order)
        block.lines[event] = line
        block.put_source(event, source)
        if arrival_ns is not None:
            block.arrivals[event] = arrival_ns
        figures = {key: value for key, value in zip(keys, numbers, strict=True) if value is not None}
        if event == "ntt_h":
            block.circuits.append(figures)
        else:
            block.ms.update(figures)
        block.warmup = block.warmup or event == "pool_threshold_set"


def _mutex_lines(sequence: Sequence) -> list[MutexLine]:
    parts = (*NTT_H_PARTS, "total")
    keys = [key for own in FIGURES_OF.values() for key in own]
    found = []
    for event, order, restart, source, line, arrival_ns, tid, *numbers in sequence.of(
        *RANK, columns=(*_HEAD, *parts, *keys)
    ).iter_rows():
        circuit: dict[str, int] | None = None
        ms: dict[str, int] = {}
        if event == "ntt_h":
            circuit = {part: value for part, value in zip(parts, numbers, strict=False) if value is not None}
        else:
            ms = {key: value for key, value in zip(keys, numbers[len(parts) :], strict=True) if value is not None}
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
