"""A campaign's folder in Harbor's layout, so that ``harbor view <out>`` lists it: ``<out>/<campaign>/<trial>/{config,result}.json``.

Owns names and documents.  Pure: values in, bytes out; the same values give the same bytes, so an unchanged document can be rewritten.
Must not know the ledger or the disk.  Shapes and rules were read in Harbor 0.26 (its models of trial and job results, its viewer).

How a trial's end is told, since the viewer takes every ``exception_info`` for an error:
- scored: rewards and no exception, also when the agent spent its deadline (fault c10).  Harbor itself would add an AgentTimeoutError
  there, count the trial as errored and show the error in place of the ending; here ``metadata.marathond.agent.ended_by`` says it.
- voided: ``MarathondVoid:<code>`` and no rewards.  Harbor takes the reward of an exception that it does not know for valid, so a score
  that was known before is kept in the metadata only, and the policy says that nothing is valid.
- in review: ``MarathondReview:<code>`` and no rewards, as Harbor does when no reward file was written.

``rewards`` holds ``reward`` alone, which is all that Harbor would have read: its averages count an absent second key as 0.
"""

from __future__ import annotations

import glob
import json
import math
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import Any

from marathond.core.model import TrialState, block_label, cell_label, trial_label
from marathond.core.text import iso_utc, printable
from marathond.tasks.layout_views import ArmView, JobView, TrialLine, TrialView

PART_LENGTH = 60
"""Characters of a task's or an arm's name in a folder's name; with the numbers it stays far below the 255 bytes of a file name."""

_NAMESPACE = uuid.UUID("6f0f1f5e-8a63-5d0c-9a0b-3d1f0c7d7e11")
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")
_NOTHING_VALID = {"should_retry": False, "should_grade": False, "has_valid_reward": False}
_SHOWN = 200


def trial_folder(trial_id: int, task: str, arm: str, replicate: int) -> str:
    """``t0871__zstd-decoder__plain__r1``: one safe path component of ASCII, unique in the ledger by its first part alone.

    :raises ValueError: a number below 1.
    """
    if trial_id < 1 or replicate < 1:
        raise ValueError(f"trial {trial_id}, replicate {replicate}: expected numbers from 1")
    return f"{trial_label(trial_id)}__{_part(task)}__{_part(arm)}__r{replicate}"


def _part(name: str) -> str:
    return _UNSAFE.sub("-", name)[:PART_LENGTH].strip("-._") or "unnamed"


def line_of(view: TrialView) -> TrialLine:
    """What the campaign's documents say of this trial.

    :raises ValueError: as :func:`trial_documents`.
    """
    state = _checked(view)
    return TrialLine(
        view.trial_id,
        view.task,
        view.arm,
        view.replicate,
        view.attempt,
        view.timeline[-1].at_ms,
        reward=view.score.reward if view.score and state is TrialState.SCORED else None,
        void_code=view.void.code if view.void else None,
        review_code=view.review.code if view.review and state is TrialState.REVIEW else None,
    )


# ── one trial ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def trial_documents(view: TrialView) -> dict[str, bytes]:
    """``config.json`` and ``result.json`` for the trial's folder.

    :raises ValueError: the trial is not at rest, or the row that its state demands (score, void, review) is missing or contradicts it.
    """
    state = _checked(view)
    folder = trial_folder(view.trial_id, view.task.name, view.arm.name, view.replicate)
    config = _trial_config(view, folder)
    result = {
        "schema_version": 1,
        "id": _trial_uuid(view.ledger_id, view.trial_id),
        "task_name": view.task.name,
        "trial_name": folder,
        "trial_uri": (PurePosixPath(view.out_dir) / view.campaign / folder).as_uri(),
        "task_id": {"path": view.task.path},
        "source": _dataset(view.task.path),
        # Not Harbor's digest, which is made by other rules: the prefix keeps the two from being compared.
        "task_checksum": f"marathond:{view.task.digest or 'unknown'}",
        "config": config,
        "agent_info": _agent_info(view.arm),
        "agent_result": {"metadata": {"marathond": _own_facts(view, state)}},
        "verifier_result": {"rewards": {"reward": view.score.reward}} if view.score and state is TrialState.SCORED else None,
        "verifier_environment_mode": "shared",
        "exception_info": _exception(view, state),
        "started_at": iso_utc(view.timeline[0].at_ms),
        "finished_at": _iso(view.rested_at_ms),
        **_timings(view),
    }
    return {"config.json": _json(config), "result.json": _json(result)}


