"""A command in a trial's container is asked of the daemon first, which writes it down with the kernel's word for who."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import Any

import pytest

from marathond.cli.exec import record
from marathond.service.exits import CallFailed
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig, now_ms

ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """t0001 is running; a server that answers."""
    with living_rig(monkeypatch, capsys) as rig:
        with rig.sql() as c:
            have.bring_to(c, have.cell(c), "running", now_ms=now_ms())
        with rig.serving():
            yield rig


def one(rig: Rig, sql: str) -> tuple[Any, ...]:
    with rig.sql() as c:
        return tuple(c.execute(sql).fetchone())


def test_the_daemon_writes_down_who_is_about_to_run_what(rig: Rig) -> None:
    lives = one(rig, "SELECT max(run_id) FROM run")
    record(rig.socket, rig.ledger, 1, ["sh", "-c", "kill -9 1; " + "x" * 1_000], user="root")
    name, value, origin = one(rig, "SELECT name, value, origin FROM trial_fact WHERE trial_id = 1 AND name LIKE 'exec %'")
    assert (name, origin) == ("exec 001", f"person {ME}")
    assert value.startswith("running as root: sh -c 'kill -9 1; xxx") and len(value) < 330
    assert one(rig, "SELECT max(run_id) FROM run") == lives  # in its own life: none was begun beside it
    assert f"reached_into by {ME}: running as root: sh -c" in rig.ask("history")
    assert f"reached_into by {ME}: running as root: sh -c" in rig.ask("tail")


def test_what_cannot_be_written_down_is_refused(rig: Rig) -> None:
    with pytest.raises(CallFailed, match="no container"):
        record(rig.socket, rig.ledger, 3, ["true"], user=None)
    assert one(rig, "SELECT count(*) FROM finding WHERE code = 'reached_into'") == (0,)
