"""What must not pass for a whole ledger: a damaged file, half a copy, one whose rules were dropped."""

from __future__ import annotations

import resource
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.ledgers import T0, file_ledger, fill, submission

from marathond.cli import house
from marathond.core.errors import LedgerRefused
from marathond.ledger.adopt import How, adopt
from marathond.ledger.connect import connect
from marathond.ledger.migrate import back_up
from marathond.ledger.version import LATEST

ROOM = 300_000
"""Bytes of the small disk: less than an empty ledger has."""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    file_ledger(path, host=socket.gethostname(), now_ms=T0)
    with closing(connect(path, mode="rw")) as c:
        fill(c, submission())
    assert path.stat().st_size > ROOM
    return path


@pytest.fixture
def damaged(ledger: Path) -> Path:
    """One page of rows, as a disk loses it; SQLite opens the file and reads the rest."""
    with closing(sqlite3.connect(ledger)) as c:
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        size = c.execute("PRAGMA page_size").fetchone()[0]
        page = c.execute("SELECT rootpage FROM sqlite_master WHERE name = 'cell'").fetchone()[0]
    with ledger.open("r+b") as file:
        file.seek(page * size - 300)
        file.write(b"\x05" * 300)
    return ledger


@contextmanager
def small_disk() -> Iterator[None]:
    """No file of this process grows beyond :data:`ROOM`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_f05_a_damaged_ledger_gives_no_backup_and_says_so(damaged: Path) -> None:
    with pytest.raises(LedgerRefused, match="is damaged, and so would be its backup, which was not made") as refused:
        house.backup(damaged, damaged.with_name("copy.db"))
    assert refused.value.code == "corrupt"
    assert not [path for path in damaged.parent.iterdir() if "copy" in path.name]


@pytest.mark.parametrize("how", How)
def test_f05_a_damaged_ledger_is_not_adopted_as_whole(damaged: Path, how: How) -> None:
    before = damaged.read_bytes()
    with pytest.raises(LedgerRefused) as refused:
        adopt(damaged, how, host="elsewhere", filesystem_type="ext4", author="ana", now_ms=T0 + 1)
    assert refused.value.code == "corrupt" and damaged.read_bytes() == before


def test_f05_a_backup_that_the_disk_has_no_room_for_leaves_none_of_it(ledger: Path) -> None:
    before = sorted(path.name for path in ledger.parent.iterdir())
    with small_disk(), pytest.raises(LedgerRefused, match="the copy failed"):
        house.backup(ledger, ledger.with_name("copy.db"))
    with closing(connect(ledger, mode="rw")) as c, small_disk(), pytest.raises(sqlite3.OperationalError):
        back_up(c, ledger, LATEST)
    assert sorted(path.name for path in ledger.parent.iterdir()) == before
    assert house.backup(ledger, ledger.with_name("copy.db")) == 0


def test_f05_a_ledger_whose_rules_were_dropped_is_not_called_whole(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(ledger)) as c:
        c.execute("CREATE INDEX somebodys_own ON trial (arm_id)")
        assert house.check(ledger) == 0
        for rule in ("TRIGGER archive_is_never_deleted", "INDEX archive_one_standing_per_trial"):
            c.execute(f"DROP {rule}")
        c.execute("CREATE INDEX archive_one_standing_per_trial ON archive (trial_id)")
    capsys.readouterr()
    assert house.check(ledger) == 1
    assert capsys.readouterr().out.splitlines() == [
        "changed by hand: index archive_one_standing_per_trial is not as this version has it",
        "changed by hand: trigger archive_is_never_deleted is missing",
    ]
