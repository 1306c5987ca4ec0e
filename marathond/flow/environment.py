"""Brings a trial's network and container up, each written down before it is asked for.

Owns the order row → call → row, and what to do when a call's outcome is unknown.  Must not know agents or scores.
Races prevented here: a daemon killed between create and record (the row with its name and labels came first, fault b05); a create that
timed out and completed later (looked up by label, never assumed undone); a rival that takes our subnet (quarantine and the next one).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import islice

import anyio

from marathond.core.belongings import container_name
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed, NotFound, PoolExhausted, SubnetTaken
from marathond.core.inspection import problems
from marathond.core.model import Arm, Mount, Task
from marathond.core.names import NetworkPolicy, trial_label
from marathond.core.proxies import proxies_in, proxy_words, runtime_proxy_env
from marathond.core.subnets import free_subnets
from marathond.flow.world import World, log
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import networks, trials
from marathond.ledger.verbs.context import TrialContext, TrialLease
from marathond.ledger.verbs.networks import LeaseRow
from marathond.ledger.verbs.trials import Fact
from marathond.ports.agent import Agent, RunDir
from marathond.ports.engine import ContainerInfo, ContainerSpec, ImageInfo
from marathond.ports.host import HostUnknown

QUARANTINE_MS = 600_000
"""How long a subnet that somebody else took is left alone."""
CONFLICT = 409
POOL_PAUSE_S = 2.0
"""Between two tries when the pool is full: exhaustion costs waiting, never a trial (fault b01)."""


SWAP_REFUSED = frozenset({"network_lease_one_live_per_subnet", "network_lease_within_cap"})
"""A neighbour leased the same free subnet first, or the cap was lowered meanwhile: waiting, no broken invariant."""


CREATES = 3
"""Creates without an answer, and without anything found afterwards, before the attempt is void: no slot is held for ever."""


async def occupied_subnets(world: World) -> list[str]:
    """Everything that an explicit subnet must not overlap: the host's routes, interfaces and resolvers, the engine's networks."""
    host = [entry.cidr for entry in await world.host.occupied()]
    taken = host + [subnet for network in await world.engine.list_networks() for subnet in network.subnets]
    return [cidr for cidr in taken if ":" not in cidr]  # other people's networks may have IPv6; ours are IPv4 and cannot overlap it


async def next_subnets(world: World, count: int) -> list[str]:
    """Up to ``count`` subnets that may be leased now.  Raises HostUnknown, EngineError: what is occupied could not be seen."""
    fixed = world.fixed
    taken = await occupied_subnets(world)
    leased = [row.subnet for row in await world.ledger.read(networks.leases, fixed.engine_name) if row.subnet]
    quarantined = await world.ledger.read(networks.quarantined, fixed.engine_name, now_ms=world.clock.wall_ms())
    free = free_subnets(fixed.network_range, fixed.network_prefix, leased=leased, quarantined=quarantined, occupied=taken)
    return list(islice(free, count))


async def network_up(world: World, context: TrialContext) -> str | None:
    """The id of the trial's network; None for a task without one.  Waits while the pool is full."""
    if context.lease is None:
        return None
    lease: TrialLease | LeaseRow = context.lease
    labels = world.labels(context.trial_id, context.token)
    unanswered = 0
    while True:
        try:
            found: str | None = await world.engine.create_network(lease.network_name, labels, lease.subnet)
        except PoolExhausted:
            log.info("pool_full", trial=trial_label(context.trial_id))
            await anyio.sleep(POOL_PAUSE_S)
            continue
        except (EngineTimeout, EngineUnreachable) as error:
            # Unknown, not undone: the server may have made it, or may still.  Names are not unique on 20.10: look by label, keep the id.
            found = await _our_network(world, lease.network_name, labels)
            unanswered += 1
            if found is None and unanswered >= CREATES:
                raise GateFailed("network_failed", f"{unanswered} creates had no answer and left nothing: {error}") from error
        except EngineError as error:
            # Taken, or the name exists: by our own earlier request, whose answer never came?
            found = await _our_network(world, lease.network_name, labels)
            if found is None and not isinstance(error, SubnetTaken):
                raise GateFailed("network_failed", str(error)) from error
            if found is None:
                lease = await _other_subnet(world, context.trial_id, lease, str(error))
        if found is not None:
            await world.ledger.write(networks.network_created, lease.lease_id, network_id=found)
            return found


