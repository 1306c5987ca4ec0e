"""Execs as tests want them: created and started in one go."""

from __future__ import annotations

from marathond.ports.engine import Engine, ExecSpec


async def start_exec(engine: Engine, container_id: str, spec: ExecSpec) -> str:
    """The id of the exec that was started detached."""
    exec_id = await engine.create_exec(container_id, spec)
    await engine.start_created_exec(exec_id)
    return exec_id
