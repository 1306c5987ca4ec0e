"""An arm as JSON data and back.  What is written here is hashed as part of the treatment, so every field is always there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from marathond.core.model import Arm, CodexArm, LoopXArm, Mount
from marathond.core.names import AfterAgent, AgentKind, Drive, LoopXProfile


def arm_to_data(arm: Arm) -> dict[str, Any]:
    """Canonical plain values."""
    return {
        "name": arm.name,
        "kind": arm.kind.value,
        "argv": list(arm.argv),
        "env": dict(sorted(arm.env.items())),
        "user": arm.user,
        "cwd": arm.cwd,
        "mounts": [{"source": m.source, "target": m.target, "read_only": m.read_only} for m in arm.mounts],
        "install_check": list(arm.install_check),
        "after_agent": arm.after_agent.value,
        "codex": None if arm.codex is None else codex_to_data(arm.codex),
    }


def codex_to_data(codex: CodexArm) -> dict[str, Any]:
    """An arm without LoopX has the form, and the hash, of arms from before there was one."""
    data = {**asdict(codex), "drive": codex.drive.value}
    if codex.loopx is None:
        del data["loopx"]
    else:
        data["loopx"]["profile"] = codex.loopx.profile.value
    return data


def _codex_from_data(data: Mapping[str, Any]) -> CodexArm:
    loopx = data.get("loopx")
    given = None if loopx is None else LoopXArm(**{**loopx, "profile": LoopXProfile(loopx["profile"])})
    return CodexArm(**{**data, "drive": Drive(data["drive"]), "loopx": given})


def arm_from_data(data: Mapping[str, Any]) -> Arm:
    """The reverse.  Raises KeyError or ValueError for data that this version did not write."""
    return Arm(
        name=data["name"],
        kind=AgentKind(data["kind"]),
        argv=tuple(data["argv"]),
        env=dict(data["env"]),
        user=data["user"],
        cwd=data["cwd"],
        mounts=tuple(Mount(m["source"], m["target"], m["read_only"]) for m in data["mounts"]),
        install_check=tuple(data["install_check"]),
        after_agent=AfterAgent(data["after_agent"]),
        codex=None if data.get("codex") is None else _codex_from_data(data["codex"]),
    )
