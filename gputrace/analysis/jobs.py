"""Jobs and their stages, from TIMELINE (or the tracing lines that say the same)."""

import polars as pl

from gputrace.analysis.diagnosis import Job
from gputrace.trace import Trace


def summarise_jobs(trace: Trace) -> tuple[Job, ...]:
    """One row a job, in order of its first synthesis.

    synth_s: first SYNTH_START to last SYNTH_END. queue_s: mean wait of its partitions between GPU_QUEUE and
    GPU_PICKUP. gpu_s: seconds its calls held the mutex. finalise_s: last unlock to last GPU_END. total_s: first start
    to last GPU_END. The last two only for jobs whose partitions are all done.
    """
    return jobs_of(job_parts(trace))


def job_parts(trace: Trace) -> pl.DataFrame:
    """What adds up to jobs, one row a job: partitions, sum and number of waits in the queue, done, and the ends."""
    syntheses = trace.syntheses
    if trace.focus is not None:
        syntheses = syntheses.filter(pl.col("job").is_in(trace.calls_in_focus["job"].implode()))
    waited_ns = pl.col("picked_up_ns") - pl.col("queued_ns")
    synth = syntheses.group_by("job", maintain_order=True).agg(
        pl.len().alias("partitions"),
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        waited_ns.sum().alias("waited_ns"),
        waited_ns.count().alias("waits"),
    )
    held_ns = pl.col("unlock_ns") - pl.col("lock_ns")
    calls = trace.calls.group_by("job").agg(
        pl.col("kind").drop_nulls().first(),
        pl.col("finish_ns").is_not_null().sum().alias("done"),
        held_ns.sum().alias("held_ns"),
        held_ns.count().alias("holds"),
        pl.col("unlock_ns").max(),
        pl.col("finish_ns").max(),
    )
    return synth.join(calls, on="job", how="left", maintain_order="left").filter(pl.col("job").is_not_null())


def jobs_of(parts: pl.DataFrame) -> tuple[Job, ...]:
    """The jobs whose `job_parts` these are."""
    return tuple(
        Job(
            job=row["job"],
            kind=row["kind"],
            partitions=row["partitions"],
            done=row["done"] or 0,
            queue_s=row["waited_ns"] / row["waits"] / 1e9 if row["waits"] else None,
            synth_s=_between(row["start_ns"], row["end_ns"]),
            gpu_s=row["held_ns"] / 1e9 if row["holds"] else None,
            finalise_s=_between(row["unlock_ns"], row["finish_ns"]) if row["done"] == row["partitions"] else None,
            total_s=_between(row["start_ns"], row["finish_ns"]) if row["done"] == row["partitions"] else None,
        )
        for row in parts.iter_rows(named=True)
    )


def _between(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / 1e9
