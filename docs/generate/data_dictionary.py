"""docs/data-dictionary.md, from the schemas of the frames."""

from gputrace.schema import FRAMES

HEAD = """# Data dictionary

The frames of a `gputrace.Trace` (made by `make docs-generated` from `gputrace/schema.py`). Times are integer
Unix nanoseconds; where the log could not be put on the wall clock (`clock.method` is `none`), they count from the
engine's start. A null means unknown, never zero.
"""


def dictionary() -> str:
    """The document."""
    parts = [HEAD]
    for frame in FRAMES:
        meaning = frame.meaning[0].upper() + frame.meaning[1:]
        parts.append(f"\n## {frame.name}\n\n{meaning}.\n\n| column | type | meaning |\n|---|---|---|\n")
        parts.extend(f"| `{name}` | {column.dtype} | {column.meaning} |\n" for name, column in frame.columns.items())
    return "".join(parts)
