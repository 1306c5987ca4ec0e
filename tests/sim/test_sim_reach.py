"""The first third of the corpus, and what all of it has met: a simulation that never comes somewhere says nothing about it.

Every row of the life cycle's table, every void code and every fault must occur.  What cannot occur is listed, each with its reason.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from marathond.core.lifecycle import TRANSITIONS
from tests.sim import corpus, faults
from tests.sim.run import Outcome, ledger

# A killed life is a killed process: nobody closes the files that it had open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NO_ROW = {("reserved", "imported", "verifying"): "written by the command `import` alone, in one transaction with the rest of the trial"}
NO_CODE = {
    "ledger_copied": "written by `marathonctl ledger adopt` alone, before a daemon lives",
    "imported_void": "written by the command `import` alone",
}
HOST = ("run_dir_fails", "out_dir_fails", "limits_ignored")
COUNTED = ("kill", "old epoch", "reboot", "clock step", "image removed", "task changed", "timer")
"""What befell lives and programs beside the faults of faults.py."""


@pytest.mark.parametrize("seeds", corpus.chunks(corpus.FIRST), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_f02_no_seed_breaks_an_invariant(seeds: range) -> None:
    assert corpus.problems(seeds) == []


@pytest.mark.parametrize("name", corpus.NAMED)
def test_f02_no_script_by_hand_breaks_an_invariant(name: str) -> None:
    assert [str(violation) for violation in corpus.by_hand(name).violations] == []


@pytest.fixture(scope="module")
def all_seen() -> list[Outcome]:
    return [*map(corpus.outcome, corpus.FIRST), *map(corpus.by_hand, corpus.NAMED)]


def met(outcomes: list[Outcome], what: str) -> set[Any]:
    total: Counter[Any] = Counter()
    for outcome in outcomes:
        total.update(getattr(outcome, what))
    return {key for key, count in total.items() if count}


def test_every_transition_occurs(all_seen: list[Outcome]) -> None:
    rows = {(start.value if start else "new", event.value, to.value) for start, event, to in TRANSITIONS}
    assert rows - met(all_seen, "transitions") == NO_ROW.keys()


def test_every_void_code_occurs(all_seen: list[Outcome]) -> None:
    with closing(ledger()) as conn:
        codes = {row[0] for row in conn.execute("SELECT code FROM void_code")}
    assert len(codes) > 20
    assert codes - met(all_seen, "voids") == NO_CODE.keys()


def test_every_fault_occurs(all_seen: list[Outcome]) -> None:
    assert {*faults.NAMES, *HOST} - met(all_seen, "faults") == set()
    assert set(COUNTED) - met(all_seen, "counts") == set()
