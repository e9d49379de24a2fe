"""Secrets planted wherever an input can carry them, then looked for in every output of a redacted report."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.redaction import NOTICE_WORDS, NOTICES_OF_OURS, REDACTED, Pseudonyms, redact
from gputrace.commands.report import report
from gputrace.render.json_report import report_object
from gputrace.schema import FRAMES
from gputrace.trace import GpuInfo, InputInfo, Notice, Quality, Trace
from tests.captures import ROOT, docker_lines, folder, read
from tests.perfetto_reader import read_file

# In the order: miner and job ids, host, unit and process, user and path, address, container, GPU and PCI serials.
SECRETS = (
    "f0zz31337", "t0zz1000", "quietwhale", "prover-zulu7", "zebraprover", "zorrodaemon", "zelda", "zparams",
    "zz10.31.33.7", "c0ffee5eed", "GPU-5eedface", "0000:5E:00.0", "ZSERIAL99", "ZSECRET_EVENT", "zkey", "zvalue",
)  # fmt: skip


@dataclass(frozen=True)
class Written:
    """The outputs of one redacted report."""

    folder: Path
    stdout: str

    def texts(self) -> Iterator[tuple[str, str]]:
        """(name, all of its text) of every output; what is packed is unpacked."""
        yield "stdout", self.stdout
        for path in sorted(self.folder.rglob("*")):
            if path.suffix == ".parquet":
                frame = pl.read_parquet(path)
                yield path.name, path.name + " ".join(frame.columns) + json.dumps(frame.to_dicts(), default=str)
            elif path.is_file() and path.suffix != ".png":
                yield path.name, path.read_bytes().decode("utf-8", "replace")


def planted(text: str, number: int) -> str:
    """A line of a real log with ids of our own; job ids hold a miner's."""
    for found in set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}", text)):
        text = text.replace(found, f"snap-f0zz31337-quietwhale-{found[:4]}")
    # One job whose name is a word that reports use themselves.
    return text.replace("snap-f0zz31337-quietwhale-3b6a", "gaps") if number % 2 else text


