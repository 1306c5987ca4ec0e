"""Which columns of a score a campaign has, counted by the ledger."""

from __future__ import annotations

import json
import sqlite3

import pytest
from support.ledgers import T0, bring_to, cell, fill, memory_ledger

from marathond.core.columns import Column
from marathond.ledger.verbs.columns import columns_of


def told(c: sqlite3.Connection, trial_id: int, **columns: object) -> None:
    """A later score of the trial, as grading again writes it."""
    values = {"partial": None, "tests_passed": None, "tests_total": None, "test_rate": None, **columns}
    names = ", ".join(values)
    c.execute(
        f"""INSERT INTO score (trial_id, extractor, reward, reward_source, flags_json, at_ms, run_id, {names})
            SELECT ?, 9, 1.0, 's', '[]', {T0}, max(run_id), ?, ?, ?, ? FROM run""",
        (trial_id, *values.values()),
    )


def test_d11_columns_are_those_that_scores_which_stand_hold() -> None:
    c = memory_ledger()
    campaign_id = fill(c)
    assert {column.exists for column in columns_of(c, campaign_id)} == {False}
    first = bring_to(c, cell(c, "zstd", "plain"), "scored").trial_id
    bring_to(c, cell(c, "zstd", "goal"), "running")
    told(c, first)
    reward, partial, rate = columns_of(c, campaign_id)
    assert (reward.exists, partial.exists, rate.exists) == (True, False, False)
    assert partial == Column("partial", False, "none of 1 done cells has a partial score")
    told(c, first, tests_passed=1, tests_total=2)
    assert columns_of(c, campaign_id)[2].exists, "counts are a rate, too"
    told(c, first, test_rate=0.5)
    assert columns_of(c, campaign_id)[2].exists


def test_d11_the_profile_of_the_campaign_gives_the_reason() -> None:
    c = memory_ledger()
    campaign_id = fill(c)
    told(c, bring_to(c, cell(c, "zstd", "plain"), "scored").trial_id)
    scores = {"partial": {"exists": False, "note": "tests pass or fail as a whole"}}
    config = json.dumps({"profile": {"name": "terminal", "scores": scores}})
    c.execute("UPDATE campaign SET config_json = ?", (config,))
    assert columns_of(c, campaign_id)[1] == Column("partial", False, "terminal has none: tests pass or fail as a whole")
    c.execute("UPDATE campaign SET config_json = ?", (json.dumps({"profile": None}),))
    assert columns_of(c, campaign_id)[1].why == "none of 1 done cells has a partial score"


def test_d11_who_has_counted_already_is_told_the_same() -> None:
    c = memory_ledger()
    campaign_id = fill(c)
    first = bring_to(c, cell(c, "zstd", "plain"), "scored").trial_id

    def same() -> None:
        whole = columns_of(c, campaign_id)
        done = c.execute("SELECT count(*) FROM trial WHERE state = 'scored'").fetchone()[0]
        held = {column.name: column.exists for column in whole}
        assert columns_of(c, campaign_id, done=done, held=held) == whole

    same()
    denied = json.dumps({"profile": {"name": "terminal", "scores": {"partial": {"exists": False, "note": "no"}}}})
    for config in (json.dumps({"profile": None}), denied):
        c.execute("UPDATE campaign SET config_json = ?", (config,))
        told(c, first)
        same()
        told(c, first, partial=0.5, test_rate=0.25)
        same()
    assert columns_of(c, campaign_id)[1].why == "terminal is said to have none, and 1 of 1 done cells hold one"


def test_a_campaign_that_is_not_there() -> None:
    with pytest.raises(LookupError):
        columns_of(memory_ledger(), 7)
