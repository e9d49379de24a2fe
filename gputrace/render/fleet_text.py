"""A fleet in a terminal: the conclusion, causes, hosts, outliers, trends, the deploy, and what failed."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import polars as pl
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.fleet.outliers import MIN_GPUS
from gputrace.fleet.result import Fleet
from gputrace.printable import printable, printable_values
from gputrace.render import fleet_words as words
from gputrace.render import units
from gputrace.render.screen import Colors, Screen
from gputrace.render.text_parts import as_text, hanging, title

_MOST_HOSTS, _MOST_OUTLIERS, _MOST_TRENDS, _MOST_FAILURES = 20, 10, 8, 20
_STYLES = {"rising": "caution", "falling": "good", "more": "caution", "less": "good"}


@dataclass(frozen=True)
class FleetTextRenderer:
    """Width and colour are given, so that the same fleet always reads the same."""

    width: int = 80
    colors: Colors = "none"
    ascii: bool = False
    extension: str = "txt"

    def render(self, fleet: Fleet) -> str:
        """The fleet as text, ANSI codes only with `colors`."""
        return as_text(_parts(_printable(fleet)), Screen(self.width, self.colors, self.ascii))


def _printable(fleet: Fleet) -> Fleet:
    """The fleet with names that do nothing to a terminal, in its frames too."""
    frames: dict[str, Any] = {
        field.name: frame.with_columns(pl.col(pl.String).map_elements(printable, return_dtype=pl.String))
        for field in fields(fleet)
        if isinstance(frame := getattr(fleet, field.name), pl.DataFrame)
    }
    return replace(printable_values(fleet), **frames)


def _parts(fleet: Fleet) -> Iterator[RenderableType]:
    yield Text(fleet.headline, style="bold")
    yield ""
    yield Text(_extent(fleet))
    yield ""
    yield from _causes(fleet)
    yield from _ranking(fleet, fleet.hosts, "Hosts")
    if fleet.gpus.height > fleet.hosts.height:
        yield from _ranking(fleet, fleet.gpus, "GPUs")
    yield from _outliers(fleet)
    yield from _trends(fleet)
    yield from _deploy(fleet)
    yield from _failures(fleet)
    for notice in fleet.notices:
        yield hanging("!", f"{notice.count:,}: {notice.text}")


def _extent(fleet: Fleet) -> str:
    days = fleet.daily["day"]
    when = f", {days[0]} to {days[-1]} (UTC)" if days.len() > 1 else f", {days[0]} (UTC)" if days.len() else ""
    failed = len(fleet.failures)
    rest = f", {failed:,} failed (listed below)" if failed else ""
    return f"{len(fleet.captures):,} capture{'s' * (len(fleet.captures) != 1)}{rest}{when}"


def _table(*columns: tuple[str, str]) -> Table:
    """Columns as (heading, kind): n numbers, name what may be cut where it is too long, wrap what may wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, kind in columns:
        table.add_column(
            name,
            justify="right" if kind == "n" else "left",
            no_wrap=kind not in ("name", "wrap"),
            overflow="ellipsis" if kind == "name" else "fold",
        )
    return table


def _indented(table: Table) -> Padding:
    return Padding(table, (0, 0, 0, 2))


def _causes(fleet: Fleet) -> Iterator[RenderableType]:
    if fleet.causes.is_empty():
        return
    yield title("Lost GPU seconds by cause")
    table = _table(
        ("cause", ""), ("lost", "n"), ("", "n"), ("main on", "n"), ("most on", "name"), ("GPU", "n"), ("of window", "n")
    )
    for row in fleet.causes.iter_rows(named=True):
        table.add_row(
            row["cause"],
            units.seconds(row["lost_s"]),
            units.share(row["share_of_lost"]),
            f"{row['hosts_main']:,}" if row["hosts_main"] else "",
            row["worst_host"],
            str(row["worst_gpu"]),
            units.share(row["worst_share_of_window"]),
        )
    yield _indented(table)
    yield Text("  main on: hosts whose main cause it is; most on: the GPU that lost most to it", style="dim")
    yield ""


def _ranking(fleet: Fleet, rows: pl.DataFrame, what: str) -> Iterator[RenderableType]:
    if rows.is_empty():
        return
    yield title(f"{what} by lost seconds")
    of_gpus = "gpu" in rows.columns
    second = "GPU" if of_gpus else "GPUs"
    table = _table(
        ("host", "name"), (second, "n"), ("lost", "n"), ("share", "n"), ("a call", "n"), ("main cause", ""),
        ("", "n"),
    )  # fmt: skip
    for row in rows.head(_MOST_HOSTS).iter_rows(named=True):
        cause = row["main_cause"] or (f"{row['largest']}?" if row["largest"] else "none")
        table.add_row(
            row["host"],
            str(row["gpu"] if of_gpus else row["gpus"]),
            units.seconds(row["lost_s"]),
            units.share(row["lost_share"]),
            units.seconds(row["lost_per_call_s"]),
            cause,
            units.share(row["main_cause_s"] / row["lost_s"]) if row["main_cause_s"] and row["lost_s"] else "",
        )
    yield _indented(table)
    if rows["main_cause"].head(_MOST_HOSTS).null_count():
        yield Text("  ?: undetermined; what it looks like, its captures do not support", style="dim")
    if rows.height > _MOST_HOSTS:
        yield Text(f"  and {rows.height - _MOST_HOSTS:,} more in --html, --json and --tables", style="dim")
    yield ""


