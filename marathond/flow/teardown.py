"""Removes what a resting trial left at the engine, and records that it is gone.

Owns container → network → lease → claim, in this order, each released only when it was seen gone (faults b03, b04).  Tried once by the
trial itself; what remains is the sweeper's.
"""

from __future__ import annotations

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable
from marathond.core.names import trial_label
from marathond.flow import ways
from marathond.flow.turns import turn_over
from marathond.flow.world import World, log
from marathond.ledger.verbs import findings, networks, trials
from marathond.ledger.verbs.context import cell_context
from marathond.ports.engine import LABEL_CLAIM


async def remove_container(world: World, trial_id: int) -> bool:
    """True when the trial's container is proven gone, and the ledger knows."""
    context = await world.ledger.read(cell_context, trial_id)
    container, subject = context.container, trial_label(trial_id)
    if container is None or container.gone_at_ms is not None:
        return True
    try:
        # Without an id the create may have completed unseen: the claim's token and the name find exactly ours.
        listed = await world.engine.list_containers({LABEL_CLAIM: context.token}) if container.docker_id is None else []
        found = [info for info in listed if info.name == container.name and world.owns(info)]
        ids = [container.docker_id] if container.docker_id is not None else [info.id for info in found]
        gone = all([await world.engine.remove_container(container_id) for container_id in ids])
        gone = gone and not [i for i in ids if await world.engine.inspect_container(i) is not None]
    except (EngineTimeout, EngineUnreachable) as error:
        log.warning("container_removal_unknown", trial=subject, error=str(error))
        return False
    except EngineError as error:
        await _finding(world, "container_undeletable", subject, f"the engine does not remove the container: {error}; retried")
        return False
    if not gone:
        shown = ", ".join(i[:12] for i in ids)
        await _finding(world, "container_undeletable", subject, f"the engine does not remove container {shown}; retried")
        return False
    await world.ledger.write(trials.container_gone, trial_id, now_ms=world.clock.wall_ms())
    await world.ledger.write(findings.close_finding, code="container_undeletable", subject=subject, now_ms=world.clock.wall_ms())
    return True


async def remove_network(world: World, trial_id: int) -> bool:
    """True when the trial's network is proven gone and its lease released."""
    context = await world.ledger.read(cell_context, trial_id)
    lease, subject = context.lease, trial_label(trial_id)
    if lease is None:
        return True
    now_ms = world.clock.wall_ms
    labels = world.labels(trial_id, context.token)
    try:
        if lease.network_id is not None:
            ids = [lease.network_id]
        else:
            listed = await world.engine.list_networks()
            ids = [n.id for n in listed if n.name == lease.network_name and labels.items() <= n.labels.items()]
        refused = [i for i in ids if not await world.engine.remove_network(i)]
        refused += [i for i in ids if i not in refused and await world.engine.inspect_network(i) is not None]
    except (EngineTimeout, EngineUnreachable) as error:
        log.warning("network_removal_unknown", trial=subject, error=str(error))
        return False
    except EngineError as error:
        refused, why = [lease.network_id or lease.network_name], str(error)
    else:
        why = "active endpoints"
    if refused:
        await world.ledger.write(networks.removal_failed, lease.lease_id, now_ms=now_ms())
        await _finding(world, "lease_leaked", subject, f"the engine does not remove network {refused[0][:12]} ({why}); retried")
        return False
    because = "seen_gone" if ids else "never_created"
    await world.ledger.write(networks.release_lease, lease.lease_id, because=because, now_ms=now_ms())
    await world.ledger.write(findings.close_finding, code="lease_leaked", subject=subject, now_ms=now_ms())
    return True


async def tear_down(world: World, trial_id: int) -> bool:
    """Everything once; True when nothing is left and the claim is released."""
    await ways.close_ways(world, trial_id)
    if not await remove_container(world, trial_id):
        return False
    await turn_over(world, trial_id)
    network_gone = await remove_network(world, trial_id)
    await world.ledger.write(trials.release_claim, trial_id, now_ms=world.clock.wall_ms())
    return network_gone


async def _finding(world: World, code: str, subject: str, detail: str) -> None:
    await world.ledger.write(
        findings.raise_finding,
        code=code,
        severity="warning",
        subject=subject,
        detail=detail,
        campaign_id=None,
        now_ms=world.clock.wall_ms(),
    )
