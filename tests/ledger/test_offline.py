"""Writing the ledger while no daemon lives: alone, under an epoch of its own, and the next daemon starts as ever."""

from __future__ import annotations

import os
import socket
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.core.errors import LedgerRefused
from marathond.ledger.connect import connect
from marathond.ledger.errors import RuleBroken
from marathond.ledger.open import open_for_daemon
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import runs
from marathond.ledger.writer import SqliteLedger
from marathond.service.offline import offline_writer
from marathond.service.picture.reader import daemon_life
from tests.support import ledgers as have

HOST = socket.gethostname()
WHAT = "marathonctl regrade"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.db"
    have.file_ledger(made, host=HOST, now_ms=have.T0)
    c = connect(made, mode="rw")
    have.fill(c)
    have.bring_to(c, have.cell(c), "running")
    c.close()
    return made


def lives(path: Path) -> list[tuple[int, str | None, bool]]:
    c = open_readonly(path)
    rows = c.execute("SELECT run_id, stop_reason, stopped_at_ms IS NOT NULL FROM run ORDER BY run_id").fetchall()
    c.close()
    return [(row[0], row[1], bool(row[2])) for row in rows]


def count(c: sqlite3.Connection) -> int:
    return int(c.execute("SELECT count(*) FROM finding").fetchone()[0])


def two_rows(c: sqlite3.Connection, *, fail: bool) -> None:
    for subject in ("a", "b"):
        c.execute(
            "INSERT INTO finding (code, severity, subject, detail, opened_at_ms, seen_at_ms) VALUES ('x', 'info', ?, '', 1, 1)", (subject,)
        )
    if fail:
        c.execute("INSERT INTO finding (code, severity, subject, detail, opened_at_ms, seen_at_ms) VALUES ('x', 'loud', 'c', '', 1, 1)")


def test_it_has_a_life_of_its_own_with_a_reason(path: Path) -> None:
    with offline_writer(path, WHAT) as writer:
        assert writer.run_id == 2
        assert lives(path)[-1] == (2, WHAT, False)
        own = writer.read(runs.last_run)
        assert own is not None and (own.pid, own.host) == (os.getpid(), HOST)
        life = daemon_life(own, path.with_name("control.sock"), have.T0)
        assert (life.alive, life.why) == (False, f"{WHAT} (pid {os.getpid()}) holds the ledger")
        gone = daemon_life(replace(own, pid_start_ticks=own.pid_start_ticks + 1), path.with_name("control.sock"), have.T0)
        assert (gone.alive, gone.why) == (False, f"{WHAT} was broken off"), "killed, say: no daemon that was, either"
    assert lives(path)[-1] == (2, WHAT, True)


def test_a_verb_is_one_transaction_whole_or_not_at_all(path: Path) -> None:
    with offline_writer(path, WHAT) as writer:
        with pytest.raises(RuleBroken):
            writer.write(two_rows, fail=True)
        assert writer.read(count) == 0
        writer.write(two_rows, fail=False)
        assert writer.read(count) == 2


def test_what_is_broken_off_says_so_and_keeps_what_was_written(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), offline_writer(path, WHAT) as writer:
        writer.write(two_rows, fail=False)
        raise KeyboardInterrupt
    assert lives(path)[-1] == (2, f"{WHAT}: broken off", True)
    c = open_readonly(path)
    assert count(c) == 2
    c.close()


def test_f01_it_refuses_by_name_while_a_daemon_lives(path: Path) -> None:
    daemon = open_for_daemon(path, host=HOST, filesystem_type="ext4", now_ms=have.T0, pid=4121)
    before = lives(path)
    with pytest.raises(LedgerRefused) as refused, offline_writer(path, WHAT):
        raise AssertionError("it was let in beside a daemon")
    daemon.close()
    assert refused.value.code == "in_use"
    words = f"{WHAT} needs the ledger for itself: ledger {path} is in use by pid 4121 on host {HOST} since 14:13Z; stop it first"
    assert str(refused.value) == words
    assert lives(path) == before


def test_a_missing_ledger_is_refused_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerRefused) as refused, offline_writer(tmp_path / "no" / "ledger.db", WHAT):
        raise AssertionError("there is no ledger")
    assert refused.value.code == "missing" and not list(tmp_path.iterdir())


@pytest.mark.anyio
async def test_the_next_daemon_begins_as_after_any_other_and_the_old_one_writes_no_more(path: Path) -> None:
    old = await SqliteLedger.open(path, run_id=1)
    with offline_writer(path, WHAT) as writer:
        writer.write(two_rows, fail=False)
        with pytest.raises(LedgerRefused) as refused:  # a daemon that was thought dead, say
            await old.write(two_rows, fail=False)
        assert refused.value.code == "old_epoch"
    await old.aclose()
    opened = open_for_daemon(path, host=HOST, filesystem_type="ext4", now_ms=have.T0)
    async with await SqliteLedger.open(opened.path) as ledger:
        run_id = await ledger.begin_life(pid=1, pid_start_ticks=1, host=HOST, boot_id="b", version="0", now_ms=have.T0)
        assert run_id == 3
        await ledger.write(runs.mark_ready, now_ms=have.T0)
    opened.close()
