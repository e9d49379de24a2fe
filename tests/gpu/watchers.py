"""The processes that watch while the GPU is driven: recorders of this repository, and nvidia-smi dmon."""

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Recorder:
    """`tests.gpu.record` with one setting, from here to `stop`."""

    def __init__(self, setting: str, folder: Path) -> None:
        self.setting, self._folder = setting, folder
        command = [sys.executable, "-m", "tests.gpu.record", setting, str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_until_writing(self, timeout_s: float = 30.0) -> None:
        """Returns when rows arrive; RuntimeError where the recorder ended or none came."""
        file, until_s = self._folder / f"{self.setting}.csv", time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                raise RuntimeError(f"recorder {self.setting}: {self._said() or 'it ended at once'}")
            if file.exists() and (self.setting == "throughput" or file.read_bytes().count(b"\n") > 3):
                return
            time.sleep(0.05)
        self._process.kill()
        raise RuntimeError(f"recorder {self.setting}: no rows within {timeout_s:g} s")

    def stop(self) -> dict[str, Any]:
        """What it cost: cpu_s, wall_s, rss_mib and, of a sampler, described and events."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise RuntimeError(f"recorder {self.setting}: did not end within 20 s") from None
        if self._process.returncode:
            raise RuntimeError(f"recorder {self.setting}: {self._said()}")
        cost: dict[str, Any] = json.loads((self._folder / f"{self.setting}.json").read_text(encoding="utf-8"))
        return cost

    def _said(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode(errors="replace").strip()


class Dmon:
    """`nvidia-smi dmon -s t -d 1`; `readings` are (monotonic ns, rx, tx in bytes/s) as its lines arrive."""

    def __init__(self) -> None:
        program = shutil.which("nvidia-smi")
        self.readings: list[tuple[int, float, float]] = []
        self.missing = program is None
        if program is None:
            return
        # A terminal, since it holds its lines back from a pipe.
        self._terminal, theirs = pty.openpty()
        command = [program, "dmon", "-i", "0", "-s", "t", "-d", "1"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self._began_s = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> dict[str, Any] | None:
        """What it cost: cpu_s and wall_s; None where there is no nvidia-smi."""
        if self.missing:
            return None
        self._process.terminate()
        _, _, used = os.wait4(self._process.pid, 0)
        wall_s = time.monotonic() - self._began_s
        self._reader.join(timeout=2)
        os.close(self._terminal)
        return {"cpu_s": used.ru_utime + used.ru_stime, "wall_s": wall_s, "rss_mib": used.ru_maxrss / 1024}

    def _read(self) -> None:
        left, columns = "", {"rxpci": 1, "txpci": 2}
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while chunk := os.read(self._terminal, 4096):
                *lines, left = (left + chunk.decode(errors="replace")).split("\n")
                for line in lines:
                    words = line.replace("#", " ").split()
                    if "rxpci" in words:
                        columns = {name: words.index(name) for name in ("rxpci", "txpci")}
                    elif words and words[0].isdigit() and len(words) > max(columns.values()):
                        numbers = [words[columns[name]] for name in ("rxpci", "txpci")]
                        if all(number.isdigit() for number in numbers):
                            rx, tx = (float(number) * 1e6 for number in numbers)
                            self.readings.append((time.monotonic_ns(), rx, tx))
