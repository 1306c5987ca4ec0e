"""What must hold before a LoopX arm may spend its first token, each with a void code of its own; all of them are infrastructure.

Owns the checks beside codex's own (agents/codex/gates.py).  Must not know turns, nor scores.

1. ``loopx_python``: the profile's Python runs here, with sqlite3, without which LoopX's doctor is content and LoopX is not (fault c12);
2. ``loopx_copies``: ours is the only LoopX that the agent, our Python or a Python of the image finds;
3. ``loopx_profile``: it is of the arm's version, and the wrapper answers so;
4. ``loopx_command``: a bare ``loopx`` is ours in each of the agent's shells;
5. ``loopx_node``: Node is there and new enough, by LoopX's own probe; what LoopX does here afterwards it does with that one, for its
   daemon, which would go on with a Node that is gone, is ended first;
6. ``loopx_skills``: upstream's required skills lie where the agent's codex looks, whole; what codex itself finds its own gate compares;
7. ``loopx_setup``: the goal, with the instruction as its document and the task as its todo;
8. ``loopx_quota``: a real ``quota should-run`` selects that todo (fault c16);
9. ``loopx_body``: what LoopX renders has no placeholder left and fits; of the two goal profiles it differs in the quota call alone (c05);
10. ``loopx_doctor``: skill delivery is ready, by its own field (fault c12);
11. ``loopx_left``: LoopX's daemon has ended, and no process of LoopX is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio

from marathond.agents.loopx import goal as goals
from marathond.agents.loopx import profile
from marathond.agents.loopx.commands import Refused, answer_of, tell
from marathond.agents.loopx.goal import Goal
from marathond.agents.loopx.quota import read_quota
from marathond.core.errors import GateFailed
from marathond.core.model import LoopXArm
from marathond.core.names import LoopXProfile
from marathond.ports.agent import Environment, GatePassed

OBJECTIVE_CHARS = 4000
"""Codex's limit for a goal's objective."""
RESTART = ("--format", "json", "doctor", "--installation-only", "--restart-runtime")
"""Ends LoopX's daemon; whatever needs it starts another one."""
DOCTOR = ("--format", "json", "doctor", "--agent-type", "codex-app-ssh")
GOAL_PROFILES = (LoopXProfile.SSH_GOAL, LoopXProfile.CODEX_CLI)
QUOTA_CALL, REGISTRY_NAME = "quota should-run", "registry.global.json"
LEFT_S, POLL_S = 10.0, 0.1


async def check(env: Environment, cwd: str, loopx: LoopXArm) -> tuple[Goal, list[GatePassed]]:
    """All of them, the trial's goal set up on the way.  Raises GateFailed; EngineUnreachable, NotFound as the engine."""
    with refusal("loopx_python"):
        told = await tell(env, cwd, timeout_s=env.gate_timeout_s)
    passed = judge_look(told, loopx)
    goal = Goal(cwd, loopx.profile, goals.Paths.of(loopx, cwd), skills=tuple(told["skills"]["required"]))
    goal, more = await _set_up(env, goal)
    await nothing_left(env)
    where = "in the task's tree" if loopx.state_inside else "outside the task's tree"
    named = GatePassed("loopx goal", f"{goal.goal_id}, {goal.todo_id}; state {where}: {goal.state.registry}, {goal.state.runtime}")
    return goal, [*passed, named, *more, GatePassed("loopx left", "no process")]


@contextmanager
def refusal(code: str) -> Iterator[None]:
    """What LoopX refuses inside, as a failed gate."""
    try:
        yield
    except Refused as error:
        raise GateFailed(code, f"{error.code}: {error.detail}"[:2000]) from error


def judge_look(told: Mapping[str, Any], loopx: LoopXArm) -> list[GatePassed]:
    """Of what was seen around and of the profile.  Raises GateFailed."""
    try:
        return _judged(told, loopx)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise GateFailed("loopx_profile", f"a look around told something of another shape: {error!r}"[:2000]) from error


def _judged(told: Mapping[str, Any], loopx: LoopXArm) -> list[GatePassed]:
    if told["sqlite"]:
        raise GateFailed("loopx_python", f"{profile.PYTHON} has no sqlite3: {told['sqlite']}"[:2000])
    seen = told["look"]
    if seen["copies"]:
        raise GateFailed("loopx_copies", f"another LoopX than {profile.ROOT}: {'; '.join(seen['copies'])}"[:2000])
    if [place.rpartition("/")[2].partition("-")[0] for place in seen["places"]] != ["loopx", "loopx"]:
        raise GateFailed("loopx_copies", f"{profile.PYTHON} finds {', '.join(seen['places']) or 'no loopx'}, expected one"[:2000])
    if seen["versions"] != [loopx.version] or told["version"] != f"loopx {loopx.version}":
        found = f"the profile holds LoopX {', '.join(seen['versions'])}, {profile.CLI} says {told['version'][:500]!r}"
        raise GateFailed("loopx_profile", f"{found}, expected {loopx.version}")
    lacking = [shell for shell, at in seen["bare"].items() if not at]
    if lacking or not seen["bare"]:
        where = f"in {', '.join(lacking)}" if lacking else "in any shell: none runs"
        raise GateFailed("loopx_command", f"a bare loopx is not {profile.COMMAND} {where}")
    node = told["node"]
    if node["outcome"] != "ready" or not node["at"].startswith(f"{profile.ROOT}/"):
        found = " ".join(filter(None, (node["at"], node["version"]))) or "none found"
        raise GateFailed("loopx_node", f"node is {node['outcome']}: {found}, expected {profile.NODE}, {node['least']} or newer")
    skills, read = told["skills"]["required"], told["skills"]["readback"]
    if read["ready"] is not True or read["loopx_version"] != loopx.version:
        faults = {key: value for key, value in read.items() if value and key != "ready"}
        raise GateFailed("loopx_skills", f"{profile.AGENT_SKILLS}: {faults}"[:2000])
    return [
        GatePassed("loopx", f"{loopx.version}, the only one; {' '.join(sorted(set(seen['bare'].values())))} in {', '.join(seen['bare'])}"),
        GatePassed("loopx python", f"{told['python']}, with sqlite3"),
        GatePassed("loopx node", f"{node['version']}, at least {node['least']}"),
        GatePassed("loopx skills", f"{len(skills)}: {', '.join(skills)}"[:1000]),
    ]


