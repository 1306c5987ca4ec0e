"""Probes in a container: are files seen both ways, and what is reached from a network of none and of one's own.

Owns what stands in the container while it is looked at.  The container without network serves both questions.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

from marathond.core.errors import EngineError, PoolExhausted, SubnetTaken
from marathond.core.model import Mount
from marathond.core.names import NetworkPolicy
from marathond.core.preflight import engine as judge
from marathond.core.preflight.rows import Row, not_needed
from marathond.core.proxies import EXCEPTIONS, without_secret
from marathond.core.subnets import free_subnets
from marathond.engine.cgroups import belongs
from marathond.engine.host import occupied
from marathond.ports.engine import ContainerInfo, ExecSpec
from marathond.service.preflight import egress
from marathond.service.preflight.engine import standing
from marathond.service.preflight.run import Unseen, aside
from marathond.service.preflight.scene import Scene

EXEC_S = 20.0
TARGET = "/marathond-preflight"
SUBNET_TRIES = 4


async def bind_mounts(scene: Scene) -> Row:
    """A file written here is read there, one written there is read here, and the container's process is one of this host."""
    state_dir = scene.settings.daemon.state_dir
    folder = await aside(lambda: _probe_folder(state_dir))
    try:
        mount = Mount(str(folder), TARGET, read_only=False)
        try:
            async with standing(scene, mounts=[mount]) as info:
                problems = await _both_ways(scene, info, folder)
        except EngineError as error:
            if "bind source path does not exist" not in error.detail:
                raise
            problems = [f"the engine does not see {state_dir}: it runs on another machine or in another mount namespace"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judge.bind_mounts(str(state_dir), problems)


def _probe_folder(state_dir: Path) -> Path:
    if not state_dir.is_dir():
        raise Unseen(f"{state_dir} is not there yet: marathonctl init")
    return Path(tempfile.mkdtemp(prefix="preflight-", dir=state_dir))


async def _both_ways(scene: Scene, info: ContainerInfo, folder: Path) -> list[str]:
    """Shell built-ins only: an image without coreutils proves as much."""
    there, back = secrets.token_hex(16), secrets.token_hex(16)
    (folder / "there").write_text(there + "\n")
    script = f'read -r line <{TARGET}/there && printf %s "$line" && printf %s {back} >{TARGET}/back'
    said = await scene.engine.run_exec(info.id, ExecSpec(("sh", "-c", script), user="0"), timeout_s=EXEC_S)
    problems = []
    if said.output != there:
        problems.append(
            f"a file below {folder.parent} does not arrive in a container (exit {said.exit_code}: {said.output.strip()[:200]!r})"
        )
    else:
        try:
            came = (folder / "back").read_text()
        except OSError as error:
            came = f"{error.strerror or error}"
        if came != back:
            problems.append(f"a file that a container writes below {folder.parent} is not seen here ({came[:200]!r})")
    if not belongs(info.pid, info.id):
        problems.append(f"pid {info.pid} is not the container's process here: the engine runs in another machine or pid namespace")
    return problems


async def egress_none(scene: Scene) -> Row:
    if not any(task.network is NetworkPolicy.NONE for task in scene.runnable):
        return not_needed("egress_none", "every task has a network")
    plan = await _plan(scene)
    async with standing(scene) as info:
        return judge.egress_none((await aside(lambda: egress.look(info, plan))).reached)


async def egress_public(scene: Scene, internet: Sequence[egress.Target] = egress.INTERNET) -> Row:
    """In a network as a trial's: of the configured range, or of the engine's own pools."""
    if not any(task.network is NetworkPolicy.PUBLIC for task in scene.runnable):
        return not_needed("egress_public", "no task has a network")
    plan = await _plan(scene, internet, proxies=True)
    refused = ""
    for subnet in await _subnets(scene):
        try:
            async with scene.yard.network(subnet) as network_id, standing(scene, network=network_id) as info:
                seen = await aside(lambda info=info: egress.look(info, plan))  # type: ignore[misc]
                return judge.egress_public(seen.reached, seen.proxies, seen.names)
        except (SubnetTaken, PoolExhausted) as error:
            refused = error.detail
    return judge.network_refused(refused or f"no subnet of {scene.settings.network.range} is free")


async def _plan(scene: Scene, internet: Sequence[egress.Target] = egress.INTERNET, *, proxies: bool = False) -> egress.Plan:
    """:param proxies: whether the container may have a proxy, and asks for names: one of a task with a network."""
    own = [item.cidr.partition("/")[0] for item in await aside(occupied) if item.what.startswith("interface")]
    host = list(dict.fromkeys(address for address in own if not IPv4Address(address).is_loopback))
    given = {} if not proxies else scene.settings.network.runtime_proxy
    targets = {without_secret(url): egress.target_of(url) for name, url in given.items() if name.lower() not in EXCEPTIONS}
    known = {words: target for words, target in targets.items() if target is not None}
    return egress.Plan(host, scene.settings.gateway.port, internet, known, names=proxies)


async def _subnets(scene: Scene) -> Sequence[str | None]:
    """The last ones of the range: trials take the first ones."""
    network = scene.settings.network
    if network.mode == "auto":
        return [None]
    taken = [item.cidr for item in await aside(occupied)]
    taken += [cidr for one in await scene.engine.list_networks() for cidr in one.subnets if ":" not in cidr]
    free = free_subnets(network.range, network.prefix, leased=scene.book.subnets, quarantined=(), occupied=taken)
    return list(deque(free, maxlen=SUBNET_TRIES))[::-1]
