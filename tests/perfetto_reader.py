"""A Perfetto file read back with Perfetto's own message classes, as a reader of the format would."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent


@dataclass
class ReadSlice:
    """One slice; `depth` is 0 where it lies in no other, `inside` the slice it lies in."""

    track: str
    name: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]
    flows: tuple[int, ...]
    flows_ended: tuple[int, ...]
    depth: int
    inside: "ReadSlice | None"


@dataclass
class ReadTrace:
    """Slices and counter values by track, as `group/track`."""

    slices: list[ReadSlice] = field(default_factory=list)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    units: dict[str, str] = field(default_factory=dict)
    clocks: list[tuple[int, int]] = field(default_factory=list)

    def on(self, track: str) -> list[ReadSlice]:
        """Slices of tracks whose name has this text."""
        return [item for item in self.slices if track in item.track]


def read_perfetto(content: bytes) -> ReadTrace:
    """Fails where a slice ends before it began, begins or ends out of order, lies across another or never ends."""
    told = Trace.FromString(content)
    found = ReadTrace()
    tracks: dict[int, str] = {}
    counters: set[int] = set()
    names: dict[int, str] = {}
    keys: dict[int, str] = {}
    texts: dict[int, str] = {}
    opened: dict[int, list[tuple[TrackEvent, int]]] = defaultdict(list)
    slices: dict[int, list[ReadSlice]] = defaultdict(list)
    latest: dict[int, int] = defaultdict(int)
    first = True
    for packet in told.packet:
        wanted = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED if first else TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        assert packet.sequence_flags == wanted
        first = False
        for entries, known in (
            (packet.interned_data.event_names, names),
            (packet.interned_data.debug_annotation_names, keys),
        ):
            for entry in entries:
                assert entry.iid not in known
                known[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            texts[entry.iid] = entry.str.decode()
        if packet.HasField("clock_snapshot"):
            found.clocks += [(clock.clock_id, clock.timestamp) for clock in packet.clock_snapshot.clocks]
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            parent = f"{tracks[track.parent_uuid]}/" if track.parent_uuid else ""
            tracks[track.uuid] = parent + track.name
            if track.HasField("counter"):
                counters.add(track.uuid)
                found.units[tracks[track.uuid]] = track.counter.unit_name
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        track_id = event.track_uuid
        assert at >= latest[track_id], f"{tracks[track_id]}: back in time"
        latest[track_id] = at
        assert (event.type == TrackEvent.TYPE_COUNTER) == (track_id in counters)
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters[tracks[track_id]].append((at, event.double_counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            args = {keys[note.name_iid]: _value(note, texts) for note in event.debug_annotations}
            outer = slices[track_id][-1] if slices[track_id] else None
            item = ReadSlice(
                tracks[track_id], names[event.name_iid], at, -1, args, tuple(event.flow_ids),
                tuple(event.terminating_flow_ids), len(opened[track_id]), outer,
            )  # fmt: skip
            opened[track_id].append((event, at))
            slices[track_id].append(item)
            found.slices.append(item)
        else:
            opened[track_id].pop()
            item = slices[track_id].pop()
            item.end_ns = at
            if item.inside is not None:
                assert item.inside.start_ns <= item.start_ns
    assert not any(opened.values())
    for item in found.slices:
        assert item.inside is None or item.end_ns <= item.inside.end_ns
    return found


def _value(note: Any, texts: dict[int, str]) -> Any:
    kind = note.WhichOneof("value")
    return texts[note.string_value_iid] if kind == "string_value_iid" else getattr(note, kind)


def read_file(path: Path) -> ReadTrace:
    """The same of a file."""
    return read_perfetto(path.read_bytes())
