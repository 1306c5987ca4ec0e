"""What each field of a codex arm's row declares to change in its contract, and so what two arms may differ in (fault a14).

Owns that table.  Pure; must not know how a contract is captured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marathond.agents.codex.config import PROVIDER
from marathond.agents.codex.contract import METADATA
from marathond.agents.loopx import left_record
from marathond.core.arms import arm_to_data
from marathond.core.contract import Declared, Difference, Path, differences
from marathond.core.model import Arm, CodexArm
from marathond.core.names import Drive

GOAL_TOOLS = ("get_goal", "create_goal", "update_goal")
SKILLS = "skills_instructions"
_SET, _OBJECTIVE, _GO_ON = (
    'user <codex_internal_context source="user_goal">',
    "function_call_output goal_objective",
    'user <codex_internal_context source="goal">',
)
"""Input items of a goal: that one was set, its objective, and how to pursue it."""
_SET_AT, _OBJECTIVE_AT, _GO_ON_AT = (("input", label) for label in (_SET, _OBJECTIVE, _GO_ON))
_MESSAGE_AT = ("input", "user {instruction}", "text")
"""The message with the task: a wake's has LoopX's body behind the instruction."""
_ALL: tuple[Path, ...] = tuple((part,) for part in ("request", "headers", "body", "tools", "input", "instructions", "config", "replaced"))


def _told(field: str, name: str) -> tuple[Declared, ...]:
    """Something that codex tells the provider about its turn, in a header and in the body."""
    return tuple(Declared(field, ((*where, METADATA, name),)) for where in (("headers",), ("body", "client_metadata")))


def _provider(key: str) -> tuple[Declared, ...]:
    return (Declared(f"codex.{key}", (("config", "model_providers", PROVIDER, key),)),)


_GOAL = (
    *(Declared("codex.drive", (("tools", name), ("tools", f"functions.exec/{name}"))) for name in GOAL_TOOLS),
    *(Declared("codex.drive", (path,)) for path in (_SET_AT, _OBJECTIVE_AT, _GO_ON_AT)),
    Declared("codex.drive", (("config", "features", "goals"),)),
    *_told("codex.drive", "turn_trigger"),
)
"""What a goal has beside a turn with goals off; a wake is such a turn."""

_LOOPX_STATE: tuple[Path, ...] = (("loopx",), *(("replaced", word) for word in left_record.REPLACED))
# Skills begin the message that begins with the permissions otherwise, and take its id from it.
_LOOPX_SKILLS: tuple[Path, ...] = (
    ("input", f"developer <{SKILLS}>"),
    ("input", "developer <permissions instructions>", "message"),
    ("instructions", SKILLS),
)
_LOOPX = "codex.loopx"
_BODIES = (_LOOPX, "codex.loopx.state_inside", "codex.loopx.profile")
"""Fields by which LoopX's body surely differs; where it stands is the drive's."""


_OF_THE_PROFILE = {"profile": True, "body_sha256": True, "hashes": False}
"""What of LoopX's state differs by it, and whether surely: both goal profiles have the hashes of both bodies."""


def _any_loopx(field: str) -> tuple[Declared, ...]:
    """Another LoopX: what of it differs only LoopX can tell."""
    paths = (*_LOOPX_STATE, *_LOOPX_SKILLS, _SET_AT, _OBJECTIVE_AT, _MESSAGE_AT)
    return (Declared(f"{_LOOPX}.{field}", paths, surely=False),)


