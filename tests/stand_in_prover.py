"""Writes numbered lines of a prover's log to stdout and stderr for a while, in pieces as the real one does.

Run without site packages: it must start at once. `python -S tests/stand_in_prover.py LINES PAUSE_S [HOW...]`; each HOW
is one of: fork (a child goes on when the parent is gone), close (stdout is closed half way), signals=FILE (the signals
that it gets are written there), exit=N.
"""

import os
import signal
import sys
import time


def main() -> None:
    lines, pause_s, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    code = next((int(word[5:]) for word in how if word.startswith("exit=")), 0)
    told = next((word[8:] for word in how if word.startswith("signals=")), None)
    if told:
        for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(caught, lambda which, _: open(told, "a").write(f"{which}\n"))  # noqa: PTH123, SIM115
    if "fork" in how and os.fork():
        os._exit(code)
    for number in range(lines):
        if "close" in how and number == lines // 2:
            os.close(1)
        if "close" not in how or number < lines // 2:
            os.write(1, b"out %d\n" % number)
        # A line in pieces, as Rust's eprintln does.
        for piece in (b"CUZK_TIMING: ", b"prep_msm_ms=", b"%d" % number, b"\n"):
            os.write(2, piece)
        time.sleep(pause_s)
    os._exit(code)


main()
