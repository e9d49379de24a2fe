"""nvtop's JSON: arrays back to back, without commas in some releases, with or without a time before each line."""

import bisect
import json
import re
from itertools import accumulate
from typing import Any

import polars as pl

from gputrace.ingest.layouts.grid import Grid
from gputrace.ingest.trace_times import strip_stamps

NO_GPU = "No GPU to monitor."
_DEVICE = re.compile(r'[\s{\[,]"device_name"\s*:')
_KEY = re.compile(r'"(\w+)"\s*:')
# 3.3.0 and 3.3.1 leave out the comma after mem_util, mem_total and mem_used. Inside a string no line can end.
_NO_COMMA = re.compile(r'(["\d}\]el])([ \t]*\n[ \t]*")')
_VALUE_START = re.compile(r"[\[{]")
_NEXT_ARRAY = re.compile(r"\n[ \t]*\[")


def names_in(head: str) -> list[str]:
    """Keys of the objects; none where this is not nvtop's JSON."""
    lines, _ = strip_stamps(head)
    text = "\n".join(lines)
    if text.lstrip()[:1] not in ("[", "{") or not _DEVICE.search(text):
        return []
    return list(dict.fromkeys(_KEY.findall(text)))


def read_nvtop(text: str) -> Grid:
    """A row for each GPU of each array; `gpu` is its place in the array."""
    lines, stamps = strip_stamps(text)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    joined = "\n".join(lines)
    repaired = _NO_COMMA.sub(r"\1,\2", joined)
    # Where commas went in, in the repaired text: what follows has moved by as many characters.
    added = [found.start() + 1 + number for number, found in enumerate(_NO_COMMA.finditer(joined))]
    decoder = json.JSONDecoder()
    rows: list[dict[str, Any]] = []
    when: list[str | None] = []
    at = broken = 0
    while (begin := _VALUE_START.search(repaired, at)) is not None:
        try:
            value, at = decoder.raw_decode(repaired, begin.start())
        except (json.JSONDecodeError, RecursionError):
            broken += 1
            following = _NEXT_ARRAY.search(repaired, begin.end())
            if following is None:
                break
            at = following.start()
            continue
        devices = [device for device in (value if isinstance(value, list) else [value]) if isinstance(device, dict)]
        line = bisect.bisect_right(starts, begin.start() - bisect.bisect_left(added, begin.start())) - 1
        stamp = stamps[line] if stamps else None
        for number, device in enumerate(device for device in devices if "device_name" in device):
            flat = {key: str(item) for key, item in device.items() if isinstance(item, str | int | float)}
            rows.append({**flat, "gpu": str(number)})
            when.append(stamp)
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["gpu"]
    frame = pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names}, schema=dict.fromkeys(names, pl.String)
    )
    return Grid(frame, broken, when if stamps else None)
