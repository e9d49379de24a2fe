"""How often the verdicts are right: labelled simulated runs of every cause, and the real captures beside them.

Writes docs/verdict-accuracy.md with `GPUTRACE_UPDATE_GOLDEN=1`; otherwise checks that the document is what is measured.
Chunks of the set are analysed by whichever test process comes first, and shared through files.
"""

import os
import time
from pathlib import Path

import pytest

from tests.captures import ROOT, diagnosis
from tests.labelled import ABSENT, CAUSES, LEAD, NONE, PRESENT, labelled_runs
from tests.verdicts import Outcome, Score, conclude, confusion, read_outcomes, top_cause, write_outcomes

TARGET = ROOT / "docs" / "verdict-accuracy.md"
CHUNKS = 12
TIMEOUT_S = 600.0
# Of all runs, the top cause must be right in so many; of all causes absent in truth, so many may be called supported.
RIGHT, CLAIMED = 0.95, 0.02
REAL = {
    "pageable-heavy": "pageable-h2d",
    "pageable-membw": "pageable-h2d",
    "light-then-heavy": "pageable-h2d",
    "told-story": "pageable-h2d",
    "pinned-heavy": "pinned-alloc-stall",
    "one-worker": "pageable-h2d",
}
HEAD = f"""# How often the verdicts are right

Made by `tests/integration/test_verdict_accuracy.py`. Simulated runs (`tests/labelled.py`) of 22 to 53 calls each, in
which one or two causes are planted, or none. What is expected is decided by the schedule's truth
(`gputrace/simulate/costs.py`), not by what was planted: a cause is present from {PRESENT:.0%} of the GPU seconds truly
lost, absent below {ABSENT:.1%}, and not scored between. The top cause is the one that cost most; those within a factor
of {LEAD} of it are accepted too. Below {PRESENT:.0%} for every cause, `{NONE}` is right. `kernel-phase-idle` and
`line-rate-copy`, which are what a healthy run has left, do not count as causes. From the log alone, saying that the
true cause cannot be decided is right; naming another is not.

"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chunk" in metafunc.fixturenames:
        marks = [pytest.param(n, marks=pytest.mark.xdist_group(f"verdicts-{n}")) for n in range(CHUNKS)]
        metafunc.parametrize("chunk", marks)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of this session see."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "verdicts"
    folder.mkdir(exist_ok=True)
    return folder


def analysed(chunk: int, shared: Path) -> list[Outcome]:
    """The outcomes of one chunk: analysed here, or by the process that has claimed it."""
    done, claim = shared / f"{chunk}.json", shared / f"{chunk}.claim"
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        waited_from = time.monotonic()
        while not done.exists():
            assert time.monotonic() - waited_from < TIMEOUT_S, f"chunk {chunk} was claimed and never finished"
            time.sleep(0.2)
        return read_outcomes(done)
    outcomes = []
    for run in labelled_runs()[chunk::CHUNKS]:
        into = shared / str(run.number)
        into.mkdir()
        outcomes.append(conclude(run, into))
    write_outcomes(outcomes, done)
    return outcomes


def test_every_run_is_analysed(chunk: int, shared: Path) -> None:
    outcomes = analysed(chunk, shared)
    assert len(outcomes) == len(labelled_runs()[chunk::CHUNKS])
    assert all(set(CAUSES) <= set(outcome.verdicts) for outcome in outcomes)


@pytest.fixture(scope="session")
def outcomes(shared: Path) -> list[Outcome]:
    """All runs', in their order."""
    return sorted((o for chunk in range(CHUNKS) for o in analysed(chunk, shared)), key=lambda outcome: outcome.name)


def test_the_set_has_every_cause_as_the_top_one() -> None:
    truths = [run.truth() for run in labelled_runs()]
    assert len(truths) >= 150
    for cause in CAUSES:
        assert sum(cause in truth.top for truth in truths) >= 5, cause
        assert sum(cause in truth.absent for truth in truths) >= 50, cause
    assert sum(truth.top == {NONE} for truth in truths) >= 12
    assert sum(len(truth.present) > 1 for truth in truths) >= 40
    assert sum(not run.with_trace for run in labelled_runs()) >= 15


