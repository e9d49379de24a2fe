"""Made summaries to a table: ranking, outliers, trends, the deploy, and what is said of them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gputrace.errors import UsageError
from gputrace.fleet.deploy import DeployAsked
from gputrace.fleet.frames import HostNames
from gputrace.fleet.result import LOST, RATE, Fleet
from gputrace.fleet.run import assemble
from gputrace.fleet.summary import CaptureSummary, Failure
from gputrace.render.fleet_html import FleetHtmlRenderer
from gputrace.render.fleet_json import FleetJsonRenderer
from gputrace.render.fleet_tables import FleetTables
from gputrace.render.fleet_text import FleetTextRenderer
from tests.captures import ROOT
from tests.fleets import DAY_NS, FIRST_NS, summary

HOSTILE = "</script><img/src=x/onerror=window.pwned=1>"


def many(
    hosts: int = 10, days: int = 8, per_day: float = 0.0, deployed: float = 0.0, seed: int = 1
) -> list[CaptureSummary]:
    """Hosts that lose about 30 %, `per_day` seconds more each day, `deployed` fewer from the second half on."""
    rng = np.random.default_rng(seed)
    made = []
    for host in range(hosts):
        usual = rng.normal(30.0, 1.0)
        for day in range(days):
            after = day >= days / 2
            copied = usual + rng.normal(0, 0.5) + per_day * day - deployed * after
            made.append(
                summary(f"h{host}", day, {"pageable-h2d": copied, "unexplained": 1.0}, deploy="v2" if after else "v1")
            )
    return made


def test_hosts_and_gpus_are_ranked_by_what_they_lose() -> None:
    fleet = assemble(
        [
            summary("a", 0, {"pageable-h2d": 10.0}),
            summary("a", 1, {"pageable-h2d": 5.0, "prep-barrier": 20.0}),
            summary("b", 0, {"prep-barrier": 30.0}),
            summary("b", 0, {"prep-barrier": 6.0}, gpu=1),
            summary("c", 0, {"prep-barrier": 3.0}, supported=False),
        ]
    )
    assert fleet.hosts["host"].to_list() == ["b", "a", "c"]
    assert fleet.gpus.select("host", "gpu", "lost_s").rows() == [
        ("a", 0, 35.0),
        ("b", 0, 30.0),
        ("b", 1, 6.0),
        ("c", 0, 3.0),
    ]
    b = fleet.hosts.row(0, named=True)
    assert (b["gpus"], b["captures"], b["window_s"], b["lost_share"], b["lost_per_call_s"]) == (2, 2, 200.0, 0.18, 0.36)
    assert fleet.hosts["main_cause"].to_list() == ["prep-barrier", "prep-barrier", None]
    assert fleet.hosts["largest"].to_list() == ["prep-barrier"] * 3
    cause = fleet.causes.row(0, named=True)
    assert (cause["cause"], cause["lost_s"], cause["hosts"], cause["hosts_main"]) == ("prep-barrier", 59.0, 3, 2)
    assert cause["supported_share"] == pytest.approx(56 / 59)
    assert (cause["worst_host"], cause["worst_s"]) == ("b", 30.0)
    ranks = fleet.gpu_causes.filter(cause="prep-barrier").select("host", "gpu", "rank").rows()
    assert ranks == [("b", 0, 1), ("a", 0, 2), ("b", 1, 3), ("c", 0, 4)]
    assert "the main cause on 2 of 3 hosts (67%)" in fleet.headline
    assert fleet.headline.startswith("3 hosts with 4 GPUs lost 15% of 500 s of GPU time; 59 s (80%) went to ")


def test_the_order_of_captures_does_not_matter() -> None:
    made = many()
    document = FleetJsonRenderer().render
    # Equal up to the list of captures itself, which is in the order given.
    turned, straight = json.loads(document(assemble(made[::-1]))), json.loads(document(assemble(made)))
    assert turned.pop("captures")[::-1] == straight.pop("captures")
    assert turned == straight


@pytest.mark.parametrize(("causes", "said"), [({"unexplained": 9.0}, "is unexplained"), ({}, "lost 0% of 100 s")])
def test_the_headline_claims_no_more_than_there_is(causes: dict[str, float], said: str) -> None:
    assert said in assemble([summary("a", 0, causes)]).headline


def test_the_headline_says_what_captures_do_not_support() -> None:
    fleet = assemble([summary("a", 0, {"prep-barrier": 9.0}, supported=False)])
    assert "looks like prep-barrier, but captures with only 0% of that support the verdict" in fleet.headline


def test_a_gpu_far_from_the_others_is_an_outlier_and_the_others_are_not() -> None:
    made = [*many(hosts=12), *(summary("odd", day, {"throttled": 25.0, "pageable-h2d": 30.0}) for day in range(8))]
    fleet = assemble(made)
    assert {(o.host, o.measure) for o in fleet.outliers} == {("odd", LOST), ("odd", "throttled")}
    worst = fleet.outliers[0]
    assert (worst.measure, worst.median, worst.compared) == ("throttled", 0.0, 13)
    assert worst.value == pytest.approx(0.25) and worst.excess_s == pytest.approx(200.0)
    assert worst.z > worst.cut > 3.5


def test_gpus_of_other_models_are_not_compared_and_few_are_undetermined() -> None:
    others = [summary(f"x{n}", 0, {"pageable-h2d": 90.0}, model="NVIDIA A100") for n in range(3)]
    fleet = assemble([*many(hosts=12), *others, summary("idle", 0, {"pageable-h2d": 90.0}, calls=3)])
    assert fleet.outliers == ()
    told = {notice.code: notice for notice in fleet.notices}
    assert told["outliers-few-gpus"].count == 3 and "8 are needed" in told["outliers-few-gpus"].text
    assert told["outliers-few-calls"].count == 1


def fleet_trend(fleet: Fleet, measure: str = LOST) -> str:
    return next(trend.verdict for trend in fleet.trends if trend.host is None and trend.measure == measure)


def test_what_rises_by_day_is_seen_on_the_fleet_and_on_hosts() -> None:
    fleet = assemble(many(per_day=1.5))
    assert fleet_trend(fleet) == fleet_trend(fleet, "pageable-h2d") == "rising"
    assert fleet_trend(fleet, RATE) == "not-shown"
    hosts = {trend.host for trend in fleet.trends if trend.host and trend.verdict == "rising"}
    assert len(hosts) == 10
    slope = next(trend.slope for trend in fleet.trends if trend.host is None)
    assert slope is not None and slope.low < 0.015 < slope.high


def test_what_stays_or_barely_moves_is_no_trend() -> None:
    assert fleet_trend(assemble(many(seed=5))) == "not-shown"
    assert fleet_trend(assemble(many(per_day=0.1, hosts=40))) == "small"


def test_few_days_are_undetermined() -> None:
    fleet = assemble(many(days=4, per_day=5.0))
    assert {trend.verdict for trend in fleet.trends} == {"undetermined"}
    assert fleet.trends[0].why == "4 days with 8 calls or more; 5 are needed"


def change(fleet: Fleet, measure: str = LOST) -> tuple[str, float]:
    assert fleet.deploy is not None
    found = next(c for c in fleet.deploy.changes if c.measure == measure)
    return found.verdict, found.difference.value if found.difference else 0.0


def test_the_newest_version_is_compared_with_the_one_before() -> None:
    fleet = assemble(many(deployed=12.0))
    assert fleet.deploy is not None and fleet.deploy.detected and fleet.deploy.what == "version v2"
    verdict, difference = change(fleet)
    assert verdict == "less" and difference == pytest.approx(-0.12, abs=0.01)
    assert change(fleet, "pageable-h2d")[0] == "less"
    assert change(fleet, RATE)[0] == "not-shown"
    assert [h.captures_before for h in fleet.deploy.hosts] == [4] * 10


def test_versions_older_than_the_one_before_are_left_out() -> None:
    old = [summary(f"h{n}", -1, {"pageable-h2d": 90.0}, deploy="v0") for n in range(10)]
    assert change(assemble([*old, *many(deployed=12.0)])) == change(assemble(many(deployed=12.0)))


def test_a_deploy_by_time_leaves_out_captures_across_it() -> None:
    made = [replace(s, deploy=None) for s in many(deployed=12.0)]
    across = replace(summary("h0", 3, name="/fleet/h0/across"), end_ns=FIRST_NS + 5 * DAY_NS)
    lonely = summary("new", 7)
    fleet = assemble([*made, across, lonely], deploy=DeployAsked.of("2026-03-17T00:00:00Z"))
    assert fleet.deploy is not None
    assert (fleet.deploy.straddling, fleet.deploy.one_sided_hosts, len(fleet.deploy.hosts)) == (1, 1, 10)
    assert change(fleet)[0] == "less"
    assert assemble(made).deploy is None


def test_no_change_and_few_hosts_are_told_as_such() -> None:
    assert change(assemble(many(seed=3)))[0] == "not-shown"
    assert change(assemble(many(hosts=5, deployed=12.0)))[0] == "undetermined"


def test_a_version_that_no_capture_has_is_a_wrong_request() -> None:
    with pytest.raises(UsageError, match="these name v1, v2"):
        assemble(many(), deploy=DeployAsked.of("v9"))


def test_hosts_are_named_by_pattern_meta_or_folder() -> None:
    made = [summary("told"), summary(None, name="/fleet/rack-7/run")]
    assert assemble(made).hosts["host"].sort().to_list() == ["run", "told"]
    assert "host-guessed" in {notice.code for notice in assemble(made).notices}
    by_path = assemble(made, names=HostNames.of("fleet/([^/]+)/"))
    assert by_path.hosts["host"].sort().to_list() == ["rack-7", "told"]
    for wrong in ("(", "fleet/"):
        with pytest.raises(UsageError, match="--host-pattern"):
            HostNames.of(wrong)


def test_captures_that_count_twice_are_told() -> None:
    fleet = assemble([summary("a", name="/f/1"), summary("a", name="/f/2"), summary("a", gpu=1, name="/f/3")])
    assert {notice.code: notice.count for notice in fleet.notices}["captures-overlap"] == 1


def test_a_capture_without_any_account_is_told() -> None:
    fleet = assemble([summary("a"), replace(summary("b"), days=())])
    assert {notice.code: notice.count for notice in fleet.notices}["no-account"] == 1
    assert fleet.hosts.height == 1
    nothing = assemble([replace(summary("b"), days=())])
    assert nothing.headline == "No GPU time could be accounted for in 1 capture."
    for renderer in (FleetTextRenderer(), FleetJsonRenderer(), FleetHtmlRenderer()):
        assert renderer.render(nothing)


@pytest.fixture(scope="module")
def full() -> Fleet:
    made = [*many(hosts=30, per_day=0.5, deployed=8.0), summary(HOSTILE, 0, {"throttled": 70.0}), summary("h0", gpu=1)]
    failed = [Failure(f"/fleet/bad/{HOSTILE}", "input", f"/fleet/bad/{HOSTILE}: damaged {HOSTILE}")]
    return assemble(made, failed)


def test_the_text_fits_in_80_columns_and_tells_everything(full: Fleet) -> None:
    text = FleetTextRenderer().render(full)
    assert max(map(len, text.splitlines())) <= 80
    for said in (
        "by cause",
        "Hosts by lost",
        "GPUs by lost",
        "Outliers",
        "Trends",
        "deploy",
        "Failed captures",
        "1 failed",
    ):
        assert said in text


def test_the_page_runs_nothing_of_what_a_capture_says(full: Fleet) -> None:
    page = FleetHtmlRenderer().render(full)
    assert HOSTILE not in page and "&lt;/script&gt;" in page
    assert page.count("<script>") == 1 and "http://" not in page and "https://" not in page
    assert page == FleetHtmlRenderer().render(full)


def test_the_json_has_the_keys_of_the_manual(full: Fleet) -> None:
    told = json.loads(FleetJsonRenderer().render(full))
    manual = (ROOT / "docs" / "fleet.md").read_text().split("## The JSON")[1]
    keys = {*told, *(key for part in told.values() for key in _keys_of(part))}
    assert told["schema"] == "gputrace.fleet/1" and len(keys) > 60
    for key in keys:
        assert f"`{key}`" in manual, key


def _keys_of(part: object) -> set[str]:
    rows = part if isinstance(part, list) else [part]
    return {key for row in rows if isinstance(row, dict) for key in row}


def test_the_tables_have_a_column_a_cause_and_every_second(full: Fleet) -> None:
    frames = FleetTables(full).frames()
    gpus = frames["gpus"]
    lost = [name for name in gpus.columns if name.endswith("_lost_s")]
    assert set(lost) == {"pageable-h2d_lost_s", "throttled_lost_s", "unexplained_lost_s"}
    assert sum(gpus[name].sum() for name in lost) == pytest.approx(full.gpus["lost_s"].sum())
    assert frames["losses"]["lost_s"].sum() == pytest.approx(full.gpus["lost_s"].sum())
    assert frames["days"]["host"].null_count() == 0 and frames["failures"].height == 1
