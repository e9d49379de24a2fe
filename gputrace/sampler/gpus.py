"""The GPUs as the recorder takes them: the sampler and its beat, with what it noticed between rows."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from gputrace.sampler import loop
from gputrace.sampler.driver import Clock
from gputrace.sampler.gpu import GpuSampler
from gputrace.sampler.rows import SampleRow


class SampledGpus:
    """Rows of some GPUs of a sampler (`only`: their NVML indexes; None: all), every `period_s`."""

    def __init__(self, sampler: GpuSampler, period_s: float, clock: Clock, only: frozenset[int] | None = None) -> None:
        self._sampler, self._period_s, self._clock, self._only = sampler, period_s, clock, only
        self._events: deque[dict[str, Any]] = deque(maxlen=1000)

    def describe(self) -> dict[str, Any]:
        """Static facts, of the GPUs taken."""
        described = self._sampler.describe()
        taken = [gpu for gpu in described["gpus"] if self._only is None or gpu["index"] in self._only]
        return {**described, "gpus": taken}

    def run(self, on_rows: Callable[[Sequence[SampleRow]], None], stop: threading.Event) -> None:
        """Gives rows until `stop` is set, then lets go of the driver."""

        def take(rows: Sequence[SampleRow]) -> None:
            self._events.extend(self._sampler.take_events())
            on_rows(rows if self._only is None else [row for row in rows if row.gpu in self._only])

        try:
            loop.run(self._sampler, self._period_s, take, stop, self._clock)
        finally:
            self._sampler.close()

    def take_events(self) -> list[dict[str, Any]]:
        """What was noticed since this was last asked; from another thread than `run`."""
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken
