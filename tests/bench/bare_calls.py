"""The floor: the Docker calls that one no-op trial cannot do without, and nothing else.

FROZEN: the overhead bar is a ratio to this list, so it must not change with the product.  One trial has a public network with an explicit
subnet, a container from an existing image, a pause with a look at its processes (the proof of death), the uploaded verifier, its run,
its reward file, and a teardown whose end is seen.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import statistics
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

TRIALS = 8
AT_ONCE = 4
ROUNDS = 3
POLL_S = 0.02
CALL_S = 60.0
# Far end of marathond's default range, so that a campaign on the same engine hardly ever holds it.
SUBNETS = "198.19.255.{}/28"
VERIFIER = "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"


class BareDocker:
    """Raw calls to one engine by its DOCKER_HOST (``unix://`` or ``tcp://``)."""

    def __init__(self, host: str) -> None:
        parts = urlsplit(host)
        connector = aiohttp.UnixConnector(parts.path, limit=0) if parts.scheme == "unix" else aiohttp.TCPConnector(limit=0)
        base = "http://docker" if parts.scheme == "unix" else f"http://{parts.netloc}"
        self.session = aiohttp.ClientSession(base, connector=connector, timeout=aiohttp.ClientTimeout(total=CALL_S))

    async def call(self, method: str, path: str, body: Any = None, expect: tuple[int, ...] = (200, 201, 204)) -> Any:
        """One call: its JSON answer or None.  Raises RuntimeError for any other status: a bench that goes on measures nothing."""
        data = body if isinstance(body, bytes) else None
        async with self.session.request(
            method, path, json=None if data else body, data=data, headers={"Content-Type": "application/x-tar"} if data else None
        ) as answer:
            text = await answer.text()
            if answer.status not in expect:
                raise RuntimeError(f"{method} {path}: {answer.status} {text.strip()}")
            return json.loads(text) if text.strip() and "json" in answer.content_type else None


def tests_archive() -> bytes:
    """The tar of ``tests/`` with its ``test.sh``, as uploaded into the container's root."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("tests/test.sh")
        entry.size, entry.mode = len(VERIFIER), 0o755
        archive.addfile(entry, io.BytesIO(VERIFIER.encode()))
    return out.getvalue()


async def no_op_trial(docker: BareDocker, image: str, number: int, logs: Path) -> None:
    """One trial, from its network to the proof that the network is gone.  Raises RuntimeError when the reward is not 1."""
    name, labels = f"bench-{secrets.token_hex(4)}", {"marathond.bench": "bare"}
    network = container = None
    (logs / "verifier").mkdir(parents=True)
    try:
        ipam = {"Config": [{"Subnet": SUBNETS.format(16 * number)}]}
        network = (await docker.call("POST", "/networks/create", {"Name": name, "Driver": "bridge", "IPAM": ipam, "Labels": labels}))["Id"]
        config = {
            "Image": image,
            "Cmd": ["sh", "-c", "sleep infinity"],
            "Labels": labels,
            "HostConfig": {"NetworkMode": network, "Init": True, "Binds": [f"{logs}:/logs"]},
        }
        container = (await docker.call("POST", f"/containers/create?name={name}", config))["Id"]
        await docker.call("POST", f"/containers/{container}/start")
        await docker.call("GET", f"/containers/{container}/json")
        await docker.call("POST", f"/containers/{container}/pause")
        await docker.call("GET", f"/containers/{container}/top")
        await docker.call("POST", f"/containers/{container}/unpause")
        await docker.call("PUT", f"/containers/{container}/archive?path=/", tests_archive())
        verifier = ["sh", "-c", "(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1"]
        run = (await docker.call("POST", f"/containers/{container}/exec", {"Cmd": verifier}))["Id"]
        await docker.call("POST", f"/exec/{run}/start", {"Detach": True})
        async with asyncio.timeout(CALL_S):
            while (await docker.call("GET", f"/exec/{run}/json"))["Running"]:  # noqa: ASYNC110 - Docker has no call that waits for it
                await asyncio.sleep(POLL_S)
        reward = (logs / "verifier" / "reward.txt").read_text()
        if reward != "1\n":
            raise RuntimeError(f"trial {number}: reward {reward!r}, expected '1\\n'")
    finally:
        if container is not None:
            await docker.call("DELETE", f"/containers/{container}?force=1&v=1")
        if network is not None:
            await docker.call("DELETE", f"/networks/{network}")
    await docker.call("GET", f"/networks/{network}", expect=(404,))


async def one_round(host: str, image: str) -> float:
    """Seconds for the eight trials, four at a time."""
    docker = BareDocker(host)
    slots = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="marathond-bench-") as folder:

        async def one(number: int) -> None:
            async with slots:
                await no_op_trial(docker, image, number, Path(folder) / str(number))

        try:
            start = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number in range(TRIALS):
                    group.create_task(one(number))
            return time.perf_counter() - start
        finally:
            await docker.session.close()


def measure(host: str, image: str, rounds: int = ROUNDS) -> float:
    """Median seconds of several rounds."""
    return statistics.median(asyncio.run(one_round(host, image)) for _ in range(rounds))
