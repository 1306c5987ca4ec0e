"""The nonce proof: the engine's bind mounts and processes are those of this very machine.

Owns one short-lived container.  Must not know what depends on the answer.  An engine in another mount namespace, in a virtual machine or
behind TCP would take our paths, mount empty folders, and every trial would look like "the agent did nothing".
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

from marathond.core.errors import EngineError
from marathond.core.model import Mount
from marathond.engine.cgroups import belongs
from marathond.ports.engine import ContainerSpec, Engine, ExecSpec
from marathond.ports.leaving import last_act

READ_TIMEOUT_S = 30.0
CLEANUP_TIMEOUT_S = 60.0
_TARGET = "/marathond-proof"


async def engine_sees_files(engine: Engine, image_id: str, state_dir: Path, labels: Mapping[str, str]) -> list[str]:
    """Problems by name, empty when all is well.  Costs one container without network (about half a second), always removed.

    :param image_id: any local image with ``sh``.
    :param labels: put on the container, so that a sweep finds it if even the cleaning up fails.
    :raises EngineError: when the engine cannot run the container at all.
    """
    folder = Path(await anyio.to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="proof-", dir=state_dir)))
    nonce = secrets.token_hex(16)
    container_id = ""
    try:
        await anyio.Path(folder / "nonce").write_text(nonce + "\n")
        spec = ContainerSpec(f"marathond-{folder.name}", image_id, labels, None, mounts=[Mount(str(folder), _TARGET)])
        try:
            container_id = await engine.create_container(spec)
        except EngineError as exc:
            if "bind source path does not exist" in exc.detail:
                return [f"mounts: engine {engine.name} does not see {state_dir}: it runs on another machine or in another mount namespace"]
            raise
        await engine.start_container(container_id)
        return await _look(engine, container_id, nonce, state_dir)
    finally:
        # Shielded: a cancelled task does not even begin a thread.  A container whose creation timed out is left to the sweep.
        with last_act(f"removing the proof's container {container_id[:12]}", CLEANUP_TIMEOUT_S):
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder))
            if container_id:
                await engine.remove_container(container_id)


async def _look(engine: Engine, container_id: str, nonce: str, state_dir: Path) -> list[str]:
    problems = []
    # Shell built-ins only: an image without coreutils proves as much.
    read = ExecSpec(["sh", "-c", f'read -r line < {_TARGET}/nonce && printf %s "$line"'], user="0")
    answer = await engine.run_exec(container_id, read, timeout_s=READ_TIMEOUT_S)
    if answer.exit_code or answer.output != nonce:
        problems.append(
            f"mounts: a file under {state_dir} does not arrive in a container of engine {engine.name} "
            f"(exit {answer.exit_code}: {answer.output.strip()[:200]!r})"
        )
    seen = await engine.inspect_container(container_id)
    if seen is None or not seen.running:
        problems.append(f"container: the proof's container of engine {engine.name} did not stay up")
    elif not belongs(seen.pid, container_id):
        problems.append(
            f"processes: pid {seen.pid} of engine {engine.name} is not a process of that container here: "
            "it runs on another machine or in another pid namespace"
        )
    return problems
