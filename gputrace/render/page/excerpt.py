"""Anybody's words, cut to a length that a page can bear; how much was cut is said."""

import polars as pl

MOST_CHARACTERS = 160


def excerpt(text: object, most: int = MOST_CHARACTERS) -> str:
    """The text, or its beginning with "…" and the whole length."""
    whole = str(text)
    return whole if len(whole) <= most else f"{whole[:most]}… ({len(whole):,} characters)"


def excerpts(frame: pl.DataFrame, most: int = MOST_CHARACTERS) -> pl.DataFrame:
    """The frame with every text in it cut."""
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    cut = [
        pl.when(pl.col(name).str.len_chars() > most)
        .then(pl.format("{}… ({} characters)", pl.col(name).str.slice(0, most), pl.col(name).str.len_chars()))
        .otherwise(pl.col(name))
        .alias(name)
        for name in texts
    ]
    return frame.with_columns(cut)
