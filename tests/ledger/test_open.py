"""Where a ledger may be used: every refusal by name, and nothing written before it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.ledgers import T0, bring_to, cell, fill, let_go

from marathond.core.errors import LedgerRefused, Refused
from marathond.ledger import lock, place
from marathond.ledger.adopt import How, adopt
from marathond.ledger.connect import connect
from marathond.ledger.open import OpenedLedger, create, open_for_daemon
from marathond.ledger.place import read_identity
from marathond.ledger.readonly import open_readonly

HOST = "build7"
SINCE = "14:13Z"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ledger.db"
    create(made, host=HOST, now_ms=T0)
    return made


def open_it(path: Path, *, host: str = HOST, filesystem_type: str = "ext4", pid: int | None = None) -> OpenedLedger:
    return open_for_daemon(path, host=host, filesystem_type=filesystem_type, now_ms=T0, pid=pid)


def refusal(path: Path, **kwargs: str) -> LedgerRefused:
    with pytest.raises(LedgerRefused) as caught:
        open_it(path, **kwargs)
    return caught.value


def files(folder: Path) -> dict[str, str]:
    """Every file's content by hash, the lock aside."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file() and not p.name.endswith(".lock")}


def test_created_ledger_is_whole_and_opens(path: Path) -> None:
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]
    opened = open_it(path)
    assert len(opened.ledger_id) == 12 and opened.migrated == []
    opened.close()
    c = open_readonly(path)
    assert read_identity(c, path).inode == path.stat().st_ino
    assert c.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    c.close()


def test_create_never_overwrites(tmp_path: Path) -> None:
    there = tmp_path / "ledger.db"
    there.write_text("precious")
    with pytest.raises(LedgerRefused, match="exists already; nothing was changed") as caught:
        create(there, host=HOST, now_ms=T0)
    assert caught.value.code == "exists" and there.read_text() == "precious" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(LedgerRefused, match="no folder"):
        create(tmp_path / "nowhere/ledger.db", host=HOST, now_ms=T0)
    with pytest.raises(LedgerRefused, match="nfs4"):
        create(tmp_path / "other.db", host=HOST, now_ms=T0, filesystem_type="nfs4")
    assert len(list(tmp_path.iterdir())) == 1


# ── f01 ──


def test_f01_second_daemon_is_refused_and_told_who_holds_it(path: Path) -> None:
    first = open_it(path, pid=4121)
    refused = refusal(path)
    assert refused.code == "in_use"
    assert str(refused) == f"ledger {path} is in use by pid 4121 on host {HOST} since {SINCE}; stop it or choose another ledger"
    first.close()
    open_it(path).close()


def test_f01_two_names_of_one_ledger_share_the_lock(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    first = open_it(tmp_path / "link.db", pid=4121)
    assert "in use by pid 4121" in str(refusal(path))
    first.close()


def _hold(path: str, ready: object, stop: object) -> None:
    open_for_daemon(Path(path), host=HOST, filesystem_type="ext4", now_ms=T0)
    ready.set()  # type: ignore[attr-defined]
    stop.wait(480)  # type: ignore[attr-defined]


def test_f01_lock_of_a_killed_daemon_is_free(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(path), ready, stop))
    other.start()
    assert ready.wait(240)
    assert f"in use by pid {other.pid} " in str(refusal(path))
    other.kill()
    other.join()
    open_it(path).close()


def test_f01_unreadable_lock_content_still_refuses(path: Path) -> None:
    first = open_it(path)
    lock.lock_path(path).write_text("garbage")
    assert str(refusal(path)) == f"ledger {path} is in use by another process; stop it or choose another ledger"
    first.close()


# ── f05, f11 ──


def test_f05_missing_ledger_is_refused_not_made(tmp_path: Path) -> None:
    refused = refusal(tmp_path / "ledger.db")
    assert refused.code == "missing" and "marathonctl init" in str(refused)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"SQLite format 2\x00 and more", b"hello"])
def test_f11_what_is_no_database_is_refused_not_replaced(tmp_path: Path, content: bytes) -> None:
    there = tmp_path / "ledger.db"
    there.write_bytes(content)
    assert refusal(there).code == "not_a_ledger"
    assert there.read_bytes() == content and len(list(tmp_path.iterdir())) == 1


