"""The C++ lines of one hold of the GPU mutex, as blocks.

Lines under the mutex form clean consecutive blocks per GPU, from `mutex_acquired` to `mutex_released`. Builds of
before 2026-03-13 print neither: there a block begins with the first GPU line and ends with `tail_msm`.
"""

from dataclasses import dataclass, field

from gputrace.rebuild.sequence import Sequence

NTT_H_PARTS = ("d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor")
_UNDER_MUTEX = (
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
_RANK = {name: rank for rank, name in enumerate(_UNDER_MUTEX)}


@dataclass
class Block:
    """One hold of the GPU mutex. `ms` has every figure printed in it; `lines` and `arrivals` the line of each event."""

    restart: int
    first_order: int
    last_order: int
    source: int
    orders: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    ms: dict[str, int] = field(default_factory=dict)
    circuits: list[dict[str, int]] = field(default_factory=list)
    complete: bool = False
    warmup: bool = False

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
        """Entry to lock, where printed."""
        if "pre_lock_cpu_ms" not in self.ms:
            return None
        return self.ms["pre_lock_cpu_ms"] + self.ms["mutex_wait_ms"]


_NUMBERS = {
    "mutex_acquired": ("pre_lock_cpu_ms", "mutex_wait_ms"),
    "ntt_msm_h": ("ntt_msm_h_ms",),
    "barrier_wait": ("barrier_wait_ms",),
    "batch_add": ("batch_add_ms",),
    "tail_msm": ("tail_msm_ms", "gpu_total_ms"),
    "mutex_released": ("mutex_held_ms", "total_start_fn_ms"),
}


def collect_blocks(sequence: Sequence) -> list[Block]:
    """All blocks in order. One is complete when it has every kind of line that this log has at all."""
    marks = sequence.of(*_UNDER_MUTEX)
    parts = (*NTT_H_PARTS, "total")
    keys = [key for own in _NUMBERS.values() for key in own]
    head = ("event", "order", "restart", "line", "source", "arrival_ns")
    blocks: list[Block] = []
    current: Block | None = None
    for event, order, restart, line, source, arrival_ns, *numbers in marks.select(*head, *parts, *keys).iter_rows():
        if current is None or _begins(event, restart, source, current):
            current = Block(restart, order, order, source)
            blocks.append(current)
        current.last_order = order
        current.orders.setdefault(event, order)
        current.lines[event] = line
        if arrival_ns is not None:
            current.arrivals[event] = arrival_ns
        if event == "ntt_h":
            current.circuits.append(
                {part: ms for part, ms in zip(parts, numbers[: len(parts)], strict=True) if ms is not None}
            )
        else:
            for key, ms in zip(keys, numbers[len(parts) :], strict=True):
                if ms is not None:
                    current.ms[key] = ms
        # Printed once per GPU and process; d_a is allocated again whenever the circuit's size changes.
        current.warmup = current.warmup or event == "pool_threshold_set"
    printed = {event for block in blocks for event in block.orders}
    needed = [event for event in _NEEDED if event in printed]
    for block in blocks:
        block.complete = all(event in block.orders for event in needed)
    return blocks


def _begins(event: str, restart: int, source: int, current: Block) -> bool:
    """Whether a line cannot belong to the block that is open."""
    if event == "mutex_acquired" or restart != current.restart or source != current.source:
        return True
    if event in current.orders:
        # Several circuits print one ntt_h each; the allocations may repeat.
        return event not in ("ntt_h", "d_a_allocated", "pool_threshold_set") or "ntt_msm_h" in current.orders
    rank = _RANK[event]
    return any(_RANK[seen] > rank for seen in current.orders if seen in _NEEDED)
