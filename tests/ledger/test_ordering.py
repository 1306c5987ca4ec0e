"""A replicate that begins learns its blocks' order from the trials before it, and keeps it."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Iterator, Mapping

import pytest
from support.ledgers import T0, arm, begin, bring_to, cell, fill, let_go, memory_ledger, submission, task

from marathond.cli.show import placed_words
from marathond.ledger.verbs import campaigns, ordering
from marathond.ledger.verbs.campaigns import Submission
from marathond.ledger.verbs.show import show

ARMS = ("calm", "plain", "swift")
LIMITS = {"long": 9_000_000, "one": 3_600_000, "two": 3_600_000, "three": 3_600_000, "four": 3_600_000}
TOOK_S = {"long": 60, "one": 300, "two": 1_500, "three": 900, "four": 1_200}


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    begin(made)
    yield made
    made.close()


def wanted(replicates: int = 4, *, more: Mapping[str, int] | None = None, order: str = "replicate-major") -> Submission:
    tasks = [task(name, limit_ms=limit) for name, limit in (LIMITS | dict(more or {})).items()]
    return submission(arms=[arm(name) for name in ARMS], tasks=tasks, replicates=replicates, order=order, seed=5)


def run(c: sqlite3.Connection, name: str, arm_name: str, took_s: float, *, replicate: int = 1, state: str = "scored") -> None:
    """One whole trial; it held its slot for ``took_s``."""
    made = bring_to(c, cell(c, name, arm_name, replicate), state)
    let_go(c, made, now_ms=T0 + round(took_s * 1000))


def blocks(c: sqlite3.Connection, replicate: int) -> list[str]:
    rows = c.execute("SELECT task FROM v_cell WHERE replicate = ? ORDER BY ordinal", (replicate,)).fetchall()
    groups = [(name, len(list(group))) for name, group in itertools.groupby(row["task"] for row in rows)]
    assert len({name for name, _ in groups}) == len(groups), "a block lies apart"
    return [name for name, _ in groups]


def ids(c: sqlite3.Connection, replicate: int) -> list[int]:
    rows = c.execute("SELECT cell_id FROM cell WHERE replicate = ? ORDER BY ordinal", (replicate,)).fetchall()
    return [row["cell_id"] for row in rows]


def places(c: sqlite3.Connection) -> dict[int, int]:
    return {row["cell_id"]: row["ordinal"] for row in c.execute("SELECT cell_id, ordinal FROM cell").fetchall()}


def learn(c: sqlite3.Connection, replicate: int = 2, *, slots: int = 1) -> int:
    assert ordering.due(c, 1, ids(c, replicate)) == replicate
    moved = ordering.begin(c, 1, replicate, slots=slots, now_ms=T0)
    assert ordering.due(c, 1, ids(c, replicate)) is None
    return moved


def test_a_replicate_that_begins_starts_with_what_took_longest_among_equal_limits(c: sqlite3.Connection) -> None:
    fill(c, wanted())
    before = places(c)
    for name, took_s in TOOK_S.items():
        run(c, name, "plain", took_s)
    assert learn(c) > 0
    assert blocks(c, 2) == ["long", "two", "four", "three", "one"]
    after = places(c)
    others = {row["cell_id"] for row in c.execute("SELECT cell_id FROM cell WHERE replicate <> 2").fetchall()}
    assert {each: before[each] for each in others} == {each: after[each] for each in others}
    assert sorted(before.values()) == sorted(after.values())
    seen = ordering.basis(c, 1, 2, "four")
    assert seen == ordering.BlockBasis(2, place=3, blocks=5, limit_s=3600.0, trials=1, mean_s=1200.0, short_first=False)
    assert placed_words(seen) == "place 3 of 5 in replicate 2: limit 1h00m; 1 trial before took 20m00s on the mean"
    first = bring_to(c, cell(c, "four", "plain", 2), "running")
    assert show(c, first.trial_id).placed == seen
    assert ordering.basis(c, 1, 1, "four") is None and ordering.basis(c, 1, 2, "none such") is None


def test_voided_trials_measure_no_task_and_reviews_do(c: sqlite3.Connection) -> None:
    fill(c, wanted())
    for name, took_s in TOOK_S.items():
        run(c, name, "plain", took_s)
    run(c, "one", "swift", 90_000, state="voided")
    run(c, "three", "swift", 9_000, state="review")
    bring_to(c, cell(c, "two", "swift"), "running")  # not ended: nobody knows how long it will take
    learn(c)
    assert blocks(c, 2) == ["long", "three", "two", "four", "one"]
    one, two = (ordering.basis(c, 1, 2, name) for name in ("one", "two"))
    assert one is not None and two is not None and (one.trials, one.mean_s, two.trials) == (1, 300.0, 1)


def test_whose_trials_took_how_long_does_not_matter_only_how_long_they_took(c: sqlite3.Connection) -> None:
    """Promise 2: lengths change hands among the arms of a task, and the order stays."""
    dice = random.Random(4)
    took = {name: [dice.randint(60, 3_000) for _ in ARMS] for name in LIMITS}
    found = set()
    for _ in range(4):
        ledger = memory_ledger()
        begin(ledger)
        fill(ledger, wanted())
        for name, lengths in took.items():
            for arm_name, took_s in zip(ARMS, dice.sample(lengths, len(lengths)), strict=True):
                run(ledger, name, arm_name, took_s)
        learn(ledger)
        rows = ledger.execute("SELECT task, arm FROM v_cell WHERE replicate = 2 ORDER BY ordinal").fetchall()
        found.add(tuple((row["task"], row["arm"]) for row in rows))
        ledger.close()
    assert len(found) == 1
    assert [name for name, _ in itertools.groupby(task_name for task_name, _ in found.pop())][1:] == sorted(
        set(LIMITS) - {"long"}, key=lambda name: -sum(took[name])
    )


def test_f06_what_has_begun_keeps_its_order_whatever_is_submitted_or_learned_later(c: sqlite3.Connection) -> None:
    """A daemon submits at each start: the next admission of a new life is that of the last."""
    fill(c, wanted())
    for name, took_s in TOOK_S.items():
        run(c, name, "plain", took_s)
    learn(c)
    learned = places(c)
    run(c, "one", "calm", 80_000)
    campaigns.submit(c, wanted(), now_ms=T0)
    assert places(c) == learned

    campaigns.submit(c, wanted(5, more={"new": 36_000_000}), now_ms=T0)
    assert blocks(c, 1)[-1] == blocks(c, 2)[-1] == "new"  # neither before, nor between, what has begun
    assert blocks(c, 2)[:-1] == ["long", "two", "four", "three", "one"]
    assert blocks(c, 3)[0] == "new"
    learn(c, 3)
    assert blocks(c, 3)[:3] == ["new", "long", "one"]


def test_a_replicate_with_a_trial_does_not_learn(c: sqlite3.Connection) -> None:
    """As of a ledger whose daemon was another version, or whose order was another one."""
    fill(c, wanted())
    for name, took_s in TOOK_S.items():
        run(c, name, "plain", took_s)
    started = c.execute("SELECT cell_id FROM cell WHERE replicate = 2 ORDER BY ordinal DESC LIMIT 1").fetchone()["cell_id"]
    let_go(c, bring_to(c, started, "voided"))
    before = places(c)
    assert learn(c) == 0 and places(c) == before
    seen = ordering.basis(c, 1, 2, "two")
    assert seen is not None and (seen.trials, seen.mean_s) == (0, None)


def test_the_last_but_one_begins_with_its_shorter_half_where_the_last_ones_longest_trial_decides_the_end(c: sqlite3.Connection) -> None:
    fill(c, wanted(3))
    for name, took_s in TOOK_S.items():
        run(c, name, "plain", took_s)
    longest, work = 1_500, sum(TOOK_S.values()) * len(ARMS)
    assert longest * 9 < 1.2 * work < longest * 20
    assert ordering.begin(c, 1, 2, slots=9, now_ms=T0) and blocks(c, 2) == ["long", "two", "four", "three", "one"]
    c.execute("DELETE FROM observation")
    assert ordering.begin(c, 1, 2, slots=20, now_ms=T0) and blocks(c, 2) == ["four", "three", "one", "long", "two"]
    assert ordering.begin(c, 1, 3, slots=20, now_ms=T0) and blocks(c, 3) == ["long", "two", "four", "three", "one"]


def test_in_the_other_orders_no_replicate_begins(c: sqlite3.Connection) -> None:
    fill(c, wanted(order="task-major"))
    assert ordering.due(c, 1, ids(c, 1)) is None
    campaigns.reorder(c, 1, order="replicate-major", seed=5)
    assert ordering.due(c, 1, ids(c, 2) + ids(c, 1)) == 1  # the first one first
    campaigns.reorder(c, 1, order="arm-major", seed=5)
    assert ordering.due(c, 1, ids(c, 2)) is None
