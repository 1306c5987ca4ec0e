"""LoopX as the driver uses it: questions in a bounded time, asked again after a failure, and what it means when there is no answer.

Owns retries and the judgement of a silence.  Must not know what the answers decide.

Whose failure is it?  LoopX keeps its state where the agent may write, and runs where the agent may kill it or take its libc away.  Once
the agent had done something, a LoopX that says no, comes to no end or cannot be run there is the treatment, or the agent's doing, and a
void would be a free second try, of this arm alone: it is told (``loopx_refused``) and the run goes on or ends without it.  Before that it
is the infrastructure, and so it is whenever the engine itself failed: ``loopx_failed``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import anyio

from marathond.agents.codex.errors import ConnectionLost
from marathond.agents.codex.shapes import Item
from marathond.agents.forgotten import patiently
from marathond.agents.loopx import goal as loopx
from marathond.agents.loopx.commands import Refused
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, GateFailed, NotFound
from marathond.ports.agent import Environment

TRIES, PAUSE_S = 3, 2.0
ENGINE = "engine"
"""Code of a failure that nothing in the container brings about."""
_RECEIPT = re.compile(r'"turn_instance_id":\s*"([^"]{1,200})",\s*"status":\s*"(committed|replayed)"')

Answer = TypeVar("Answer")


class Unanswered(Exception):
    """No answer of LoopX's, to somebody who had the means to bring that about."""

    def __init__(self, call: str, code: str, detail: str) -> None:
        self.call, self.code, self.detail = call, code, detail
        super().__init__(f"{call}: {detail}")


class LoopX:
    """One trial's.  ``has_acted``: whether the agent had the means to break it.

    Every question raises :class:`Unanswered`; GateFailed ``loopx_failed``; ConnectionLost where the container is gone, which whoever
    watches it knows better.
    """

    def __init__(self, env: Environment, prepared: dict[str, Any], has_acted: Callable[[], bool]) -> None:
        self.env, self.has_acted = env, has_acted
        self.goal = loopx.Goal.read(prepared)

    async def body(self, turn_id: str) -> str:
        """Rendered anew for a wake."""
        return await self._answer("heartbeat-prompt", lambda: loopx.body(self.env, self.goal, self.goal.profile, turn_id))

    async def poll(self) -> dict[str, Any]:
        """What ``quota should-run`` says, for the log."""
        return asdict(await self._answer("quota should-run", lambda: loopx.ask(self.env, self.goal, self.goal.profile)))

    async def gates(self) -> list[str]:
        """Ids of the todos that wait for a person."""
        return [todo.todo_id for todo in await self._answer("todo list", lambda: loopx.todos(self.env, self.goal)) if todo.is_gate]

    async def clear(self) -> list[str]:
        """Approve them, and let nobody be waited for; ids of those approved now."""
        return list(await self._answer("todo complete", lambda: loopx.clear(self.env, self.goal)))

    async def _answer(self, name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        for attempt in range(1, TRIES + 1):
            try:
                return await ask()
            except (EngineUnreachable, EngineTimeout) as error:
                # An engine that is away is waited for: the agent goes on without it.
                await patiently(lambda: self.env.engine.inspect_container(self.env.container_id))
                code, detail = ENGINE, str(error)
            except NotFound as error:
                raise ConnectionLost("broken", f"the container is gone: {error}") from error
            except EngineError as error:
                code, detail = ENGINE, str(error)
            except ValueError as error:
                code, detail = "shape", str(error)
            except Refused as error:
                code, detail = error.code, error.detail
            if attempt < TRIES:
                await anyio.sleep(PAUSE_S * attempt)
        seen = await patiently(lambda: self.env.engine.inspect_container(self.env.container_id))
        if seen is None or not seen.running:
            raise ConnectionLost("broken", "the container does not run any more")
        if code != ENGINE and self.has_acted():
            raise Unanswered(name, code, detail[:1000])
        raise GateFailed("loopx_failed", f"{name}: {code}: {detail}"[:2000])


class Receipts:
    """What LoopX told the agent of a wake's id, as far as the outputs of its commands show it.

    The agent may ask again within a wake, and is told ``replayed`` then; told so at first, the id was not new (fault c06).
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def replayed(self, item: Item, wake: str) -> bool:
        """Whether this output shows it.  Each id is judged once, by the first output that tells of it."""
        for turn_id, status in _RECEIPT.findall(item.aggregated_output or ""):
            if turn_id == wake and turn_id not in self._seen:
                self._seen.add(turn_id)
                return bool(status == "replayed")
        return False
