"""What is kept of one capture: small, flat, JSON.

A capture's lost seconds are kept by GPU and by day (UTC), so that one recording of a week counts for its seven days.
Floats are kept to nine digits: which process added them up must not show.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

FailureKind = Literal["input", "killed", "unreachable", "bug"]
# Failures that another try cannot change while capture and gputrace stay the same.
FINAL_KINDS = ("input",)


@dataclass(frozen=True)
class GpuDay:
    """One GPU on one day: seconds of its window, and where those went. `lost_s` is `lost_by_cause_s` added up.

    `calls` are complete ones; `copy_only_s` and `idle_s` are None where no PCIe bytes are known.
    """

    gpu: int
    day: str
    window_s: float
    compute_s: float
    copy_only_s: float | None
    idle_s: float | None
    calls: int
    lost_by_cause_s: dict[str, float]

    @property
    def lost_s(self) -> float:
        """Seconds of the window in which the GPU did not compute."""
        return sum(self.lost_by_cause_s.values())


@dataclass(frozen=True)
class CaptureSummary:
    """What a fleet keeps of a capture.

    `host` is None where the capture does not name one. `gpus` are names by number (None: not told). `days` has no row
    for a GPU of which nothing says when it computed. `deploy` is what was running, as meta.json has it. `verdicts` are
    by hypothesis; `main_cause` is the supported cause with most lost seconds. `analysis` is what made the summary.
    """

    capture: str
    analysis: str
    host: str | None
    deploy: str | None
    start_ns: int | None
    end_ns: int | None
    gpus: dict[int, str | None]
    days: tuple[GpuDay, ...]
    calls: int
    calls_complete: int
    calls_failed: int
    calls_per_s: float | None
    phase_medians_ms: dict[str, float]
    verdicts: dict[str, str]
    main_cause: str | None
    headline: str
    clock: str
    simulated: bool = False
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Failure:
    """A capture that could not be analysed, and why.

    `kind`: input (it cannot be used), killed (whoever analysed it died, again and again), unreachable (it could not be
    fetched or opened), bug (gputrace's own).
    """

    capture: str
    kind: FailureKind
    reason: str

    @property
    def final(self) -> bool:
        """Whether it stays so as long as capture and gputrace do."""
        return self.kind in FINAL_KINDS


Outcome = CaptureSummary | Failure


def rounded(value: float | None) -> float | None:
    """Nine digits; None where it is not a number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.9g}")


def to_json(outcome: Outcome) -> dict[str, Any]:
    """A plain object that `from_json` makes the same outcome of."""
    return {"failed": isinstance(outcome, Failure), **asdict(outcome)}


def from_json(told: dict[str, Any]) -> Outcome:
    """The outcome; KeyError, TypeError or ValueError where the object is not one."""
    values = dict(told)
    if values.pop("failed"):
        return Failure(**values)
    unknown = set(values) ^ {f.name for f in fields(CaptureSummary)}
    if unknown:
        raise KeyError(*sorted(unknown))
    values["gpus"] = {int(gpu): name for gpu, name in values["gpus"].items()}
    values["days"] = tuple(GpuDay(**day) for day in values["days"])
    values["problems"] = tuple(values["problems"])
    return CaptureSummary(**values)
