"""The widgets of the terminal view. They show texts made in `panels` and know nothing of traces."""

from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gputrace.live.panels import Shown

Title = Callable[[Shown], str]
Body = Callable[[Shown, int], Text]


class Panel(Vertical):
    """A title and, under it, lines that scroll. Repainted only where what it says has changed: nothing flickers."""

    def __init__(self, name: str, title: Title | None, body: Body) -> None:
        super().__init__(id=name, classes="panel")
        self._title_of, self._body_of = title, body
        self._title = Static("", classes="title")
        self._body = Static("", classes="body")
        self._scroll = VerticalScroll(self._body)
        self._said: tuple[str, Text] = ("", Text())

    def compose(self) -> ComposeResult:
        """The title, where it has one, and the lines."""
        if self._title_of is not None:
            yield self._title
        yield self._scroll

    def show(self, shown: Shown) -> None:
        """Says what is so now."""
        width = self.size.width - 1
        if width <= 0:
            return
        said = (self._title_of(shown) if self._title_of is not None else "", self._body_of(shown, width))
        if said[0] != self._said[0]:
            self._title.update(Text(said[0], no_wrap=True, overflow="ellipsis"))
        if said[1] != self._said[1]:
            # Only a change of the number of lines moves what is below.
            self._body.update(
                said[1], layout=len(said[1]) != len(self._said[1]) or said[1].plain != self._said[1].plain
            )
        self._said = said


class Help(ModalScreen[None]):
    """What the keys do and how to read the screen."""

    BINDINGS = [Binding("escape,q,question_mark,space,enter", "dismiss", "close")]
    TEXT = """\
Keys
  tab, shift+tab   next or previous panel; up, down, page up, page down scroll it
  q, ctrl+c        quit (a recording is ended, its prover is not)
 Replaying
  space            pause, go on
  left, right      10 s back, forward
  + -              twice, half as fast
  home, end        begin, end of the run

Reading the screen
  C computing   c copy-only   . idle   each letter half a second, the latest right
  rx into the GPU, tx out of it: GB/s of payload, and the share of the link's rate
  long: p95 is ...  the phase has lasted longer than 95 % of its like
  after ...         the log does not say yet when it ends; this it printed last

esc closes this"""

    def compose(self) -> ComposeResult:
        """The text in a box."""
        yield Static(Text(self.TEXT), id="help")
