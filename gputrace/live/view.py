"""The widgets of the terminal view. They show texts made in `panels` and know nothing of traces."""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
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

    def on_descendant_focus(self) -> None:
        """Its title shows that keys go here."""
        self._title.add_class("focused")

    def on_descendant_blur(self) -> None:
        """No longer."""
        self._title.remove_class("focused")

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

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,space,enter", "dismiss", "close")]
    TEXT = """\
Keys
  tab, shift+tab   next, previous panel; up, down, page keys scroll it
  q, ctrl+c        quit (ends a recording, not the prover it records)
 Replaying
  space            pause, go on
  left, right      10 s back, forward
  + -              twice, half as fast
  home, end        to the beginning, the end of the run

Reading the screen
  C computing  c copy-only  . idle: a letter is 0.5 s, the latest is right
  rx, tx           into, out of the GPU: payload, and share of the link
  long: p95 is ... it has lasted longer than 95 % of its like
  after ...        its end is not printed yet; this was printed last

esc closes this"""

    def compose(self) -> ComposeResult:
        """The text in a box."""
        yield Static(Text(self.TEXT), id="help")
