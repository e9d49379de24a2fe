"""a/b/c are copied from pageable memory, through the driver's bounce buffer."""

import polars as pl

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Decided, Hypothesis, gb
from gputrace.analysis.hypotheses.volume import volume_evidence
from gputrace.rows import where

_COPY_SM_SHARE = 0.3


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    ntt = case.phases.get("ntt_kernels")
    if ntt is None:
        return case.finding(
            hypothesis, "undetermined", [], "take the prover's stderr into the log: it has no CUZK_NTT_H lines"
        )
    evidence = [case.charge_evidence(hypothesis.id)]
    calls = where(case.trace.calls, case.trace.calls["complete"])
    pinned, unpinned = int((calls["pinned"] == True).sum()), int((calls["pinned"] == False).sum())  # noqa: E712
    if pinned + unpinned:
        evidence.append(
            Evidence(
                f"the log says is_pinned=false for {unpinned} of {pinned + unpinned} calls",
                float(unpinned),
                "calls",
                unpinned > pinned,
            )
        )
    if _only_at_start_up(calls):
        evidence.append(
            Evidence(
                f"all {unpinned} pageable calls come before the first pinned one (the pool has no size hint until a "
                f"synthesis has ended); the {pinned} calls since copy from pinned memory",
                float(pinned),
                "calls",
                False,
            )
        )
        return case.finding(hypothesis, "refuted", evidence, decided=Decided(pinned, 1.0, pinned))
    settled = _recorded_copies(case)
    if settled is not None:
        evidence.append(settled)
        if not settled.supports:
            return case.finding(hypothesis, "refuted", evidence)
    if not case.has_trace:
        evidence.append(
            Evidence(
                f"ntt_kernels takes {ntt.median_ms:.0f} ms (median), the copy or a stall", ntt.median_ms, "ms", True
            )
        )
        return case.finding(
            hypothesis,
            "undetermined",
            evidence,
            "record a GPU trace beside the log: rx in ntt_kernels tells a slow copy from a stall",
        )
    if case.rx_is_dead:
        evidence.append(
            Evidence(
                "rx stays near zero in the whole run, even where the MSMs stream their points", 0.0, "bytes/s", False
            )
        )
        return case.finding(
            hypothesis, "undetermined", evidence, "check the PCIe sensor: some GPUs' counters always read 0 (try GPM)"
        )
    if case.unresolved_ntt_copy is not None:
        evidence.append(case.unresolved_ntt_copy)
        return case.finding(
            hypothesis,
            "undetermined",
            evidence,
            "read the GPU trace more often (gputrace record --period 0.02), or prove larger circuits",
        )
    rate = ntt.rx_bytes_per_s["median"] if ntt.rx_bytes_per_s else 0.0
    line = case.line_rate or 0.0
    copies = rate > case.copy_floor
    staged = copies and line > 0 and rate < case.line_floor
    if copies and line:
        evidence.append(
            Evidence(
                f"rx in ntt_kernels is {gb(rate)} (median), {rate / line:.0%} of the {gb(line)} this run reaches",
                rate,
                "bytes/s",
                staged,
            )
        )
    else:
        evidence.append(Evidence(f"rx in ntt_kernels is {gb(rate)}: nothing is copied there", rate, "bytes/s", False))
    if copies and ntt.rx_bytes_per_call_median is not None:
        evidence.append(
            Evidence(
                f"each call copies {ntt.rx_bytes_per_call_median / 1e9:.2f} GB in ntt_kernels (median, measured)",
                ntt.rx_bytes_per_call_median,
                "bytes",
                True,
            )
        )
    if case.tells:
        evidence += volume_evidence(case)
    if ntt.sm_share_median is not None and case.has_sm:
        evidence.append(
            Evidence(
                f"SMs are active {ntt.sm_share_median:.0%} of ntt_kernels",
                ntt.sm_share_median,
                "share",
                ntt.sm_share_median < _COPY_SM_SHARE,
            )
        )
    sync = case.phases.get("coset_intt_sync")
    if sync is not None and ntt.phase_class == "variable" and sync.phase_class == "constant":
        evidence.append(
            Evidence(
                f"ntt_kernels varies ({ntt.p5_ms:.0f}-{ntt.p95_ms:.0f} ms) while coset_intt_sync does not "
                f"({sync.p5_ms:.0f}-{sync.p95_ms:.0f} ms): the copy varies, not the kernels",
                ntt.p95_ms - ntt.p5_ms,
                "ms",
                True,
            )
        )
    if case.weighs(hypothesis.id) and staged:
        return case.finding(hypothesis, "supported", evidence)
    return case.finding(hypothesis, "refuted", evidence)


def _recorded_copies(case: Case) -> Evidence | None:
    """What a profiler that records each copy says of the memory it came from; it settles the question."""
    if case.trace.copies.is_empty():
        return None
    copies = case.trace.copies.filter(pl.col("kind") == "h2d")
    in_ntt = case.trace.phases.filter((pl.col("name") == "ntt_kernels") & pl.col("start_ns").is_not_null()).sort(
        "start_ns"
    )
    if copies.is_empty() or in_ntt.is_empty():
        return None
    held = copies.sort("start_ns").join_asof(
        in_ntt.select("start_ns", pl.col("end_ns").alias("ntt_end_ns")), on="start_ns"
    )
    of_abc = held.filter(pl.col("start_ns") < pl.col("ntt_end_ns"))
    total = float(of_abc["bytes"].sum())
    if not total:
        return None
    share = float(of_abc.filter(pl.col("source_memory") == "pageable")["bytes"].sum()) / total
    return Evidence(
        f"the profiler's own record: {share:.0%} of the bytes copied in ntt_kernels come from pageable memory",
        share,
        "share",
        share > 0.5,
    )


def _only_at_start_up(calls: pl.DataFrame) -> bool:
    pinned, unpinned = (calls["call"].filter(calls["pinned"] == kind) for kind in (True, False))
    return bool(len(pinned) and len(unpinned) and pinned.min() > unpinned.max())  # type: ignore[operator]


HYPOTHESIS = Hypothesis(
    id="pageable-h2d",
    title="a/b/c are copied from pageable memory, through the driver's bounce buffer",
    brief="copying a/b/c from pageable memory",
    knob=(
        "synthesise a/b/c into pinned buffers (the engine's pinned pool). Risk: it takes 3 buffers a partition in "
        "flight of memory that cannot be swapped, and allocating them under load stalls the driver: allocate at start"
    ),
    next_step="record one run with the pinned pool on and compare ntt_kernels + coset_intt_sync",
    overturned_by="rx in ntt_kernels at the run's line rate or near zero, or the same copy as slow from pinned memory",
    revived_by="a slow copy in ntt_kernels (below half of the line rate) with the SMs idle and is_pinned=false",
    judge_with=_judge,
)
