"""The simulated engine (tests/sim) as a process that speaks Docker's API on a unix socket, in real time.

``python -m tests.bench.fake_dockerd SOCKET --agent-s 3600``: for benches alone.  What a request does, how long it takes and what an exec
runs are the simulation's; here is HTTP.  Its agents sleep for ``--agent-s`` and write their result, its verifiers score.  There are no
processes: pids are above the kernel's, and nothing of the host has them.

aiohttp serves, and trio runs the simulation as a guest of the same loop; a request hops over and back.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import signal
import struct
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio
from aiohttp import web

from marathond.core.errors import EngineError, NotFound
from marathond.engine.docker import PID_1
from marathond.ports.clock import SystemClock
from tests.bench import docker_json
from tests.sim import fake_client
from tests.sim.fake_box import Box, Program
from tests.sim.fake_engine import FakeEngine
from tests.sim.faults import FaultModel
from tests.sim.programs import Programs, put
from tests.sim.switch import DeadSwitch

T = TypeVar("T")
FIRST_PID = 1 << 22
"""The most that Linux gives (PID_MAX_LIMIT)."""
UPLOAD_MAX = 64 << 20


class SleepyPrograms(Programs):
    """Agents that only take their time."""

    def __init__(self, agent_s: float) -> None:
        super().__init__(1, unkind=0.0)
        self.agent_s = agent_s

    def _agent(self, trial: str) -> Program:
        async def run(box: Box) -> int:
            await box.sleep(self.agent_s)
            put(box, "/logs/artifacts/result.txt", b"done\n")
            return 0

        return run

    def _verifier(self, trial: str) -> Program:
        async def run(box: Box) -> int:
            await box.sleep(0.2)
            put(box, "/logs/verifier/reward.txt", b"1\n", whole=True)
            return 0

        return run


class Server:
    """Every request of the adapter (marathond/engine), and no other."""

    def __init__(self, agent_s: float) -> None:
        self._agent_s = agent_s
        self._ready = asyncio.Event()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self.engine: FakeEngine
        self.client: fake_client.FakeClient

    # ── the guest ──

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = loop.create_future()
        trio.lowlevel.start_guest_run(
            self._simulate,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda outcome: self._ended.set_result(outcome.unwrap()),
            host_uses_signal_set_wakeup_fd=True,
        )
        await self._ready.wait()

    async def stop(self) -> None:
        """Every program in it ends."""
        self._token.run_sync_soon(self._nursery.cancel_scope.cancel)
        await self._ended

    async def _simulate(self) -> None:
        async with trio.open_nursery() as self._nursery:
            rng = random.Random(1)
            faults = FaultModel(rng, {}, off=True)
            self.engine = FakeEngine(self._nursery, rng, SystemClock(), faults, SleepyPrograms(self._agent_s), version="20.10")
            self.engine._pid = FIRST_PID
            self.client = self.engine.client(DeadSwitch())
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await trio.sleep_forever()

    async def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run ``call`` in the simulation."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                found = await call()
            except EngineError as error:
                answer.set_exception(error) if not answer.done() else None
            else:
                answer.set_result(found) if not answer.done() else None

        self._token.run_sync_soon(lambda: self._nursery.start_soon(run))
        return await answer

    # ── requests ──

    def app(self) -> web.Application:
        made = web.Application(middlewares=[_told], client_max_size=UPLOAD_MAX)
        for method, path, handler in (
            ("GET", "/version", self.version),
            ("GET", "/info", self.info),
            ("GET", "/events", self.events),
            ("GET", "/images/{ref:.+}/json", self.image),
            ("POST", "/networks/create", self.create_network),
            ("GET", "/networks", self.networks),
            ("GET", "/networks/{id}", self.network),
            ("DELETE", "/networks/{id}", self.remove_network),
            ("POST", "/containers/create", self.create_container),
            ("GET", "/containers/json", self.containers),
            ("GET", "/containers/{id}/json", self.container),
            ("GET", "/containers/{id}/top", self.top),
            ("POST", "/containers/{id}/start", self.start_container),
            ("POST", "/containers/{id}/{verb:pause|unpause}", self.pause),
            ("DELETE", "/containers/{id}", self.remove_container),
            ("PUT", "/containers/{id}/archive", self.put_archive),
            ("HEAD", "/containers/{id}/archive", self.stat),
            ("POST", "/containers/{id}/exec", self.create_exec),
            ("POST", "/exec/{id}/start", self.start_exec),
            ("GET", "/exec/{id}/json", self.exec),
        ):
            made.router.add_route(method, "/v1.41" + path, handler)
            made.router.add_route(method, path, handler)
        return made

    async def version(self, _: web.Request) -> web.Response:
        await self.ask(self.client.knock)
        return web.json_response({"Version": "20.10.24", "ApiVersion": "1.41"})

    async def info(self, _: web.Request) -> web.Response:
        info = await self.ask(self.client.info)
        told = {"ServerVersion": info.server_version, "NCPU": 512, "MemTotal": 1 << 42, "DockerRootDir": "", "PidsLimit": True}
        return web.json_response({**told, "LiveRestoreEnabled": info.live_restore})

    async def events(self, request: web.Request) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "application/json"})
        await out.prepare(request)
        lines: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen() -> None:
            async for told in self.client.events():
                if told.type != "marathond":
                    lines.put_nowait(json.dumps(docker_json.event(told)).encode() + b"\n")

        self._token.run_sync_soon(lambda: self._nursery.start_soon(listen))
        while True:
            await out.write(await lines.get())

    async def image(self, request: web.Request) -> web.Response:
        ref = request.match_info["ref"]
        if ref not in self.engine.images:
            self.engine.add_image(ref)  # whatever a task names is there
        found = await self.ask(lambda: self.client.inspect_image(ref))
        assert found is not None
        return web.json_response(docker_json.image(found))

    async def create_network(self, request: web.Request) -> web.Response:
        body = await request.json()
        subnet = body["IPAM"]["Config"][0]["Subnet"] if "IPAM" in body else None
        made = await self.ask(lambda: self.client.create_network(body["Name"], body["Labels"], subnet, internal=body["Internal"]))
        return web.json_response({"Id": made, "Warning": ""}, status=201)

    async def networks(self, _: web.Request) -> web.Response:
        return web.json_response([docker_json.network(each) for each in await self.ask(self.client.list_networks)])

    async def network(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        found = await self.ask(lambda: self.client.inspect_network(wanted))
        if found is None:
            raise NotFound("network.inspect", 404, f"network {wanted} not found")
        return web.json_response(docker_json.network(found))

    async def remove_network(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        if not await self.ask(lambda: self.client.remove_network(wanted)):
            raise EngineError("network.remove", 403, f"error while removing network: network {wanted} has active endpoints")
        return web.Response(status=204)

    async def create_container(self, request: web.Request) -> web.Response:
        spec = docker_json.container_spec(request.query["name"], await request.json())
        return web.json_response({"Id": await self.ask(lambda: self.client.create_container(spec)), "Warnings": []}, status=201)

    async def containers(self, request: web.Request) -> web.Response:
        wanted = json.loads(request.query.get("filters", "{}")).get("label", [])
        labels = dict(item.split("=", 1) for item in wanted)
        found = await self.ask(lambda: self.client.list_containers(labels))
        return web.json_response([docker_json.listed(each, self.engine.containers[each.id]) for each in found])

    async def container(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        found = await self.ask(lambda: self.client.inspect_container(wanted))
        if found is None:
            raise NotFound("container.inspect", 404, f"No such container: {wanted}")
        return web.json_response(docker_json.inspected(found, self.engine.containers[wanted], PID_1))

    async def top(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        rows = await self.ask(lambda: self.client.processes(wanted))
        listed = [[str(p.pid), str(p.ppid), str(p.session), p.argv] for p in rows]
        return web.json_response({"Titles": ["PID", "PPID", "SESS", "COMMAND"], "Processes": listed})

    async def start_container(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        await self.ask(lambda: self.client.start_container(wanted))
        return web.Response(status=204)

    async def pause(self, request: web.Request) -> web.Response:
        wanted, pause = request.match_info["id"], request.match_info["verb"] == "pause"
        await self.ask(lambda: self.client.pause(wanted) if pause else self.client.unpause(wanted))
        return web.Response(status=204)

    async def remove_container(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        if not await self.ask(lambda: self.client.remove_container(wanted)):
            raise EngineError("container.remove", 409, "removal is already in progress")
        return web.Response(status=204)

    async def put_archive(self, request: web.Request) -> web.Response:
        """The simulation keeps folders, not files: each of the archive counts as uploaded."""
        with tarfile.open(fileobj=io.BytesIO(await request.read())) as archive:
            folders = [f"/{each.name.strip('/')}" for each in archive if each.isdir()]
        wanted, base = request.match_info["id"], Path(request.query["path"])

        async def nothing() -> Any:
            yield b""

        await self.ask(lambda: self.client.put_archive(wanted, str(base), nothing))
        record = self.engine.container("archive.put", wanted)
        record.uploads.update({str(base / folder.lstrip("/")): Path("/var/empty") for folder in folders})
        return web.Response()

    async def stat(self, request: web.Request) -> web.Response:
        wanted, path = request.match_info["id"], request.query["path"]
        return web.Response(status=200 if await self.ask(lambda: self.client.path_exists(wanted, path)) else 404)

    async def create_exec(self, request: web.Request) -> web.Response:
        wanted, spec = request.match_info["id"], docker_json.exec_spec(await request.json())
        return web.json_response({"Id": await self.ask(lambda: self.client.create_exec(wanted, spec))}, status=201)

    async def start_exec(self, request: web.Request) -> web.StreamResponse:
        wanted = request.match_info["id"]
        if (await request.json())["Detach"]:
            await self.ask(lambda: self.client.start_created_exec(wanted))
            return web.Response()
        made = self.engine.execs[wanted]

        async def whole() -> bytes:
            self.engine.start_exec(made, attached=True)
            await made.ended.wait()
            return bytes(made.output)

        out = web.StreamResponse(status=101, headers={"Connection": "Upgrade", "Upgrade": "tcp"})
        await out.prepare(request)
        output = await self.ask(whole)
        assert request.transport is not None
        if output:
            request.transport.write(struct.pack(">BxxxL", 1, len(output)) + output)
        request.transport.close()
        return out

    async def exec(self, request: web.Request) -> web.Response:
        wanted = request.match_info["id"]
        found = await self.ask(lambda: self.client.inspect_exec(wanted))
        if found is None:
            raise NotFound("exec.inspect", 404, f"No such exec instance: {wanted}")
        return web.json_response(docker_json.exec_told(found, self.engine.execs[wanted]))


@web.middleware
async def _told(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except EngineError as error:
        status, body = docker_json.refusal(error)
        return web.json_response(body, status=status)


async def serve(path: Path, agent_s: float) -> None:
    """Until SIGTERM."""
    server = Server(agent_s)
    await server.start()
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    print("up", flush=True)
    await over.wait()
    await runner.cleanup()
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fake_dockerd", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("socket", type=Path)
    parser.add_argument("--agent-s", type=float, default=3600.0, help="how long each agent runs (default: 3600)")
    options = parser.parse_args()
    asyncio.run(serve(options.socket, options.agent_s))


if __name__ == "__main__":
    main()
