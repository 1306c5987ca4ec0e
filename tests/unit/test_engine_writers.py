"""An error of a request's writer that nobody can ask for is told once, by the request; every other one is told as ever."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import aiohttp
import pytest

from marathond.engine.writers import tell_once


@pytest.mark.parametrize(
    ("error", "told"), [(aiohttp.ClientConnectionResetError("broke"), 0), (aiohttp.ClientError("else"), 1), (OSError(5, "io"), 1)]
)
def test_only_the_writers_error_is_not_told(error: Exception, told: int) -> None:
    heard: list[dict[str, Any]] = []

    async def fails() -> None:
        raise error

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context))
        tell_once()
        tell_once()
        task = asyncio.get_running_loop().create_task(fails())
        await asyncio.wait([task])
        del task
        gc.collect()

    asyncio.run(main())
    assert len(heard) == told


def test_an_error_of_a_callback_is_told_whatever_it_is() -> None:
    heard: list[str] = []

    def broken() -> None:
        raise aiohttp.ClientConnectionResetError("in a callback")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: heard.append(context["message"]))
        tell_once()
        asyncio.get_running_loop().call_soon(broken)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(heard) == 1 and "callback" in heard[0]
