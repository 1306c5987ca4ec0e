"""Makes one image available: found, pulled or built, once at a time on this host.

Owns single flight over processes, so that the daemon and ``marathonctl prebuild`` never build one image side by side, the choice of the
builder, the retries, and the name that a built image is found under.  Proxies are for builds only, by build args (fault b13); an image
built here is identified by the digest of its build context (fault b14).  Must not know the ledger: what a failure means for a cell is
decided by who asked.

A built image gets its name last, after its context was read again: a build that was killed at any moment, or whose context was edited
meanwhile, leaves nothing that could be taken for the task's image.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from marathond.core.dockerfile import buildkit_reason
from marathond.core.errors import BuilderMissing, ConfigError, EngineError, EngineTimeout, EngineUnreachable, NotFound
from marathond.core.proxies import PROXY_VARIABLES
from marathond.core.text import printable
from marathond.ports.engine import Engine, ImageInfo
from marathond.tasks.digest import context_digest

LABEL_CONTEXT = "marathond.context"
RETRY_PAUSE_S = 10.0
LOCK_PAUSE_S = 0.2
AFTER = "after "
"""Begins what a failure says of its tries; before it stands the image that was to be pulled."""
DETAIL_MAX = 600
"""Of a failure's words the last are kept: a build says at its end what it died of."""
DOCKERFILE_MAX_BYTES = 1 << 20


class How(StrEnum):
    """How an image came to be there."""

    EXISTING = "existing"
    PULLED = "pulled"
    CLASSIC = "built classic"
    BUILDKIT = "built buildkit"


@dataclass(frozen=True, slots=True)
class Wish:
    """One image that trials of a task need.

    ``role``: what for; ``task`` is the container that agent and verifier share.  ``image``: the declared reference, or None to build
    ``context``, whose digest is ``digest`` when it was planned and ``digest_now()`` when asked again.
    """

    task: str
    role: str
    image: str | None
    context: Path
    digest: str
    digest_now: Callable[[], str]
    build_timeout_s: float


@dataclass(frozen=True, slots=True)
class Made:
    """``seconds``: of the pull or build, without waiting for others; ``log``: the build's output, for an image that was built now."""

    image: ImageInfo
    how: How
    seconds: float = 0.0
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """``code``: of the park, ``image_missing``, ``image_build_failed`` or ``image_needs_buildkit``; ``detail``: one line."""

    code: str
    detail: str
    log: Path | None = None


Told = Callable[[str, Wish, str], None]
"""Who is told what happens to a wish: ``pull``, ``build``, ``failed``, each with words of its own."""


def wishes(name: str, path: Path, *, image: str | None, digest: str, build_timeout_s: float) -> tuple[Wish, ...]:
    """Every image that a trial of this task needs.  One today: a verifier's own will be another, of role ``verifier``."""
    return (Wish(name, "task", image, path / "environment", digest, partial(context_digest, path), build_timeout_s),)


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