async def _our_network(world: World, name: str, labels: dict[str, str]) -> str | None:
    """The id of the network that this lease's request made, answered or not."""
    for network in await world.look(world.engine.list_networks):
        if network.name == name and labels.items() <= network.labels.items():
            return network.id
    return None


async def _other_subnet(world: World, trial_id: int, lease: TrialLease | LeaseRow, detail: str) -> TrialLease | LeaseRow:
    """Quarantine what somebody else took and lease another; the same lease again, after a pause, when there is none now."""
    try:
        free = await world.look(lambda: next_subnets(world, 1))
    except HostUnknown as unknown:
        log.warning("subnets_unknown", trial=trial_label(trial_id), error=str(unknown))
        free = []
    if free:
        now_ms = world.clock.wall_ms()
        try:
            return await world.ledger.write(
                networks.swap_lease,
                lease.lease_id,
                new_subnet=free[0],
                quarantine_until_ms=now_ms + QUARANTINE_MS,
                detail=detail,
                now_ms=now_ms,
            )
        except RuleBroken as broken:
            if broken.rule not in SWAP_REFUSED:
                raise
            log.info("swap_refused", trial=trial_label(trial_id), rule=broken.rule)
    else:
        log.warning("subnets_exhausted", trial=trial_label(trial_id), range=world.fixed.network_range)
    await anyio.sleep(POOL_PAUSE_S)
    return lease


def container_spec(
    world: World, context: TrialContext, task: Task, arm: Arm, agent: Agent, image: ImageInfo, network_id: str | None
) -> ContainerSpec:
    """What to ask the engine for."""
    run = world.run_dir(context.trial_id)
    return ContainerSpec(
        name=container_name(world.fixed.ledger_id, context.trial_id),
        image_id=image.id,
        labels=world.labels(context.trial_id, context.token),
        network=network_id,
        env={**_runtime_proxy(world, task), **task.env, **agent.environment(task, arm)},
        mounts=(*standard_mounts(run), *agent.mounts(task, arm, run, world.fixed.staged)),
        workdir=task.workdir,
        cpus=task.cpus,
        memory_mb=task.memory_mb,
        pids=world.fixed.pids,
    )


def _runtime_proxy(world: World, task: Task) -> dict[str, str]:
    """Never for a task without a network, where a proxy could only tell of this host (fault b13)."""
    return {} if task.network is NetworkPolicy.NONE else runtime_proxy_env(world.fixed.runtime_proxy)


def standard_mounts(run: RunDir) -> tuple[Mount, ...]:
    return (
        Mount(str(run.logs / "agent"), "/logs/agent", read_only=False),
        Mount(str(run.logs / "verifier"), "/logs/verifier", read_only=False),
        Mount(str(run.logs / "artifacts"), "/logs/artifacts", read_only=False),
        Mount(str(run.ctl), "/marathond/ctl", read_only=False),
        Mount(str(run.inputs), "/marathond/inputs", read_only=True),
    )


def make_run_dir(run: RunDir, instruction: str, harness_folders: Sequence[str] = ()) -> None:
    """The trial's folders: the root is ours alone, what is mounted is open to the agent's uid (Harbor does the same).

    Modes are set, not left to the daemon's umask: an agent that cannot read its instruction would score 0 and look fine.

    A folder of that name is another ledger's trial: it is moved aside, for what lies in it must not become this one's.
    """
    run.root.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    if run.root.exists():
        aside = run.root.with_name(f"{run.root.name}.found-{secrets.token_hex(4)}")
        run.root.rename(aside)
        log.warning("run_dir_moved_aside", found=str(run.root), now=str(aside))
    run.root.mkdir(mode=0o700)
    instructions = run.inputs / "instruction.md"
    for folder, mode in (
        (run.logs, 0o755),
        (run.inputs, 0o755),
        (run.logs / "agent", 0o777),
        (run.logs / "verifier", 0o777),
        (run.logs / "artifacts", 0o777),
        (run.ctl, 0o777),
        (run.home, 0o777),
        (run.harness, 0o711),
        *((run.harness / name, 0o777) for name in harness_folders),
    ):
        folder.mkdir()
        folder.chmod(mode)
    instructions.write_text(instruction, encoding="utf-8")
    instructions.chmod(0o644)


