"""The script for a real GPU, driven against the stand-in: it finds what it should, and misses nothing that is wrong."""

import mmap
import struct
import time
from pathlib import Path

import pytest

from tests import standin
from tests.gpu import measure, truth
from tests.gpu.watchers import Recorder

FACTOR = 276 / 256


class Shared:
    """Copies that exist only as numbers in the stand-in's totals, `honest` or counted in part."""

    def __init__(self, file: Path, counted: float = 1.0) -> None:
        file.write_bytes(bytes(standin.LIVE_BYTES))
        self._counted = counted
        with file.open("r+b") as stream:
            self._totals = mmap.mmap(stream.fileno(), standin.LIVE_BYTES)

    def _copy(self, at: int, size: int) -> int:
        pieces = max(1, size // (64 << 20))
        for _ in range(pieces):
            (before,) = struct.unpack_from("<Q", self._totals, at)
            struct.pack_into("<Q", self._totals, at, before + round(size * FACTOR * self._counted / pieces))
            time.sleep(size / pieces / 50e9)
        return size

    def to_gpu(self, size: int, pinned: bool) -> int:
        return self._copy(0, size)

    def to_host(self, size: int) -> int:
        return self._copy(8, size)

    def compute(self, wait: bool) -> None:
        time.sleep(0.002)

    def finish(self) -> None:
        pass


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "QUIET_S", 0.6)


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch, counted: float) -> Shared:
    gpu = Shared(folder / "totals", counted)
    script = standin.Script([f"live {folder / 'totals'}"]).write(folder / "script.txt")
    try:
        for name, value in standin.environment(script).items():
            monkeypatch.setenv(name, value)
    except standin.NoCompiler as missing:
        pytest.skip(str(missing))
    return gpu


@pytest.mark.usefixtures("quick")
def test_the_script_reports_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = measure.Driver(prepare(tmp_path, monkeypatch, 1.0), 0.05)
    done = measure.drive(driver, "beside", "all", True, tmp_path / "rows")
    measure.evaluate(done, tmp_path / "rows", FACTOR)
    assert [result["phase"] for result in done.results] == list(measure.SECONDS)
    for result in done.results:
        error = result["error"]["counters"]
        # A hole of a busy machine may hide a wrap; then the figure is low, never high.
        if result["payload_bytes"] and not result["holes"]:
            assert abs(error) < 1e-4, result
    assert set(done.costs) >= {"all", "throughput"}
    about = {"name": "x", "driver": "1", "wire_per_payload": FACTOR, "mps": 256, "mps_known": False}
    text = measure.markdown([done], about)
    assert all(name in text for name in measure.SECONDS)


@pytest.mark.usefixtures("quick")
def test_the_script_sees_bytes_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = measure.Driver(prepare(tmp_path, monkeypatch, 0.99), 0.03)
    done = measure.drive(driver, "counters", "counters", False, tmp_path / "rows")
    measure.evaluate(done, tmp_path / "rows", FACTOR)
    said = [line for line in measure.missed([done]) if "payload" in line]
    assert len(said) == sum(bool(result["payload_bytes"]) for result in done.results) == 5
    assert any("-1.00%, target ±0.5%" in line for line in said)


def test_a_recorder_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch, 1.0)
    standin.Script(["fail 0 99 9 -1 nvmlInitWithFlags"]).write(tmp_path / "script.txt")
    with pytest.raises(RuntimeError, match="Driver Not Loaded"):
        Recorder("all", tmp_path).wait_until_writing()


def test_the_payload_of_a_link_is_read_from_the_device_control_register(tmp_path: Path) -> None:
    config = bytearray(256)
    config[0x34] = 0x60
    config[0x60:0x62] = bytes([0x01, 0x78])  # power management, then
    config[0x78:0x82] = bytes([0x10, 0, 0, 0, 0, 0, 0, 0, 0b0010_1110, 0])  # PCI Express, MPS 256
    folder = tmp_path / "0000:10:00.0"
    folder.mkdir()
    (folder / "config").write_bytes(config)
    assert truth.wire_per_payload("00000000:10:00.0", tmp_path) == (276 / 256, 256, True)
    config[0x80] = 0
    (folder / "config").write_bytes(config)
    assert truth.wire_per_payload("0000:10:00.0", tmp_path) == (148 / 128, 128, True)
    (folder / "config").write_bytes(config[:64])
    assert truth.wire_per_payload("0000:10:00.0", tmp_path) == (276 / 256, 256, False)
    assert truth.wire_per_payload("0000:99:00.0", tmp_path) == (276 / 256, 256, False)
