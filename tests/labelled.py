"""A set of simulated runs with their true causes: drawn from seeds, labelled from the truth of each schedule.

Each run plants one or two causes, or none, with random sizes, workers and magnitudes. What was planted does not decide
what is expected: `truth_of` asks the schedule what each cause really cost.
"""

import random
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gputrace.simulate.capture import Simulation, play
from gputrace.simulate.costs import Costs, costs_of
from gputrace.simulate.recipe import Scenario
from tests.plants import PLANTS, healthy

NONE = "none"
CAUSES = tuple(PLANTS)
# A cause is present from this share of the lost seconds, absent below the other; in between it is not scored.
PRESENT, ABSENT = 0.05, 0.015
# A cause that costs this many times more than the next is the top one; closer ones are both accepted.
LEAD = 1.3


@dataclass(frozen=True)
class Truth:
    """What a run really lost to what: causes to be found, causes not to be claimed, and who may be called the top."""

    costs: Costs
    present: frozenset[str]
    absent: frozenset[str]
    top: frozenset[str]


@dataclass(frozen=True)
class LabelledRun:
    """One run of the set. `with_trace`: the GPU trace is given beside the log."""

    number: int
    planted: tuple[str, ...]
    scenario: Scenario
    with_trace: bool = True

    @property
    def name(self) -> str:
        """Number and what was planted."""
        return f"{self.number:03d} {' + '.join(self.planted) or NONE}{'' if self.with_trace else ' (log alone)'}"

    @cached_property
    def simulation(self) -> Simulation:
        """The run as it went."""
        return play(self.scenario, self.number)

    def truth(self) -> Truth:
        """Its labels."""
        return truth_of(costs_of(self.scenario, self.simulation.runs, self.number))

    def write(self, into: Path) -> list[str]:
        """Writes what the analysis is given, and returns the paths."""
        log, trace = into / "prover.log", into / "nvml.csv"
        log.write_text(self.simulation.files()["prover.merged"], encoding="utf-8")
        if not self.with_trace:
            return [str(log)]
        trace.write_text(self.simulation.trace_csv(), encoding="utf-8")
        return [str(log), str(trace)]


def truth_of(costs: Costs) -> Truth:
    """Labels from what each cause cost."""
    shares = {cause: costs.share(cause) for cause in CAUSES}
    most = max(shares.values())
    top = {
        cause
        for cause, share in shares.items()
        if share >= PRESENT
        and all(share * LEAD >= costs.share(other, beside=cause) for other in CAUSES if other != cause)
    }
    # Near the edge of what is worth naming, naming nothing is right too.
    if most < PRESENT * LEAD:
        top.add(NONE)
    if PRESENT / LEAD < most < PRESENT:
        top |= {cause for cause, share in shares.items() if share == most}
    return Truth(
        costs,
        frozenset(cause for cause, share in shares.items() if share >= PRESENT),
        frozenset(cause for cause, share in shares.items() if share < ABSENT),
        frozenset(top),
    )


PER_CAUSE = 7
PER_PAIR = 2
PAIRS = (
    ("pageable-h2d", "throttled"),
    ("pageable-h2d", "no-work-queued"),
    ("pageable-h2d", "slow-log-sink"),
    ("pageable-h2d", "other-process"),
    ("pageable-h2d", "memory-budget"),
    ("pageable-h2d", "device-allocation"),
    ("pinned-alloc-stall", "prep-barrier"),
    ("pinned-alloc-stall", "slow-log-sink"),
    ("prep-barrier", "throttled"),
    ("prep-barrier", "no-work-queued"),
    ("prep-barrier", "host-hot-path"),
    ("prep-barrier", "device-allocation"),
    ("no-work-queued", "other-process"),
    ("no-work-queued", "link-degraded"),
    ("host-hot-path", "slow-log-sink"),
    ("host-hot-path", "throttled"),
    ("memory-budget", "slow-log-sink"),
    ("launch-overhead", "no-work-queued"),
    ("launch-overhead", "prep-barrier"),
    ("device-allocation", "throttled"),
    ("link-degraded", "slow-log-sink"),
    ("release-abc", "slow-log-sink"),
)
HEALTHY_RUNS = 15
# Causes that the build before today's, which prints no line at the lock, shows as well.
BEFORE_M = {"pageable-h2d", "no-work-queued", "launch-overhead", "throttled", "link-degraded", "other-process"}
# What a log can tell without a GPU trace.
LOG_ALONE = (
    "pinned-alloc-stall", "prep-barrier", "no-work-queued", "host-hot-path", "memory-budget", "device-allocation",
    "release-abc", "slow-log-sink",
)  # fmt: skip
PER_LOG_ALONE = 2


def _run(number: int, planted: tuple[str, ...], with_trace: bool = True) -> LabelledRun:
    draw = random.Random(f"labelled {number}")
    scenario = healthy(draw)
    for cause in planted:
        scenario = PLANTS[cause](scenario, draw)
    if with_trace and BEFORE_M.issuperset(planted) and draw.random() < 0.12:
        scenario = replace(scenario, variant="Vs")
    name = "-".join(planted) or NONE
    return LabelledRun(number, planted, replace(scenario, name=f"labelled-{number}-{name}"), with_trace)


def labelled_runs() -> list[LabelledRun]:
    """The whole set, the same every time."""
    plans: list[tuple[tuple[str, ...], bool]] = [((cause,), True) for cause in CAUSES for _ in range(PER_CAUSE)]
    plans += [(pair, True) for pair in PAIRS for _ in range(PER_PAIR)]
    plans += [((), True)] * HEALTHY_RUNS
    plans += [((cause,), False) for cause in LOG_ALONE for _ in range(PER_LOG_ALONE)]
    return [_run(number, planted, with_trace) for number, (planted, with_trace) in enumerate(plans)]
