"""Says what is kept of earlier reading, and throws it away."""

from typing import Annotated

import typer


def cache_of_user(
    clear: Annotated[bool, typer.Option("--clear", help="throw all of it away")] = False,
) -> None:
    """Show or throw away what is kept of earlier reading.

    A second report on the same inputs takes it from there. GPUTRACE_CACHE=DIR keeps it elsewhere, GPUTRACE_CACHE=off
    nowhere; GPUTRACE_CACHE_MAX_GB bounds it (2). It never has to be cleared: a changed file is read anew.
    """
    from gputrace.cache.store import user_store
    from gputrace.printable import printable

    store = user_store()
    if store is None:
        print("nothing is kept: it is off, or the folder is not the user's own, or others may write to it")
        return
    if clear:
        print(f"{printable(str(store.folder))}: {store.clear()} entries removed")
        return
    most_gb = store.most_bytes / 1e9
    entries, megabytes = len(store.names()), store.size_bytes() / 1e6
    print(f"{printable(str(store.folder))}: {entries} entries, {megabytes:.1f} MB of at most {most_gb:g} GB")
