"""GPU traces written for a test and read, or refused."""

from pathlib import Path
from typing import Any

import pytest

from gputrace.errors import InputError
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.inputs import Ingested, ingest
from gputrace.ingest.traces import TraceOptions
from tests.captures import log_and_trace

TABLES = bundled_formats().tables
SECOND, MS = 1_000_000_000, 1_000_000
BEGIN_NS = 1_795_952_850 * SECOND
LOG = log_and_trace("pageable-heavy")[0]


def codes(ingested: Any) -> list[str]:
    return [notice.code for notice in ingested.quality.notices]


def said(ingested: Any, code: str) -> str:
    return " ".join(notice.text for notice in ingested.quality.notices if notice.code == code)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def given(tmp_path: Path, text: str, **options: Any) -> Ingested:
    """What is read from a trace alone."""
    timezone = options.pop("timezone", None)
    return ingest([write(tmp_path / "trace", text)], timezone=timezone, trace_options=TraceOptions.of(**options))


def refused(tmp_path: Path, text: str | bytes, **options: Any) -> str:
    path = tmp_path / "trace"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as error:
        ingest([str(path)], trace_options=TraceOptions.of(**options))
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)
