"""A profiler that records every copy settles whether a/b/c come from pageable memory."""

import polars as pl
import pytest

from gputrace import schema
from gputrace.analysis.diagnose import diagnose
from tests.captures import read


@pytest.mark.parametrize(("memory", "verdict"), [("pageable", "supported"), ("pinned", "refuted")])
def test_recorded_copies_settle_pageable_h2d(memory: str, verdict: str) -> None:
    trace = read("pageable-membw")
    ntt = trace.phases.filter(pl.col("name") == "ntt_kernels").select("gpu", "start_ns", "end_ns")
    copies = ntt.with_columns(
        (pl.col("start_ns") + 1_000_000).alias("start_ns"),
        pl.lit(3_124_588_704).alias("bytes"),
        pl.lit("h2d").alias("kind"),
        pl.lit(memory).alias("source_memory"),
        pl.lit("device").alias("target_memory"),
    )
    before = trace.copies
    try:
        trace.copies = schema.COPIES.fit(copies)
        found = next(f for f in diagnose(trace).hypotheses if f.id == "pageable-h2d")
    finally:
        trace.copies = before
    assert found.verdict == verdict
    assert any("profiler's own record" in item.text for item in found.evidence)
