"""The flow's ledger waits for what passes, and for nothing else (faults f04, f05)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs
from support.ledgers import T0, file_ledger, fill

from marathond.core.errors import LedgerRefused
from marathond.ledger.connect import connect
from marathond.ledger.errors import RuleBroken, translate
from marathond.ledger.patient import PatientLedger
from marathond.ledger.verbs import settings
from marathond.ledger.verbs.runs import begin_run
from marathond.ledger.writer import SqliteLedger

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.db"
    file_ledger(made, host="h", now_ms=T0)
    c = connect(made, mode="rw")
    fill(c)
    c.close()
    return made


@contextmanager
def held_write_lock(path: Path) -> Iterator[None]:
    """A person's shell with a transaction open."""
    shell = connect(path, mode="rw")
    shell.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        shell.execute("ROLLBACK")
        shell.close()


async def test_f04_what_another_process_holds_up_for_long_is_written_when_it_lets_go(path: Path) -> None:
    async with await SqliteLedger.open(path, run_id=1, busy_ms=50) as ledger:
        patient = PatientLedger(ledger)
        with capture_logs() as told:
            async with anyio.create_task_group() as group:
                with held_write_lock(path):
                    for key in ("a", "b"):
                        group.start_soon(lambda key=key: patient.write(settings.observe, key, 1, now_ms=T0))
                    with anyio.fail_after(240):
                        while "write lock" not in patient.waits:  # noqa: ASYNC110 - it has no bell
                            await anyio.sleep(0.05)
                    await anyio.sleep(1)  # many times busy_ms, so that both were refused, and more than once
                    assert await patient.read(settings.observations) == {}
        assert set(await patient.read(settings.observations)) == {"a", "b"}
        assert patient.waits == ""
        assert [each["event"] for each in told] == ["ledger_waits", "ledger_goes_on"]  # once, however many wait


async def test_f04_a_wait_ends_with_its_cancellation_and_nothing_is_written(path: Path) -> None:
    async with await SqliteLedger.open(path, run_id=1, busy_ms=50) as ledger:
        patient = PatientLedger(ledger)
        with held_write_lock(path), anyio.move_on_after(0.3) as scope:
            await patient.write(settings.observe, "a", 1, now_ms=T0)
        assert scope.cancelled_caught
        assert await patient.read(settings.observations) == {}


async def test_what_does_not_pass_is_not_waited_for(path: Path) -> None:
    async with await SqliteLedger.open(path, run_id=1) as ledger:
        patient = PatientLedger(ledger)
        with anyio.fail_after(60), pytest.raises(RuleBroken):
            await patient.write(settings.observe, None, 1, now_ms=T0)  # type: ignore[arg-type]
        other = connect(path, mode="rw")
        begin_run(other, pid=2, pid_start_ticks=2, host="h", boot_id="b", version="v", now_ms=T0)
        other.close()
        with anyio.fail_after(60), pytest.raises(LedgerRefused) as caught:
            await patient.write(settings.observe, "a", 1, now_ms=T0)
        assert caught.value.code == "old_epoch" and patient.waits == ""


def test_f05_no_room_for_shared_memory_is_a_full_disk() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    refused = translate(error)
    assert isinstance(refused, LedgerRefused) and refused.code == "disk_full"
