"""Shapes of first requests in the ledger: the first that is told counts, and only trials of codex arms are compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.ledgers import T0, arm, bring_to, cell, fill, memory_ledger, submission, task

from marathond.core.requests import First, Who
from marathond.ledger.verbs import shapes, usage


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    codex = replace(arm("plain"), kind="codex")
    fill(made, submission(tasks=[task("one")], arms=[codex, arm("sh")]))
    for name in ("plain", "sh"):
        bring_to(made, cell(made, "one", name), "running")
    usage.meet_journal(made, identity="", segment=0, byte=0, last_seq=0, now_ms=T0)
    yield made
    made.close()


def take(c: sqlite3.Connection, *events: First) -> None:
    usage.ingest(c, list(enumerate(events, 1)), segment=1, byte=1, last_seq=len(events), prices={}, now_ms=T0)


def first(trial_id: int, account: str = "agent", **shape: Any) -> First:
    return First(Who(trial_id, account, 1), shape)


def test_the_first_shape_of_a_trial_counts(c: sqlite3.Connection) -> None:
    take(c, first(1, "gate", n=0), first(1, n=1), first(1, n=2), first(2, n=3), first(99, n=4))
    assert shapes.count(c) == 2
    assert shapes.shapes(c, 1) == [shapes.ShapeRow(1, "plain", "one", {"n": 1})]
    assert json.loads(c.execute("SELECT shape_json FROM first_request WHERE trial_id = 2").fetchone()[0]) == {"n": 3}
