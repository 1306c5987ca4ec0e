"""An engine that is in trouble says nothing of an image: the question stays open, and no task is parked for it (fault b10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from marathond.core.errors import EngineTimeout, EngineUnreachable
from marathond.flow.fitness import Fitness
from marathond.ports.agent import ImageCheck

CHECK = ImageCheck(what="a runtime", argv=("true",), mounts=(), timeout_s=60.0)
BROKE = EngineTimeout("container.start", 0, "the connection broke before it answered; the outcome is unknown")
SILENT = EngineUnreachable("container.inspect", 0, "connection refused")


class Troubled:
    """An engine that fails at ``at``, after ``after_ms`` of the clock; until it is well again it removes nothing."""

    def __init__(self, at: str, after_ms: int, *, looks: bool) -> None:
        self.at, self.after_ms, self.looks, self.now_ms = at, after_ms, looks, 0
        self.well = False
        self.there: list[str] = []

    def mono_ms(self) -> int:
        return self.now_ms

    def _trouble(self, call: str) -> None:
        if call == self.at and not self.well:
            self.now_ms += self.after_ms
            raise BROKE

    async def create_container(self, spec: Any) -> str:
        self.there.append(spec.name)
        return str(spec.name)

    async def start_container(self, container_id: str) -> None:
        self._trouble("start")

    async def run_exec(self, container_id: str, spec: Any, *, timeout_s: float) -> Any:
        self._trouble("exec")
        return SimpleNamespace(exit_code=0, output="")

    async def inspect_container(self, container_id: str) -> None:
        if not self.looks:
            raise SILENT

    async def remove_container(self, container_id: str) -> bool:
        if not self.well:
            raise SILENT
        self.there.remove(container_id)
        return True


def fitness(engine: Troubled) -> Fitness:
    world: Any = SimpleNamespace(engine=engine, clock=engine, fixed=SimpleNamespace(ledger_id="abc"))
    return Fitness(world)


@pytest.mark.anyio
@pytest.mark.parametrize(("at", "after_ms", "looks"), [("start", 0, True), ("exec", 10, True), ("exec", 60_000, False)])
async def test_b10_an_engine_that_breaks_off_says_nothing_of_the_image(at: str, after_ms: int, looks: bool) -> None:
    engine = Troubled(at, after_ms, looks=looks)
    asked = fitness(engine)
    with pytest.raises((EngineTimeout, EngineUnreachable)):
        await asked._ask("image", CHECK)
    assert len(engine.there) == 1
    engine.well = True
    assert await asked._ask("image", CHECK) == ""
    assert engine.there == [], "what could not be removed is removed by the next question"


@pytest.mark.anyio
async def test_an_image_in_which_it_hangs_is_unfit() -> None:
    engine = Troubled("exec", 60_000, looks=True)
    assert "did not answer in the image within 60 s" in await fitness(engine)._ask("image", CHECK)
