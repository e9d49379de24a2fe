"""A task that dies of one capture; in a module of its own, since workers import it."""

import os
import signal
from dataclasses import dataclass

from gputrace.fleet.analyse import Task
from gputrace.fleet.captures import CaptureRef
from gputrace.fleet.summary import Failure, Outcome


@dataclass(frozen=True)
class Deadly(Task):
    """Kills its process on one capture, as the kernel does when memory runs out; looks at no other."""

    victim: str = ""

    def __call__(self, capture: CaptureRef) -> Outcome:
        if capture.path == self.victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return Failure(capture.path, "bug", "not looked at")
