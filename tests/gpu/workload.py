"""The phases of known copies as a program of its own, for a recorder to record: `python -m tests.gpu.workload [SCALE]`.

Prints a line of JSON for each phase: its name, when it was (Unix ns), and the payload bytes it copied each way.
"""

import json
import sys
import time

from tests.gpu.cuda import Gpu
from tests.gpu.measure import BURST_BYTES, Driver


def main(scale: float) -> None:
    """Runs the phases once."""
    apart_ns = time.time_ns() - time.monotonic_ns()
    for phase in Driver(Gpu(0, BURST_BYTES), scale).run():
        said = {
            "phase": phase.name,
            "start_ns": phase.start_ns + apart_ns,
            "end_ns": phase.end_ns + apart_ns,
            "rx_bytes": phase.rx_bytes,
            "tx_bytes": phase.tx_bytes,
        }
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
