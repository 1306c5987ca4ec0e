"""Has every task's image made before any of its cells is admitted, and parks the tasks whose image cannot be had.

Owns what a failure means for a task.  Making ahead of admission keeps a slow or broken build from holding a slot, a lease or a pass.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed
from marathond.flow.fitness import Fitness
from marathond.flow.images import Failed, ImageMaker, Wish, wishes
from marathond.flow.world import World, log
from marathond.ledger.verbs import admission, findings, turns
from marathond.ledger.verbs.campaigns import StoredTask

PROXY_S = 3.0
AWAY_PAUSE_S = 2.0
"""Before the scheduler may ask again while the engine is away: its bell is rung at once."""


class ImageKeeper:
    """Started with the daemon; ``want`` is idempotent and returns at once."""

    def __init__(self, world: World, group: TaskGroup) -> None:
        self.world, self.group = world, group
        fixed = world.fixed
        self.maker = ImageMaker(
            world.engine,
            fixed.run_root.parent / "builds",
            build_args=fixed.build_args,
            network=fixed.build_network,
            concurrency=fixed.build_concurrency,
            retries=fixed.build_retries,
            pull_timeout_s=fixed.pull_timeout_s,
            tell=_told,
        )
        self._fitness = Fitness(world)
        self._under_way: set[int] = set()
        self._proxy_named = False

    def want(self, task: StoredTask) -> None:
        """Make the images of ``task`` ready in the background; ``world.images`` and the bell tell when."""
        if task.task_id in self.world.images or task.task_id in self._under_way or task.digest is None:
            return
        self._under_way.add(task.task_id)
        self.world.building += 1
        self.group.start_soon(self._make, task, name=f"image {task.name}")

    async def _make(self, task: StoredTask) -> None:
        try:
            # Wanted by a snapshot that may be older than the park which the last failure of this very image wrote, or than a verifier's
            # turn to be alone; the scheduler asks again when that is over.
            if await self.world.ledger.read(turns.may_make_image, task.task_id):
                await self._ensure(task)
        except (EngineUnreachable, EngineTimeout):
            await anyio.sleep(AWAY_PAUSE_S)  # the scheduler asks again when the engine is back
        finally:
            self._under_way.discard(task.task_id)
            self.world.building -= 1
            self.world.wake.ring()
            self.world.turned.ring()

    async def _ensure(self, task: StoredTask) -> None:
        assert task.context_digest is not None
        data, made = task.data, None
        limit_s = data["build_timeout_s"] * self.world.fixed.build_multiplier
        for wish in wishes(task.name, Path(task.path), image=data["image"], digest=task.context_digest, build_timeout_s=limit_s):
            outcome = await self.maker.make(wish)
            if isinstance(outcome, Failed):
                await self._name_dead_proxy()
                await self._park(task, outcome.code, outcome.detail)
                return
            made = outcome.image if wish.role == "task" else made
        assert made is not None
        try:
            unfit = await self._fitness.problem(made.id)
        except GateFailed as error:  # a staged tree is gone: each of its trials names it
            log.warning("fitness_unknown", task=task.name, error=str(error))
            unfit = ""
        if unfit:
            await self._park(task, "runtime_unfit", unfit)
            return
        self.world.images[task.task_id] = made
        if self._proxy_named:
            await self._name_dead_proxy()  # something could be had: is it over?

    async def _park(self, task: StoredTask, code: str, detail: str) -> None:
        now_ms = self.world.clock.wall_ms()
        parked = await self.world.ledger.write(
            admission.park_task, task.task_id, code=code, detail=detail, author="marathond", now_ms=now_ms
        )
        log.warning("task_parked", task=task.name, code=code, detail=detail, cells=parked)

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


def _told(what: str, wish: Wish, words: str) -> None:
    say = log.warning if what == "failed" else log.info
    say(f"image_{what}", task=wish.task, role=wish.role, detail=words)


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
