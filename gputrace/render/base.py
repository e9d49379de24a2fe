"""What every renderer is."""

from pathlib import Path
from typing import BinaryIO, Protocol

from gputrace.analysis.diagnosis import Diagnosis
from gputrace.trace import Trace


class Renderer(Protocol):
    """Turns a trace and its diagnosis into one document."""

    @property
    def extension(self) -> str:
        """Usual ending of its files."""
        ...

    def render(self, trace: Trace, diagnosis: Diagnosis) -> str:
        """The document."""
        ...


class FileRenderer(Protocol):
    """Writes a trace and its diagnosis to a binary file, piece by piece."""

    @property
    def extension(self) -> str:
        """Usual ending of its files."""
        ...

    def write(self, trace: Trace, diagnosis: Diagnosis, file: BinaryIO) -> None:
        """Writes all of it."""
        ...


class FolderRenderer(Protocol):
    """Writes a trace and its diagnosis as several files."""

    def write(self, trace: Trace, diagnosis: Diagnosis, folder: Path) -> str:
        """Writes into a folder that is there; says what was written, as `9 tables`."""
        ...
