"""What is in docs/deploy fits the exporter: every metric and label that it names exists."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputrace.live.metrics import CAUSES, Described, Metrics
from gputrace.schema import PHASE_NAMES
from tests.captures import ROOT

DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
# Prometheus gives these to every series itself.
ATTACHED = {"instance", "job"}
WORDS = {"by", "on", "ignoring", "and", "group_left", "sum", "max", "min", "rate", "increase", "time"}
VALUES = {
    "state": {"compute", "copy_only", "idle"},
    "direction": {"rx", "tx"},
    "cause": set(CAUSES),
    "phase": set(PHASE_NAMES),
}
SELECTOR = re.compile(r"([a-z_]\w*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|=|!=|!~)"([^"]*)"')


def known() -> dict[str, set[str]]:
    """Names of series with their labels."""
    names: dict[str, set[str]] = {"up": set(), "process_cpu_seconds_total": set()}
    for metric in Metrics().described:
        names[metric.name] = set(metric.labels)
        if metric.kind == "histogram":
            names |= {f"{metric.name}_{part}": set(metric.labels) for part in ("sum", "count")}
            names[f"{metric.name}_bucket"] = {*metric.labels, "le"}
    return names


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "gputrace-alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return loaded


def queries() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of all rules and panels."""
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def problems(query: str) -> list[str]:
    """What in a query the exporter does not have."""
    names = known()
    found = []
    plain = re.sub(r'"[^"]*"', '""', query)
    named = set(re.findall(r"\b(?:gputrace|process)_\w+|\bup\b", plain))
    if not named:
        found.append("names no metric")
    found += [f"no metric {name}" for name in named if name not in names]
    for name, matchers in SELECTOR.findall(query):
        for label, operator, value in MATCHER.findall(matchers):
            if label not in names.get(name, set()) | ATTACHED:
                found.append(f"{name} has no label {label}")
            if operator == "=" and label in VALUES and value not in VALUES[label]:
                found.append(f"{label} is never {value}")
    labels = set().union(*(names.get(name, set()) for name in named)) | ATTACHED
    for listed in re.findall(r"\b(?:by|on|ignoring)\s*\(([^)]*)\)", query):
        found += [f"no label {label}" for label in re.findall(r"\w+", listed) if label not in labels]
    if query.count("(") != query.count(")"):
        found.append("brackets")
    return found


def test_queries_name_what_exists() -> None:
    checked = {where: problems(query) for where, query in queries()}
    assert {where: found for where, found in checked.items() if found} == {}
    assert len(checked) >= 20


@pytest.mark.parametrize(
    "query",
    [
        "rate(gputrace_state_second_total[5m])",
        'gputrace_state_seconds_total{stat="idle"}',
        'gputrace_state_seconds_total{state="waiting"}',
        "sum by (phase) (gputrace_state_seconds_total)",
        "sum(rate(gputrace_state_seconds_total[5m])",
        "vector(1)",
    ],
)
def test_a_wrong_query_is_found(query: str) -> None:
    assert problems(query)


def test_counters_are_only_used_as_rates() -> None:
    for where, query in queries():
        for name in re.findall(r"\bgputrace_\w+(?:_total|_bucket)\b", query):
            assert re.search(rf"(?:rate|increase)\(\s*{name}", query), (where, name)


def test_alerts_say_what_they_are_about() -> None:
    for rule in alerts():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"info", "warning"}
        assert rule["annotations"]["summary"]
        # Labels that a message shows must come out of the query.
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert (
                label in rule["expr"]
                or label in ATTACHED
                or label in known()[re.findall(r"gputrace_\w+", rule["expr"])[0]]
            )
    text = (DEPLOY / "README.md").read_text()
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in text] == []


def test_dashboard_can_be_imported() -> None:
    board = dashboard()
    assert board["id"] is None and board["uid"] and board["title"] and board["schemaVersion"] >= 36
    assert board["templating"]["list"][0]["type"] == "datasource"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    for where, query in queries():
        assert set(re.findall(r"\$(\w+)", query)) <= variables, where
    for variable in board["templating"]["list"][1:]:
        name, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        assert label in known()[name] | ATTACHED


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def by_rules(metric: Described) -> list[str]:
    """What is wrong with a metric's name, by prometheus.io/docs/practices/naming."""
    wrong = []
    if not re.fullmatch(r"gputrace_[a-z][a-z0-9_]*", metric.name):
        wrong.append("form")
    if (metric.kind == "counter") != metric.name.endswith("_total"):
        wrong.append("_total is for counters, all of them")
    if re.search(r"_(ms|milliseconds|mb|mib|gb|gib|percent|minutes|kilobytes)\b", metric.name):
        wrong.append("not a base unit")
    if metric.kind == "histogram" and not metric.name.endswith("_seconds"):
        wrong.append("no unit")
    if {"le", "quantile", "instance", "job", "call", "job_id"} & set(metric.labels):
        wrong.append("label")
    if not metric.meaning:
        wrong.append("no help")
    return wrong


def test_metrics_are_named_by_the_conventions() -> None:
    assert {metric.name: by_rules(metric) for metric in Metrics().described if by_rules(metric)} == {}
    assert by_rules(Described("gputrace_waits_ms", "counter", ("job",), "")) != []


def unit(path: Path) -> RawConfigParser:
    parsed = RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(path)
    return parsed


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_keep_below_the_prover_and_start_again(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["Restart"] == "on-failure" and unit(path)["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["Nice"]) > 0 and int(service["OOMScoreAdjust"]) > 0
    assert {"CPUQuota", "MemoryMax"} <= set(service)
    assert service["NoNewPrivileges"] == "yes" and service["ProtectSystem"] == "strict"
    assert service["User"] != "root"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        (tmp_path / path.name).write_text(path.read_text().replace("/usr/local/bin/gputrace", "/bin/true"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / path.name) for path in UNITS)], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_units_give_commands_that_exist() -> None:
    from typer.main import get_command

    from gputrace.cli import app

    command = get_command(app).commands["export"]  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in parameter.opts}
    words = unit(DEPLOY / "gputrace-export.service")["Service"]["ExecStart"].split()
    assert words[1] == "export"
    assert {word for word in words if word.startswith("--")} <= options
