"""Whatever a log says, no line of the terminal report is wider than asked, and nothing in it acts on the terminal."""

import itertools
import re
import unicodedata

import polars as pl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gputrace.analysis.diagnosis import (
    CallSummary,
    CauseTotal,
    Diagnosis,
    Driver,
    Evidence,
    Gap,
    Gaps,
    GpuFinding,
    Handovers,
    HypothesisFinding,
    Interleaving,
    PhaseFinding,
    Regime,
    ShortestTime,
    Verdict,
    WaitsFor,
    Window,
)
from gputrace.render.text import TextRenderer, WhatIfTextRenderer
from gputrace.trace import InputInfo, Quality, Trace
from tests.made import BOUNDS, with_outlook

HOSTILE = (
    "\x1b[31mred\x1b[0m", "a\rb", "bell\a", "\x1b]0;title\x07", "\u202egnp.exe", "\u2066x\u2069", "two\nlines",
    "\x9b2J",
)  # fmt: skip
WIDE = ("証明者の仕事", "🦀🦀🦀", "e\u0301e\u0301", "porep-" + "1234567890" * 14, "a b " * 40, "")
TEXT = st.one_of(st.sampled_from([*HOSTILE, *WIDE]), st.text(max_size=60))


# Shrinking a whole diagnosis takes minutes; the failing line is in the message already.
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)


@st.composite
def diagnoses(draw: st.DrawFn) -> tuple[Trace, Diagnosis]:
    """A run of one to four GPUs in which every name is arbitrary."""
    texts = itertools.cycle(draw(st.lists(TEXT, min_size=1, max_size=12)))
    shares = itertools.cycle(draw(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5)))
    sizes = itertools.cycle(draw(st.lists(st.floats(0.0, 1e8), min_size=1, max_size=5)))
    flag = draw(st.booleans())
    numbers = draw(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True))
    span = draw(st.integers(1, 10**12))
    causes = tuple(
        CauseTotal(next(texts), next(sizes), next(shares), next(sizes), next(sizes))
        for _ in range(draw(st.integers(0, 7)))
    )
    gap = Gap(numbers[0], 0, span, next(sizes), next(texts), next(texts), next(texts), 9 if flag else None, next(sizes))
    verdicts: tuple[Verdict, ...] = ("supported", "undetermined", "refuted")
    found = tuple(
        HypothesisFinding(
            next(texts), next(texts), verdict, next(shares), next(sizes),
            evidence=tuple(Evidence(next(texts), None, None, not flag, (4, 10**9)) for _ in range(2)),
            knob=next(texts), next_step=next(texts), stretched_s=next(sizes), changes_mind=next(texts),
        )
        for verdict in verdicts
    )  # fmt: skip
    least, longer = sorted((next(sizes), next(sizes)))
    phases = tuple(
        PhaseFinding(
            next(texts), flag, 9, least, least, least, least, longer, longer, "variable", "", True,
            rx_bytes_per_s={"median": next(sizes)}, rx_bytes_per_call_median=next(sizes), sm_share_median=next(shares),
            transfer=transfer, drivers=(Driver(next(texts), 0.5, 0.1, 9),),
        )
        for transfer in ("line-rate", "none", "unknown")
    )  # fmt: skip
    waits = (WaitsFor(0, 1, 3, 4.0, {next(texts): 3.0, next(texts): 1.0}),)
    shortest = (ShortestTime("x", next(texts), 3.0, next(texts), {}, ()),)
    workers = Interleaving(
        numbers[0], (0, 1), 9, 9.0, 8.0, 0.8, 0.5, (), 4.0, 0.0, waits, Handovers(3, 0.1, 0.9, 1.0, 2.0),
        Handovers(0, 0.0), 1.0, 0.5, 3, shortest, (next(texts),),
    )  # fmt: skip
    cuts = sorted({0, span, *draw(st.lists(st.integers(0, span), max_size=8))})
    seconds = [(end - start) / 1e9 for start, end in itertools.pairwise(cuts)]
    computed = [next(shares) * s for s in seconds]
    states = pl.DataFrame(
        {
            "gpu": [numbers[0]] * len(seconds),
            "start_ns": cuts[:-1],
            "end_ns": cuts[1:],
            "compute_s": computed,
            "copy_only_s": [s - c for s, c in zip(seconds, computed, strict=True)],
            "idle_s": [0.0] * len(seconds),
            "rx_bytes_per_s": [next(sizes) if i % 2 else None for i in range(len(seconds))],
        },
        schema_overrides={"rx_bytes_per_s": pl.Float64},
    )
    cause = causes[0].cause if causes else ""
    diagnosis = Diagnosis(
        headline=next(texts),
        headline_stable=flag,
        window=Window(0, span, span / 1e9, 0.0, 0.0),
        gpus=tuple(
            GpuFinding(
                n,
                next(texts),
                5,
                16,
                6e10,
                next(sizes),
                next(texts),
                next(shares),
                0.2,
                0.3,
                0.5,
                1e9,
                1e9,
                next(texts),
            )
            for n in numbers
        ),
        calls=CallSummary(9, 8, 1, 1, 0.5),
        phases=phases,
        gaps=Gaps(500.0, 3, next(sizes), next(sizes), next(shares), causes, (gap,) * 2),
        hypotheses=found,
        regimes=tuple(
            Regime(i * 10**6, (i + 1) * 10**6, 5, next(texts), next(texts), {}, next(texts), {}, next(sizes))
            for i in range(draw(st.sampled_from([0, 1, 2, 14])))
        ),
        bounds=BOUNDS,
        interleaving=(workers,),
        states=states,
        blame=states.select("gpu", "start_ns", "end_ns", "copy_only_s", "idle_s", pl.lit(cause).alias("cause")),
    )
    quality = Quality()
    for _ in range(4):
        quality.notice("made", next(texts), 1000)
    times = pl.DataFrame({"name": [phases[0].name] * 2, "duration_ms": [least, longer]})
    trace = Trace(inputs=[InputInfo(next(texts), "log", next(texts))], phases=times, quality=quality)
    return trace, with_outlook(diagnosis, next(texts)) if flag else diagnosis


