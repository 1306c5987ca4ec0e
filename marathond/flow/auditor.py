"""Asks every rule of the audit, after every void and every score, and keeps their findings true.

Owns when to look.  What is wrong is core/audit's word; what follows from it is written in one transaction by
:mod:`marathond.ledger.verbs.audited`:

* A finding is opened, its words follow the facts, and it is closed when its rule, able to see, finds it no longer.
* A stop-loss closes admission for all arms and rings.  It stays open, true or not, until a person answers: ``marathonctl resume``, or
  ``ack`` of the finding.
* ``resume`` means: go on, and stop again when it happens again.  Admission is closed anew only when the finding rests on a trial of which
  the ledger has an event since then, so that the evidence of yesterday stops nothing today.
* ``ack`` means: I know.  An acknowledged finding stays open while it is true, stands in status and report, and stops nothing any more.

All of this is in the ledger: a later life of the daemon goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from anyio import to_thread

from marathond.core.audit.facts import Facts
from marathond.core.audit.house import WAL_BYTES
from marathond.core.audit.rule import Rule
from marathond.core.audit.rules import RULES, looks
from marathond.core.errors import MarathonError
from marathond.core.model_rules import Found, new_or_over
from marathond.flow.world import World, log
from marathond.ledger import wal
from marathond.ledger.verbs import audit, audited, findings, settings
from marathond.ledger.verbs.audited import Key
from marathond.ports.leaving import last_act

POLL_S = 0.5
"""How often the ledger is asked whether anything has happened: one number by its primary key."""
APART_MS, AT_LEAST_MS = 2_000, 60_000
"""Two looks are so far apart; without an event there is one a minute, for what is a matter of time."""
LAST_S = 2.0
"""For the look at the daemon's end, which has five seconds (fault f08)."""
SHARE = 20
"""Of the time at most one part in so many is spent on looks, however large the campaign."""
FAILED = "audit_failed"
LOOKED = "audit_look"
"""The observation of its last look: how many rules, and which of them could not see."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What all rules found; ``blind``: codes of those that could not see, whose findings are neither true nor over."""

    found: tuple[Found, ...]
    blind: frozenset[str]


def judge(facts: Facts, rules: Sequence[Rule] = RULES) -> Judged:
    """Every rule, whatever becomes of another one."""
    found: list[Found] = []
    blind: set[str] = set()
    for rule, look in looks(facts, rules):
        if isinstance(look, Exception):
            log.error(FAILED, rule=rule.code, error=str(look), exc_info=look)
            found.append(Found(FAILED, "error", rule.code, f"rule {rule.code} broke: {type(look).__name__}: {look}"))
            blind.add(rule.code)
            continue
        found += look.found
        if look.unseen:
            blind.add(rule.code)
    return Judged(tuple({(each.code, each.subject): each for each in found}.values()), frozenset(blind))


class Auditor:
    """One per daemon life; :meth:`run` beside everything else."""

    def __init__(self, world: World, ledger_path: Path | None = None, rules: Sequence[Rule] = RULES) -> None:
        """:param ledger_path: whose log's size is looked at; None: it is not."""
        self.world, self._rules = world, rules
        self._ledger_path = ledger_path
        self._codes = frozenset({FAILED, *(rule.code for rule in rules)})
        self._told: dict[Key, str] = {}
        self._others: frozenset[Key] = frozenset()
        """Open findings of other campaigns of this ledger, which are none of ours to change."""
        self._loaded = False
        self._event, self._looked_ms, self._apart_ms = -1, -(10**9), APART_MS

    async def run(self) -> None:
        """For ever.  A ledger that refuses ends it.

        At the daemon's end it looks once more, bounded, at what happened since the last time: findings are read from the ledger by whoever
        comes after, and words about all but the last trials would stay there.
        """
        try:
            while True:
                await self.look_if_due()
                await anyio.sleep(POLL_S)
        except anyio.get_cancelled_exc_class():
            with last_act("", LAST_S):
                await self._last_look()
            raise

    async def _last_look(self) -> None:
        try:
            if await self.world.ledger.read(audited.newest_event) != self._event:
                await self.look()
        except MarathonError as error:  # another daemon has taken over, or the disk is full: it is said, and the end is not held up
            log.warning("last_audit_failed", error=str(error))

    async def look_if_due(self) -> bool:
        """Whether it looked."""
        passed_ms = self.world.clock.mono_ms() - self._looked_ms
        if passed_ms < self._apart_ms:
            return False
        newest = await self.world.ledger.read(audited.newest_event)
        if newest == self._event and passed_ms < AT_LEAST_MS:
            return False
        await self.look()
        self._event = newest
        return True

    async def look(self) -> None:
        """Everything once."""
        world, began_ms = self.world, self.world.clock.mono_ms()
        await self._load()
        size, readers = (None, ()) if self._ledger_path is None else await to_thread.run_sync(wal.look, self._ledger_path, WAL_BYTES)
        facts = await world.ledger.read(
            audit.facts, world.fixed.campaign_id, now_ms=world.clock.wall_ms(), wal_bytes=size, wal_readers=readers, daemon_alive=True
        )
        judged = await to_thread.run_sync(judge, facts, self._rules)
        await self._settle(judged)
        # For who asks whether anybody looks (doctor, fault e01): where nothing is found, this is all that a look leaves behind.
        seen = {"campaign": world.fixed.campaign, "rules": len(self._rules), "blind": sorted(judged.blind)}
        await world.ledger.write(settings.observe, LOOKED, seen, now_ms=world.clock.wall_ms())
        self._looked_ms = world.clock.mono_ms()
        self._apart_ms = max(APART_MS, SHARE * (self._looked_ms - began_ms))

    async def _load(self) -> None:
        """What an earlier life told, and is still open, once."""
        if self._loaded:
            return
        world = self.world
        rows = [row for row in await world.ledger.read(findings.open_findings) if row.code in self._codes]
        mine = [row for row in rows if row.campaign_id == world.fixed.campaign_id]
        self._told = {(row.code, row.subject): row.detail for row in mine}
        self._others = frozenset((row.code, row.subject) for row in rows) - self._told.keys()
        self._loaded = True

    async def _settle(self, judged: Judged) -> None:
        found = [self._named(each) for each in judged.found]
        fresh, over = new_or_over(self._told, found)
        over = [key for key in over if key[0] not in judged.blind]
        stopping = [each for each in found if each.stops]
        if not fresh and not over and not stopping:
            return
        world = self.world
        closed, ended = await world.ledger.write(
            audited.keep, fresh, over, stopping, campaign_id=world.fixed.campaign_id, now_ms=world.clock.wall_ms()
        )
        for each in fresh:
            if (each.code, each.subject) not in self._told:
                log.warning(each.code, severity=each.severity, subject=each.subject, detail=each.detail)
            self._told[each.code, each.subject] = each.detail
        for key in ended:
            del self._told[key]
            log.info("finding_over", code=key[0], subject=key[1])
        if closed:
            log.error("stop_loss", codes=[code for code, _ in closed])
            world.wake.ring()

    def _named(self, found: Found) -> Found:
        """A finding is known by code and subject, in all campaigns of a ledger."""
        if (found.code, found.subject) in self._others:
            return replace(found, subject=f"{found.subject} ({self.world.fixed.campaign})")
        return found
