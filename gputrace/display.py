"""How values show themselves to a person at a prompt or in a notebook, without knowing who draws them.

The package says once who draws HTML (`draw_with`), so that the values of the analysis need nothing of the rendering.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, ClassVar

_drawn: list[Callable[[object], str]] = []


def draw_with(draw: Callable[[object], str]) -> None:
    """Makes `draw` what gives every `Displayed` value its HTML."""
    _drawn[:] = [draw]


class Displayed:
    """A value with a short `repr`, of the fields named in `shows`, and an HTML form for notebooks.

    A field of a field is written with a dot; of lists and frames only the size is shown. Data classes that derive from
    it are made with `repr=False`.
    """

    _shows: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, shows: tuple[str, ...] = (), **others: Any) -> None:
        super().__init_subclass__(**others)
        if shows:
            cls._shows = shows

    def __repr__(self) -> str:
        shown = (f"{name}={_brief(reduce(getattr, name.split('.'), self))}" for name in self._shows)
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str | None:
        return _drawn[0](self) if _drawn else None


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None or isinstance(value, str) or not hasattr(value, "__len__"):
        return repr(value)
    return f"<{len(value)} rows>" if hasattr(value, "columns") else f"<{len(value)}>"
