"""The cache's folder: bounded, whole or not there, the user's own; and its values come back as they were."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gputrace.cache.codec import UnreadableError, pack, unpack
from gputrace.cache.content import BLOCK_BYTES, Contents, FileState
from gputrace.cache.store import Store, user_store
from gputrace.errors import UsageError
from gputrace.trace import Clock, InputInfo, Trace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store", most_bytes=1_000_000)
    assert made.open()
    return made


def test_what_is_put_is_got(store: Store) -> None:
    store.put("a", b"one")
    store.put("a", b"two")
    assert (store.get("a"), store.get("b"), store.names()) == (b"two", None, ["a"])


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:20] + b"x" + data[21:], lambda _: b""])
def test_a_broken_entry_is_none_and_goes(store: Store, damage: object) -> None:
    store.put("a", b"one" * 100)
    (file,) = store.folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert store.get("a") is None
    assert (store.counts.broken, store.names()) == (1, [])


def test_the_least_recently_used_go_first(store: Store) -> None:
    for number in range(5):
        store.put(str(number), bytes(200_000))
        os.utime(store.folder / f"{number}.entry", ns=(number, number))
    assert store.names() == ["0", "1", "2", "3"] or store.counts.evicted
    store.get("1")
    store.put("last", bytes(200_000))
    assert "1" in store.names() and "last" in store.names()
    assert store.size_bytes() <= store.most_bytes


def test_an_entry_larger_than_a_quarter_is_not_kept(store: Store) -> None:
    store.put("small", b"kept")
    store.put("large", bytes(250_001))
    assert store.names() == ["small"]


def test_what_a_killed_run_left_goes_after_a_while(store: Store) -> None:
    old, new = store.folder / "a.unfinished", store.folder / "b.unfinished"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.put("a", b"one")
    assert not old.exists() and new.exists()


def test_a_folder_that_is_not_there_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    blocked = Store(tmp_path / "file" / "store")
    assert not blocked.open()
    blocked.put("a", b"one")
    assert blocked.get("a") is None and blocked.names() == [] and blocked.size_bytes() == 0


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o777)
    assert not Store(folder).open()
    folder.chmod(0o755)
    assert Store(folder).open()
    (tmp_path / "link").symlink_to(folder)
    assert not Store(tmp_path / "link").open()


def test_entries_are_the_users_alone(store: Store) -> None:
    store.put("a", b"one")
    assert store.folder.stat().st_mode & 0o077 == 0
    assert (store.folder / "a.entry").stat().st_mode & 0o077 == 0


def test_many_at_once(store: Store) -> None:
    def work(number: int) -> bytes | None:
        name = str(number % 7)
        store.put(name, name.encode() * 30_000)
        return store.get(name)

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(work, range(200)))
    assert store.counts.broken == 0
    assert all(data is None or data == bytes([data[0]]) * 30_000 for data in got)


def test_the_environment_says_where_and_how_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTRACE_CACHE", "off")
    assert user_store() is None
    monkeypatch.setenv("GPUTRACE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GPUTRACE_CACHE_MAX_GB", "0.5")
    made = user_store()
    assert made is not None
    assert (made.folder, made.most_bytes) == (tmp_path / "gputrace" / "read", 500_000_000)
    monkeypatch.setenv("GPUTRACE_CACHE_MAX_GB", "lots")
    with pytest.raises(UsageError, match="GPUTRACE_CACHE_MAX_GB=lots"):
        user_store()


def test_values_come_back() -> None:
    frame = pl.DataFrame({"a": [1, None], "b": [[{"key": "x", "value": None}], []]})
    trace = Trace(inputs=[InputInfo("p", "log", "plain", 3)], clock=Clock(offset_s=0.1), focus=pl.Series("call", [1]))
    value = {"t": (trace, [1.5, float("inf"), None, True]), 3: frame}
    back = unpack(pack(value))
    assert back[3].equals(frame) and back["t"][1] == value["t"][1]  # type: ignore[index]
    got = back["t"][0]
    assert (got.inputs, got.clock, got.focus.to_list()) == (trace.inputs, trace.clock, [1])
    assert_frame_equal(got.marks, trace.marks)


@dataclass
class Foreign:
    """Not one of the package's."""

    x: int = 0


def test_only_the_packages_own_values_are_made() -> None:
    with pytest.raises(UnreadableError, match="Foreign is not kept"):
        pack(Foreign())
    ours = pack(Clock())
    for other in (b"subprocess:Popen     ", b"gputrace.trace:Nobody", b"gputrace.trace:Notice"):
        with pytest.raises(UnreadableError):
            unpack(ours.replace(b"gputrace.trace:Clock ", other).replace(b"gputrace.trace:Clock", other.strip()))
    for end in range(0, len(ours), 7):
        with pytest.raises(UnreadableError):
            unpack(ours[:end])


def aged(path: Path) -> None:
    """Gives a file an old mtime; its ctime stays that of now."""
    os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)


def test_contents_are_told_by_all_bytes(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "log"
    data = bytearray(os.urandom(BLOCK_BYTES + 1000))
    path.write_bytes(data)
    whole = Contents(store).of(str(path))
    assert whole is not None and whole.still()
    shorter = (BLOCK_BYTES + 10, (whole.blocks[0], "0" * 32))
    assert not whole.begins_with(*shorter)
    aged(path)
    before = path.stat()
    data[BLOCK_BYTES // 2] ^= 1
    path.write_bytes(data)
    aged(path)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    changed = Contents(store).of(str(path))
    assert changed is not None and changed.digest != whole.digest
    assert not whole.still()
    with path.open("ab") as file:
        file.write(b"more")
    assert changed.still(longer=True) and not changed.still()
    longer = Contents(store).of(str(path))
    assert longer is not None and longer.begins_with(changed.size, changed.blocks)
    assert not longer.begins_with(whole.size, whole.blocks)


def test_a_file_is_not_read_again_only_while_the_system_says_so(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a log")
    first = Contents(store).of(str(path))
    # Just written: nothing is remembered, for the next change may bear the same time.
    assert store.names("seen-") == []
    monkeypatch.setattr("gputrace.cache.content._SETTLED_NS", -(10**18))
    assert Contents(store).of(str(path)) is not None and len(store.names("seen-")) == 1
    monkeypatch.setattr("gputrace.cache.content._blocks", lambda *_: pytest.fail("read again"))
    second = Contents(store).of(str(path))
    assert first is not None and second is not None and second.digest == first.digest
    assert Contents(store).of("-") is None and Contents(store).of(str(tmp_path)) is None
    assert FileState.of(str(tmp_path / "none")) is None