@settings(max_examples=12, phases=QUICK)
@given(diagnoses(), st.integers(60, 120))
def test_no_line_is_wider_than_the_terminal(made: tuple[Trace, Diagnosis], width: int) -> None:
    trace, diagnosis = made
    for text in (
        TextRenderer(width).render(trace, diagnosis),
        TextRenderer(width, full=False).render(trace, diagnosis),
        TextRenderer(width, ascii=True).render(trace, diagnosis),
        WhatIfTextRenderer(width).render(trace, diagnosis),
    ):
        for line in text.split("\n"):
            assert cell_len(line) <= width, line
        assert not {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert TextRenderer(width, ascii=True).render(trace, diagnosis).isascii()


@settings(max_examples=4, phases=QUICK)
@given(diagnoses())
def test_colour_adds_only_colour(made: tuple[Trace, Diagnosis]) -> None:
    """Stripped of its codes, the coloured report is the plain one: nothing is said by colour alone."""
    trace, diagnosis = made
    plain = TextRenderer().render(trace, diagnosis)
    coloured = TextRenderer(colors="256").render(trace, diagnosis)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert "\x1b" not in stripped
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_the_lost_seconds_of_a_long_run_stay_in_one_line() -> None:
    lost = CauseTotal("no-work-queued", 18_321_374.3, 0.89, 0.0, 18_321_374.3)
    diagnosis = Diagnosis(gaps=Gaps(500.0, 3, 20_578_262.4, 0.0, 0.99, (lost,), ()))
    for full in (False, True):
        lines = TextRenderer(80, full=full).render(Trace(), diagnosis).split("\n")
        assert any("no-work-queued" in line and "18321374.3 s" in line and "89%" in line for line in lines)
