"""Compares the first requests of a campaign's trials, as the gateway saw them, with what the rows of their arms declare (fault a14).

Owns the reading and the pairing.  Decides nothing: the rules are core/contract_rules.py, what a row declares agents/codex/declares.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from marathond.agents.codex.declares import declared
from marathond.core.arms import arm_from_data
from marathond.core.contract_rules import CODE, Asked, contracts_differ
from marathond.core.model import Arm
from marathond.core.model_rules import Found
from marathond.core.names import AgentKind
from marathond.flow.world import World
from marathond.ledger.verbs import shapes, stored


class Contracts:
    """What is known of the campaign's contracts; one per daemon life."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = -1
        self._found: list[Found] = []

    async def look(self) -> list[Found]:
        """Every finding that is true now.  Cheap where no trial has begun to ask since the last look."""
        ledger, campaign_id = self._world.ledger, self._world.fixed.campaign_id
        seen = await ledger.read(shapes.count)
        if seen != self._seen:
            rows = await ledger.read(shapes.shapes, campaign_id)
            arms, strange = readable([row for row in await ledger.read(stored.arms_of, campaign_id) if row.kind == AgentKind.CODEX])
            declares = {(a.name, b.name): declared(a, b) for a, b in permutations(arms, 2)}
            known = {arm.name for arm in arms}
            asked = [Asked(row.trial_id, row.arm, row.task, row.shape) for row in rows if row.arm in known]
            self._found = [*strange, *contracts_differ(asked, declares)]
            self._seen = seen
        return self._found


def readable(rows: Sequence[stored.StoredArm]) -> tuple[list[Arm], list[Found]]:
    """Arms, and of each row that another version wrote a finding: what cannot be compared must not end the intake of what was asked."""
    arms, strange = [], []
    for row in rows:
        try:
            arms.append(arm_from_data(row.data))
        except (KeyError, ValueError, TypeError) as error:
            what = f"the row of {row.name} was not written by this version ({type(error).__name__}: {error}): it is not compared"
            strange.append(Found(CODE, "error", row.name, what))
    return arms, strange
