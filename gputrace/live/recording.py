"""A recorder started for a live view: a process of its own, so that the view may end or die without harm to it."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gputrace.errors import InputError

RECORD = (sys.executable, "-m", "gputrace", "record")
# So long the recorder may take to find its sources and to write its first file.
_STARTS_WITHIN_S, _LOOKS_EVERY_S, _ENDS_WITHIN_S = 20.0, 0.05, 20.0


class Recording:
    """`gputrace record OPTIONS... -o FOLDER`, running."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path, said: Path) -> None:
        self._process, self.folder, self._said = process, folder, said

    @property
    def running(self) -> bool:
        """Whether it still records."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """The last line that it wrote on stderr."""
        lines = self._said.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def stop(self) -> int:
        """Asks it to end cleanly and waits; its exit code. It leaves a prover that it started alone."""
        if self.running:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.terminate()
        code = self._process.wait()
        self._said.unlink(missing_ok=True)
        return code


def start(
    options: Sequence[str],
    folder: Path,
    command: Sequence[str] = RECORD,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Recording:
    """Starts a recorder with the options and the command of `gputrace record`; returns when its capture is there.

    Raises `InputError` with the recorder's own words where it ends before that.
    """
    with tempfile.NamedTemporaryFile(prefix="gputrace-record-", delete=False) as said:
        # In a session of its own: keys pressed in the view are not signals for it.
        process = subprocess.Popen(
            [*command, "-o", str(folder), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
    recording = Recording(process, folder, Path(said.name))
    begun = monotonic()
    while not (folder / "meta.json").exists():
        if not recording.running:
            words = recording.last_words()
            recording.stop()
            raise InputError(f"the recorder ended at once: {words or f'exit code {process.returncode}'}")
        if monotonic() - begun > _STARTS_WITHIN_S:
            recording.stop()
            raise InputError(f"the recorder wrote nothing to {folder} in {_STARTS_WITHIN_S:g} s")
        sleep(_LOOKS_EVERY_S)
    return recording
