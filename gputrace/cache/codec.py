"""Values of the package as bytes and back: plain values as JSON, frames as Arrow IPC.

Nothing that is read can run code: only the package's own data classes are made, from their fields.
"""

import io
import json
import struct
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl

_PACKAGE = "gputrace."
_KIND, _VALUE = "@", "v"


class UnreadableError(Exception):
    """Bytes that `pack` of this version does not write, or a value that it cannot write."""


def pack(value: object) -> bytes:
    """Data classes, tuples, lists, dictionaries, plain values, frames, series and rows of numbers, in any depth.

    Raises `UnreadableError` for anything else.
    """
    frames: list[bytes] = []
    text = json.dumps(_plain(value, frames)).encode()
    parts = [struct.pack("<I", len(frames) + 1)]
    for blob in (text, *frames):
        parts += [struct.pack("<Q", len(blob)), blob]
    return b"".join(parts)


def unpack(data: bytes) -> Any:
    """The value that was packed. Raises `UnreadableError` where these are not the bytes of one."""
    try:
        (count,) = struct.unpack_from("<I", data)
        at, blobs = 4, []
        for _ in range(count):
            (size,) = struct.unpack_from("<Q", data, at)
            blobs.append(memoryview(data)[at + 8 : at + 8 + size])
            at += 8 + size
        return _value(json.loads(bytes(blobs[0])), blobs[1:])
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, ImportError, OSError) as error:
        raise UnreadableError(str(error)) from error
    except pl.exceptions.PolarsError as error:
        raise UnreadableError(str(error)) from error


def _plain(value: object, frames: list[bytes]) -> object:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, float):
        # numpy's, which is a float.
        return float(value)
    if isinstance(value, list):
        return [_plain(one, frames) for one in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return {_KIND: "tuple", _VALUE: [_plain(one, frames) for one in value]}
    if isinstance(value, dict):
        return {_KIND: "dict", _VALUE: [[_plain(key, frames), _plain(one, frames)] for key, one in value.items()]}
    if isinstance(value, pl.Series):
        return {_KIND: "series", _VALUE: _plain(value.to_frame(), frames)}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        blob = io.BytesIO()
        np.save(blob, value, allow_pickle=False)
        frames.append(blob.getvalue())
        return {_KIND: "array", _VALUE: len(frames) - 1}
    if isinstance(value, pl.DataFrame):
        blob = io.BytesIO()
        value.write_ipc(blob, compression="zstd")
        frames.append(blob.getvalue())
        return {_KIND: "frame", _VALUE: len(frames) - 1}
    kind = type(value)
    if is_dataclass(value) and kind.__module__.startswith(_PACKAGE):
        told = {one.name: _plain(getattr(value, one.name), frames) for one in fields(value)}
        return {_KIND: f"{kind.__module__}:{kind.__qualname__}", _VALUE: told}
    raise UnreadableError(f"{kind.__module__}.{kind.__qualname__} is not kept")


def _value(told: Any, frames: list[memoryview]) -> Any:
    if isinstance(told, list):
        return [_value(one, frames) for one in told]
    if not isinstance(told, dict):
        return told
    kind, inner = told[_KIND], told[_VALUE]
    if kind == "tuple":
        return tuple(_value(one, frames) for one in inner)
    if kind == "dict":
        return {_value(key, frames): _value(one, frames) for key, one in inner}
    if kind == "series":
        return _value(inner, frames).to_series()
    if kind == "frame":
        return pl.read_ipc(io.BytesIO(frames[inner]))
    if kind == "array":
        return np.load(io.BytesIO(frames[inner]), allow_pickle=False)
    module, _, name = kind.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{kind} is not one of the package's")
    made_of = getattr(import_module(module), name)
    if not (isinstance(made_of, type) and is_dataclass(made_of)) or {one.name for one in fields(made_of)} != set(inner):
        raise ValueError(f"{kind} is another now")
    made = object.__new__(made_of)
    for key, one in inner.items():
        object.__setattr__(made, key, _value(one, frames))
    return made
