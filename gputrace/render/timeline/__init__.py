"""The report's timeline: what it holds of a run, packed small enough for a page, and the panels drawn from it."""

from gputrace.render.timeline.build import Figure, Panel, Timeline, build_timeline
from gputrace.render.timeline.view import page_data, regime_colours, time_axis

__all__ = ["Figure", "Panel", "Timeline", "build_timeline", "page_data", "regime_colours", "time_axis"]
