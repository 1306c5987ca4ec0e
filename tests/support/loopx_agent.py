"""An agent that uses LoopX as its body tells it to, as steps of a practice script: it asks, works, settles, and completes its todo.

Owns the shell that a model would write after reading LoopX's answer (measured on LoopX 2.1.1); the ids it needs come from that answer, and
a wake's id from the message that brought it (``Script.latest``).  Must not know drivers.

A todo is complete once its outcome is written back, its slot spent, its lease held and its closing told, all with the identity of one
turn; where nothing is left, LoopX's scheduler says ``stop_until_explicit_resume``.
"""

from __future__ import annotations

from typing import Any

from marathond.agents.loopx import goal, profile
from marathond.core.model import LoopXArm
from marathond.core.names import LoopXProfile

LATEST = r"LOOPX_TURN=(?P<turn>[0-9TZ:-]+)"
"""Of a script whose steps stand in a wake: its id."""
PACKAGE, VERSION = "loopx-of-a-test", "2.1.1"
SEEN = "/tmp/loopx-said.json"
_PATHS = goal.Paths.of(LoopXArm(PACKAGE, VERSION, "wheel"), "/app")
_CALL = f"{profile.CLI} --registry {_PATHS.registry} --runtime-root {_PATHS.runtime} --format json"
_GOAL, _AGENT = f"--goal-id {goal.GOAL_ID}", f"--agent-id {goal.AGENT_ID}"
_CAN = " ".join(goal.CAPABILITIES)
_TURN = {LoopXProfile.SSH_GOAL: "--begin-turn", LoopXProfile.CODEX_CLI: "", LoopXProfile.GENERIC_CLI: "--turn-instance-id {{turn}}"}


def ask(runtime: LoopXProfile) -> dict[str, Any]:
    """The quota call of the body; its answer begins with what it says of the turn's id."""
    quota = f"{_CALL} quota should-run {_GOAL} {_AGENT} {_CAN} --runtime-profile {runtime.value} {_TURN[runtime]}"
    return {"run": f"{quota} >{SEEN} && head -c 2000 {SEEN}; echo asked >>/ran"}


_IDS = "\n".join(
    [
        f"todo=$(grep -o 'todo_[0-9a-f]\\{{12,\\}}' {SEEN} | head -1)",
        f'turn=$(grep -o \'"turn_instance_id":"[^"]*\' {SEEN} | head -1 | cut -d\'"\' -f4)',
        'id=""; [ -z "$turn" ] || id="--todo-id $todo --turn-instance-id $turn"',
    ]
)


def _settling() -> list[str]:
    """Outcome, slot, lease, closing: a call each."""
    refresh = "--classification validated_progress --delivery-batch-scale implementation --delivery-outcome primary_goal_outcome"
    vision = "--vision-state no_followup --vision-summary 'The task is done.' --vision-acceptance 'Its checks pass.'"
    return [
        f"{_CALL} refresh-state {_GOAL} {refresh} --delivery-boundary semantic_closeout $id {_AGENT} {_CAN} {vision} >/tmp/1.json",
        f'{{ [ -z "$id" ] || {_CALL} quota spend-slot {_GOAL} --slots 1 --source heartbeat --execute $id {_AGENT} {_CAN} >/tmp/2.json; }}',
        f"{_CALL} task-lease acquire {_GOAL} --todo-id $todo --owner {goal.AGENT_ID} --idempotency-key done >/tmp/3.json",
        f"{_CALL} todo complete {_GOAL} --todo-id $todo ${{turn:+--turn-instance-id $turn}} {_AGENT} --evidence 'checks pass'"
        " --no-follow-up --task-lease-idempotency-key done --task-lease-expected-version 1 >/tmp/4.json",
    ]


def settle() -> dict[str, Any]:
    """After :func:`ask` and the work, in one command."""
    return {"run": " &&\n".join([f"{_IDS}\n{_settling()[0]}", *_settling()[1:], "echo settled >>/ran || cat /tmp/[1234].json"])}


def settle_in_steps() -> list[dict[str, Any]]:
    """The same with a command for each call, none of which outlasts codex's patience with a command on a loaded machine."""
    return [{"run": f"{_IDS}\n{call} || cat /tmp/[1234].json"} for call in _settling()]


def gate(question: str = "May I go on?") -> dict[str, Any]:
    """A todo for a person that holds up everything."""
    add = f"{_CALL} todo add {_GOAL} --role user --text '{question}' --task-class user_gate {_AGENT}"
    return {"run": f"{add} >/tmp/gate.json; echo gated >>/ran"}
