"""The documents of one campaign, which Harbor calls a job.

Owns counts, means and the README.  Must not know how a trial's own documents look.
"""

from __future__ import annotations

import glob
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from marathond.core.names import trial_label
from marathond.core.text import iso_utc, printable
from marathond.tasks.layout.names import dataset, job_uuid, trial_folder
from marathond.tasks.layout.pieces import agent_config, arm_facts, iso, json_bytes, model_info, row, token_counts
from marathond.tasks.layout.views import JobView, TrialLine

_SHOWN = 200


def job_documents(view: JobView) -> dict[str, bytes]:
    """``config.json``, ``result.json``, ``disclosures.json`` and ``README.txt`` for ``<out>/<campaign>/``.

    ``n_completed_trials`` counts every trial at rest and ``n_errored_trials`` those without a valid score (voided, in review), as Harbor
    counts them from the trials' own documents.  Means are over valid scores only: Harbor's own count a missing reward as 0.

    :raises ValueError: a trial that is not exactly one of scored, voided, in review.
    """
    for line in view.trials:
        if sum(value is not None for value in (line.reward, line.void_code, line.review_code)) != 1:
            raise ValueError(f"{trial_label(line.trial_id)}: expected exactly one of reward, void code, review code")
    trials = sorted(view.trials, key=lambda line: line.trial_id)
    result = {
        "schema_version": 1,
        "id": job_uuid(view.ledger_id, view.campaign_id),
        "started_at": iso_utc(view.created_at_ms),
        "updated_at": iso_utc(max([view.created_at_ms, *(line.changed_at_ms for line in trials)])),
        "finished_at": iso(view.finished_at_ms),
        "n_total_trials": len(trials) + view.running + view.pending,
        "stats": {
            "n_completed_trials": len(trials),
            "n_errored_trials": sum(line.reward is None for line in trials),
            "n_running_trials": view.running,
            "n_pending_trials": view.pending,
            "n_cancelled_trials": 0,
            "n_retries": sum(line.attempt > 1 for line in trials),
            "evals": _evals(trials),
            **_tokens(trials),
        },
    }
    return {
        "config.json": json_bytes(_job_config(view)),
        "result.json": json_bytes(result),
        "disclosures.json": json_bytes(_disclosures(view)),
        "README.txt": _readme(view),
    }


def _disclosures(view: JobView) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "ledger": view.ledger_id,
        "campaign": view.campaign,
        "version": view.told_version,
        "at": iso(view.told_at_ms),
        "disclosures": [row(each) for each in view.disclosures],
    }


def _tokens(trials: Iterable[TrialLine]) -> dict[str, Any]:
    """Sums as Harbor makes them: the cost is of those trials alone whose cost is all known."""
    counts = [token_counts(line.usage) for line in trials if line.usage is not None]
    if not counts:
        return {}
    costs = [each.pop("cost_usd") for each in counts]
    known = [cost for cost in costs if cost is not None]
    return {**{key: sum(each[key] for each in counts) for key in counts[0]}, "cost_usd": math.fsum(known) if known else None}


def _job_config(view: JobView) -> dict[str, Any]:
    datasets: dict[str, list[str]] = defaultdict(list)
    for task in view.tasks:
        path = PurePosixPath(task.path)
        datasets[str(path.parent)].append(glob.escape(path.name))  # Harbor reads task names as patterns
    return {
        "schema_version": 1,
        "job_name": view.campaign,
        "jobs_dir": view.out_dir,
        "n_attempts": view.replicates,
        "n_concurrent_trials": max(view.concurrency, 1),
        "environment": {"type": "docker"},
        "agents": [agent_config(arm) for arm in view.arms],
        "datasets": [{"path": folder, "task_names": sorted(names)} for folder, names in sorted(datasets.items())],
        # Harbor ignores keys that it does not know.
        "marathond": {
            "ledger": view.ledger_id,
            "campaign": view.campaign,
            "created_by": view.created_by,
            "treatment_hash": view.treatment_hash,
            "order": view.order,
            "seed": view.seed,
            "arms": [arm_facts(arm) for arm in view.arms],
            "tasks": [row(task) for task in view.tasks],
            "disclosures": {"file": "disclosures.json", "codes": sorted({each.code for each in view.disclosures})},
        },
    }


def _evals(trials: Iterable[TrialLine]) -> dict[str, Any]:
    groups: dict[str, list[TrialLine]] = defaultdict(list)
    for line in trials:
        groups[_evals_key(line)].append(line)
    return {key: _stats(lines) for key, lines in groups.items()}


def _evals_key(line: TrialLine) -> str:
    model = model_info(line.arm.model)
    return "__".join(part for part in (line.arm.name, model["name"] if model else None, dataset(line.task.path)) if part)


def _stats(lines: Sequence[TrialLine]) -> dict[str, Any]:
    rewards: dict[str, list[str]] = defaultdict(list)
    errors: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        folder = trial_folder(line.trial_id, line.task.name, line.arm.name, line.replicate)
        if line.reward is not None:
            rewards[repr(float(line.reward))].append(folder)
        else:
            errors[f"MarathondVoid:{line.void_code}" if line.void_code else f"MarathondReview:{line.review_code}"].append(folder)
    valid = [line.reward for line in lines if line.reward is not None]
    return {
        "n_trials": len(valid),
        "n_errors": len(lines) - len(valid),
        "metrics": [{"mean": math.fsum(valid) / len(valid)}] if valid else [],
        "reward_stats": {"reward": rewards} if rewards else {},
        "exception_stats": errors,
    }


def _readme(view: JobView) -> bytes:
    voided = Counter(line.void_code for line in view.trials if line.void_code)
    codes = ", ".join(f"{code} {count}" for code, count in sorted(voided.items())) or "none"
    return f"""\
Campaign {printable(view.campaign, _SHOWN)} (ledger {view.ledger_id}), written by marathond.

Each folder is one trial: <trial>__<task>__<arm>__r<replicate>.  config.json says what it was given, result.json how it ended and when;
agent/, verifier/ and artifacts/ hold what the container left behind.  `harbor view` on the folder above this one shows them all.

disclosures.json holds the {len(view.disclosures)} things that a reader must be told about how this campaign was made: what each arm is
given, and what the ordinary way or the earlier public runs did.  Results without them are half of what was found.

Voided trials stay here: {codes}.
Infrastructure or a person made them meaningless, and they count in no result.  They stay so that anybody can check why: each names its
code and evidence under exception_info in result.json, and a new trial of the same cell has a folder of its own.
To list them:   grep -l '"MarathondVoid:' */result.json
One in full:    marathonctl show t0001

The ledger is the place of truth and these files are copies that marathond rewrites: editing them changes nothing.
Do not run `harbor job resume` on this folder: it would delete and rerun trials behind the ledger's back.
""".encode()
