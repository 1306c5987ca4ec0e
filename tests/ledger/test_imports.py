"""Imported campaigns in the ledger: the short way of a trial, what no daemon may do with it, and kill -9 in the middle."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from marathond.core.audit.rules import RULES
from marathond.core.errors import Refused
from marathond.ledger.adopt import How, adopt
from marathond.ledger.connect import connect
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import admission, artifacts, audit, campaigns, imports, notices, operator, runs, trials
from marathond.ledger.verbs.imports import Details, ImportedCell, ImportedTrial, Withdrawal
from marathond.ledger.verbs.results import read_results
from marathond.ledger.verbs.trials import Fact, ScoreRow
from marathond.service.importing.run import Planned, Wanted, carry_out, plan
from marathond.service.offline import offline_writer
from tests.support import ledgers as have
from tests.support.old_runs import plant

NOW = have.T0 + 5_000
SCORE = ScoreRow(2, 1.0, "reward.txt", partial=0.5)


def imported(key: str, *, score: ScoreRow | None = SCORE, why: str = "", by_person: bool = False) -> ImportedTrial:
    withdrawal = Withdrawal(why, by_person) if why else None
    return ImportedTrial(key, f"sha {key}", Details(tokens=7), score, withdrawal, (Fact("read from", f"/o/{key}", "import"),))


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    """With a campaign ``x`` that runs, a claimed cell in it, and an imported one, ``old``."""
    connection = have.memory_ledger()
    have.fill(connection)
    have.admit(connection, have.cell(connection))
    cells = [
        ImportedCell("zstd", "plain", 1, (imported("late", why="surplus: x"), imported("first"))),
        ImportedCell("zstd", "goal", 1, (imported("taken back", why="withdrawn there: pool", by_person=True),)),
        ImportedCell("rust", "plain", 1, (imported("broken", score=None, why="its verifier never finished"),)),
    ]
    begun = imports.begin_import(
        connection, "old", kind="runs", source="/o", author="ana", refused=[{"code": "link"}], conditions={"A": "1"}, now_ms=NOW
    )
    imports.add_cells(connection, begun, [(cell.task, cell.arm, cell.replicate) for cell in cells] + [("rust", "goal", 1)])
    imports.import_cells(connection, begun, cells, now_ms=NOW)
    yield connection
    connection.close()


def of_old(c: sqlite3.Connection) -> dict[str, sqlite3.Row]:
    rows = c.execute("SELECT key, trial.* FROM imported_trial JOIN trial USING (trial_id)").fetchall()
    return {row["key"]: row for row in rows}


def old_id(c: sqlite3.Connection, key: str) -> int:
    return int(of_old(c)[key]["trial_id"])


def test_the_short_way_of_a_trial(c: sqlite3.Connection) -> None:
    events = c.execute("SELECT event, to_state FROM trial_event WHERE trial_id = ? ORDER BY seq", (old_id(c, "first"),)).fetchall()
    assert [tuple(row) for row in events] == [("reserved", "reserved"), ("imported", "verifying"), ("scored", "scored")]
    assert {key: row["state"] for key, row in of_old(c).items()} == {
        "late": "voided", "first": "scored", "taken back": "voided", "broken": "voided",
    }  # fmt: skip
    states = c.execute("SELECT task, arm, state, attempts FROM v_cell WHERE campaign = 'old' ORDER BY task, arm").fetchall()
    assert [tuple(row) for row in states] == [
        ("rust", "goal", "open", 0), ("rust", "plain", "open", 1), ("zstd", "goal", "open", 1), ("zstd", "plain", "done", 2),
    ]  # fmt: skip
    assert (
        c.execute("SELECT count(*) FROM claim JOIN cell USING (cell_id) WHERE campaign_id = 2 AND released_at_ms IS NULL").fetchone()[0]
        == 0
    )


def test_a08_what_a_person_withdrew_says_that_its_score_was_known(c: sqlite3.Connection) -> None:
    rows = c.execute("SELECT trial_id, code, decided_by, author, score_was_known, counts_pass FROM void").fetchall()
    found = {row[0]: tuple(row)[1:] for row in rows}
    assert found[old_id(c, "taken back")] == ("imported_void", "operator", "import", 1, 0)
    assert found[old_id(c, "late")] == ("imported_void", "daemon", "import", 0, 0)
    voids = {void.reason: void for void in read_results(c, "old").voids}
    assert voids["withdrawn there: pool"].reward == 1.0 and voids["surplus: x"].reward is None


def test_a09_the_schema_refuses_a_second_result_in_a_cell(c: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="claim_only_open_cell"):
        imports.import_cells(c, 1, [ImportedCell("zstd", "plain", 1, (imported("second"),))], now_ms=NOW)


def test_a_campaign_that_runs_is_no_target(c: sqlite3.Connection) -> None:
    with pytest.raises(Refused, match="campaign x was run by this ledger"):
        imports.begin_import(c, "x", kind="runs", source="/o", author="ana", refused=[], conditions={}, now_ms=NOW)
    with pytest.raises(Refused, match="imported campaign's, in which nothing runs"):
        campaigns.submit(c, have.submission(name="old"), now_ms=NOW)
    with pytest.raises(sqlite3.IntegrityError, match="imported_only_in_imported_campaign"):
        c.execute(
            """INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id)
               VALUES (1, 2, 'imported', 'reserved', 'verifying', 1, (SELECT max(run_id) FROM run))"""
        )


def test_a_daemon_finds_nothing_of_it_to_do(c: sqlite3.Connection) -> None:
    mine = {row["trial_id"] for row in of_old(c).values()}
    assert trials.unfinished(c) == [1]
    assert trials.loose_claims(c) == [] and trials.loose_containers(c, have.ENGINE) == []
    assert trials.live_tokens(c) == {row[0] for row in c.execute("SELECT token FROM claim WHERE claim_id = 1")}
    assert artifacts.not_exported(c) == []
    assert artifacts.resting_changed_since(c, 0)[0] == []
    seen = admission.snapshot(c, 1, engine=have.ENGINE, limit=100)
    assert seen.open_total == 3 and {cell.cell_id for cell in seen.open_cells} == {2, 3, 4}
    assert notices.progress(c, 1).claimed == 1
    operator.void_trials(c, sorted(mine & {old_id(c, "first")}), code="operator", reason="r", author="ana", now_ms=NOW)
    assert artifacts.resting_changed_since(c, 0)[0] == [] and artifacts.not_exported(c) == []


def test_what_a_person_may_do(c: sqlite3.Connection) -> None:
    first, gone, surplus = old_id(c, "first"), old_id(c, "taken back"), old_id(c, "late")
    with pytest.raises(Refused, match="is of an imported campaign: nothing can run in it"):
        operator.retry(c, trial_id=surplus, author="ana", reason="r", now_ms=NOW)
    result = operator.void_trials(c, [first], code="operator", reason="wrong disk", author="ana", now_ms=NOW)
    assert [each.trial_id for each in result.voided] == [first] and result.voided[0].score_was_known
    assert operator.unvoid(c, trial_id=first, author="ana", reason="it was right", now_ms=NOW).restored[0][1] == "scored"
    assert operator.unvoid(c, trial_id=gone, author="ana", reason="it ran well", now_ms=NOW).restored[0][1] == "scored"
    refused = operator.unvoid(c, trial_id=surplus, author="ana", reason="r", now_ms=NOW).refused
    assert "there is no result to come back to" in refused[0].why


def test_names_and_replicates_that_are_known(c: sqlite3.Connection) -> None:
    assert {key: (k.arm, k.state) for key, k in imports.known(c, "old").items()} == {
        "late": ("plain", "voided"), "first": ("plain", "scored"), "taken back": ("goal", "voided"), "broken": ("plain", "voided"),
    }  # fmt: skip
    assert imports.known(c, "x") == imports.known(c, "nobody") == {}
    assert imports.add_cells(c, 1, [("zstd", "plain", 1), ("rust", "goal", 1), ("rust", "goal", 2)]) == 1


def made(path: Path) -> Path:
    have.file_ledger(path, host=socket.gethostname(), now_ms=have.T0)
    return path


def totals(ledger: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int]:
    """What the import brought, without the times."""
    c = open_readonly(ledger)
    try:
        rows = c.execute("SELECT key, state, reward, attempt FROM imported_trial JOIN trial USING (trial_id) ORDER BY key").fetchall()
        cells = c.execute("SELECT task, arm, replicate, state, attempts FROM v_cell ORDER BY task, arm, replicate").fetchall()
        live = c.execute("SELECT count(*) FROM claim WHERE released_at_ms IS NULL").fetchone()[0]
        assert [tuple(row) for row in c.execute("PRAGMA integrity_check")] == [("ok",)]
        assert c.execute("PRAGMA foreign_key_check").fetchall() == []
        return [tuple(row) for row in rows], [tuple(row) for row in cells], live
    finally:
        c.close()


def planned(ledger: Path, out: Path) -> Planned:
    return plan(ledger, Wanted(out), "ana")


_KILLED = """
import os, signal, sys
from pathlib import Path
from typing import Any
from marathond.ledger.verbs import imports
from marathond.service.importing.run import Wanted, carry_out, plan
ledger, out, where, at = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
seen = 0
def die(*args, **kwargs):
    global seen
    seen += 1
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)
def before(module, name):
    real = getattr(module, name)
    def wrapped(*args, **kwargs):
        die()
        return real(*args, **kwargs)
    setattr(module, name, wrapped)
