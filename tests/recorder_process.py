"""A recorder with stand-in GPUs, as a process: `python -m tests.recorder_process OPTIONS... -- COMMAND...`.

Segments are small (RECORDER_SEGMENT_BYTES), so that short recordings have several.
"""

import argparse
import os
import sys

from gputrace.errors import GputraceError
from gputrace.sampler import capture
from gputrace.sampler.recording import Request, record
from tests.recording import StandInGpus


def main() -> int:
    """Records; the exit code is what `gputrace record` would return."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--log")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--max-size")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, command = parser.parse_args(sys.argv[1:at]), sys.argv[at + 1 :]
    segment_bytes = int(os.environ.get("RECORDER_SEGMENT_BYTES", str(64 << 20)))
    capture._SEGMENT_BYTES = segment_bytes
    if os.environ.get("RECORDER_PACKS") == "no":
        capture.ProcessPacker.add = lambda self, path: None  # type: ignore[method-assign]
    request = Request(
        options.output,
        log=options.log,
        pid=options.pid,
        command=command,
        period_s=0.02,
        max_size=options.max_size,
    )
    try:
        ended = record(
            request,
            lambda line: print(line, file=sys.stderr, flush=True),
            lambda asked, clock, _: StandInGpus(options.gpus, asked.period_s, clock),
        )
    except GputraceError as error:
        print(f"gputrace: {error}", file=sys.stderr)
        return error.exit_code
    print(f"ended ({ended.why}; {ended.message})", file=sys.stderr)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
