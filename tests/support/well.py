"""A house in which every source is alive, as a scratch ledger with its gateway's files.  No test of its own."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from marathond.core.names import trial_label
from marathond.core.notices import Notice
from marathond.core.paths import DaemonPaths
from marathond.gateway import files
from marathond.gateway.files import Ack, Listener
from marathond.ledger.verbs import notices, usage
from marathond.ports.clock import SystemClock
from marathond.service.doctor.scratch import Scratch

REPLICATES = 2


@contextmanager
def well() -> Iterator[Scratch]:
    """A campaign half done: two trials run, everything speaks."""
    with Scratch(replicates=REPLICATES, files=True) as scratch:
        scratch.clean(replicates=[1])
        for arm in ("plain", "goal"):
            open_way(scratch, scratch.trial(arm=arm, state="running"))
        alive(scratch)
        journal(scratch)
        told(scratch)
        scratch.commit()
        yield scratch


def paths(scratch: Scratch) -> DaemonPaths:
    return DaemonPaths(scratch.folder, scratch.out_dir, scratch.path, scratch.control_socket)


def alive(scratch: Scratch, *, ago_ms: int = 0) -> None:
    """The gateway's sign of life."""
    clock = SystemClock()
    scratch.gateway.mkdir(exist_ok=True)
    files.write_json(scratch.gateway / "alive.json", {"boot_id": clock.boot_id, "mono_ms": clock.mono_ms() - ago_ms, "waiting": {}})


def open_way(scratch: Scratch, trial_id: int, *, state: files.AckState = "listening", code: str = "") -> None:
    """A listener that was asked for, and the gateway's answer."""
    name, boot_id = trial_label(trial_id), SystemClock().boot_id
    (scratch.gateway / "listeners").mkdir(parents=True, exist_ok=True)
    (scratch.gateway / "acks").mkdir(exist_ok=True)
    listener = Listener(
        name=name,
        version=1,
        trial=name,
        account="agent",
        container_id=f"id-{trial_id}",
        started_at="2026-09-21T14:13:21.5Z",
        pid=1,
        start_ticks=1,
        boot_id=boot_id,
        port=8790,
        key_sha256=hashlib.sha256(b"key").hexdigest(),
        route="main",
        network="public",
    )
    files.write_listener(scratch.gateway, listener)
    told = Ack(
        name=name,
        version=1,
        state=state,
        code=code,
        detail="",
        container_id=listener.container_id,
        started_at=listener.started_at,
        port=8790,
        life="1",
        mono_ms=1,
    )
    files.write_json(files.ack_path(scratch.gateway, name), asdict(told))


def journal(scratch: Scratch, *, more: int = 0, old_s: float = 0.0) -> Path:
    """The journal's segment, as long as the ledger has read it and ``more`` bytes; last written ``old_s`` ago."""
    row = usage.journal(scratch.c)
    assert row is not None
    path = scratch.gateway / "journal" / f"{row.segment:08d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * (row.byte + more))
    at = time.time() - old_s
    os.utime(path, (at, at))
    return path


def told(scratch: Scratch, *, ok: bool = True) -> None:
    """One notice over one channel."""
    key = f"finding:{scratch.c.execute('SELECT count(*) FROM notice').fetchone()[0]}"
    number = notices.intend(scratch.c, Notice(key, "test", "t", ""), {"title": "t"}, channels=["command"], now_ms=scratch.now_ms - 1_000)
    assert number is not None
    notices.tried(scratch.c, number, "command", ok=ok, last=not ok, answer="exit 0" if ok else "exit 7", now_ms=scratch.now_ms - 500)
