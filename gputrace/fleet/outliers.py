"""GPUs that lose much more, or less, than comparable ones of the fleet."""

import numpy as np
import polars as pl

from gputrace.analysis.thresholds import MIN_CALLS
from gputrace.fleet.result import LOST, Notice, Outlier
from gputrace.fleet.statistics import FALSE_ALARMS, modified_z, outlier_cut

# Fewer comparable GPUs than this have no usual.
MIN_GPUS = 8
# Shares of the window closer than this count as alike (as in `gputrace compare`: one point matters).
LEAST_SPREAD = 0.01


def find_outliers(gpus: pl.DataFrame, gpu_causes: pl.DataFrame) -> tuple[tuple[Outlier, ...], tuple[Notice, ...]]:
    """Outliers, most excess seconds first, and which GPUs could not be compared.

    Comparable are GPUs of one model with at least MIN_CALLS calls. Measures are the share of the window that is lost,
    in all and to each cause. The cut makes a fleet of alike GPUs name any at all, over all measures of a model, in 5 %
    of cases.
    """
    found: list[Outlier] = []
    notices: list[Notice] = []
    idle = gpus.filter(pl.col("calls") < MIN_CALLS).height
    if idle:
        notices.append(Notice("outliers-few-calls", f"GPUs with fewer than {MIN_CALLS} calls are not compared", idle))
    enough = gpus.filter(pl.col("calls") >= MIN_CALLS).sort("host", "gpu")
    for (model,), own in enough.group_by("model", maintain_order=True):
        name = None if model is None else str(model)
        if own.height < MIN_GPUS:
            called = name or "GPUs whose model is not told"
            text = f"outliers are undetermined for {called}: {own.height} to compare, {MIN_GPUS} are needed"
            notices.append(Notice("outliers-few-gpus", text, own.height))
            continue
        found += _among(name, own, gpu_causes)
    order = sorted(found, key=lambda o: (-abs(o.excess_s), o.host, o.gpu, o.measure))
    return tuple(order), tuple(notices)


def _among(model: str | None, gpus: pl.DataFrame, gpu_causes: pl.DataFrame) -> list[Outlier]:
    own = gpu_causes.join(gpus.select("host", "gpu"), on=["host", "gpu"], how="semi")
    causes = own["cause"].unique().sort().to_list()
    wide = {cause: own.filter(pl.col("cause") == cause).select("host", "gpu", "share_of_window") for cause in causes}
    measured = {LOST: gpus["lost_share"].to_numpy().astype(np.float64)} | {
        cause: gpus.join(shares, on=["host", "gpu"], how="left", maintain_order="left")["share_of_window"]
        .fill_null(0.0)
        .to_numpy()
        for cause, shares in wide.items()
    }
    cut = outlier_cut(gpus.height, FALSE_ALARMS / len(measured))
    found = []
    names = gpus.select("host", "gpu", "window_s").rows()
    for measure, values in measured.items():
        scores, middle = modified_z(values, LEAST_SPREAD), float(np.median(values))
        for i in np.flatnonzero(np.abs(scores) > cut):
            host, gpu, window_s = names[i]
            value = float(values[i])
            found.append(
                Outlier(
                    host, gpu, model, measure, value, middle, float(scores[i]), cut, gpus.height,
                    (value - middle) * window_s,
                )
            )  # fmt: skip
    return found
