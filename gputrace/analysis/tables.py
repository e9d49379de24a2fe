"""Findings as frames: one row a finding, documented columns, for questions that no report asks."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import reduce
from typing import Any, overload

import polars as pl

from gputrace.schema import DIAGNOSIS_FRAMES, Column, FrameSchema

_TEXT, _INT, _FLOAT, _BOOL = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()
_BY_NAME = pl.List(pl.Struct({"key": _TEXT, "value": _FLOAT}))

GPUS = FrameSchema(
    "gpu_table",
    "the GPUs of a diagnosis: link, and the account of the window",
    {
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "name": Column(_TEXT, "its name"),
        "link_gen": Column(_INT, "PCIe generation"),
        "link_width": Column(_INT, "PCIe lanes"),
        "link_limit_bytes_per_s": Column(_FLOAT, "the link's raw rate one way"),
        "line_rate_bytes_per_s": Column(_FLOAT, "the highest payload rate that the run sustained"),
        "line_rate_from": Column(_TEXT, "the phase whose fit shows it, or sample"),
        "compute_share": Column(_FLOAT, "share of the window, 0..1; the three shares add up to 1"),
        "copy_only_share": Column(_FLOAT, "share of the window in which it only copied"),
        "idle_share": Column(_FLOAT, "share of the window in which it did nothing"),
        "mutex_held_share": Column(_FLOAT, "share of the window in which the GPU mutex was held"),
        "rx_payload_bytes": Column(_FLOAT, "payload into the GPU in the window"),
        "tx_payload_bytes": Column(_FLOAT, "payload out of it"),
        "state_source": Column(_TEXT, "where SM activity comes from"),
    },
)
CAUSES = FrameSchema(
    "cause_table",
    "GPU seconds of the window lost to each cause; they add up to all lost seconds",
    {
        "cause": Column(_TEXT, "hypothesis id, or unexplained"),
        "total_s": Column(_FLOAT, "seconds charged to it"),
        "share": Column(_FLOAT, "of all lost seconds, 0..1"),
        "copy_only_s": Column(_FLOAT, "of them while a copy ran"),
        "idle_s": Column(_FLOAT, "of them while nothing ran"),
    },
)
GAPS = FrameSchema(
    "gap_table",
    "stretches with little compute, longer than `gap_ms`",
    {
        "gpu": Column(_INT, "GPU as the prover numbers it"),
        "start_ns": Column(_INT, "start"),
        "end_ns": Column(_INT, "end"),
        "duration_ms": Column(_FLOAT, "length"),
        "state": Column(_TEXT, "copy-only or idle, whichever is more of it"),
        "cause": Column(_TEXT, "what most of its lost seconds are charged to"),
        "phase": Column(_TEXT, "where the log shows it"),
        "call": Column(_INT, "the call of that phase"),
        "rx_bytes_per_s": Column(_FLOAT, "payload into the GPU during it, bytes per second"),
        "causes": Column(_BY_NAME, "lost seconds by each cause"),
    },
)
PHASES = FrameSchema(
    "phase_table",
    "kinds of phases over all complete calls",
    {
        "name": Column(_TEXT, "phase name"),
        "contains_others": Column(_BOOL, "it is a sum of other phases"),
        "count": Column(_INT, "how many were seen"),
        "min_ms": Column(_FLOAT, "shortest"),
        "p5_ms": Column(_FLOAT, "5th percentile"),
        "median_ms": Column(_FLOAT, "median"),
        "mean_ms": Column(_FLOAT, "mean"),
        "p95_ms": Column(_FLOAT, "95th percentile"),
        "max_ms": Column(_FLOAT, "longest"),
        "phase_class": Column(_TEXT, "constant, variable, negligible or insufficient"),
        "class_reason": Column(_TEXT, "why it is that class"),
        "under_mutex": Column(_BOOL, "the GPU mutex is held during it"),
        "share_of_mutex_held": Column(_FLOAT, "its share of all time under the mutex, 0..1"),
        "rx_bytes_per_s_p10": Column(_FLOAT, "payload into the GPU, 10th percentile over calls"),
        "rx_bytes_per_s_median": Column(_FLOAT, "median over calls"),
        "rx_bytes_per_s_p90": Column(_FLOAT, "90th percentile over calls"),
        "rx_bytes_per_call_median": Column(_FLOAT, "payload into the GPU in one of them"),
        "rx_method": Column(_TEXT, "overlap or fit, as in call_bytes"),
        "sm_share_median": Column(_FLOAT, "share of it with SMs active, 0..1"),
        "transfer": Column(_TEXT, "line-rate, staged, mixed, none or unknown"),
        "drivers": Column(
            pl.List(pl.Struct({"name": _TEXT, "spearman": _FLOAT, "p_value": _FLOAT, "n": _INT})),
            "what its durations go with: Spearman's rank correlation over n calls",
        ),
    },
)
VERDICTS = FrameSchema(
    "verdict_table",
    "candidate explanations, each with its verdict and what speaks for and against it",
    {
        "id": Column(_TEXT, "hypothesis id"),
        "title": Column(_TEXT, "the same in words"),
        "verdict": Column(_TEXT, "supported, refuted or undetermined"),
        "confidence": Column(_FLOAT, "0..1"),
        "lost_s": Column(_FLOAT, "seconds charged to it; null unless it is supported"),
        "recoverable_s": Column(_FLOAT, "seconds that removing it would save, as predicted"),
        "stretched_s": Column(_FLOAT, "seconds by which it made phases longer; never to be added to lost_s"),
        "main_reason": Column(_TEXT, "why it is not supported, in a line"),
        "knob": Column(_TEXT, "what acts on it, and the risk of that"),
        "next_step": Column(_TEXT, "what to measure where it is undetermined"),
        "changes_mind": Column(_TEXT, "what would overturn the verdict"),
        "evidence": Column(
            pl.List(
                pl.Struct(
                    {
                        "text": _TEXT,
                        "value": _FLOAT,
                        "unit": _TEXT,
                        "supports": _BOOL,
                        "lines": pl.List(pl.UInt32()),
                        "sources": pl.List(pl.UInt16()),
                    }
                )
            ),
            "each statement with its number, log lines and their inputs; explode and unnest it for one row each",
        ),
    },
)
VARIATIONS = FrameSchema(
    "variation_table",
    "what the headline's stability rests on: each threshold halved and doubled",
    {
        "threshold": Column(_TEXT, "which threshold, as `Thresholds` names it"),
        "usual": Column(_FLOAT, "what it is"),
        "value": Column(_FLOAT, "what it was tried at"),
        "main_cause": Column(_TEXT, "the supported cause that lost most then"),
        "share": Column(_FLOAT, "its part of the lost seconds, 0..1"),
        "same": Column(_BOOL, "it is the headline's cause"),
    },
)
REGIMES = FrameSchema(
    "regime_table",
    "stretches of the run in which phases behave alike",
    {
        "label": Column(_TEXT, "what it is"),
        "start_ns": Column(_INT, "start"),
        "end_ns": Column(_INT, "end"),
        "duration_s": Column(_FLOAT, "length"),
        "calls": Column(_INT, "complete calls in it"),
        "lost_s": Column(_FLOAT, "GPU seconds lost in it"),
        "main_cause": Column(_TEXT, "the supported cause that lost most in it"),
        "bistable": Column(_BOOL, "its calls take turns between two lengths"),
        "reason": Column(_TEXT, "what changed where it begins"),
        "phase_medians_ms": Column(_BY_NAME, "median of each phase in it"),
    },
)
WHAT_IF = FrameSchema(
    "what_if_table",
    "what changes to the pipeline are predicted to do, with intervals",
    {
        "scenario": Column(_TEXT, "the change, as it is asked for"),
        "title": Column(_TEXT, "the same in words"),
        "calls_per_s_now": Column(_FLOAT, "calls a second, measured"),
        "calls_per_s_replay": Column(_FLOAT, "the model on the run unchanged"),
        "calls_per_s_predicted": Column(_FLOAT, "with the change"),
        "calls_per_s_low": Column(_FLOAT, "low end of the interval"),
        "calls_per_s_high": Column(_FLOAT, "high end"),
        "mutex_held_ms_median_now": Column(_FLOAT, "median hold of the mutex, measured"),
        "mutex_held_ms_median_predicted": Column(_FLOAT, "with the change"),
        "compute_share_now": Column(_FLOAT, "share of the time with SMs active, measured, 0..1"),
        "compute_share_predicted": Column(_FLOAT, "with the change"),
        "saved_s": Column(_FLOAT, "seconds by which these same calls would be done sooner; negative: later"),
        "saved_s_low": Column(_FLOAT, "low end of the interval"),
        "saved_s_high": Column(_FLOAT, "high end"),
        "gains": Column(_BOOL, "the interval of saved_s leaves 0 out; null where it does not"),
        "limited_by": Column(_TEXT, "what sets the rate then"),
        "level": Column(_FLOAT, "what the intervals are meant to cover, 0..1"),
        "notes": Column(pl.List(_TEXT), "what the prediction leans on"),
    },
)
BOUNDS = FrameSchema(
    "bound_table",
    "the most calls a second that each resource could sustain",
    {
        "resource": Column(_TEXT, "mutex, cpp-pool, synthesis, pcie or worker-loop"),
        "servers": Column(_FLOAT, "how many work at once"),
        "service_ms": Column(_FLOAT, "mean time that one call takes of one of them"),
        "busy_share": Column(_FLOAT, "share of them busy in the window, 0..1"),
        "max_calls_per_s": Column(_FLOAT, "calls a second at most"),
        "what": Column(_TEXT, "the same in words"),
    },
)
JOBS = FrameSchema(
    "job_table",
    "jobs with the seconds of their stages",
    {
        "job": Column(_TEXT, "job id"),
        "kind": Column(_TEXT, "proof kind"),
        "partitions": Column(_INT, "partitions of the job"),
        "done": Column(_INT, "of them proved"),
        "queue_s": Column(_FLOAT, "waiting to begin"),
        "synth_s": Column(_FLOAT, "synthesis"),
        "gpu_s": Column(_FLOAT, "on the GPU"),
        "finalise_s": Column(_FLOAT, "finalising"),
        "total_s": Column(_FLOAT, "all of it"),
    },
)
CHANGES = FrameSchema(
    "change_table",
    "figures of two runs, each with its difference and verdict (`Comparison.change_table`)",
    {
        "name": Column(_TEXT, "figure, as gates name it"),
        "title": Column(_TEXT, "the same in words"),
        "unit": Column(_TEXT, "ms, s, 1/s, share, or empty for a count"),
        "before": Column(_FLOAT, "value before"),
        "after": Column(_FLOAT, "value after"),
        "difference": Column(_FLOAT, "after less before"),
        "difference_low": Column(_FLOAT, "low end of its 95 % interval"),
        "difference_high": Column(_FLOAT, "high end"),
        "relative": Column(_FLOAT, "difference by the value before"),
        "relative_low": Column(_FLOAT, "low end of its 95 % interval"),
        "relative_high": Column(_FLOAT, "high end"),
        "verdict": Column(_TEXT, "changed, small, not-shown or undetermined"),
        "improved": Column(_BOOL, "the difference is for the better; null where that depends"),
        "p_value": Column(_FLOAT, "of this figure alone"),
        "adjusted_p": Column(_FLOAT, "corrected over all figures"),
        "detectable": Column(_FLOAT, "smallest change that these runs would have shown, four times of five"),
        "why": Column(_TEXT, "why it is undetermined"),
    },
)
# What a diagnosis gives; a comparison has one of its own.
DIAGNOSIS_TABLES = (GPUS, CAUSES, GAPS, PHASES, VERDICTS, VARIATIONS, REGIMES, WHAT_IF, BOUNDS, JOBS)
TABLES = (*DIAGNOSIS_TABLES, CHANGES)


def table(findings: Iterable[Any], schema: FrameSchema) -> pl.DataFrame:
    """Findings (data classes) as a frame of this schema, one row each.

    A column takes the attribute of its name, or for `a_b` the part `b` of the attribute `a`. Parts in tuples become
    lists of structs, a mapping a list of key and value.
    """
    rows = [{name: _plain(_value(finding, name)) for name in schema.columns} for finding in findings]
    return pl.DataFrame(rows, schema=schema.polars())


class Table:
    """Attribute of a class with findings: those in `path` as a frame of `schema`, made when it is asked for."""

    def __init__(self, path: str, schema: FrameSchema) -> None:
        self.path, self.schema = path, schema
        self.__doc__ = f"{schema.meaning[0].upper()}{schema.meaning[1:]}. Columns: {', '.join(schema.columns)}."

    @overload
    def __get__(self, owner: None, _type: type) -> "Table": ...
    @overload
    def __get__(self, owner: object, _type: type) -> pl.DataFrame: ...
    def __get__(self, owner: object | None, _type: type) -> "Table | pl.DataFrame":
        if owner is None:
            return self
        findings: Any = reduce(getattr, self.path.split("."), owner)
        return table(findings, self.schema)


class DiagnosisTables:
    """The findings of a diagnosis as polars frames; their columns are in the data dictionary."""

    gpu_table = Table("gpus", GPUS)
    cause_table = Table("gaps.by_cause", CAUSES)
    gap_table = Table("gaps.list", GAPS)
    phase_table = Table("phases", PHASES)
    verdict_table = Table("hypotheses", VERDICTS)
    variation_table = Table("variations", VARIATIONS)
    regime_table = Table("regimes", REGIMES)
    what_if_table = Table("what_if", WHAT_IF)
    bound_table = Table("bounds", BOUNDS)
    job_table = Table("jobs", JOBS)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Every frame and table of the diagnosis by its name."""
        own = [schema.name for schema in DIAGNOSIS_FRAMES]
        tables = [name for name, value in vars(DiagnosisTables).items() if isinstance(value, Table)]
        return {name: getattr(self, name) for name in (*own, *tables)}


def _value(of: Any, name: str) -> Any:
    if of is None or isinstance(of, Mapping):
        return (of or {}).get(name)
    if hasattr(of, name):
        return getattr(of, name)
    outer = next(field.name for field in fields(of) if name.startswith(f"{field.name}_"))
    return _value(getattr(of, outer), name.removeprefix(f"{outer}_"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [{"key": key, "value": number} for key, number in value.items()]
    if isinstance(value, tuple):
        return [asdict(item) if is_dataclass(item) and not isinstance(item, type) else item for item in value]
    return value
