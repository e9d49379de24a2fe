"""What was probably meant, for messages about names that are not known."""

import difflib
from collections.abc import Iterable
from pathlib import Path


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean 'report'?` where a known name is close, else nothing."""
    near = nearest(name, known, cutoff)
    return f"; did you mean {near!r}?" if near is not None else ""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like this one, upper or lower case alike; None where none is close."""
    folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), folded, 1, cutoff)
    return folded[found[0]] if found else None


def near_path(path: str) -> str:
    """What to try instead of a path that is not there: a near name in its folder, or which folder is missing."""
    missing = Path(path)
    try:
        names = [entry.name for entry in missing.parent.iterdir()]
    except OSError:
        return f"; the folder {missing.parent} is not there{_near_folder(missing.parent)}"
    near = nearest(missing.name, names)
    return f"; did you mean {str(missing.parent / near)!r}?" if near is not None else ""


def _near_folder(folder: Path) -> str:
    """The same for the deepest part of a folder's path that does not exist."""
    gone = folder
    while not gone.parent.is_dir() and gone.parent != gone:
        gone = gone.parent
    try:
        names = [entry.name for entry in gone.parent.iterdir() if entry.is_dir()]
    except OSError:
        return ""
    near = nearest(gone.name, names)
    return f"; did you mean {str(gone.parent / near)!r}?" if near is not None else ""
