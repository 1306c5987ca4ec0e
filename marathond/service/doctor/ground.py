"""The ground of a scratch ledger: the file, the daemon that seems to live on it, a campaign of which nothing is admitted yet.

Owns its temporary folder, which is removed whatever happens, and what a living daemon says all the time.  Must not know trials.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from marathond import __version__
from marathond.core.audit.rules import RULES
from marathond.core.canonical import canonical_json
from marathond.core.money import Price
from marathond.engine.processes import read_stat
from marathond.ledger.connect import connect, connect_memory, use_wal
from marathond.ledger.migrate import migrate
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import campaigns, findings, networks, runs, settings, usage
from marathond.ledger.verbs.campaigns import Submission
from marathond.ledger.verbs.networks import NetworkSeen
from marathond.service.doctor import planted
from marathond.service.doctor.planted import MODEL, REPLICATES
from marathond.service.treatment import treatment_hash

ENGINE, CAMPAIGN, AUTHOR = "main", "scratch", "doctor"
HOUR_MS, MINUTE_MS = 3_600_000, 60_000
BEGAN_MS = 15 * HOUR_MS
"""How long before now the scratch daemon's life began."""
PRICES = {MODEL: Price(1_250_000_000, 125_000_000, 1_250_000_000, 10_000_000_000)}
TREATMENT: dict[str, object] = {"format": 1, "agent_timeout_s": None, "agent_timeout_multiplier": 1.0, "verifier_timeout_multiplier": 1.0}
PREFIX = "marathond-scratch-"
"""Of the temporary folders; the pid of the process that made it follows."""
Self = TypeVar("Self", bound="Ground")


@functools.cache
def _migrated() -> sqlite3.Connection:
    """What the migrations make, made once a process: only their result is copied."""
    c = connect_memory()
    migrate(c, None)
    return c


