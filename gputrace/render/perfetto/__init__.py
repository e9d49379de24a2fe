"""The run as a trace for ui.perfetto.dev: `tracks` says what is in it, `events` writes it, `lanes` nests it."""

from gputrace.render.perfetto.tracks import PerfettoRenderer

__all__ = ["PerfettoRenderer"]
