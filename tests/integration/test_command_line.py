"""The command line as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

from tests.captures import SAMPLES


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gputrace", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


STORY = str(SAMPLES["told-story"])


def test_report_writes_html_and_json_and_says_so(tmp_path: Path) -> None:
    html, json_file = tmp_path / "report.html", tmp_path / "report.json"
    done = run("report", STORY, "--html", str(html), "--json", str(json_file))
    assert done.returncode == 0
    assert f"Wrote {html}" in done.stderr
    assert "pageable-h2d" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert json.loads(json_file.read_text())["schema"] == "gputrace.report/1"
    assert "pageable" in html.read_text()


def test_files_are_not_overwritten_unasked(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("mine")
    done = run("report", STORY, "--json", str(target))
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert target.read_text() == "mine"
    assert run("report", STORY, "--json", str(target), "--force").returncode == 0


def test_only_json_goes_to_stdout() -> None:
    done = run("report", STORY, "--json", "-")
    assert json.loads(done.stdout)["calls"]["complete"] == 60


def test_two_documents_cannot_share_stdout() -> None:
    done = run("report", STORY, "--json", "-", "--html", "-")
    assert done.returncode == 2
    assert "stdout" in done.stderr


def test_wrong_usage_is_code_2() -> None:
    assert run("report").returncode == 2
    assert run("reprot").returncode == 2
    assert run("report", STORY, "--gap-ms", "0").returncode == 2


def test_gap_threshold_limits_only_the_list() -> None:
    few, many = (json.loads(run("report", STORY, "--json", "-", "--gap-ms", ms).stdout) for ms in ("5000", "500"))
    assert few["gaps"]["count"] < many["gaps"]["count"]
    assert few["gaps"]["by_cause"] == many["gaps"]["by_cause"]
    assert few["gaps"]["below_threshold_s"] > many["gaps"]["below_threshold_s"]


def test_formats_are_listed_and_lines_explained() -> None:
    listed = run("formats", "list").stdout
    assert "cuzk-timing" in listed and "docker-json" in listed and "nvidia-smi-dmon" in listed
    explained = run("formats", "check", str(SAMPLES["told-story"] / "prover.log.gz")).stdout
    assert "mutex_released" in explained
    assert "2 torn and repaired" in explained


def test_version_and_help() -> None:
    assert run("--version").stdout.strip() == "0.1.0"
    assert "report" in run("--help").stdout
