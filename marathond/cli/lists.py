"""``marathonctl review``: doubtful trials that a person has to decide.

Owns the layout of the list.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from marathond.cli.output import Column, Screen, clean, number, print_json, say, span, table
from marathond.core.model import trial_label

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
