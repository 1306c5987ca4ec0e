"""A reader in another process keeps the ledger's log from being taken in: it is named, and when it has gone all is well again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marathond.core.audit.house import WAL_BYTES
from marathond.core.audit.rules import RULES
from marathond.flow.auditor import Auditor
from marathond.flow.world import World
from marathond.ledger import wal
from marathond.ledger.connect import connect
from marathond.ledger.verbs import settings
from marathond.ledger.writer import WAL_LIMIT_BYTES, SqliteLedger
from marathond.ports.clock import SystemClock
from tests.support import ledgers as have

pytestmark = pytest.mark.anyio

READS = """import sqlite3, sys
conn = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
conn.execute("BEGIN")
conn.execute("SELECT count(*) FROM run").fetchall()
print("reads", flush=True)
sys.stdin.read()
"""
A_LOT = "x" * (4 << 20)


@contextmanager
def a_reader(ledger: Path) -> Iterator[int]:
    """Another process with a read transaction open; its pid."""
    with subprocess.Popen([sys.executable, "-c", READS, str(ledger)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"reads\n"
            yield process.pid
        finally:
            process.kill()


async def test_f04_a_reader_that_pins_the_log_is_named_and_the_log_shrinks_when_it_ends(tmp_path: Path) -> None:
    path, clock, nobody = tmp_path / "ledger.db", SystemClock(), cast(Any, None)
    have.file_ledger(path, host="build7", now_ms=have.T0)
    conn = connect(path, mode="rw")
    campaign_id = have.fill(conn)
    conn.close()
    rule = next(rule for rule in RULES if rule.code == "wal_large")
    async with await SqliteLedger.open(path, run_id=1) as ledger:
        fixed = SimpleNamespace(campaign_id=campaign_id, campaign="x")
        auditor = Auditor(World(cast(Any, fixed), nobody, ledger, nobody, nobody, clock), path, (rule,))

        async def write_a_lot() -> None:
            await ledger.write(settings.observe, "waiting", A_LOT, now_ms=clock.wall_ms())
            await ledger.write(settings.observe, "waiting", [], now_ms=clock.wall_ms())

        def log() -> int:
            size = wal.size(path)
            assert size is not None
            return size

        for _ in range(2 * WAL_BYTES // len(A_LOT)):  # alone, the writer takes its log in again and again
            await write_a_lot()
        assert log() <= WAL_LIMIT_BYTES

        with a_reader(path) as pid:
            while log() <= WAL_BYTES:
                await write_a_lot()
            await auditor.look()
            ((detail,),) = [tuple(row) for row in await ledger.read(open_findings)]
            assert f"pid {pid} (python" in detail
            await write_a_lot()  # and nobody is held up by it
        for _ in range(2):  # the first takes all in, the second begins anew
            await write_a_lot()
        assert log() <= WAL_LIMIT_BYTES
        await auditor.look()
        assert await ledger.read(open_findings) == []


def open_findings(c: Any) -> list[Any]:
    return list(c.execute("SELECT detail FROM finding WHERE code = 'wal_large' AND closed_at_ms IS NULL").fetchall())


def test_where_locks_tell_nothing_those_are_named_that_have_the_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    have.file_ledger(path, host="build7", now_ms=have.T0)
    assert (wal.size(path), wal.readers(path)) == (0, ())
    with a_reader(path) as pid:
        assert [each.startswith(f"pid {pid} (") for each in wal.readers(path)] == [True]
        monkeypatch.setattr(wal, "_locking", lambda _: iter(()))
        assert [each.startswith(f"pid {pid} (") for each in wal.readers(path)] == [True]
