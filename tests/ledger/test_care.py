"""Migrations killed in the midst, and copies made beside a busy writer (faults e07, f05, f14)."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import random
import signal
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import T0, arm, bring_to, file_ledger, fill, let_go, memory_ledger, submission, task
from support.schema_text import schema

from marathond.cli import house
from marathond.ledger import migrate as m
from marathond.ledger import open as opening
from marathond.ledger.adopt import How, adopt
from marathond.ledger.connect import connect
from marathond.ledger.open import open_for_daemon
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs.trials import unfinished
from marathond.ledger.writer import in_transaction

DATA = Path(__file__).resolve().parents[1] / "data" / "ledgers"
FORK = multiprocessing.get_context("fork")
"""All is imported already, so that a kill strikes the work and not the start."""
HOST = "h"


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where that can be: a kill of a process does not ask for a disk, which would make a second of each commit on some."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


def events(c: sqlite3.Connection) -> list[tuple[object, ...]]:
    return [tuple(row) for row in c.execute("SELECT trial_id, seq, event, at_ms, run_id FROM trial_event ORDER BY 1, 2").fetchall()]


def _open(path: str) -> None:
    open_for_daemon(Path(path), host=HOST, filesystem_type="ext4", now_ms=T0).close()


def test_f05_a_migration_killed_at_random_moments_is_gone_on_with(folder: Path) -> None:
    """All steps from the first version on, killed again and again until one try comes through."""
    moments, path = random.Random(9), version_1(folder / "ledger.db")
    with closing(connect(path, mode="ro")) as c:
        before = events(c)
    seen, longest_s, killed = set[int](), 0.005, 0
    for _ in range(200):
        process = FORK.Process(target=_open, args=(str(path),))
        process.start()
        process.join(moments.uniform(0, longest_s))
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        killed += 1
        longest_s *= 1.2
        with closing(sqlite3.connect(path)) as c:  # the next opener rolls back, as the daemon's would
            seen.add(version := m.version_of(c))
            assert events(c) == before and c.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert c.execute("PRAGMA foreign_key_check").fetchall() == []
        assert 1 <= version <= m.LATEST
    assert process.exitcode == 0 and killed >= 5, (process.exitcode, killed)
    with closing(open_readonly(path)) as c, closing(memory_ledger()) as fresh:
        assert events(c) == before and schema(c) == schema(fresh)
        assert c.execute("PRAGMA foreign_key_check").fetchall() == []
    backups = sorted(each for each in folder.glob("ledger.db.before-*") if not each.name.endswith(".tmp"))
    assert backups
    for each in backups:  # whatever was renamed to its name is whole
        with closing(sqlite3.connect(f"file:{each}?mode=ro", uri=True)) as c:
            assert c.execute("PRAGMA integrity_check").fetchone()[0] == "ok" and events(c) == before


def _open_up_to(path: str, statement: int, seen: Connection | None = None) -> None:
    """Killed before the given statement of the opening; ``seen``: told of all of them instead."""
    said: list[str] = []

    def trace(sql: str) -> None:
        said.append(sql)
        if seen is None and len(said) > statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        conn = connect(*args, **kwargs)
        conn.set_trace_callback(trace)
        return conn

    opening.connect = watched
    _open(path)
    if seen is not None:
        seen.send(said)


def version_1(path: Path) -> Path:
    """At its place."""
    path.write_bytes(gzip.decompress((DATA / "version-1.db.gz").read_bytes()))
    with closing(connect(path, mode="rw")) as c:
        status = path.stat()
        c.execute("UPDATE ledger_identity SET path = ?, device = ?, inode = ?, host = ?", (str(path), status.st_dev, status.st_ino, HOST))
    return path


def test_f05_a_migration_killed_at_each_border_of_a_transaction_is_gone_on_with(folder: Path) -> None:
    ours, theirs = FORK.Pipe()
    whole = FORK.Process(target=_open_up_to, args=(str(version_1(folder / "whole.db")), 0, theirs))
    whole.start()
    statements: list[str] = ours.recv()
    whole.join()
    borders = [n for n, sql in enumerate(statements) if sql.startswith(("COMMIT", "PRAGMA user_version ="))]
    assert len(borders) >= 2 * (m.LATEST - 1)
    for number in [*borders, *random.Random(4).sample(range(len(statements)), 3)]:
        path = version_1(folder / f"{number}.db")
        with closing(connect(path, mode="ro")) as c:
            before = events(c)
        process = FORK.Process(target=_open_up_to, args=(str(path), number))
        process.start()
        process.join(240)
        assert process.exitcode == -signal.SIGKILL
        _open(str(path))  # the next start
        with closing(open_readonly(path)) as c:
            assert events(c) == before and m.version_of(c) == m.LATEST, statements[number]
        for each in folder.glob(f"{number}.db*"):
            each.unlink()


CELLS = 240
PER_COPY = 40


def _work(path: str, may: Semaphore, done: Semaphore) -> None:
    """A trial after the other, each one transaction, as fast as it goes and as far as it may."""
    with closing(connect(Path(path), mode="rw")) as c:
        for cell_id in range(1, CELLS + 1):
            may.acquire()

            def one_trial(cell_id: int = cell_id) -> None:
                admitted = bring_to(c, cell_id, "running" if cell_id % 10 == 0 else "scored")
                if cell_id % 10:
                    let_go(c, admitted)

            in_transaction(c, "BEGIN IMMEDIATE", one_trial, path)
            done.release()


def test_e07_copies_made_beside_a_busy_writer_are_whole_and_can_be_adopted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, stored = folder / "ledger.db", list[Path]()
    file_ledger(path, host=socket.gethostname(), now_ms=T0)
    with closing(connect(path, mode="rw")) as c:
        c.execute("PRAGMA journal_mode = WAL").fetchall()
        tasks = [task(f"t{n}", network=False) for n in range(CELLS // 6)]
        fill(c, submission(tasks=tasks, arms=[arm("a"), arm("b"), arm("c")], replicates=2))
    may, done = FORK.Semaphore(0), FORK.Semaphore(0)
    writer = FORK.Process(target=_work, args=(str(path), may, done))
    writer.start()
    (folder / "copies").mkdir()
    try:
        for number in range(CELLS // PER_COPY):
            # It is at work on these while the copy is made, and cannot have done more.
            for _ in range(PER_COPY):
                may.release()
            assert done.acquire(timeout=240)
            stored.append(folder / "copies" / f"{number}.db")
            assert house.backup(path, stored[-1]) == 0
            for _ in range(PER_COPY - 1):
                assert done.acquire(timeout=240)
    finally:
        writer.join(60)
        writer.kill()
    assert writer.exitcode == 0
    counts = []
    for each in stored:
        adopted = adopt(each, How.COPY, host=socket.gethostname(), filesystem_type="ext4", author="ana", now_ms=T0 + 1)
        with closing(open_readonly(each)) as c:
            trials, claims, live = c.execute("SELECT count(*), (SELECT count(*) FROM claim), count(*) / 10 FROM trial").fetchone()
            assert trials == claims and len(adopted.voided) == live and unfinished(c) == []
            assert c.execute("SELECT count(*) FROM v_cell WHERE state = 'done'").fetchone()[0] == trials - live
            gaps = "SELECT count(*) FROM (SELECT 1 FROM trial_event GROUP BY trial_id HAVING count(*) <> max(seq))"
            assert c.execute(gaps).fetchone()[0] == 0
            counts.append(trials)
        assert house.check(each) == 0
    assert all(n * PER_COPY < count <= (n + 1) * PER_COPY for n, count in enumerate(counts)), counts
    with closing(open_readonly(path)) as c:  # the original knows nothing of it
        assert c.execute("SELECT count(*) FROM trial").fetchone()[0] == CELLS and len(unfinished(c)) == CELLS // 10
    capsys.readouterr()
