"""How inputs are opened and logs read: the place where somebody may know already what a log holds."""

from collections.abc import Callable

from gputrace.ingest.detect import wrapper_of
from gputrace.ingest.formats import Formats
from gputrace.ingest.log_result import LogResult
from gputrace.ingest.marks import read_log
from gputrace.ingest.opening import ByteSource


class Reader:
    """Reads every input anew."""

    def open(self, path: str) -> ByteSource:
        """An input as bytes. Raises `InputError` where it cannot be opened."""
        return ByteSource(path)

    def read_log(self, source: ByteSource, formats: Formats, progress: Callable[[int], None]) -> LogResult:
        """What a log of any wrapper gives."""
        return read_log(source, None, formats, progress, lambda lines: wrapper_of(lines, formats))
