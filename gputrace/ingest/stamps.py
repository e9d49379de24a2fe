"""Stamps of collectors: text to nanoseconds, and what is missing in them (year, zone, trust) from the log itself."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import polars as pl

from gputrace.errors import UsageError
from gputrace.ingest.formats import WrapperFormat

_S_NS = 1_000_000_000
_DAY_NS = 86_400 * _S_NS
_QUARTER_NS = 900 * _S_NS
# Zones lie between UTC-12 and UTC+14.
_ZONE_REACH_NS = 14 * 3600 * _S_NS
# A stamp without a year stands in this one until the year is known: it has a 29 February.
_NO_YEAR = 2000
_YEAR_WRAP_NS = 180 * _DAY_NS
# So many stamps must be whole seconds before seconds are taken for all that they tell.
_MIN_FOR_RESOLUTION = 5
# The rebuild takes stamps as exact to a few ms: where nine in ten steps between two records do not agree with the
# times that the records print themselves to this, the collector stamped whole batches.
_BATCHED_NS = 10_000_000
_MIN_FOR_BATCHED = 10


def stamp_ns(text: pl.Expr, form: str) -> pl.Expr:
    """A stamp as it stands, in nanoseconds; null where it is none. See `wrappers.unwrap` for what may be missing.

    `form` is one of `formats.TIME_FORMS`, or utc: 'YYYY-MM-DDThh:mm:ss.dddZ', which is known to look so.
    """
    if form == "utc":
        return _whole_ns(text.str.slice(0, 19), "%Y-%m-%dT%H:%M:%S") + _part_ns(
            text.str.slice(20).str.strip_suffix("Z")
        )
    if form in ("rfc3339", "local"):
        parts = text.str.extract_groups(
            r"^(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d+))?"
            r"(?:Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))?$"
        )
        moment = pl.concat_str(parts.struct.field("date"), parts.struct.field("time"), separator="T")
        away = parts.struct.field("hours").cast(pl.Int64) * 3600 + parts.struct.field("minutes").cast(pl.Int64) * 60
        away = pl.when(parts.struct.field("sign") == "-").then(-away).otherwise(away).fill_null(0)
        return _whole_ns(moment, "%Y-%m-%dT%H:%M:%S") + _part_ns(parts.struct.field("part")) - away * _S_NS
    if form == "month-day":
        parts = text.str.extract_groups(
            r"^(?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?$"
        )
        words = [parts.struct.field(name) for name in ("month", "day", "time")]
        moment = pl.concat_str(pl.lit(str(_NO_YEAR)), *words, separator=" ")
        return _whole_ns(moment, "%Y %b %d %H:%M:%S") + _part_ns(parts.struct.field("part"))
    if form == "unix-us":
        return text.str.extract(r"^(\d+)$").cast(pl.Int64, strict=False) * 1000
    if form == "unix-ns":
        return text.str.extract(r"^(\d+)$").cast(pl.Int64, strict=False)
    # unix and elapsed: seconds, or hours:minutes:seconds
    parts = text.str.extract_groups(r"^(?:(?P<hours>\d+):(?P<minutes>\d\d):)?(?P<seconds>\d+)(?:\.(?P<part>\d+))?$")
    of = {name: parts.struct.field(name).cast(pl.Int64, strict=False) for name in ("hours", "minutes", "seconds")}
    whole = of["hours"].fill_null(0) * 3600 + of["minutes"].fill_null(0) * 60 + of["seconds"]
    return whole * _S_NS + _part_ns(parts.struct.field("part"))


def _whole_ns(text: pl.Expr, form: str) -> pl.Expr:
    return text.str.to_datetime(form, time_unit="ns", strict=False).cast(pl.Int64)


def _part_ns(decimals: pl.Expr) -> pl.Expr:
    """Decimals of a second as nanoseconds, none as 0."""
    return decimals.str.slice(0, 9).str.pad_end(9, "0").cast(pl.Int64, strict=False).fill_null(0)


@dataclass
class Settled:
    """Marks whose `arrival_ns` is Unix time, how coarse it is, and what had to be assumed: pairs of code and text."""

    marks: pl.DataFrame
    resolution_ns: int = 0
    notices: list[tuple[str, str]] = field(default_factory=list)

    def drop(self, code: str, text: str) -> None:
        """Takes out stamps that must not be believed, and what was assumed to read them."""
        self.marks = self.marks.with_columns(pl.lit(None, pl.Int64).alias("arrival_ns"))
        self.resolution_ns = 0
        self.notices = [(code, text)]


def settle(
    marks: pl.DataFrame, wrapper: WrapperFormat | None, path: str, timezone: str | None, reference_ns: int
) -> Settled:
    """Makes `arrival_ns` of one log's marks, in order of the log, Unix time that can be trusted, or null.

    Where records print UTC themselves, zone and year are those under which the stamps agree with them; else the zone
    is `timezone` or UTC, and the year the latest that lies before `reference_ns`.
    """
    settled = Settled(marks)
    if wrapper is None or not marks["arrival_ns"].count():
        return settled
    if wrapper.time_form == "month-day":
        _find_year(settled, path, reference_ns)
    if wrapper.time_form in ("month-day", "local"):
        _find_zone(settled, path, timezone)
    elif wrapper.time_form == "elapsed":
        _anchor(settled, path)
    stamps = settled.marks["arrival_ns"].drop_nulls()
    if len(stamps) >= _MIN_FOR_RESOLUTION and (stamps % _S_NS == 0).all():
        settled.resolution_ns = _S_NS
    elif len(stamps) and (off_ns := _disagreement_ns(settled.marks)) > _BATCHED_NS:
        settled.drop(
            "arrival-batched",
            f"{path}: the collector's times are up to {off_ns / 1e6:.0f} ms off those in the lines: not used",
        )
    return settled


def _pairs(marks: pl.DataFrame) -> pl.DataFrame:
    return marks.filter(pl.col("log_ns").is_not_null() & pl.col("arrival_ns").is_not_null())


def _find_year(settled: Settled, path: str, reference_ns: int) -> None:
    """Gives stamps of the year 2000 their year; a fall by half a year is a New Year between two records."""
    arrival = pl.col("arrival_ns")
    fell = (arrival - arrival.forward_fill().shift(1)) < -_YEAR_WRAP_NS
    marks = settled.marks.with_columns(fell.fill_null(False).cum_sum().cast(pl.Int32).alias("_years"))
    pairs = _pairs(marks)
    if pairs.height:
        known_ns, stamp, years = pairs.select("log_ns", "arrival_ns", "_years").row(0)
        about = datetime.fromtimestamp(known_ns / 1e9, UTC).year
        fitting = min((about - 1, about, about + 1), key=lambda year: abs(_in_year(stamp, year) - known_ns))
        first_year = fitting - years
    else:
        stamp, years = marks.filter(arrival.is_not_null()).select("arrival_ns", "_years").row(-1)
        latest_ns = reference_ns + _DAY_NS
        last_year = datetime.fromtimestamp(latest_ns / 1e9, UTC).year
        if _in_year(stamp, last_year) > latest_ns:
            last_year -= 1
        first_year = last_year - years
        settled.notices.append(("year-assumed", f"{path}: the times have no year; {last_year} was assumed"))
    moment = arrival.cast(pl.Datetime("ns"))
    day = pl.datetime(first_year + pl.col("_years"), moment.dt.month(), 1, time_unit="ns").cast(pl.Int64)
    in_month = (moment.dt.day().cast(pl.Int64) - 1) * _DAY_NS + arrival % _DAY_NS
    settled.marks = marks.with_columns(
        pl.when(arrival.is_not_null()).then(day + in_month).alias("arrival_ns"),
    ).drop("_years")


def _in_year(stamp_ns: int, year: int) -> int:
    moment = datetime.fromtimestamp(stamp_ns // _S_NS, UTC)
    first = datetime(year, moment.month, 1, tzinfo=UTC)
    return int(first.timestamp()) * _S_NS + (moment.day - 1) * _DAY_NS + stamp_ns % _DAY_NS


def _find_zone(settled: Settled, path: str, timezone: str | None) -> None:
    """Takes the zone's offset off local stamps: a multiple of 15 min, record by record, so that it may change."""
    marks, arrival = settled.marks, pl.col("arrival_ns")
    pairs = _pairs(marks)
    if pairs.height:
        off_ns = pairs["arrival_ns"] - pairs["log_ns"]
        if abs(float(off_ns.median())) > _ZONE_REACH_NS + _QUARTER_NS:  # type: ignore[arg-type]
            settled.drop("arrival-unrelated", f"{path}: the collector's times lie days from those in the lines")
            return
        quarters = ((arrival - pl.col("log_ns")) / _QUARTER_NS).round().cast(pl.Int64)
        zone_ns = (quarters * _QUARTER_NS).forward_fill().backward_fill()
        settled.marks = marks.with_columns((arrival - zone_ns).alias("arrival_ns"))
    elif timezone is not None:
        local = arrival.cast(pl.Datetime("ns"))
        utc = local.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null").cast(pl.Int64)
        settled.marks = marks.with_columns(utc.alias("arrival_ns"))
    else:
        settled.notices.append(
            ("timezone-assumed", f"{path}: the times do not say their time zone; UTC was assumed (--timezone NAME)")
        )


