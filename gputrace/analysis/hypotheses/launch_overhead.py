"""Kernel launches are slow: ntt_kernels takes long though nothing is copied in it."""

from gputrace.analysis.diagnosis import Evidence, HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis, gb


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_trace:
        return case.finding(hypothesis, "undetermined", [], "record a GPU trace: only rx tells launches from copies")
    if case.rx_is_dead:
        return case.finding(
            hypothesis, "undetermined", [], "check the PCIe sensor: rx reads near zero even where the MSMs stream"
        )
    ntt = case.phases.get("ntt_kernels")
    if ntt is None:
        return case.finding(
            hypothesis, "undetermined", [], "take the prover's stderr into the log: it has no CUZK_NTT_H lines"
        )
    if case.unresolved_ntt_copy is not None:
        return case.finding(
            hypothesis,
            "undetermined",
            [case.unresolved_ntt_copy],
            "read the GPU trace more often (gputrace record --period 0.02), or prove larger circuits",
        )
    charged = case.charge_evidence(hypothesis.id)
    rate = ntt.rx_bytes_per_s["median"] if ntt.rx_bytes_per_s else None
    evidence = [charged]
    complete, is_pinned = case.trace.calls["complete"], case.trace.calls["pinned"]
    pinned = int((complete & is_pinned).sum())
    if 2 * pinned > case.complete_calls:
        evidence.append(
            Evidence(
                f"{pinned} of {case.complete_calls} calls copy from pinned memory: ntt_kernels only launches there",
                float(pinned),
                "calls",
                charged.supports,
            )
        )
    elif rate is not None and rate > case.copy_floor:
        evidence.insert(
            0,
            Evidence(
                f"ntt_kernels copies at {gb(rate)}: slow launches alone would show no PCIe traffic",
                rate,
                "bytes/s",
                False,
            ),
        )
    elif rate is not None:
        evidence.append(Evidence(f"nothing is copied in ntt_kernels ({gb(rate)})", rate, "bytes/s", True))
    evidence.append(
        Evidence(
            f"ntt_kernels takes {ntt.median_ms:.0f} ms (median); launches alone take under 1 ms from pinned memory",
            ntt.median_ms,
            "ms",
            charged.supports,
        )
    )
    pageable = int((complete & ~is_pinned).sum())
    if 2 * pageable > case.complete_calls:
        evidence.append(
            Evidence(
                f"{pageable} of {case.complete_calls} calls copy from pageable memory, which blocks in ntt_kernels",
                float(pageable),
                "calls",
                False,
            )
        )
    return case.finding(hypothesis, "supported" if charged.supports else "refuted", evidence)


HYPOTHESIS = Hypothesis(
    id="launch-overhead",
    title="ntt_kernels takes long though nothing is copied in it",
    brief="ntt_kernels taking long with nothing copied",
    knob="look at the driver: kernel launches or synchronous calls. Risk: none in looking; a new driver is a new run",
    next_step="trace CUDA API calls in ntt_kernels (Nsight Systems)",
    overturned_by="any steady rx inside ntt_kernels, or launches of microseconds in a profiler's trace",
    revived_by="ntt_kernels long with rx near zero, from pinned memory and with no buffers being allocated",
    judge_with=_judge,
)