def _outliers(fleet: Fleet) -> Iterator[RenderableType]:
    together = words.by_gpu(fleet.outliers)
    if not together:
        judged = fleet.gpus.height >= MIN_GPUS and not any(n.code == "outliers-few-gpus" for n in fleet.notices)
        if judged:
            yield title("Outliers")
            yield Text("  none: no GPU is far from the comparable ones")
            yield ""
        return
    yield title("Outliers among comparable GPUs")
    table = _table(
        ("host", "name"), ("GPU", "n"), ("measure", ""), ("share", "n"), ("median", "n"), ("beyond it", "n"),
        ("z", "n"),
    )  # fmt: skip
    for own in together[:_MOST_OUTLIERS]:
        first = own[0]
        table.add_row(
            first.host,
            str(first.gpu),
            words.measure_name(first.measure) + (f" (+{len(own) - 1})" if len(own) > 1 else ""),
            units.share(first.value),
            units.share(first.median),
            units.signed_seconds(first.excess_s),
            words.score(first.z),
        )
    yield _indented(table)
    rest = f"; and on {len(together) - _MOST_OUTLIERS:,} more" if len(together) > _MOST_OUTLIERS else ""
    cuts = sorted({f"{outlier.cut:.1f}" for outlier in fleet.outliers})
    yield Text(f"  modified z scores (median, MAD) beyond {' or '.join(cuts)}{rest}", style="dim")
    yield ""


def _trends(fleet: Fleet) -> Iterator[RenderableType]:
    if fleet.daily.height < 2:
        return
    yield title("Trends by day")
    fleet_wide = [trend for trend in fleet.trends if trend.host is None]
    if all(trend.slope is None for trend in fleet_wide):
        yield Text(f"  undetermined: {fleet_wide[0].why}" if fleet_wide else "  undetermined")
        yield ""
        return
    told = words.told_trends(fleet.trends)
    table = _table(("of", "name"), ("measure", ""), ("verdict", ""), ("slope (95 %)", "wrap"))
    for trend in told[: len(fleet_wide) + _MOST_TRENDS]:
        table.add_row(
            trend.host or "all hosts",
            words.measure_name(trend.measure),
            Text(trend.verdict, style=_STYLES.get(trend.verdict, "") if trend.measure != "calls_per_s" else ""),
            words.slope(trend),
        )
    yield _indented(table)
    if len(told) > len(fleet_wide) + _MOST_TRENDS:
        yield Text(f"  and {len(told) - len(fleet_wide) - _MOST_TRENDS:,} more of single hosts", style="dim")
    yield ""


def _deploy(fleet: Fleet) -> Iterator[RenderableType]:
    if fleet.deploy is None:
        return
    yield title("The change after the deploy")
    yield Padding(Text(words.deploy_in_words(fleet)), (0, 0, 0, 2))
    changes = fleet.deploy.changes
    if all(change.difference is None for change in changes):
        yield Text(f"  undetermined: {changes[0].why}")
        yield ""
        return
    table = _table(("measure", ""), ("before", "n"), ("after", "n"), ("verdict", ""), ("difference (95 %)", "wrap"))
    for change in changes:
        table.add_row(
            words.measure_name(change.measure),
            words.level(change.measure, change.before),
            words.level(change.measure, change.after),
            Text(change.verdict, style=_STYLES.get(change.verdict, "") if change.measure != "calls_per_s" else ""),
            words.difference(change),
        )
    yield _indented(table)
    yield Text("  medians of hosts; the middle of their own differences", style="dim")
    yield ""


def _failures(fleet: Fleet) -> Iterator[RenderableType]:
    if not fleet.failures:
        return
    yield title("Failed captures")
    names = words.short_names(fleet)
    for failure in fleet.failures[:_MOST_FAILURES]:
        reason = failure.reason.removeprefix(f"{failure.capture}: ")
        yield hanging("!", f"{names[failure.capture]}: {reason} ({failure.kind})")
    if len(fleet.failures) > _MOST_FAILURES:
        yield Text(f"  and {len(fleet.failures) - _MOST_FAILURES:,} more in --json", style="dim")
    yield ""