def test_f11_another_sqlite_file_is_no_ledger(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "ledger.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    before = files(tmp_path)
    assert refusal(tmp_path / "ledger.db").code == "not_a_ledger"
    assert files(tmp_path) == before


def test_f11_ledger_without_identity_is_refused(path: Path) -> None:
    c = connect(path, mode="rw")
    c.execute("DROP TRIGGER ledger_identity_is_never_deleted")
    c.execute("DELETE FROM ledger_identity")
    c.close()
    assert "does not know who it is" in str(refusal(path))


def test_f05_newer_ledger_is_refused_untouched(path: Path) -> None:
    c = connect(path, mode="rw")
    c.execute("PRAGMA user_version = 99")
    c.close()
    before = files(path.parent)
    refused = refusal(path)
    assert refused.code == "newer" and "version 99" in str(refused)
    assert files(path.parent) == before
    with pytest.raises(LedgerRefused, match="version 99"):
        open_readonly(path)
    assert files(path.parent)["ledger.db"] == before["ledger.db"]


def test_f05_older_ledger_is_not_migrated_by_a_reader(path: Path) -> None:
    c = connect(path, mode="rw")
    c.execute("PRAGMA user_version = 1")
    c.close()
    with pytest.raises(LedgerRefused, match="start marathond once, it migrates") as caught:
        open_readonly(path)
    assert caught.value.code == "older"


def test_f05_corrupt_ledger_is_refused_untouched(path: Path) -> None:
    c = connect(path, mode="rw")
    fill(c)
    root = c.execute("SELECT rootpage FROM sqlite_master WHERE name = 'cell_in_order'").fetchone()[0]
    size = c.execute("PRAGMA page_size").fetchone()[0]
    c.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    before = files(path.parent)
    refused = refusal(path)
    assert refused.code == "corrupt"
    assert files(path.parent) == before


def test_f05_truncated_ledger_is_refused(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(8192)
    assert refusal(path).code == "corrupt"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse", "ceph"])
def test_f05_network_filesystems_are_refused(path: Path, kind: str) -> None:
    before = files(path.parent)
    refused = refusal(path, filesystem_type=kind)
    assert refused.code == "network_filesystem" and kind in str(refused) and "local disk" in str(refused)
    assert files(path.parent) == before and not lock.lock_path(path).exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs"])
def test_f05_local_filesystems_are_not(path: Path, kind: str) -> None:
    open_it(path, filesystem_type=kind).close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 3 MB.  Root only: it is a real mount."""
    point = tmp_path / "small"
    point.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(point)], check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield point
    subprocess.run(["umount", str(point)], check=True)


@pytest.mark.parametrize("ballast_kib", range(1100, 2000, 100))
def test_f05_a_disk_that_fills_while_a_ledger_is_made_leaves_a_whole_one_or_none(small_disk: Path, ballast_kib: int) -> None:
    """Closing moves the log into the file and says nothing when there is no room; then the log, all that was whole, was removed."""
    (small_disk / "ballast").write_bytes(bytes(ballast_kib << 10))
    there = small_disk / "ledger.db"
    try:
        create(there, host=HOST, now_ms=T0)
    except LedgerRefused as refused:
        assert refused.code == "disk_full" and [each.name for each in small_disk.iterdir()] == ["ballast"]
    else:
        with closing(sqlite3.connect(there)) as c:
            assert c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_f05_full_disk_is_refused(small_disk: Path) -> None:
    there = small_disk / "ledger.db"
    create(there, host=HOST, now_ms=T0)
    with (small_disk / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(65536))  # nothing is kept back, which the closing would try to write once more
    before = files(small_disk)
    refused = refusal(there)
    assert refused.code == "disk_full" and "no room for 1 MB" in str(refused)
    with pytest.raises(LedgerRefused, match="no room"):
        create(small_disk / "second.db", host=HOST, now_ms=T0)
    assert files(small_disk) == before
    open_readonly(there).close()  # looking is still possible


def test_f05_read_only_disk_is_refused_and_still_readable(small_disk: Path) -> None:
    there = small_disk / "ledger.db"
    create(there, host=HOST, now_ms=T0)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused = refusal(there)
    assert refused.code == "read_only" and "Read-only file system" in str(refused)
    c = open_readonly(there)
    assert c.execute("SELECT count(*) FROM ledger_identity").fetchone()[0] == 1
    c.close()


# ── readers without any permission ──


def _as_nobody(path: Path) -> str:
    """Read the ledger in a process that may write nothing; its answer or its error."""
    code = (
        "import os, sys; from pathlib import Path; from marathond.ledger.readonly import open_readonly\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "c = open_readonly(Path(sys.argv[1])); print(c.execute('select count(*) from run').fetchone()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def locked_folder() -> Iterator[Path]:
    """A folder that anybody may enter and only we may change; not below pytest's, which others may not enter."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    folder = Path(tempfile.mkdtemp(prefix="marathond-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_reader_without_permission_sees_an_idle_a_live_and_a_killed_ledger(locked_folder: Path) -> None:
    there = locked_folder / "ledger.db"
    create(there, host=HOST, now_ms=T0)
    assert _as_nobody(there) == "0"  # no -wal, no -shm, and none can be made
    c = connect(there, mode="rw")
    fill(c)
    assert (locked_folder / "ledger.db-wal").stat().st_size > 0
    assert _as_nobody(there) == "1"  # the row is still in the log only
    copy = locked_folder / "killed.db"
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{there}{suffix}", f"{copy}{suffix}")
    c.close()
    assert _as_nobody(copy) == "1"  # a log that nobody cleaned up


def test_readonly_connection_cannot_write(path: Path) -> None:
    c = open_readonly(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        c.execute("DELETE FROM void_code")
    c.close()


# ── f14 ──


def ledger_id(path: Path) -> str:
    c = open_readonly(path)
    try:
        return read_identity(c, path).ledger_id
    finally:
        c.close()


def test_f14_copy_is_refused_until_it_is_adopted(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    before = hashlib.sha256(copy.read_bytes()).hexdigest()
    refused = refusal(copy)
    assert refused.code == "copied" and "marathonctl ledger adopt --moved, or --copy" in str(refused)
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == before
    open_it(path).close()  # the original is not disturbed


def test_f14_another_host_is_refused(path: Path) -> None:
    refused = refusal(path, host="build8")
    assert refused.code == "copied" and f"was put on host {HOST}, this is build8" in str(refused)


def test_f14_device_number_may_change_with_a_boot_but_not_with_the_place(path: Path, tmp_path: Path) -> None:
    c = connect(path, mode="rw")
    c.execute("UPDATE ledger_identity SET device = device + 1")
    c.close()
    open_it(path).close()
    c = connect(path, mode="rw")
    assert c.execute("SELECT device FROM ledger_identity").fetchone()[0] == path.stat().st_dev
    c.execute("UPDATE ledger_identity SET device = device + 1, path = '/elsewhere/ledger.db'")
    c.close()
    assert refusal(path).code == "copied"


def test_f14_renamed_on_the_same_disk_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    path.rename(tmp_path / "renamed.db")
    open_it(tmp_path / "renamed.db").close()


def test_f14_moved_keeps_its_id_once_the_original_is_gone(path: Path, tmp_path: Path) -> None:
    copy, original_id = tmp_path / "copy.db", ledger_id(path)
    shutil.copy(path, copy)
    with pytest.raises(Refused, match=f"{path} still holds the same ledger {original_id}"):
        adopt(copy, How.MOVED, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0)
    assert refusal(copy).code == "copied"
    path.unlink()
    adopted = adopt(copy, How.MOVED, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0)
    assert adopted.ledger_id == original_id and adopted.voided == ()
    opened = open_it(copy)
    assert opened.ledger_id == original_id
    opened.close()


def test_f14_moved_is_refused_while_the_original_cannot_be_told(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    c = connect(path, mode="rw")
    c.execute("PRAGMA user_version = 99")
    c.close()
    with pytest.raises(Refused, match="cannot tell whether"):
        adopt(copy, How.MOVED, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0)


def test_f14_adopted_copy_gets_a_new_id_and_lets_go_of_the_originals_trials(path: Path, tmp_path: Path) -> None:
    c = connect(path, mode="rw")
    fill(c)
    running = bring_to(c, cell(c, "zstd", "plain"), "running")
    scored = bring_to(c, cell(c, "rust", "plain"), "scored")
    let_go(c, scored)
    teardown = bring_to(c, cell(c, "rust", "goal"), "scored")  # done, its container still there
    c.close()
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    adopted = adopt(copy, How.COPY, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0 + 1000)
    assert adopted.voided == (running.trial_id,)
    assert adopted.old_ledger_id == ledger_id(path) != adopted.ledger_id == ledger_id(copy)
    opened = open_it(copy)
    assert opened.ledger_id == adopted.ledger_id
    opened.close()
    c = open_readonly(copy)
    void = c.execute("SELECT code, decided_by, author, counts_pass, from_state FROM v_void").fetchall()
    assert [tuple(row) for row in void] == [("ledger_copied", "daemon", "ana", 0, "running")]
    for table, column in (("claim", "released_at_ms"), ("network_lease", "released_at_ms"), ("container", "gone_at_ms")):
        assert c.execute(f"SELECT count(*) FROM {table} WHERE {column} IS NULL").fetchone()[0] == 0
    states = dict(c.execute("SELECT trial_id, state FROM trial").fetchall())
    assert states == {running.trial_id: "voided", scored.trial_id: "scored", teardown.trial_id: "scored"}
    c.close()
    c = open_readonly(path)  # the original still runs
    assert c.execute("SELECT state FROM trial WHERE trial_id = ?", (running.trial_id,)).fetchone()[0] == "running"
    c.close()


def test_adopting_what_is_in_its_place_changes_nothing(path: Path) -> None:
    before = ledger_id(path)
    assert adopt(path, How.MOVED, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0).ledger_id == before
    held = open_it(path)
    with pytest.raises(LedgerRefused, match="in use by pid"):
        adopt(path, How.COPY, host=HOST, filesystem_type="ext4", author="ana", now_ms=T0)
    held.close()


def test_probe_leaves_nothing(path: Path) -> None:
    place.probe_room(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["ledger.db"]
