"""What of the configuration a start passed over, where a person sees it: a finding each.

Owns the finding ``config_left_out``.  Must not know what fits (service/taskpaths.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import structlog

from marathond.core.errors import ConfigError
from marathond.ledger.verbs import findings

CODE = "config_left_out"

log = structlog.get_logger("marathond")


def record(c: sqlite3.Connection, found: Sequence[ConfigError], *, campaign_id: int, now_ms: int) -> None:
    """Open a finding for each, and close those of what fits by now, and of another campaign's configuration: this one's counts now.

    A submission refuses what fits nothing.  A start goes on without it, for running agents must not lose their daemon over a path of a disk
    to come or a mistyped name (systemd does not start again what ended over its configuration); then `status` has to say so.
    """
    told = {each.what: each for each in found}
    for row in findings.open_findings(c):
        if row.code == CODE and (row.subject not in told or row.campaign_id != campaign_id):
            findings.close_finding(c, code=CODE, subject=row.subject, now_ms=now_ms)
    for subject, each in told.items():
        log.warning(CODE, why=str(each))
        detail = f"{each.where}: {each.expected}; left out" if each.where else f"{each.expected}; left out"
        findings.raise_finding(c, code=CODE, severity="warning", subject=subject, detail=detail, campaign_id=campaign_id, now_ms=now_ms)
