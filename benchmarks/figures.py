"""What was measured, kept in `figures.json`, and the table and plot of `docs/speed.md` made from it."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.contender import Contender

FIGURES = Path(__file__).parent / "figures.json"
DOCUMENT = Path(__file__).parent.parent / "docs" / "speed.md"
PLOT = DOCUMENT.parent / "images" / "growth.svg"
_BEGIN, _END = "<!-- written by python -m benchmarks.suite -->\n", "<!-- end -->\n"
_HEAD = "| command | best s | CPU s | x grep and awk | peak MB | goal | |\n|---|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Row:
    """One command's best round. `ratio` is of wall times, within one run; None where there is no rival."""

    command: str
    best_s: float
    cpu_s: float
    peak_mb: float
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None
    megabytes: float | None = None
    failure: str | None = None

    @classmethod
    def of(
        cls,
        contender: Contender,
        rival: Contender | None,
        goal: str = "",
        met: bool | None = None,
        megabytes: float | None = None,
    ) -> "Row":
        """The row of a contender beside its rival."""
        if contender.failure is not None:
            return cls(contender.name, 0.0, 0.0, 0.0, failure=contender.failure)
        ratio = None if rival is None or rival.failure else round(contender.best_s / rival.best_s, 2)
        figures = round(contender.best_s, 3), round(contender.cpu_s, 3), round(contender.peak_mb, 1)
        return cls(contender.name, *figures, ratio, goal, met, megabytes)

    def line(self) -> str:
        """As a line of the table."""
        command = self.command.replace("|", "\\|")
        if self.failure is not None:
            return f"| {command} | failed: {self.failure} | | | | | |\n"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        verdict = "" if self.met is None else "ok" if self.met else "missed"
        return (
            f"| {command} | {self.best_s:.2f} | {self.cpu_s:.2f} | {ratio} | {self.peak_mb:.0f} | {self.goal} "
            f"| {verdict} |\n"
        )


@dataclass
class Figures:
    """The parts' rows, by name."""

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def kept(cls) -> "Figures":
        """What earlier runs found."""
        return cls(json.loads(FIGURES.read_text()) if FIGURES.exists() else {})

    def put(self, part: str, what: str, rounds: int, rows: list[Row]) -> None:
        """Replaces a part's rows."""
        machine = f"{os.cpu_count()} CPUs, Python {platform.python_version()}"
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        self.parts[part] = {
            "what": what, "day": day, "machine": machine, "rounds": rounds, "rows": [asdict(row) for row in rows],
        }  # fmt: skip

    def table(self, part: str) -> str:
        """One part in Markdown."""
        own = self.parts[part]
        said = f"Measured on {own['day']}: {own['machine']}, best of {own['rounds']}, by"
        command = f"`python -m benchmarks.suite --only {part} --rounds {own['rounds']}`."
        lines = "".join(Row(**row).line() for row in own["rows"])
        return f"### {own['what'][0].upper()}{own['what'][1:]}\n\n{said}\n{command}\n\n{_HEAD}{lines}"

    def write(self) -> None:
        """Keeps the figures, and writes them into the document."""
        FIGURES.write_text(json.dumps(self.parts, indent=1) + "\n")
        begun, _, rest = DOCUMENT.read_text().partition(_BEGIN)
        tables = "\n".join(self.table(part) for part in self.parts)
        if "growth" in self.parts:
            _plot([Row(**row) for row in self.parts["growth"]["rows"]])
            tables += "\n![Time and peak memory over the size of the log](images/growth.svg)\n"
        DOCUMENT.write_text(f"{begun}{_BEGIN}\n{tables}\n{_END}{rest.partition(_END)[2]}")


def _plot(rows: list[Row]) -> None:
    """CPU seconds (a busy machine moves them less) and peak memory over the size of the log; all axes logarithmic."""
    import altair as alt

    values = [
        {"megabytes": row.megabytes, "value": value, "what": what}
        for row in rows
        for what, value in (("CPU seconds", row.cpu_s), ("peak memory, MB", row.peak_mb))
        if row.failure is None
    ]
    chart = alt.Chart({"values": values}).mark_line(point=True)
    panels = chart.encode(
        x=alt.X("megabytes:Q", scale=alt.Scale(type="log"), title="log, MB"),
        y=alt.Y("value:Q", scale=alt.Scale(type="log"), title=None),
        column=alt.Column("what:N", title=None),
    ).resolve_scale(y="independent")
    PLOT.parent.mkdir(exist_ok=True)
    panels.save(str(PLOT))
