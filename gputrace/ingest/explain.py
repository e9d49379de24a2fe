"""What each line of a log was taken for."""

from collections.abc import Iterator

from gputrace.errors import InputError
from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import bundled_formats
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource


def explain_lines(path: str) -> Iterator[str]:
    """One text a record of a log (line number, family, event), and one that counts the rest."""
    source = ByteSource(path)
    if not source.head():
        raise InputError(f"{path}: {source.damaged or 'the file is empty'}")
    formats = bundled_formats()
    log = read_log(source, None, formats, detect=lambda lines: wrapper_of(lines, formats))
    yield f"# {path}: {log.wrapper.name if log.wrapper else 'plain'} lines"
    for line, family, event, repaired in log.marks.select("line", "family", "event", "repaired").iter_rows():
        yield f"{line:>8}  {family:12} {event}{'  (was torn)' if repaired else ''}"
    yield (
        f"# {log.lines} lines: {log.marks.height} records, {log.torn_repaired} torn and repaired, "
        f"{log.torn_lost} lost, {log.unrecognised} of a known family not recognised, the rest is other text"
    )
