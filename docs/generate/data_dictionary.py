"""docs/data-dictionary.md, from the schemas of the frames."""

from gputrace.analysis.tables import TABLES
from gputrace.render.tables import data_dictionary
from gputrace.schema import DIAGNOSIS_FRAMES, FRAMES

HEAD = """# Data dictionary

The frames of a `gputrace.Trace` (`marks` to `copies`) and of a `gputrace.Diagnosis` (`states`, `blame`, `call_bytes`),
and findings as tables (`*_table`); made by `make docs-generated` from `gputrace/schema.py` and
`gputrace/analysis/tables.py`. Times are integer Unix nanoseconds; where the log could not be put on the wall clock
(`clock.method` is `none`), they count from the engine's start. A null means unknown, never zero.
"""


def dictionary() -> str:
    """The document."""
    return HEAD + data_dictionary(FRAMES + DIAGNOSIS_FRAMES + TABLES)