class ImageMaker:
    """Makes wishes true.  ``builds``: folder of the build logs and locks, shared by every process of this ledger."""

    def __init__(
        self,
        engine: Engine,
        builds: Path,
        *,
        build_args: Mapping[str, str],
        network: str | None,
        concurrency: int,
        retries: int,
        pull_timeout_s: float,
        tell: Told,
    ) -> None:
        self.engine, self.builds, self.build_args, self.network = engine, builds, build_args, network
        self.retries, self.pull_timeout_s, self.tell = retries, pull_timeout_s, tell
        self._slots = anyio.Semaphore(concurrency)

    async def make(self, wish: Wish) -> Made | Failed:
        """Until it is there, or the tries are used up.

        :raises EngineUnreachable, EngineTimeout: the engine answers nothing at all, which says nothing of the image.
        """
        last = ""
        for attempt in range(self.retries + 1):
            try:
                return await self._once(wish)
            except BuilderMissing as error:
                return Failed("image_needs_buildkit", error.detail)
            except EngineUnreachable:
                raise
            except EngineTimeout as error:
                # A build that is too slow is the task's own trouble; an engine that answers nothing is no reason to blame anything.
                await self.engine.info()
                last = str(error)
            except EngineError as error:
                if isinstance(error, NotFound) and wish.image is not None:
                    return Failed("image_missing", f"{wish.image}: {error.detail}")
                last = error.detail
            except (OSError, ConfigError) as error:
                last = str(error)
            self.tell("failed", wish, f"try {attempt + 1} of {self.retries + 1}: {tail(last)}")
            await anyio.sleep(RETRY_PAUSE_S if attempt < self.retries else 0)
        tries = f"{AFTER}{self.retries + 1} {'tries' if self.retries else 'try'}: "
        if wish.image is not None:
            return Failed("image_missing", f"{wish.image}: {tries}{tail(last)}")
        return Failed("image_build_failed", f"{tries}{tail(last)}", self.log_path(wish))

    def log_path(self, wish: Wish) -> Path:
        return self.builds / f"{wish.task}.log"

    async def _once(self, wish: Wish) -> Made:
        if wish.image is None:
            identity = image_identity(wish.digest, self.build_args)
            ref, label = image_tag(wish.task, identity), identity
        else:
            ref, label = wish.image, None
        # The lock before the slot: who waits for somebody else's build must not keep others from theirs.
        if found := await self._there(ref, label):
            return Made(found, How.EXISTING)
        key = hashlib.sha256(f"{self.engine.name} {ref}".encode()).hexdigest()[:24]
        async with single_flight(self.builds / "locks" / key), self._slots:
            if found := await self._there(ref, label):  # made by whom we waited for
                return Made(found, How.EXISTING)
            if label is not None:
                return await self._build(wish, ref, label)
            self.tell("pull", wish, ref)
            began = anyio.current_time()
            image = await self.engine.pull_image(ref, timeout_s=self.pull_timeout_s)
            return Made(image, How.PULLED, anyio.current_time() - began)

    async def _there(self, ref: str, label: str | None) -> ImageInfo | None:
        """A name that does not carry our label is somebody else's: it will be ours when the build is done."""
        found = await self.engine.inspect_image(ref)
        return None if found is None or (label is not None and found.labels.get(LABEL_CONTEXT) != label) else found

    async def _build(self, wish: Wish, tag: str, identity: str) -> Made:
        began = anyio.current_time()
        reason = await to_thread.run_sync(_buildkit_reason, wish.context)
        self.tell("build", wish, f"with BuildKit, for {reason}" if reason else "with the classic builder")
        path = self.log_path(wish)
        async with await anyio.open_file(path, "wb") as file:
            if reason:
                await file.write(f"# with BuildKit: {reason}\n".encode())

            async def keep(line: bytes) -> None:
                await file.write(line)

            image = await self.engine.build_image(
                wish.context,
                tag=None,
                labels={LABEL_CONTEXT: identity},
                build_args=self.build_args,
                network=self.network,
                timeout_s=wish.build_timeout_s,
                log=keep,
                buildkit=bool(reason),
            )
        now = await to_thread.run_sync(wish.digest_now)
        if now != wish.digest:
            if not image.tags:  # under another name it is right: an equal context gives an equal image
                await self.engine.remove_image(image.id)
            raise EngineError("image.build", 0, f"{wish.context.name}/ changed while its image was built: was {wish.digest}, is {now}")
        await self.engine.tag_image(image.id, tag)
        return Made(image, How.BUILDKIT if reason else How.CLASSIC, anyio.current_time() - began, path)


def tail(words: str) -> str:
    """One line, the last :data:`DETAIL_MAX` characters."""
    line = printable(words, 100 * DETAIL_MAX)
    return line if len(line) <= DETAIL_MAX else f"…{line[1 - DETAIL_MAX :]}"


def _buildkit_reason(context: Path) -> str:
    with (context / "Dockerfile").open("rb") as file:
        return buildkit_reason(file.read(DOCKERFILE_MAX_BYTES).decode("utf-8", "replace"))


@asynccontextmanager
async def single_flight(path: Path) -> AsyncIterator[None]:
    """Wait for, then hold, the lock file at ``path``; the kernel lets go of it when its holder dies.

    The file stays: unlinking it would let two processes lock two files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(descriptor)
