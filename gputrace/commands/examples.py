"""Examples of every command: for its help, for who left something out, and for who does not know where to begin."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "report": (
        "gputrace report prover.log nvml.csv",
        "gputrace report capture/ --html report.html",
        "gputrace report capture/ --full | less",
    ),
    "what-if": (
        "gputrace what-if capture/",
        "gputrace what-if capture/ --scenario pinned-h2d+workers=3",
    ),
    "compare": (
        "gputrace compare before/ after/",
        'gputrace compare before/ after/ --fail-if "mutex_held_ms.median > 1.05x"',
    ),
    "fleet": (
        "gputrace fleet captures/",
        "gputrace fleet 's3://bucket/fleet/*/*/' --html fleet.html",
    ),
    "export": ("gputrace export capture/", "gputrace export capture/ --prometheus :9435"),
    "live": ("gputrace live capture/", "gputrace live capture/ --speed 10", "gputrace live capture/ --once"),
    "record": (
        "gputrace record -o capture/ -- cuzk-daemon --config cuzk.toml",
        "gputrace record -o capture/ --log /var/log/cuzk.log",
        "gputrace record -o capture/ --journal cuzk",
    ),
    "simulate": ("gputrace simulate pageable -o capture/", "gputrace simulate my-run.toml -o capture/ --seed 7"),
    "cache": ("gputrace cache", "gputrace cache --clear"),
    "formats": ("gputrace formats list", "gputrace formats check prover.log"),
    "formats list": ("gputrace formats list",),
    "formats check": ("gputrace formats check prover.log",),
}

GUIDE = """\
gputrace says why a GPU prover's GPU is idle, how sure that is, and what a fix is worth.

You have a prover's log and a GPU trace:  gputrace report prover.log nvml.csv
Nothing is recorded yet:                  gputrace record -o capture/ -- COMMAND
To watch a run while it goes on:          gputrace live capture/
To try it without a GPU:                  gputrace simulate small -o try/
                                          gputrace report try/

All commands: gputrace --help
"""


def epilog(command: str) -> str:
    """The examples of a command as the end of its help, each on a line of its own."""
    # \\b keeps these lines from being filled like a paragraph.
    return "\n".join(["\b", "Examples:", *(f"  {example}" for example in EXAMPLES[command])])
