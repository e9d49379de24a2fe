"""Which captures a pattern names, on disk or in a store that fsspec reaches, and what tells a changed one.

fleet/host-a/2026-11-29/meta.json  prover.log  samples.csv     a capture: a folder that holds files
fleet/host-a/2026-11-29/truth/...                              below a meta.json nothing is looked for
fleet/.cache/...                                               hidden: not looked at
"""

import hashlib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputrace.errors import InputError, UsageError
from gputrace.fleet.summary import Failure
from gputrace.ingest.inputs import is_input
from gputrace.sampler.capture import META

_MAGIC = "*?["
_MOST_LEVELS = 8
# What stores say of an object's content, best first; S3's ETag changes with it.
_STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated")


@dataclass(frozen=True)
class CaptureRef:
    """One capture that is there. `files` are its direct, visible files as (name, bytes); `single` if it is one file.

    `key` is a digest of path and files: name, size, and ETag or time of change. It sees a file added, removed, renamed,
    grown or rewritten; not one rewritten in place with its size and time of change put back.
    """

    path: str
    key: str
    files: tuple[tuple[str, int], ...]
    remote: bool = False
    single: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)


def file_system(path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The fsspec file system of a path or URL, and the path within it. Options are for URLs alone."""
    try:
        import fsspec.core
    except ImportError as error:
        raise needs_extra(error) from error
    try:
        return fsspec.core.url_to_fs(path, **(options if is_remote(path) else {}))  # type: ignore[no-any-return]
    except ImportError as error:
        raise InputError(f"{path}: {error}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: {error}") from error


def needs_extra(error: ImportError) -> UsageError:
    """What to say where the libraries of a fleet are not installed."""
    return UsageError(f"gputrace fleet needs more libraries ({error.name} is missing): pip install 'gputrace[fleet]'")


def is_remote(path: str) -> bool:
    """Whether it is a URL that is not a local file's."""
    return "://" in path and not path.startswith(("file://", "local://"))


def storage_options(text: str | None) -> dict[str, Any]:
    """fsspec's options from JSON, or from a file with JSON in it; a file keeps secrets off the command line."""
    if text is None:
        return {}
    try:
        source = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
        options = json.loads(source)
    except (OSError, ValueError) as error:
        raise UsageError(f"--storage-options: neither JSON nor a file with JSON: {error}") from error
    if not isinstance(options, dict):
        raise UsageError('--storage-options: a JSON object is needed, as {"endpoint_url": "http://127.0.0.1:9000"}')
    return options


def find_captures(
    patterns: Iterable[str], options: Mapping[str, Any] | None = None
) -> tuple[list[CaptureRef], list[Failure]]:
    """Every capture that the patterns name, once, in order of path; and the patterns that name none.

    A pattern is a capture, a folder of captures, a file, or a glob of these; local, or a URL for fsspec.
    """
    found: dict[str, CaptureRef] = {}
    missed: list[Failure] = []
    for pattern in patterns:
        try:
            own = _named_by(pattern, options or {})
        except InputError as error:
            missed.append(Failure(pattern, "input", str(error)))
            continue
        if not own:
            missed.append(Failure(pattern, "input", f"{pattern}: no capture is there"))
        found |= {capture.path: capture for capture in own}
    return [found[path] for path in sorted(found)], missed


def _named_by(pattern: str, options: Mapping[str, Any]) -> list[CaptureRef]:
    files, path = file_system(pattern, options)
    remote = is_remote(pattern)
    try:
        # A listing kept from an earlier look would hide what has changed since.
        files.invalidate_cache()
        roots = sorted(files.glob(path)) if any(sign in path for sign in _MAGIC) else [path]
        listed = [_below(files, root) for root in roots if files.exists(root)]
    except Exception as error:  # fsspec's file systems let through whatever their client library raises
        raise InputError(f"{pattern}: cannot be listed: {_in_a_line(error)}") from error
    name = files.unstrip_protocol if remote else str
    return [
        _capture(str(name(where)), inside, remote, single)
        for captures, single in listed
        for where, inside in captures.items()
    ]


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _below(files: Any, root: str) -> tuple[dict[str, list[dict[str, Any]]], bool]:
    """Captures at and below a path, as folder -> entries of its files; and whether the path is itself a file."""
    root = root.rstrip("/") or root
    if files.isfile(root):
        visible = is_input(posixpath.basename(root))
        return ({root: [files.info(root)]} if visible else {}), True
    inside: dict[str, list[dict[str, Any]]] = defaultdict(list)
    folders, parents = {root}, set()
    for path, entry in files.find(root, maxdepth=_MOST_LEVELS, withdirs=True, detail=True).items():
        path = path.rstrip("/")
        if path == root or any(part.startswith(".") for part in path[len(root) :].split("/")):
            continue
        parent = posixpath.dirname(path)
        parents.add(parent)
        if entry["type"] == "directory":
            folders.add(path)
        elif is_input(posixpath.basename(path)):
            folders.add(parent)
            inside[parent].append(entry)
    described = {folder for folder, entries in inside.items() if any(_name(entry) == META for entry in entries)}
    return {
        folder: inside.get(folder, [])
        for folder in sorted(folders)
        # A folder with nothing in it at all is a capture that came to nothing; its failure is told.
        if (inside.get(folder) or folder not in parents) and not _within(folder, described)
    }, False


def _within(folder: str, others: set[str]) -> bool:
    while (parent := posixpath.dirname(folder)) != folder:
        if parent in others:
            return True
        folder = parent
    return False


def _name(entry: Mapping[str, Any]) -> str:
    return posixpath.basename(str(entry["name"]))


def _stamp(entry: Mapping[str, Any]) -> str:
    return next((str(entry[name]) for name in _STAMPS if entry.get(name) is not None), "")


def _capture(path: str, entries: list[dict[str, Any]], remote: bool, single: bool) -> CaptureRef:
    told = sorted((_name(entry), int(entry["size"] or 0), _stamp(entry)) for entry in entries)
    key = hashlib.sha256(json.dumps([path, told]).encode()).hexdigest()
    return CaptureRef(path, key, tuple((name, size) for name, size, _ in told), remote, single)
