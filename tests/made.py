"""Made values for what reports draw: one scenario of each outcome, bounds, regimes; words that a page must escape."""

from dataclasses import replace

from gputrace.analysis.diagnosis import Bound, Diagnosis, Effect, Regime, WhatIf

_HELD = Effect(5480.0, 5500.0, 1890.0, 1800.0, 2000.0)
_UNKNOWN = Effect(None, None, None, None, None)

SCENARIOS = (
    WhatIf(
        "pinned-all", "a/b/c of every call from pinned memory", Effect(0.181, 0.185, 0.52, 0.47, 0.58), _HELD,
        Effect(0.24, 0.24, 0.71, 0.65, 0.75), 212.3, 195.1, 231.0, "prep_msm on the C++ pool",
        notes=("leans on the line rate that this run itself reached", "buffers are allocated before the run"),
    ),
    WhatIf(
        "workers-3", "a third worker for each GPU", Effect(0.181, 0.185, 0.182, 0.17, 0.19),
        Effect(5480.0, 5500.0, 5490.0, 5300.0, 5600.0), Effect(0.24, 0.24, 0.24, 0.23, 0.25), 1.2, -14.0, 16.0,
        "mutex", notes=("the mutex is held all the time already",),
    ),
    WhatIf(
        "syntheses-6", "6 syntheses at once instead of 18", Effect(0.181, 0.185, 0.12, 0.11, 0.13),
        Effect(5480.0, 5500.0, 3300.0, 3000.0, 3500.0), Effect(0.24, None, 0.17, None, None), -151.0, -170.0, -120.0,
        "synthesis",
    ),
    WhatIf(
        "prep-threads", "prep_msm with more threads", Effect(0.181, 0.185, None, None, None), _UNKNOWN, _UNKNOWN,
        None, None, None, "", notes=("the log has no prep_msm",),
    ),
)  # fmt: skip
BOUNDS = (
    Bound("mutex", 1, 5480.0, 1.0, 0.1825, "one mutex, held for the whole GPU part of a call"),
    Bound("cpp-pool", 6, 2700.0, 0.44, 0.37, "prep_msm and b_g2_msm on the C++ thread pool"),
    Bound("worker-loop", 2, 6100.0, None, 0.33, "two workers: setup, hold, release, loop"),
)


def with_outlook(diagnosis: Diagnosis, hostile: str = "") -> Diagnosis:
    """The diagnosis with made scenarios, bounds and three regimes of its window; `hostile` is put into their words."""
    start_ns, end_ns = diagnosis.window.start_ns, diagnosis.window.end_ns
    assert start_ns is not None and end_ns is not None
    cuts = [start_ns + int(share * (end_ns - start_ns)) for share in (0.0, 0.2, 0.35, 1.0)]
    words = (
        ("steady", "the run begins"),
        (f"slower {hostile}", f"ntt_kernels rises from 0.9 s to 4.1 s {hostile}"),
        ("steady", "ntt_kernels falls from 4.1 s to 1.0 s"),
    )
    regimes = tuple(
        Regime(
            start_ns=cuts[i],
            end_ns=cuts[i + 1],
            calls=11 + i,
            label=label,
            reason=reason,
            phase_medians_ms={"ntt_kernels": 900.0},
            main_cause=("prep-barrier", "pageable-h2d", None)[i],
            verdicts={},
            lost_s=(12.0, 20.0, None)[i],
            duration_s=(cuts[i + 1] - cuts[i]) / 1e9,
            bistable=i == 1,
        )
        for i, (label, reason) in enumerate(words)
    )
    first, *others = SCENARIOS
    scenarios = (
        replace(first, title=f"{first.title} {hostile}".strip(), notes=(*first.notes, *([hostile] if hostile else []))),
        *others,
    )
    bounds = (replace(BOUNDS[0], what=f"{BOUNDS[0].what} {hostile}".strip()), *BOUNDS[1:])
    interleaving = tuple(
        replace(finding, notes=(*finding.notes, *([hostile] if hostile else []))) for finding in diagnosis.interleaving
    )
    return replace(diagnosis, regimes=regimes, what_if=scenarios, bounds=bounds, interleaving=interleaving)
