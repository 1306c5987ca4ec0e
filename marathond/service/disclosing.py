"""What all arms of a campaign share, from its settings, as disclosures are made from it.

Owns the table of settings that were looked at for that.  Pure.  What an arm says of itself is in its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from marathond.core.benchmark import limits_differ
from marathond.core.disclosure import Conditions, Disclosure, TaskFacts
from marathond.core.disclosures import disclosures
from marathond.core.model import Task, Unrunnable
from marathond.core.proxies import proxy_words
from marathond.service.settings import Settings
from marathond.service.treatment import PROXY_BUILD_ARGS
from marathond.tasks.speaking import speaking_files

LOOKED_AT: Mapping[str, str] = {
    "limits.agent_timeout_s": "own_deadline_s",
    "limits.agent_timeout_multiplier": "agent_multiplier",
    "limits.verifier_timeout_multiplier": "verifier_multiplier",
    "limits.after_agent": "",
    "limits.pids": "pids",
    "verifier.exclusive": "exclusive",
    "verifier.exclusive_from": "exclusive_from",
    "engine.build_args": "build_args",
    "network.runtime_proxy": "runtime_proxy",
    "network.undeclared": "tasks",
    "campaign.benchmark": "benchmark",
    "gateway.strip": "strip",
    "gateway.hold_s": "hold_s",
    "gateway.held_is_charged": "held_is_charged",
    "gateway.held_at_most_s": "held_at_most_s",
    "money.trial_cap_usd": "trial_cap_usd",
}
"""Key of the treatment to the condition that carries it; empty: every arm's row does.  A test holds it against the keys there are."""


def conditions(settings: Settings, tasks: Iterable[TaskFacts] = ()) -> Conditions:
    """The ``tasks`` by name, as the ledger gives them."""
    limits, gateway, profile = settings.limits, settings.gateway, settings.benchmark
    usual = None if profile is None else profile.profile.timeouts
    return Conditions(
        benchmark="" if profile is None else profile.name,
        usual_agent_multiplier=(usual and usual.agent_multiplier) or 1.0,
        usual_verifier_multiplier=(usual and usual.verifier_multiplier) or 1.0,
        own_deadline_s=limits.agent_timeout_s,
        agent_multiplier=limits.agent_timeout_multiplier,
        verifier_multiplier=limits.verifier_timeout_multiplier,
        pids=limits.pids or None,
        exclusive=tuple(sorted(settings.verifier.exclusive)),
        exclusive_from=settings.verifier.exclusive_from,
        build_args=tuple(sorted(name for name in settings.engine.build_args if name.lower() not in PROXY_BUILD_ARGS)),
        runtime_proxy=proxy_words(settings.network.runtime_proxy),
        gateway=bool(gateway.routes),
        strip=gateway.strip,
        hold_s=gateway.hold_s,
        held_is_charged=gateway.held_is_charged,
        held_at_most_s=gateway.held_at_most_s,
        judge=gateway.verifier_route is not None,
        trial_cap_usd=settings.money.trial_cap_usd,
        tasks=tuple(sorted(tasks, key=lambda task: task.name)),
    )


def differences(settings: Settings, task: Task | Unrunnable) -> tuple[str, ...]:
    """In what the task is not as the benchmark's profile has it; nothing where none is named, or of a task that does not run."""
    return () if settings.benchmark is None or isinstance(task, Unrunnable) else tuple(limits_differ(settings.benchmark.known, task))


def task_facts(settings: Settings, tasks: Iterable[Task | Unrunnable]) -> list[TaskFacts]:
    """Of those that can run; looks into each task's folder."""
    return [
        TaskFacts(
            name=task.name,
            network=task.network,
            network_origin=task.network_origin,
            limit_s=task.agent_timeout_s,
            speaks=speaking_files(Path(task.path)),
            differs=differences(settings, task),
        )
        for task in tasks
        if not isinstance(task, Unrunnable)
    ]


def configured(settings: Settings, tasks: Sequence[Task | Unrunnable]) -> tuple[Disclosure, ...]:
    """What a submission of this configuration alone would have to tell, but for the ids of what is staged."""
    return disclosures(settings.arm_models(), conditions(settings, task_facts(settings, tasks)))
