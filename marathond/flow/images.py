"""Makes every task's image available before any of its cells is admitted.

Owns single flight per task, the retries and the parking of tasks whose image cannot be had.  Building ahead of admission keeps a slow or
broken build from holding a slot, a lease or a pass.  Proxies are for builds only, by build args (fault b13); an image built here is
identified by the digest of its build context (fault b14).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from marathond.core.errors import ConfigError, EngineError, EngineTimeout, EngineUnreachable, NotFound
from marathond.core.inspection import PROXY_VARIABLES
from marathond.core.text import printable
from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, findings
from marathond.ledger.verbs.campaigns import StoredTask
from marathond.ports.engine import ImageInfo
from marathond.tasks.digest import context_digest

LABEL_CONTEXT = "marathond.context"
RETRY_PAUSE_S = 10.0
PROXY_S = 3.0
AWAY_PAUSE_S = 2.0
"""Before the scheduler may ask again while the engine is away: its bell is rung at once."""


def image_identity(context_digest: str, build_args: Mapping[str, str]) -> str:
    """What makes a built image what it is (fault b14): its context and the build arguments that are no proxy; sha256, hex."""
    args = {name: value for name, value in build_args.items() if name.lower() not in PROXY_VARIABLES}
    if not args:
        return context_digest
    return hashlib.sha256(json.dumps([context_digest, sorted(args.items())]).encode()).hexdigest()


def image_tag(name: str, identity: str) -> str:
    """Where a built image is found again: equal identities share it, across campaigns and ledgers.  Any folder name gives a valid tag."""
    safe = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "task"
    return f"marathond/{safe}:{identity[:24]}"


class ImageKeeper:
    """Started with the daemon; ``want`` is idempotent and returns at once."""

    def __init__(self, world: World, group: TaskGroup) -> None:
        self.world, self.group = world, group
        self._under_way: set[int] = set()
        self._builds = anyio.Semaphore(world.fixed.build_concurrency)
        self._proxy_named = False

    def want(self, task: StoredTask) -> None:
        """Make the image of ``task`` ready in the background; ``world.images`` and the bell tell when."""
        if task.task_id in self.world.images or task.task_id in self._under_way or task.digest is None:
            return
        self._under_way.add(task.task_id)
        self.group.start_soon(self._make, task, name=f"image {task.name}")

    async def _make(self, task: StoredTask) -> None:
        try:
            await self._ensure(task)
        finally:
            self._under_way.discard(task.task_id)
            self.world.wake.ring()

    async def _ensure(self, task: StoredTask) -> None:
        world, last = self.world, ""
        for attempt in range(world.fixed.build_retries + 1):
            try:
                async with self._builds:
                    world.images[task.task_id] = await (self._declared(task.data["image"]) if task.data["image"] else self._built(task))
                if self._proxy_named:
                    await self._name_dead_proxy()  # something could be had: is it over?
                return
            except NotFound as error:
                await self._park(task, "image_missing", f"{task.data['image']}: {error.detail}")
                return
            except EngineUnreachable:
                await anyio.sleep(AWAY_PAUSE_S)
                return  # the scheduler asks again when the engine is back
            except EngineTimeout as error:
                # A build that is too slow is the task's own trouble; an engine that answers nothing is no reason to park anything.
                if not await self._engine_answers():
                    await anyio.sleep(AWAY_PAUSE_S)
                    return
                last = str(error)
            except EngineError as error:
                last = error.detail
            except (OSError, ConfigError) as error:
                last = str(error)
            log.warning("image_failed", task=task.name, attempt=attempt + 1, error=last)
            await anyio.sleep(RETRY_PAUSE_S if attempt < world.fixed.build_retries else 0)
        await self._name_dead_proxy()
        code = "image_missing" if task.data["image"] else "image_build_failed"
        named = f"{task.data['image']}: " if task.data["image"] else ""
        await self._park(task, code, f"{named}after {world.fixed.build_retries + 1} tries: {printable(last, 400)}")

    async def _declared(self, image: str) -> ImageInfo:
        found = await self.world.engine.inspect_image(image)
        if found is not None:
            return found
        log.info("image_pull", image=image)
        return await self.world.engine.pull_image(image, timeout_s=self.world.fixed.pull_timeout_s)

    async def _built(self, task: StoredTask) -> ImageInfo:
        assert task.context_digest is not None
        identity = image_identity(task.context_digest, self.world.fixed.build_args)
        tag = image_tag(task.name, identity)
        found = await self.world.engine.inspect_image(tag)
        if found is not None and found.labels.get(LABEL_CONTEXT) == identity:
            return found
        log.info("image_build", task=task.name, tag=tag)
        folder = self.world.fixed.run_root.parent / "builds"
        folder.mkdir(exist_ok=True)
        async with await anyio.open_file(folder / f"{task.name}.log", "wb") as file:

            async def keep(line: bytes) -> None:
                await file.write(line)

            image = await self.world.engine.build_image(
                Path(task.path) / "environment",
                tag=tag,
                labels={LABEL_CONTEXT: identity},
                build_args=self.world.fixed.build_args,
                network=self.world.fixed.build_network,
                timeout_s=task.data["build_timeout_s"],
                log=keep,
            )
        await self._same_context(task, tag)
        return image

    async def _same_context(self, task: StoredTask, tag: str) -> None:
        """An edit between the plan and the end of the build must not leave a wrong image under the right name."""
        now = await to_thread.run_sync(context_digest, Path(task.path))
        if now != task.context_digest:
            await self.world.engine.remove_image(tag)
            raise EngineError("image.build", 0, f"environment/ changed while its image was built: was {task.context_digest}, is {now}")

    async def _park(self, task: StoredTask, code: str, detail: str) -> None:
        now_ms = self.world.clock.wall_ms()
        parked = await self.world.ledger.write(
            admission.park_task, task.task_id, code=code, detail=detail, author="marathond", now_ms=now_ms
        )
        log.warning("task_parked", task=task.name, code=code, detail=detail, cells=parked)

    async def _engine_answers(self) -> bool:
        try:
            await self.world.engine.info()
        except (EngineUnreachable, EngineTimeout):
            return False
        return True

    async def _name_dead_proxy(self) -> None:
        """An engine whose own proxy is dead fails every pull and build with words that name something else."""
        try:
            info = await self.world.engine.info()
        except EngineError as error:
            log.warning("engine_proxy_unknown", error=str(error))
            return
        self._proxy_named = False
        for proxy in sorted({info.http_proxy, info.https_proxy} - {""}):
            subject, why = proxy.split("@")[-1], await _silence(proxy)
            if not why:
                await self.world.ledger.write(
                    findings.close_finding, code="engine_proxy_dead", subject=subject, now_ms=self.world.clock.wall_ms()
                )
                continue
            self._proxy_named = True
            await self.world.ledger.write(
                findings.raise_finding,
                code="engine_proxy_dead",
                severity="error",
                subject=subject,
                detail=f"the engine is configured with a proxy that does not answer: {why}",
                campaign_id=None,
                now_ms=self.world.clock.wall_ms(),
            )


async def _silence(proxy: str) -> str:
    """Why nobody listens at a proxy's address; empty when somebody does.  A scheme may be missing, as in ``proxy:3128``."""
    try:
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
    except ValueError as error:
        return str(error)
    if not host:
        return "its address has no host"
    try:
        with anyio.fail_after(PROXY_S):
            stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
    except (OSError, TimeoutError) as error:
        return str(error) or f"no answer in {PROXY_S:g} s"
    return ""
