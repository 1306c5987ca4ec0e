"""A tree of runs as the scripts before this project left it, with everything that went wrong in one.  No test of its own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OTHER_UID = 54_321


@dataclass
class Trial:
    """``files``: of its verifier; ``result`` False: no result.json."""

    name: str
    start: str = "2026-09-01T01:00:00Z"
    end: str | None = "2026-09-01T02:00:00Z"
    files: dict[str, Any] = field(default_factory=lambda: {"reward.txt": "0\n", "metrics.json": {"partial_score": 0.25, "reward": 0}})
    error: tuple[str, str] | None = None
    result: bool = True
    claimed_reward: float = 0.0
    receipt: dict[str, Any] | None = None
    agent: str = "codex_plain"
    model: str | None = "gpt-5.5"
    task: str = "zstd"
    kwargs: dict[str, Any] = field(default_factory=dict)


def put(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def trial_folder(folder: Path, trial: Trial) -> None:
    for name, content in trial.files.items():
        put(folder / "verifier" / name, content)
    put(folder / "agent" / "sessions" / "rollout.jsonl", "{}\n")
    if trial.receipt is not None:
        put(folder / "agent" / "goal_receipt.json", trial.receipt)
    agent = {"name": trial.agent, "model_name": trial.model, "kwargs": trial.kwargs}
    config = {"task": {"path": f"/tasks/{trial.task}"}, "trial_name": trial.name, "agent": agent}
    put(folder / "config.json", config)
    if not trial.result:
        return
    info = None if trial.error is None else {"exception_type": trial.error[0], "exception_message": trial.error[1]}
    document = {
        "id": "0", "task_name": trial.task, "trial_name": trial.name, "trial_uri": "file:///x", "task_id": {"path": f"/tasks/{trial.task}"},
        "task_checksum": "c", "config": config,
        "agent_info": {"name": trial.agent, "version": "1", "model_info": {"name": trial.model, "provider": None} if trial.model else None},
        "agent_result": {"n_input_tokens": 1_000, "n_cache_tokens": 10, "n_output_tokens": 20, "cost_usd": 0.5},
        "verifier_result": {"rewards": {"reward": trial.claimed_reward}}, "exception_info": info,
        "started_at": trial.start, "finished_at": trial.end,
        "agent_execution": {"started_at": "2026-09-01T01:10:00Z", "finished_at": "2026-09-01T01:40:00Z"},
    }  # fmt: skip
    put(folder / "result.json", document)


def job_folder(folder: Path, trials: list[Trial], *, attempts: int = 1, finished: bool = True) -> Path:
    """A Harbor job with its documents, as Harbor counts: every exception is an error."""
    for trial in trials:
        trial_folder(folder / trial.name, trial)
    over = [trial for trial in trials if trial.end is not None and trial.result]
    errors: dict[str, list[str]] = {}
    for trial in over:
        if trial.error is not None:
            errors.setdefault(trial.error[0], []).append(trial.name)
    evals = {"a__m__d": {"reward_stats": {"reward": {"0.0": [t.name for t in over if t.error is None]}}, "exception_stats": errors}}
    stats = {"n_completed_trials": len(over), "n_errored_trials": sum(map(len, errors.values())), "evals": evals}
    end = "2026-09-01T03:00:00Z" if finished else None
    document = {"id": "1", "started_at": "2026-09-01T00:59:00Z", "finished_at": end, "n_total_trials": len(trials), "stats": stats}
    put(folder / "result.json", document)
    put(folder / "config.json", {"job_name": folder.name, "n_attempts": attempts})
    return folder


def run_folder(out: Path, task: str, arm: str, stamp: str, *trials: Trial, job: str | None = None, finished: bool = True) -> Path:
    for trial in trials:
        trial.task = task
    return job_folder(out / task / arm / stamp / (job or arm), list(trials), finished=finished)


def passed(partial: float = 1.0) -> dict[str, Any]:
    return {"reward.txt": "1\n", "metrics.json": {"partial_score": partial, "tests_passed": 8, "tests_total": 10}}


STAMP, LATER = "20260901-0100", "20260901-0500"
POOL = "Docker compose command failed: all predefined address pools have been fully subnetted"


def plant(root: Path) -> Path:
    """The out folder ``marathon-full`` below ``root``, with ``marathon-voided`` beside it."""
    out = root / "marathon-full"
    # An agent at its deadline is an error to Harbor, and was run again by the old rule.
    timeout = Trial("zstd__p1", error=("AgentTimeoutError", "Agent execution timed out after 21600 seconds"), receipt={"_unblock_count": 2})
    run_folder(out, "zstd", "plain", STAMP, timeout)
    # Two valid ones: the later has the better score.
    run_folder(out, "zstd", "goal", STAMP, Trial("zstd__g1"))
    run_folder(out, "zstd", "goal", LATER, Trial("zstd__g2", start="2026-09-01T05:00:00Z", files=passed(), claimed_reward=1.0))
    # The pool was exhausted, then it worked.
    run_folder(out, "zstd", "heartbeat", STAMP, Trial("zstd__h1", error=("RuntimeError", POOL), files={}))
    run_folder(out, "zstd", "heartbeat", LATER, Trial("zstd__h2", start="2026-09-01T05:00:00Z", files=passed()))
    # plain's folder belongs to an earlier run of somebody else, so the script began plain-20481.
    run_folder(out, "stripe", "plain", STAMP, Trial("stripe__root", files=passed()))
    if os.geteuid() == 0:
        for path in (out / "stripe" / "plain", *(out / "stripe" / "plain").rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)
    run_folder(out, "stripe", "plain-20481", STAMP, Trial("stripe__p1", files=passed(0.5)))
    # In work, and given up.
    begun = {"metrics.json": {"phase": "initialized", "partial_score": 0.0, "reward": 0}}
    run_folder(out, "stripe", "goal", STAMP, Trial("stripe__g1", files=begun, result=False, end=None), finished=False)
    run_folder(
        out, "stripe", "heartbeat", STAMP, Trial("stripe__h1", files={**begun, "reward.txt": "0"}, result=False, end=None), finished=False
    )
    put(out / ".claims" / "stripe__goal.claim", "4121\n")
    put(out / ".driver_env", 'GOAL_TIMEOUT_SEC=21600\nexport MARATHON_CONCURRENCY="12"\nOPENAI_API_KEY=sk-secret\n')
    # Half-written, in three ways.
    cut = run_folder(out, "rust", "plain", STAMP, Trial("rust__p1", files=passed()))
    put(cut / "rust__p1" / "result.json", '{"id": "0", "task_name": "ru')
    (cut / "result.json").unlink()
    run_folder(out, "rust", "goal", STAMP, Trial("rust__g1", files={"reward.txt": "1\n", "metrics.json": '{"partial_score": 0.9, "tes'}))
    run_folder(out, "rust", "heartbeat", STAMP, Trial("rust__h1", files={}, claimed_reward=1.0))
    # The class of the timeout that escaped, by its message.
    split = ("NativeGoalProtocolError", "goal_timeout_before_terminal")
    run_folder(out, "rust", "ssh-goal", STAMP, Trial("rust__s1", error=split, files=passed(0.75)))
    # Put aside by name, on two levels; finished, and even BUILD FAILED, is a score.
    run_folder(out, "excel", "plain.excluded-0901", STAMP, Trial("excel__x1", files=passed()), job="plain")
    run_folder(out, "excel", "plain", ".excluded", Trial("excel__x2", files=passed()))
    failed = {"reward.txt": "0", "metrics.json": {"phase": "build_failed", "partial_score": 0.0, "passed": 0, "failed": 9}}
    run_folder(out, "excel", "goal", STAMP, Trial("excel__g1", files=failed))
    # Hostile: links, a pipe, something huge.
    trap = run_folder(out, "excel", "heartbeat", STAMP, Trial("excel__h1", files={"reward.txt": "1"}))
    os.mkfifo(trap / "excel__h1" / "verifier" / "reward.json")
    with (trap / "excel__h1" / "verifier" / "metrics.json").open("wb") as huge:
        huge.truncate(3 << 30)
    (trap / "excel__link").symlink_to(out / "zstd" / "goal" / STAMP / "goal" / "zstd__g1")
    (out / "linked-task").symlink_to(out / "zstd")
    voided = root / "marathon-voided"
    put(voided / "README.md", "# Voided trials\n\nmoved here by hand\n- stripe 20260831-0100: provider outage 02:10 to 02:40\n")
    run_folder(voided, "stripe", "ssh-goal", "20260831-0100", Trial("stripe__v1", start="2026-08-31T01:00:00Z", files=passed()))
    run_folder(voided / "pool", "zstd", "plain", "20260831-0300", Trial("zstd__v1", start="2026-08-31T03:00:00Z", files={}, result=False))
    put(voided / "pool" / "README", "the address pool was exhausted\n")
    return out