@pytest.mark.xdist_group("verdicts-0")
def test_top_causes_are_right(outcomes: list[Outcome]) -> None:
    score = Score.of(outcomes)
    wrong = [outcome.explained() for outcome in outcomes if not outcome.right]
    assert score.right >= RIGHT * score.runs, f"{score}\n" + "\n".join(wrong)


@pytest.mark.xdist_group("verdicts-0")
def test_absent_causes_are_not_claimed(outcomes: list[Outcome]) -> None:
    score = Score.of(outcomes)
    claims = [outcome.explained() for outcome in outcomes if outcome.claimed]
    assert score.claimed <= CLAIMED * score.absent, f"{score}\n" + "\n".join(claims)


def test_real_captures() -> None:
    assert {name: top_cause(diagnosis(name).hypotheses) for name in REAL} == REAL


@pytest.mark.xdist_group("verdicts-0")
def test_the_document_is_what_is_measured(outcomes: list[Outcome]) -> None:
    text = HEAD + _summary(outcomes) + _by_cause(outcomes) + _confusion(outcomes) + _wrong(outcomes)
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        TARGET.write_text(text, encoding="utf-8")
    assert TARGET.read_text(encoding="utf-8") == text


def _summary(outcomes: list[Outcome]) -> str:
    rows = {
        "all": outcomes,
        "log and GPU trace": [o for o in outcomes if o.with_trace],
        "log alone": [o for o in outcomes if not o.with_trace],
        "nothing wrong": [o for o in outcomes if o.true_top == [NONE]],
        "several causes present": [o for o in outcomes if len(o.present) > 1],
    }
    text = "## Simulated: the whole set\n\n"
    text += "| runs | top cause right | absent, but supported | present and supported | present, but refuted |\n"
    text += "|---|---|---|---|---|\n"
    for name, some in rows.items():
        score = Score.of(some)
        right = f"{score.right}/{score.runs} ({score.right / score.runs:.0%})"
        claimed = f"{score.claimed}/{score.absent} ({score.claimed / score.absent:.1%})"
        found, refuted = (f"{n}/{score.present}" if score.present else "-" for n in (score.found, score.refuted))
        text += f"| {name} | {right} | {claimed} | {found} | {refuted} |\n"
    return text + "\n"


def _by_cause(outcomes: list[Outcome]) -> str:
    text = (
        "## By cause, with real captures beside\n\nReal: the captures whose top cause this is known to be, and how many"
        " of them the verdict names it for.\n\n"
        "| cause | top in truth: right | absent: supported | present: supported | present: refuted | real |\n"
        "|---|---|---|---|---|---|\n"
    )
    said = {name: top_cause(diagnosis(name).hypotheses) for name in REAL}
    for cause in CAUSES:
        tops = [o for o in outcomes if o.label == cause]
        known = [name for name, top in REAL.items() if top == cause]
        real = f"{sum(said[name] == cause for name in known)}/{len(known)}: {', '.join(known)}" if known else "-"
        absent, present = ([o for o in outcomes if cause in getattr(o, kind)] for kind in ("absent", "present"))
        claimed = sum(cause in o.claimed for o in absent)
        found, refuted = (sum(cause in o.present_and(verdict) for o in present) for verdict in ("supported", "refuted"))
        text += (
            f"| `{cause}` | {sum(o.right for o in tops)}/{len(tops)} | {claimed}/{len(absent)} | "
            f"{found}/{len(present)} | {refuted}/{len(present)} | {real} |\n"
        )
    return text + "\n"


def _confusion(outcomes: list[Outcome]) -> str:
    text = (
        "## True top cause and concluded top cause\n\nA run in which two causes are close counts under the one that "
        "was concluded. `undetermined`: from the log alone,\nand said to be so.\n\n"
        "| in truth | concluded |\n|---|---|\n"
    )
    for label, counts in confusion(outcomes).items():
        said = ", ".join(f"`{cause}` {n}" for cause, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
        text += f"| `{label}` | {said or '-'} |\n"
    return text + "\n"


def _wrong(outcomes: list[Outcome]) -> str:
    wrong = [o for o in outcomes if not o.right or o.claimed]
    text = "## Runs with a wrong top cause or a false claim\n\n"
    return text + ("".join(f"- {outcome}\n" for outcome in wrong) or "None.\n")
