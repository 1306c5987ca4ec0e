"""Harbor's job folders: one job, or a folder of jobs.

Owns telling arms apart: an arm is ``agent / model``, and two agents of one job that differ in their settings alone are never added up.
Must not decide which trial counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from marathond.core.errors import Refused
from marathond.service.importing.job import CONFIG, RESULT, Job, is_result, read_job
from marathond.service.importing.owner import Sieve
from marathond.service.importing.seen import Difference, Names, Reading, Seen
from marathond.service.importing.tree import FOLDER, Parts, Tree
from marathond.service.importing.trial import TrialRead, looks_like_trial, model_of, read_trial, table

BY_AGENT, BY_JOB = "agent", "job"
SETTINGS = ("import_path", "kwargs", "mcp_servers")
"""Of an agent's configuration: what makes two of one name and model different agents."""


def is_harbor(tree: Tree) -> bool:
    return bool(job_folders(tree))


def job_folders(tree: Tree) -> list[Parts]:
    """The folder itself, or those below that are jobs."""
    if _is_job(tree, ()):
        return [()]
    below = [(entry.name,) for entry in tree.entries(()) if entry.kind == FOLDER and not entry.name.startswith(".")]
    return [parts for parts in below if _is_job(tree, parts)]


def _is_job(tree: Tree, parts: Parts) -> bool:
    if tree.has(parts, RESULT):
        document = _quietly(tree, (*parts, RESULT))
        if document is not None:
            return is_result(document)
    if not tree.has(parts, CONFIG):
        return False
    config = _quietly(tree, (*parts, CONFIG))
    return config is not None and ("n_attempts" in config or "job_name" in config) and "trial_name" not in config


def _quietly(tree: Tree, parts: Parts) -> dict[str, Any] | None:
    """Without listing what is no whole object: this only asks what the folder is."""
    return Tree(tree.root.joinpath(*parts[:-1])).table(parts[-1:])[0]


def read_harbor(tree: Tree, uid: int | None = None, arm_by: str = BY_AGENT) -> Reading:
    """:param arm_by: ``agent``: an arm is agent and model; ``job``: each job is an arm.

    :raises Refused: by agent, and two of them differ in their settings alone.
    """
    sieve = Sieve(tree, uid)
    trials: list[Seen] = []
    differences: list[Difference] = []
    settings: dict[str, dict[str, Any]] = {}
    jobs = job_folders(tree)
    taken = [parts for parts in jobs if not parts or parts[0] in {entry.name for entry in sieve.folders(())}]
    attempts, names = 1, Names()
    for parts in taken:
        job = read_job(tree, parts)
        attempts = max(attempts, job.attempts)
        for entry in sieve.folders(parts):
            here = (*parts, entry.name)
            if not looks_like_trial(tree, here):
                tree.note("layout", here, "no trial: neither result.json nor verifier/ nor agent/")
                continue
            read = read_trial(tree, here, job)
            if not read.finished and not job.finished:
                tree.note("in_work", here, "not at its end, and its job is not either: a later import takes it")
                continue
            if (named := _named(tree, here, read, names)) is None:
                continue
            task, arm, agent = named
            if arm_by == BY_JOB:
                arm = parts[0] if parts else tree.root.name
            _told_apart(settings, arm, agent)
            key = "/".join((parts[0] if parts else tree.root.name, entry.name))
            trials.append(Seen(key, tree.place(here), task, arm, key, read.sha256, read.score, read.why, read.details, facts=read.facts))
            differences += _difference(tree, here, job, read)
    told = [f"{len(taken)} jobs"] if len(taken) > 1 else []
    return Reading("harbor", str(tree.root), tuple(trials), tuple(tree.listed), tuple(differences), attempts, tuple(told))


def _named(tree: Tree, parts: Parts, read: TrialRead, names: Names) -> tuple[str, str, dict[str, Any]] | None:
    """(task, arm, the agent's configuration) by the trial's own documents; None, and listed: they do not say."""
    document = read.document or {}
    config = table(document.get("config")) or tree.table((*parts, CONFIG))[0] or {}
    agent, info = table(config.get("agent")), table(document.get("agent_info"))
    task, name = document.get("task_name") or _task_of(config), info.get("name") or agent.get("name") or agent.get("import_path")
    if not (isinstance(task, str) and task and isinstance(name, str) and name):
        tree.note("nameless", parts, "neither result.json nor config.json says which task and which agent it is of")
        return None
    model = model_of(document) or agent.get("model_name")
    arm = f"{name} / {model}" if isinstance(model, str) and model else name
    try:
        return names.plain("task", task), names.plain("arm", arm), {key: agent.get(key) for key in SETTINGS}
    except ValueError as error:
        tree.note("nameless", parts, str(error))
        return None


def _task_of(config: Mapping[str, Any]) -> str | None:
    task = config.get("task")
    path = task.get("path") or task.get("name") if isinstance(task, dict) else None
    return path.rstrip("/").rpartition("/")[2] if isinstance(path, str) else None


def _told_apart(settings: dict[str, dict[str, Any]], arm: str, agent: dict[str, Any]) -> None:
    known = settings.setdefault(arm, agent)
    if known == agent:
        return
    keys = [key for key in sorted({*known, *agent}) if json.dumps(known.get(key), default=str) != json.dumps(agent.get(key), default=str)]
    words = f"{arm}: agents of that name differ in {', '.join(keys)}: they are no one arm"
    raise Refused(f"{words}; --arm-by job makes each job an arm, or import the jobs one by one")


def _difference(tree: Tree, parts: Parts, job: Job, read: TrialRead) -> Iterator[Difference]:
    """By trial: Harbor counts one with any exception as errored, and the old rule wanted none of those."""
    done = read.finished and not read.errors
    if done == (not read.why):
        return
    old = "done (completed, no exception)" if done else "not done (" + (read.errors[0][0] if read.errors else "not completed") + ")"
    why = read.why or "a spent budget is an ordinary end of a long task"
    yield Difference(tree.place(parts), old, "valid" if not read.why else "no result", why)
