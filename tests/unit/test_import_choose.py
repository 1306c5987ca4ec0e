"""Which trial counts never depends on a score (fault a09), and a second reading adds and exchanges nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.ledger.verbs.imports import Details, Known
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.importing.choose import Choice, choose
from marathond.service.importing.seen import Reading, Seen, instant_ms


def seen(name: str, *, start: int | None = 0, reward: float = 0.0, why: str = "", arm: str = "plain", withdrawn: bool = False) -> Seen:
    score = None if why else ScoreRow(2, reward, "reward.txt")
    details = Details(started_at_ms=start)
    return Seen(name, name, "zstd", arm, name, f"hash of {name}", score, why, details, withdrawn=withdrawn)


def reading(*trials: Seen, replicates: int | None = 1) -> Reading:
    return Reading("runs", "/o", trials, (), replicates=replicates)


def placed(choice: Choice) -> list[tuple[int, str, bool]]:
    return [(cell.replicate, trial.key, trial.withdrawal is None) for cell, trial in choice.trials]


def as_known(choice: Choice) -> dict[str, Known]:
    return {
        trial.key: Known(number, trial.sha256, cell.task, cell.arm, cell.replicate, "voided" if trial.withdrawal else "scored")
        for number, (cell, trial) in enumerate(choice.trials, start=1)
    }


TRIALS = st.lists(
    st.builds(
        lambda start, why, arm: (start, why, arm),
        st.one_of(st.none(), st.integers(0, 5)),
        st.sampled_from(["", "", "broken"]),
        st.sampled_from(["plain", "goal"]),
    ),
    max_size=12,
)


def made(shapes: list[tuple[int | None, str, str]], rewards: list[float]) -> list[Seen]:
    return [
        seen(f"t{n:02d}", start=start, why=why, arm=arm, reward=reward)
        for n, ((start, why, arm), reward) in enumerate(zip(shapes, rewards, strict=True))
    ]


@settings(max_examples=120, deadline=None)
@given(shapes=TRIALS, limit=st.one_of(st.none(), st.integers(1, 3)), data=st.data())
def test_a09_no_score_and_no_order_of_the_listing_changes_the_choice(
    shapes: list[tuple[int | None, str, str]], limit: int | None, data: st.DataObject
) -> None:
    rewards = [data.draw(st.sampled_from([0.0, 0.5, 1.0])) for _ in shapes]
    others = data.draw(st.permutations(rewards))
    shuffled = data.draw(st.permutations(made(shapes, list(others))))
    assert placed(choose(reading(*made(shapes, rewards), replicates=limit), {})) == placed(choose(reading(*shuffled, replicates=limit), {}))


@settings(max_examples=120, deadline=None)
@given(shapes=TRIALS, limit=st.one_of(st.none(), st.integers(1, 3)))
def test_every_trial_is_placed_once_and_each_cell_has_one_result_at_its_end(
    shapes: list[tuple[int | None, str, str]], limit: int | None
) -> None:
    trials = made(shapes, [0.0] * len(shapes))
    choice = choose(reading(*trials, replicates=limit), {})
    assert sorted(trial.key for _, trial in choice.trials) == sorted(t.key for t in trials)
    for cell in choice.cells:
        assert [trial.withdrawal is None for trial in cell.trials[:-1]] == [False] * (len(cell.trials) - 1)
        assert limit is None or cell.replicate <= limit
        assert (cell.task, cell.arm, cell.replicate) in choice.grid
    again = choose(reading(*trials, replicates=limit), as_known(choice))
    assert (again.cells, again.unchanged, again.listed) == ((), len(trials), ())


@settings(max_examples=80, deadline=None)
@given(shapes=TRIALS, cut=st.integers(0, 12), limit=st.integers(1, 2))
def test_what_an_earlier_reading_decided_stays(shapes: list[tuple[int | None, str, str]], cut: int, limit: int) -> None:
    trials = made(shapes, [0.0] * len(shapes))
    first = choose(reading(*trials[:cut], replicates=limit), {})
    known = as_known(first)
    second = choose(reading(*trials, replicates=limit), known)
    taken = {(cell.arm, cell.replicate) for cell, trial in first.trials if trial.withdrawal is None}
    assert not taken & {(cell.arm, cell.replicate) for cell in second.cells}
    assert len(second.trials) + len(second.listed) + second.unchanged == len(trials)


def test_a_trial_without_a_start_is_never_the_first() -> None:
    choice = choose(reading(seen("a", start=None), seen("b", start=9)), {})
    assert placed(choice) == [(1, "a", False), (1, "b", True)]


def test_one_that_comes_later_is_listed_and_exchanges_nothing() -> None:
    known = as_known(choose(reading(seen("b", start=5)), {}))
    choice = choose(reading(seen("a", start=1, reward=1.0), seen("b", start=5)), known)
    assert not choice.cells and [each.code for each in choice.listed] == ["late"]


def test_a_changed_source_of_a_known_key_is_refused_by_name() -> None:
    known = as_known(choose(reading(seen("a")), {}))
    choice = choose(reading(replace(seen("a"), sha256="other")), known)
    assert not choice.cells and choice.changed[0].place == "a" and "t0001" in choice.changed[0].why
    withdrawn = choose(reading(seen("a", why="withdrawn there: pool", withdrawn=True)), known)
    assert withdrawn.changed == () or "marathonctl void t0001" in withdrawn.changed[0].why


def test_one_that_is_withdrawn_since_asks_for_a_void() -> None:
    first = seen("a")
    known = as_known(choose(reading(first), {}))
    now = replace(first, why="withdrawn there: pool", withdrawn=True)
    assert [each.why for each in choose(reading(now), known).changed] == [
        'withdrawn there since it was imported, and t0001 still counts here: marathonctl void t0001 --reason "…" (withdrawn there: pool)'
    ]


def test_the_same_key_twice_is_listed() -> None:
    choice = choose(reading(seen("a"), seen("a")), {})
    assert [each.code for each in choice.listed] == ["twice"] and len(choice.trials) == 1


def test_a_table_is_as_wide_as_most_of_it_and_keeps_what_there_is_more() -> None:
    trials = [seen(f"{arm}{n}", start=n, arm=arm) for arm, count in (("a", 2), ("b", 2), ("c", 3), ("d", 1)) for n in range(count)]
    choice = choose(reading(*trials, replicates=None), {})
    assert choice.replicates == 2
    assert len(choice.grid) == 4 * 2 + 1 and ("zstd", "c", 3) in choice.grid and ("zstd", "d", 2) in choice.grid


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-05-02 09:19 UTC", 1_777_713_540_000),
        ("2026-05-02T09:19:00Z", 1_777_713_540_000),
        ("2026-05-02T11:19:00+02:00", 1_777_713_540_000),
        ("2026-05-02T09:19:00.250", 1_777_713_540_250),
        ("", None),
        (None, None),
    ],
)
def test_instants(text: str | None, ms: int | None) -> None:
    assert instant_ms(text) == ms


@pytest.mark.parametrize("text", ["UTC", "yesterday", 17, "2026-13-01"])
def test_no_instant_is_never_guessed(text: object) -> None:
    with pytest.raises(ValueError, match="is no time"):
        instant_ms(text)
