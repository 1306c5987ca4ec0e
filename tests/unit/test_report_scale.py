"""How numbers look, and where they stand on an axis: for every number, not only for the usual ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.compare.result import Interval
from marathond.report import numbers
from marathond.report.scale import TICKS_AT_MOST, TIMES, Scale, nice_above, of_values, ticks

anything = st.floats(allow_nan=True, allow_infinity=True)
positive = st.floats(min_value=1e-6, max_value=1e12)


@settings(max_examples=200)
@given(anything, st.integers(0, 6))
def test_no_number_is_minus_nought_and_none_is_foreign(value: float, digits: int) -> None:
    text = numbers.fixed(value, digits)
    assert text == "-" if not math.isfinite(value) else abs(float(text) - value) <= 0.5 * 10.0**-digits + 1e-9 * abs(value)
    assert not text.startswith("-0") or float(text) != 0
    assert numbers.signed(value, digits).lstrip("+") == text


@settings(max_examples=200)
@given(st.floats(min_value=0, max_value=1))
def test_no_p_is_printed_as_nought(p: float) -> None:
    text = numbers.p_value(p)
    assert text == "<.0001" if p < 0.0001 else abs(float(text) - p) <= 0.00005 + 1e-12
    assert text != "0.0000"


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (numbers.fixed(None), "-"),
        (numbers.p_value(None), "-"),
        (numbers.p_value(float("nan")), "-"),
        (numbers.interval(None), "-"),
        (numbers.interval(Interval(-0.04777, 0.36777)), "[-0.0478, +0.3678]"),
        (numbers.span(Interval(0.184, 0.3537)), "0.184-0.354"),
        (numbers.fixed(0.032500000000000001), numbers.fixed(0.0325000000000000011)),
        (numbers.percent(0.605), "60 %"),
        (numbers.count(812), "812"),
        (numbers.count(4_100), "4.1k"),
        (numbers.count(12_400_000), "12.4M"),
        (numbers.money(4112), "$4,112.00"),
        (numbers.money(None), "-"),
        (numbers.short_time(7200), "2h"),
        (numbers.short_time(5400), "1h30m"),
        (numbers.short_time(1800), "30m"),
        (numbers.short_time(0), "0"),
        (numbers.short_time(345600), "4d"),
        (numbers.instant(None), "-"),
        (numbers.instant(1_790_000_000_000), "2026-09-21T14:13:20Z"),
        (numbers.tally({"b": 2, "a": 2, "c": 9, "d": 0}), "9 c, 2 a, 2 b"),
        (numbers.many(1, "cell"), "1 cell"),
    ],
)
def test_how_each_kind_looks(shown: str, words: str) -> None:
    assert shown == words


@settings(max_examples=200)
@given(st.lists(st.one_of(st.just(0.0), positive), min_size=1, max_size=20).filter(any))
def test_every_value_stands_on_its_axis_in_its_order(values: list[float]) -> None:
    scale = of_values(values)
    at = [scale.at(value) for value in sorted(values)]
    assert all(0 <= each <= 100 for each in at) and at == sorted(at)
    assert scale.high >= max(values) * (1 - 1e-9)


@settings(max_examples=200)
@given(positive, st.booleans(), st.booleans())
def test_ticks_are_few_rise_and_stand_where_they_say(high: float, by_ten: bool, times: bool) -> None:
    scale = Scale(high / 1000, high, by_ten=True) if by_ten else Scale(0.0, high)
    made = ticks(scale, lambda value: f"{value!r}", TIMES if times else None)
    assert len(made) <= TICKS_AT_MOST + 1
    assert [tick.at for tick in made] == sorted({tick.at for tick in made})
    for tick in made:
        assert math.isclose(scale.at(float(tick.text)), tick.at, abs_tol=1e-6)


@settings(max_examples=200)
@given(positive)
def test_a_round_number_above_is_near(value: float) -> None:
    assert value * (1 - 1e-9) <= nice_above(value) <= value * 2.5 * (1 + 1e-9)
