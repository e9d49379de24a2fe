"""JSON reports that an earlier `gputrace report --json` wrote, recognised by their `schema`."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

from gputrace.errors import InputError

SUPPORTED = ("gputrace.report/1",)
_SCHEMA = re.compile(rb'"schema"\s*:\s*"(gputrace\.)?')
_HEAD = 64


def read_report(path: str) -> dict[str, Any] | None:
    """The report in a file, gzipped or not; None if the file is something else.

    Raises `InputError` for a report that is damaged, of another schema or of a newer version.
    """
    file = Path(path)
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened:
            zipped = opened.read(2) == b"\x1f\x8b"
        with gzip.open(file) if zipped else file.open("rb") as opened:
            head = opened.read(_HEAD)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return None
            content = head + opened.read()
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not (found := _SCHEMA.search(content)):
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
