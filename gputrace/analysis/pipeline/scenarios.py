"""Changes to a pipeline, by name: what a scenario does to services and limits. A new one is a row of `NAMED`.

A scenario is one or more of them: `pinned-h2d`, `workers=3`, `pinned-h2d+workers=3`, `prep_msm=0.5x+syntheses=12`.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from gputrace.errors import UsageError
from gputrace.simulate.schedule import CallWork, Limits

# Launching the copies and kernels from pinned memory, and giving buffers back to the pool: what pinned calls of an H200
# took (0-1 ms as printed).
_LAUNCH_S = 0.0003
_CHECKIN_S = 0.0006

UPPER_BOUND = "upper-bound"
SERVICES = (
    "pre_lock", "d_b_alloc", "ntt_kernels", "coset_intt_sync", "msm_init", "msm_invoke", "msm_dtor", "batch_add",
    "tail_msm", "prep_msm", "b_g2_msm", "release_abc", "synth",
)  # fmt: skip
_SPOKEN = {"synthesis": "synth"}


@dataclass(frozen=True)
class Setting:
    """What is replayed. `stalled` goes with `works`: seconds by phase in which allocations held a call up.

    `copy_s` is how long a call's a/b/c take at line rate.
    """

    works: tuple[CallWork, ...]
    limits: Limits
    stalled: tuple[Mapping[str, float], ...]
    copy_s: float


Apply = Callable[[Setting, float], Setting]
# Of workers, of syntheses, of a speed: beyond it a replay would only take long.
_MOST = 1000


@dataclass(frozen=True)
class Change:
    """One kind of change: its name, `title` in words, what it does, whether it takes a number, and what it neglects."""

    name: str
    title: str
    apply: Apply
    takes: str = ""
    lowest: float = 0.0
    whole: bool = False
    neglects: str = ""


@dataclass(frozen=True)
class Scenario:
    """Changes made together, in the order given."""

    name: str
    parts: tuple[tuple[Change, float], ...]

    @property
    def title(self) -> str:
        """The scenario in words."""
        return "; ".join(change.title.replace("{}", f"{number:g}") for change, number in self.parts)

    def apply(self, setting: Setting) -> Setting:
        """The changed setting."""
        for change, number in self.parts:
            setting = change.apply(setting, number)
        return setting


def _each(setting: Setting, change: Callable[[CallWork], CallWork]) -> Setting:
    return replace(setting, works=tuple(map(change, setting.works)))


def _pinned(setting: Setting, _number: float) -> Setting:
    def pin(work: CallWork) -> CallWork:
        if work.pinned:
            return work
        return work.but(
            pinned=True,
            ntt_kernels=min(work.ntt_kernels, _LAUNCH_S),
            coset_intt_sync=work.coset_intt_sync + min(setting.copy_s, work.ntt_kernels),
            release_abc=min(work.release_abc, _CHECKIN_S),
        )

    return _each(setting, pin)


def _no_barrier(setting: Setting, _number: float) -> Setting:
    return replace(setting, limits=replace(setting.limits, barrier=False))


def _no_release(setting: Setting, _number: float) -> Setting:
    return _each(setting, lambda work: work.but(release_abc=0.0))


def _no_stall(setting: Setting, _number: float) -> Setting:
    works = [
        work.but(**{name: max(0.0, getattr(work, name) - seconds) for name, seconds in own.items()})
        for work, own in zip(setting.works, setting.stalled, strict=True)
    ]
    return replace(setting, works=tuple(works), stalled=tuple({} for _ in works))


def _workers(setting: Setting, number: float) -> Setting:
    ready = setting.limits.workers_ready
    per_gpu = int(number)
    had = setting.limits.workers_per_gpu
    # Workers beyond those seen are there when the last of the others is.
    late = max(ready, default=0.0)
    times = [
        ready[gpu * had + n] if n < had and gpu * had + n < len(ready) else late
        for gpu in range(setting.limits.gpus)
        for n in range(per_gpu)
    ]
    return replace(setting, limits=replace(setting.limits, workers_per_gpu=per_gpu, workers_ready=tuple(times)))


def _syntheses(setting: Setting, number: float) -> Setting:
    more = int(number)

    def place(work: CallWork) -> CallWork:
        # As many partitions may wait as before.
        waiting = max(0, work.in_flight - work.parallel_syntheses)
        return work.but(parallel_syntheses=more, in_flight=more + waiting if work.in_flight else 0)

    return _each(setting, place)


def _prep_speed(setting: Setting, number: float) -> Setting:
    return _each(setting, lambda work: work.but(prep_msm=work.prep_msm / number))


def _pool_speed(setting: Setting, number: float) -> Setting:
    return _each(setting, lambda work: work.but(prep_msm=work.prep_msm / number, b_g2_msm=work.b_g2_msm / number))


def _upper_bound(setting: Setting, _number: float) -> Setting:
    def only_kernels(work: CallWork) -> CallWork:
        copied = min(setting.copy_s, work.coset_intt_sync) if work.pinned else 0.0
        return work.but(
            ntt_kernels=0.0, coset_intt_sync=work.coset_intt_sync - copied, d_b_alloc=0.0, msm_init=0.0,
            msm_dtor=0.0, after_gpu=0.0, pre_lock=0.0, setup=0.0, hot_path=0.0, spawn=0.0, release_abc=0.0, finish=0.0,
            prep_msm=0.0, b_g2_msm=0.0, synth=0.0, arrives=0.0,
        )  # fmt: skip

    free = replace(setting.limits, barrier=False, turn_around=0.0, handover=0.0)
    return _each(_no_stall(replace(setting, limits=free), 0.0), only_kernels)


NAMED = {
    change.name: change
    for change in (
        Change("pinned-h2d", "a/b/c copied from pinned memory, and not freed after the call", _pinned),
        Change("no-barrier", "the GPU never waits for prep_msm", _no_barrier),
        Change("no-allocation-stall", "pinned buffers allocated before work arrives", _no_stall),
        Change("no-release", "a/b/c freed beside the worker", _no_release),
        Change("workers", "{} workers a GPU", _workers, "a whole number", 1, whole=True),
        Change(
            "syntheses",
            "{} syntheses at once",
            _syntheses,
            "a whole number",
            1,
            whole=True,
            neglects="each synthesis is taken to last as long as now, though on a busy host fewer at once are faster",
        ),
        Change("prep-speed", "prep_msm {} times as fast", _prep_speed, "a factor", 0.01),
        Change("pool-speed", "prep_msm and b_g2_msm {} times as fast", _pool_speed, "a factor", 0.01),
        Change(UPPER_BOUND, "nothing but the GPU's own kernels takes time", _upper_bound),
    )
}


def parse_scenario(text: str) -> Scenario:
    """A scenario from its name. Raises `UsageError` with what is known."""
    parts = tuple(_part(part.strip(), text) for part in text.split("+"))
    return Scenario(text, parts)


def asked_for(scenarios: Sequence[str], settings: Sequence[str]) -> list[Scenario] | None:
    """The scenarios asked for, each with all settings; None where nothing was asked. Raises `UsageError`."""
    for text in settings:
        setting_of(text)
    names = ["+".join([name, *settings]) for name in scenarios] or (["+".join(settings)] if settings else [])
    return [parse_scenario(name) for name in names] or None


def _part(part: str, whole: str) -> tuple[Change, float]:
    name, equals, value = part.partition("=")
    if name in NAMED:
        change = NAMED[name]
        if not change.takes:
            if equals:
                raise UsageError(f"scenario {whole!r}: {name} takes no number")
            return change, 0.0
        number = _number(value, f"scenario {whole!r}: {name} takes {change.takes}, as {name}=2")
        if not change.lowest <= number <= _MOST or (change.whole and number != int(number)):
            raise UsageError(f"scenario {whole!r}: {name} takes {change.takes} from {change.lowest:g} to {_MOST:,}")
        return change, number
    if equals:
        return setting_of(part)
    known = [*NAMED, *SERVICES]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(NAMED)} and PHASE=VALUE"
    raise UsageError(f"scenario {whole!r}: {name!r} is not known; {hint}")


def setting_of(text: str) -> tuple[Change, float]:
    """`PHASE=0.5x` (a factor) or `PHASE=120ms` (a duration) as a change."""
    name, _, value = text.partition("=")
    own = _SPOKEN.get(name, name)
    if own not in SERVICES:
        near = difflib.get_close_matches(name, [*SERVICES, *NAMED], 1)
        raise UsageError(
            f"{text!r}: {name!r} is not a service time; "
            + (f"did you mean {near[0]}?" if near else f"known are {', '.join(SERVICES)}")
        )
    say = f"{text!r}: a factor as 0.5x or a duration as 120ms or 2s is needed"
    if value.endswith("ms"):
        seconds = _number(value[:-2], say) / 1e3
    elif value.endswith("x"):
        factor = _number(value[:-1], say)
        title = f"{name} times {factor:g}"
        return Change(text, title, lambda s, _: _each(s, lambda w: _scaled(w, own, factor))), factor
    elif value.endswith("s"):
        seconds = _number(value[:-1], say)
    else:
        raise UsageError(say)
    title = f"{name} of {seconds * 1e3:g} ms"
    return Change(text, title, lambda s, _: _each(s, lambda w: _fixed(w, own, seconds))), seconds


def _scaled(work: CallWork, name: str, factor: float) -> CallWork:
    return _fixed(work, name, getattr(work, name) * factor)


def _fixed(work: CallWork, name: str, seconds: float) -> CallWork:
    changed: dict[str, float] = {name: seconds}
    if name == "pre_lock":
        changed["setup"] = min(work.setup, seconds)
    return work.but(**changed)


def _number(text: str, otherwise: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError(otherwise) from None
    if not 0 <= number < float("inf"):
        raise UsageError(otherwise)
    return number


assert set(SERVICES) <= {f.name for f in fields(CallWork)}
