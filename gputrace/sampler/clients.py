"""Logs that only a program of their keeper can print: the journal's and docker's."""

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gputrace.errors import InputError
from gputrace.sampler.attach import SeenLine
from gputrace.sampler.driver import Clock

_RETRY_FIRST_NS, _RETRY_MOST_NS = 1_000_000_000, 30_000_000_000
_DOCKER_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ")

# One line of a client's output: Unix ns (None: not said), stream, text.
Parse = Callable[[bytes, str], tuple[int | None, str, bytes]]


@dataclass
class Client:
    """A program that prints somebody else's log: how to start it (after a time, Unix ns), and what its lines say."""

    name: str
    command: Callable[[int | None], list[str]]
    parse: Parse
    missing: str


class ClientLog:
    """Follows what a client prints; starts it again where it ends, from the last line on.

    A client that cannot be started at all raises `InputError`.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._last_ns: int | None = None
        self._carry: dict[str, bytes] = {}
        self._retry_ns, self._due_ns = _RETRY_FIRST_NS, 0
        self._resumed_after: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._start(first=True)

    def _start(self, first: bool = False) -> None:
        self._resumed_after = self._last_ns
        try:
            self._process = subprocess.Popen(
                self._client.command(self._last_ns),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            if first:
                raise InputError(f"{self._client.missing}: {error.strerror}") from error
            return
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _pipes(self) -> list[tuple[str, int]]:
        if self._process is None or self._process.stdout is None or self._process.stderr is None:
            return []
        return [("stdout", self._process.stdout.fileno()), ("stderr", self._process.stderr.fileno())]

    def poll(self) -> list[SeenLine]:
        """Lines that the client printed."""
        now_ns = self._clock.mono_ns()
        if self._process is None:
            if now_ns >= self._due_ns:
                self._start()
            return []
        seen: list[SeenLine] = []
        for pipe, fd in self._pipes():
            data = self._carry.pop(pipe, b"") + _read_ready(fd)
            *whole, rest = data.split(b"\n")
            if rest:
                self._carry[pipe] = rest
            seen += [found for line in whole if (found := self._take(line, pipe)) is not None]
        if seen:
            self._retry_ns = _RETRY_FIRST_NS
        if self._process.poll() is not None and not seen:
            self._drop()
            self._due_ns, self._retry_ns = now_ns + self._retry_ns, min(2 * self._retry_ns, _RETRY_MOST_NS)
        return seen

    def _take(self, line: bytes, pipe: str) -> SeenLine | None:
        try:
            said_ns, stream, text = self._client.parse(line, pipe)
        except ValueError:
            return None
        if said_ns is not None:
            if self._resumed_after is not None and said_ns <= self._resumed_after:
                return None
            self._last_ns = max(said_ns, self._last_ns or 0)
        return said_ns or self._clock.wall_ns(), stream, text, False

    def _drop(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            self._process = None
            self._carry = {}

    def paths(self) -> list[Path]:
        """None."""
        return []

    def fds(self) -> list[int]:
        """The client's pipes."""
        return [fd for _, fd in self._pipes()]

    def prover_pid(self) -> int | None:
        """Not known."""
        return None

    def prover_pids(self) -> frozenset[int]:
        """Not known."""
        return frozenset()

    def close(self) -> list[SeenLine]:
        """Ends the client."""
        lines = self.poll() if self._process is not None else []
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
            self._drop()
        return lines

    def describe(self) -> dict[str, Any]:
        """The client's command."""
        return {"how": self._client.name, "command": self._client.command(None)}


def _read_ready(fd: int) -> bytes:
    chunks = []
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, 1 << 16):
            chunks.append(chunk)
    return b"".join(chunks)


def journal(unit: str) -> Client:
    """A unit's journal, as JSON: the only output with microseconds and with the line as it was."""

    def command(after_ns: int | None) -> list[str]:
        since = ["-n", "0"] if after_ns is None else ["--since", f"@{after_ns // 1_000_000_000}"]
        return ["journalctl", "-f", "-o", "json", "--output-fields=MESSAGE", "-u", unit, *since]

    def parse(line: bytes, pipe: str) -> tuple[int | None, str, bytes]:
        if pipe == "stderr":
            return None, "recorder", line
        entry = json.loads(line)
        message = entry.get("MESSAGE") or ""
        text = bytes(message) if isinstance(message, list) else str(message).encode()
        return int(entry["__REALTIME_TIMESTAMP"]) * 1000, "journal", text.replace(b"\n", b"\\n")

    return Client("journal", command, parse, "journalctl cannot be started")


def docker(container: str) -> Client:
    """A container's log: docker keeps the streams apart and stamps each line as it comes."""

    def command(after_ns: int | None) -> list[str]:
        since = ["--tail", "0"] if after_ns is None else ["--since", f"{after_ns // 10**9}.{after_ns % 10**9:09d}"]
        return ["docker", "logs", "--follow", "--timestamps", *since, container]

    def parse(line: bytes, pipe: str) -> tuple[int | None, str, bytes]:
        found = _DOCKER_STAMP.match(line)
        if found is None:
            return None, "recorder" if pipe == "stderr" else pipe, line
        whole = int(datetime.fromisoformat(found[1].decode() + "+00:00").timestamp())
        return whole * 10**9 + int((found[2] or b"0").ljust(9, b"0")), pipe, line[found.end() :]

    return Client("docker", command, parse, "docker cannot be started")