async def container_up(world: World, context: TrialContext, task: Task, spec: ContainerSpec) -> ContainerInfo:
    """Create, start and check the container.  Raises GateFailed with the void code."""
    await world.ledger.write(
        trials.container_intended,
        context.trial_id,
        engine=world.fixed.engine_name,
        name=spec.name,
        image_id=spec.image_id,
        context_digest=task.context_digest,
        now_ms=world.clock.wall_ms(),
    )
    container_id = await _create(world, spec)
    await world.ledger.write(trials.container_created, context.trial_id, docker_id=container_id)
    try:
        # Asked again while there is no answer: started already is success, and "not running yet" must not be taken for "failed".
        await world.look(lambda: world.engine.start_container(container_id))
    except (EngineTimeout, EngineUnreachable):
        raise
    except EngineError as error:
        raise GateFailed("container_failed", str(error)) from error
    info = await world.look(lambda: world.engine.inspect_container(container_id))
    if info is None:
        raise GateFailed("container_lost", f"container {container_id[:12]} vanished right after its start")
    wrong = problems(info, spec, allowed_env=frozenset(spec.env))
    if wrong is not None:
        raise GateFailed(*wrong)
    return info


async def _create(world: World, spec: ContainerSpec) -> str:
    for _ in range(CREATES):
        try:
            return await world.engine.create_container(spec)
        except (EngineTimeout, EngineUnreachable):
            if (found := await _our_container(world, spec)) is not None:
                return found
        except NotFound as error:
            code = "image_gone" if "image" in error.detail.lower() else "container_failed"
            raise GateFailed(code, str(error)) from error
        except EngineError as error:
            # The name is taken: by our own earlier request that completed after we had looked?
            found = await _our_container(world, spec) if error.status == CONFLICT else None
            if found is None:
                raise GateFailed("container_failed", str(error)) from error
            return found
    raise GateFailed("container_failed", f"{spec.name}: three creates in a row had no answer and left nothing")


async def _our_container(world: World, spec: ContainerSpec) -> str | None:
    """The id of the container that this request made, answered or not; somebody else's may carry copies of its labels."""
    found = await world.look(lambda: world.engine.list_containers(spec.labels))
    return next((container.id for container in found if container.name == spec.name), None)


def facts(world: World, task: Task, arm: Arm, info: ContainerInfo) -> tuple[Fact, ...]:
    """What really applied, each with its origin (faults b14, b17), for `marathonctl show`."""
    policy = "none (NetworkMode=none)" if task.network is NetworkPolicy.NONE else "public"
    declared = "task" if task.image else "built from environment/"
    proxies = proxies_in(dict(item.split("=", 1) for item in info.env if "=" in item))
    origin = "config" if proxies == _runtime_proxy(world, task) else "task, arm or config"
    return (
        Fact("network agent", policy, task.network_origin),
        Fact("network verifier", policy, task.network_origin),
        *([Fact("runtime proxy", proxy_words(proxies), origin)] if proxies else []),
        Fact("image", info.image_id, declared),
        Fact("context digest", task.context_digest, "task"),
        Fact("cpus", "unlimited" if task.cpus is None else f"{task.cpus:g}", "not set" if task.cpus is None else "task"),
        Fact("memory_mb", "unlimited" if task.memory_mb is None else str(task.memory_mb), "not set" if task.memory_mb is None else "task"),
        Fact("pids", "unlimited" if info.pids is None else str(info.pids), "not set" if info.pids is None else "config"),
        Fact("after agent", arm.after_agent.value, "arm"),
        *(Fact(f"task note {n}", note, "task.toml") for n, note in enumerate(task.warnings, start=1)),
    )
