"""What money has to say to a person: a model without a price, 80 % of the cap, the cap itself.

Owns the findings about it and the daemon's word on the caps, for ``status``.  Decides nothing: whether a block may begin is core/money.py,
and what is said is :func:`marathond.core.money.concerns`.
"""

from __future__ import annotations

from dataclasses import asdict

from marathond.core.money import CONCERNS, concerns
from marathond.core.plan import Plan, Snapshot
from marathond.flow.world import World, log
from marathond.ledger.verbs import findings, pricing, settings
from marathond.ledger.verbs.unpriced import unpriced

CAPS = "money"
"""The observation that holds the caps; said once in each life."""


class Treasurer:
    """One per daemon life."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._said: dict[tuple[str, str], str] | None = None

    async def begin(self) -> None:
        """Once, before the first plan: what had no price may have one by now."""
        if self._said is not None:
            return
        world, rules = self.world, self.world.fixed.money
        found = await world.ledger.read(findings.open_findings)
        if rules.prices and (priced := await world.ledger.write(pricing.reprice, rules.prices)):
            log.info("prices_applied", requests=priced)
        caps = {key: value for key, value in asdict(rules).items() if key != "prices"} | {"models": sorted(rules.prices)}
        await world.ledger.write(settings.observe, CAPS, caps, now_ms=world.clock.wall_ms())
        self._said = {(row.code, row.subject): row.detail for row in found if row.code in CONCERNS}

    async def look(self, snapshot: Snapshot, decided: Plan) -> None:
        """Say what is new or has changed, end what is over."""
        world, rules = self.world, self.world.fixed.money
        if not rules.prices and rules.campaign_cap_nusd is None:
            return  # nobody asked
        assert self._said is not None
        without = await world.ledger.read(unpriced, world.fixed.campaign_id)
        stopped = next((waiting.text for waiting in decided.waiting if waiting.code == "MONEY"), "")
        idle = not snapshot.holdings and not decided.admissions
        now = {(one.code, one.subject): one for one in concerns(rules, without, snapshot.purse, stopped=stopped, idle=idle)}
        now_ms = world.clock.wall_ms()
        for key in self._said.keys() - now.keys():
            await world.ledger.write(findings.close_finding, code=key[0], subject=key[1], now_ms=now_ms)
        for key, one in now.items():
            if self._said.get(key) != one.detail:
                await world.ledger.write(
                    findings.raise_finding,
                    code=one.code,
                    severity=one.severity,
                    subject=one.subject,
                    detail=one.detail,
                    campaign_id=world.fixed.campaign_id,
                    now_ms=now_ms,
                )
        self._said = {key: one.detail for key, one in now.items()}
