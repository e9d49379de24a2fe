"""What changed between two runs, how sure that is, and gates on it."""

from gputrace.analysis.compare.changes import Change
from gputrace.analysis.compare.comparison import Comparison, RegimePair, SideInfo, compare
from gputrace.analysis.compare.gate import GateOutcome, enforce
from gputrace.analysis.compare.side import Side

__all__ = ["Change", "Comparison", "GateOutcome", "RegimePair", "Side", "SideInfo", "compare", "enforce"]
