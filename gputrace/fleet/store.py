"""Outcomes on disk, one small file a capture: what makes a run resumable and the next one cheap.

A file holds the outcome with the capture's key and the analysis that made it. Where either differs, it is as if it were
not there. It is replaced as a whole, so a killed run leaves old or new, never half; half a file (lost power) is none.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from gputrace.errors import InputError
from gputrace.fleet.captures import CaptureRef
from gputrace.fleet.summary import Failure, Outcome, from_json, to_json


def default_folder() -> Path:
    """Where outcomes are kept unless another folder is given: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gputrace" / "fleet"


@dataclass(frozen=True)
class Store:
    """A folder of outcomes. `analysis` says what made them, options that change a summary included."""

    folder: Path
    analysis: str

    def open(self) -> None:
        """Makes the folder. Raises `InputError` where that cannot be."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: results cannot be kept there: {error.strerror}") from error

    def get(self, capture: CaptureRef) -> Outcome | None:
        """The outcome of this very capture by this very analysis; None where it is to be had anew."""
        try:
            told = json.loads(self._file(capture).read_text(encoding="utf-8"))
            if told["key"] != capture.key or told["analysis"] != self.analysis:
                return None
            outcome = from_json(told["outcome"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None if isinstance(outcome, Failure) and not outcome.final else outcome

    def put(self, capture: CaptureRef, outcome: Outcome) -> None:
        """Keeps an outcome. Raises `InputError` where it cannot be written."""
        target = self._file(capture)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        told = {"analysis": self.analysis, "key": capture.key, "outcome": to_json(outcome)}
        try:
            unfinished.write_text(json.dumps(told, allow_nan=False), encoding="utf-8")
            unfinished.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise InputError(f"{target}: cannot be written: {error.strerror}") from error

    def _file(self, capture: CaptureRef) -> Path:
        # One file a path: a capture that grows replaces its outcome, so the folder grows no further than the fleet.
        return self.folder / f"{hashlib.sha256(capture.path.encode()).hexdigest()[:40]}.json"
