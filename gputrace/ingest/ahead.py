"""Work that is done while what it follows is used."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items, each made in another thread while the one before it is used."""
    nothing = object()
    with ThreadPoolExecutor(max_workers=1) as beside:
        coming = beside.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = beside.submit(next, items, nothing)
            yield item  # type: ignore[misc]
            del item
