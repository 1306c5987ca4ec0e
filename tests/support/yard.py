"""The sample tasks in real containers of the tests' own, without daemon and ledger: build, run, verify, clean up.

Owns one test's containers, networks and images, all under one label.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

import marathond.demo
from marathond.core.model import Mount, Task
from marathond.core.names import NetworkPolicy
from marathond.core.score import ScoreReading, read_score
from marathond.demo.docker_http import Docker
from marathond.engine.docker import DockerEngine
from marathond.engine.host import occupied
from marathond.ports.engine import ContainerSpec, ExecResult, ExecSpec
from marathond.tasks.harbor import read_task
from tests.support import worker
from tests.support.rig import CALL_TIMEOUT_S

DEMO = Path(marathond.demo.__file__).parent
TESTS = {"csv-totals": 8, "greet": 6, "maze": 7, "own-address": 3, "roman": 15, "visits": 5}
"""How many checks the verifier of each sample counts."""
HALFWAY = Mount(str(DEMO / "agents/halfway.sh"), "/opt/halfway")
OUTPUTS = ("reward.txt", "metrics.json")


def sample(name: str, **environ: str) -> Task:
    outcome = read_task(DEMO / "samples" / name, environ)
    assert isinstance(outcome, Task), outcome
    return outcome


class Yard:
    """One test's containers, networks and images, all under one label."""

    def __init__(self, engine: DockerEngine, docker_host: str) -> None:
        self.engine, self.docker_host, self.labels = engine, docker_host, {"marathond.test": secrets.token_hex(6)}
        self.built: list[str] = []
        self._made: dict[str, str] = {}
        self._making = anyio.Lock()

    async def _once(self, name: str, make: Callable[[], Awaitable[str]]) -> str:
        async with self._making:
            if name not in self._made:
                self._made[name] = await make()
            return self._made[name]

    async def image(self, task: Task) -> str:
        """Its id; built once."""
        return await self._once(f"image {task.name}", lambda: self._image(task))

    async def _image(self, task: Task) -> str:
        if task.image is not None:
            found = await self.engine.inspect_image(task.image)
            assert found is not None, f"the engine has no image {task.image}"
            return found.id

        async def ignore(_: bytes) -> None:
            await anyio.lowlevel.checkpoint()

        tag = f"mdtest-{task.name}:{self.labels['marathond.test']}"
        self.built.append(tag)
        built = await self.engine.build_image(
            Path(task.path) / "environment",
            tag=tag,
            labels=self.labels,
            build_args={},
            network="none",
            timeout_s=task.build_timeout_s,
            log=ignore,
        )
        return built.id

    async def network(self, task: Task) -> str | None:
        """One for all containers that want one."""
        return None if task.network is NetworkPolicy.NONE else await self._once("network", self._network)

    async def _network(self) -> str:
        networks = [text for net in await self.engine.list_networks() for text in net.subnets if ":" not in text]
        taken = [*networks, *(item.cidr for item in await anyio.to_thread.run_sync(occupied))]
        return await self.engine.create_network(f"mdtest-{self.labels['marathond.test']}", self.labels, worker.any_subnet(taken))

    async def container(self, task: Task, mounts: Sequence[Mount] = (), cpus: float | None = None) -> str:
        """A running container as the task asks for it; ``cpus`` instead of the task's."""
        spec = ContainerSpec(
            name=f"mdtest-{secrets.token_hex(6)}",
            image_id=await self.image(task),
            labels=self.labels,
            network=await self.network(task),
            env=task.env,
            mounts=mounts,
            workdir=task.workdir,
            cpus=cpus or task.cpus,
            memory_mb=task.memory_mb,
        )
        container = await self.engine.create_container(spec)
        await self.engine.start_container(container)
        return container

    async def run(self, container: str, spec: ExecSpec) -> ExecResult:
        return await self.engine.run_exec(container, spec, timeout_s=300)

    async def agent(self, container: str, task: Task, arm: str) -> None:
        """What the arm does, as the task's agent user, in the task's working directory."""
        if arm == "oracle":
            await self.engine.put_tree(container, Path(task.path) / "solution", "/solution")
            done = await self.run(container, ExecSpec(["/solution/solve.sh"], task.solution_env, task.agent_user, task.workdir))
            assert done.exit_code == 0, done
        elif arm == "halfway":
            write = ExecSpec(
                ["sh", "-c", 'printf %s "$TEXT" > /tmp/instruction.md; chmod 644 /tmp/instruction.md'], {"TEXT": task.instruction}
            )
            assert (await self.run(container, write)).exit_code == 0
            env = {"MARATHOND_INSTRUCTION": "/tmp/instruction.md"}
            done = await self.run(container, ExecSpec(["/opt/halfway"], env, task.agent_user, task.workdir))
            assert done.exit_code == 0, done

    async def verify(self, container: str, task: Task) -> ScoreReading:
        await self.engine.put_tree(container, Path(task.path) / "tests", "/tests")
        script = "mkdir -p /logs/verifier; (/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1"
        await self.run(container, ExecSpec(["sh", "-c", script], task.verifier_env, task.verifier_user, task.workdir))
        files = {}
        for name in OUTPUTS:
            read = await self.run(container, ExecSpec(["cat", f"/logs/verifier/{name}"]))
            assert read.exit_code == 0, await self.run(container, ExecSpec(["cat", "/logs/verifier/test-stdout.txt"]))
            files[name] = read.output.encode()
        json.loads(files["metrics.json"])
        return read_score(files, verifier_exited=True)

    async def remove(self, container: str) -> None:
        """Until it is gone, also for a caller that is being cancelled; a removal under way elsewhere is waited for."""
        with anyio.CancelScope(shield=True), anyio.fail_after(300):
            while True:
                if await self.engine.remove_container(container):
                    return
                await anyio.sleep(0.1)

    async def clean(self) -> None:
        for container in await self.engine.list_containers(self.labels):
            await self.remove(container.id)
        for network in await self.engine.list_networks():
            if network.labels.get("marathond.test") == self.labels["marathond.test"]:
                assert await self.engine.remove_network(network.id)
        for tag in self.built:
            status, answer = await anyio.to_thread.run_sync(Docker(self.docker_host).call, "DELETE", f"/images/{tag}", CALL_TIMEOUT_S)
            assert status in (200, 404), answer


@asynccontextmanager
async def yard(docker_host: str) -> AsyncIterator[Yard]:
    engine = DockerEngine("test", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    made = Yard(engine, docker_host)
    try:
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await made.clean()
            await engine.aclose()
