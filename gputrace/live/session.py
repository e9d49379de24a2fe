"""A live view without its screen: which moment is shown, when to load and to judge, and what is then known."""

import time
from collections.abc import Callable

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.errors import InputError
from gputrace.live.feed import Clock, Following, Replay
from gputrace.live.judge import Budget, Findings, Judgement, judge
from gputrace.live.panels import Shown
from gputrace.live.state import Board
from gputrace.trace import Trace

# Shares of a core in the long run, and what a short replay may spend at once.
_JUDGE_SHARE, _LOAD_SHARE, _CREDIT_S = 0.03, 0.05, 2.0
# No judgement is newer than this by the run's clock or by the wall clock, no load by the wall clock.
_JUDGE_EVERY_S, _JUDGE_LEAST_S, _LOAD_LEAST_S = 5.0, 1.0, 1.0


class Session:
    """State of one view. `work` does what is due and may take long: call it from a thread. `shown` is always quick.

    `monotonic` and the clock of a replay can be injected; `start_s` is where a replay begins, in seconds, and
    whether `paused`.
    """

    def __init__(
        self,
        feed: Replay | Following,
        window_s: float = 300.0,
        speed: float = 1.0,
        start_s: float = 0.0,
        paused: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.feed, self.window_s = feed, window_s
        self.clock: Clock | None = None
        self.findings = Findings()
        self.judgement: Judgement | None = None
        self.note = ""
        self._speed, self._start_s, self._paused, self._monotonic = speed, start_s, paused, monotonic
        self._trace: Trace | None = None
        self._board: Board | None = None
        self._judging_since: float | None = None
        self._judged_at = float("-inf")
        self._loaded_at = float("-inf")
        self._judge_budget = Budget(_JUDGE_SHARE, _CREDIT_S, monotonic)
        self._load_budget = Budget(_LOAD_SHARE, _CREDIT_S / 2, monotonic)
        self._generation = 0

    @property
    def now_ns(self) -> int | None:
        """The moment shown: of a replay its clock, of a run being followed the latest thing known of it."""
        if self._board is None:
            return None
        return self.clock.now_ns if self.clock is not None else self._board.end_ns

    def work(self, at_once: bool = False) -> None:
        """Loads what is new and judges it, each if it is due; `at_once` whatever it costs. Errors become `note`."""
        now = self._monotonic()
        due = now - self._loaded_at >= _LOAD_LEAST_S and self._load_budget.allows()
        if at_once or self._board is None or (due and not self.feed.replays):
            self._load()
        if self._trace is not None and (at_once or self._judgement_due()):
            self._judge(self._trace)

    def _load(self) -> None:
        begun = self._monotonic()
        try:
            trace = self.feed.load()
        except InputError as error:
            if self.feed.replays:
                raise
            self.note, trace = str(error), None
        if trace is not None:
            board = Board(trace)
            if self.feed.replays:
                self.clock = Clock(board.start_ns, board.end_ns, self._speed, self._monotonic)
                self.clock.seek(self._start_s)
                if self._paused:
                    self.clock.pause()
            self._trace, self._board, self.note = trace, board, ""
        elif isinstance(self.feed, Following) and self.feed.waiting:
            self.note = f"waiting for data: {self.feed.waiting}"
        self._loaded_at = self._monotonic()
        self._load_budget.spend(self._loaded_at - begun)

    def _judgement_due(self) -> bool:
        now_ns = self.now_ns
        if now_ns is None or self._monotonic() - self._judged_at < _JUDGE_LEAST_S:
            return False
        last_ns = self.judgement.at_ns if self.judgement is not None else None
        if last_ns is None:
            return True
        if self.clock is not None and self.clock.ended and last_ns < now_ns:
            # The last word is on the whole.
            return True
        return now_ns - last_ns >= _JUDGE_EVERY_S * 1e9 and self._judge_budget.allows()

    def _judge(self, trace: Trace) -> None:
        now_ns = self.now_ns
        assert now_ns is not None
        generation = self._generation
        self._judging_since = begun = self._monotonic()
        try:
            judgement = judge(trace, now_ns, self.window_s, self._monotonic)
        finally:
            self._judging_since = None
            self._judged_at = self._monotonic()
            self._judge_budget.spend(self._judged_at - begun)
        if generation == self._generation:
            self.judgement = judgement
            self.findings.add(judgement)

    def seek(self, seconds: float) -> None:
        """Moves a replay; what was said of later moments is taken back."""
        if self.clock is None:
            return
        self.clock.seek(seconds)
        now_ns = self.clock.now_ns
        if seconds < 0:
            self._generation += 1
            self.findings.back_to(now_ns)
            if self.judgement is not None and self.judgement.at_ns > now_ns:
                self.judgement = None

    def shown(self) -> Shown:
        """What is on the screen now."""
        board, now_ns, clock = self._board, self.now_ns, self.clock
        behind_s = None
        if isinstance(self.feed, Following) and self.feed.grew_at is not None:
            behind_s = max(0.0, self.feed.clock() - self.feed.grew_at)
        return Shown(
            title=self.feed.title,
            mode=self._mode(),
            window_s=self.window_s,
            moment=board.at(now_ns, self.window_s) if board is not None and now_ns is not None else None,
            start_ns=board.start_ns if board is not None else 0,
            end_ns=clock.end_ns if clock is not None else None,
            absolute=board is None or board.absolute,
            judgement=self.judgement,
            judging_s=None if self._judging_since is None else self._monotonic() - self._judging_since,
            findings=tuple(self.findings.entries),
            behind_s=behind_s,
            note=self.note or ("reading ..." if board is None else ""),
        )

    def _mode(self) -> str:
        if isinstance(self.feed, Following):
            writing = self.feed.writing
            return "following" if writing is None else "recording" if writing() else "the recording has ended"
        if self.clock is None:
            return "replay"
        if self.clock.ended:
            return "replay, at its end"
        return "replay, paused" if self.clock.paused else f"replay x{self.clock.speed:g}"

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The latest diagnosis."""
        return self.judgement.diagnosis if self.judgement is not None else None
