"""Explanations that the account settles by itself: what is charged to them is all there is to say."""

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.lost_s:
        return case.finding(hypothesis, "undetermined", [])
    evidence = [case.charge_evidence(hypothesis.id)]
    if case.weighs(hypothesis.id):
        return case.finding(hypothesis, "supported", evidence)
    return case.finding(hypothesis, "refuted", evidence)


def _judge_launches(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_trace:
        return case.finding(hypothesis, "undetermined", [], "record a GPU trace: only rx tells launches from copies")
    if case.rx_is_dead:
        return case.finding(
            hypothesis, "undetermined", [], "check the PCIe sensor: rx reads near zero even where the MSMs stream"
        )
    return _judge(hypothesis, case)


def _judge_copies(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_trace:
        return case.finding(hypothesis, "undetermined", [], "record a GPU trace: it shows the rate of the copies")
    return _judge(hypothesis, case)


def _judge_kernels(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    if not case.has_sm:
        return case.finding(
            hypothesis,
            "undetermined",
            [],
            "record SM utilisation (GPM, Hopper or later): here it is inferred from phases",
        )
    return _judge(hypothesis, case)


HYPOTHESES = (
    Hypothesis(
        id="kernel-phase-idle",
        title="SMs are not busy inside kernel phases (host part of the MSMs, launches, streaming of points)",
        brief="SMs not busy inside msm_invoke, batch_add and tail_msm",
        knob="none from outside: it is the MSM library's own host work and streaming.",
        next_step="profile one call (Nsight Systems): kernels against host reductions in msm_invoke and tail_msm",
        judge_with=_judge_kernels,
    ),
    Hypothesis(
        id="line-rate-copy",
        title="copies run at line rate but beside no kernel",
        brief="copies that already run at line rate, with no kernel beside them",
        knob="overlap copies with kernels (a second buffer), or copy less. Risk: more GPU memory",
        next_step="see which phase it is: coset_intt_sync (a/b/c) or batch_add (SRS points)",
        judge_with=_judge_copies,
    ),
    Hypothesis(
        id="launch-overhead",
        title="ntt_kernels takes long though nothing is copied in it",
        brief="ntt_kernels taking long with nothing copied",
        knob="look at the driver: kernel launches or synchronous calls.",
        next_step="trace CUDA API calls in ntt_kernels (Nsight Systems)",
        judge_with=_judge_launches,
    ),
    Hypothesis(
        id="device-allocation",
        title="device memory is allocated or freed under the mutex",
        brief="allocating or freeing device memory under the mutex",
        knob="keep circuits of one size on one GPU, so that buffers are reused. Risk: less even load",
        next_step="look for repeated d_a_cache lines and d_b_alloc after the first call",
        judge_with=_judge,
    ),
    Hypothesis(
        id="host-hot-path",
        title="the engine's own work delays the next call",
        brief="the engine's own work between pickup and lock",
        knob="raise the thread pool or look at lock_wait_ms and malloc_trim_ms.",
        next_step="see spawn_to_enter_ms, status_ms and malloc_trim_ms in the GPU_TIMING and FIN_TIMING lines",
        judge_with=_judge,
    ),
)