async def _set_up(env: Environment, goal: Goal) -> tuple[Goal, list[GatePassed]]:
    """The goal, then quota, bodies and doctor, in one process; LoopX's daemon is ended before and after."""
    profiles = GOAL_PROFILES if goal.profile in GOAL_PROFILES else (goal.profile,)
    wanted = [
        *([("loopx_setup", RESTART)] if await _of_loopx(env) else []),
        *(("loopx_setup", argv) for argv in goals.set_up_argvs(goal)),
        ("loopx_quota", goals.quota_argv(goal, goal.profile)),
        *(("loopx_body", goals.body_argv(goal, each)) for each in profiles),
        ("loopx_doctor", DOCTOR),
        ("loopx_left", RESTART),
    ]
    answers: dict[str, list[dict[str, Any]]] = {code: [] for code, _ in wanted}
    with refusal("loopx_setup"):
        document = (goal.state.document, goals.INSTRUCTION)
        time_s = env.gate_timeout_s * len(answers)
        told = await tell(env, goal.cwd, [argv for _, argv in wanted], document=document, timeout_s=time_s)
    for (code, argv), done in zip(wanted, told["calls"], strict=False):
        with refusal(code):
            answers[code].append(answer_of(argv, done))
    with refusal("loopx_setup"):
        goal = replace(goal, todo_id=goals.read_todo_id(answers["loopx_setup"][-1]))
    quota = judge_quota(answers["loopx_quota"][0], goal)
    with refusal("loopx_body"):
        bodies = {name: goals.read_body(answer, goal) for name, answer in zip(profiles, answers["loopx_body"], strict=True)}
    differs = judge_bodies(bodies)
    doctor = judge_doctor(answers["loopx_doctor"][0])
    hashes = {str(name): goals.sha256(text) for name, text in bodies.items()}
    goal = replace(goal, body=bodies[goal.profile], body_sha256=hashes[goal.profile], hashes=hashes)
    said = "; ".join(f"{name} sha256 {hashes[name]}, {len(text)} characters" for name, text in bodies.items())
    return goal, [GatePassed("loopx quota", quota), GatePassed("loopx body", f"{said}{differs}"), GatePassed("loopx doctor", doctor)]


def judge_quota(answer: Mapping[str, Any], goal: Goal) -> str:
    """Raises GateFailed unless it runs our todo."""
    try:
        quota = read_quota(answer)
    except ValueError as error:
        raise GateFailed("loopx_quota", str(error)) from error
    if quota.todo_id != goal.todo_id or not quota.should_run:
        said = f"decision {quota.decision}, should_run {quota.should_run}, selected {quota.todo_id or 'no todo'}"
        raise GateFailed("loopx_quota", f"{said}, expected {goal.todo_id}")
    return f"{quota.decision}, {quota.effective}, selects {quota.todo_id}"


def judge_bodies(bodies: Mapping[LoopXProfile, str]) -> str:
    """Words about how they differ; empty where there is one.  Raises GateFailed."""
    for name, text in bodies.items():
        left = next((line for line in text.splitlines() if REGISTRY_NAME in line), "")
        if left:
            raise GateFailed("loopx_body", f"{name}: a placeholder is left: {left[:300]}")
        if profile.CLI not in text:
            raise GateFailed("loopx_body", f"{name}: {profile.CLI} does not occur in it")
        if name in GOAL_PROFILES and len(text) >= OBJECTIVE_CHARS:
            raise GateFailed("loopx_body", f"{name}: {len(text)} characters, a goal's objective has less than {OBJECTIVE_CHARS}")
    if len(bodies) == 1:
        return ""
    one, other = (text.splitlines() for text in bodies.values())
    lines = [n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b]
    if len(one) != len(other) or len(lines) != 1 or not all(QUOTA_CALL in text[lines[0]] for text in (one, other)):
        where = f"{len(one)} and {len(other)} lines, differing in {[n + 1 for n in lines][:20]}"
        raise GateFailed("loopx_body", f"{' and '.join(bodies)}: {where}, expected one line, the call of {QUOTA_CALL}")
    return f"; they differ in line {lines[0] + 1} alone"


def judge_doctor(answer: Mapping[str, Any]) -> str:
    """Raises GateFailed unless skill delivery itself is ready."""
    delivery = answer.get("skill_delivery")
    status = delivery.get("status") if isinstance(delivery, dict) else None
    if status != "ready":
        raise GateFailed("loopx_doctor", f"skill_delivery.status is {status!r}, expected 'ready'; ok is {answer.get('ok')!r}")
    return "skill delivery ready"


async def nothing_left(env: Environment) -> None:
    """Raises GateFailed when what is LoopX's has not ended in a moment."""
    until = time.monotonic() + LEFT_S
    while left := await _of_loopx(env):
        if time.monotonic() > until:
            raise GateFailed("loopx_left", f"still there: {'; '.join(argv[:200] for argv in left)}"[:2000])
        await anyio.sleep(POLL_S)


async def _of_loopx(env: Environment) -> list[str]:
    """Command lines of what runs there."""
    return [process.argv for process in await env.engine.processes(env.container_id) if f"{profile.ROOT}/" in process.argv]
