"""Notices that the wall clock was set while a recording ran."""

from gputrace.sampler.driver import Clock

# Slewing moves both clocks alike (adjtime changes the rate of both), so their difference changes by steps alone; to
# read the two takes microseconds, unless the process is put aside in between.
STEP_NS = 50_000_000
_READINGS = 3


class StepDetector:
    """Wall minus monotonic, watched: it moves when the clock is set, or when the machine slept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = self._read()

    def _read(self) -> int:
        """The reading that was interrupted least."""
        best: tuple[int, int] | None = None
        for _ in range(_READINGS):
            before = self._clock.mono_ns()
            wall = self._clock.wall_ns()
            after = self._clock.mono_ns()
            if best is None or after - before < best[0]:
                best = (after - before, wall - (before + after) // 2)
        assert best is not None
        return best[1]

    def step_ns(self) -> int | None:
        """By how much the wall clock was moved since the last call; None where it was not."""
        moved = self._read() - self._offset_ns
        if abs(moved) < STEP_NS:
            return None
        self._offset_ns += moved
        return moved
