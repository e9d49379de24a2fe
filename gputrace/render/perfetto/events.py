"""Writes Perfetto's TrackEvent packets: tracks, slices, counters. The only module that knows the protobuf.

Packets go to the file one by one, so memory does not grow with the trace; names are interned, as Perfetto's own writers
do. Format: https://perfetto.dev/docs/reference/synthetic-track-event
"""

from collections.abc import Mapping
from typing import Any, BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BUILTIN_CLOCK_BOOTTIME,
    BUILTIN_CLOCK_REALTIME,
    DebugAnnotation,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

_SEQUENCE = 1
# Distinct texts of arguments that are interned; further ones are written out where they stand.
_MOST_INTERNED = 10_000


class EventWriter:
    """Tracks and events of one trace. Times are nanoseconds and must not be negative."""

    def __init__(self, file: BinaryIO) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._tracks = 0
        self._begun = False
        self._names: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._texts: dict[str, int] = {}

    def wall_clock(self, time_ns: int) -> None:
        """Says that times are Unix times: the trace's own clock (BOOTTIME) and REALTIME read the same."""
        packet = self._packet()
        packet.clock_snapshot.primary_trace_clock = BUILTIN_CLOCK_BOOTTIME
        for clock in (BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time_ns)
        self._builder.write_packet(packet)

    def process(self, name: str, rank: int) -> int:
        """A group of tracks, shown as a process."""
        packet, uuid = self._track(name, None, rank)
        packet.track_descriptor.process.pid = rank + 1
        packet.track_descriptor.process.process_name = name
        packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
        self._builder.write_packet(packet)
        return uuid

    def track(self, name: str, parent: int, rank: int, description: str = "") -> int:
        """A track of slices in a group."""
        packet, uuid = self._track(name, parent, rank, description)
        self._builder.write_packet(packet)
        return uuid

    def counter_track(self, name: str, parent: int, rank: int, unit: str, description: str = "") -> int:
        """A track of a counter in a group."""
        packet, uuid = self._track(name, parent, rank, description)
        packet.track_descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        return uuid

    def begin(
        self,
        track: int,
        time_ns: int,
        name: str,
        args: Mapping[str, Any],
        flow: int | None = None,
        flow_ends: bool = False,
    ) -> None:
        """A slice begins. Arguments that are None are left out: unknown is not a value."""
        packet = self._event(track, time_ns, TrackEvent.TYPE_SLICE_BEGIN)
        event = packet.track_event
        event.name_iid = self._interned(self._names, name, packet.interned_data.event_names)
        for key, value in args.items():
            if value is not None:
                self._annotate(packet, key, value)
        if flow is not None:
            (event.terminating_flow_ids if flow_ends else event.flow_ids).append(flow)
        self._builder.write_packet(packet)

    def end(self, track: int, time_ns: int) -> None:
        """The innermost slice of a track ends."""
        self._builder.write_packet(self._event(track, time_ns, TrackEvent.TYPE_SLICE_END))

    def counter(self, track: int, time_ns: int, value: float) -> None:
        """A counter has this value from now on."""
        packet = self._event(track, time_ns, TrackEvent.TYPE_COUNTER)
        packet.track_event.double_counter_value = value
        self._builder.write_packet(packet)

    def _packet(self) -> TracePacket:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = (
            TracePacket.SEQ_NEEDS_INCREMENTAL_STATE if self._begun else TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        )
        self._begun = True
        return packet

    def _track(self, name: str, parent: int | None, rank: int, description: str = "") -> tuple[TracePacket, int]:
        self._tracks += 1
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.name, track.sibling_order_rank = self._tracks, name, rank
        track.sibling_merge_behavior = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
        if parent is not None:
            track.parent_uuid = parent
        if description:
            track.description = description
        return packet, self._tracks

    def _event(self, track: int, time_ns: int, kind: "TrackEvent.Type.ValueType") -> TracePacket:
        packet = self._packet()
        packet.timestamp = time_ns
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet

    def _annotate(self, packet: TracePacket, key: str, value: Any) -> None:
        annotation: DebugAnnotation = packet.track_event.debug_annotations.add()
        annotation.name_iid = self._interned(self._keys, key, packet.interned_data.debug_annotation_names)
        if isinstance(value, bool):
            annotation.bool_value = value
        elif isinstance(value, int):
            annotation.int_value = value
        elif isinstance(value, float):
            annotation.double_value = value
        elif str(value) in self._texts or len(self._texts) < _MOST_INTERNED:
            texts = packet.interned_data.debug_annotation_string_values
            known = len(self._texts)
            annotation.string_value_iid = self._texts.setdefault(str(value), known + 1)
            if len(self._texts) > known:
                texts.add(iid=known + 1, str=str(value).encode())
        else:
            annotation.string_value = str(value)

    @staticmethod
    def _interned(known: dict[str, int], text: str, entries: Any) -> int:
        if text not in known:
            known[text] = len(known) + 1
            entries.add(iid=known[text], name=text)
        return known[text]
