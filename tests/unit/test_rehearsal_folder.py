"""Whose a rehearsal's folder is: its process, or whoever holds its ledger's lock; never how old it looks (faults e05, f02)."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from marathond.engine.processes import read_stat
from marathond.ledger.open import create
from marathond.ports.clock import SystemClock
from marathond.service.rehearsal import OWNER, _abandoned, _myself

HOUR_S = 3600


def dead() -> str:
    """A process that has ended."""
    process = subprocess.Popen(["sleep", "60"])
    seen = read_stat(process.pid)
    assert seen is not None
    process.kill()
    process.wait()
    return f"{SystemClock().boot_id} {process.pid} {seen.start_ticks}\n"


def of_another_boot() -> str:
    return "another " + _myself().split(" ", 1)[1]


def reused() -> str:
    """This pid, of a process that began at another time."""
    return f"{SystemClock().boot_id} {os.getpid()} 1\n"


@pytest.mark.parametrize("age_s", [-2 * HOUR_S, 0, 1000 * HOUR_S])
@pytest.mark.parametrize(
    ("owner", "abandoned"), [(_myself, False), (dead, True), (of_another_boot, True), (reused, True), (lambda: "torn", True), (None, True)]
)
def test_e05_a_rehearsal_is_its_process_s_whatever_the_folder_s_time_says(tmp_path: Path, owner, abandoned: bool, age_s: int) -> None:
    ledger_id = create(tmp_path / "ledger.db", host=socket.gethostname(), now_ms=1)
    if owner is not None:
        (tmp_path / OWNER).write_text(owner())
    when = SystemClock().wall_ms() / 1000 - age_s
    os.utime(tmp_path, (when, when))
    assert _abandoned(tmp_path) == (ledger_id if abandoned else None)


def test_f02_a_folder_without_a_ledger_is_left_to_whoever_makes_it(tmp_path: Path) -> None:
    (tmp_path / OWNER).write_text(dead())
    assert _abandoned(tmp_path) is None
