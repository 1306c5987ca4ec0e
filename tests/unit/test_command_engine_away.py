"""An engine that restarts again and again is no end of a command (fault b11): codex's server is waited for just so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from marathond.agents.command import CommandAgent
from marathond.core.errors import EngineTimeout, EngineUnreachable, NotFound


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "alive"),
    [
        (EngineUnreachable("container.top", 0, "connection refused"), True),
        (EngineTimeout("container.top", 0, "no answer"), True),
        (NotFound("container.top", 404, "no such container"), False),
    ],
)
async def test_b11_an_engine_that_is_away_is_no_end_of_the_agent(error: Exception, alive: bool) -> None:
    async def processes(_: str) -> Any:
        raise error

    env: Any = SimpleNamespace(engine=SimpleNamespace(processes=processes), container_id="c")
    assert await CommandAgent()._wrapper_alive(env) is alive
