"""A ledger on disk with a campaign of any size that has been run: for the report's own tests and its bench.  No test of its own.

Made by the real migrations and verbs (:mod:`marathond.service.doctor.scratch`), from a seed: the same arguments give the same report.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from marathond.core.canonical import canonical_json
from marathond.ledger.verbs import campaigns, contrasts
from marathond.ledger.verbs.campaigns import Submission
from marathond.service.doctor import planted
from marathond.service.doctor.ground import AUTHOR, CAMPAIGN, TREATMENT
from marathond.service.doctor.planted import Usage
from marathond.service.doctor.scratch import Scratch
from marathond.service.treatment import treatment_hash

NOW_MS = 1_790_000_000_000
ARMS = ("plain", "goal", "ssh-goal", "codex-cli", "heartbeat")
ENDINGS = ("agent", "agent", "agent", "deadline", "turn_cap")


class ReportLedger(Scratch):
    """``tasks``, ``arms``: how many; arms beyond the first are contrasted with it."""

    def __init__(self, *, tasks: int, arms: Sequence[str] = ARMS, replicates: int = 5) -> None:
        self._tasks, self._arms = [f"task-{number:02d}" for number in range(1, tasks + 1)], list(arms)
        super().__init__(now_ms=NOW_MS, replicates=replicates)

    def submit(self, name: str, replicates: int, *, now_ms: int) -> int:
        a_task, an_arm = planted.task_rows()[0], planted.arm_rows()[0]
        wanted = Submission(
            name=name,
            author=AUTHOR,
            treatment_hash=treatment_hash(TREATMENT),
            treatment_json=canonical_json(TREATMENT),
            config_json="{}",
            out_dir=str(self.out_dir),
            seed=7,
            order="replicate-major",
            replicates=replicates,
            arms=tuple(replace(an_arm, name=arm) for arm in self._arms),
            tasks=tuple(replace(a_task, name=task, path=f"tasks/{task}") for task in self._tasks),
        )
        campaign_id = campaigns.submit(self.c, wanted, now_ms=now_ms).campaign_id
        pairs = [(arm, self._arms[0]) for arm in self._arms[1:]]
        contrasts.declare(self.c, campaign_id, pairs, author=AUTHOR, now_ms=now_ms)
        return campaign_id


def report_ledger(*, tasks: int = 20, arms: Sequence[str] = ARMS, replicates: int = 5, seed: int = 3) -> ReportLedger:
    """Most cells done, some open, some in review, voids of each kind, findings: committed; the caller closes it."""
    scratch, dice = ReportLedger(tasks=tasks, arms=arms, replicates=replicates), random.Random(seed)
    try:
        for at, task in enumerate(scratch._tasks):
            for replicate in range(1, replicates + 1):
                for arm in arms:
                    _fill(scratch, dice, task, arm, replicate, (at + 1) / (tasks + 1))
        scratch.finding("treatment_unused", "warning", arms[-1], "LoopX was not called")
        scratch.commit()
    except BaseException:
        scratch.close()
        raise
    return scratch


def _fill(scratch: ReportLedger, dice: random.Random, task: str, arm: str, replicate: int, hardness: float) -> None:
    chance = dice.random()
    if chance < 0.04:
        return
    if chance < 0.06:
        scratch.trial(task=task, arm=arm, replicate=replicate, state="review")
        return
    if chance < 0.09:
        scratch.trial(task=task, arm=arm, replicate=replicate, state="voided")
    elif chance < 0.11:
        scratch.trial(task=task, arm=arm, replicate=replicate, state="voided", void_code="operator", reward=0.0)
    total = 40
    passed = min(total, max(0, round(total * dice.gauss(1.05 - hardness, 0.15))))
    scratch.trial(
        task=task,
        arm=arm,
        replicate=replicate,
        reward=float(passed == total),
        partial=round(passed / total, 3),
        tests=(passed, total),
        flags=() if passed else ("build_failed",),
        ended_by=dice.choice(ENDINGS),
        agent_ms=dice.randrange(60_000, 3_500_000),
        usage=Usage(requests=1, input_tokens=dice.randrange(100_000, 9_000_000), output_tokens=dice.randrange(10_000, 400_000)),
    )


__all__ = ["ARMS", "CAMPAIGN", "ReportLedger", "report_ledger"]