def check_timezone(name: str | None) -> None:
    """Raises `UsageError` where `name` is no time zone."""
    if name is None:
        return
    try:
        pl.Series([0]).cast(pl.Datetime("ns")).dt.replace_time_zone(name)
    except pl.exceptions.ComputeError as error:
        raise UsageError(f"--timezone {name}: no such time zone; names are like Europe/Berlin") from error


def _anchor(settled: Settled, path: str) -> None:
    """Puts times since the collector's start on the clock of the lines that print one; times since the last line
    do not say when."""
    stamps = settled.marks["arrival_ns"].drop_nulls()
    pairs = _pairs(settled.marks)
    if not stamps.is_sorted() or not pairs.height:
        settled.drop("arrival-relative", f"{path}: the collector's times are relative: only the order was used")
        return
    start_ns = int((pairs["log_ns"] - pairs["arrival_ns"]).median())  # type: ignore[arg-type]
    settled.marks = settled.marks.with_columns(pl.col("arrival_ns") + start_ns)


def _disagreement_ns(marks: pl.DataFrame) -> float:
    """How far steps between two records of a kind differ in the stamps and in what the records print (90 %)."""
    steps = []
    for own in (pl.col("log_ns"), pl.col("offset_ms") * 1_000_000):
        timed = marks.select(own.alias("own"), "arrival_ns").drop_nulls()
        steps.append((timed["arrival_ns"].diff() - timed["own"].diff()).abs().drop_nulls())
    found = pl.concat(steps)
    return float(found.quantile(0.9) or 0.0) if len(found) >= _MIN_FOR_BATCHED else 0.0
