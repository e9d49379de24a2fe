"""Signs of causes that no single phase shows, gathered once for blame and verdicts."""

from dataclasses import dataclass, field

import polars as pl

from gputrace.analysis.account import GpuView
from gputrace.analysis.bandwidth import Transfers
from gputrace.analysis.signs.clocks import ClockState, clock_state
from gputrace.analysis.signs.contention import Contention, contention
from gputrace.analysis.signs.foreign import ForeignActivity, foreign_activity
from gputrace.analysis.signs.link import LinkState, link_state
from gputrace.analysis.signs.pressure import MemoryPressure, memory_pressure
from gputrace.analysis.signs.prints import PrintCost, print_costs
from gputrace.analysis.signs.waits import whole_call_mutex
from gputrace.analysis.thresholds import Thresholds
from gputrace.trace import Trace


@dataclass(frozen=True)
class Signs:
    """What prints cost, when memory was short, whose the mutex is; per GPU: link, clocks, somebody else's work."""

    prints: PrintCost
    pressure: MemoryPressure
    whole_call_mutex: bool
    contention: Contention
    links: dict[int, LinkState] = field(default_factory=dict)
    clocks: dict[int, ClockState] = field(default_factory=dict)
    foreign: dict[int, ForeignActivity] = field(default_factory=dict)


def find_signs(
    trace: Trace, views: list[GpuView], moved: list[Transfers], bursts: pl.DataFrame, thresholds: Thresholds
) -> Signs:
    """The signs of a trace. They do not move with the thresholds that a headline is checked against."""
    instances = pl.concat([own.instances for own in moved]) if moved else pl.DataFrame()
    limits = [view.limit_wire_bytes_per_s for view in views if view.sampled]
    floor = thresholds.copy_link_share * min(limits, default=float("inf"))
    return Signs(
        prints=print_costs(trace, bursts),
        pressure=memory_pressure(trace),
        whole_call_mutex=whole_call_mutex(trace),
        contention=contention(trace, instances, floor) if moved else Contention((), {}, 0.0, 0.0),
        links={view.info.gpu: link_state(view, own, thresholds) for view, own in zip(views, moved, strict=True)},
        clocks={view.info.gpu: clock_state(view) for view in views},
        foreign={view.info.gpu: foreign_activity(view, trace) for view in views},
    )
