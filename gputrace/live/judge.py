"""The diagnosis of the last minutes, and what is new in it since the one before."""

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from gputrace.analysis.diagnose import diagnose
from gputrace.analysis.diagnosis import Diagnosis, Gap
from gputrace.analysis.headline import main_cause
from gputrace.analysis.segments import windows
from gputrace.analysis.selection import Selection, select
from gputrace.errors import GputraceError
from gputrace.trace import Trace

# Gaps shorter than this are in the sums by cause only.
LONG_GAP_S = 2.0
MOST_FINDINGS = 200


@dataclass(frozen=True)
class Judgement:
    """A diagnosis of the calls that ended by `at_ns`; without one, `missing` says why. `took_s` is what it cost."""

    at_ns: int
    diagnosis: Diagnosis | None = None
    missing: str = ""
    took_s: float = 0.0

    @property
    def cause(self) -> str | None:
        """The main cause of lost seconds, where one is supported."""
        found = self.diagnosis
        return main_cause(found.gaps.by_cause, found.hypotheses) if found is not None else None


def judge(trace: Trace, now_ns: int, window_s: float, clock: Callable[[], float]) -> Judgement:
    """The diagnosis of the `window_s` seconds before `now_ns`; nothing is predicted. `clock` times it, in seconds."""
    begun = clock()
    spans = windows(trace).frame
    ended = trace.calls.filter(pl.col("unlock_ns") <= now_ns)
    if spans.is_empty() or (ended.is_empty() and not trace.marks.is_empty()):
        return Judgement(now_ns, missing="no call has ended yet")
    begin_ns = int(spans["start_ns"].min())  # type: ignore[arg-type]
    end = f"{(now_ns - begin_ns) / 1e9:.3f}"
    try:
        found = diagnose(select(trace, Selection(end=end, last_s=window_s)), scenarios=())
    except GputraceError:
        return Judgement(now_ns, missing=f"no whole call in the last {window_s:g} s", took_s=clock() - begun)
    return Judgement(now_ns, found, took_s=clock() - begun)


@dataclass(frozen=True)
class Finding:
    """Something that was not so before, and when. `what`: the cause or the regime's label."""

    at_ns: int
    kind: str
    text: str
    what: str | None = None


@dataclass
class Findings:
    """What changed from one judgement to the next; the latest `MOST_FINDINGS`, each said once."""

    long_gap_s: float = LONG_GAP_S
    entries: list[Finding] = field(default_factory=list)
    _cause: str | None = None
    _label: str | None = None
    _gaps_until: dict[int, int] = field(default_factory=dict)

    def add(self, judgement: Judgement) -> None:
        """Notes what is new in this one."""
        found = judgement.diagnosis
        if found is None:
            return
        entries = [*self._gaps(found)]
        if found.regimes and (label := found.regimes[-1].label) != self._label:
            regime = found.regimes[-1]
            why = f" ({regime.reason})" if len(found.regimes) > 1 and regime.reason else ""
            at_ns = regime.start_ns if self._label is None or len(found.regimes) > 1 else judgement.at_ns
            entries.append(Finding(at_ns, "regime", f"regime: {label}{why}", label))
            self._label = label
        if (cause := judgement.cause) != self._cause:
            entries.append(Finding(judgement.at_ns, "cause", _new_cause(cause, self._cause, found), cause))
            self._cause = cause
        self.entries = sorted([*self.entries, *entries], key=lambda entry: entry.at_ns)[-MOST_FINDINGS:]

    def back_to(self, now_ns: int) -> None:
        """Forgets what is later than `now_ns`, as after going back in a replay."""
        self.entries = [entry for entry in self.entries if entry.at_ns <= now_ns]
        said = {entry.kind: entry.what for entry in self.entries}
        self._cause, self._label = said.get("cause"), said.get("regime")
        self._gaps_until = {gpu: min(until, now_ns) for gpu, until in self._gaps_until.items()}

    def _gaps(self, found: Diagnosis) -> list[Finding]:
        entries = []
        for gap in sorted(found.gaps.list, key=lambda gap: gap.start_ns):
            if gap.duration_ms < self.long_gap_s * 1e3 or gap.start_ns < self._gaps_until.get(gap.gpu, 0):
                continue
            self._gaps_until[gap.gpu] = gap.end_ns
            entries.append(Finding(gap.end_ns, "gap", _long_gap(gap, len(found.gpus) > 1)))
        return entries


def _long_gap(gap: Gap, name_gpu: bool) -> str:
    where = f"GPU {gap.gpu} " if name_gpu else ""
    phase = f" in {gap.phase}" if gap.phase else ""
    return f"{where}gap of {gap.duration_ms / 1e3:.1f} s{phase}: {gap.cause}"


def _new_cause(cause: str | None, before: str | None, found: Diagnosis) -> str:
    if cause is None:
        return f"main cause: none is supported any more (was {before})"
    total = next(item for item in found.gaps.by_cause if item.cause == cause)
    was = f" (was {before})" if before else ""
    return f"main cause: {cause}, {total.total_s:.1f} s, {total.share:.0%} of what is lost{was}"


class Budget:
    """How often something that costs time may be done, so that in the long run it takes `share` of a core.

    `credit_s` may be spent at once: a short replay is judged often, a long one still costs little.
    """

    def __init__(self, share: float, credit_s: float, clock: Callable[[], float]) -> None:
        self._share, self._most_s, self._clock = share, credit_s, clock
        self._credit_s, self._at = credit_s, clock()

    def allows(self) -> bool:
        """Whether there is credit."""
        now = self._clock()
        self._credit_s = min(self._most_s, self._credit_s + (now - self._at) * self._share)
        self._at = now
        return self._credit_s > 0

    def spend(self, seconds: float) -> None:
        """Takes what it cost."""
        self._credit_s -= seconds
