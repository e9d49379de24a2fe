"""Values of the package as entries of a store."""

from typing import TypeVar

from gputrace.cache.codec import UnreadableError, pack, unpack
from gputrace.cache.store import Store

Value = TypeVar("Value")


def kept_value(store: Store, name: str, kind: type[Value]) -> Value | None:
    """The value of this kind under a name; None where there is none. An entry that is not one is discarded."""
    if (data := store.get(name)) is None:
        return None
    try:
        value = unpack(data)
    except UnreadableError:
        value = None
    if not isinstance(value, kind):
        store.discard(name)
        return None
    return value


def packed(value: object) -> bytes | None:
    """What is kept of a value; None for one of a kind that is not written, which is then made anew every time."""
    try:
        return pack(value)
    except UnreadableError:
        return None


def keep_value(store: Store, name: str, value: object) -> None:
    """Keeps a value under a name, if it can be written."""
    if (data := packed(value)) is not None:
        store.put(name, data)
