"""Times as the page writes them."""

from dataclasses import dataclass

from gputrace.render import units
from gputrace.render.charts.timeline import TimeAxis


@dataclass(frozen=True)
class Times:
    """Moments of the run on the report's axis; without one, every time is unknown."""

    axis: TimeAxis | None

    def seconds(self, time_ns: int | None) -> float | None:
        """Seconds since the axis' zero; None where there is no axis."""
        return None if self.axis is None or time_ns is None else self.axis.seconds(time_ns)

    def utc(self, time_ns: int | None) -> str | None:
        """The time of day in UTC; None where the log is not on the wall clock."""
        if time_ns is None or self.axis is None or not self.axis.utc:
            return None
        return units.utc(time_ns)
