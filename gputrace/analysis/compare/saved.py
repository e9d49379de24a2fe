"""The side of a comparison that a saved JSON report is."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from gputrace.analysis.compare.per_call import ACCOUNT, LOST, duration_column, order_calls, with_sum
from gputrace.analysis.compare.side import Side, Span, source_of, summary_of
from gputrace.errors import InputError

_NO_CALLS = "its saved report lists no calls (write it with --calls)"


def side_of_report(report: Mapping[str, Any], name: str) -> Side:
    """The side of a saved JSON report. Raises `InputError` where it lacks what every report has."""
    try:
        calls = _listed_calls(report["calls_list"]) if report.get("calls_list") else pl.DataFrame()
        gpus = report["gpus"]
        return Side(
            name,
            calls,
            summary_of(
                report["phases"],
                gpus,
                report["calls"],
                {cause["cause"]: cause["total_s"] for cause in report["gaps"]["by_cause"]},
            ),
            tuple(
                Span(n, r["label"], r["start_ns"], r["end_ns"], r["calls"], r["phase_medians_ms"])
                for n, r in enumerate(report["regimes"], 1)
            ),
            tuple(sorted({gpu["name"] for gpu in gpus if gpu["name"]})),
            tuple(sorted({job["kind"] for job in report["jobs"] if job["kind"]})),
            source_of(gpu["state_source"] for gpu in gpus),
            known_causes=report["gaps"]["total_s"] is not None and any(g["compute_share"] is not None for g in gpus),
            why_summary="" if calls.height else _NO_CALLS,
        )
    except (KeyError, TypeError, AttributeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{name}: not a whole JSON report: {type(error).__name__} at {error}") from error


def _listed_calls(listed: list[dict[str, Any]]) -> pl.DataFrame:
    """The frame of `per_call` from a report's `calls_list`.

    Reports of before `account` and `duration_ms` were written have neither account nor restarts; durations then come
    from the phases' ends.
    """
    rows = []
    for call in listed:
        account = call.get("account") or {}
        row = {key: call[key] for key in ("call", "gpu", "complete", "failed", "warmup", "lock_ns", "unlock_ns")}
        row["restart"] = call.get("restart", 0)
        row |= {name: account.get(name) for name in ACCOUNT}
        row |= {LOST + cause: seconds for cause, seconds in (account.get("lost_s") or {}).items()}
        if call["complete"]:
            row |= {duration_column(name): _length_ms(phase) for name, phase in call["phases"].items()}
        rows.append(row)
    calls = pl.DataFrame(rows, infer_schema_length=None)
    losses = [name for name in calls.columns if name.startswith(LOST)]
    numbers = [name for name in calls.columns if name.endswith("_ms") or name in ACCOUNT or name in losses]
    calls = calls.with_columns(pl.col(numbers).cast(pl.Float64), pl.col("warmup", "failed").fill_null(False))
    known = pl.col("window_s").is_not_null()
    calls = calls.with_columns(pl.when(known).then(pl.col(name).fill_null(0.0)).alias(name) for name in losses)
    calls = order_calls(with_sum(calls))
    if not any("account" in call for call in listed):
        finished = pl.col("complete") & pl.col("unlock_ns").is_not_null()
        since = calls.filter(finished).select(
            "call", (pl.col("unlock_ns").diff().cast(pl.Float64) / 1e9).alias("since_s")
        )
        calls = calls.drop("since_s").join(since, on="call", how="left", maintain_order="left")
    return calls


def _length_ms(phase: dict[str, Any]) -> float | None:
    if phase.get("duration_ms") is not None:
        return float(phase["duration_ms"])
    start, end = phase["start_ns"], phase["end_ns"]
    return None if start is None or end is None else (end - start) / 1e6
