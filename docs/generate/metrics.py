"""docs/metrics.md, from the metrics of the exporter."""

from gputrace.live.exporter import DEFAULT_PERIOD_S, QUIET_S
from gputrace.live.metrics import CLOCK_METHODS, PHASE_BUCKETS_S, Metrics
from gputrace.live.tally import LEAD_NS, MOST_KEPT_NS, PATIENCE_NS

HEAD = f"""# Metrics

What `gputrace export CAPTURE` serves (made by `make docs-generated` from `gputrace/live/metrics.py`). Words are those
of [definitions.md](definitions.md); how to set it up is in [deploy](deploy/README.md).

## How it counts

Every {DEFAULT_PERIOD_S:g} s (`--every`) the newest part of the capture is read and analysed as `gputrace report` would,
with at least {LEAD_NS / 60e9:.0f} minutes before it for context; a scrape only hands out what is known by then.

- Counters count from when the exporter starts, as counters do; with `--from-start` from the beginning of the capture.
  For a service use the former: a counter that jumps by days at a restart would show as a burst.
- **Counted time** is the window of the report: per GPU and restart, first lock to last unlock of the GPU mutex. A GPU's
  seconds and bytes are added when a call ends, each second once. So they come in lumps as long as a call: take rates
  over several minutes, and shares as one rate over the rate of `gputrace_state_seconds_total`.
- Where no call ends for {(MOST_KEPT_NS - LEAD_NS) / 60e9:.0f} minutes, that time is no longer kept: it goes to
  `gputrace_uncounted_seconds_total`.
- A call is counted once, when its proof is finished. One that lacks lines gets {PATIENCE_NS / 60e9:.0f} minutes.
- States and bytes of a whole run are those of its report. The split between states may differ by 0.1 % of the time,
  since the lag of SM readings is fitted to each part; causes and verdicts are what the last minutes alone say.
- A call that fails and is tried again may count as failed twice: only the rest of the log tells which proof was whose.
- After {QUIET_S:g} s without a new byte the capture is taken to be over, and everything in it is counted.
- A capture without a log is one long window. Without readings of the link only `compute` is known.

Followed are the recorder's files; of other captures, logs (`prover*`, `*.log`) and CSVs with a column `t_end_ns` or
`t_wall_ns`.

Labels take values from short lists: no job and no call has series of its own. `gpu` is numbered as the prover does, but
in `gputrace_recorder_*` as the recorder does; `--gpu-map` says which is which. `direction`: rx is into the GPU, tx out
of it. `state`: compute, copy_only, idle. `cause`: those of the definitions. `method`:
{", ".join(CLOCK_METHODS)}. The buckets of phases end at
{", ".join(f"{bound:g}" for bound in PHASE_BUCKETS_S)} s.

`process_*` (memory, CPU time, open files of the exporter itself) are those of prometheus_client.

## List

| metric | type | labels | meaning |
|---|---|---|---|
"""


def table() -> str:
    """The document."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.meaning} |\n"
        for metric in sorted(Metrics().described, key=lambda metric: metric.name)
    ]
    return HEAD + "".join(rows)
