"""From settings to a submission: reads the tasks, hashes the treatment.

Owns which task directories a campaign has and what of them goes into the ledger.  Values of environment variables do not: they may be
secrets, and the task is read again at each start anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marathond.core.arms import arm_to_data
from marathond.core.canonical import canonical_json
from marathond.core.errors import ArtifactError, Refused
from marathond.core.model import Arm, Task, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.flow.exporter import written_by
from marathond.ledger.verbs.campaigns import ArmRow, Submission, TaskRow
from marathond.service.disclosing import conditions, differences
from marathond.service.settings import Settings
from marathond.service.taskread import read_tasks
from marathond.service.treatment import arm_treatment, campaign_treatment, treatment_hash
from marathond.tasks.speaking import speaking_files

NOTES_MAX = 20


def build(
    settings: Settings,
    author: str,
    environ: Mapping[str, str],
    packages: Mapping[str, str],
    *,
    begun: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
) -> Submission:
    """Reads every task (seconds for large benchmarks: run it in a worker thread).  Raises ConfigError.

    :param begun: as :func:`~marathond.service.taskread.read_tasks` has it; and ``known``.
    :param packages: ``codex`` and ``loopx`` to the ids of what is staged, which is part of their arms' treatment (fault a18).
    """
    treatment = campaign_treatment(settings)
    read = read_tasks(settings, environ, begun=begun, known=known)
    tasks = tuple(task_row(task, differences(settings, task)) for task in read.tasks)
    return Submission(
        name=settings.campaign.name,
        author=author,
        treatment_hash=treatment_hash(treatment),
        treatment_json=canonical_json(treatment),
        config_json=config_json(settings),
        out_dir=str(settings.daemon.out_dir),
        seed=settings.admission.seed,
        order=settings.admission.order.value,
        replicates=settings.campaign.replicates,
        arms=arm_rows(settings.arm_models(packages)),
        tasks=tasks,
        conditions=conditions(settings),
        contrasts=settings.comparison.contrasts,
    )


def arm_rows(arms: Iterable[Arm]) -> tuple[ArmRow, ...]:
    """As the ledger keeps them, each with the hash of its treatment."""
    return tuple(
        ArmRow(arm.name, arm.kind.value, treatment_hash(arm_treatment(arm)), json.dumps(arm_to_data(arm), sort_keys=True)) for arm in arms
    )


def notes(tasks: Sequence[TaskRow]) -> tuple[str, ...]:
    """What was tolerated in tasks, as ``config check`` says it; at most :data:`NOTES_MAX` lines."""
    lines = [f"{task.name}: {line}" for task in tasks for line in json.loads(task.data_json).get("warnings", ())]
    if (more := len(lines) - NOTES_MAX) > 0:
        return (*lines[:NOTES_MAX], f"and {more} more: marathonctl config check")
    return tuple(lines)


def config_json(settings: Settings) -> str:
    """The configuration as a campaign keeps it, with the whole profile as ``profile``: its columns and their reasons are for reports."""
    profile = None if settings.benchmark is None else dict(settings.benchmark.data)
    return json.dumps(settings.model_dump(mode="json") | {"profile": profile})


def refuse_foreign_artifacts(settings: Settings, ledger_id: str) -> None:
    """A campaign's folder that another ledger wrote would be overwritten trial by trial, silently (fault f07).

    :raises Refused: ``<out_dir>/<campaign>/config.json`` names another ledger.
    """
    folder = settings.daemon.out_dir / settings.campaign.name
    try:
        written = written_by(folder)
    except ArtifactError:
        return  # the exporter names what it cannot see, and writes nothing there
    if written not in (None, ledger_id):
        raise Refused(f"{folder} holds artifacts of ledger {written}, this is ledger {ledger_id}: choose another campaign.name or out_dir")


def task_row(task: Task | Unrunnable, differs: Sequence[str] = ()) -> TaskRow:
    """What the ledger keeps of a task.  ``differs``: in what it is not as the benchmark's profile has it."""
    if isinstance(task, Unrunnable):
        return TaskRow(task.name, task.path, None, None, None, None, None, False, json.dumps({"image": None}), task)
    data: dict[str, Any] = {
        "image": task.image,
        "build_timeout_s": task.build_timeout_s,
        "agent_timeout_s": task.agent_timeout_s,
        "verifier_timeout_s": task.verifier_timeout_s,
        "network": task.network.value,
        "network_origin": task.network_origin,
        "env_names": sorted(task.env),
        "workdir": task.workdir,
        "has_solution": task.has_solution,
        "agent_user": task.agent_user,
        "project_files": list(speaking_files(Path(task.path))),
        "not_the_benchmarks": list(differs),
        "warnings": list(task.warnings),
    }
    return TaskRow(
        name=task.name,
        path=task.path,
        digest=task.digest,
        context_digest=task.context_digest,
        declared_limit_ms=None if task.agent_timeout_s is None else max(1, int(task.agent_timeout_s * 1000)),
        cpus=task.cpus,
        memory_mb=task.memory_mb,
        needs_network=task.network is not NetworkPolicy.NONE,
        data_json=json.dumps(data, sort_keys=True),
    )
