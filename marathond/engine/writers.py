"""What the HTTP library says of a request's body when the connection broke under it: told once.

Owns one handler of the event loop.  Must not know requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class _Once:
    def __init__(self, before: _Handler | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Only of what nobody asked for: an error of a callback or a transport has another context.
        if isinstance(context.get("exception"), aiohttp.ClientConnectionResetError) and "never retrieved" in context.get("message", ""):
            return
        if self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)


def tell_once() -> None:
    """Of a connection that breaks under an upload aiohttp (3.14) tells twice: the request fails, which its caller handles, and the task
    that wrote the body ends with an error that nobody can ask for, which asyncio would log as a traceback.  For as long as this loop runs;
    a second call changes nothing."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    if not isinstance(before, _Once):
        loop.set_exception_handler(_Once(before))
