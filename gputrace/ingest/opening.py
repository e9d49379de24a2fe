"""Opens whatever is given as bytes: files, stdin, gzip and zstd, by content and not by name."""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

import zstandard

from gputrace.errors import InputError

CHUNK_BYTES = 8 << 20
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

Damage = Callable[[str], None]


class ByteSource:
    """One input, read once from front to back in chunks that end at a line end.

    `damaged` holds what is wrong with a source that broke off (a truncated gzip); what came before is still given.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.damaged: str | None = None
        self._head = b""
        self._stream = self._open()

    def _open(self) -> IO[bytes]:
        try:
            raw: IO[bytes] = sys.stdin.buffer if self.path == "-" else Path(self.path).open("rb")  # noqa: SIM115 (read to its end later)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be opened: {error.strerror}") from error
        magic = raw.read(4)
        stream = cast("IO[bytes]", _Rejoined(magic, raw))
        if magic.startswith(_GZIP_MAGIC):
            return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
        if magic == _ZSTD_MAGIC:
            return cast(
                "IO[bytes]",
                zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True),
            )
        return stream

    def _read(self, size: int) -> bytes:
        if self.damaged:
            return b""
        try:
            return self._stream.read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            self.damaged = f"compressed data breaks off ({error}); what came before it was used"
            return b""
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def head(self, size: int = 1 << 18) -> bytes:
        """The first `size` bytes, which `chunks` will give again."""
        while len(self._head) < size and (more := self._read(min(size - len(self._head), 1 << 16))):
            self._head += more
        return self._head[:size]

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the start, in pieces of about 8 MiB that end at a line end where there is one."""
        carry, self._head = self._head, b""
        while more := self._read(CHUNK_BYTES):
            cut = more.rfind(b"\n") + 1
            if cut:
                yield carry + more[:cut]
                carry = more[cut:]
            else:
                carry += more
        if carry:
            yield carry

    def read_all(self) -> bytes:
        """Everything, for inputs that are tables."""
        return b"".join(self.chunks())


class _Rejoined:
    """A stream with the bytes already taken from it put back in front."""

    def __init__(self, front: bytes, rest: IO[bytes]) -> None:
        self._front, self._rest = front, rest

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            data, self._front = self._front + self._rest.read(), b""
            return data
        data, self._front = self._front[:size], self._front[size:]
        if len(data) < size:
            data += self._rest.read(size - len(data))
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
