"""Every threshold that a conclusion rests on, in one value, so that a report can vary them.

`docs/verdicts.md` says what each is for and where it comes from (`docs/generate/verdicts.toml`).
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Thresholds:
    """Shares are 0..1. The headline is checked with each of these halved and doubled."""

    # Traffic above this share of the link makes the rest of an interval copy-only.
    copy_link_share: float = 0.01
    # A gap is a stretch with compute below this, smoothed over `gap_smoothing_s`.
    gap_compute: float = 0.3
    gap_smoothing_s: float = 0.2
    # A cause must take this share of the lost seconds to be called supported.
    supported_share: float = 0.05
    # A copy below this share of the run's own line rate is staged, not line-rate.
    staged_share: float = 0.5

    def variations(self) -> dict[tuple[str, float], "Thresholds"]:
        """Each threshold halved and doubled, by its name and the value tried."""
        varied = {}
        for name in ("copy_link_share", "gap_compute", "gap_smoothing_s", "supported_share", "staged_share"):
            for factor in (0.5, 2.0):
                tried = getattr(self, name) * factor
                # A share of one excludes nothing: doubling stops there.
                value = tried if name == "gap_smoothing_s" else min(tried, 0.95)
                varied[name, value] = replace(self, **{name: value})
        return varied


# Nothing below this share of the link is line rate, however low the run's own peak: a run of tiny circuits never
# reaches the link's rate, and pageable copies reach an eighth of it (7.7 of 58 GB/s payload on an H200).
LINE_RATE_LINK_SHARE = 0.2

# Below these, statistics are not given a meaning.
MIN_CALLS = 8
VARIABLE_SPREAD_SHARE = 0.15
VARIABLE_SPREAD_MS = 5.0
NEGLIGIBLE_SHARE_OF_HELD = 0.01
# A phase shorter than this many samples gets its bytes from the joint fit.
OVERLAP_SAMPLES = 3
# Allocations of pinned buffers less than this apart are one burst.
ALLOC_BURST_GAP_S = 6.0
# A phase this much longer than usual while buffers are allocated is stalled by that.
STALLED_FACTOR = 1.5
# ntt_kernels below this share of ntt_kernels + coset_intt_sync: the copy ran in coset_intt_sync (pinned memory).
COPY_IN_SYNC_SHARE = 0.1
# A regime is cut off only if some phase, or the time between locks, moves by this share of the time from lock to lock.
REGIME_CHANGE_SHARE = 0.1
# ... and if chance would do that, over all quantities, less often than this.
REGIME_P_VALUE = 0.01
# A regime takes at least this share of the run's time.
REGIME_LEAST_SHARE = 0.02
# Holds of two lengths by turns: long at least this many times short, each at least this share of the calls.
BISTABLE_RATIO = 1.5
BISTABLE_SHARE = 0.2
BISTABLE_P_VALUE = 0.05
# A regime is one of allocation if buffers were being allocated for this share of it, and that stalled the driver.
ALLOCATING_SHARE = 0.5
# A regime that loses less of its time than this chains its calls: the GPU is busy.
CHAINING_LOST_SHARE = 0.2
# Copies slower than this share of the fastest pageable ones of the run are slowed down by something.
CONTENTION_RATE_SHARE = 2.0 / 3.0
# The host is busy from this share of its cores on, lightly loaded below the other.
HOST_BUSY_SHARE = 0.9
HOST_LIGHT_SHARE = 0.7

# Prints under the mutex (`gputrace/analysis/signs/prints.py`). Real captures: at most 2.4 ms a print by place, and no
# two places alike; a stall is a single difference that no bookkeeping explains.
SLOW_PRINT_MS = 3.0
PRINT_BALANCE = 4.0
PRINT_STALL_MS = 50.0
PRINT_STALLS = 3

# What took less than this share of the window is not worth naming, however little else was lost.
MIN_WINDOW_SHARE = 0.01

# A link that carries less than this share of what it reports, in a phase that streams pinned memory, is degraded or
# shared: 88-97 % on a healthy H200 and 66 % with 14 processes that load the host's memory.
HEALTHY_LINK_SHARE = 0.6
# NVML's bits for clocks held down: SW power cap, HW slowdown, SW thermal, HW thermal, HW power brake. Idle (0x1),
# application clocks (0x2), sync boost (0x10) and display clocks (0x100) are settings, not throttling.
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Clocks below this share of their maximum are low; GPUs hold 97 % and more while nothing holds them down.
LOW_CLOCK_SHARE = 0.9
# SMs above this share, where the run's own calls leave them idle, are somebody else's: on the real captures the
# middle of a barrier wait and of a pageable copy reads up to 0.06.
FOREIGN_SM_SHARE = 0.2
ACTIVE_SM_SHARE = 0.5
# Pageable copies of a/b/c run at 1.4 GB/s and more on all real captures: what leaves room for such a rate does not say
# that nothing is copied.
SLOWEST_COPY_BYTES_PER_S = 1e9
