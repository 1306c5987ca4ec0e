"""Faults for the rules about the house, planted in scratch ledgers.

Owns one plant per code of ``core/audit/house.py``, each the least that its rule must see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from marathond.core.audit import house
from marathond.service.doctor.ground import HOUR_MS
from marathond.service.doctor.planted import ARMS, TASKS, Usage
from marathond.service.doctor.scratch import Scratch

TASK = TASKS[0]


def leases_leaked(scratch: Scratch) -> None:
    """A network that could not be removed two hours ago, and cannot be yet."""
    scratch.trial(task=TASK, arm=ARMS[0], rested_at_ms=scratch.now_ms - 2 * HOUR_MS, leaked=True)


def wal_large(scratch: Scratch) -> None:
    """The log as large as a reader of a whole night leaves it; nothing is written into the space, so that it takes none on the disk."""
    scratch.commit()
    os.truncate(scratch.path.with_name(scratch.path.name + "-wal"), house.WAL_BYTES + 4096)


def gateway_errors(scratch: Scratch) -> None:
    """A provider that answers every third request with 502, whoever asks."""
    for arm in ARMS[:3]:
        scratch.trial(task=TASK, arm=arm, usage=Usage(statuses=(200, 200, 502) * 14, error_type="server_error"))


def review_backlog(scratch: Scratch) -> None:
    """A doubtful trial that nobody has looked at for two days."""
    scratch.trial(task=TASK, arm=ARMS[0], state="review", rested_at_ms=scratch.now_ms - 48 * HOUR_MS)


def findings_unacked(scratch: Scratch) -> None:
    scratch.finding("engine_blind", subject="main", ago_ms=house.UNACKED_MS + HOUR_MS)


def daemon_blind(scratch: Scratch) -> None:
    """The loop that admits has hung; the process and its sweeper live."""
    scratch.observe("waiting", [], ago_ms=HOUR_MS)


def disk_unseen(scratch: Scratch) -> None:
    """Looked at just now, and no file system was seen."""
    scratch.observe("disk", [])


def clock_unseen(scratch: Scratch) -> None:
    """The folder of the artifacts did not answer (fault e05: its clock may be anything)."""
    scratch.observe("clock_offset", {str(scratch.out_dir): None})


def exports_behind(scratch: Scratch) -> None:
    """An exporter that died without a word."""
    scratch.trial(task=TASK, arm=ARMS[0], rested_at_ms=scratch.now_ms - HOUR_MS, export=None)


def receipts_missing(scratch: Scratch) -> None:
    """A graded codex trial without a receipt (fault e03: its field was renamed, and no receipt fits any more)."""
    scratch.trial(task=TASK, arm=ARMS[0], rested_at_ms=scratch.now_ms - HOUR_MS, receipt=None)


def usage_missing(scratch: Scratch) -> None:
    """An agent that had turns, and a gateway that counted no request of it (fault e01: it looks at the wrong place)."""
    scratch.trial(task=TASK, arm=ARMS[0], rested_at_ms=scratch.now_ms - HOUR_MS, usage=None)


PLANTS: Mapping[str, Callable[[Scratch], None]] = {
    plant.__name__: plant
    for plant in (
        leases_leaked,
        wal_large,
        gateway_errors,
        review_backlog,
        findings_unacked,
        daemon_blind,
        disk_unseen,
        clock_unseen,
        exports_behind,
        receipts_missing,
        usage_missing,
    )
}