def remove_leftovers() -> list[Path]:
    """Scratch folders of processes of ours that were killed; a living one's, and other users', are let alone.  Returns the removed."""
    removed = []
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        try:
            mine = folder.lstat().st_uid == os.geteuid()
        except FileNotFoundError:  # its process ends just now
            continue
        if mine and pid.isdigit() and read_stat(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


class Ground:
    """Of one scratch ledger with one campaign.

    Its daemon "is" this process, and says at ``now_ms`` that all is well.  ``c``: a connection that may write, inside one transaction that
    :meth:`commit` ends and begins anew; another connection sees what was committed.  Removed by :meth:`close`, also as a context manager.
    """

    def __init__(self, *, now_ms: int | None = None, replicates: int = REPLICATES, files: bool = False) -> None:
        """``files``: what is exported is written to out_dir, too, not only to the ledger (slow: hundreds of folders)."""
        self.files = files
        self.now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._numbers, self._begun = itertools.count(1), 0
        try:
            self.path, self.out_dir = self.folder / "ledger.db", self.folder / "out"
            self.control_socket, self.gateway = self.folder / "control.sock", self.folder / "gateway"
            self.ledger_id = "5c7a7c4e0000"
            self.c = self._made()
            self.c.execute("BEGIN IMMEDIATE")
            self.campaign, self.campaign_id = CAMPAIGN, self._fill(replicates)
        except BaseException:
            self.close()
            raise

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Its folder is removed, whatever happened in it."""
        if hasattr(self, "c"):
            self.c.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _made(self) -> sqlite3.Connection:
        c = connect(self.path, mode="rwc")
        use_wal(c, str(self.path))
        _migrated().backup(c)
        status = self.path.stat()
        c.execute(
            "INSERT INTO ledger_identity (singleton, ledger_id, created_at_ms, path, device, inode, host) VALUES (1, ?, ?, ?, ?, ?, ?)",
            (self.ledger_id, self.now_ms - BEGAN_MS, str(self.path), status.st_dev, status.st_ino, socket.gethostname()),
        )
        return c

    def _fill(self, replicates: int) -> int:
        began = self.now_ms - BEGAN_MS
        self.begin_run(now_ms=began)
        networks.set_pool(self.c, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
        campaign_id = self.submit(CAMPAIGN, replicates, now_ms=began)
        usage.meet_journal(self.c, identity="scratch", segment=1, byte=0, last_seq=0, now_ms=began)
        self.all_is_well()
        return campaign_id

    def submit(self, name: str, replicates: int, *, now_ms: int) -> int:
        """A campaign of all arms and tasks; its id."""
        submission = Submission(
            name=name,
            author=AUTHOR,
            treatment_hash=treatment_hash(TREATMENT),
            treatment_json=canonical_json(TREATMENT),
            config_json="{}",
            out_dir=str(self.out_dir),
            seed=7,
            order="replicate-major",
            replicates=replicates,
            arms=planted.arm_rows(),
            tasks=planted.task_rows(),
        )
        return campaigns.submit(self.c, submission, now_ms=now_ms).campaign_id

    def begin_run(self, *, now_ms: int, pid: int | None = None) -> None:
        """A life of the daemon, ready since then; ``pid`` None: this process, so that it is found alive."""
        number = os.getpid() if pid is None else pid
        stat = read_stat(number)
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        ticks = 0 if stat is None else stat.start_ticks
        runs.begin_run(
            self.c, pid=number, pid_start_ticks=ticks, host=socket.gethostname(), boot_id=boot_id, version=__version__, now_ms=now_ms
        )
        runs.mark_ready(self.c, now_ms=now_ms)

    def all_is_well(self, *, ago_ms: int = 0) -> None:
        """Everything that a living daemon says all the time, said so long ago."""
        at = self.now_ms - ago_ms
        runs.mark_seen(self.c, now_ms=at)
        disk = {"path": str(self.folder), "free_bytes": 700 << 30, "total_bytes": 1000 << 30}
        said: Mapping[str, object] = {
            "engine": {"ok": True, "detail": "", "server_version": "28.0.0", "ncpu": 16, "memory_mb": 65_536},
            "disk": [disk],
            "waiting": [],
            "limits": {"admission.concurrency": 12},
            "money": {"models": sorted(PRICES), "campaign_cap_nusd": None, "trial_cap_nusd": None, "expected_trial_nusd": None},
            "audit_look": {"campaign": CAMPAIGN, "rules": len(RULES), "blind": []},
            "clock_offset": {str(self.out_dir): 0},
        }
        for key, value in said.items():
            settings.observe(self.c, key, value, now_ms=at)
        networks.observe_pool(self.c, ENGINE, total=4096, foreign_used=0, host_used=0, now_ms=at)
        seen = NetworkSeen("n1", "other_default", "foreign", "other", "172.20.0.0/16", at)
        networks.replace_networks_seen(self.c, ENGINE, [seen], now_ms=at)

    def commit(self) -> None:
        """For who looks by another connection."""
        self.c.execute("COMMIT")
        self.c.execute("BEGIN IMMEDIATE")

    def reader(self) -> sqlite3.Connection:
        """A read-only connection of its own on what was planted so far; the caller closes it."""
        self.commit()
        return open_readonly(self.path)

    def finding(
        self, code: str, severity: str = "error", subject: str = "somewhere", detail: str = "planted", *, ago_ms: int = 0, times: int = 1
    ) -> int:
        """As whoever raises it would; its number."""
        number = 0
        for _ in range(times):
            number = findings.raise_finding(
                self.c,
                code=code,
                severity=severity,
                subject=subject,
                detail=detail,
                campaign_id=self.campaign_id,
                now_ms=self.now_ms - ago_ms,
            )
        return number

    def observe(self, key: str, value: object, *, ago_ms: int = 0) -> None:
        """The daemon's latest word, said so long ago."""
        settings.observe(self.c, key, value, now_ms=self.now_ms - ago_ms)
