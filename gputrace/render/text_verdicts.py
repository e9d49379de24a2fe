"""The terminal report's section on verdicts: what supports each, what would overturn it, and what to do."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gputrace.analysis.diagnosis import Diagnosis, Evidence, HypothesisFinding
from gputrace.render.text_parts import hanging, title

_INDENT = (0, 0, 0, 2)
_STYLES = {"supported": "bad-bold", "undetermined": "caution", "refuted": "dim"}
_MOST_BRIEFLY = 2


def verdicts(diagnosis: Diagnosis, full: bool) -> Iterator[RenderableType]:
    """Every hypothesis; unless `full`, the main evidence of what is supported and only the names of what is not."""
    if not diagnosis.hypotheses:
        return
    yield title("Verdicts")
    for finding in diagnosis.hypotheses:
        if finding.verdict == "supported":
            yield Padding(_supported(finding, full), _INDENT)
    for verdict in ("undetermined", "refuted"):
        found = [finding for finding in diagnosis.hypotheses if finding.verdict == verdict]
        if found and (full or verdict == "undetermined"):
            yield Padding(_reasons(verdict, found), _INDENT)
        elif found:
            names = ", ".join(finding.id for finding in found)
            yield Padding(Text.assemble((f"{verdict}: ", _STYLES[verdict]), names), _INDENT)
    yield ""


def _reasons(verdict: str, found: list[HypothesisFinding]) -> Group:
    """One line or two each: what is missing where undetermined, the main evidence against where refuted."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=22, no_wrap=True)
    table.add_column()
    for finding in found:
        table.add_row(finding.id, finding.main_reason)
    return Group(Text(f"{verdict}:", style=_STYLES[verdict]), Padding(table, _INDENT))


def _supported(finding: HypothesisFinding, full: bool) -> Group:
    lost = f", {finding.lost_s:.1f} s" if finding.lost_s else ""
    if finding.stretched_s:
        lost += f", {finding.stretched_s:.1f} s longer"
    lines: list[RenderableType] = [
        Text.assemble(
            ("supported: ", _STYLES["supported"]),
            (finding.id, "bold"),
            f"{lost}, confidence {finding.confidence:.2f}",
        )
    ]
    for item in finding.evidence if full else _main_evidence(finding):
        where = f" (log lines {', '.join(map(str, item.lines))})" if item.lines and full else ""
        lines.append(hanging("+" if item.supports else "-", f"{item.text}{where}"))
    if finding.changes_mind and full:
        lines.append(hanging("?", f"refuted by: {finding.changes_mind}"))
    if finding.knob:
        lines.append(hanging(">", finding.knob))
    return Group(*lines)


def _main_evidence(finding: HypothesisFinding) -> list[Evidence]:
    """The first statements for it that say more than how many seconds it lost, which is said already."""
    more = [item for item in finding.evidence if item.supports and item.value != finding.lost_s]
    return more[:_MOST_BRIEFLY]
