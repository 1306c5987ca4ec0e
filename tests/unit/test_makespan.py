"""The order of cells on 1,299 real trials: how long fifty campaigns of five configurations take."""

from __future__ import annotations

import random
from functools import cache

import pytest

from tests.bench.makespan import ARMS, REPLICATES, Campaign, Found, elsewhere, limits, lines, lower_bound, measure, picks, public, rows


@cache
def found(way: str) -> dict[int, Found]:
    return {each.slots: each for each in measure([way])}


def test_the_table_is_the_public_one() -> None:
    assert len(public()) == 13 * 20 * REPLICATES and {task for task, _, _ in public()} == set(limits())
    fifty = list(picks())
    assert len(fifty) == 50 and all(len(each) == 20 * ARMS * REPLICATES for each in fifty)


def test_first_in_first_out_takes_what_is_known_of_it() -> None:
    seen = found("fifo")
    assert seen[12].median == pytest.approx(1.043, abs=0.001) and seen[24].median == pytest.approx(1.098, abs=0.001)


def test_the_learned_order_ends_soon_after_the_lower_bound() -> None:
    seen = found("learned")
    assert seen[12].median <= 1.012 and seen[12].p90 <= 1.02
    assert seen[24].median <= 1.03 and seen[24].p90 <= 1.05
    assert all(each.ratios and min(each.ratios) >= 1 for each in seen.values())
    text = "\n".join(lines(list(seen.values())))
    assert f"{seen[24].median:.3f}" in text and len(rows(list(seen.values()))) == 4


def test_with_earlier_campaigns_of_the_same_tasks_in_the_ledger_it_ends_sooner() -> None:
    seen = found("earlier")
    assert seen[12].median <= 1.012 and seen[12].p90 <= 1.02
    assert seen[24].median <= 1.026 and seen[24].p90 <= 1.05
    assert all(each.median < alone.median for each, alone in zip(seen.values(), found("learned").values(), strict=True))


def test_nothing_of_the_campaign_s_own_arms_is_known_before_it_begins() -> None:
    first = next(iter(picks(1)))
    before = elsewhere({arm for _, arm, _ in first})
    assert all(each.trials == (13 - ARMS) * REPLICATES for each in before.values()) and before.keys() == limits().keys()
    everybody, own = elsewhere(()), dict.fromkeys(before, 0)
    for (task, _, _), took_s in first.items():
        own[task] += round(took_s * 1000)
    assert all(before[task].total_ms + own[task] == everybody[task].total_ms for task in own)


def test_a_free_order_that_knows_everything_meets_the_bound() -> None:
    for number, durations in enumerate(picks(3)):
        assert Campaign(durations, 12, "free", number).run() <= 1.001 * lower_bound(durations, 12)


def test_promise_2_what_is_admitted_next_does_not_depend_on_who_takes_how_long() -> None:
    """The same lengths among other arms of their task, while the first replicate runs: the second one begins in the same order."""
    first = next(iter(picks(1)))
    arms = sorted({arm for _, arm, _ in first})
    swapped = dict(first)
    dice = random.Random(3)
    for task in limits():
        took = [first[task, arm, 1] for arm in arms]
        for arm, each in zip(arms, dice.sample(took, len(took)), strict=True):
            swapped[task, arm, 1] = each
    one, two = (Campaign(durations, ARMS * 20, "learned", 7) for durations in (first, swapped))
    one.run(), two.run()
    assert swapped != first and one.settled[1] == two.settled[1] and len(one.settled) == REPLICATES
