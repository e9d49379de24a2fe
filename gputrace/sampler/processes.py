"""Which processes are the prover's, from /proc."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROC = Path("/proc")


def _numbered(root: Path) -> Iterator[Path]:
    return (process for process in root.iterdir() if process.name.isdigit())


def session_of(leader: int, root: Path = _PROC) -> dict[int, int]:
    """Processes of a session by id, each with its resident pages."""
    found = {}
    for process in _numbered(root):
        with contextlib.suppress(OSError, IndexError):
            # proc(5): the name may hold blanks and brackets, the rest does not; field 3 is the first of `fields`.
            fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found[int(process.name)] = int(fields[21])
    return found


def writers_of(paths: Sequence[Path], root: Path = _PROC) -> list[int]:
    """Processes other than this one that have one of the files open for writing."""
    wanted = {str(path.resolve()) for path in paths}
    found = []
    for process in _numbered(root):
        if int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(link.readlink()) in wanted and _writes(process / "fdinfo" / link.name):
                        found.append(int(process.name))
                        break
    return found


def _writes(info: Path) -> bool:
    flags = re.search(r"flags:\s*(\d+)", info.read_text())
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY
