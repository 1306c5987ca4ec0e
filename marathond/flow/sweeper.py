"""Finds what should not be there, while running and not only at start.

Owns the retries of failed teardowns, orphans that carry our label and no live claim (fault b06), networks of ours that nobody owns, and
the record of other people's networks.  Touches only what carries this ledger's label and a name of ours, by id, and never by a prune
filter; what merely carries the label is named, and left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anyio

from marathond.core.belongings import PROOF_CLAIM
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable
from marathond.core.text import printable
from marathond.flow.sight import PROOF_MAX_MS
from marathond.flow.teardown import tear_down
from marathond.flow.world import World, log
from marathond.ledger.verbs import findings, networks, runs, trials
from marathond.ledger.verbs.networks import NetworkSeen
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerInfo, NetworkInfo

PERIOD_S = 10.0
GRACE_MS = 60_000
"""Younger networks without an owner may still be in the making (a create that timed out and is about to be looked up)."""
BACKOFF_MAX_S = 300.0
RESTING = ("scored", "voided", "review")
PROJECT_LABELS = ("com.docker.compose.project", "com.docker.stack.namespace")


NAME_CHARS = 100
"""Of a stranger's name or label in our words."""


def _kind(thing: ContainerInfo | NetworkInfo) -> str:
    return "container" if isinstance(thing, ContainerInfo) else "network"


