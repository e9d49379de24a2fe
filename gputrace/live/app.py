"""The terminal view: draws a session twice a second and turns keys into what it does."""

import threading
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Static

from gputrace.live import panels
from gputrace.live.session import Session
from gputrace.live.view import Help, Panel

FRAME_S = 0.5
_WORK_EVERY_S = 0.25
_SEEK_S = 10.0
_CSS = """
Screen { layout: vertical; overflow: hidden; }
.panel { height: auto; }
.panel VerticalScroll {
    height: auto; scrollbar-size-vertical: 1;
    scrollbar-color: ansi_bright_black; scrollbar-background: ansi_default;
    scrollbar-color-hover: ansi_bright_black; scrollbar-background-hover: ansi_default;
    scrollbar-color-active: ansi_bright_black; scrollbar-background-active: ansi_default;
}
.title { text-style: bold underline; height: 1; }
.title.focused { text-style: bold reverse; }
#header, #keys { height: 1; }
#gpus { max-height: 8; } #gpus VerticalScroll { max-height: 8; }
#workers { max-height: 30%; } #workers VerticalScroll { max-height: 100%; }
#verdict { max-height: 6; } #verdict VerticalScroll { max-height: 5; }
#middle { height: 1fr; min-height: 3; }
#middle .panel { height: 100%; } #middle .panel VerticalScroll { height: 1fr; }
#causes { width: 46%; margin-right: 1; } #phases { width: 1fr; }
#findings { height: 4; } #findings VerticalScroll { height: 1fr; }
.tall #findings { height: 25%; }
Help { align: center middle; }
#help { width: 84; max-width: 100%; height: auto; border: solid; padding: 0 1; }
"""


class LiveApp(App[None]):
    """The screen of a session. With `working` false nothing is loaded or judged: the caller does it."""

    CSS = _CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c,ctrl+q", "quit", "quit", priority=True),
        Binding("question_mark,h", "help", "help"),
        Binding("space", "pause", "pause", priority=True),
        Binding("left", "seek(-1)", "10 s back", priority=True),
        Binding("right", "seek(1)", "10 s on", priority=True),
        Binding("plus,equals_sign", "speed(2.0)", "faster"),
        Binding("minus", "speed(0.5)", "slower"),
        Binding("home", "seek(-1000000)", "begin", priority=True),
        Binding("end", "seek(1000000)", "end", priority=True),
    ]

    def __init__(self, session: Session, working: bool = True) -> None:
        super().__init__(ansi_color=True)
        self.session = session
        self._working = working
        self._stopped = threading.Event()

    def compose(self) -> ComposeResult:
        """The panels, as they lie on the screen."""
        yield Static("", id="header")
        yield Panel("gpus", None, panels.gpus)
        yield Panel("workers", panels.workers_title, panels.workers)
        yield Panel("verdict", panels.verdict_title, panels.verdict)
        with Horizontal(id="middle"):
            yield Panel("causes", panels.causes_title, panels.causes)
            yield Panel("phases", panels.phases_title, panels.phases)
        yield Panel("findings", lambda _: "Findings", panels.findings)
        yield Static("", id="keys")

    def on_mount(self) -> None:
        """Begins to draw and, in a thread, to load and judge."""
        self.set_interval(FRAME_S, self.draw)
        self.call_after_refresh(self.draw)
        if self._working:
            self.run_worker(self._work, thread=True)

    def on_unmount(self) -> None:
        """Ends the thread."""
        self._stopped.set()

    def on_resize(self) -> None:
        """Draws again for the new size."""
        self.screen.set_class(self.size.height >= 34, "tall")
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Shows the moment, once there is something to show it in: on a busy host a first frame is due before that."""
        base = self.screen_stack[0]
        if not base.query("#keys"):
            return
        shown = self.session.shown()
        width = self.size.width
        base.query_one("#header", Static).update(panels.header(shown, width), layout=False)
        for panel in base.query(Panel):
            panel.show(shown)
        base.query_one("#keys", Static).update(panels.keys(self.session.feed.replays, width), layout=False)

    def _work(self) -> None:
        while not self._stopped.wait(_WORK_EVERY_S):
            self.session.work()

    def action_help(self) -> None:
        """Shows the help."""
        self.push_screen(Help())

    def action_pause(self) -> None:
        """Stops a replay, or lets it go on; closes the help."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.session.clock is not None:
            self.session.clock.pause()
            self.draw()

    def action_seek(self, steps: int) -> None:
        """Goes so many steps of 10 s forward or back in a replay."""
        self.session.seek(steps * _SEEK_S)
        self.draw()

    def action_speed(self, factor: float) -> None:
        """Replays faster or slower."""
        if self.session.clock is not None:
            self.session.clock.faster(factor)
            self.draw()

    async def action_quit(self) -> None:
        """Closes the help if it is open, else ends."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.exit()
