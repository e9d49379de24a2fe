"""Many captures -> one table: found, analysed where an engine puts them, kept as small summaries, ranked.

    patterns -> captures -> (store: unchanged ones) -> engine -> summaries -> frames -> ranking -> Fleet

Only this room knows Dask and fsspec.
"""
