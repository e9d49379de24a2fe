"""Samples of long times in which nothing moves, several as one: an idle GPU has most of the rows of a long trace."""

import numpy as np
import numpy.typing as npt
import polars as pl

from gputrace.analysis.blame import ROW_S, STILL_SHARE, thinned
from gputrace.trace import GpuInfo

# What is summed over the samples of a row. Of the rest, numbers that vary are means, others must not change within it.
_SUMMED = ("rx_wire_bytes", "tx_wire_bytes")
_ALIKE = (
    "link_gen", "link_width", "clock_event_reasons", "link_gen_max", "link_width_max", "pcie_replays",
    "other_processes", "over_limit",
)  # fmt: skip
Ints = npt.NDArray[np.int64]


def without_stillness(samples: pl.DataFrame, gpus: list[GpuInfo]) -> pl.DataFrame:
    """SAMPLES, sorted by GPU and start, in which the middle of a long stillness has a row for ten seconds.

    Still is a sample of at most a ten-thousandth of the link's rate and of SM activity. Seconds and bytes are what they
    were; the first and the last five seconds of a stillness stay as they are.
    """
    begins = _row_begins(samples, gpus)
    if len(begins) == samples.height:
        return samples
    last = np.append(begins[1:], samples.height) - 1
    lengths = last - begins + 1
    columns = []
    for name, dtype in samples.schema.items():
        column = samples[name]
        if name == "end_ns":
            columns.append(column[last])
        elif name in _SUMMED or (dtype.is_float() and column.null_count() < len(column)):
            sums = np.add.reduceat(column.to_numpy(), begins)
            columns.append(pl.Series(name, sums if name in _SUMMED else sums / lengths, dtype, nan_to_null=True))
        else:
            columns.append(column[begins])
    return pl.DataFrame(columns)


def _row_begins(samples: pl.DataFrame, gpus: list[GpuInfo]) -> Ints:
    count = samples.height
    start_ns, end_ns = samples["start_ns"].to_numpy(), samples["end_ns"].to_numpy()
    if count < 2:
        return np.arange(count)
    goes_on = (end_ns[:-1] == start_ns[1:]) & _still(samples, gpus)
    for name in ("gpu", *_ALIKE):
        own = samples[name]
        if own.null_count() < count:
            goes_on &= own.eq_missing(own.shift(1)).to_numpy()[1:]
    return thinned(goes_on, round(ROW_S * 1e9 / max(1.0, float(np.median(end_ns[:10_000] - start_ns[:10_000])))))


def _still(samples: pl.DataFrame, gpus: list[GpuInfo]) -> npt.NDArray[np.bool_]:
    """Whether each sample and the one before it are still; without a link's limit or SM activity nobody knows."""
    limits = {info.gpu: info.link_limit_bytes_per_s for info in gpus}
    limit = pl.col("gpu").replace_strict(limits, default=None, return_dtype=pl.Float64)
    seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    moved = pl.max_horizontal("rx_wire_bytes", "tx_wire_bytes")
    told = (moved <= STILL_SHARE * limit * seconds) & (pl.col("sm_active") <= STILL_SHARE)
    still = samples.select(told.fill_null(False).alias("still"))["still"].to_numpy()
    return np.asarray(still[1:] & still[:-1])
