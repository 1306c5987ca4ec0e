"""Disclosures of LoopX's arms: which profile of it runs where its own client is not, who keeps its cadence, where its state lies.

Owns their words, each a pure rule over arms and conditions, as :mod:`marathond.core.disclose_arms` does for codex.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marathond.core.disclosure import Conditions, Disclosure, count
from marathond.core.model import Arm, CodexArm, LoopXArm
from marathond.core.names import Drive, LoopXProfile

Row = tuple[Arm, CodexArm, LoopXArm]


def loopx_arms(arms: Sequence[Arm]) -> list[Row]:
    return [(arm, arm.codex, arm.codex.loopx) for arm in arms if arm.codex is not None and arm.codex.loopx is not None]


def profiles(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = loopx_arms(arms)
    goals = [(arm, loopx) for arm, codex, loopx in ours if codex.drive is Drive.GOAL]
    for profile in LoopXProfile:
        members = tuple(arm.name for arm, loopx in goals if loopx.profile is profile)
        if members:
            text = (
                f"The objective of the native goal is the body that LoopX renders for its profile `{profile}`, and the whole instruction "
                "goes into the first turn."
            )
            against = "The earlier public runs set LoopX's bodies as objectives too, for every arm of LoopX."
            yield Disclosure("loopx_body_as_objective", members, text, against)
    attended = tuple(arm.name for arm, _, loopx in ours if loopx.profile is LoopXProfile.CODEX_CLI)
    if attended:
        text = "LoopX's profile `codex_cli` is driven over `codex app-server`, and nobody sits before it."
        against = "LoopX means this profile for codex in a terminal that a person attends."
        yield Disclosure("codex_cli_over_app_server", attended, text, against)
    generic = tuple(arm.name for arm, _, loopx in ours if loopx.profile is LoopXProfile.GENERIC_CLI)
    if generic:
        text = "LoopX's heartbeat runs on its profile `generic_cli`, not on `codex_app_heartbeat`."
        against = "`codex_app_heartbeat` waits for a real Codex App's `automation_update` and its acknowledgement, which nobody gives here."
        yield Disclosure("heartbeat_on_generic_cli", generic, text, against)


def wakes(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    waking = [(arm, loopx) for arm, codex, loopx in loopx_arms(arms) if codex.drive is Drive.WAKE]
    if waking:
        text = "Each wake is one turn on the same thread with a turn id of its own and no native goal; the program, not codex, begins it."
        against = "The earlier public runs sent the heartbeat's body through the native-goal loop: their heartbeat is another treatment."
        yield Disclosure("heartbeat_per_wake", tuple(arm.name for arm, _ in waking), text, against)
    for pause_s in dict.fromkeys(loopx.wake_interval_s for _, loopx in waking):
        if pause_s is not None:
            members = tuple(arm.name for arm, loopx in waking if loopx.wake_interval_s == pause_s)
            text = f"Between two wakes lie {count(pause_s, 'second')}, whatever LoopX asks for."
            yield Disclosure("wake_interval_set", members, text, "LoopX's scheduler says how long to wait.")


def state(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = loopx_arms(arms)
    outside, inside = (tuple(arm.name for arm, _, loopx in ours if loopx.state_inside is where) for where in (False, True))
    earlier = "The earlier public runs had it inside, in /app"
    if outside:
        text = "LoopX's state files lie outside the task's tree, where neither the task's tests nor a look around the tree meets them."
        yield Disclosure("loopx_state_outside", outside, text, f"{earlier}; so has LoopX by itself, in `.loopx`.")
    if inside:
        text = "LoopX's state files lie inside the task's tree, where the task's tests and a look around the tree may meet them."
        yield Disclosure("loopx_state_inside", inside, text, f"{earlier}, as well; other arms have no such files there.")
    everyone = tuple(arm.name for arm, *_ in ours)
    if everyone:
        text = "Before the agent starts, the task is written into LoopX as a goal document and a todo, and a quota call must select it."
        against = "LoopX's set-up alone leaves no todo: a goal that is hollow like that did no work for 900 s in an earlier public run."
        yield Disclosure("loopx_task_as_todo", everyone, text, against)
        text = "LoopX's runtime daemon is ended together with the agent, whatever happens to other detached processes."
        against = "By itself it outlives the call that started it, and only arms of LoopX have one."
        yield Disclosure("loopx_daemon_ended", everyone, text, against)


def operators(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    against = "The earlier public runs did so at most 8 times, with a turn that held the full task; ordinarily a person decides that."
    ours = loopx_arms(arms)
    for cap in dict.fromkeys(codex.unblocks_at_most for _, codex, _ in ours if codex.operator):
        members = tuple(arm.name for arm, codex, _ in ours if codex.operator and codex.unblocks_at_most == cap)
        text = (
            f"A model that declared itself blocked, and a gate of LoopX, are cleared by the program, at most {count(cap, 'time')}, counted."
        )
        yield Disclosure("loopx_operator_on", members, text, against)
    if members := tuple(arm.name for arm, codex, _ in ours if not codex.operator):
        text = "A model that declared itself blocked, or a gate of LoopX, ends the run: nobody clears it."
        yield Disclosure("loopx_operator_off", members, text, against)


def staged(arms: Sequence[Arm], on: Conditions) -> Iterator[Disclosure]:
    ours = loopx_arms(arms)
    for version, source, package in dict.fromkeys((loopx.version, loopx.source, loopx.package) for _, _, loopx in ours):
        members = tuple(arm.name for arm, _, x in ours if (x.version, x.source, x.package) == (version, source, package))
        origin = ", ".join(part for part in (source, package) if part)
        text = (
            f"LoopX {version}{f' ({origin})' if origin else ''} is mounted with a Python and a Node of its own, read-only but for folders "
            "of the trial's own."
        )
        against = "Ordinarily LoopX installs itself into a person's home; its makers' own published experiment was with 0.5.3."
        yield Disclosure("loopx_staged", members, text, against)


RULES = (profiles, wakes, state, operators, staged)
