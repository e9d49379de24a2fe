"""What each panel of the screen says, as styled text of a given width. States have words; colour only repeats them."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from gputrace.live.judge import Finding, Judgement
from gputrace.live.state import RECENT_S, GpuNow, Moment, PhaseNow, telling
from gputrace.live.workers import WorkerNow
from gputrace.render.text_parts import bar, percent
from gputrace.render.units import utc

_STATE_STYLE = {"compute": "bold green", "copy-only": "bold yellow", "idle": "bold red"}
_WORDS = {
    "held": "mutex held",
    "in-call": "in the call",
    "queue": "free, takes the next",
    "no-work": "free, no work queued",
    "free": "free",
}
_WIDE = 100
# Less than this is how often files are looked at.
_QUIET_S = 10.0
KEYS_REPLAY = (
    ("space", "pause"),
    ("left/right", "10 s"),
    ("+/-", "speed"),
    ("tab", "panel"),
    ("?", "help"),
    ("q", "quit"),
)
KEYS_FOLLOW = (("tab", "panel"), ("up/down", "scroll"), ("?", "help"), ("q", "quit"))


@dataclass(frozen=True)
class Shown:
    """Everything on the screen at one moment.

    `mode`: following, x10, paused, end. `behind_s`: seconds since the files last grew. `note`: what is missing or went
    wrong. `judging_s`: for how long a diagnosis has been under way.
    """

    title: str
    mode: str
    window_s: float
    moment: Moment | None = None
    start_ns: int = 0
    end_ns: int | None = None
    absolute: bool = True
    judgement: Judgement | None = None
    judging_s: float | None = None
    findings: tuple[Finding, ...] = ()
    behind_s: float | None = None
    note: str = ""


def header(shown: Shown, width: int) -> Text:
    """One line: what is shown, how, and which moment of it. Where it is too long, the name gives way."""
    parts = [shown.mode]
    if shown.moment is not None:
        now_ns = shown.moment.now_ns
        if shown.absolute:
            parts.append(f"{utc(now_ns)[11:19]} UTC")
        if shown.end_ns is not None:
            parts.append(f"{(now_ns - shown.start_ns) / 1e9:.1f} of {(shown.end_ns - shown.start_ns) / 1e9:.1f} s")
    if shown.behind_s is not None and shown.behind_s >= _QUIET_S:
        parts.append(f"nothing new for {duration(shown.behind_s)}")
    rest = "  ".join(["", *parts])
    name = Text(f"gputrace live: {shown.title}")
    name.truncate(max(1, width - len(rest)), overflow="ellipsis")
    line = Text(name.plain + rest, style="reverse", no_wrap=True)
    line.truncate(width, pad=True)
    return line


def gpus(shown: Shown, width: int) -> Text:
    """Two lines a GPU, one where there are more than two."""
    found = shown.moment.gpus if shown.moment is not None else ()
    if not found:
        return Text(shown.note or "no GPU yet", style="dim")
    lines: list[Text] = []
    for gpu in found:
        if len(found) <= 2:
            lines.append(_gpu_title(gpu, width))
            lines.append(_gpu_line(gpu, "  ", width))
        else:
            lines.append(_gpu_line(gpu, f"GPU {gpu.gpu:<2} ", width))
    return _joined(lines)


def _gpu_title(gpu: GpuNow, width: int) -> Text:
    about = [f"GPU {gpu.gpu}", gpu.info.name or ""]
    if gpu.info.link_gen and gpu.info.link_width:
        about.append(f"PCIe Gen{gpu.info.link_gen} x{gpu.info.link_width}")
    name = " ".join(part for part in about if part)
    if gpu.compute_share is None:
        return Text(name, style="bold")
    shares = (
        f"last {RECENT_S:g} s: C {percent(gpu.compute_share)}  c {percent(gpu.copy_only_share)}  "
        f". {percent(gpu.idle_share)}"
    )
    if gpu.source.startswith("inferred"):
        shares = f"inferred from phases; {shares}"
    return Text.assemble((name, "bold"), " " * max(2, width - len(name) - len(shares)), shares)


def _gpu_line(gpu: GpuNow, begin: str, width: int) -> Text:
    bar_width = (width - 82) // 2
    if gpu.age_s is None or (gpu.state is None and gpu.rx_bytes_per_s is None and gpu.sm_share is None):
        said = "no reading yet" if gpu.age_s is None else f"no reading for {duration(gpu.age_s)}"
        return Text.assemble(begin, (said, "dim"))
    state = gpu.state or "unknown"
    line = Text.assemble(begin, (f"{state.upper():<10}", _STATE_STYLE.get(state, "dim")))
    line.append(f"SM {percent(gpu.sm_share):>4}")
    for name, rate, share in (
        ("rx", gpu.rx_bytes_per_s, gpu.rx_link_share),
        ("tx", gpu.tx_bytes_per_s, gpu.tx_link_share),
    ):
        value = "   ?" if rate is None else f"{rate / 1e9:4.1f}"
        line.append(f"  {name} {value} GB/s {percent(share):>4}")
        if bar_width >= 4:
            line.append(" " + bar(min(1.0, share or 0.0), bar_width).ljust(bar_width, "·"), style="cyan")
    line.append("  ")
    for letter in gpu.strip[-max(1, width - len(line)) :]:
        line.append(letter, style={"C": "green", "c": "yellow", ".": "red"}.get(letter, ""))
    return line


def workers_title(shown: Shown) -> str:
    """With how many syntheses run and wait."""
    moment = shown.moment
    if moment is None or moment.syntheses_running is None:
        return "Workers"
    waiting = "" if moment.queued is None else f", {moment.queued} done and queued"
    return f"Workers: {moment.syntheses_running} syntheses running{waiting}"


def workers(shown: Shown, width: int) -> Text:
    """One line a worker."""
    moment = shown.moment
    if moment is None or not moment.workers:
        return Text("no worker has begun a call yet", style="dim")
    usual = {phase.name: phase for phase in moment.phases}
    several = len({worker.gpu for worker in moment.workers}) > 1
    return _joined(_worker(worker, moment.now_ns, usual, several, width) for worker in moment.workers)


def _worker(worker: WorkerNow, now_ns: int, usual: dict[str, PhaseNow], several: bool, width: int) -> Text:
    for_s = worker.for_s(now_ns)
    doing = _WORDS.get(worker.doing, worker.doing)
    if worker.open_end and worker.after:
        doing = f"{doing}, after {worker.after}"
    own = usual.get(worker.doing)
    slow = own is not None and own.count >= 5 and for_s * 1e3 > own.p95_ms
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"GPU {worker.gpu} w{worker.worker:<2} " if several else f"w{worker.worker:<2} ", style="bold")
    line.append(f"{doing:<30} ", style="yellow" if slow else "")
    line.append(f"{duration(for_s):>7}", style="bold yellow" if slow else "")
    if slow and own is not None:
        line.append(f"  long: p95 is {own.p95_ms / 1e3:.1f} s", style="yellow")
    if worker.call is not None and (worker.job or worker.partition is not None):
        line.append(f"  partition {worker.partition} of {(worker.job or '?')[:8]}")
    if worker.beside:
        line.append(f"  + {', '.join(worker.beside)}", style="dim")
    if worker.open_end and not worker.after:
        line.append("  no line yet", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def verdict_title(shown: Shown) -> str:
    """With the age of what is said."""
    title = f"Verdict on the last {duration(shown.window_s)}"
    if shown.judgement is not None and shown.moment is not None:
        age_s = (shown.moment.now_ns - shown.judgement.at_ns) / 1e9
        title += f", {duration(age_s)} ago" if age_s >= 1 else ", just now"
    if shown.judging_s is not None and shown.judging_s >= 2:
        title += f", the next has taken {duration(shown.judging_s)} so far"
    return title


def verdict(shown: Shown, width: int) -> Text:
    """The headline, or why there is none."""
    del width
    judgement = shown.judgement
    if judgement is None:
        return Text(shown.note or "not judged yet", style="dim")
    if judgement.diagnosis is None:
        return Text(judgement.missing, style="dim")
    text = Text(judgement.diagnosis.headline, style="bold")
    if not judgement.diagnosis.headline_stable:
        text.append(" Undetermined: it changes when a threshold is halved or doubled.", style="yellow")
    return text


def causes_title(shown: Shown) -> str:
    """With the sum."""
    found = shown.judgement.diagnosis if shown.judgement is not None else None
    if found is None or found.gaps.total_s is None:
        return "Lost by cause"
    return f"Lost by cause: {found.gaps.total_s:.1f} s ({percent(found.gaps.share_of_window)})"


def causes(shown: Shown, width: int) -> Text:
    """Seconds lost by cause, and the longest gaps."""
    found = shown.judgement.diagnosis if shown.judgement is not None else None
    if found is None:
        return Text("not judged yet", style="dim")
    lines = []
    name_width = 22 if width >= 40 else 19
    for cause in found.gaps.by_cause:
        if cause.share >= 0.005:
            shares = f"{cause.cause[:name_width]:<{name_width}} {cause.total_s:6.1f} s {percent(cause.share):>4}"
            lines.append(Text.assemble(shares, " ", (bar(cause.share, max(0, width - len(shares) - 2)), "red")))
    for gap in found.gaps.list[:3]:
        where = f" in {gap.phase}" if gap.phase else ""
        line = Text(f"gap {gap.duration_ms / 1e3:.1f} s{where}: {gap.cause}", style="dim")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return _joined(lines) if lines else Text("nothing was lost", style="dim")


def phases_title(shown: Shown) -> str:
    """With how many calls it is about."""
    moment = shown.moment
    if moment is None or not moment.calls_ended:
        return "Phases, ms"
    rate = "" if moment.calls_per_s is None else f", {moment.calls_per_s:.2f}/s"
    return f"Phases, ms: {moment.calls_ended} call{'' if moment.calls_ended == 1 else 's'}{rate}"


def phases(shown: Shown, width: int) -> Text:
    """The spread of each phase, the one that takes most first; wide screens draw it."""
    found = telling(shown.moment.phases) if shown.moment is not None else ()
    if not found:
        return Text("no call has ended yet", style="dim")
    drawn = max(0, width - 44) if width >= _WIDE // 2 else 0
    lines = [Text(f"{'':15}{'min':>6}{'median':>7}{'p95':>6}{'max':>6}", style="dim")]
    longest = max(phase.max_ms for phase in found)
    for phase in found:
        line = Text(f"{phase.name:<15}{phase.min_ms:6.0f}{phase.median_ms:7.0f}{phase.p95_ms:6.0f}{phase.max_ms:6.0f}")
        if drawn >= 8:
            line.append("  " + _spread(phase, longest, drawn), style="cyan")
        lines.append(line)
    return _joined(lines)


def _spread(phase: PhaseNow, longest_ms: float, columns: int) -> str:
    """min to max as a line with the median on it, on a common scale."""
    low, middle, high = (
        min(columns - 1, int(value / longest_ms * columns)) for value in (phase.min_ms, phase.median_ms, phase.max_ms)
    )
    cells = [" "] * columns
    cells[low : high + 1] = ["─"] * (high + 1 - low)
    cells[middle] = "┃"
    return "".join(cells).rstrip()


def findings(shown: Shown, width: int) -> Text:
    """What changed, the latest first."""
    if not shown.findings:
        return Text("nothing to report yet", style="dim")
    lines = []
    for finding in reversed(shown.findings):
        at = utc(finding.at_ns)[11:19] if shown.absolute else f"{(finding.at_ns - shown.start_ns) / 1e9:7.1f} s"
        line = Text.assemble((f"{at} ", "dim"), (finding.text, "bold" if finding.kind == "cause" else ""))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return _joined(lines)


def keys(replays: bool, width: int) -> Text:
    """The keys, on one line."""
    line = Text(no_wrap=True)
    for key, what in KEYS_REPLAY if replays else KEYS_FOLLOW:
        line.append(f" {key} ", style="reverse")
        line.append(f" {what}  ")
    line.truncate(width)
    return line


def duration(seconds: float) -> str:
    """A time that is still running: tenths up to a minute, then minutes and hours."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 or seconds % 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"


def _joined(lines: Iterable[Text]) -> Text:
    return Text("\n").join(lines)
