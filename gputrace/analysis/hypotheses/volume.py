"""What the log says that a call copies, against what was measured."""

from dataclasses import dataclass

import polars as pl

from gputrace.analysis.diagnosis import Evidence
from gputrace.analysis.evidence import Cited, cited
from gputrace.analysis.hypotheses.case import Case

_GIB = float(1 << 30)
# a, b and c, 32 bytes a constraint each.
_BYTES_PER_CONSTRAINT = 96.0
# The fits find 95-100 % of known sizes (docs/definitions.md).
_TOLERANCE = 0.1


@dataclass(frozen=True)
class Belief:
    """What the log says of a call's a/b/c: payload bytes by job and partition, where it says that, and its median."""

    by_partition: pl.DataFrame
    median_bytes: float
    source: str
    cited: Cited


def believed(case: Case) -> Belief | None:
    """The log's word, most direct first: constraints of the synthesis, buffer asked for, buffer of the pool."""
    for event, key, factor, source in (
        ("capacity_hint", "num_constraints", _BYTES_PER_CONSTRAINT, "num_constraints x 96 B"),
        ("pinned_attempt", "buf_gib", 3 * _GIB, "3 x buf_gib"),
        ("pinned_reuse", "size_gib", 3 * _GIB, "3 buffers of size_gib"),
        ("pinned_alloc", "size_gib", 3 * _GIB, "3 buffers of size_gib"),
    ):
        found = case.numbers(event, key).with_columns(pl.col("value") * factor)
        if found.height:
            keyed = found.drop_nulls(["job", "partition"]).group_by("job", "partition").agg(pl.col("value").last())
            return Belief(keyed, float(found["value"].median()), source, cited(found.head(2)))  # type: ignore[arg-type]
    return None


def volume_evidence(case: Case) -> list[Evidence]:
    """Whether the log's belief and the measured volume agree; nothing where either is missing."""
    belief = believed(case)
    measured = _measured(case)
    if belief is None or measured.is_empty():
        return []
    told = measured.join(belief.by_partition, on=["job", "partition"], how="left").with_columns(
        (pl.col("value").fill_null(belief.median_bytes) * pl.col("num_circuits").fill_null(1)).alias("told")
    )
    ratio = float((told["bytes"] / told["told"]).median() or 0.0)  # type: ignore[arg-type]
    said, seen = float(told["told"].median() or 0.0), float(told["bytes"].median() or 0.0)  # type: ignore[arg-type]
    agree = abs(ratio - 1.0) <= _TOLERANCE
    verdict = "they agree" if agree else f"they do not: {ratio:.2f} of what the log says, so one of the two is wrong"
    return [
        Evidence(
            f"the log says {said / 1e9:.2f} GB a call ({belief.source}), the trace {seen / 1e9:.2f} GB (medians): "
            f"{verdict}",
            ratio,
            "ratio",
            agree,
            *belief.cited,
        )
    ]


def _measured(case: Case) -> pl.DataFrame:
    """call, job, partition, num_circuits, bytes of a/b/c copied: in ntt_kernels, from pinned memory in the sync."""
    if not case.has_trace or case.rx_is_dead:
        return pl.DataFrame()
    instances = pl.concat([moved.instances for moved in case.moved])
    pageable = (pl.col("mode") == "in-ntt") & (pl.col("name") == "ntt_kernels")
    pinned = (pl.col("mode") == "in-sync") & (pl.col("name") == "coset_intt_sync")
    copied = instances.filter((pageable | pinned) & ~pl.col("bursting") & (pl.col("rx_payload_bytes") > 0))
    calls = case.trace.calls.filter("complete").select("call", "job", "partition", "num_circuits")
    return copied.select("call", pl.col("rx_payload_bytes").alias("bytes")).join(calls, on="call")
