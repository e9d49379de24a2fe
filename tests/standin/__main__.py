"""`python -m tests.standin` builds the stand-in for NVML; `python -m tests.standin nvml.csv.gz OUT` writes a script."""

import sys
from pathlib import Path

from tests import standin

if len(sys.argv) == 3:
    standin.from_recording(Path(sys.argv[1])).write(Path(sys.argv[2]))
    print(f"Wrote {sys.argv[2]}")
else:
    try:
        print(f"Stand-in for NVML: {standin.library()}")
    except standin.NoCompiler as error:
        print(error)
