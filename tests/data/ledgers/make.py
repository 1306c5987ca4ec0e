"""Makes one of these ledgers; README.md beside it says how.  Runs on the code of that version, so it uses only what every version has."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from support import ledgers as have

from marathond.ledger import migrate
from marathond.ledger.connect import connect
from marathond.ledger.open import create
from marathond.ledger.verbs import findings, runs, settings
from marathond.ledger.writer import in_transaction

HOUR_MS = 3_600_000


def usage(c: sqlite3.Connection, trial_id: int) -> None:
    """What the gateway's journal leaves, where this version has a place for it."""
    if c.execute("SELECT 1 FROM sqlite_master WHERE name = 'model_usage'").fetchone() is not None:
        c.execute(
            "INSERT INTO model_usage (trial_id, account, model, requests, failed, unknown, input_tokens, cached_tokens, output_tokens)"
            " VALUES (?, 'agent', 'gpt-x', 3, 1, 1, 1000, 800, 50)",
            (trial_id,),
        )


def fill(c: sqlite3.Connection) -> None:
    tasks = [have.task(name, network=n % 2 == 0) for n, name in enumerate(("zstd", "rust", "wal", "git; '\"\n", "vim", "sed"))]
    have.fill(c, have.submission(tasks=tasks, replicates=2))
    now_ms = have.T0
    cells = [row[0] for row in c.execute("SELECT cell_id FROM cell ORDER BY cell_id").fetchall()]
    for n, state in enumerate(have.STATES * 2):
        now_ms += 60_000
        admitted = have.bring_to(c, cells[n], state, now_ms=now_ms)
        usage(c, admitted.trial_id)
        if state in ("scored", "review", "voided"):
            have.let_go(c, admitted, now_ms=now_ms + 1000)
    findings.raise_finding(c, code="disk_low", severity="error", subject="/x", detail="d", campaign_id=1, now_ms=now_ms)
    findings.raise_finding(c, code="orphan_container", severity="warning", subject="t1", detail="d", campaign_id=None, now_ms=now_ms)
    findings.close_finding(c, code="orphan_container", subject="t1", now_ms=now_ms + 1)
    settings.set_value(c, "admission.concurrency", old=4, new=8, author="ana", reason="more", now_ms=now_ms)
    settings.observe(c, "waiting", [], now_ms=now_ms)
    runs.mark_ready(c, now_ms=now_ms)
    runs.end_run(c, reason="SIGTERM", now_ms=now_ms)
    have.begin(c, now_ms + HOUR_MS)  # a second life, which was killed
    have.bring_to(c, cells[-1], "running", now_ms=now_ms + HOUR_MS)


def main(target: Path, version: int) -> None:
    assert version in (1, migrate.LATEST), f"this is the code of version {migrate.LATEST}"
    create(target, host="build7", now_ms=have.T0)
    with closing(connect(target, mode="rw")) as c:
        in_transaction(c, "BEGIN IMMEDIATE", lambda: fill(c), str(target))
        if version == 1:  # never alone in one release with the views of 0002, which are all that sets them apart
            for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
                c.execute(f'DROP VIEW "{name}"')
            c.execute("PRAGMA user_version = 1")
        c.execute("PRAGMA journal_mode = DELETE").fetchall()
        c.execute("VACUUM")
        counts = c.execute("SELECT (SELECT count(*) FROM trial), (SELECT count(*) FROM trial_event)").fetchone()
        print(target, "version", version, "trials", counts[0], "events", counts[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
