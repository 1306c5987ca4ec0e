"""Disclosures of what all arms of a campaign share: deadlines, networks, containers, the gateway.

Owns their words, each a pure rule over arms and conditions.  Must not know settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from marathond.core.disclosure import Conditions, Disclosure, TaskFacts, begun, codex_arms, count, listed, names, number, ordinary_source
from marathond.core.model import Arm
from marathond.core.names import AfterAgent, NetworkPolicy

Rule = Callable[[Sequence[Arm], Conditions], Iterator[Disclosure]]

_BY_TASK = "task"
"""How the origin of a network begins that the task itself declares."""


def deadlines(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    declared = [task for task in on.tasks if task.limit_s is not None]
    if on.own_deadline_s is not None:
        own = on.own_deadline_s
        shorter = [task.name for task in declared if task.limit_s is not None and own < task.limit_s * on.agent_multiplier]
        unbound = [task.name for task in on.tasks if task.limit_s is None]
        text = f"Every agent has a deadline of {count(own, 'second')}, or its task's own where that is earlier."
        parts = [f"ends agents before their task would ({listed(shorter)})"] if shorter else []
        parts += [f"is the only limit of tasks that declare none ({listed(unbound)})"] if unbound else []
        text += f" It {' and '.join(parts)}." if parts else ""
        yield Disclosure("own_deadline", names(arms), text, _usual_time(on, on.usual_agent_multiplier, _limits(on.tasks)))
    if on.agent_multiplier != on.usual_agent_multiplier and declared:
        text = f"The time that a task gives its agent is multiplied by {number(on.agent_multiplier)}."
        yield Disclosure("agent_time_multiplied", names(arms), text, _usual_time(on, on.usual_agent_multiplier))
    if on.verifier_multiplier != on.usual_verifier_multiplier:
        text = f"The time that a task gives its verifier is multiplied by {number(on.verifier_multiplier)}."
        yield Disclosure("verifier_time_multiplied", names(arms), text, _usual_time(on, on.usual_verifier_multiplier))


def _usual_time(on: Conditions, usual: float, limits: str = "") -> str:
    times = "" if usual == 1 else f", times {number(usual)}"
    return begun(f"{ordinary_source(on)} gives the time that each task declares{limits}{times}.")


def _limits(tasks: Sequence[TaskFacts]) -> str:
    limits = sorted({task.limit_s for task in tasks if task.limit_s is not None})
    if not limits:
        return ""
    return f" ({number(limits[0])} s)" if len(limits) == 1 else f" ({number(limits[0])} to {number(limits[-1])} s)"


def benchmark(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    differing = [task for task in on.tasks if task.differs]
    if differing:
        lines = [line for task in differing for line in task.differs]
        text = f"Other limits or sizes are declared by {count(len(differing), 'task')} of this campaign: {listed(lines, between='; ')}."
        yield Disclosure("tasks_not_the_benchmarks", names(arms), text, f"{on.benchmark} has the values that its profile states.")


def money_cap(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    if on.trial_cap_usd is not None and (asking := [arm for arm, _ in codex_arms(arms)]):
        text = f"A trial that has spent ${on.trial_cap_usd:,.2f} on its model ends, and what is there by then is verified and scored."
        yield Disclosure("money_cap", names(asking), text, begun(f"{ordinary_source(on)} bounds time alone."))


def networks(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    closed = [task.name for task in on.tasks if task.network is NetworkPolicy.NONE]
    if closed:
        text = f"Containers of {count(len(closed), 'task')} have no network at all: {listed(closed)}."
        if codex_arms(arms):
            text += " The model answers on a loopback port inside, and requests for its provider's own network tools are refused."
        forbids = f"{on.benchmark} forbids these tasks the internet" if on.benchmark else "The task format lets a task forbid its network"
        against = f"{forbids}, and leaves it to the harness how its agent reaches a model."
        yield Disclosure("no_network", names(arms), text, against)
    silent = [task for task in on.tasks if not task.network_origin.startswith(_BY_TASK)]
    for policy, code, words, against in (
        (NetworkPolicy.PUBLIC, "network_by_default", "the whole internet", "This is the task format's default; Harbor does the same."),
        (NetworkPolicy.NONE, "no_network_by_default", "none at all", "The task format's default is the whole internet."),
    ):
        if members := [task.name for task in silent if task.network is policy]:
            text = f"Where a task declares no network, its containers have {words} ({count(len(members), 'task')}): {listed(members)}."
            yield Disclosure(code, names(arms), text, against)
    users = [task.name for task in on.tasks if task.network is not NetworkPolicy.NONE]
    if on.runtime_proxy and users:
        text = f"Containers of {count(len(users), 'task')} with a network reach it through a proxy: {on.runtime_proxy}."
        against = (
            f"{ordinary_source(on)} gives these tasks a network without a proxy: a proxy may refuse, cache or slow down what they fetch."
        )
        yield Disclosure("runtime_proxy", names(arms), text, begun(against))


def containers(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ordinary = "The task format knows no such limit: a task declares cores, memory and storage."
    if on.pids is not None:
        text = f"Agent and verifier of a trial have at most {number(on.pids)} processes and threads together in their container."
        yield Disclosure("pids_limit", names(arms), text, ordinary)
    else:
        yield Disclosure("no_pids_limit", names(arms), "The number of processes in a container has no limit of ours.", ordinary)
    if on.build_args:
        text = f"Images are built with arguments that the tasks do not set: {listed(on.build_args)}."
        yield Disclosure("build_args", names(arms), text, "No task names them.")


def verifiers(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    if not on.exclusive:
        return
    text = (
        f"The verifier of {count(len(on.exclusive), 'task')} runs alone, for it times code: {listed(on.exclusive)}. No other verifier runs "
        "beside it, no image is built and no trial is prepared or begun here; its time begins when it begins, not while it waits."
    )
    if on.exclusive_from == "everything":
        text += " No agent runs beside it either."
    else:
        text += " Agents that run already go on: others' may have run beside it, and each trial tells how many."
    against = "Ordinarily a verifier begins when its agent has ended, whatever runs beside it."
    yield Disclosure("exclusive_verifier", names(arms), text, against)


def after_agent(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    policies: dict[AfterAgent, list[Arm]] = {}
    for arm in arms:
        policies.setdefault(arm.after_agent, []).append(arm)
    for policy, members in policies.items():
        if policy is AfterAgent.KEEP_DETACHED:
            text = "Processes that an agent detached into sessions of their own go on while its work is verified; they are listed."
            against = "Harbor keeps them as well."
        else:
            text = "Every process that an agent left behind is killed before its work is verified, detached servers included."
            against = "Harbor keeps them: a server that a task wants to be up must be started by its verifier here."
        yield Disclosure(f"after_agent_{policy.value.replace('-', '_')}", names(members), text, against)
    text = "The agent itself and what it was running are dead, and seen to be dead, before the verifier starts."
    against = "Harbor stops waiting at a deadline and does not end the agent, which goes on beside the verifier."
    yield Disclosure("agent_dead_before_verifier", names(arms), text, against)


def gateway(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    asking = names(arm for arm, _ in codex_arms(arms))
    if on.gateway and asking:
        text = (
            "Model calls pass through a gateway that holds the key, shares one budget among all arms and waits out what fails before the "
            f"first byte of an answer (429, 5xx, broken connections), at most {count(on.hold_s, 'second')} for one request."
        )
        against = "Ordinarily codex speaks to its provider itself and meets these errors itself, and a key lies in the container."
        yield Disclosure("gateway_between", asking, text, against)
        yield _held(asking, on)
        if on.strip:
            text = f"The gateway removes fields from every request before it is sent on: {listed(on.strip)}."
            yield Disclosure("fields_stripped", asking, text, "Ordinarily codex sends them to its provider.")
    if on.judge:
        text = "Verifiers that ask a judge model reach it through the gateway, with a key of their own."
        yield Disclosure("judge_by_gateway", names(arms), text, "Harbor gives them a provider's key from its own environment.")


def _held(asking: tuple[str, ...], on: Conditions) -> Disclosure:
    where = f", and in {on.benchmark}," if on.benchmark else ""
    ordinary = f"Ordinarily{where} the clock runs on while a provider does not answer."
    if on.held_is_charged or not on.held_at_most_s:
        return Disclosure("held_time_charged", asking, "Time in which the gateway held a request counts against the deadline.", ordinary)
    text = (
        "Time in which the gateway held a trial's requests is not charged: its deadline moves by as much, "
        f"at most {count(on.held_at_most_s, 'second')} in all."
    )
    return Disclosure("held_time_not_charged", asking, text, ordinary)


RULES: tuple[Rule, ...] = (gateway, deadlines, benchmark, money_cap, networks, containers, verifiers, after_agent)
