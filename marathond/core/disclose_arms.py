"""Disclosures of how arms are driven and of what each of them is given.

Owns their words, each a pure rule over arms and conditions.  "The earlier public runs" are those of the same arms that were published
before this program: what is said of them here is what is known of them, and results are never pooled with theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from marathond.core.disclosure import Conditions, Disclosure, alike, begun, codex_arms, count, listed, names, number, ordinary_source
from marathond.core.model import Arm, CodexArm
from marathond.core.names import AgentKind, Drive

DEFAULTS = CodexArm(package="", version="", model="", effort="")
"""For what is said of a knob that is at its default."""
EARLIER_PINS = (8, 8, 300_000)
"""Request retries, stream retries and patience (ms) of the earlier public runs' codex."""


def kinds(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    oracle, nop, command = (names(arm for arm in arms if arm.kind is kind) for kind in (AgentKind.ORACLE, AgentKind.NOP, AgentKind.COMMAND))
    bound = "It bounds the scores from {}; it is no agent, and belongs in no ranking of agents."
    if oracle:
        yield Disclosure("oracle_is_no_agent", oracle, "The task's own solution is run, and no model is asked.", bound.format("above"))
    if nop:
        yield Disclosure("nop_is_no_agent", nop, "Nothing is done, and no model is asked.", bound.format("below"))
    if command:
        text = "A command of its own is run: which model it asks, over which transport and with which retries is its own affair."
        against = "Arms of codex go through one transport and one gateway, are counted there and share one budget; these are not."
        yield Disclosure("command_of_its_own", command, text, against)


def transport(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    plain = names(arm for arm, codex in codex_arms(arms) if codex.drive is Drive.TURN)
    if plain:
        text = "The task is one turn of a thread in `codex app-server`, not a run of `codex exec`."
        against = "A plain run of codex without a terminal is ordinarily `codex exec`; here all arms of codex share one transport."
        yield Disclosure("plain_over_app_server", plain, text, against)
    without = names(arm for arm, codex in codex_arms(arms) if codex.drive is not Drive.GOAL)
    if without:
        text = "The feature `goals` is off, so that no turn begins but those that the program begins."
        against = "codex has it on by default: a model that sets itself a goal there is driven on."
        yield Disclosure("goals_off", without, text, against)


def goals(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    native = [(arm, codex) for arm, codex in codex_arms(arms) if codex.drive is Drive.GOAL]
    own = [(arm, codex) for arm, codex in native if codex.loopx is None]
    for objective, members in alike(own, lambda codex: codex.objective):
        text = f"The objective of the native goal is the literal `{objective}`, and the whole instruction goes into the first turn."
        same = objective == DEFAULTS.objective
        against = "The earlier public runs did the same" if same else f"The earlier public runs had the objective `{DEFAULTS.objective}`"
        yield Disclosure("goal_objective_literal", members, text, f"{against}; ordinarily a person gives the task itself as the objective.")
    for budget, members in alike(native, lambda codex: codex.token_budget):
        if budget is not None:
            text = f"A goal has a budget of {number(budget)} tokens (input without cached, and output, as codex counts them)."
            yield Disclosure("token_budget", members, text, f"codex sets none by itself, and {ordinary_source(on)} bounds time alone.")
    for (operator, cap), members in alike(own, lambda codex: (codex.operator, codex.unblocks_at_most if codex.operator else 0)):
        earlier = "The earlier public runs had an operator for arms of LoopX only, at most 8 times"
        if operator:
            text = f"A goal that the model declared blocked is set active again by the program, at most {count(cap, 'time')}, each counted."
            yield Disclosure("operator_on", members, text, f"{earlier}; ordinarily a person decides that.")
        else:
            text = "A goal that the model declared blocked ends the run: nobody sets it active again."
            yield Disclosure("operator_off", members, text, f"{earlier}; ordinarily a person decides that.")


def caps(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = codex_arms(arms)
    for turns, members in alike(ours, lambda codex: codex.turns_at_most):
        text = f"A run ends after {count(turns, 'turn')}{_default(turns == DEFAULTS.turns_at_most)}."
        yield Disclosure("turn_cap", members, text, "codex has no such cap.")
    driven = [(arm, codex) for arm, codex in ours if codex.drive is not Drive.TURN]
    for idle, members in alike(driven, lambda codex: codex.idle_turns_at_most):
        text = f"A run ends after {count(idle, 'turn')} in a row without a tool call{_default(idle == DEFAULTS.idle_turns_at_most)}."
        yield Disclosure("idle_turn_cap", members, text, "codex goes on with a goal without any throttle, about 25 empty turns a second.")
    for retries, members in alike(ours, lambda codex: codex.infra_retries):
        default = _default(retries == DEFAULTS.infra_retries)
        text = f"A turn that the infrastructure failed is taken up again, at most {count(retries, 'time')} in a trial{default}."
        against = "Ordinarily such a turn ends a plain run and blocks a goal, and a person takes it up again or does not."
        yield Disclosure("failed_turn_retried", members, text, against)
    yield from _differing(ours)


def _default(at_default: bool) -> str:
    return " (the default)" if at_default else ""


def _differing(ours: Sequence[tuple[Arm, CodexArm]]) -> Iterator[Disclosure]:
    """Caps whose values differ between arms that have them, in one row: a reader must not have to compare rows."""
    driven = [(arm, codex) for arm, codex in ours if codex.drive is not Drive.TURN]
    resumed = [(arm, codex) for arm, codex in ours if codex.operator]
    compared = (
        ("turns", "turns_at_most", ours),
        ("idle turns", "idle_turns_at_most", driven),
        ("unblocks", "unblocks_at_most", resumed),
        ("retries of failed turns", "infra_retries", ours),
    )
    told: list[str] = []
    whose: set[str] = set()
    for word, field, having in compared:
        groups: list[tuple[int, tuple[str, ...]]] = alike(having, attrgetter(field))
        if len(groups) > 1:
            told.append(f"{word} {', '.join(f'{number(value)} ({listed(group)})' for value, group in groups)}")
            whose.update(*(group for _, group in groups))
    if told:
        concerned = tuple(arm.name for arm, _ in ours if arm.name in whose)
        text = f"Caps differ between arms: {'; '.join(told)}."
        yield Disclosure("caps_differ", concerned, text, "Arms that are compared ordinarily have the same caps.")


def project_files(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = names(arm for arm, _ in codex_arms(arms))
    if not ours:
        return
    text = "The task's folder is an untrusted project: a `.codex/config.toml` in it changes nothing."
    against = "codex with full access trusts a folder by itself, and such a file may then choose model, effort and features."
    yield Disclosure("project_untrusted", ours, text, against)
    text = "An AGENTS.md in the task's folder does not reach the model, since the project is untrusted; a trial's facts name those found."
    yield Disclosure("agents_md_dropped", ours, text, "codex in a trusted project puts it into the model's context.")
    if speaking := [f"{task.name} ({', '.join(task.speaks)})" for task in on.tasks if task.speaks]:
        text = f"Files that speak to an agent come with {count(len(speaking), 'task')} of this campaign: {listed(speaking)}."
        against = "Of these, codex reads AGENTS.md and .codex/config.toml in trusted projects only, and skills in untrusted ones as well."
        yield Disclosure("tasks_with_project_files", ours, text, against)


def client(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = codex_arms(arms)
    if not ours:
        return
    everyone = names(arm for arm, _ in ours)
    against = "The earlier public runs had it off as well; a person's codex may have it on."
    yield Disclosure("web_search_off", everyone, "The provider's web search is off in codex.", against)
    text = "Approvals are off and codex's own sandbox is (`danger-full-access`): the container is the sandbox."
    yield Disclosure("no_approvals", everyone, text, "Ordinarily a person approves what leaves the sandbox; here there is none.")
    text = "Skills that codex brings along are off, and so is its sending of usage data."
    yield Disclosure("bundled_skills_off", everyone, text, "codex has six of them on by default, and they stand in every prompt.")
    for pins, members in alike(ours, lambda codex: (codex.request_max_retries, codex.stream_max_retries, codex.stream_idle_timeout_ms)):
        request, stream, idle_ms = pins
        text = (
            f"codex's own retries are pinned: {request} of a request and {stream} of a stream, which may be silent for "
            f"{count(idle_ms / 1000, 'second')}. A refused connection fails the turn in the end (`unbounded_connection_retries` is off)."
        )
        first, second, third = EARLIER_PINS
        against = "the same" if pins == EARLIER_PINS else f"{first} and {second}, and {count(third / 1000, 'second')}"
        yield Disclosure("codex_retries_pinned", members, text, f"The earlier public runs had {against}.")


def versions(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = codex_arms(arms)
    staged = alike(ours, lambda codex: (codex.version, codex.package))
    for (version, package), members in staged:
        text = f"codex {version} is mounted read-only from a staged tree{f' ({package})' if package else ''}: no image's own codex is used."
        yield Disclosure(
            "codex_staged", members, text, "Ordinarily it is installed into the image, in the version that is the newest then."
        )
    models = alike(ours, lambda codex: (codex.model, codex.effort))
    if len(models) > 1 or len(staged) > 1:
        told = [f"{model}, effort {effort} ({listed(members)})" for (model, effort), members in models] if len(models) > 1 else []
        told += [f"codex {version} ({listed(members)})" for (version, _), members in staged] if len(staged) > 1 else []
        text = f"Arms differ in what drives them, and not in how alone: {'; '.join(told)}."
        everyone = names(arm for arm, _ in ours)
        yield Disclosure("models_differ", everyone, text, "Arms that are compared ordinarily share model, effort and version.")


def surroundings(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    for arm in arms:
        parts = [f"variables {listed(sorted(arm.env))}"] if arm.env else []
        parts += [f"user {arm.user}"] if arm.user is not None else []
        parts += [f"working folder {arm.cwd}"] if arm.cwd is not None else []
        mounts = [f"{mount.target}{'' if mount.read_only else ' (writable, content not compared)'}" for mount in arm.mounts]
        parts += [f"mounts at {listed(mounts)}"] if mounts else []
        if parts:
            text = f"The agent has what its task does not give it: {'; '.join(parts)}."
            against = begun(f"{ordinary_source(on)} gives every agent what the task and its image say.")
            yield Disclosure("own_surroundings", (arm.name,), text, against)


RULES = (kinds, transport, goals, caps, project_files, client, versions, surroundings)
