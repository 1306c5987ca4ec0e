"""When an exec that the engine has forgotten counts as ended (fault b11); an engine that is away says nothing of that."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from marathond.agents import forgotten
from marathond.core.errors import EngineTimeout, EngineUnreachable, NotFound

pytestmark = pytest.mark.anyio

OURS, INIT, OTHER = "sh -c … marathond-agent 0 /out /ctl/exit-status true", "runc init", "sleep infinity"


class Looks:
    """An engine that lists what it is told to, one list a look; the last for ever."""

    def __init__(self, looks: Sequence[Sequence[str] | Exception]) -> None:
        self._looks, self.asked = list(looks), 0

    async def processes(self, container_id: str) -> list[Any]:
        said = self._looks[min(self.asked, len(self._looks) - 1)]
        self.asked += 1
        if isinstance(said, Exception):
            raise said
        return [SimpleNamespace(argv=argv) for argv in said]


@pytest.mark.parametrize(
    ("looks", "asked"),
    [
        ([[OTHER]], 2),
        ([[]], 2),
        ([[INIT], [OURS, OTHER], [OTHER], [OTHER]], 4),  # just started: not by the wrapper's name yet
        ([[OURS], [], [OURS], [], []], 5),
        ([EngineUnreachable("container.top", 0, "away"), [OURS], EngineTimeout("container.top", 0, "no answer"), [], []], 5),
        ([[OURS], NotFound("container.top", 404, "gone")], 2),
        ([NotFound("container.top", 404, "gone")], 1),
    ],
)
async def test_b11_it_has_ended_when_two_looks_in_a_row_do_not_see_it(
    looks: Sequence[Sequence[str] | Exception], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgotten, "POLL_S", 0.0)
    monkeypatch.setattr(forgotten, "PAUSE_S", 0.0)
    engine = Looks(looks)
    env: Any = SimpleNamespace(engine=engine, container_id="c")
    await forgotten.until_gone(env, "marathond-agent", "/ctl/exit-status")
    assert engine.asked == asked
