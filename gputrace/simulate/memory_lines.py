"""What the memory manager says: its budget, what it evicts, and the SRS it loads, again where it had to go."""

from gputrace.simulate.disturbance import Shortage
from gputrace.simulate.text import Printer

_MEMORY, _SRS = "cuzk_core::memory", "cuzk_core::srs_manager"
_BUDGET_GIB = 480.0
_SRS_PATH = (
    "/var/tmp/filecoin-proof-parameters/v28-stacked-proof-of-replication-merkletree-poseidon_hasher-8-8-0.params"
)


def print_first_load(printer: Printer, seconds: float, gib: float = 44.1) -> None:
    """The budget and the SRS that every start loads."""
    printer.tracing("main", 0.0003, "memory budget initialized", {"total_budget_gib": _BUDGET_GIB}, target=_MEMORY)
    _print_load(printer, 0.0004, seconds, "porep-32g", gib)


def print_shortage(printer: Printer, shortage: Shortage) -> None:
    """An eviction under memory pressure, and the load that brings the entry back."""
    kind, _, circuit = shortage.entry.partition(":")
    thread = ("memory", shortage.start)
    freed = {"entry": shortage.entry, "freed_gib": shortage.freed_gib}
    if kind == "srs":
        printer.tracing(thread, shortage.start, "SRS evicted", {"circuit_id": circuit}, target=_SRS)
    printer.tracing(thread, shortage.start, "evicted for memory pressure", freed, target=_MEMORY)
    if shortage.reload > 0:
        _print_load(printer, shortage.end - shortage.reload, shortage.reload, circuit, shortage.freed_gib)


def _print_load(printer: Printer, at: float, seconds: float, circuit: str, gib: float) -> None:
    thread = ("srs", at)
    told = {"circuit_id": circuit, "path": _SRS_PATH, "file_size_gib": gib}
    printer.tracing(thread, at, "loading SRS from disk", told, target=_SRS)
    done = {
        "circuit_id": circuit,
        "elapsed_ms": int(seconds * 1000),
        "budget_used_gib": gib,
        "budget_available_gib": round(_BUDGET_GIB - gib, 1),
    }
    printer.tracing(thread, at + seconds, "SRS loaded successfully", done, target=_SRS)