def _checked(view: TrialView) -> TrialState:
    """The state, once it agrees with the rows: a document must never say less or more than the ledger."""
    label = trial_label(view.trial_id)
    if not view.timeline:
        raise ValueError(f"{label}: no events, expected at least the first")
    state = view.state
    demanded = {TrialState.SCORED: view.score, TrialState.VOIDED: view.void, TrialState.REVIEW: view.review}
    if state not in demanded:
        raise ValueError(f"{label} is {state}: expected a trial at rest (scored, review, voided)")
    if demanded[state] is None:
        raise ValueError(f"{label} is {state}, without the row that says so")
    if view.void is not None and state is not TrialState.VOIDED:
        raise ValueError(f"{label} is {state}, but void {view.void.code} stands")
    return state


def _trial_config(view: TrialView, folder: str) -> dict[str, Any]:
    verifier = view.verifications[-1] if view.verifications else None
    return {
        "schema_version": 1,
        "task": {"path": view.task.path, "source": _dataset(view.task.path)},
        "trial_name": folder,
        "trials_dir": str(PurePosixPath(view.out_dir) / view.campaign),
        "agent": {**_agent_config(view.arm), "override_timeout_sec": _seconds(view.agent.limit_ms if view.agent else None)},
        "environment": {"type": "docker"},
        "verifier": {"override_timeout_sec": _seconds(verifier.limit_ms if verifier else None)},
        "job_id": _job_uuid(view.ledger_id, view.campaign_id),
    }


def _timings(view: TrialView) -> dict[str, Any]:
    """Harbor's four phases.  One that never began is null; one that a void cut off has no end."""
    up_at_ms, agent, rounds = view.at_ms.get("environment_up"), view.agent, view.verifications
    return {
        "environment_setup": _timing(view.timeline[0].at_ms, up_at_ms),
        "agent_setup": _timing(up_at_ms, agent.started_at_ms if agent else None) if up_at_ms is not None else None,
        "agent_execution": _timing(agent.started_at_ms, agent.ended_at_ms) if agent else None,
        "verifier": _timing(rounds[0].started_at_ms, rounds[-1].ended_at_ms) if rounds else None,
    }


def _exception(view: TrialView, state: TrialState) -> dict[str, Any] | None:
    if state is TrialState.VOIDED and view.void:
        void = view.void
        who = f"{void.side}; decided by {void.author} from {void.from_state}"
        return _error(f"MarathondVoid:{void.code}", f"{void.reason} ({who})", void.evidence, void.at_ms)
    if state is TrialState.REVIEW and view.review:
        review = view.review
        return _error(f"MarathondReview:{review.code}", f"{review.detail} (waits for a person)", review.evidence, review.opened_at_ms)
    return None


def _error(kind: str, message: str, evidence: Mapping[str, Any], at_ms: int) -> dict[str, Any]:
    return {
        "exception_type": kind,
        "exception_message": message,
        # The viewer shows this text below the message: the evidence is what a person wants to see there.
        "exception_traceback": json.dumps(_plain(evidence), indent=2, sort_keys=True, allow_nan=False),
        "occurred_at": iso_utc(at_ms),
        "policy_override": _NOTHING_VALID,
    }


def _own_facts(view: TrialView, state: TrialState) -> dict[str, Any]:
    """Everything that Harbor has no word for, under one key."""
    return {
        "ledger": view.ledger_id,
        "version": view.version,
        "trial": trial_label(view.trial_id),
        "cell": cell_label(view.cell_id),
        "block": block_label(view.block_id),
        "attempt": view.attempt,
        "replicate": view.replicate,
        "campaign": view.campaign,
        "arm": _arm_facts(view.arm),
        "state": state.value,
        "timeline": [{"event": m.event, "to_state": m.to_state, "at": iso_utc(m.at_ms)} for m in view.timeline],
        "facts": {fact.name: {"value": fact.value, "origin": fact.origin} for fact in view.facts},
        "agent": _row(view.agent),
        "verifications": [_row(verification) for verification in view.verifications],
        "score": _score(view),
        "void": _row(view.void),
        "review": _row(view.review),
    }


def _score(view: TrialView) -> dict[str, Any] | None:
    if view.score is None:
        return None
    parts = {name: {"value": value, "source": source} for name, value, source in view.score.parts}
    return {**_row(view.score), "parts": parts, "counts": view.state is TrialState.SCORED}


