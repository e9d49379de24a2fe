"""Examples for the command reference. A test reads each with the command's own parser."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "report": (
        ("gputrace report capture/", "everything in a folder"),
        ("gputrace report prover.log dmon.csv --html report.html", "a log and a trace; a page to share"),
        ("gputrace report capture/ --json - | jq .headline", "one sentence"),
        ("gputrace report capture/ --last 600", "the last ten minutes"),
        ("kubectl logs prover-0 | gputrace report - dmon.csv", "a log from a pipe"),
        (
            "gputrace report prover.log rows.parquet --columns 'time=t:ns,rx_window_bytes_per_s=rx:MB/s'",
            "your own table",
        ),
    ),
    "what-if": (
        ("gputrace what-if capture/", "the changes worth asking about"),
        ("gputrace what-if capture/ --scenario pinned-h2d+workers=3", "two changes together"),
        ("gputrace what-if capture/ --set prep_msm=0.5x", "a service time of your own"),
    ),
    "compare": (
        ("gputrace compare before/ after/", "what changed, how sure"),
        ("gputrace compare baseline.json after/ --fail-if 'mutex_held_ms.median > 1.05x'", "a gate"),
        ("gputrace compare old.log new.log --before old.csv --after new.csv", "logs and traces as files"),
    ),
    "export": (("gputrace export capture/ --prometheus 127.0.0.1:9437", "metrics of a capture being written"),),
    "live": (
        ("gputrace live capture/", "follow a recording, or replay an old one"),
        ("gputrace live capture/ --speed 10 --at 30", "a replay, ten times as fast, from second 30"),
        ("gputrace live -o capture --journal cuzk", "record and watch"),
    ),
    "record": (
        ("gputrace record --journal cuzk", "a systemd unit"),
        ("gputrace record -o capture --docker cuzk --max-size 5GB", "a container, the newest 5 GB"),
        ("gputrace record -- cuzk-daemon --config cuzk.toml", "start it and record it"),
    ),
    "simulate": (("gputrace simulate pageable -o simulated", "a capture with the truth beside it"),),
    "formats list": (("gputrace formats list", "what can be read"),),
    "formats check": (("gputrace formats check prover.log", "what each line was taken for"),),
}
