"""Effective limits: the min rule, and words that say where each limit came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.limits import effective_agent_limit, effective_verifier_limit
from marathond.core.model import Limit

SECONDS = st.one_of(st.none(), st.floats(0.001, 1e7))
MULTIPLIER = st.floats(0.001, 1000)


@pytest.mark.parametrize(
    ("own", "task", "multiplier", "expected"),
    [
        (None, None, 1.0, Limit(None, "none")),
        (21600.0, None, 1.0, Limit(21600.0, "own")),
        (None, 36000.0, 1.0, Limit(36000.0, "task 36000 x 1.0")),
        (5340.0, 36000.0, 1.0, Limit(5340.0, "own", "task 36000 x 1.0")),
        (21600.0, 7200.0, 2, Limit(14400.0, "task 7200 x 2.0", "own 21600")),
        (600.0, 600.0, 1.0, Limit(600.0, "own", "task 600 x 1.0")),
        (None, 0.5, 1.0, Limit(0.5, "task 0.5 x 1.0")),
    ],
)
def test_c15_effective_agent_limit_and_its_origin(own: float | None, task: float | None, multiplier: float, expected: Limit) -> None:
    assert effective_agent_limit(own, task, multiplier) == expected


@pytest.mark.parametrize(
    ("task", "multiplier", "declared", "expected"),
    [
        (1200.0, 4.0, True, Limit(4800.0, "task 1200 x 4.0")),
        (600.0, 1.0, False, Limit(600.0, "format-default 600 x 1.0")),
    ],
)
def test_c15_effective_verifier_limit_and_its_origin(task: float, multiplier: float, declared: bool, expected: Limit) -> None:
    assert effective_verifier_limit(task, multiplier, declared=declared) == expected


@given(SECONDS, SECONDS, MULTIPLIER)
def test_c15_the_effective_limit_is_the_smallest_there_is(own: float | None, task: float | None, multiplier: float) -> None:
    limit = effective_agent_limit(own, task, multiplier)
    present = [value for value in (own, None if task is None else task * multiplier) if value is not None]
    assert limit.limit_s == min(present, default=None)
    assert bool(limit.loser) == (len(present) == 2)
    assert limit.origin.split()[0] in {"own", "task", "none"}
    assert limit.loser.split()[:1] != limit.origin.split()[:1]


@pytest.mark.parametrize(("own", "task", "multiplier"), [(-1, None, 1), (0, None, 1), (None, 0, 1), (None, 5, 0), (None, 5, float("nan"))])
def test_a_limit_that_is_none_at_all_is_refused(own: float | None, task: float | None, multiplier: float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        effective_agent_limit(own, task, multiplier)
