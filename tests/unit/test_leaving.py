"""Clean-up that a cancellation must not cut, and the end of a daemon life that bounds all of it (fault f08)."""

from __future__ import annotations

import anyio
import pytest

from marathond.ports.leaving import last_act, new_life

pytestmark = pytest.mark.anyio
FOR_EVER = 10_000.0
"""Longer than any test is waited for."""


async def cleans_up(what: str, seconds: float, done: list[str], limit_s: float = FOR_EVER) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with last_act(what, limit_s):
            await anyio.sleep(seconds)
            done.append(what)


async def test_f08_a_cancellation_waits_for_what_is_being_cleaned_up() -> None:
    done: list[str] = []
    leaving = new_life()
    async with anyio.create_task_group() as group:
        group.start_soon(cleans_up, "short", 0.05, done)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert done == ["short"] and leaving.undone == []


async def test_f08_the_end_of_a_life_cuts_what_is_under_way_and_what_comes_after_and_names_it() -> None:
    done: list[str] = []
    leaving = new_life()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for what in ("first", "", "second"):
                group.start_soon(cleans_up, what, FOR_EVER, done)
            group.start_soon(cleans_up, "quick", 0.0, done)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.wait_all_tasks_blocked()
                leaving.begin(FOR_EVER)
                leaving.begin(0.01)
                leaving.begin(FOR_EVER)  # only ever sooner
        with last_act("later", FOR_EVER):
            await anyio.sleep(FOR_EVER)
    assert done == ["quick"] and sorted(leaving.undone[:2]) == ["first", "second"] and leaving.undone[2:] == ["later"]


async def test_a_limit_of_its_own_holds_in_a_life_that_goes_on_and_outside_of_any() -> None:
    for leaving in (None, new_life()):
        with anyio.fail_after(60), last_act("own limit", 0.01):
            await anyio.sleep(FOR_EVER)
        assert leaving is None or leaving.undone == []
