"""``sql`` with a name that there is not: the names that look like it, or those that there are."""

from __future__ import annotations

import sqlite3

import pytest
from support import ledgers as have

from marathond.cli import sql
from marathond.service.exits import CallFailed, Exit


@pytest.fixture(scope="module")
def c() -> sqlite3.Connection:
    return have.memory_ledger()


def refused(c: sqlite3.Connection, statement: str) -> str:
    with pytest.raises(CallFailed) as caught:
        sql.query(c, statement, timeout_s=5.0)
    assert caught.value.exit_code == Exit.USAGE
    return str(caught.value)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select * from v_cel", "sql: no such table: v_cel; did you mean v_cell"),
        ("select * from trails", "sql: no such table: trails; did you mean trial"),
        ("select armm from v_cell", "sql: no such column: armm; did you mean arm"),
        ("select c.rewrad from v_cell c", "sql: no such column: c.rewrad; did you mean c.reward"),
        ("select 1 from v_trial where phas = 'x'", "sql: no such column: phas; did you mean phase"),
    ],
)
def test_a_name_that_looks_like_another_names_it(c: sqlite3.Connection, statement: str, said: str) -> None:
    words = refused(c, statement)
    assert said in words and words.endswith("?") and "\n" not in words


def test_a_name_that_looks_like_none_says_which_there_are(c: sqlite3.Connection) -> None:
    assert "; the views are v_archive, v_arm, v_cell," in refused(c, "select * from xyzzy")
    assert "; v_arm has campaign, " in refused(c, "select xyzzy from v_arm")


def test_other_errors_are_as_they_were(c: sqlite3.Connection) -> None:
    assert refused(c, "select arm from") == "sql: incomplete input"
    assert refused(c, "selct 1") == 'sql: near "selct": syntax error'
    assert "only reading statements" in refused(c, "drop table trial")
