"""Columns of numbers as text for a page: typed arrays, shuffled into byte planes, deflated, base64.

The page's script reads them back with DecompressionStream. Planes (all lowest bytes, then the next) put what is alike
side by side, which deflate needs; differences do the same for times.
"""

import base64
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# kind: (little-endian type, whether differences modulo its range are kept instead of values)
KINDS = {"u1": ("<u1", False), "u2": ("<u2", False), "u4": ("<u4", False), "d4": ("<u4", True)}
UNKNOWN = 65535
_MOST_LEVEL = UNKNOWN - 1
_DEFLATE_LEVEL = 6

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Packed:
    """`directory` is (name, kind, count) of each column in the order in which they lie in `data`."""

    directory: tuple[tuple[str, str, int], ...]
    data: str


@dataclass
class Columns:
    """Collects columns, then packs them."""

    _parts: list[tuple[str, str, Integers]] = field(default_factory=list)

    def add(self, name: str, kind: str, values: Integers) -> None:
        """A column of whole numbers that fit its kind; OverflowError where one does not."""
        limit = np.iinfo(KINDS[kind][0]).max
        if values.size and (values.min() < 0 or values.max() > limit):
            raise OverflowError(f"column {name} has values beyond {kind}")
        self._parts.append((name, kind, values))

    def pack(self) -> Packed:
        """All columns, one after another."""
        planes = bytearray()
        for _, kind, values in self._parts:
            dtype, differs = KINDS[kind]
            whole = np.diff(values.astype(np.int64), prepend=0) if differs else values
            width = np.dtype(dtype).itemsize
            planes += whole.astype(dtype).view(np.uint8).reshape(-1, width).T.tobytes()
        directory = tuple((name, kind, len(values)) for name, kind, values in self._parts)
        return Packed(directory, base64.b64encode(zlib.compress(bytes(planes), _DEFLATE_LEVEL)).decode())


def unpack(packed: Packed) -> dict[str, Integers]:
    """The columns again, as the page's script reads them."""
    planes, at = zlib.decompress(base64.b64decode(packed.data)), 0
    columns: dict[str, Integers] = {}
    for name, kind, count in packed.directory:
        dtype, differs = KINDS[kind]
        width = np.dtype(dtype).itemsize
        block = np.frombuffer(planes, np.uint8, count * width, at).reshape(width, count)
        at += count * width
        values = np.ascontiguousarray(block.T).view(dtype).reshape(-1)
        columns[name] = np.cumsum(values, dtype=np.uint32) if differs else values
    return columns


def levels(values: Floats) -> tuple[npt.NDArray[np.uint16], float]:
    """Values from 0 as whole levels, and what a level is worth; nan is UNKNOWN. Off by half a level at most."""
    known = np.isfinite(values)
    most = float(values[known].max()) if known.any() else 0.0
    level = most / _MOST_LEVEL if most > 0 else 1.0
    whole = np.full(len(values), UNKNOWN, dtype=np.uint16)
    whole[known] = np.clip(np.rint(values[known] / level), 0, _MOST_LEVEL).astype(np.uint16)
    return whole, level


def tick_s(span_s: float) -> float:
    """The unit of times: 0.1 ms, and more only where 32 bits of it would not span the axis (five days)."""
    tick = 1e-4
    while span_s / tick > 2**32 - 1:
        tick *= 10
    return tick


def round_up(seconds: float) -> float:
    """The next length of a bin that people can read: 1, 1.5, 2, 3, 4, 5, 6 or 8 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(seconds))
    for step in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0):
        if step * power >= seconds * (1 - 1e-9):
            return float(f"{step * power:.6g}")
    return float(power * 10)
