"""What the real captures say of every hypothesis, and whether each verdict gives the reason that is known."""

import polars as pl
import pytest

from gputrace.analysis.diagnosis import HypothesisFinding
from gputrace.analysis.signs.waits import COMPUTING, UNHELD, waits
from tests.captures import CAPTURES, diagnosis, read

ALL = (*CAPTURES, "told-story")
# What each capture is known to suffer from (tests/data/README.md, sample_logs/README.md); residues aside.
KNOWN = {
    "pageable-heavy": ["pageable-h2d", "host-memory-contention", "prep-barrier"],
    "pageable-membw": ["pageable-h2d"],
    "pinned-heavy": ["pinned-alloc-stall", "prep-barrier"],
    "light-then-heavy": ["pageable-h2d", "prep-barrier", "host-memory-contention"],
    "merged-fast": ["pageable-h2d"],
    "one-worker": ["pageable-h2d", "release-abc"],
    "told-story": ["pageable-h2d", "host-memory-contention"],
}
RESIDUES = ("kernel-phase-idle", "line-rate-copy")


def verdict(name: str, hypothesis: str) -> HypothesisFinding:
    return next(finding for finding in diagnosis(name).hypotheses if finding.id == hypothesis)


def said(finding: HypothesisFinding) -> str:
    return "; ".join(item.text for item in finding.evidence)


@pytest.mark.parametrize("name", ALL)
def test_supported_are_the_known_causes(name: str) -> None:
    supported = [finding.id for finding in diagnosis(name).hypotheses if finding.verdict == "supported"]
    assert sorted(set(supported) - set(RESIDUES)) == sorted(KNOWN[name])


@pytest.mark.parametrize("name", ["pageable-heavy", "pageable-membw", "light-then-heavy", "one-worker", "told-story"])
def test_the_mechanism_comes_before_its_modulator(name: str) -> None:
    assert diagnosis(name).hypotheses[0].id == "pageable-h2d"
    assert diagnosis(name).headline_stable


@pytest.mark.parametrize("name", ALL)
def test_the_machine_was_healthy(name: str) -> None:
    for hypothesis in ("link-degraded", "other-process", "slow-log-sink", "memory-budget", "launch-overhead"):
        # merged-fast never streams long enough to show the link, nor leaves quiet time; one-worker hardly does.
        assert verdict(name, hypothesis).verdict == "refuted" or name in ("merged-fast", "one-worker")
        assert verdict(name, hypothesis).verdict != "supported"
    # No capture has the clocks' limits or reasons.
    throttled = verdict(name, "throttled")
    assert throttled.verdict == "undetermined"
    assert "clocks_event_reasons" in throttled.next_step


@pytest.mark.parametrize("name", ALL)
def test_every_wait_for_the_mutex_is_explained_by_its_holder(name: str) -> None:
    found = waits(read(name), diagnosis(name).blame)
    total = float(read(name).calls["mutex_wait_ms"].sum() or 0) / 1e3
    if verdict(name, "mutex-contention").evidence[0].unit == "workers":
        assert total == 0.0
        return
    assert float(found["wait_s"].sum()) == pytest.approx(total, rel=0.01)
    by_cause = dict(found.group_by("cause").agg(pl.col("wait_s").sum()).iter_rows())
    assert by_cause.get(UNHELD, 0.0) < 0.01 * total
    assert by_cause.get("unexplained", 0.0) < 0.02 * total
    assert by_cause[COMPUTING] > 0
    assert verdict(name, "mutex-contention").verdict == "refuted"


@pytest.mark.parametrize("name", ALL)
def test_lost_seconds_have_a_line_of_the_log(name: str) -> None:
    blame = diagnosis(name).blame
    seconds = blame["copy_only_s"] + blame["idle_s"]
    assert float(seconds.filter(blame["line"].is_null()).sum()) < 0.01 * float(seconds.sum())
    in_phases = blame.join(
        read(name).phases.select("call", pl.col("name").alias("phase"), pl.col("line").alias("told")),
        on=["call", "phase"],
    )
    assert in_phases.height > 0
    assert (in_phases["line"] == in_phases["told"]).mean() > 0.99  # type: ignore[operator]


def test_light_then_heavy_shows_what_the_load_does_to_the_copy() -> None:
    own = verdict("light-then-heavy", "host-memory-contention")
    item = next(item for item in own.evidence if "concurrent syntheses" in item.text)
    # The capture's notes: ntt_kernels 420/530/610 ms in its light part, 570/840/1190 ms in its heavy part.
    assert item.value is not None and item.value < -0.6
    assert "GB/s a synthesis" in item.text
    assert own.stretched_s == pytest.approx(7.5, abs=2.0)


def test_the_told_story_refutes_what_the_articles_refute_for_their_reasons() -> None:
    for hypothesis in ("mutex-contention", "prep-barrier", "launch-overhead"):
        own = verdict("told-story", hypothesis)
        assert own.verdict == "refuted"
        assert "no PCIe traffic" in said(own), hypothesis
    assert "pageable-h2d 209" in verdict("told-story", "mutex-contention").main_reason
    # Consistent, and secondary: most of the slowness is there at the lightest load too.
    contention = verdict("told-story", "host-memory-contention")
    assert contention.verdict == "supported"
    assert contention.lost_s == 0.0
    pageable = verdict("told-story", "pageable-h2d")
    assert pageable.lost_s is not None and contention.stretched_s is not None
    assert contention.stretched_s < 0.6 * pageable.lost_s
    # The log's own word on the volume, against the two gigabytes that were believed.
    assert "the log says 7.78 GB a call (num_constraints x 96 B), the trace 7.76 GB" in said(pageable)


def test_confidence_is_no_longer_certainty() -> None:
    for name in ALL:
        for finding in diagnosis(name).hypotheses:
            assert 0.0 <= finding.confidence <= 0.99
            assert (finding.confidence == 0.0) == (finding.verdict == "undetermined")


def test_membw_does_not_claim_what_its_load_cannot_show() -> None:
    own = verdict("pageable-membw", "host-memory-contention")
    assert own.verdict == "undetermined"
    assert "a load that changes more" in own.next_step
