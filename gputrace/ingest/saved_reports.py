"""JSON reports that an earlier `gputrace report --json` wrote, recognised by their `schema`."""

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any

from gputrace.errors import InputError

SUPPORTED = ("gputrace.report/1",)
_SCHEMA = re.compile(rb'"schema"\s*:\s*"(gputrace\.)?')
_HEAD = 64
_LONGEST_LINE = 1 << 20


def read_report(path: str) -> dict[str, Any] | None:
    """The report in a file, gzipped or not; None if the file is something else or cannot be read.

    Raises `InputError` for a report that is damaged, of another schema or of a newer version.
    """
    content = _object_in(Path(path))
    if content is None or not (found := _SCHEMA.search(content)):
        return None
    try:
        report = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        # A log of JSON lines may quote a report; a report that is cut short begins with its schema.
        if found[1] and found.start() < _HEAD:
            raise InputError(f"{path}: a JSON report, but damaged: {error}") from error
        return None
    if not isinstance(report, dict) or "schema" not in report:
        return None
    if report["schema"] not in SUPPORTED:
        raise InputError(f"{path}: schema {report['schema']!r} is not read; this version reads {', '.join(SUPPORTED)}")
    return report


def _object_in(file: Path) -> bytes | None:
    """The content of a file that may be one JSON object; a log of JSON lines is known by its first and not read on."""
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened:
            zipped = opened.read(2) == b"\x1f\x8b"
        with gzip.open(file) if zipped else file.open("rb") as opened:
            first = opened.readline(_LONGEST_LINE)
            if not first.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return None
            if first.endswith(b"\n") and _is_record(first):
                return None
            return first + opened.read()
    except (OSError, EOFError, zlib.error):
        # Whatever is wrong with it, the reader of logs and traces says it better.
        return None


def _is_record(line: bytes) -> bool:
    """Whether a line is a whole JSON object that is no report."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and "schema" not in record
