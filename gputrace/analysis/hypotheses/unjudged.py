"""Explanations known to happen that this version does not judge: they say so, and what to look at meanwhile."""

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.hypotheses.case import Case, Hypothesis


def _judge(hypothesis: Hypothesis, case: Case) -> HypothesisFinding:
    return case.finding(hypothesis, "undetermined", [])


def _unjudged(identifier: str, title: str, look_at: str) -> Hypothesis:
    return Hypothesis(identifier, title, title, "", f"not judged by this version; {look_at}", _judge)


HYPOTHESES = (
    _unjudged(
        "host-memory-contention",
        "host memory bandwidth is short",
        "see the drivers of ntt_kernels, prep_msm and b_g2_msm: do they grow with concurrent syntheses?",
    ),
    _unjudged(
        "mutex-contention",
        "workers queue for the GPU mutex",
        "a long mutex_wait is a symptom of whatever the holder waits for: see the causes above",
    ),
    _unjudged("memory-budget", "syntheses wait for memory", "look for 'evicted for memory pressure' in the log"),
    _unjudged(
        "link-degraded",
        "the PCIe link runs below its width or generation",
        "compare the line rate with the link's limit",
    ),
    _unjudged("throttled", "GPU clocks are held down", "compare SM clocks under load with the GPU's maximum"),
    _unjudged("other-process", "another process uses the GPU", "look for SM activity outside calls"),
    _unjudged(
        "slow-log-sink",
        "writing the log holds the mutex",
        "look for time under the mutex that no phase explains (charged to unexplained)",
    ),
)
