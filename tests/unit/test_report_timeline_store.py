"""What the page's store keeps of a run: values to half a level, times to 0.05 ms, extremes, holes, and every sum."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputrace.render.charts.timeline import TimeAxis
from gputrace.render.timeline import build_timeline
from gputrace.render.timeline.bars import leaves
from gputrace.render.timeline.build import Timeline
from gputrace.render.timeline.columns import KINDS, UNKNOWN, Columns, levels, round_up, tick_s, unpack
from gputrace.render.timeline.series import Steps, add_steps, extremes, steps_of
from gputrace.render.timeline.sums import Spread, count_units
from tests.captures import diagnosis, read

COLOURS = {"states": {"compute": "#000"}, "series": {"rx": "#000", "tx": "#000"}, "causes": {}, "phases": {}}
COLOURS = {**COLOURS, "other": "#000", "regimes": ["#000"]}  # type: ignore[dict-item]

amounts = st.floats(0, 1e11) | st.just(float("nan"))
lengths = st.floats(0.0002, 50)


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.lists(st.integers(0, 255))), max_size=5))
def test_columns_come_back_as_they_were(given: list[tuple[str, list[int]]]) -> None:
    columns = Columns()
    for i, (kind, values) in enumerate(given):
        scale = {"u1": 1, "u2": 257}.get(kind, 16_843_009)
        columns.add(str(i), kind, np.array(values, dtype=np.int64) * scale)
    found = unpack(columns.pack())
    for i, (kind, values) in enumerate(given):
        scale = {"u1": 1, "u2": 257}.get(kind, 16_843_009)
        assert found[str(i)].tolist() == [value * scale for value in values]


@pytest.mark.parametrize("values", [[-1], [256]])
def test_a_value_beyond_its_column_is_refused(values: list[int]) -> None:
    with pytest.raises(OverflowError):
        Columns().add("a", "u1", np.array(values))


@given(st.lists(st.tuples(lengths, amounts), min_size=1, max_size=80), st.floats(-1e3, 1e5))
def test_times_and_values_are_kept_to_half_a_unit(rows: list[tuple[float, float]], start_s: float) -> None:
    times = start_s + np.cumsum([0.0, *(length for length, _ in rows)])[:-1]
    values = np.array([value for _, value in rows])
    axis, tick = TimeAxis(0, start_s, float(times[-1]) + 1, False), 1e-4
    columns = Columns()
    level = add_steps(columns, "rx", Steps(times, values), axis, tick, None)
    found = unpack(columns.pack())
    assert np.abs(start_s + found["rx.time"] * tick - times).max() <= 0.5e-4 + 1e-9
    unknown = found["rx.low"] == UNKNOWN
    assert (unknown == np.isnan(values)).all()
    assert (np.abs(found["rx.low"] * level - values)[~unknown] <= level / 2 * (1 + 1e-9)).all()


@given(
    st.lists(st.tuples(lengths, amounts), min_size=1, max_size=60),
    st.integers(1, 40),
    st.floats(0.01, 20),
    st.floats(-30, 30),
)
@settings(max_examples=200)
def test_bins_keep_every_extreme_and_hole(
    rows: list[tuple[float, float]], bins: int, bin_s: float, first_s: float
) -> None:
    times = np.cumsum([0.0, *(length for length, _ in rows)])[:-1]
    values = np.array([value for _, value in rows])
    found = extremes(Steps(times, values), first_s, bin_s, bins)
    until = np.append(times[1:], np.inf)
    edges = first_s + bin_s * np.arange(bins + 1)
    for i in range(bins):
        inside = (times < edges[i + 1]) & (until > edges[i])
        known = values[inside & np.isfinite(values)]
        if known.size:
            assert (found.low[i], found.high[i]) == (known.min(), known.max())
        else:
            assert np.isnan([found.low[i], found.high[i]]).all()
        assert found.hole[i] == (bool(np.isnan(values[inside]).any()) or edges[i] < times[0])


@given(
    st.lists(st.tuples(st.floats(0, 90), st.floats(0.001, 20), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(2, 300),
)
def test_a_sum_over_bins_is_off_by_a_unit_at_most(rows: list[tuple[float, float, float]], bins: int) -> None:
    start, length, share = (np.array(column) for column in zip(*rows, strict=True))
    spread = Spread(start, start + length, length * share)
    edges = np.linspace(0, 120, bins + 1)
    counts = count_units(spread, edges, 255, edges[1])
    assert counts.units.min() >= 0 and counts.units.max() <= 255
    for first, last in ((0, bins), (bins // 3, bins // 2 + 1), (bins - 1, bins)):
        inside = np.clip(edges[last] - start, 0, length) - np.clip(edges[first] - start, 0, length)
        exact = float((inside * share).sum())
        assert counts.units[first:last].sum() * counts.unit == pytest.approx(exact, abs=counts.unit * 1.01 + 1e-6)


def test_a_rounded_length_is_no_shorter() -> None:
    for seconds in (0.05, 0.0501, 0.11, 1.72, 2.0, 9.5, 86.4):
        assert seconds * (1 - 1e-9) <= round_up(seconds) <= seconds * 1.6


def test_times_fit_in_32_bits_on_any_axis() -> None:
    for days in (1, 5, 60, 4000):
        assert days * 86_400 / tick_s(days * 86_400.0) < 2**32
    assert tick_s(86_400.0) == 1e-4


def test_the_levels_of_nothing_known() -> None:
    whole, level = levels(np.array([float("nan"), float("nan")]))
    assert whole.tolist() == [UNKNOWN, UNKNOWN] and level == 1.0


@pytest.fixture(scope="module")
def built() -> Timeline:
    timeline = build_timeline(read("pageable-heavy"), diagnosis("pageable-heavy"), COLOURS)
    assert timeline is not None
    return timeline


def test_sums_of_a_real_run_are_those_of_its_frames(built: Timeline) -> None:
    found, (figure,) = diagnosis("pageable-heavy"), built.figures
    columns = unpack(figure.store)
    kept = {
        (told["group"], told["name"]): (float(columns[f"sum{i}"].sum()) * told["unit"], told["unit"])
        for i, told in enumerate(figure.told["sums"])
    }
    expected = {("lost to", total.cause): total.total_s for total in found.gaps.by_cause}
    for state in ("compute", "copy-only", "idle"):
        expected["state", state] = float(found.states[f"{state.replace('-', '_')}_s"].sum())
    drawn = leaves(read("pageable-heavy").phases, built.axis)
    for lane, name, seconds in (
        drawn.group_by("lane", "name").agg((pl.col("end_s") - pl.col("start_s")).sum().alias("s")).iter_rows()
    ):
        expected[lane, name] = seconds
    assert {key for key in kept if key[0] != "bytes"} == set(expected)
    for key, seconds in expected.items():
        assert kept[key][0] == pytest.approx(seconds, abs=kept[key][1] * 1.01 + 1e-3), key


def test_readings_of_a_real_run_are_those_of_its_samples(built: Timeline) -> None:
    (figure,) = built.figures
    columns = unpack(figure.store)
    told = next(told for told in figure.told["series"] if told["name"] == "rx")
    samples = read("pageable-heavy").samples
    length = pl.col("end_ns") - pl.col("start_ns")
    rate = samples.filter(length > 0).select(
        "start_ns", "end_ns", (pl.col("rx_wire_bytes") / length / 1.078125).alias("value")
    )
    steps = steps_of(rate, built.axis)
    assert len(columns["rx.low"]) == len(steps.value) > 500
    known = columns["rx.low"] != UNKNOWN
    assert np.abs(columns["rx.low"][known] * told["level"] - steps.value[known]).max() <= told["level"] / 2 * 1.001
