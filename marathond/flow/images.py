"""Makes every task's image available before any of its cells is admitted.

Owns single flight per task, the retries and the parking of tasks whose image cannot be had.  Building ahead of admission keeps a slow or
broken build from holding a slot, a lease or a pass.  Proxies are for builds only, by build args (fault b13); an image built here is
identified by the digest of its build context (fault b14).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, NotFound
from marathond.core.text import printable
from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, findings
from marathond.ledger.verbs.campaigns import StoredTask
from marathond.ports.engine import ImageInfo

LABEL_CONTEXT = "marathond.context"
RETRY_PAUSE_S = 10.0
PROXY_S = 3.0
AWAY_PAUSE_S = 2.0
"""Before the scheduler may ask again while the engine is away: its bell is rung at once."""


def image_tag(name: str, context_digest: str) -> str:
    """Where a built image is found again: equal contexts share it, across campaigns and ledgers."""
    return f"marathond/{name.lower()}:{context_digest[:24]}"


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
            async with self._builds:
                await self._ensure(task)
        finally:
            self._under_way.discard(task.task_id)
            self.world.wake.ring()

    async def _ensure(self, task: StoredTask) -> None:
        world, last = self.world, ""
        for attempt in range(world.fixed.build_retries + 1):
            try:
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
            except OSError as error:
                last = str(error)
            log.warning("image_failed", task=task.name, attempt=attempt + 1, error=last)
            await anyio.sleep(RETRY_PAUSE_S if attempt < world.fixed.build_retries else 0)
        await self._name_dead_proxy()
        await self._park(task, "image_build_failed", f"after {world.fixed.build_retries + 1} tries: {printable(last, 400)}")

    async def _declared(self, image: str) -> ImageInfo:
        found = await self.world.engine.inspect_image(image)
        if found is not None:
            return found
        log.info("image_pull", image=image)
        return await self.world.engine.pull_image(image, timeout_s=self.world.fixed.pull_timeout_s)

    async def _built(self, task: StoredTask) -> ImageInfo:
        assert task.context_digest is not None
        tag = image_tag(task.name, task.context_digest)
        found = await self.world.engine.inspect_image(tag)
        if found is not None and found.labels.get(LABEL_CONTEXT) == task.context_digest:
            return found
        log.info("image_build", task=task.name, tag=tag)
        folder = self.world.fixed.run_root.parent / "builds"
        folder.mkdir(exist_ok=True)
        async with await anyio.open_file(folder / f"{task.name}.log", "wb") as file:

            async def keep(line: bytes) -> None:
                await file.write(line)

            return await self.world.engine.build_image(
                Path(task.path) / "environment",
                tag=tag,
                labels={LABEL_CONTEXT: task.context_digest},
                build_args=self.world.fixed.build_args,
                network=self.world.fixed.build_network,
                timeout_s=task.data["build_timeout_s"],
                log=keep,
            )

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
