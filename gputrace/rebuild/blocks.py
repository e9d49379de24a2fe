"""The C++ lines of one hold of the GPU mutex, as blocks.

Lines under the mutex form clean consecutive blocks per GPU, from `mutex_acquired` to `mutex_released`. Builds of
before 2026-03-13 print neither: there a block begins with the first GPU line and ends with `tail_msm`.
"""

from dataclasses import dataclass, field

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
# A block grows in this order; a line that would go back begins a new block.
RANK = {name: rank for rank, name in enumerate(UNDER_MUTEX)}


@dataclass
class Block:
    """One hold of the GPU mutex.

    `ms` has every figure printed in it, `lines`, `sources` and `arrivals` the line of each event, `missing` the
    kinds of lines that others of its log have and it has not.
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

    def at(self, event: str) -> tuple[int | None, int | None]:
        """Input and line of an event."""
        return self.sources.get(event), self.lines.get(event)

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
    lines = _mutex_lines(sequence)
    groups = separate(lines, bounds) if interleaved(lines) else _consecutive(lines)
    blocks = [_block_of(group) for group in groups]
    printed = {event for block in blocks for event in block.orders}
    needed = [event for event in _NEEDED if event in printed]
    for block in blocks:
        block.missing = tuple(event for event in needed if event not in block.orders)
    return sorted(blocks, key=lambda block: block.order_locked)


def _mutex_lines(sequence: Sequence) -> list[MutexLine]:
    marks = sequence.of(*RANK)
    parts = (*NTT_H_PARTS, "total")
    keys = [key for own in FIGURES_OF.values() for key in own]
    head = ("event", "order", "restart", "source", "line", "arrival_ns", "gpu_tid")
    found = []
    for event, order, restart, source, line, arrival_ns, tid, *numbers in marks.select(
        *head, *parts, *keys
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
        return line.event not in ("ntt_h", "d_a_allocated", "pool_threshold_set") or ("ntt_msm_h", 0) in seen
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
        block.sources[line.event] = line.source
        if line.arrival_ns is not None:
            block.arrivals[line.event] = line.arrival_ns
        if line.circuit is not None:
            block.circuits.append(line.circuit)
        block.ms.update(line.ms)
        # Printed once per GPU and process; d_a is allocated again whenever the circuit's size changes.
        block.warmup = block.warmup or line.event == "pool_threshold_set"
    for line in lines:
        # Only another GPU's set is whole.
        block.lines.setdefault(line.event, line.line)
        block.sources.setdefault(line.event, line.source)
    return block
