"""Does the engine see our files and do we see its processes?  Asked once per daemon life, before the first admission.

Owns the proof's container.  Race prevented: the sweeper would take it for an orphan, so it carries a claim of its own name, and what a
killed daemon left of it is removed by the next proof.
"""

from __future__ import annotations

from marathond.engine.proof import engine_sees_files
from marathond.flow.world import World, log
from marathond.ledger.verbs import findings
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER

PROOF_CLAIM = "proof"


class Sight:
    def __init__(self, world: World) -> None:
        self.world = world
        self._proven = False

    async def problem(self, image_id: str) -> str:
        """Empty when all is well (remembered), else what is wrong, named by a finding as well.

        :param image_id: any image of the engine with a shell.
        :raises EngineError: the engine could not run the proof.
        """
        if self._proven:
            return ""
        world = self.world
        labels = {LABEL_LEDGER: world.fixed.ledger_id, LABEL_CLAIM: PROOF_CLAIM}
        for left in await world.engine.list_containers(labels):
            await world.engine.remove_container(left.id)
        found = await engine_sees_files(world.engine, image_id, world.fixed.run_root.parent, labels)
        now_ms, subject = world.clock.wall_ms(), world.fixed.engine_name
        if found:
            log.error("engine_blind", problems=found)
            await world.ledger.write(
                findings.raise_finding,
                code="engine_blind",
                severity="error",
                subject=subject,
                detail="; ".join(found),
                campaign_id=None,
                now_ms=now_ms,
            )
            return "; ".join(found)
        self._proven = True
        await world.ledger.write(findings.close_finding, code="engine_blind", subject=subject, now_ms=now_ms)
        return ""
