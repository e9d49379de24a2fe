"""Lines of a log with the time at which each is written: C++ lines, TIMELINE records, tracing lines.

A thread writes its lines in order; lines of different threads may swap, because writing takes a thread a little while.
"""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

Fields = Mapping[str, object]
_LEVEL_COLOURS = {"INFO": 32, "WARN": 33, "ERROR": 31, "DEBUG": 34, "TRACE": 35}
_BETWEEN = 2e-6


class Line(NamedTuple):
    """One line as it is written: Unix ns, stdout or stderr (merged: torn across both), text without its newline."""

    at_ns: int
    stream: str
    text: str


@dataclass(frozen=True)
class LogOptions:
    """How a log looks apart from its build.

    `delay_s` is the most a thread usually needs to write a line; one line in `1 / late_share` needs up to `late_s`.
    `drift_ppm` is by how much the wall clock runs fast against the monotonic one. `memory_lines`: the memory manager
    tells its budget and the first load of the SRS, which takes `srs_load_s`.
    """

    ansi: bool = True
    engine_start: bool = True
    delay_s: float = 0.00004
    late_share: float = 0.02
    late_s: float = 0.001
    drift_ppm: float = 0.0
    memory_lines: bool = False
    srs_load_s: float = 6.4


class Clocks:
    """The prover's clocks: seconds since the engine's start to wall time and to the durations it prints."""

    def __init__(self, epoch_ns: int, drift_ppm: float = 0.0) -> None:
        self.epoch_ns = epoch_ns
        self._rate = 1e9 * (1.0 + drift_ppm * 1e-6)

    def wall_ns(self, at: float) -> int:
        """Unix ns."""
        return self.epoch_ns + round(at * self._rate)

    def steady_ms(self, start: float, end: float) -> int:
        """Whole milliseconds of the monotonic clock, floored."""
        return (round(end * 1e9) - round(start * 1e9)) // 1_000_000

    def wall_ms(self, start: float, end: float) -> int:
        """Whole milliseconds as gettimeofday gives them: the microsecond part is truncated toward zero by itself."""
        (s0, u0), (s1, u1) = (divmod(self.wall_ns(t) // 1000, 1_000_000) for t in (start, end))
        return (s1 - s0) * 1000 + math.trunc((u1 - u0) / 1000)


def _sgr(code: int, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def debug(text: str) -> str:
    """A string as Rust's Debug prints it: quoted."""
    return json.dumps(text, ensure_ascii=False)


def option(value: int | None) -> str:
    """A Rust Option."""
    return "None" if value is None else f"Some({value})"


class Printer:
    """Collects the lines of one run of the prover."""

    def __init__(self, clocks: Clocks, options: LogOptions, rng: random.Random) -> None:
        self.clocks = clocks
        self.lines: list[Line] = []
        self._options = options
        self._rng = rng
        self._last: dict[object, float] = {}
        self._second: tuple[int, str] = (-1, "")

    def join(self, thread: object, *others: object) -> None:
        """What `thread` writes from now on comes after what the others have written."""
        known = (self._last.get(other, -math.inf) for other in (thread, *others))
        self._last[thread] = max(known)

    def native(self, thread: object, at: float, text: str, by: float = math.inf) -> None:
        """A line on stderr; `by` is when the thread does something that others see, so it is written before."""
        self._write(thread, at, "stderr", text, by)

    def timeline(self, thread: object, at: float, event: str, job: str, detail: str, by: float = math.inf) -> None:
        """A TIMELINE record: its offset is taken when the thread gets there."""
        begun = self._begin(thread, at)
        offset_ms = self.clocks.steady_ms(0.0, min(begun, by))
        self._write(thread, at, "stderr", f"TIMELINE,{offset_ms},{event},{job},{detail}", by)

    def tracing(
        self,
        thread: object,
        at: float,
        message: str,
        fields: Fields | None = None,
        *,
        level: str = "INFO",
        target: str = "cuzk_core::engine",
        span: tuple[str, Fields] | None = None,
        by: float = math.inf,
    ) -> None:
        """A tracing line on stdout; its time is taken when the thread gets there."""
        begun = min(self._begin(thread, at), by)
        ansi = self._options.ansi
        stamp, shown = self._stamp(begun), f"{level:>5}"
        head = f"{_sgr(2, stamp)} {_sgr(_LEVEL_COLOURS[level], shown)} " if ansi else f"{stamp} {shown} "
        if span is not None:
            name, values = span
            inner = self._fields(values)
            head += (
                f"{_sgr(1, name)}{_sgr(1, '{')}{inner}{_sgr(1, '}')}{_sgr(2, ':')} " if ansi else f"{name}{{{inner}}}: "
            )
        head += f"{_sgr(2, target)}{_sgr(2, ':')} " if ansi else f"{target}: "
        tail = f" {self._fields(fields)}" if fields else ""
        self._write(thread, at, "stdout", f"{head}{message}{tail}", by)

    def _fields(self, fields: Fields) -> str:
        equals = _sgr(2, "=") if self._options.ansi else "="
        return " ".join(
            f"{_sgr(3, key) if self._options.ansi else key}{equals}{value}" for key, value in fields.items()
        )

    def _stamp(self, at: float) -> str:
        second, ns = divmod(self.clocks.wall_ns(at), 1_000_000_000)
        if second != self._second[0]:
            self._second = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second[1]}.{ns // 1000:06d}Z"

    def _begin(self, thread: object, at: float) -> float:
        return max(at, self._last.get(thread, -math.inf) + _BETWEEN)

    def _write(self, thread: object, at: float, stream: str, text: str, by: float) -> None:
        options, rng = self._options, self._rng
        delay = rng.uniform(0.1, 1.0) * options.delay_s
        if rng.random() < options.late_share:
            delay += rng.random() * options.late_s
        begun = self._begin(thread, at)
        written = max(min(begun + delay, by), min(begun, by), self._last.get(thread, -math.inf))
        self._last[thread] = written
        self.lines.append(Line(self.clocks.wall_ns(written), stream, text))
