"""Facts of a campaign made by hand: a builder for single trials, and a whole clean campaign by a seed.  No test of its own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from marathond.core.audit.facts import Facts, TrialFact

NOW = 1_790_000_000_000
HOUR = 3_600_000
ARMS = ("plain", "goal", "heartbeat", "ssh-goal", "codex-cli")


def trial(trial_id: int, arm: str = "plain", task: str = "zstd", *, replicate: int = 1, **values: Any) -> TrialFact:
    """A scored trial of an arm that asks a model, with everything in order; ``values`` change it."""
    sound: dict[str, Any] = {
        "block_id": replicate,
        "attempt": 1,
        "state": "scored",
        "created_at_ms": NOW - 3 * HOUR,
        "rested_at_ms": NOW - HOUR,
        "infra": False,
        "asks_model": True,
        "ended_by": "agent",
        "budget_ended": False,
        "agent_ms": HOUR,
        "limit_ms": 2 * HOUR,
        "reward": 0.0,
        "partial": 0.5,
        "test_rate": 0.5,
        "image_id": f"sha256:{task}",
        "context_digest": f"c-{task}",
        "requests": 40,
        "failed": 0,
        "bad_requests": 0,
        "input_tokens": 400_000,
        "output_tokens": 9_000,
        "turns": 4,
        "commands": 30,
        "silent_turns": 0,
        "outputs": f"o{trial_id}",
        "outputs_bytes": 5_000,
        "parts": f"p{trial_id}",
        "left": f"l{trial_id}",
        "left_bytes": 5_000,
        "extractor": 2,
        "verifier_rounds": 1,
        "exported": True,
    }
    return TrialFact(trial_id=trial_id, task=task, arm=arm, replicate=replicate, **(sound | values))


def facts(trials: Iterable[TrialFact] = (), arms: Sequence[str] = ("plain", "goal"), **values: Any) -> Facts:
    """A campaign under a daemon that lives and says all that it says."""
    rows = tuple(trials)
    tasks = tuple(sorted({row.task for row in rows})) or ("zstd",)
    sound: dict[str, Any] = {
        "campaign_id": 1,
        "campaign": "x",
        "now_ms": NOW,
        "arms": tuple(arms),
        "tasks": tasks,
        "cells": len({(row.task, row.arm, row.replicate) for row in rows}),
        "trials": rows,
        "observations": words(),
        "wal_bytes": 4 << 20,
        "kinds": dict.fromkeys(arms, "codex"),
        "context_digests": {task: f"c-{task}" for task in tasks},
        "pool_caps": {"main": 64},
        "hour_requests": 400,
        "hour_failed": 2,
        "daemon_alive": True,
        "daemon_up_ms": 5 * HOUR,
    }
    return Facts(**(sound | values))


def words(**changed: tuple[object, int] | None) -> dict[str, tuple[object, int]]:
    """The daemon's latest ones; ``disk=None`` leaves that one out."""
    disk = [{"path": "/srv", "free_bytes": 1 << 40, "total_bytes": 1 << 41}]
    said: dict[str, tuple[object, int] | None] = {
        "engine": ({"ok": True}, 4_000),
        "waiting": ([], 2_000),
        "disk": (disk, 2_000),
        "clock_offset": ({"/srv": 0, "/out": 3}, 1_800_000),
    }
    return {key: value for key, value in (said | changed).items() if value is not None}


def clean(seed: int, *, replicates: int = 5, tasks: int = 20, arms: Sequence[str] = ARMS, share: float = 1.0) -> Facts:
    """Arms alike, tasks unlike: hard ones and easy ones, builds that fail, budgets that end, an attempt that the infrastructure spoiled now
    and then.  The first ``share`` of its cells is done; a few more run.
    """
    rng = random.Random(seed)
    ease = [rng.random() ** 2 for _ in range(tasks)]
    breaks = [rng.choice((0.0, 0.02, 0.1)) for _ in range(tasks)]
    blocks = [(replicate, number) for replicate in range(1, replicates + 1) for number in range(tasks)]
    rng.shuffle(blocks)
    cells = [(block, replicate, number, arm) for block, (replicate, number) in enumerate(blocks, 1) for arm in arms]
    rows: list[TrialFact] = []
    done = int(len(cells) * share)
    for place, (block, replicate, number, arm) in enumerate(cells[: done + 8]):
        common: dict[str, Any] = {"task": f"task-{number:02d}", "replicate": replicate, "block_id": block}
        attempt = 1
        if rng.random() < 0.03:
            void = {"void_code": "container_failed", "void_side": "infrastructure", "void_by": "daemon", "score_known": False}
            rows.append(_bare(trial(len(rows) + 1, arm, **common, state="voided", infra=True, **void)))
            attempt = 2
        if place >= done:
            rows.append(_bare(trial(len(rows) + 1, arm, **common, attempt=attempt, state="running", rested_at_ms=None, exported=False)))
            continue
        rows.append(_done(trial(len(rows) + 1, arm, **common, attempt=attempt), rng, ease[number], breaks[number]))
    return facts(rows, arms, cells=len(cells), tasks=tuple(f"task-{number:02d}" for number in range(tasks)))


def _bare(row: TrialFact) -> TrialFact:
    """What no trial has before it is graded."""
    nothing: dict[str, Any] = dict.fromkeys(("reward", "partial", "test_rate", "outputs", "parts", "left", "turns", "extractor"))
    return replace(row, **nothing, ended_by=None, budget_ended=None)


def _done(row: TrialFact, rng: random.Random, ease: float, breaks: float) -> TrialFact:
    rate = min(1.0, max(0.0, rng.gauss(ease, 0.2)))
    budget = rng.random() < 0.2
    row = replace(row, budget_ended=budget, ended_by="deadline" if budget else "agent", verifier_rounds=1)
    if rng.random() < breaks:
        return replace(row, reward=0.0, partial=0.0, test_rate=None, flags=("build_failed",), parts="none")
    if rng.random() < 0.01:
        row = replace(row, verify_agains=("deadline",), verifier_rounds=2, flags=("verified_again",))
    solved = rate > 0.8
    return replace(row, reward=float(solved), partial=rate, test_rate=rate, requests=rng.randint(20, 200), failed=rng.randint(0, 2))
