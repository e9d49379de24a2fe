"""One frame as plain text, for pipes and for who has no terminal to watch."""

from rich.text import Text

from gputrace.live import panels
from gputrace.live.panels import Shown

_GUTTER = 2


def frame(shown: Shown, width: int = 80) -> str:
    """All panels, whole, one under another."""
    left = (width - _GUTTER) * 46 // 100
    right = width - _GUTTER - left
    lines = [panels.header(shown, width).plain.rstrip(), *_lines(panels.gpus(shown, width), width), ""]
    for title, body in (
        (panels.workers_title(shown), panels.workers(shown, width)),
        (panels.verdict_title(shown), panels.verdict(shown, width)),
    ):
        lines += [title, *_lines(body, width), ""]
    lines += _beside(
        [panels.causes_title(shown), *_lines(panels.causes(shown, left), left)],
        [panels.phases_title(shown), *_lines(panels.phases(shown, right), right)],
        left,
    )
    lines += ["", "Findings", *_lines(panels.findings(shown, width), width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _lines(text: Text, width: int) -> list[str]:
    """Wrapped between words."""
    wrapped: list[str] = []
    for line in text.plain.split("\n"):
        if len(line) <= width:
            wrapped.append(line)
            continue
        rest = line
        while len(rest) > width:
            cut = rest.rfind(" ", 1, width + 1)
            cut = cut if cut > 0 else width
            wrapped.append(rest[:cut])
            rest = rest[cut:].lstrip()
        wrapped.append(rest)
    return wrapped


def _beside(left: list[str], right: list[str], width: int) -> list[str]:
    """Two columns of lines."""
    rows = max(len(left), len(right))
    padded = [[*lines, *[""] * (rows - len(lines))] for lines in (left, right)]
    return [f"{a:<{width}}{'':{_GUTTER}}{b}" for a, b in zip(*padded, strict=True)]
