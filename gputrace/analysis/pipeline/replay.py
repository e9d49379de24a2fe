"""Runs the model on a run's own services, and says how far it is from what was seen."""

import numpy as np
import numpy.typing as npt

from gputrace.analysis.diagnosis import Replay
from gputrace.analysis.pipeline.observe import Observed
from gputrace.analysis.pipeline.services import Services, services
from gputrace.simulate.outline import outline
from gputrace.simulate.schedule import CallTimes, Outline, Schedule

Floats = npt.NDArray[np.float64]
POOL_ORDERS = ("fifo", "shared")
# How near a good replay is: the median mutex_wait, all barrier_wait (either limit), every unlock (of the time elapsed).
MUTEX_WAIT_SHARE, BARRIER_WAIT_S, BARRIER_WAIT_SHARE, UNLOCK_SHARE = 0.1, 0.5, 0.2, 0.03


def replay(own: Services, seed: int = 0) -> Outline:
    """The waits and holds that the model makes of these services."""
    return outline(*own.bare(), seed)


def error_of(seen: Observed, schedule: Outline) -> Replay:
    """Compares as many first calls of a replay as were seen; unlocks by rank, whichever partition it was."""
    made = first_calls(schedule, len(seen.calls))
    unlocks = np.array([call.unlock - made[0].lock for call in made])
    unlocks_seen = np.sort([call.unlock - seen.calls[0].lock for call in seen.calls])
    wait, wait_seen = np.median([c.mutex_wait for c in made]), np.median([c.mutex_wait for c in seen.calls])
    barrier, barrier_seen = sum(c.barrier_wait for c in made), sum(c.barrier_wait for c in seen.calls)
    held, held_seen = np.median([c.mutex_held for c in made]), np.median([c.held for c in seen.calls])
    return Replay(
        rate=rate(unlocks) / rate(unlocks_seen) - 1.0,
        mutex_wait_median=float(wait / wait_seen - 1.0) if wait_seen > 1e-3 else float(wait),
        barrier_wait_s=barrier - barrier_seen,
        barrier_wait_share=barrier / barrier_seen - 1.0 if barrier_seen > 0 else 0.0,
        unlock_worst=float(np.abs(unlocks - unlocks_seen).max() / unlocks_seen[-1]),
        held_median=float(held / held_seen - 1.0),
    )


def first_calls(schedule: Outline | Schedule, count: int) -> list[CallTimes]:
    """The first calls to give the mutex back, in that order."""
    done: list[CallTimes] = [call for call in schedule.calls if call.unlock == call.unlock]
    return sorted(done, key=lambda call: call.unlock)[:count]


def rate(unlocks: Floats) -> float:
    """(n - 1) / (last - first)."""
    return (len(unlocks) - 1) / float(np.ptp(unlocks)) if len(unlocks) > 1 and np.ptp(unlocks) > 0 else float("nan")


def best_replay(seen: Observed) -> tuple[Services, Replay]:
    """The services under the pool's order that explains the run better."""
    found = []
    for order in POOL_ORDERS:
        own = services(seen, order)
        error = error_of(seen, replay(own))
        found.append((_in_tolerances(error), own, error))
    _, own, error = min(found, key=lambda one: one[0])
    return own, error


def _in_tolerances(error: Replay) -> float:
    """The errors in units of what is tolerated of each, summed."""
    barrier = min(abs(error.barrier_wait_s) / BARRIER_WAIT_S, abs(error.barrier_wait_share) / BARRIER_WAIT_SHARE)
    return abs(error.mutex_wait_median) / MUTEX_WAIT_SHARE + error.unlock_worst / UNLOCK_SHARE + barrier
