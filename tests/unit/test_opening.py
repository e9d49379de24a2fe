"""Inputs are opened by content: plain, gzip, zstd, stdin; broken ones give what they still hold and say so."""

import gzip
import io
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from gputrace.errors import InputError
from gputrace.ingest import opening
from gputrace.ingest.inputs import expand, ingest
from gputrace.ingest.opening import ByteSource

LINES = "".join(f"CUZK_TIMING: prep_msm_ms={n}\n" for n in range(5000)).encode()


def noise(size: int) -> bytes:
    """Bytes that do not compress, so that a cut file holds a cut part of them; the same every time."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        out += (state >> 24).to_bytes(5, "little")
    return bytes(out[:size])


def stored(folder: Path, data: bytes, name: str = "prover.log") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    "packed",
    [
        LINES,
        gzip.compress(LINES),
        gzip.compress(LINES[:70000]) + gzip.compress(LINES[70000:]),
        gzip.compress(LINES[:70000]) + gzip.compress(b"") + gzip.compress(LINES[70000:]),
        zstd(LINES),
        zstd(LINES[:70000]) + zstd(LINES[70000:]),
        zstandard.ZstdCompressor(write_content_size=False).compress(LINES),
    ],
    ids=["plain", "gzip", "gzip-members", "gzip-empty-member", "zstd", "zstd-frames", "zstd-unsized"],
)
def test_the_content_decides_how_it_is_opened(tmp_path: Path, packed: bytes) -> None:
    # The name says nothing: a rotated log is often called .1 and is gzip all the same.
    source = ByteSource(stored(tmp_path, packed, "prover.log.1"))
    assert source.read_all() == LINES
    assert source.damaged is None


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_chunks_end_at_line_ends_and_add_up(
    tmp_path: Path, pack: object, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = LINES[:3000] + b"a last line without its end"
    assert callable(pack)
    source = ByteSource(stored(tmp_path, pack(data)))
    assert source.head(100) == data[:100]
    monkeypatch.setattr(opening, "CHUNK_BYTES", chunk_bytes)
    chunks = list(source.chunks())
    assert b"".join(chunks) == data
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


def test_the_head_is_given_again(tmp_path: Path) -> None:
    source = ByteSource(stored(tmp_path, LINES))
    assert source.head(10) == LINES[:10]
    assert source.head(20) == LINES[:20]
    assert source.read_all() == LINES


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd], ids=["plain", "gzip", "zstd"])
def test_stdin(pack: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.RawIOBase):
        """Gives a few bytes at a time and cannot be rewound, as a pipe."""

        def __init__(self, data: bytes) -> None:
            self._left = data

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            view = memoryview(buffer)  # type: ignore[arg-type]
            part, self._left = self._left[: min(100, len(view))], self._left[min(100, len(view)) :]
            view[: len(part)] = part
            return len(part)

    assert callable(pack)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(Pipe(pack(LINES)))))
    source = ByteSource("-")
    assert source.head(50) == LINES[:50]
    assert source.read_all() == LINES


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_truncated_gzip_keeps_what_came_before(tmp_path: Path, cut: float) -> None:
    data = noise(1 << 20)
    packed = gzip.compress(data)
    source = ByteSource(stored(tmp_path, packed[: int(len(packed) * cut)]))
    got = source.read_all()
    assert data.startswith(got)
    assert source.damaged is not None and "breaks off" in source.damaged
    assert len(got) > len(data) * cut / 2


def test_a_truncated_gzip_log_that_compresses_well_keeps_nearly_all(tmp_path: Path) -> None:
    packed = gzip.compress(LINES)
    cut = packed[: int(len(packed) * 0.9)]
    recoverable = zlib.decompressobj(wbits=31).decompress(cut)
    source = ByteSource(stored(tmp_path, cut))
    got = source.read_all()
    assert source.damaged
    assert len(got) >= 0.95 * len(recoverable)


def test_a_truncated_zstd_keeps_what_came_before(tmp_path: Path) -> None:
    data = noise(1 << 20)
    packed = zstd(data)
    source = ByteSource(stored(tmp_path, packed[: int(len(packed) * 0.7)]))
    got = source.read_all()
    assert data.startswith(got) and len(got) > len(data) // 2
    assert source.damaged is not None and "breaks off" in source.damaged


def test_a_gzip_cut_inside_its_header_is_damaged_and_empty(tmp_path: Path) -> None:
    source = ByteSource(stored(tmp_path, gzip.compress(LINES)[:6]))
    assert source.head() == b""
    assert source.damaged


def test_a_gzip_with_flipped_bits_is_damaged(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LINES))
    packed[len(packed) // 2 : len(packed) // 2 + 8] = b"\xff" * 8
    source = ByteSource(stored(tmp_path, bytes(packed)))
    source.read_all()
    assert source.damaged


def test_a_damaged_log_is_read_and_said_to_be_so(tmp_path: Path) -> None:
    lines = b"".join(b"CUZK_TIMING: prep_msm_ms=%d %s\n" % (n, noise(n % 60 + 9).hex().encode()) for n in range(40000))
    packed = gzip.compress(lines)
    path = stored(tmp_path, packed[: len(packed) // 2])
    read = ingest([path])
    assert read.marks.height > 1000
    assert [notice.code for notice in read.quality.notices] == ["input-damaged"]


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    path = str(tmp_path / "gone.log")
    with pytest.raises(InputError, match=r"gone\.log.*No such file"):
        ByteSource(path)


def test_an_empty_file_has_no_bytes_and_is_refused_by_name(tmp_path: Path) -> None:
    path = stored(tmp_path, b"", "empty.log")
    source = ByteSource(path)
    assert source.head() == b"" and list(source.chunks()) == []
    assert source.damaged is None
    with pytest.raises(InputError, match=r"empty\.log.*empty"):
        ingest([path])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_files_shorter_than_the_magic(tmp_path: Path, size: int) -> None:
    assert ByteSource(stored(tmp_path, b"abc"[:size])).read_all() == b"abc"[:size]


def test_an_empty_gzip_holds_nothing(tmp_path: Path) -> None:
    source = ByteSource(stored(tmp_path, gzip.compress(b"")))
    assert source.read_all() == b"" and source.damaged is None


def test_a_folder_is_expanded_without_what_is_not_a_measurement(tmp_path: Path) -> None:
    for name in ("prover.log", "nvml.csv", "truth.csv", "README.md", "meta.json", ".hidden"):
        stored(tmp_path, b"x", name)
    (tmp_path / "inner").mkdir()
    loose = stored(tmp_path / "inner", b"x", "loose.log")
    found = expand([str(tmp_path), loose, "-"])
    assert [(Path(path).name, named) for path, named in found] == [
        ("meta.json", False),
        ("nvml.csv", False),
        ("prover.log", False),
        ("loose.log", True),
        ("-", True),
    ]


def test_a_file_named_itself_is_read_whatever_its_name(tmp_path: Path) -> None:
    assert expand([stored(tmp_path, b"x", "truth.csv")]) == [(str(tmp_path / "truth.csv"), True)]


def test_an_empty_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        expand([str(tmp_path)])


def test_a_folder_in_which_nothing_can_be_used_is_an_input_error(tmp_path: Path) -> None:
    stored(tmp_path, b"x", "truth.csv")
    with pytest.raises(InputError):
        ingest([str(tmp_path)])
