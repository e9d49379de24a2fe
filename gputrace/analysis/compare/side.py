"""One side of a comparison: its calls, or only its summary where a saved report lists no calls."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from gputrace.analysis.compare.figures import DURATION_STATISTICS, Figure
from gputrace.analysis.compare.per_call import LOST, duration_column, per_call
from gputrace.analysis.compare.resampling import Estimate, Floats, estimate
from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis
from gputrace.errors import UsageError
from gputrace.trace import Trace


@dataclass(frozen=True)
class Span:
    """A regime of one side, numbered from 1 in order of time. Times are null in a report without a clock."""

    number: int
    label: str
    start_ns: int | None
    end_ns: int | None
    calls: int
    phase_medians_ms: Mapping[str, float]


@dataclass(frozen=True)
class Side:
    """What is compared of one run.

    `calls`: the frame of `per_call`, empty if only `summary` (figure name to value, warm-up calls included) is known.
    `why_summary` says why. `known_causes` is whether lost seconds are charged to causes at all.
    """

    name: str
    calls: pl.DataFrame
    summary: Mapping[str, float] = field(default_factory=dict)
    regimes: tuple[Span, ...] = ()
    gpu_names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    compute_source: str | None = None
    known_causes: bool = True
    why_summary: str = ""
    resamples: int = 1000

    @cached_property
    def steady(self) -> pl.DataFrame:
        """The calls that figures are made of: without warm-up."""
        return self.calls.filter(~pl.col("warmup")) if self.calls.height else self.calls

    @property
    def complete_count(self) -> int:
        """Complete calls that are not warm-up: those whose durations are compared."""
        return int(self.steady["complete"].sum()) if self.steady.height else 0

    @property
    def warmup_count(self) -> int:
        """Calls that are left out because they warm up."""
        return self.calls.height - self.steady.height

    @property
    def ntt_share(self) -> float | None:
        """ntt_kernels as a share of ntt_kernels + coset_intt_sync, by their medians: where the copy of a/b/c runs."""
        parts = [self.value(f"{duration_column(name)}.median") for name in ("ntt_kernels", "coset_intt_sync")]
        if parts[0] is None or parts[1] is None or parts[0] + parts[1] <= 0:
            return None
        return parts[0] / (parts[0] + parts[1])

    @cached_property
    def _vectors(self) -> dict[str, Floats]:
        """Every number of the steady calls as floats, nan where unknown."""
        known = self.steady.select(pl.col(pl.Float64))
        return {name: known[name].fill_null(math.nan).to_numpy() for name in known.columns}

    @cached_property
    def lost_s_per_call(self) -> float:
        """Lost seconds per call, all causes together; 0 where unknown."""
        lost = self._lost("")
        if lost is None or not len(lost):
            return self.summary.get("lost_s_per_call", 0.0)
        return float(np.nan_to_num(lost).mean())

    def value(self, name: str) -> float | None:
        """A median or p95 of a duration, from calls where there are some, else from the summary."""
        column, _, statistic = name.partition(".")
        if column not in self._vectors:
            return self.summary.get(name)
        known = self._vectors[column][~np.isnan(self._vectors[column])]
        return float(np.quantile(known, {"median": 0.5, "p95": 0.95}[statistic])) if len(known) else None

    def estimate(self, figure: Figure) -> Estimate | None:
        """The figure with its uncertainty, from the calls; None where these calls do not show it."""
        vectors = self._vectors
        if not self.steady.height:
            return None
        if figure.kind == "count":
            count = self.calls.height if figure.name == "calls" else int(self.calls["failed"].sum())
            return Estimate(float(count), calls=self.calls.height)
        lost = figure.column.startswith(LOST)
        values = self._lost(figure.column.removeprefix(LOST)) if lost else vectors.get(figure.column)
        window = vectors.get("window_s") if figure.kind == "share" else None
        if values is None or (figure.kind == "share" and window is None):
            return None
        known = ~np.isnan(values) if window is None else ~np.isnan(values + window)
        if not known.any():
            return None
        if figure.kind == "rate":
            return estimate(figure, np.ones(int(known.sum())), values[known], self.resamples)
        return estimate(figure, values[known], None if window is None else window[known], self.resamples)

    def _lost(self, cause: str) -> Floats | None:
        """Lost seconds of each call by a cause, by all if it is ""; a cause that nothing is charged to is 0."""
        vectors = self._vectors
        if not self.known_causes or "window_s" not in vectors:
            return None
        zero = np.where(np.isnan(vectors["window_s"]), math.nan, 0.0)
        wanted = [name for name in vectors if name.startswith(LOST) and cause in ("", name.removeprefix(LOST))]
        return np.asarray(sum((vectors[name] for name in wanted), zero))

    def from_summary(self, figure: Figure) -> Estimate | None:
        """The figure as the report gave it, without uncertainty; None where it did not."""
        value = self.summary.get(figure.name)
        if value is None and figure.name.partition(".")[0] in self.summary:
            # Reports list only the causes that something was charged to.
            return Estimate(0.0)
        return None if value is None else Estimate(value)

    def only(self, chosen: tuple[Span, ...]) -> "Side":
        """This side in some of its regimes: the calls whose lock lies in one of them."""
        label = ", ".join(dict.fromkeys(span.label for span in chosen))
        inside = pl.any_horizontal(
            [(pl.col("lock_ns") >= span.start_ns) & (pl.col("lock_ns") < span.end_ns) for span in chosen]
        ).fill_null(False)
        summary = {}
        if len(chosen) == 1:
            summary = {f"{duration_column(k)}.median": v for k, v in chosen[0].phase_medians_ms.items()}
        return replace(
            self,
            name=f"{self.name} ({label})",
            calls=self.calls.filter(inside) if self.calls.height else self.calls,
            summary=summary,
            regimes=(),
        )

    def spans(self, wanted: str, which: str) -> tuple[Span, ...]:
        """The regimes with that label or number. Raises `UsageError` where there is none."""
        if not self.regimes:
            raise UsageError(f"--regime {wanted}: {which} has no regimes; compare without --regime")
        found = tuple(span for span in self.regimes if wanted in (span.label, str(span.number)))
        if not found:
            known = ", ".join(f"{span.number} ({span.label})" for span in self.regimes)
            raise UsageError(f"--regime {wanted}: {which} has no such regime; it has {known}")
        return found


def estimates(figure: Figure, before: Side, after: Side) -> tuple[Estimate | None, Estimate | None, str]:
    """The figure on both sides from the same kind of source: calls if both list them, else both summaries.

    Third, why there is no interval, if there is none for that reason.
    """
    b, a = before.estimate(figure), after.estimate(figure)
    if b is not None and a is not None:
        return b, a, ""
    lacking = before if b is None else after
    summaries = before.from_summary(figure), after.from_summary(figure)
    if None in summaries:
        # Nothing better: what the one side's calls show, beside what the other's summary has.
        return b or summaries[0], a or summaries[1], ""
    return *summaries, f"no interval: {lacking.name}: {lacking.why_summary or 'no single calls'}"


def side_of_trace(trace: Trace, name: str, diagnosis: Diagnosis | None = None) -> Side:
    """The side of a trace; `diagnosis` spares making it again."""
    found = diagnosis or diagnose(trace, scenarios=())
    return Side(
        name,
        per_call(trace, found),
        summary_of(
            [asdict(phase) for phase in found.phases],
            [asdict(gpu) for gpu in found.gpus],
            asdict(found.calls),
            {c.cause: c.total_s for c in found.gaps.by_cause},
        ),
        tuple(
            Span(n, r.label, r.start_ns, r.end_ns, r.calls, r.phase_medians_ms) for n, r in enumerate(found.regimes, 1)
        ),
        tuple(sorted({gpu.name for gpu in found.gpus if gpu.name})),
        tuple(sorted({job.kind for job in found.jobs if job.kind})),
        source_of(gpu.state_source for gpu in found.gpus),
        known_causes=found.states.height > 0,
    )


def source_of(sources: Any) -> str | None:
    """Where the account is from, in one phrase."""
    return ", ".join(sorted({source for source in sources if source})) or None


def summary_of(
    phases: list[dict[str, Any]], gpus: list[dict[str, Any]], calls: dict[str, Any], lost: dict[str, float]
) -> dict[str, float]:
    """The report's own figures by name. Shares are means over GPUs, lost seconds per call are by complete calls."""
    found: dict[str, float | None] = {
        "calls_per_s": calls["per_s"],
        "calls": calls["count"],
        "failed_calls": calls["failed"],
    }
    for phase in phases:
        column = duration_column(phase["name"])
        found |= {f"{column}.{statistic}": phase[f"{statistic}_ms"] for statistic in DURATION_STATISTICS}
    for name in ("compute_share", "copy_only_share", "idle_share", "mutex_held_share"):
        known = [gpu[name] for gpu in gpus if gpu[name] is not None]
        found[name] = sum(known) / len(known) if known else None
    parts = [found.get(f"{name}_ms.mean") for name in ("ntt_kernels", "coset_intt_sync")]
    if parts[0] is not None and parts[1] is not None:
        found["ntt_plus_coset_ms.mean"] = parts[0] + parts[1]
    complete = calls["complete"]
    for cause, seconds in [("", sum(lost.values())), *lost.items()] if lost else []:
        detail = f".{cause}" if cause else ""
        found[f"lost_s{detail}"] = seconds
        found[f"lost_s_per_call{detail}"] = seconds / complete if complete else None
    return {name: float(value) for name, value in found.items() if value is not None}
