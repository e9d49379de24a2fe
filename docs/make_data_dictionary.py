"""Writes docs/data-dictionary.md from the schemas; a test checks that it was done.

python docs/make_data_dictionary.py
"""

from pathlib import Path

from gputrace.render.tables import data_dictionary
from gputrace.schema import FINDINGS, FRAMES

TARGET = Path(__file__).with_name("data-dictionary.md")
HEAD = """# Data dictionary

The frames of a `gputrace.Trace` (made by `docs/make_data_dictionary.py` from `gputrace/schema.py`). Times are integer
Unix nanoseconds; where the log could not be put on the wall clock (`clock.method` is `none`), they count from the
engine's start. A null means unknown, never zero.
"""


FINDINGS_HEAD = """
# What the analysis adds

The frames of a `gputrace.Diagnosis` (`states`, `blame`, `call_bytes`), and its findings as `--tables` writes them.
"""


def dictionary() -> str:
    """The document."""
    return HEAD + data_dictionary(FRAMES) + FINDINGS_HEAD + data_dictionary(FINDINGS)


if __name__ == "__main__":
    TARGET.write_text(dictionary(), encoding="utf-8")
    print(f"Wrote {TARGET}")
