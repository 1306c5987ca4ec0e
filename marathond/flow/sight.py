"""Does the engine see our files and do we see its processes?  Asked once per daemon life, before the first admission.

Owns the proof's container.  Race prevented: the sweeper would take it for an orphan, so it carries a claim of its own name; what a killed
daemon left of it is removed at the next start, and is an orphan once it is older than any proof lasts.
"""

from __future__ import annotations

from marathond.core.belongings import PROOF_CLAIM
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable
from marathond.engine.proof import engine_sees_files
from marathond.flow.world import World, log
from marathond.ledger.verbs import findings
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER

PROOF_MAX_MS = 180_000
"""No proof lasts longer: its own steps are bounded by less."""


async def remove_leftovers(world: World) -> None:
    """What a killed daemon left of its proof; to be called before this life begins its own."""
    ours = {LABEL_LEDGER: world.fixed.ledger_id, LABEL_CLAIM: PROOF_CLAIM}
    try:
        found = await world.look(lambda: world.engine.list_containers(ours))
    except EngineError as error:
        log.warning("proofs_not_seen", error=str(error))  # the sweeper finds them: no daemon ends over a listing
        return
    for left in found:
        if not world.owns(left):
            continue
        try:
            await world.engine.remove_container(left.id)
        except EngineError as error:
            log.warning("proof_not_removed", container=left.id, error=str(error))  # the sweeper finds it again


class Sight:
    def __init__(self, world: World) -> None:
        self.world = world
        self._proven = False
        self._useless: set[str] = set()

    async def problem(self) -> str:
        """Empty when all is well (remembered) or cannot be told yet, else what is wrong, named by a finding as well.

        :raises EngineError: the engine is away.
        """
        world = self.world
        for image_id in sorted({image.id for image in world.images.values()} - self._useless):
            if self._proven:
                return ""
            try:
                found = await self._prove(image_id)
            except (EngineUnreachable, EngineTimeout):
                raise
            except EngineError as error:
                # No shell in it, or no way to start it: that image's own trouble, which its own trials will name (fault f06).
                log.warning("proof_not_possible", image=image_id, error=str(error))
                self._useless.add(image_id)
                continue
            return await self._conclude(found)
        return ""

    async def _prove(self, image_id: str) -> list[str]:
        world = self.world
        labels = {LABEL_LEDGER: world.fixed.ledger_id, LABEL_CLAIM: PROOF_CLAIM}
        return await engine_sees_files(world.engine, image_id, world.fixed.run_root.parent, labels)

    async def _conclude(self, found: list[str]) -> str:
        world, now_ms, subject = self.world, self.world.clock.wall_ms(), self.world.fixed.engine_name
        if not found:
            self._proven = True
            await world.ledger.write(findings.close_finding, code="engine_blind", subject=subject, now_ms=now_ms)
            return ""
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
