"""The live screen at fixed moments of two samples, as a terminal shows it.

`GPUTRACE_UPDATE_GOLDEN=1` writes the files anew.
"""

import asyncio
import os
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gputrace.live.app import LiveApp
from gputrace.live.feed import Replay
from gputrace.live.plain import frame
from gputrace.live.session import Session
from gputrace.live.view import Help, Panel
from tests.captures import ROOT

MOMENTS = {"h200-pinned": 58.0, "h200-pageable": 40.0}
SIZES = ((80, 24), (120, 40))


class Hands:
    """A clock set by hand, in seconds."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


def session_at(name: str, seconds: float, monotonic: Hands | None = None) -> Session:
    """A replay paused at a moment, judged."""
    session = Session(
        Replay([str(ROOT / "sample_logs" / name)]), start_s=seconds, paused=True, monotonic=monotonic or Hands()
    )
    session.work()
    return session


def lines_of(app: LiveApp) -> list[str]:
    """What the terminal shows."""
    return ["".join(part.text for part in strip).rstrip() for strip in app.screen._compositor.render_strips()]


def colours_of(app: LiveApp) -> set[str]:
    """The foreground colours on it."""
    styles = [part.style for strip in app.screen._compositor.render_strips() for part in strip if part.style]
    return {style.color.name for style in styles if style.color is not None and not style.color.is_default}


async def settled(pilot: Pilot[None]) -> None:
    """All that is due is drawn."""
    await pilot.pause()
    await pilot.pause(0.05)


def golden(name: str, text: str) -> None:
    """Compares with the file of that name."""
    path = Path(__file__).parent / name
    if os.environ.get("GPUTRACE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", MOMENTS)
def test_screens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_at(name, MOMENTS[name])

    async def show(size: tuple[int, int]) -> tuple[list[str], set[str]]:
        app = LiveApp(session, working=False)
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            return lines_of(app), colours_of(app)

    for size in SIZES:
        monkeypatch.delenv("NO_COLOR", raising=False)
        lines, colours = asyncio.run(show(size))
        assert {"color(1)", "color(2)", "color(3)"} <= colours
        assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
        golden(f"live-{name}.{size[0]}x{size[1]}.txt", "\n".join(lines) + "\n")
        monkeypatch.setenv("NO_COLOR", "1")
        assert asyncio.run(show(size)) == (lines, set())


def test_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = frame(session_at("h200-pinned", MOMENTS["h200-pinned"]).shown(), 80)
    assert max(map(len, text.splitlines())) <= 80
    golden("live-h200-pinned.once.txt", text)


def test_keys() -> None:
    hands = Hands()
    session = session_at("h200-pinned", 50.0, hands)
    clock = session.clock
    assert clock is not None

    async def press() -> None:
        app = LiveApp(session, working=False)
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(pilot)
            at_ns = clock.now_ns
            await pilot.press("right")
            assert clock.now_ns == at_ns + 10_000_000_000
            await pilot.press("left", "left")
            assert clock.now_ns == at_ns - 10_000_000_000
            await pilot.press("space")
            assert not clock.paused
            await pilot.press("+")
            assert clock.speed == 2.0
            await pilot.press("-", "-")
            assert clock.speed == 0.5
            hands.at += 4
            assert clock.now_ns == at_ns - 8_000_000_000
            await pilot.press("end")
            assert clock.ended
            await pilot.press("home")
            assert clock.now_ns == clock.start_ns
            order = []
            for _ in range(6):
                focused = app.focused
                assert focused is not None and isinstance(focused.parent, Panel)
                order.append(focused.parent.id)
                await pilot.press("tab")
            assert order == ["gpus", "workers", "verdict", "causes", "phases", "findings"]
            await pilot.press("?")
            assert isinstance(app.screen, Help)
            await pilot.press("q")
            assert not isinstance(app.screen, Help) and app.is_running
            await pilot.press("q")
        assert not app.is_running

    asyncio.run(press())


def test_nothing_is_repainted_that_has_not_changed() -> None:
    session = session_at("h200-pinned", 50.0)

    async def count() -> int:
        app = LiveApp(session, working=False)
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(pilot)
            updates = 0

            def noted(*_: object, **__: object) -> None:
                nonlocal updates
                updates += 1

            for panel in app.query(Panel):
                panel._body.update = noted  # type: ignore[method-assign]
            for _ in range(5):
                app.draw()
            before = updates
            session.seek(10.0)
            app.draw()
            assert updates > before
            return before

    assert asyncio.run(count()) == 0