EXTRA = (
    "2026-11-29T11:59:20.000001Z ERROR gpu_worker{worker_id=0 gpu=0 job_id=porep-t0zz1000-9}: cuzk_core::engine: prove "
    "failed error=open /home/zelda/zparams: host prover-zulu7 zz10.31.33.7 container c0ffee5eed unit "
    "zebraprover.service gpu GPU-5eedface pci 0000:5E:00.0 serial ZSERIAL99 zkey=zvalue "
    "proof_kind=quietwhale circuit_id=zelda",
    "2026-11-29T11:59:20.000002Z  INFO cuzk_core::srs: SRS loaded circuit_id=porep-zelda elapsed_ms=1000",
    "2026-11-29T11:59:20.000003Z  INFO cuzk_core::srs: SRS evicted entry=srs:zparams freed_gib=4.0 zkey_ms=zvalue",
    "TIMELINE,11000,ZSECRET_EVENT,snap-f0zz31337-quietwhale-1,worker=0,partition=3",
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    home = tmp_path_factory.mktemp("home") / "zelda" / "prover-zulu7"
    home.mkdir(parents=True)
    lines = [(at, planted(re.sub(r"\x1b\[[0-9;]*m", "", text), 0)) for _, at, text in docker_lines("one-worker")]
    middle = lines[len(lines) // 2][0]
    lines += [(middle + number, text) for number, text in enumerate(EXTRA)]
    log = home / "zorrodaemon.log"
    log.write_text("".join(f"{iso(at)} prover-zulu7 zebraprover[4242]: {text}\n" for at, text in sorted(lines)))
    (home / "zvalue.csv").write_text("zkey,zvalue\nquietwhale,zelda\n")
    trace = home / "ZSERIAL99-nvml.csv.gz"
    trace.write_bytes((folder("one-worker") / "nvml.csv.gz").read_bytes())
    return [str(home)]


def iso(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 1_000_000_000 // 1000:06d}+00:00"


@pytest.fixture(scope="module")
def written(inputs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Written:
    out = tmp_path_factory.mktemp("out")
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "argv", ["gputrace", "report", *inputs, "--redact", "--html", "/home/zelda/a.html"])
    import io
    from contextlib import redirect_stdout

    said = io.StringIO()
    with redirect_stdout(said):
        report(
            inputs,
            html=str(out / "a.html"),
            json=str(out / "a.json"),
            markdown=str(out / "a.md"),
            perfetto=str(out / "a.pftrace"),
            tables=str(out / "tables"),
            charts=str(out / "charts"),
            redacted=True,
            calls=True,
            full=True,
            end="9999",
        )
    patch.undo()
    return Written(out, said.getvalue())


def test_the_inputs_carry_the_secrets(inputs: list[str]) -> None:
    from gputrace.loading import load

    trace = load(inputs)
    told = str([info.path for info in trace.inputs]) + trace.marks.write_json() + str(trace.quality)
    carried = [secret for secret in SECRETS if secret.lower() in told.lower()]
    assert {"f0zz31337", "t0zz1000", "quietwhale", "zelda", "zorrodaemon", "ZSECRET_EVENT", "zkey"} <= set(carried)
    assert len(carried) >= 11


def test_no_output_has_a_secret(written: Written) -> None:
    seen = 0
    for name, text in written.texts():
        seen += 1
        found = [secret for secret in SECRETS if secret.lower() in text.lower()]
        assert found == [], f"{name} tells {found}"
    assert seen > 30


def test_every_output_says_that_it_is_redacted(written: Written) -> None:
    told = {name for name, text in written.texts() if "redact" in text}
    assert {"stdout", "a.html", "a.json", "a.md", "a.pftrace", "README.md"} <= told
    assert {name for name in told if name.endswith(".svg")} == {path.name for path in written.folder.rglob("*.svg")}


def test_pseudonyms_agree_between_outputs(written: Written) -> None:
    found = json.loads((written.folder / "a.json").read_text())
    calls = pl.read_parquet(written.folder / "tables" / "calls.parquet")
    of_json = {call["call"]: call["job"] for call in found["calls_list"]}
    assert of_json == dict(calls.select("call", "job").iter_rows())
    shown = {item.args["call"]: item.args.get("job") for item in read_file(written.folder / "a.pftrace").on(": calls")}
    assert shown.items() <= of_json.items()
    assert set(calls["job"].drop_nulls()) <= {f"job-{number}" for number in range(1, 20)}
    assert calls["job"].drop_nulls().n_unique() > 1
    paths = [info["path"] for info in found["inputs"]]
    assert "log-1" in paths and "samples-1" in paths
    assert "log-1" in written.stdout and "log-1" in (written.folder / "a.md").read_text()


@pytest.mark.parametrize("name", ["told-story", "one-worker"])
def test_the_diagnosis_is_the_same(name: str) -> None:
    def rounded(trace: Trace) -> str:
        found = report_object(trace, diagnose(trace, scenarios=()), calls=True)
        kept = {key: value for key, value in found.items() if key not in ("inputs", "quality")}
        text = json.dumps(kept, indent=0, sort_keys=True)
        return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda number: f"{float(number.group()):.6g}", text)

    trace = read(name)
    hidden = redact(trace)
    names = dict(zip(trace.syntheses["job"], hidden.syntheses["job"], strict=True))
    plain = rounded(trace)
    for job, pseudonym in names.items():
        if job is not None:
            plain = plain.replace(json.dumps(job), json.dumps(pseudonym))
    plain = re.sub(r"NVIDIA GPU \(hand-made\)", "model withheld", plain)
    assert len(names) > 1
    assert rounded(hidden) == plain


def test_words_that_are_also_names_stay_words() -> None:
    trace = read("one-worker")
    job = trace.calls["job"].drop_nulls()[0]
    named = replace(trace, calls=trace.calls.with_columns(pl.col("job").replace(job, "gpu_total")))
    hidden = redact(named)
    assert "gpu_total" not in hidden.calls["job"].to_list()
    assert "gpu_total" in hidden.phases["name"].to_list()


def test_no_text_of_a_frame_gets_through_unasked() -> None:
    """Every text column of a trace filled with a secret: what comes out is a pseudonym, or a word of ours."""
    ours = {("marks", "family"), ("calls", "missing"), ("phases", "name")}
    trace = Trace(
        inputs=[InputInfo("/quietwhale", "quietwhale", "quietwhale")],
        gpus=[GpuInfo(0, "quietwhale")],
        quality=Quality(marks_by_event={"quietwhale": 1}, notices=[Notice("rows-broken", "/quietwhale: broken")]),
    )
    for frame in FRAMES:
        own = getattr(read("told-story"), frame.name)
        own = own if own.height else pl.DataFrame([dict.fromkeys(own.columns)], schema=own.schema)
        texts = [n for n, kind in own.schema.items() if kind == pl.String and (frame.name, n) not in ours]
        setattr(trace, frame.name, own.with_columns(pl.lit("quietwhale").alias(name) for name in texts))
    hidden = redact(trace)
    for frame in FRAMES:
        assert "quietwhale" not in getattr(hidden, frame.name).write_json(), frame.name
    assert "quietwhale" not in str(hidden.gpus) + str(hidden.quality)
    assert hidden.inputs[0].path == "input-1" and hidden.inputs[0].format == "column-map"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("NVIDIA H200", True), ("NVIDIA GeForce RTX 4090", True), ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA H100 80GB HBM3", True), ("NVIDIA RTX 6000 Ada Generation", True),
        ("H200 of zelda", False), ("NVIDIA H200 f031337", False), ("prover-zulu7", False),
    ],
)  # fmt: skip
def test_models_of_gpus_are_kept_where_they_are_known_words(name: str, kept: bool) -> None:
    assert (redact(Trace(gpus=[GpuInfo(0, name)])).gpus[0].name == name) is kept


def test_notices_of_ours_are_those_of_the_code() -> None:
    code = " ".join(path.read_text() for path in (ROOT / "gputrace").rglob("*.py") if path.stem != "redaction")
    for known in {*NOTICES_OF_OURS, *NOTICE_WORDS}:
        assert f'"{known}"' in code
    assert NOTICES_OF_OURS.isdisjoint(NOTICE_WORDS)
    unknown = redact(Trace(quality=Quality(notices=[Notice("new-code", "/home/zelda", 3)])))
    assert [(notice.code, notice.count) for notice in unknown.quality.notices] == [(REDACTED, 1), ("new-code", 3)]
    assert "zelda" not in str(unknown.quality)


def test_the_same_name_is_the_same_pseudonym() -> None:
    names = Pseudonyms()
    assert [names.of("job", name) for name in ("b", "a", "b")] == ["job-1", "job-2", "job-1"]
