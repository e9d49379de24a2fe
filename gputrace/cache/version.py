"""What made an entry: another version of the code, the formats or the libraries makes other entries."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gputrace
from gputrace.cache.content import digest_of
from gputrace.resources import parsers_dir

_LIBRARIES = ("polars", "numpy", "scipy")


@cache
def code_version() -> str:
    """A digest of gputrace's version, of every file of its code and formats (name, size, time), and of what it uses.

    Files are told by size and time: they are changed by an installer or an editor, which sets the time.
    """
    told: list[object] = [gputrace.__version__, platform.python_version()]
    package = Path(gputrace.__file__).parent
    for place, pattern in ((package, "*.py"), (parsers_dir(), "*.toml")):
        for file in sorted(place.rglob(pattern)):
            state = file.stat()
            told.append((file.relative_to(place).as_posix(), state.st_size, state.st_mtime_ns))
    for library in _LIBRARIES:
        try:
            told.append(version(library))
        except PackageNotFoundError:
            told.append(None)
    return digest_of(*told)
