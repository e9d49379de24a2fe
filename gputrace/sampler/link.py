"""How fast a PCIe link can turn its byte counters over, and how often they must be read for that."""

import math

# What one lane carries one way, by generation, line code taken off, bytes/s (PCI-SIG).
LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# Taken where the driver does not say what the link is: the fastest there is.
UNKNOWN_LINK = (6, 16)
# A counter is read after this share of the time in which it could wrap: 54 ms at Gen5 x16, 109 ms at Gen4 x16.
POLL_SHARE = 0.8


def limit_bytes_per_s(gen: int | None, width: int | None) -> float:
    """What the link carries one way, wire bytes a second; of an unknown link what the fastest would carry."""
    lane = LANE_BYTES_PER_S.get(gen or 0)
    if not lane or not width:
        return LANE_BYTES_PER_S[UNKNOWN_LINK[0]] * UNKNOWN_LINK[1]
    return lane * width


def wrap_s(bits: int, limit: float) -> float:
    """The shortest time in which a counter of so many bits can come round, seconds."""
    return float(2**bits / limit)


def polls_per_row(period_s: float, shortest_wrap_s: float | None) -> int:
    """How often the counters are read in each row, so that none can come round unseen."""
    if shortest_wrap_s is None:
        return 1
    return max(1, math.ceil(period_s / (POLL_SHARE * shortest_wrap_s) - 1e-9))
