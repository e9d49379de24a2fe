"""Opens whatever is given as bytes: files, stdin, gzip and zstd, by content and not by name."""

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

import zstandard

from gputrace.errors import InputError
from gputrace.ingest.ahead import ahead
from gputrace.nearest import near_path

CHUNK_BYTES = 2 << 20
# Pieces this small come from memory that is in use already, which is faster than new pages for every chunk.
_PIECE_BYTES = 1 << 18
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def is_packed(head: bytes) -> bool:
    """Whether bytes that begin so are compressed."""
    return head.startswith((_GZIP_MAGIC, _ZSTD_MAGIC))


def cannot_open(path: str, error: OSError) -> InputError:
    """What there is to say of an input that the system does not open."""
    near = near_path(path) if isinstance(error, FileNotFoundError) else ""
    return InputError(f"{path}: cannot be opened: {error.strerror}{near}")


class ByteSource:
    """One input, read once from front to back in chunks that end at a line end.

    `damaged` holds what is wrong with a source that broke off (a truncated gzip); what came before is still given.
    Of a file only the bytes from `begin` up to `end` may be asked for; from a `begin` on nothing is unpacked.
    """

    def __init__(self, path: str, begin: int = 0, end: int | None = None) -> None:
        self.path = path
        self._begin, self._end = begin, end
        self.damaged: str | None = None
        self._head = b""
        self._begun_with: bytes | None = None
        self._stream = self._open()

    def _open(self) -> IO[bytes]:
        try:
            raw: IO[bytes] = sys.stdin.buffer if self.path == "-" else Path(self.path).open("rb")  # noqa: SIM115
        except OSError as error:
            raise cannot_open(self.path, error) from error
        if self._begin:
            raw.seek(self._begin)
        if self._end is not None:
            raw = cast("IO[bytes]", _Limited(raw, self._end - self._begin))
        if self._begin:
            return raw
        magic = raw.read(4)
        stream = cast("IO[bytes]", _Rejoined(magic, raw))
        if magic.startswith(_GZIP_MAGIC):
            return cast("IO[bytes]", _Unpacked(stream, lambda: zlib.decompressobj(wbits=31), _GZIP_MAGIC))
        if magic == _ZSTD_MAGIC:
            return cast("IO[bytes]", _Unpacked(stream, zstandard.ZstdDecompressor().decompressobj, _ZSTD_MAGIC))
        return stream

    @property
    def plain_file(self) -> Path | None:
        """Where all of it lies as it is, for who reads at will; None for what is piped, packed or cut out."""
        packed = isinstance(self._stream, _Unpacked)
        whole = not (packed or self._begin or self._end is not None)
        return Path(self.path) if whole and self.path != "-" and Path(self.path).is_file() else None

    def _read(self, size: int) -> bytes:
        if self.damaged:
            return b""
        try:
            data = self._stream.read(size)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        if isinstance(self._stream, _Unpacked) and self._stream.broken and not data:
            self.damaged = f"compressed data breaks off ({self._stream.broken}); what came before it was used"
        return data

    def head(self, size: int = 1 << 18) -> bytes:
        """The first `size` bytes, which `chunks` will give again; once it has, so many of them as were known before."""
        if self._begun_with is not None:
            return self._begun_with[:size]
        while len(self._head) < size and (more := self._read(min(size - len(self._head), 1 << 16))):
            self._head += more
        return self._head[:size]

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the start, in pieces of about 2 MiB that end at a line end where there is one.

        Of a file the next piece is read while one is used; a pipe may keep its reader waiting, and nobody waits for it
        when the work is broken off.
        """
        return ahead(self._chunks()) if self.path != "-" and Path(self.path).is_file() else self._chunks()

    def _chunks(self) -> Iterator[bytes]:
        pieces, self._head = [self._head], b""
        self._begun_with = self._begun_with or pieces[0]
        size = len(pieces[0])
        while more := self._read(min(_PIECE_BYTES, CHUNK_BYTES)):
            pieces.append(more)
            size += len(more)
            if size >= CHUNK_BYTES and (cut := more.rfind(b"\n") + 1):
                yield _taken(pieces, cut)
                size = len(pieces[0])
        if size:
            yield b"".join(pieces)

    def read_all(self) -> bytes:
        """Everything, for inputs that are tables."""
        return b"".join(self.chunks())


def _taken(pieces: list[bytes], cut: int) -> bytes:
    """All pieces as one, the last up to `cut`; its rest is left as the only piece."""
    last = pieces.pop()
    pieces.append(last[:cut])
    taken = b"".join(pieces)
    pieces[:] = [last[cut:]]
    return taken


class _Limited:
    """The first bytes of a stream."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


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


class _Unpacked:
    """Decompressed bytes of one stream after another (gzip members, zstd frames), up to where the data breaks off.

    `broken` then says why. Little is taken at a time, so that a few bytes cannot blow up into all memory at once.
    """

    _TAKEN_BYTES = 1 << 14

    def __init__(self, packed: IO[bytes], fresh: Callable[[], Any], magic: bytes) -> None:
        self._packed, self._fresh, self._magic = packed, fresh, magic
        self._unpacking = fresh()
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._ended = False
        self.broken: str | None = None

    def read(self, size: int) -> bytes:
        while self._ready_bytes < size and not self._ended:
            self._take()
        data = b"".join(self._ready)
        self._ready, self._ready_bytes = [data[size:]], len(data[size:])
        return data[:size]

    def _take(self) -> None:
        packed = self._packed.read(self._TAKEN_BYTES)
        if not packed:
            self._ended = True
            if not self._unpacking.eof:
                self.broken = "it ends before its end-of-stream marker"
            return
        try:
            while packed:
                self._give(self._unpacking.decompress(packed))
                if not self._unpacking.eof:
                    return
                packed = self._unpacking.unused_data
                if not packed:
                    packed = self._packed.read(self._TAKEN_BYTES)
                if not packed or not packed.startswith(self._magic):
                    # Nothing more, or padding behind the last stream.
                    self._ended = True
                    return
                self._unpacking = self._fresh()
        except (zlib.error, zstandard.ZstdError) as error:
            self._ended, self.broken = True, str(error)

    def _give(self, data: bytes) -> None:
        self._ready.append(data)
        self._ready_bytes += len(data)
