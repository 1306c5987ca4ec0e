"""The two documents of one trial.

Owns how a trial's rows become Harbor's trial config and result.  Must not know the campaign around it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from marathond.core.names import TrialState, block_label, cell_label, trial_label
from marathond.core.text import iso_utc
from marathond.tasks.layout.names import dataset, job_uuid, trial_folder, trial_uuid
from marathond.tasks.layout.pieces import agent_config, agent_info, arm_facts, iso, json_bytes, plain, row, token_counts
from marathond.tasks.layout.views import TrialLine, TrialView, UsageView

_NOTHING_VALID = {"should_retry": False, "should_grade": False, "has_valid_reward": False}


def trial_documents(view: TrialView) -> dict[str, bytes]:
    """``config.json`` and ``result.json`` for the trial's folder.

    :raises ValueError: the trial is not at rest, or the row that its state demands (score, void, review) is missing or contradicts it,
        or ``out_dir`` is not absolute.
    """
    state = _checked(view)
    folder = trial_folder(view.trial_id, view.task.name, view.arm.name, view.replicate)
    config = _trial_config(view, folder)
    result = {
        "schema_version": 1,
        "id": trial_uuid(view.ledger_id, view.trial_id),
        "task_name": view.task.name,
        "trial_name": folder,
        "trial_uri": (PurePosixPath(view.out_dir) / view.campaign / folder).as_uri(),
        "task_id": {"path": view.task.path},
        "source": dataset(view.task.path),
        # Not Harbor's digest, which is made by other rules: the prefix keeps the two from being compared.
        "task_checksum": f"marathond:{view.task.digest or 'unknown'}",
        "config": config,
        "agent_info": agent_info(view.arm),
        "agent_result": {**_usage(view.usage), "metadata": {"marathond": _own_facts(view, state)}},
        "verifier_result": {"rewards": {"reward": view.score.reward}} if view.score and state is TrialState.SCORED else None,
        "verifier_environment_mode": "shared",
        "exception_info": _exception(view, state),
        "started_at": iso_utc(view.timeline[0].at_ms),
        "finished_at": iso(view.rested_at_ms),
        **_timings(view),
    }
    return {"config.json": json_bytes(config), "result.json": json_bytes(result)}


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
        "task": {"path": view.task.path, "source": dataset(view.task.path)},
        "trial_name": folder,
        "trials_dir": str(PurePosixPath(view.out_dir) / view.campaign),
        "agent": {**agent_config(view.arm), "override_timeout_sec": _seconds(view.agent.limit_ms if view.agent else None)},
        "environment": {"type": "docker"},
        "verifier": {"override_timeout_sec": _seconds(verifier.limit_ms if verifier else None)},
        "job_id": job_uuid(view.ledger_id, view.campaign_id),
    }


def _usage(usage: Sequence[UsageView] | None) -> dict[str, Any]:
    """Harbor's token counts, and its cost where all of it is known."""
    if usage is None:
        return {}
    return {
        **token_counts(usage),
        "model_usage": {name: token_counts([row for row in usage if row.model == name]) for name in _models(usage)} or None,
    }


def _models(usage: Sequence[UsageView]) -> list[str]:
    """Those that answered: a request that nobody answered has no model."""
    return sorted({row.model for row in usage if row.model})


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
        "exception_traceback": json.dumps(plain(evidence), indent=2, sort_keys=True, allow_nan=False),
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
        "arm": arm_facts(view.arm),
        "state": state.value,
        "timeline": [{"event": m.event, "to_state": m.to_state, "at": iso_utc(m.at_ms)} for m in view.timeline],
        "facts": {fact.name: {"value": fact.value, "origin": fact.origin} for fact in view.facts},
        "agent": row(view.agent),
        "verifications": [row(verification) for verification in view.verifications],
        "score": _score(view),
        "void": row(view.void),
        "review": row(view.review),
        "disclosures": [row(each) for each in view.disclosures],
    }


def _score(view: TrialView) -> dict[str, Any] | None:
    if view.score is None:
        return None
    parts = {name: {"value": value, "source": source} for name, value, source in view.score.parts}
    return {**row(view.score), "parts": parts, "counts": view.state is TrialState.SCORED}


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
        usage=view.usage,
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _timing(started_at_ms: int, finished_at_ms: int | None) -> dict[str, Any]:
    return {"started_at": iso_utc(started_at_ms), "finished_at": iso(finished_at_ms)}
