"""Looks at the engine: does it answer, do its proxies, what does it offer, which images does it have, what is in them.

Owns these probes.  Nothing is pulled or built.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed
from marathond.core.model import Mount
from marathond.core.preflight import engine as judge
from marathond.core.preflight.rows import Row, not_needed, unknown
from marathond.core.proxies import PROXY_VARIABLES, leads_to_itself, without_secret
from marathond.ports.agent import ImageCheck
from marathond.ports.engine import ContainerInfo, ExecSpec
from marathond.service.preflight.box import NoShell
from marathond.service.preflight.egress import target_of
from marathond.service.preflight.run import Unseen, aside
from marathond.service.preflight.scene import Scene
from marathond.tasks.asks import images_below

PROXY_S = 5.0
SURVEY_S = 30.0
SURVEYS_AT_ONCE = 2
SAID_MAX = 300
IMAGES_TRIED = 4


async def engine(scene: Scene) -> Row:
    try:
        info = await scene.engine.info()
    except EngineTimeout:
        raise
    except EngineUnreachable as error:
        return judge.engine_away(error.detail)
    return judge.engine(info.server_version, info.api_version, scene.settings.engine.url)


async def engine_proxy(scene: Scene) -> list[Row]:
    """Proxies that the engine pulls through, and those of builds."""
    info = await scene.info.get()
    named = {"engine": {info.http_proxy, info.https_proxy}}
    args = scene.settings.engine.build_args
    named["builds"] = {value for name, value in args.items() if name.lower() in PROXY_VARIABLES and name.lower() != "no_proxy"}
    local = scene.settings.engine.url.startswith("unix://")
    seen = []
    for whose, urls in named.items():
        for url in sorted(url for url in urls if url.strip()):
            seen.append(await _proxy(whose, url, local=local))
    return judge.engine_proxy(seen)


async def _proxy(whose: str, url: str, *, local: bool) -> judge.ProxySeen:
    address, target = without_secret(url), target_of(url)
    if target is None:
        return judge.ProxySeen(whose, address, "this is no address")
    if leads_to_itself(url) and not local:
        return judge.ProxySeen(whose, address, "a loopback address of the engine's own host", sees=False)
    return judge.ProxySeen(whose, address, await aside(lambda: _answer(target, url)))


def _answer(target: tuple[str, int], url: str) -> str:
    """Empty when the proxy answers: a proxy that speaks HTTP says something to a request for nothing; of others a connection is enough."""
    try:
        with socket.create_connection(target, timeout=PROXY_S) as connection:
            if "://" in url and not url.startswith("http://"):
                return ""
            connection.sendall(b"OPTIONS * HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")
            return "" if connection.recv(1) else "it takes the connection and says nothing"
    except TimeoutError:
        return f"no answer within {PROXY_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()


async def gpus(scene: Scene) -> Row:
    asks = {name for name, look in scene.reading.looks.items() if "gpu" in (look.marks or ())}
    return judge.gpus(asks, set(scene.parked), await _gpus_offered(scene) if asks else ())


async def _gpus_offered(scene: Scene) -> Sequence[str]:
    """Runtimes and device interfaces of the engine by which a container gets one.  Raises EngineError."""
    raw = await scene.raw.request("info", "GET", "info")
    runtimes = [f"runtime {name}" for name in raw.get("Runtimes") or {} if "nvidia" in name or "amd" in name]
    kinds = [
        str(each.get("DiscreteResourceSpec", each.get("NamedResourceSpec", {})).get("Kind")) for each in raw.get("GenericResources") or ()
    ]
    devices = [str(each.get("ID")) for each in raw.get("DiscoveredDevices") or ()]
    return [*runtimes, *(kind for kind in kinds if "gpu" in kind.lower()), *(device for device in devices if "gpu" in device)]


async def images_built(scene: Scene) -> Row:
    found = await scene.images.get()
    missing = {f"{one.wish.task}{'' if one.wish.role == 'task' else f' ({one.wish.role})'}": one.ref for one in found if one.image is None}
    return judge.images_built(len(found), missing)


async def base_images(scene: Scene) -> Row:
    """Images to build upon, of those that are not built yet."""
    users: dict[str, set[str]] = {}
    unclear: dict[str, str] = {}
    for one in await scene.images.get():
        if one.image is not None or one.wish.image is not None:
            if one.wish.image is not None:
                users.setdefault(one.ref, set()).add(one.wish.task)
            continue
        context = one.wish.context
        try:
            below = await to_thread.run_sync(images_below, context, scene.settings.engine.build_args)
        except OSError as error:
            unclear[one.wish.task] = f"its Dockerfile cannot be read: {error.strerror or error}"
            continue
        for image in below:
            if "$" in image:
                unclear[one.wish.task] = f"FROM {image}"
            else:
                users.setdefault(image, set()).add(one.wish.task)
    absent = [image for image in users if await scene.engine.inspect_image(image) is None]
    return judge.base_images(users, absent, unclear)


async def image_libc(scene: Scene) -> list[Row]:
    """One row for each image; each in a container of its own without network."""
    found = await scene.images.get()
    if not found:
        return [not_needed("image_libc", "no task that runs needs an image")]
    users: dict[str, set[str]] = {}
    for one in found:
        if one.image is not None:
            users.setdefault(one.image.id, set()).add(one.wish.task)
    rows: dict[str, Row] = {}
    try:
        checks, blind = await scene.image_checks(), ""
    except (GateFailed, Unseen) as error:
        checks, blind = (), str(error)
    slots = anyio.Semaphore(SURVEYS_AT_ONCE)

    async def one_image(image_id: str) -> None:
        async with slots:
            rows[image_id] = await _survey(scene, image_id, users[image_id], checks, blind)

    async with anyio.create_task_group() as group:
        for image_id in users:
            group.start_soon(one_image, image_id)
    absent = {one.wish.task for one in found if one.image is None}
    return [*(rows[image_id] for image_id in users), *([judge.image_absent(absent)] if absent else [])]


async def _survey(scene: Scene, image_id: str, tasks: set[str], checks: Sequence[ImageCheck], blind: str) -> Row:
    mounts = tuple(dict.fromkeys(mount for check in checks for mount in check.mounts))
    try:
        async with scene.yard.container(image_id, mounts=mounts) as info:
            said = await scene.engine.run_exec(info.id, ExecSpec(("sh", "-c", judge.SURVEY), user="0"), timeout_s=SURVEY_S)
            if said.exit_code or not said.output.startswith("shell"):
                return judge.image_dead(tasks, f"exit {said.exit_code}: {said.output.strip()[:SAID_MAX]}")
            cannot = await _cannot(scene, info.id, checks)
    except NoShell as error:
        return judge.image_dead(tasks, str(error))
    except EngineError as error:
        return unknown("image_libc", str(error), subject=", ".join(sorted(tasks)))
    libc = judge.read_survey(said.output)
    if blind:
        return unknown(
            "image_libc", f"{libc.words()}; whether the arms' programs run: {blind}", "marathonctl stage", ", ".join(sorted(tasks))
        )
    return judge.image_libc(tasks, libc, cannot, [check.what for check in checks])


async def _cannot(scene: Scene, container_id: str, checks: Sequence[ImageCheck]) -> Mapping[str, str]:
    found = {}
    for check in checks:
        result = await scene.engine.run_exec(container_id, ExecSpec(check.argv, user="0"), timeout_s=check.timeout_s)
        if result.exit_code:
            found[check.what] = f"exit {result.exit_code}: {' '.join(result.output.split())[-SAID_MAX:] or 'no output'}"
    return found


@asynccontextmanager
async def standing(scene: Scene, *, network: str | None = None, mounts: Sequence[Mount] = ()) -> AsyncIterator[ContainerInfo]:
    """A container of any local image in which a shell starts: a task's, or one that tasks are built upon.

    :raises Unseen: there is none.  :raises EngineError: as the engine's calls.
    """
    last: Exception = Unseen("no image of the campaign is on the engine yet: marathonctl prebuild, then again")
    for image_id in await _local_images(scene):
        try:
            async with scene.yard.container(image_id, network=network, mounts=mounts) as info:
                yield info
                return
        except NoShell as error:  # of starting it: whoever uses the container raises none
            last = error
    raise last


async def _local_images(scene: Scene) -> list[str]:
    found = await scene.images.get()
    ids = [one.image.id for one in found if one.image is not None]
    for one in found:
        with contextlib.suppress(OSError):
            for ref in () if one.wish.image else await to_thread.run_sync(images_below, one.wish.context, scene.settings.engine.build_args):
                if "$" not in ref and (image := await scene.engine.inspect_image(ref)) is not None:
                    ids.append(image.id)
    return list(dict.fromkeys(ids))[:IMAGES_TRIED]
