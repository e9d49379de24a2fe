"""Which hosts and GPUs lost most, to what, and how widespread each cause is. Frames in, frames out."""

from collections.abc import Sequence

import polars as pl

# A host's or GPU's main cause must rest on captures that support the verdict for this share of its seconds.
SUPPORTED_SHARE = 0.5


def by_cause(days: pl.DataFrame, losses: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Seconds of each cause by `keys`: lost_s, share_of_window, share_of_lost, per_call_s, supported_share, rank."""
    whole = days.group_by(*keys).agg(pl.col("window_s", "calls").sum())
    return (
        losses.group_by(*keys, "cause")
        .agg(
            pl.col("lost_s").sum(),
            pl.col("lost_s").filter(pl.col("supported")).sum().alias("supported_s"),
        )
        .sort(*keys, "cause")
        .join(whole, on=list(keys), how="left", maintain_order="left")
        .select(
            *keys,
            "cause",
            "lost_s",
            (pl.col("lost_s") / pl.col("window_s")).alias("share_of_window"),
            _ratio(pl.col("lost_s"), pl.col("lost_s").sum().over(list(keys))).alias("share_of_lost"),
            _ratio(pl.col("lost_s"), pl.col("calls")).alias("per_call_s"),
            _ratio(pl.col("supported_s"), pl.col("lost_s")).alias("supported_share"),
            pl.col("lost_s").rank("min", descending=True).over("cause").cast(pl.Int64).alias("rank"),
        )
        .sort("lost_s", *keys, "cause", descending=[True, *[False] * (len(keys) + 1)])
    )


def _ratio(top: pl.Expr, bottom: pl.Expr) -> pl.Expr:
    """Null where there is nothing to divide by."""
    return pl.when(bottom > 0).then(top / bottom)


def ranked(days: pl.DataFrame, causes: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One row for each of `keys`, most lost seconds first; `causes` is `by_cause` of the same keys."""
    extra = [
        pl.col("model").drop_nulls().unique().sort().str.join(", ").replace("", None).alias("model"),
        *([] if "gpu" in keys else [pl.col("gpu").n_unique().cast(pl.Int64).alias("gpus")]),
    ]
    main = (
        causes.sort("lost_s", "cause", descending=[True, False])
        .group_by(*keys, maintain_order=True)
        .first()
        .select(
            *keys,
            pl.when(pl.col("supported_share") >= SUPPORTED_SHARE).then("cause").alias("main_cause"),
            pl.col("cause").alias("largest"),
            pl.col("lost_s").alias("main_cause_s"),
        )
    )
    return (
        days.group_by(*keys)
        .agg(
            *extra,
            pl.col("capture").n_unique().cast(pl.Int64).alias("captures"),
            pl.col("day").n_unique().cast(pl.Int64).alias("days"),
            pl.col("calls", "window_s", "compute_s", "lost_s").sum(),
        )
        .join(main, on=list(keys), how="left")
        .select(
            *keys,
            *(["model"] if "gpu" in keys else ["gpus", "model"]),
            "captures",
            "days",
            "calls",
            "window_s",
            _ratio(pl.col("compute_s"), pl.col("window_s")).alias("compute_share"),
            "lost_s",
            _ratio(pl.col("lost_s"), pl.col("window_s")).alias("lost_share"),
            _ratio(pl.col("lost_s"), pl.col("calls")).alias("lost_per_call_s"),
            _ratio(pl.col("calls"), pl.col("window_s")).alias("calls_per_s"),
            "main_cause",
            "largest",
            "main_cause_s",
        )
        .sort("lost_s", *keys, descending=[True, *[False] * len(keys)])
    )


def widespread(gpu_causes: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Each cause over the fleet, most lost seconds first; on how many hosts it is the main one, and where worst."""
    total = float(gpu_causes["lost_s"].sum())
    worst = gpu_causes.filter(pl.col("rank") == 1).unique("cause", keep="first", maintain_order=True)
    main = hosts.drop_nulls("main_cause").group_by("main_cause").agg(pl.len().cast(pl.Int64).alias("hosts_main"))
    return (
        gpu_causes.group_by("cause")
        .agg(
            pl.col("lost_s").sum(),
            _ratio((pl.col("supported_share") * pl.col("lost_s")).sum(), pl.col("lost_s").sum()).alias(
                "supported_share"
            ),
            pl.len().cast(pl.Int64).alias("gpus"),
            pl.col("host").n_unique().cast(pl.Int64).alias("hosts"),
        )
        .join(main, left_on="cause", right_on="main_cause", how="left")
        .join(
            worst.select(
                "cause",
                pl.col("host").alias("worst_host"),
                pl.col("gpu").alias("worst_gpu"),
                pl.col("lost_s").alias("worst_s"),
                pl.col("share_of_window").alias("worst_share_of_window"),
            ),
            on="cause",
            how="left",
        )
        .with_columns(
            (pl.col("lost_s") / total if total else pl.lit(0.0)).alias("share_of_lost"),
            pl.col("hosts_main").fill_null(0),
        )
        .select(
            "cause", "lost_s", "share_of_lost", "supported_share", "gpus", "hosts", "hosts_main",
            "worst_host", "worst_gpu", "worst_s", "worst_share_of_window",
        )
        .sort("lost_s", "cause", descending=[True, False])
    )  # fmt: skip


def by_day(days: pl.DataFrame) -> pl.DataFrame:
    """The fleet a day: what was captured, and what was lost of it."""
    return (
        days.group_by("day")
        .agg(
            pl.col("host").n_unique().cast(pl.Int64).alias("hosts"),
            pl.col("window_s", "lost_s", "calls").sum(),
        )
        .with_columns(
            _ratio(pl.col("lost_s"), pl.col("window_s")).alias("lost_share"),
            _ratio(pl.col("calls"), pl.col("window_s")).alias("calls_per_s"),
        )
        .select("day", "hosts", "window_s", "lost_s", "lost_share", "calls", "calls_per_s")
        .sort("day")
    )
