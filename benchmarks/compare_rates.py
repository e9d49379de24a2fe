"""How often `gputrace compare` is wrong, and what it finds, on pairs of runs whose truth is known.

Each pair is two runs of one kind of prover: phases of one call share a part that depends on the call before it
(first-order autoregression), so that the hold of the mutex varies by a wished coefficient. Equal pairs count false
alarms; pairs whose phases under the mutex are slower by a twentieth count finds.

    python -m benchmarks.compare_rates --pairs 200
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.signal import lfilter

from gputrace.analysis.compare import Comparison, Side, compare
from gputrace.analysis.compare.per_call import with_sum

UNDER_MUTEX_MS = {
    "d_b_alloc": 12.0,
    "ntt_kernels": 450.0,
    "coset_intt_sync": 33.0,
    "msm_init": 6.0,
    "msm_invoke": 310.0,
    "msm_dtor": 6.0,
    "barrier_wait": 60.0,
    "batch_add": 40.0,
    "tail_msm": 180.0,
}
BESIDE_MS = {
    "pre_lock": 8.0,
    "mutex_wait": 700.0,
    "prep_msm": 250.0,
    "b_g2_msm": 300.0,
    "release_abc": 350.0,
    "async_dealloc": 45.0,
}
# With these parts, common and own, the hold as a whole varies by the coefficient wished for.
COMMON, OWN = 0.8, 1.2
RESAMPLES = 300
Floats = npt.NDArray[np.float64]


def autoregressive(rng: np.random.Generator, count: int, phi: float) -> Floats:
    """Normal values of variance 1, each correlated by `phi` with the one before."""
    settle = 60
    noise = rng.standard_normal(count + settle) * np.sqrt(1.0 - phi * phi)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise))[settle:]


def simulated_side(
    rng: np.random.Generator, calls: int, phi: float, variation: float = 0.1, slower: float = 1.0, name: str = "run"
) -> Side:
    """A run of `calls` calls; `slower` stretches what is under the mutex."""
    common = autoregressive(rng, calls, phi)
    ms: dict[str, Floats] = {}
    for phase, typical in {**UNDER_MUTEX_MS, **BESIDE_MS}.items():
        factor = slower if phase in UNDER_MUTEX_MS else 1.0
        wobble = variation * (COMMON * common + OWN * autoregressive(rng, calls, phi))
        ms[phase] = np.asarray(np.round(np.maximum(0.0, typical * factor * (1.0 + wobble))), dtype=np.float64)
    held = np.asarray(sum((ms[phase] for phase in UNDER_MUTEX_MS), np.zeros(calls)))
    ms |= {"mutex_held": held, "gpu_total": held - 1.0, "ntt_msm_h": ms["ntt_kernels"] + ms["msm_invoke"]}
    since_s = held / 1e3 + 0.001
    compute_s = (ms["coset_intt_sync"] + 0.8 * ms["msm_invoke"] + ms["tail_msm"]) / 1e3
    copy_s = (ms["ntt_kernels"] + 0.2 * ms["msm_invoke"]) / 1e3
    unlock_ns = np.cumsum(since_s * 1e9).astype(np.int64)
    frame = pl.DataFrame(
        {
            "call": np.arange(calls),
            "restart": np.zeros(calls, dtype=np.int64),
            "gpu": np.zeros(calls, dtype=np.int64),
            "complete": np.ones(calls, dtype=bool),
            "failed": np.zeros(calls, dtype=bool),
            "warmup": np.zeros(calls, dtype=bool),
            "lock_ns": unlock_ns - (held * 1e6).astype(np.int64),
            "unlock_ns": unlock_ns,
            **{f"{phase}_ms": values for phase, values in ms.items()},
            "since_s": since_s,
            "held_s": held / 1e3,
            "window_s": since_s,
            "compute_s": compute_s,
            "copy_only_s": copy_s,
            "idle_s": since_s - compute_s - copy_s,
            "lost_s.pageable-h2d": ms["ntt_kernels"] / 1e3,
            "lost_s.prep-barrier": ms["barrier_wait"] / 1e3,
            "lost_s.kernel-phase-idle": 0.2 * ms["msm_invoke"] / 1e3,
        }
    )
    return Side(name, with_sum(frame), compute_source="gpm", resamples=RESAMPLES)


def holds_changed(comparison: Comparison) -> bool:
    """Whether the hold of the mutex, median or mean, is said to have changed."""
    return any(comparison.change(f"mutex_held_ms.{name}").verdict == "changed" for name in ("median", "mean"))


@dataclass
class Rates:
    """Counts over pairs, as shares of them (`per_figure`: of all figures of all pairs, by their own intervals)."""

    false_alarms: float
    per_figure: float
    found: float
    found_alone: float
    detectable: float


def measure(calls: int, phi: float, pairs: int, variation: float = 0.1, slower: float = 1.05, seed: int = 7) -> Rates:
    """The rates over `pairs` pairs of equal runs and as many of unequal ones."""
    rng = np.random.default_rng(seed)
    alarms, found, alone, detectable = 0, 0, 0, []
    figures: list[bool] = []
    for _ in range(pairs):
        before = simulated_side(rng, calls, phi, variation)
        equal = compare(before, simulated_side(rng, calls, phi, variation))
        alarms += any(change.verdict == "changed" for change in equal.changes)
        figures += [change.p_value is not None and change.p_value < 0.05 for change in equal.changes]
        detectable.append(equal.change("mutex_held_ms.mean").detectable_relative or np.nan)
        unequal = compare(before, simulated_side(rng, calls, phi, variation, slower))
        found += holds_changed(unequal)
        alone += (unequal.change("mutex_held_ms.mean").p_value or 1.0) < 0.05
    return Rates(alarms / pairs, float(np.mean(figures)), found / pairs, alone / pairs, float(np.median(detectable)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table of docs/comparing.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--calls", type=int, nargs="+", default=[20, 40, 100, 200])
    given = parser.parse_args(arguments)
    print("| calls | correlation | false alarms | per figure | 5 % found | by its own interval | smallest |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for calls in given.calls:
        for phi in (0.0, 0.3, 0.6):
            rates = measure(calls, phi, given.pairs)
            print(
                f"| {calls} | {phi:g} | {rates.false_alarms:.1%} | {rates.per_figure:.1%} | {rates.found:.0%} "
                f"| {rates.found_alone:.0%} | {rates.detectable:.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
