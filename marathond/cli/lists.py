"""``marathonctl findings`` and ``marathonctl review``: what a person has to look at.

Owns the layout of both lists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marathond.cli.output import Column, Screen, clean, number, print_json, say, span, table, text_of, wrapped
from marathond.core.model import trial_label
from marathond.ledger.verbs.findings import FindingRow, open_findings

DETAIL_MAX = 300


@dataclass(frozen=True, slots=True)
class Doubt:
    """An open review."""

    trial_id: int
    campaign: str
    task: str
    arm: str
    replicate: int
    code: str
    detail: str
    opened_at_ms: int
    reward: float | None


def doubts(c: sqlite3.Connection, campaign_id: int | None) -> list[Doubt]:
    """Open reviews, oldest first."""
    rows = c.execute(
        """SELECT review.trial_id, campaign.name, task.name, arm.name, cell.replicate, review.code, review.detail, opened_at_ms,
               (SELECT reward FROM score WHERE score.trial_id = review.trial_id ORDER BY score_id DESC LIMIT 1)
           FROM review JOIN trial ON trial.trial_id = review.trial_id AND trial.state = 'review' JOIN cell ON cell.cell_id = trial.cell_id
               JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
               JOIN campaign ON campaign.campaign_id = cell.campaign_id
           WHERE decided_at_ms IS NULL AND (?1 IS NULL OR cell.campaign_id = ?1) ORDER BY review_id""",
        (campaign_id,),
    )
    return [Doubt(*row) for row in rows.fetchall()]


def show_doubts(rows: Sequence[Doubt], where: Screen, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    if not rows:
        say("nothing to review")
        return
    columns = (
        Column("trial"),
        Column("task", least=12),
        Column("arm", least=8),
        Column("why"),
        Column("for", right=True),
        Column("reward", right=True),
        Column("detail", least=10),
    )
    body = [
        (
            trial_label(row.trial_id),
            clean(row.task),
            clean(row.arm),
            clean(row.code),
            span(now_ms - row.opened_at_ms),
            number(row.reward),
            clean(row.detail, DETAIL_MAX),
        )
        for row in rows
    ]
    for line in table(columns, body, where):
        say(line)
    say("decide: marathonctl review TRIAL --accept --reward R --reason …, or: marathonctl review TRIAL --void --reason …")


def findings(c: sqlite3.Connection) -> list[FindingRow]:
    return open_findings(c)


def show_findings(rows: Sequence[FindingRow], where: Screen, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    if not rows:
        say("no open findings")
        return
    body = [
        (
            str(row.finding_id),
            row.severity.replace("_", "-"),
            clean(row.code),
            clean(row.subject),
            span(now_ms - row.opened_at_ms),
            str(row.times),
            text_of(row.acked_by),
            clean(row.detail, DETAIL_MAX),
        )
        for row in rows
    ]
    columns: list[Column] = [Column("no", right=True), Column("severity"), Column("code"), Column("subject", least=8)]
    columns += [Column("for", right=True), Column("times", right=True), Column("ack")]
    if where.width is None:
        for line in table([*columns, Column("detail")], body, where):
            say(line)
    else:  # beside all that there is no room for what a person must read
        head, *lines = table(columns, [row[:-1] for row in body], where)
        say(head)
        for line, row in zip(lines, body, strict=True):
            say(line)
            for part in wrapped(f"    {row[-1]}", where):
                say(part)
    say("acknowledge: marathonctl ack NO|CODE --reason …")


def unacknowledged_alarm(rows: Sequence[Any]) -> bool:
    return any(row.severity in ("error", "stop_loss") and row.acked_at_ms is None for row in rows)
