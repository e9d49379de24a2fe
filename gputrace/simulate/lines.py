"""A schedule as the prover would log it: every line with its stream, its true time of writing and its text."""

import random
from functools import partial

from gputrace.simulate.cpp_lines import print_cpp
from gputrace.simulate.engine_lines import Run, print_call, print_job_ends, print_start, print_synthesis
from gputrace.simulate.memory_lines import print_first_load, print_shortage
from gputrace.simulate.schedule import Schedule
from gputrace.simulate.text import Clocks, Line, LogOptions, Printer
from gputrace.simulate.variants import LogVariant


def log_lines(
    schedule: Schedule,
    variant: LogVariant,
    epoch_ns: int,
    options: LogOptions | None = None,
    seed: int = 0,
    until: float | None = None,
) -> list[Line]:
    """The lines of one run in the order in which they are written; `until` (s since its start) cuts them off.

    The schedule should come from `variant.apply(limits)`: older builds hold the mutex longer and join the prep thread
    in the worker.
    """
    options = options or LogOptions()
    clocks = Clocks(epoch_ns, options.drift_ppm)
    printer = Printer(clocks, options, random.Random(f"lines {seed}"))
    if options.engine_start:
        print_start(printer, schedule)
    if options.memory_lines:
        print_first_load(printer, options.srs_load_s)
    for shortage in schedule.disturbance.shortages:
        if shortage.start < schedule.end:
            print_shortage(printer, shortage)
    run = Run.of(printer, schedule, variant)
    jobs: set[tuple[str, int]] = set()
    for synthesis in schedule.syntheses:
        key = (synthesis.work.job, synthesis.work.attempt)
        print_synthesis(run, synthesis, key not in jobs)
        jobs.add(key)
    for call in schedule.calls:
        print_call(run, call, partial(print_cpp, printer, variant, call))
    print_job_ends(run)
    lines = printer.lines
    if until is not None:
        limit_ns = clocks.wall_ns(until)
        lines = [line for line in lines if line.at_ns <= limit_ns]
    return sorted(lines, key=lambda line: line.at_ns)