# ── the campaign ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def job_documents(view: JobView) -> dict[str, bytes]:
    """``config.json``, ``result.json`` and ``README.txt`` for ``<out>/<campaign>/``.

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
        "id": _job_uuid(view.ledger_id, view.campaign_id),
        "started_at": iso_utc(view.created_at_ms),
        "updated_at": iso_utc(max([view.created_at_ms, *(line.changed_at_ms for line in trials)])),
        "finished_at": _iso(view.finished_at_ms),
        "n_total_trials": len(trials) + view.running + view.pending,
        "stats": {
            "n_completed_trials": len(trials),
            "n_errored_trials": sum(line.reward is None for line in trials),
            "n_running_trials": view.running,
            "n_pending_trials": view.pending,
            "n_cancelled_trials": 0,
            "n_retries": sum(line.attempt > 1 for line in trials),
            "evals": _evals(trials),
        },
    }
    return {"config.json": _json(_job_config(view)), "result.json": _json(result), "README.txt": _readme(view)}


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
        "agents": [_agent_config(arm) for arm in view.arms],
        "datasets": [{"path": folder, "task_names": sorted(names)} for folder, names in sorted(datasets.items())],
        # Harbor ignores keys that it does not know.
        "marathond": {
            "ledger": view.ledger_id,
            "campaign": view.campaign,
            "created_by": view.created_by,
            "treatment_hash": view.treatment_hash,
            "order": view.order,
            "seed": view.seed,
            "arms": [_arm_facts(arm) for arm in view.arms],
            "tasks": [_row(task) for task in view.tasks],
        },
    }


def _evals(trials: Iterable[TrialLine]) -> dict[str, Any]:
    groups: dict[str, list[TrialLine]] = defaultdict(list)
    for line in trials:
        groups[_evals_key(line)].append(line)
    return {key: _stats(lines) for key, lines in groups.items()}


def _evals_key(line: TrialLine) -> str:
    model = _model_info(line.arm.model)
    return "__".join(part for part in (line.arm.name, model["name"] if model else None, _dataset(line.task.path)) if part)


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

Voided trials stay here ({codes}).  Infrastructure or a person made them meaningless; they count in no result.  They stay so that anybody
can check why: each names its code and evidence under exception_info in result.json, and a new trial of the same cell has its own folder.
To list them:   grep -l '"MarathondVoid:' */result.json
One in full:    marathonctl show t0001

The ledger is the place of truth and these files are copies that marathond rewrites: editing them changes nothing.
Do not run `harbor job resume` on this folder: it would delete and rerun trials behind the ledger's back.
""".encode()


# ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _trial_uuid(ledger_id: str, trial_id: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{ledger_id}/trial/{trial_id}"))


def _job_uuid(ledger_id: str, campaign_id: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{ledger_id}/campaign/{campaign_id}"))


def _dataset(task_path: str) -> str:
    """The name of the folder that holds the task: Harbor's rule for datasets on disk, ``adhoc`` when there is none."""
    return PurePosixPath(task_path).parent.name or "adhoc"


def _agent_info(arm: ArmView) -> dict[str, Any]:
    """The arm's own name: arms that differ only in their settings would become one agent.  The treatment's hash is its version."""
    return {"name": arm.name, "version": arm.treatment_hash[:12], "model_info": _model_info(arm.model)}


def _model_info(model: str | None) -> dict[str, Any] | None:
    if not model:
        return None
    provider, slash, name = model.partition("/")
    return {"name": name, "provider": provider} if slash else {"name": model, "provider": None}


def _agent_config(arm: ArmView) -> dict[str, Any]:
    return {"name": arm.name, "model_name": arm.model, "kwargs": _settings(arm)}


def _arm_facts(arm: ArmView) -> dict[str, Any]:
    return {"name": arm.name, "kind": arm.kind, "treatment_hash": arm.treatment_hash}


def _settings(arm: ArmView) -> dict[str, Any]:
    """The arm's data.  Of its environment only the names: values may be secrets, and out_dir is there to be shared."""
    data = {key: value for key, value in arm.data.items() if key not in ("name", "env")}
    return {**data, "env": sorted(arm.data.get("env", {}))}


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _timing(started_at_ms: int, finished_at_ms: int | None) -> dict[str, Any]:
    return {"started_at": iso_utc(started_at_ms), "finished_at": _iso(finished_at_ms)}


def _iso(ms: int | None) -> str | None:
    return None if ms is None else iso_utc(ms)


def _row(value: Any) -> Any:
    """A row by its fields' names, instants as text."""
    if not is_dataclass(value):
        return value
    pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {name.removesuffix("_ms") if name.endswith("_at_ms") else name: _moment(name, v) for name, v in pairs}


def _moment(name: str, value: Any) -> Any:
    return _iso(value) if name == "at_ms" or name.endswith("_at_ms") else value


def _json(document: Mapping[str, Any]) -> bytes:
    """Keys sorted; ASCII only, so that no text from an agent can steer the terminal in which somebody reads the file."""
    return json.dumps(_plain(document), sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    """What strict JSON can hold: halves of surrogate pairs become U+FFFD, numbers that are not finite become text."""
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {_plain(str(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
