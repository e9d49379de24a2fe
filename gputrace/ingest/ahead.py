"""Work that is done while what it follows is used."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items, each made in another thread while the one before it is used; the first is begun at once."""
    nothing = object()
    beside = ThreadPoolExecutor(max_workers=1)
    return _ahead(items, nothing, beside, beside.submit(next, items, nothing))


def _ahead(
    items: Iterator[Item], nothing: object, beside: ThreadPoolExecutor, coming: "Future[Item | object]"
) -> Iterator[Item]:
    with beside:
        while (item := coming.result()) is not nothing:
            coming = beside.submit(next, items, nothing)
            yield item  # type: ignore[misc]
            del item
