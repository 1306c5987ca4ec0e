"""Results of a campaign without a ledger: for what computes with them and what prints them.  No test of its own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from marathond.core.results import ArmResult, CellResult, Contrast, DisclosureResult, FindingResult, Results, VoidResult, columns

T0 = 1_790_000_000_000
"""2026-09-21T14:13:20Z."""
ARMS = ("plain", "goal", "ssh-goal", "codex-cli", "heartbeat")
ENDINGS = ("agent", "agent", "agent", "deadline", "turn_cap")


def a_cell(task: str, arm: str, replicate: int = 1, reward: float | None = 1.0, *, state: str = "done", **more: Any) -> CellResult:
    """A cell; what is not given is not known.  One that is not ``done`` has no score."""
    known = {"reward": reward, "trial": f"t-{task}-{arm}-{replicate}", "attempts": 1} if state == "done" else {}
    return CellResult(**{"task": task, "arm": arm, "replicate": replicate, "state": state, "block_id": replicate, **known, **more})


def some_results(cells: Iterable[CellResult], **more: Any) -> Results:
    """Results over these cells: arms and tasks as they occur, and whatever else is given by name."""
    cells = tuple(cells)
    arms, tasks = list(dict.fromkeys(cell.arm for cell in cells)), sorted({cell.task for cell in cells})
    given: dict[str, Any] = {
        "ledger_id": "0123456789ab",
        "campaign": "some",
        "origin": "run",
        "treatment_hash": "sha256:" + "a" * 64,
        "benchmark": None,
        "as_of_ms": T0 + 86_400_000,
        "replicates": max((cell.replicate for cell in cells), default=1),
        "arms": tuple(ArmResult(arm, "codex", place, f"sha256:{place:064x}", "gpt-x") for place, arm in enumerate(arms, start=1)),
        "tasks": tuple(tasks),
        "cells": cells,
        "columns": columns(cells, None, None),
    }
    return Results(**{**given, **more})


def rewards(task: str, by_arm: dict[str, Sequence[float | None]]) -> list[CellResult]:
    """Cells of one task: arm → its replicates' rewards, in order; None: an open cell."""
    return [
        a_cell(task, arm, replicate, reward, state="open" if reward is None else "done")
        for arm, values in by_arm.items()
        for replicate, reward in enumerate(values, start=1)
    ]


def a_campaign(*, tasks: int = 20, arms: Sequence[str] = ARMS, replicates: int = 5, seed: int = 1, whole: bool = False) -> Results:
    """A seeded campaign that has everything a report may meet: missing cells of each state, voids of each kind, findings, disclosures.

    :param whole: every cell is done and there is nothing to tell.
    """
    dice = random.Random(seed)
    names = [f"task-{n:02d}" for n in range(1, tasks + 1)]
    cells = [
        _a_trial(dice, task, arm, replicate, hardness=(at + 1) / (tasks + 1), block=at * replicates + replicate, whole=whole)
        for at, task in enumerate(names)
        for arm in arms
        for replicate in range(1, replicates + 1)
    ]
    contrasts = tuple(Contrast(arm, arms[0], T0, 0) for arm in arms[1:])
    if whole:
        return some_results(cells, campaign="whole", contrasts=contrasts)
    voids = [
        _a_void(cells[3], "model_failed", "infrastructure", known=False),
        _a_void(cells[8], "operator", "operator", known=True, reward=0.0, kept_reward=cells[8].reward),
        replace(_a_void(cells[9], "provider", "operator", known=True, reward=1.0), standing=False),
    ]
    findings = [
        FindingResult("infra_disparity", "stop_loss", arms[-1], "7 voids of 12, others 2 of 40", T0 + 1, T0 + 2, "ana", "mended", "x"),
        FindingResult("treatment_unused", "warning", "t0008", "LoopX was not called", T0 + 3, None, None, None, "some"),
        FindingResult("disk_low", "error", "disk:/", "4 % free", T0 + 4, None, None, None, None),
    ]
    return some_results(
        cells,
        contrasts=contrasts,
        voids=tuple(voids),
        findings=tuple(findings),
        disclosures=(DisclosureResult("goals_on", arms[1], "goals are on", "plain, where they are off"),),
        disclosure_version=1,
        spent_usd={arm: 123.45 + at for at, arm in enumerate(arms)},
        voids_usd={arms[0]: 7.5},
        unpriced={arms[-1]: 3},
    )


def _a_trial(dice: random.Random, task: str, arm: str, replicate: int, *, hardness: float, block: int, whole: bool) -> CellResult:
    state = "done" if whole else dice.choices(("done", "open", "parked", "review", "claimed"), (90, 4, 2, 2, 2))[0]
    if state != "done":
        park = "task_unsupported" if state == "parked" else None
        return a_cell(task, arm, replicate, state=state, block_id=block, park_code=park, review_code="d02" if state == "review" else None)
    total, limit_s = 40, 3600.0
    passed = min(total, max(0, round(total * dice.gauss(1.05 - hardness, 0.15))))
    reward, ended_by = float(passed == total), dice.choice(ENDINGS)
    broken = passed == 0
    output = dice.randrange(10_000, 400_000)
    given = dice.randrange(100_000, 9_000_000)
    return a_cell(
        task,
        arm,
        replicate,
        reward,
        block_id=block,
        partial=round(passed / total, 3),
        test_rate=passed / total,
        tests_passed=passed,
        tests_total=total,
        flags=("build_failed",) if broken else (),
        ended_by=ended_by,
        budget_ended=ended_by != "agent",
        agent_s=limit_s if ended_by == "deadline" else round(dice.uniform(60, limit_s), 1),
        limit_s=limit_s,
        input_tokens=given,
        cached_tokens=given // 2,
        output_tokens=output,
        tokens=given + output,
        cost_usd=None if dice.random() < 0.05 else round(given / 1e6, 2),
        scored_at_ms=T0 + block * 600_000 + dice.randrange(500_000),
        attempts=1,
    )


def _a_void(
    cell: CellResult, code: str, side: str, *, known: bool, reward: float | None = None, kept_reward: float | None = None
) -> VoidResult:
    return VoidResult(
        trial=f"t-{cell.task}-{cell.arm}-{cell.replicate}-void",
        task=cell.task,
        arm=cell.arm,
        replicate=cell.replicate,
        code=code,
        side=side,
        reason="the provider was away",
        decided_by="operator" if side == "operator" else "daemon",
        author="ana" if side == "operator" else "daemon",
        at_ms=T0 + 1_000,
        score_was_known=known,
        standing=True,
        reward=reward,
        kept_reward=kept_reward,
    )