DECLARES: Mapping[str, tuple[Declared, ...]] = {
    "kind": (Declared("kind", _ALL),),
    "codex.package": (Declared("codex.package", _ALL),),
    "codex.version": (Declared("codex.version", _ALL),),
    "codex.model": (Declared("codex.model", _ALL),),
    "codex.effort": (
        Declared("codex.effort", (("body", "reasoning", "effort"),)),
        Declared("codex.effort", (("config", "model_reasoning_effort"),)),
        *_told("codex.effort", "reasoning_effort"),
    ),
    "codex.request_max_retries": _provider("request_max_retries"),
    "codex.stream_max_retries": _provider("stream_max_retries"),
    "codex.stream_idle_timeout_ms": _provider("stream_idle_timeout_ms"),
    "codex.drive": _GOAL,
    "codex.objective": tuple(Declared("codex.objective", (path,)) for path in (_SET_AT, _OBJECTIVE_AT)),
    "codex.token_budget": (Declared("codex.token_budget", (_GO_ON_AT,)),),
    # What the driver does between turns and after failures: nothing of it reaches codex before it happens.
    "codex.infra_retries": (),
    "codex.operator": (),
    "codex.unblocks_at_most": (),
    "codex.turns_at_most": (),
    "codex.idle_turns_at_most": (),
    # Beside its body, for which see _bodies().
    _LOOPX: (Declared(_LOOPX, _LOOPX_STATE), Declared(_LOOPX, _LOOPX_SKILLS)),
    "codex.loopx.package": _any_loopx("package"),
    "codex.loopx.version": _any_loopx("version"),
    "codex.loopx.source": _any_loopx("source"),
    "codex.loopx.state_inside": (Declared("codex.loopx.state_inside", _LOOPX_STATE),),
    "codex.loopx.profile": tuple(
        Declared("codex.loopx.profile", (("loopx", "set_up", key),), surely) for key, surely in _OF_THE_PROFILE.items()
    ),
    "codex.loopx.wake_interval_s": (),
    # Of the container and its processes: codex does not tell the model, and a working directory is replaced.
    "argv": (),
    "env": (),
    "user": (),
    "cwd": (),
    "mounts": (),
    "install_check": (),
    "after_agent": (),
}
"""Field of an arm's row to the differences that it is meant to make in a first request, in config.toml or in LoopX's state."""


def row_differences(a: Arm, b: Arm) -> list[Difference]:
    """The fields in which two rows differ; their names are no treatment."""
    return [found for found in differences(_row(a), _row(b)) if found.path != ("name",)]


def _row(arm: Arm) -> dict[str, Any]:
    """Fields of codex beside the others; lists are one value each."""
    data = arm_to_data(arm)
    codex = data.pop("codex")
    plain = {key: (value,) if isinstance(value, list) else value for key, value in data.items()}
    return {**plain, **({} if codex is None else {f"codex.{key}": value for key, value in codex.items()})}


def field_of(path: Path) -> str:
    """Name of the field of :data:`DECLARES` that a row difference is one of; of what this version does not know, its own."""
    nested = ".".join(path)
    return nested if nested in DECLARES else path[0]


def declared(a: Arm, b: Arm) -> tuple[Declared, ...]:
    """All that the rows of two codex arms declare to be different.  Of a field that this version does not know it is not known what it
    declares: it comes without paths."""
    assert a.codex is not None and b.codex is not None
    fields = dict.fromkeys(field_of(found.path) for found in row_differences(a, b))
    given = [each for field in fields for each in _given(field, a.codex, b.codex)]
    if "codex.drive" in fields:
        # A goal's own fields say nothing of a turn, and all of the goal's context is the drive's already.
        given = [each for each in given if each.field not in ("codex.objective", "codex.token_budget")]
    return tuple(given)


def _given(field: str, a: CodexArm, b: CodexArm) -> Iterator[Declared]:
    if field not in DECLARES:
        yield Declared(field, ())
    elif field != "codex.drive" or Drive.GOAL in (a.drive, b.drive):
        yield from DECLARES[field]
    if field in _BODIES:
        yield from dict.fromkeys(each for codex in (a, b) if codex.loopx is not None for each in _bodies(field, codex.drive))


def _bodies(field: str, drive: Drive) -> Iterator[Declared]:
    """Where LoopX's body stands.  codex leaves out of the context of a goal what is as long as one."""
    if drive is Drive.GOAL:
        yield Declared(field, (_OBJECTIVE_AT,))
        if field == _LOOPX:
            yield Declared(field, (_SET_AT,))
    else:
        yield Declared(field, (_MESSAGE_AT, ("replaced", "{wake}")))
