"""Can what the campaign's arms mount run in an image at all?  Asked once per image and daemon life, before its task's first admission.

Owns the container of that question.  An image in which one arm's runtime cannot run (musl, an older glibc) parks the task for all arms:
without it for one arm only, the comparison would tilt.  Must not know what is mounted, or why.
Race prevented: the sweeper would take the container for an orphan, so it carries the claim of a proof (:mod:`marathond.flow.sight`).
"""

from __future__ import annotations

import secrets

from marathond.agents.registry import AGENTS
from marathond.core.arms import arm_from_data
from marathond.core.belongings import PROOF_CLAIM, fitness_name
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable
from marathond.flow.world import World, log
from marathond.ledger.verbs import stored
from marathond.ports.agent import ImageCheck
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, ContainerSpec, ExecSpec

SAID_CHARS = 500


class Fitness:
    def __init__(self, world: World) -> None:
        self.world = world
        self._known: dict[tuple[str, ImageCheck], str] = {}
        self._left: set[str] = set()
        """Containers that an engine in trouble did not remove."""

    async def problem(self, image_id: str) -> str:
        """Empty when everything can run there, else what cannot, and what the image said.

        :raises EngineUnreachable, EngineTimeout: not known yet.
        :raises GateFailed: what an arm mounts is not staged.
        """
        for check in await self._checks():
            if (image_id, check) not in self._known:
                self._known[image_id, check] = await self._ask(image_id, check)
            if found := self._known[image_id, check]:
                return found
        return ""

    async def _checks(self) -> list[ImageCheck]:
        world = self.world
        found: list[ImageCheck] = []
        for row in await world.ledger.read(stored.arms_of, world.fixed.campaign_id):
            arm = arm_from_data(row.data)
            check = AGENTS[arm.kind].image_check(arm, world.fixed.staged)
            if check is not None and check not in found:
                found.append(check)
        return found

    async def _ask(self, image_id: str, check: ImageCheck) -> str:
        world = self.world
        spec = ContainerSpec(
            name=fitness_name(world.fixed.ledger_id, secrets.token_hex(4)),
            image_id=image_id,
            labels={LABEL_LEDGER: world.fixed.ledger_id, LABEL_CLAIM: PROOF_CLAIM},
            network=None,
            mounts=check.mounts,
        )
        for left in sorted(self._left):
            await self._remove(left)
        container_id, asked_ms = None, None
        try:
            container_id = await world.engine.create_container(spec)
            await world.engine.start_container(container_id)
            asked_ms = world.clock.mono_ms()
            result = await world.engine.run_exec(container_id, ExecSpec(check.argv, user="0"), timeout_s=check.timeout_s)
        except EngineUnreachable:
            raise
        except EngineTimeout as error:
            if container_id is None or asked_ms is None or world.clock.mono_ms() - asked_ms < check.timeout_s * 900:
                raise  # the engine's own trouble, such as a connection that broke: of the image nothing is known
            await world.engine.inspect_container(container_id)  # raises where it is the engine that does not answer
            return f"{check.what} did not answer in the image within {check.timeout_s:g} s: {error}"
        except EngineError as error:
            return f"{check.what} cannot run in the image: {error}"
        finally:
            if container_id is not None:
                await self._remove(container_id)
        if result.exit_code == 0:
            log.info("image_fit", image=image_id, what=check.what, said=" ".join(result.output.split()))
            return ""
        said = " ".join(result.output.split())[-SAID_CHARS:] or "no output"
        return f"{check.what} cannot run in the image (exit {result.exit_code}): {said}"

    async def _remove(self, container_id: str) -> None:
        self._left.add(container_id)
        try:
            await self.world.engine.remove_container(container_id)
            self._left.discard(container_id)
        except EngineError as error:
            log.warning("proof_not_removed", container=container_id, error=str(error))  # the next question removes it, or the sweeper
