"""cudaHostAlloc bursts stall the GPU driver, and with it whatever the GPU thread asks of it."""

import polars as pl

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.evidence import cited
from gputrace.analysis.hypotheses.case import Case, Hypothesis
from gputrace.rows import where, with_values


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if case.bursts.is_empty():
        if not case.has_stdout:
            return case.finding(
                hypothesis, "undetermined", [], "add the prover's stdout: allocations are printed there"
            )
        nothing = Evidence("the log has no 'allocated new buffer' line", 0.0, "buffers", False)
        return case.finding(hypothesis, "refuted", [nothing])
    buffers = int(case.bursts["buffers"].sum())
    span_s = float((case.bursts["end_ns"] - case.bursts["start_ns"]).sum()) / 1e9
    evidence = [
        case.charge_evidence(hypothesis.id),
        Evidence(f"{buffers} pinned buffers were allocated, over {span_s:.0f} s", float(buffers), "buffers", True),
    ]
    stalls = where(case.blame, case.blame["cause"] == hypothesis.id)
    idle_s = float(stalls["idle_s"].sum())
    if case.has_trace:
        evidence.append(
            Evidence(
                f"{idle_s:.1f} s of that without any PCIe traffic, inside phases that copy or launch",
                idle_s,
                "s",
                idle_s > 0.5 * case.charged_s.get(hypothesis.id, 0.0),
            )
        )
    if case.tells:
        evidence += _beside(case)
    after = _lost_after(case) if case.tells else None
    if after is not None:
        during, since = after
        evidence.append(
            Evidence(
                f"outside barrier waits {during:.0%} of GPU time is lost during allocations, {since:.0%} since",
                during - since,
                "share",
                during > since,
            )
        )
    return case.finding(hypothesis, "supported" if case.weighs(hypothesis.id) else "refuted", evidence)


def _beside(case: Case) -> list[Evidence]:
    """The same phase inside and outside allocations, where it is far longer inside."""
    found = []
    bursts = case.bursts.select(pl.col("start_ns").alias("from_ns"), pl.col("end_ns").alias("to_ns"))
    for name in ("d_b_alloc", "msm_invoke"):
        own = with_values(case.trace.named_phases.of(name), "start_ns")
        beside = own.join_where(bursts, pl.col("start_ns") < pl.col("to_ns"), pl.col("end_ns") > pl.col("from_ns"))
        apart = own.filter(~pl.col("call").is_in(beside["call"].implode()))
        if beside.is_empty() or apart.is_empty():
            continue
        most = int(beside["duration_ms"].max() or 0)  # type: ignore[arg-type]
        usual = float(apart["duration_ms"].median() or 0)  # type: ignore[arg-type]
        if most > max(50.0, 1.5 * usual):
            found.append(
                Evidence(
                    f"{name} takes up to {most} ms beside allocations, {usual:.0f} ms (median) apart from them",
                    float(most),
                    "ms",
                    True,
                    *cited(
                        beside.sort("duration_ms", descending=True)
                        .drop_nulls("line")
                        .unique(["source", "line"], maintain_order=True)
                        .head(2)
                    ),
                )
            )
    failed = case.trace.quality.marks_by_event.get("pinned_checkout_failed", 0)
    if failed:
        found.append(
            Evidence(f"{failed} syntheses found no pinned buffer and fell back", float(failed), "syntheses", True)
        )
    return found


def _lost_after(case: Case) -> tuple[float, float] | None:
    """Share of time lost during the bursts and after the last, less barrier waits (another cause)."""
    start, end = int(case.bursts["start_ns"].min()), int(case.bursts["end_ns"].max())  # type: ignore[arg-type]
    first = case.trace.calls["lock_ns"].min()
    last = case.trace.calls["unlock_ns"].max()
    if first is None or last is None or int(last) <= end:  # type: ignore[arg-type]
        return None
    other = case.blame.filter(pl.col("cause") != "prep-barrier")
    lost = (pl.col("copy_only_s") + pl.col("idle_s")).sum()
    during_s = float(other.filter(pl.col("start_ns") < end).select(lost).item())
    since_s = float(other.filter(pl.col("start_ns") >= end).select(lost).item())
    burst_s = (end - max(start, int(first))) / 1e9  # type: ignore[arg-type]
    rest_s = (int(last) - end) / 1e9  # type: ignore[arg-type]
    return (during_s / burst_s, since_s / rest_s) if burst_s > 0 and rest_s > 0 else None


HYPOTHESIS = Hypothesis(
    id="pinned-alloc-stall",
    title="allocating pinned buffers (cudaHostAlloc) stalls the GPU driver",
    brief="stalls of the driver while pinned buffers were allocated",
    knob=(
        "allocate the pool before work arrives and cap the syntheses in flight, so that buffers are reused. "
        "Risk: memory is held even when idle, and start-up takes longer"
    ),
    next_step="look at the same run after the last allocation: the stalls should be gone",
    overturned_by="the same stalls with no 'allocated new buffer' line near them",
    revived_by="seconds-long d_b_alloc, ntt_kernels or msm_invoke without traffic beside 'allocated new buffer' lines",
    judge_with=_judge,
)
