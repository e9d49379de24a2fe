"""What stdout can show: its width, its colours, and whether it has more than ASCII."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TextIO

from gputrace.errors import UsageError
from gputrace.nearest import did_you_mean

Colors = Literal["none", "standard", "256", "truecolor"]
NARROWEST, USUAL, WIDEST = 60, 80, 120
COLOR_CHOICES = ("auto", "always", "never")
# Everything that reports draw with beyond ASCII; an encoding that lacks one of these gets ASCII.
_DRAWN = "█▓░▁▂▃▄▅▆▇−×·"


@dataclass(frozen=True)
class Screen:
    """How a document is to be written: `width` in cells, its colours, and whether in ASCII only."""

    width: int = USUAL
    colors: Colors = "none"
    ascii: bool = False


def screen_of(stream: TextIO | None = None, color: str = "auto", environment: Mapping[str, str] = os.environ) -> Screen:
    """What a stream (stdout, if none is given) can show. A pipe or file is 80 columns wide and plain.

    Raises `UsageError` where `color` is none of auto, always and never.
    """
    out = sys.stdout if stream is None else stream
    width = USUAL
    if out.isatty():
        width = max(NARROWEST, min(shutil.get_terminal_size((USUAL, 24)).columns, WIDEST))
    return Screen(width, colors_of(out.isatty(), color, environment), not _encodes(out.encoding or "ascii"))


def colors_of(is_terminal: bool, color: str, environment: Mapping[str, str]) -> Colors:
    """Which colours to use. What the command line says wins, then NO_COLOR, then what forces them, then the terminal.

    NO_COLOR (https://no-color.org) counts with any value but the empty one; FORCE_COLOR and CLICOLOR_FORCE
    (https://bixense.com/clicolors) with any but 0.
    """
    if color not in COLOR_CHOICES:
        raise UsageError(
            f"--color {color}: must be one of {', '.join(COLOR_CHOICES)}{did_you_mean(color, COLOR_CHOICES)}"
        )
    forced = any(environment.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    wanted = is_terminal and environment.get("TERM") != "dumb" and environment.get("CLICOLOR") != "0"
    if color == "never" or (color == "auto" and (environment.get("NO_COLOR") or not (forced or wanted))):
        return "none"
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if "256color" in environment.get("TERM", "") else "standard"


def _encodes(encoding: str) -> bool:
    try:
        _DRAWN.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
