"""Calls of LoopX's CLI in a trial's container, as the agent's user in its working directory: JSON out, or Refused.

Owns how a call gets there and what of its answer is no answer.  Must not know what is asked, or why.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

from marathond.agents.loopx import inside, profile
from marathond.core.errors import EngineTimeout
from marathond.ports.agent import Environment
from marathond.ports.engine import ExecSpec

CALL_S = 180.0
"""An agent that keeps all cores busy makes a call ten times as long as it is."""
ANSWER_BYTES_AT_MOST = 4 << 20
GRACE_S = 5.0
"""For what runs in the container to end itself, which an engine that gives up on it does not."""
_TEXT = inspect.getsource(inside)


class Refused(Exception):
    """LoopX did not do what it was asked for.

    :param code: ``late``, ``refused`` (its own word: an exit code, ``ok`` false), ``silent`` (no JSON), ``broken`` (it could not be run).
    :param detail: the call and what was said, bounded.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"LoopX, {code}: {detail}")


async def call(env: Environment, cwd: str, *argv: str, timeout_s: float = CALL_S) -> dict[str, Any]:
    """One call, its JSON.  Raises Refused; EngineUnreachable, NotFound as the engine."""
    (answer,) = await calls(env, cwd, [argv], timeout_s=timeout_s)
    return answer


async def calls(env: Environment, cwd: str, wanted: Sequence[Sequence[str]], *, timeout_s: float = CALL_S) -> list[dict[str, Any]]:
    """Several, in their order and in one process.  Raises Refused at the first that fails; the later ones were not made."""
    told = await tell(env, cwd, wanted, timeout_s=timeout_s)
    return [answer_of(argv, done) for argv, done in zip(wanted, told["calls"], strict=False)]


async def tell(
    env: Environment,
    cwd: str,
    wanted: Sequence[Sequence[str]] = (),
    *,
    document: tuple[str, str] | None = None,
    timeout_s: float = CALL_S,
) -> dict[str, Any]:
    """What :mod:`marathond.agents.loopx.inside` tells of these calls; of none: of a look around.  Raises Refused: ``late``, ``broken``.

    :param document: a path in the container that is written before the calls, and what it is a copy of.
    """
    asked = {
        "root": profile.ROOT,
        "calls": [list(argv) for argv in wanted],
        "look": not wanted,
        "document": document,
        "timeout_s": max(1.0, timeout_s),
    }
    spec = ExecSpec(
        (profile.PYTHON, "-I", "-c", _TEXT, json.dumps(asked)),
        # Before its first line runs, the image's loader would have given it the image's libraries.
        env={**env.arm.env, **dict.fromkeys(profile.LOADER, ""), "CODEX_HOME": profile.CODEX_HOME},
        user=env.arm.user or env.task.agent_user,
        cwd=cwd,
    )
    name = ", ".join(words(argv) for argv in wanted) or "a look around"
    try:
        result = await env.engine.run_exec(env.container_id, spec, timeout_s=timeout_s + GRACE_S, max_output=ANSWER_BYTES_AT_MOST)
    except EngineTimeout as error:
        raise Refused("late", f"{name}: no end within {timeout_s:g} s") from error
    return told_in(result.output, result.exit_code, name, len(wanted))


def told_in(output: str, exit_code: int, name: str, wanted: int) -> dict[str, Any]:
    """What ``inside`` told of so many calls, behind whatever else was printed.  Raises Refused: ``broken``."""
    _, mark, text = output.rpartition(inside.MARK)
    try:
        told = json.loads(text) if mark else None
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or (wanted and not _is_whole(told.get("calls"), wanted)):
        raise Refused("broken", f"{name}: exit {exit_code}: {output.strip()[-1000:] or 'no output'}")
    return told


def _is_whole(calls: object, wanted: int) -> bool:
    """As many as were wanted, or fewer after one that failed; each with its end.  Out of the container, so anything may stand there."""
    if not isinstance(calls, list) or not all(isinstance(done, dict) for done in calls):
        return False
    if not all(type(done.get("exit")) is int and isinstance(done.get("out"), str) and isinstance(done.get("err"), str) for done in calls):
        return False
    return len(calls) == wanted or (0 < len(calls) < wanted and calls[-1]["exit"] != 0)


def answer_of(argv: Sequence[str], done: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a call's stdout.  Raises Refused."""
    name, out = words(argv), str(done["out"])
    try:
        answer = json.loads(out)
    except (ValueError, RecursionError):
        answer = None
    if done["exit"] != 0 or (isinstance(answer, dict) and answer.get("ok") is False):
        said = answer.get("error") or answer.get("reason") if isinstance(answer, dict) else None
        raise Refused("refused", f"{name}: exit {done['exit']}: {str(said or done['err'] or out).strip()[-1000:] or 'no output'}")
    if not isinstance(answer, dict):
        raise Refused("silent", f"{name}: no JSON object: {out.strip()[:300] or 'no output'}")
    return answer


def words(argv: Sequence[str]) -> str:
    """The command without its options, for people."""
    found: list[str] = []
    skip = False
    for word in argv:
        if word.startswith("-"):
            if found:
                break
            skip = True
        elif skip:
            skip = False
        else:
            found.append(word)
    return f"loopx {' '.join(found)}"
