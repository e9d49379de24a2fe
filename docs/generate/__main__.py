"""Writes the pages that are made from the code."""

from docs.generate.pages import DOCS, PAGES

for name, page in PAGES.items():
    (DOCS / name).write_text(page(), encoding="utf-8")
    print(f"Wrote docs/{name}")