if where != "progress":
    before(imports, where)
carry_out(ledger, plan(ledger, Wanted(out), "ana"), die if where == "progress" else lambda done, total: None)
"""


@pytest.mark.parametrize(
    ("where", "at"),
    [
        ("begin_import", 1),
        ("add_cells", 1),
        ("import_cells", 1),
        ("progress", 1),
        ("progress", 6),
        ("release_claim", 4),
        ("write_void", 3),
        ("scored", 2),
    ],
)
def test_f02_killed_anywhere_it_leaves_whole_cells_and_the_next_brings_the_rest(tmp_path: Path, where: str, at: int) -> None:
    out = plant(tmp_path)
    whole, broken = made(tmp_path / "whole.db"), made(tmp_path / "broken.db")
    carry_out(whole, planned(whole, out))
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(broken), str(out), where, str(at)], capture_output=True, timeout=240, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    rows, _, live = totals(broken)
    assert live == 0 and len(rows) < len(totals(whole)[0])
    states = {row[1] for row in rows}
    assert states <= {"scored", "voided"}, "nothing is ever found in work"
    if said := reports(broken):  # killed later than its first row
        assert said[0].startswith(f"{len(rows)} trial") and " of 15, then it was broken off, from " in said[0]
    carry_out(broken, planned(broken, out))
    assert totals(broken) == totals(whole)
    again = planned(broken, out)
    assert not again.choice.cells and again.choice.unchanged == 15


def reports(ledger: Path) -> tuple[str, ...]:
    """Where the report says that its campaign was read from; empty: there is no campaign yet."""
    with closing(open_readonly(ledger)) as c:
        try:
            return read_results(c, None).imported
        except Refused:
            return ()


def test_a_whole_import_is_not_said_to_be_broken_off(tmp_path: Path) -> None:
    out, ledger = plant(tmp_path), made(tmp_path / "whole.db")
    carry_out(ledger, planned(ledger, out))
    (said,) = reports(ledger)
    assert said.startswith("15 trials from ") and "broken off" not in said


def test_a_second_import_writes_nothing(tmp_path: Path) -> None:
    out, ledger = plant(tmp_path), made(tmp_path / "l.db")
    carry_out(ledger, planned(ledger, out))
    before = (ledger.read_bytes(), totals(ledger))
    carry_out(ledger, planned(ledger, out))
    assert (ledger.read_bytes(), totals(ledger)) == before


def test_two_at_once_do_not_bring_it_twice(tmp_path: Path) -> None:
    out, ledger = plant(tmp_path), made(tmp_path / "l.db")
    first, second = planned(ledger, out), planned(ledger, out)
    carry_out(ledger, first)
    with pytest.raises(Refused, match="was changed meanwhile; nothing was written"):
        carry_out(ledger, second)
    with offline_writer(ledger, "another"), pytest.raises(Refused, match="in use"):
        carry_out(ledger, second)


def test_f14_adopting_a_copy_voids_nothing_of_it(tmp_path: Path) -> None:
    out, ledger = plant(tmp_path), made(tmp_path / "l.db")
    carry_out(ledger, planned(ledger, out))
    copy = tmp_path / "copy.db"
    copy.write_bytes(ledger.read_bytes())
    adopt(copy, How.COPY, host=socket.gethostname(), filesystem_type="", author="ana", now_ms=NOW)
    assert totals(copy) == totals(ledger)


def test_it_has_a_life_in_the_ledger(tmp_path: Path) -> None:
    out, ledger = plant(tmp_path), made(tmp_path / "l.db")
    carry_out(ledger, planned(ledger, out))
    c = connect(ledger, mode="ro")
    last = runs.last_run(c)
    assert last is not None and (last.pid, last.stop_reason) == (os.getpid(), "marathonctl import")
    results = read_results(c, None)
    assert (results.campaign, results.origin, len(results.cells)) == ("marathon-full", "import", 16)
    assert results.imported and "listed and not taken" in results.imported[0]
    assert {cell.ended_by for cell in results.cells if cell.reward is not None} == {None, "deadline"}
    sql = """SELECT ended_by, budget_ended, agent_s FROM v_cell JOIN v_trial USING (trial, ended_by)
             WHERE v_cell.task = 'zstd' AND v_cell.arm = 'plain'"""
    assert [tuple(row) for row in c.execute(sql)] == [("deadline", 1, 1800.0)]
    c.close()


def test_e04_the_audit_knows_of_an_imported_trial_what_its_source_says_and_no_more(c: sqlite3.Connection) -> None:
    """By a budget or not; nothing that only our own side measures (overruns, takeovers) may be looked at in it and found ok."""
    said = {"spent": ("deadline", 90_000), "own": ("agent", 5_000), "silent": (None, None)}
    begun = imports.begin_import(c, "ends", kind="csv", source="/t.csv", author="ana", refused=[], conditions={}, now_ms=NOW)
    imports.add_cells(c, begun, [("zstd", arm, 1) for arm in said])
    trials = [ImportedTrial(arm, arm, Details(ended_by=end, agent_ms=ms), SCORE) for arm, (end, ms) in said.items()]
    imports.import_cells(c, begun, [ImportedCell("zstd", each.key, 1, (each,)) for each in trials], now_ms=NOW)
    campaign = int(c.execute("SELECT campaign_id FROM campaign WHERE name = 'ends'").fetchone()[0])
    found = {each.arm: each for each in audit.facts(c, campaign, now_ms=NOW).trials}
    assert {arm: (each.budget_ended, each.agent_ms, each.ended_by) for arm, each in found.items()} == {
        "spent": (True, 90_000, None), "own": (False, 5_000, None), "silent": (None, None, None)
    }  # fmt: skip
    look = next(rule for rule in RULES if rule.code == "overrun_disparity").look(audit.facts(c, campaign, now_ms=NOW))
    assert (look.looked_at, look.of) == (0, 0)
