"""Whose life a take-over may end (fault f10)."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from marathond.core.errors import Refused
from marathond.engine.processes import Stat, read_stat
from marathond.ledger import lock
from marathond.ledger.lock import Holder
from marathond.ports.clock import SystemClock
from marathond.service.takeover import Here, LastLife, Target, is_it, take_over, whom
from tests.support.ledgers import file_ledger

FORK = multiprocessing.get_context("fork")

LEDGER, HERE = Path("/s/ledger.db"), Here(900, "build7", "boot-2")
SAID = Holder(41, "build7", 5, 77, "boot-2")
LIFE = LastLife(41, 77, "build7", "boot-2", 6, True)


@pytest.mark.parametrize(
    ("held", "said", "last", "whose"),
    [
        (True, SAID, LIFE, Target(41, 77, 5)),
        (True, SAID, None, Target(41, 77, 5)),
        (True, Holder(41, "build7", 5), LIFE, Target(41, 77, 5)),  # an older version's lock file: the ledger knows the start
        (False, SAID, None, None),
        (False, SAID, LastLife(41, 77, "build7", "boot-2", 6, False), None),  # it has ended
        (False, SAID, LastLife(41, 77, "build7", "boot-1", 6, True), None),  # it ended with its boot
        (False, None, LastLife(41, 77, "other", "boot-2", 6, True), None),
        (False, None, LIFE, Target(41, 77, 6)),  # the lock file was removed under it
    ],
)
def test_f10_whose_life_is_to_be_ended(held: bool, said: Holder | None, last: LastLife | None, whose: Target | None) -> None:
    assert whom(LEDGER, held, said, last, HERE) == whose


@pytest.mark.parametrize(
    ("said", "last", "words"),
    [
        (None, LIFE, "does not say by whom: find it \\(fuser -v /s/ledger.db.lock\\)"),
        (Holder(41, "other", 5, 77, "boot-2"), LIFE, "on host other, this is build7: stop marathond there"),
        (Holder(41, "build7", 5, 77, "boot-1"), LIFE, "an earlier boot"),
        (Holder(41, "build7", 5, 77, "boot-2", "marathonctl import"), LIFE, "in use by marathonctl import .* wait for its end"),
        (Holder(41, "build7", 5), None, "nothing says when that process began"),
        (Holder(42, "build7", 5), LIFE, "nothing says when that process began"),
        (Holder(41, "build7", 5), LastLife(41, 77, "build7", "boot-1", 6, True), "nothing says when"),
    ],
)
def test_f10_who_must_not_be_ended(said: Holder | None, last: LastLife | None, words: str) -> None:
    with pytest.raises(Refused, match=words):
        whom(LEDGER, True, said, last, HERE)


@pytest.mark.parametrize(
    ("seen", "it"),
    [
        (Stat("S", 1, 41, 3, 77), True),
        (Stat("T", 1, 41, 3, 77), True),
        (Stat("S", 1, 41, 3, 78), False),  # the pid was used again
        (Stat("Z", 1, 41, 1, 77), False),
        (None, False),
    ],
)
def test_f10_a_pid_alone_is_nobody(seen: Stat | None, it: bool) -> None:
    assert is_it(Target(41, 77, 5), seen) is it


def _as_nobody(ledger: Path, said: Connection) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        take_over(ledger, Here(os.getpid(), socket.gethostname(), SystemClock().boot_id))
    except Refused as refused:
        said.send(str(refused))
    else:
        said.send("done")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where any user may read and write: the ledger's own modes are not what refuses."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o777)
        yield Path(made)


def test_a_holder_of_another_user_is_refused_and_goes_on(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's process needs root")
    ledger = open_folder / "ledger.db"
    file_ledger(ledger, host=socket.gethostname(), now_ms=1)
    ledger.chmod(0o666)
    with subprocess.Popen(["sleep", "1000"]) as holder:
        try:
            stat = read_stat(holder.pid)
            assert stat is not None
            boot_id = SystemClock().boot_id
            held = lock.acquire(ledger, pid=holder.pid, host=socket.gethostname(), now_ms=1, start_ticks=stat.start_ticks, boot_id=boot_id)
            ours, theirs = FORK.Pipe()
            process = FORK.Process(target=_as_nobody, args=(ledger, theirs))
            process.start()
            assert ours.poll(60) and f"pid {holder.pid} holds the ledger and must not be signalled by this user" in ours.recv()
            process.join()
            assert holder.poll() is None
            held.release()
        finally:
            holder.kill()
