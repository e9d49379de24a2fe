"""Writes docs/data-dictionary.md from the schemas; a test checks that it was done.

python docs/make_data_dictionary.py
"""

from pathlib import Path

from gputrace.analysis.tables import TABLES
from gputrace.schema import DIAGNOSIS_FRAMES, FRAMES

TARGET = Path(__file__).with_name("data-dictionary.md")
HEAD = """# Data dictionary

The frames of a `gputrace.Trace` (`marks` to `copies`) and of a `gputrace.Diagnosis` (`states`, `blame`, `call_bytes`),
and findings as tables (`*_table`); made by `docs/make_data_dictionary.py` from `gputrace/schema.py` and
`gputrace/analysis/tables.py`. Times are integer Unix nanoseconds; where the log could not be put on the wall clock
(`clock.method` is `none`), they count from the engine's start. A null means unknown, never zero.
"""


def dictionary() -> str:
    """The document."""
    parts = [HEAD]
    for frame in FRAMES + DIAGNOSIS_FRAMES + TABLES:
        meaning = frame.meaning[0].upper() + frame.meaning[1:]
        parts.append(f"\n## {frame.name}\n\n{meaning}.\n\n| column | type | meaning |\n|---|---|---|\n")
        parts.extend(f"| `{name}` | {column.dtype} | {column.meaning} |\n" for name, column in frame.columns.items())
    return "".join(parts)


if __name__ == "__main__":
    TARGET.write_text(dictionary(), encoding="utf-8")
    print(f"Wrote {TARGET}")
