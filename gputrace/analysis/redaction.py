"""A run without the names in it, so that it can be shown to others: ids, hosts and paths become pseudonyms.

It works on the `Trace`, before anything is concluded from it, so that no output can know more. What is not known to be
harmless goes: a text is kept only where it is one of the words that a prover, a sampler or gputrace itself says.
Numbers and times stay: they are what a diagnosis is made of.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import polars as pl

from gputrace.ingest.formats import bundled_formats
from gputrace.trace import GpuInfo, InputInfo, Notice, Quality, Trace

REDACTED = "redacted"
_SAID = "ids, hosts, paths and texts of the log are replaced by names made up for this report (--redact)"

_PROOF_KINDS = frozenset({"porep-c2", "snap-update", "window-post", "winning-post"})
_TIMELINE_EVENTS = frozenset(
    {"SYNTH_START", "SYNTH_END", "GPU_QUEUE", "GPU_PICKUP", "GPU_START", "GPU_END", "CHAN_SEND"}
)
_STREAMS = frozenset({"stdout", "stderr"})
_COPY_WORDS = frozenset({"h2d", "d2h", "d2d", "p2p", "other", "pageable", "pinned", "device", "array", "managed"})
# Values of the log that are no names: numbers with the unit that the prover prints, switches, states of its pools.
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]+)?(ms|us|s)?")
_VALUE_WORDS = frozenset({"true", "false", "ok", "fallback", "None", *_PROOF_KINDS})
# Keys whose value names something, whatever it looks like.
_NAMING_KEY = re.compile(r".*(_id|^id|error|entry|name|host|path|addr|miner|sector)s?$")
_GPU_NAME = re.compile(
    r"(NVIDIA|Tesla|GeForce|Quadro|GRID)"
    r"([ -](NVIDIA|Tesla|GeForce|Quadro|GRID|RTX|GTX|Ti|SUPER|Super|Ada|Generation|Laptop|Server|Workstation|Edition|"
    r"Max-Q|GPU|PCIe|PCIE|SXM[0-9]?|NVL|HBM[0-9]e?|[A-Z]{1,2}[0-9]{2,4}[A-Z]{0,2}|[0-9]{3,4}|[0-9]{1,3}GB))*"
)
# Notices that say numbers and words of gputrace alone. Of all others the code stays, in words of its own.
NOTICES_OF_OURS = frozenset(
    {
        "clock-step", "gpm-lag-assumed", "gpu-map", "gpu-map-unsure", "gpus-inferred", "holds-overlap", "in-chapters",
        "jobs-listed", "lines-out-of-time", "no-overlap", "no-pcie", "not-aligned", "part-unsampled", "pcie-windows",
        "rate-above-link", "records-damaged", "selection-focus", "sensor-dead", "trace-clock-moved",
    }
)  # fmt: skip
NOTICE_WORDS = {
    "input-skipped": "an input was not used",
    "input-damaged": "an input is damaged: it was used as far as it could be read",
    "line-unfinished": "a line without its end was not used",
    "log-unstamped": "lines written by the prover when no recorder saw it, so without a time of receipt",
    "rows-broken": "rows of a GPU trace that do not fit the table",
    "rotated-log": "several files were read as one log",
    "same-gpu": "a GPU trace of the same time with less detail was not used",
    "same-log": "another form of a log already read was not counted again",
    "selection": "only a part of the run is looked at",
    "selection-cut": "calls lie across an edge of the part that is looked at and are left out",
    "selection-untimed": "calls without a time are left out",
    "too-few-samples": "a GPU trace with less than two rows of a GPU was not used",
}


@dataclass
class Pseudonyms:
    """The made-up name of each real one, in the order of first sight; the same name always gets the same one."""

    _given: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, kind: str, name: str) -> str:
        """The pseudonym of a name, as `job-3`."""
        given = self._given.setdefault(kind, {})
        return given.setdefault(name, f"{kind}-{len(given) + 1}")

    def column(self, kind: str, values: pl.Series, harmless: Iterable[str] = ()) -> pl.Series:
        """A column of names as pseudonyms; null stays null, and so do harmless words."""
        kept = {word: word for word in harmless}
        known = values.drop_nulls().unique(maintain_order=True).to_list()
        return values.replace_strict(
            {name: kept.get(name) or self.of(kind, name) for name in known}, default=None, return_dtype=pl.String
        )


def redact(trace: Trace) -> Trace:
    """The trace with pseudonyms, and a notice first that says so.

    Jobs become job-1, job-2, ... in the order of the log, inputs log-1, samples-1, ...; docs/exports.md has the rest.
    """
    names = Pseudonyms()
    jobs = pl.concat([trace.marks["job"], trace.calls["job"], trace.syntheses["job"]])
    names.column("job", jobs)
    marks = trace.marks.with_columns(
        names.column("job", trace.marks["job"]),
        names.column("event", trace.marks["event"], _known_events()),
        names.column("stream", trace.marks["stream"], _STREAMS),
        _values(trace.marks["values"], names),
    )
    calls = trace.calls.with_columns(
        names.column("job", trace.calls["job"]), names.column("kind", trace.calls["kind"], _PROOF_KINDS)
    )
    syntheses = trace.syntheses.with_columns(names.column("job", trace.syntheses["job"]))
    copies = trace.copies.with_columns(
        names.column(column, trace.copies[column], _COPY_WORDS) for column in ("kind", "source_memory", "target_memory")
    )
    return replace(
        trace,
        inputs=[_input(info, names) for info in trace.inputs],
        marks=marks,
        calls=calls,
        syntheses=syntheses,
        copies=copies,
        gpus=[_gpu(info) for info in trace.gpus],
        quality=_quality(trace.quality, names),
    )


def redacted_arguments(trace: Trace) -> list[str]:
    """The arguments of the command that made a report of a redacted trace, less those that could name something."""
    return ["report", *(info.path for info in trace.inputs), "--redact"]


def is_redacted(trace: Trace) -> bool:
    """Whether the trace has been through `redact`."""
    return any(notice.code == REDACTED for notice in trace.quality.notices)


def _known_events() -> frozenset[str]:
    told = {rule.name for known in bundled_formats().records for rule in known.events}
    sampled = {str(sample["event"]) for known in bundled_formats().records for sample in known.samples}
    return frozenset(told | sampled | _TIMELINE_EVENTS)


def _known_formats() -> frozenset[str]:
    formats = bundled_formats()
    wrappers, tables = (known.name for known in formats.wrappers), (known.name for known in formats.tables)
    return frozenset({"", "plain", "json", *wrappers, *tables})


def _known_keys() -> frozenset[str]:
    """Keys of values that the bundled formats show in their samples."""
    return frozenset(
        key for known in bundled_formats().records for sample in known.samples for key in sample.get("values", {})
    )


def _values(values: pl.Series, names: Pseudonyms) -> pl.Series:
    """The key=value pairs: known keys keep numbers and known words; every other text becomes a pseudonym."""
    known = _known_keys()
    pairs = values.to_frame("values").with_row_index("row").explode("values").unnest("values").drop_nulls("key")
    told = {}
    for key, value in pairs.select("key", "value").unique(maintain_order=True).iter_rows():
        if key not in known:
            told[key, value] = names.of("key", key), None if value is None else names.of("value", value)
        elif value is None or (not _NAMING_KEY.fullmatch(key) and _harmless(value)):
            told[key, value] = key, value
        else:
            told[key, value] = key, names.of(key, value)
    table = pl.DataFrame(
        [(*old, *new) for old, new in told.items()],
        schema=["key", "value", "new_key", "new_value"],
        orient="row",
        schema_overrides=dict.fromkeys(("key", "value", "new_key", "new_value"), pl.String),
    )
    renamed = pairs.join(table, on=["key", "value"], how="left", nulls_equal=True, maintain_order="left")
    pair = pl.struct(pl.col("new_key").alias("key"), pl.col("new_value").alias("value")).alias("values")
    lists = renamed.group_by("row", maintain_order=True).agg(pair)
    rows = values.to_frame("old").with_row_index("row").join(lists, on="row", how="left", maintain_order="left")
    # A record without pairs keeps its empty list, or its null.
    return rows.select(pl.coalesce("values", "old").cast(values.dtype).alias(values.name)).to_series()


def _harmless(value: str) -> bool:
    return value in _VALUE_WORDS or _NUMBER.fullmatch(value) is not None


def _input(info: InputInfo, names: Pseudonyms) -> InputInfo:
    kind = info.kind if info.kind in ("log", "samples", "host", "metadata") else "input"
    # A column map of the user's own may have any name.
    known = info.format in _known_formats()
    return replace(info, path=names.of(kind, info.path), format=info.format if known else "column-map")


def _gpu(info: GpuInfo) -> GpuInfo:
    known = info.name is None or _GPU_NAME.fullmatch(info.name)
    return info if known else replace(info, name="model withheld")


def _quality(quality: Quality, names: Pseudonyms) -> Quality:
    events = _known_events()
    counted = {
        event if event in events else names.of("event", event): count for event, count in quality.marks_by_event.items()
    }
    notices = [
        notice
        if notice.code in NOTICES_OF_OURS
        else replace(notice, text=NOTICE_WORDS.get(notice.code, f"{notice.code}: the words are withheld"))
        for notice in quality.notices
    ]
    return replace(quality, marks_by_event=counted, notices=[Notice(REDACTED, _SAID), *notices])