class Sweeper:
    def __init__(self, world: World) -> None:
        self.world = world
        self._next_try_ms: dict[int, int] = {}
        self._tries: Counter[int] = Counter()
        self._named_forged: set[str] | None = None

    async def run(self) -> None:
        """For ever; a sweep that the engine does not answer is tried again at the next period."""
        while True:
            try:
                await self.sweep()
            except (EngineUnreachable, EngineTimeout) as error:
                self.world.engine_breaks += isinstance(error, EngineUnreachable)
                log.warning("sweep_blind", error=str(error))
            except EngineError as error:
                log.warning("sweep_failed", error=str(error))
            await anyio.sleep(PERIOD_S)

    async def sweep(self) -> None:
        world = self.world
        await world.ledger.write(runs.mark_seen, now_ms=world.clock.wall_ms())
        await self._retry_teardowns()
        # Owners are read before and after the listings: what was torn down in between was listed, and is no orphan.
        tokens, names = await self._owners()
        containers = await world.engine.list_containers()
        listed = await world.engine.list_networks()
        tokens_now, names_now = await self._owners()
        everything: list[ContainerInfo | NetworkInfo] = [*containers, *listed]
        await self._forged([each for each in everything if each.labels.get(LABEL_LEDGER) == world.fixed.ledger_id])
        await self._orphan_containers(containers, tokens | tokens_now)
        await self._orphan_networks(listed, containers, names | names_now)
        await self._remember(listed)

    async def _retry_teardowns(self) -> None:
        """Resting trials whose container, network or claim is still there; with backoff, for each its own."""
        world, engine = self.world, self.world.fixed.engine_name
        resting = {row.trial_id for row in await world.ledger.read(trials.loose_containers, engine)}
        resting |= set(await world.ledger.read(trials.loose_claims))
        resting |= {row.trial_id for row in await world.ledger.read(networks.leases, engine) if row.trial_state in RESTING}
        now_ms = world.clock.mono_ms()
        for trial_id in sorted(resting - world.driven.keys()):
            if self._next_try_ms.get(trial_id, 0) > now_ms:
                continue
            if await tear_down(world, trial_id):
                self._next_try_ms.pop(trial_id, None)
                self._tries.pop(trial_id, None)
                world.wake.ring()
            else:
                self._tries[trial_id] += 1
                self._next_try_ms[trial_id] = now_ms + int(min(2.0 ** self._tries[trial_id], BACKOFF_MAX_S) * 1000)

    async def _owners(self) -> tuple[frozenset[str], frozenset[str]]:
        """Tokens of live claims, names of leased networks."""
        leased = await self.world.ledger.read(networks.leases, self.world.fixed.engine_name)
        return await self.world.ledger.read(trials.live_tokens), frozenset(row.network_name for row in leased)

    async def _orphan_containers(self, containers: Sequence[ContainerInfo], live: frozenset[str]) -> None:
        """Live or dead ones with our label whose claim is not live (fault b06: `sleep infinity` never exits by itself)."""
        world = self.world
        for container in containers:
            if not world.owns(container) or container.labels.get(LABEL_CLAIM) in live:
                continue
            if container.labels.get(LABEL_CLAIM) == PROOF_CLAIM and abs(world.clock.wall_ms() - container.created_ms) < PROOF_MAX_MS:
                continue
            subject = f"{container.labels.get(LABEL_TRIAL, '?')} {container.id[:12]}"
            gone = await world.engine.remove_container(container.id)
            log.warning("orphan_container", subject=subject, gone=gone)
            detail = f"container {container.id[:12]} carried our label and no live claim ({container.status}); " + (
                "removed" if gone else "the engine does not remove it; retried"
            )
            await self._finding("orphan_container", subject, detail, close=gone)

    async def _orphan_networks(self, listed: Sequence[NetworkInfo], containers: Sequence[ContainerInfo], owned: frozenset[str]) -> None:
        """Reclaim a network only if it carries our label, no lease owns it, no container names it and it is past the grace period."""
        world = self.world
        used = {container.network_mode for container in containers} | {i for container in containers for i in container.network_ids}
        now_ms = world.clock.wall_ms()
        for network in listed:
            if not world.owns(network) or network.name in owned:
                continue
            if network.id in used or network.name in used or abs(now_ms - network.created_ms) < GRACE_MS:
                continue
            gone = await world.engine.remove_network(network.id)
            log.warning("orphan_network", network=network.id[:12], gone=gone)
            detail = f"network {network.name} carried our label and no lease; " + (
                "removed" if gone else "the engine does not remove it; retried"
            )
            await self._finding("orphan_network", network.id[:12], detail, close=gone)

    async def _forged(self, labelled: Sequence[ContainerInfo | NetworkInfo]) -> None:
        """Say once of each thing that carries our label and is not ours, and say when it is over."""
        world = self.world
        seen = {f"{_kind(each)} {each.id[:12]}": each for each in labelled if not world.owns(each)}
        if self._named_forged is None:
            standing = await world.ledger.read(findings.open_findings)
            self._named_forged = {row.subject for row in standing if row.code == "label_forged"}
        for subject in sorted(self._named_forged - seen.keys()):
            await world.ledger.write(findings.close_finding, code="label_forged", subject=subject, now_ms=world.clock.wall_ms())
        for subject in sorted(seen.keys() - self._named_forged):
            name = printable(seen[subject].name, NAME_CHARS)
            trial = printable(seen[subject].labels.get(LABEL_TRIAL, "no trial"), NAME_CHARS)
            detail = f"{name} carries this ledger's label ({trial}) and no name that marathond gives; left alone"
            log.warning("label_forged", subject=subject, name=name)
            await self._finding("label_forged", subject, detail, close=False)
        self._named_forged = set(seen)

    async def _remember(self, listed: Sequence[NetworkInfo]) -> None:
        world = self.world
        rows = []
        for network in listed:
            ledger_id = network.labels.get(LABEL_LEDGER)
            other = "other_ledger" if ledger_id and ledger_id != world.fixed.ledger_id else "foreign"
            owner = "ours" if world.owns(network) else other
            project = next((network.labels[label] for label in PROJECT_LABELS if label in network.labels), "")
            rows.append(NetworkSeen(network.id, network.name, owner, project, ",".join(network.subnets), network.created_ms))
        await world.ledger.write(networks.replace_networks_seen, world.fixed.engine_name, rows, now_ms=world.clock.wall_ms())

    async def _finding(self, code: str, subject: str, detail: str, *, close: bool) -> None:
        world, now_ms = self.world, self.world.clock.wall_ms()
        await world.ledger.write(
            findings.raise_finding, code=code, severity="warning", subject=subject, detail=detail, campaign_id=None, now_ms=now_ms
        )
        if close:
            await world.ledger.write(findings.close_finding, code=code, subject=subject, now_ms=now_ms)
