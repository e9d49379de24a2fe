"""The value in the middle: what was read and rebuilt, for files and live alike."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from gputrace import schema
from gputrace.display import Displayed
from gputrace.rows import where


@dataclass(frozen=True)
class Notice:
    """Something the reader of a report should know about the data: stable code, words, how often."""

    code: str
    text: str
    count: int = 1


@dataclass
class InputInfo:
    """One input as it was recognised.

    `kind` is log, samples, host or metadata; `used` is false for another form of something already counted.
    """

    path: str
    kind: str
    format: str
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    used: bool = True


@dataclass(frozen=True)
class GpuInfo:
    """What is known of one GPU of the trace. `link_limit_bytes_per_s` is the link's raw rate one way."""

    gpu: int
    name: str | None = None
    link_gen: int | None = None
    link_width: int | None = None
    link_limit_bytes_per_s: float | None = None
    pcie_source: str | None = None
    sm_source: str | None = None

    def renumbered(self, gpu: int) -> "GpuInfo":
        """The same GPU under another number."""
        return replace(self, gpu=gpu)


@dataclass(frozen=True)
class Clock:
    """How log lines without a time were put on the wall clock.

    `method` is timeline+tracing, wrapper, receipt, correlation or none. With none there are no absolute times.
    `offset_s` is the Unix time of TIMELINE offset 0 (first run), `drift_ppm` positive where TIMELINE runs fast.
    """

    method: str = "none"
    unique: bool = False
    offset_s: float | None = None
    uncertainty_s: float | None = None
    drift_ppm: float | None = None
    runner_up_margin: float | None = None


@dataclass
class Quality:
    """Counts of everything that was not simply understood. Nothing is dropped without a count here."""

    lines: int = 0
    marks: int = 0
    marks_by_event: dict[str, int] = field(default_factory=dict)
    marks_placed: int = 0
    marks_unplaced: int = 0
    torn_repaired: int = 0
    torn_lost: int = 0
    unrecognised_of_known_family: int = 0
    samples: int = 0
    samples_missing: int = 0
    counter_wraps: int = 0
    counter_ambiguous: int = 0
    notices: list[Notice] = field(default_factory=list)

    def notice(self, code: str, text: str, count: int = 1) -> None:
        """Add a notice."""
        self.notices.append(Notice(code, text, count))


class NamedPhases:
    """Phases by name, each name looked up once for all that ask."""

    def __init__(self, phases: pl.DataFrame) -> None:
        self._phases = phases
        self._of_name: dict[str, pl.DataFrame] = {}

    def of(self, name: str) -> pl.DataFrame:
        """The phases of a name, in their order."""
        if name not in self._of_name:
            self._of_name[name] = where(self._phases, self._phases["name"] == name)
        return self._of_name[name]

    def any_of(self, names: Iterable[str]) -> pl.DataFrame:
        """The phases of several names, one name after another."""
        return pl.concat([self._phases.clear(), *map(self.of, names)])


@dataclass(repr=False)
class Trace(
    Displayed, shows=("inputs", "calls", "phases", "syntheses", "samples", "host", "gpus", "clock.method", "focus")
):
    """Frames (schemas in `gputrace.schema`) plus what is known about them.

    `focus`: numbers of the calls that tables of calls, phases and jobs are about; None: all. Whatever a GPU's time is
    charged to needs every call.
    `goes_on_from_ns`: of a part that goes on where another ended, when the mutex of each GPU was given back last before
    it: the GPU's window begins there.
    """

    inputs: list[InputInfo] = field(default_factory=list)
    marks: pl.DataFrame = field(default_factory=schema.MARKS.empty)
    calls: pl.DataFrame = field(default_factory=schema.CALLS.empty)
    phases: pl.DataFrame = field(default_factory=schema.PHASES.empty)
    syntheses: pl.DataFrame = field(default_factory=schema.SYNTHESES.empty)
    samples: pl.DataFrame = field(default_factory=schema.SAMPLES.empty)
    host: pl.DataFrame = field(default_factory=schema.HOST.empty)
    copies: pl.DataFrame = field(default_factory=schema.COPIES.empty)
    gpus: list[GpuInfo] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    quality: Quality = field(default_factory=Quality)
    focus: pl.Series | None = None
    goes_on_from_ns: dict[int, int] = field(default_factory=dict)

    @cached_property
    def named_phases(self) -> NamedPhases:
        """The phases by name, for those who look at some kinds only. Once asked for, `phases` must not be replaced."""
        return NamedPhases(self.phases)

    @property
    def calls_in_focus(self) -> pl.DataFrame:
        """The calls that tables are about."""
        return self.calls if self.focus is None else self.calls.filter(pl.col("call").is_in(self.focus.implode()))
