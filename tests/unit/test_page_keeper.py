"""One look for all who watch: how often it is made, what happens when it breaks, and that nobody waits for its thread at the end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from marathond.core.errors import Refused
from marathond.service.page.keeper import LEAST_S, PAUSE_MAX_S, QUEUE_MAX, Kept, Worker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_hundred_viewers_are_one_look_every_two_seconds() -> None:
    looks: list[str] = []

    async def watch() -> None:
        worker, clock = Worker("t"), Clock()
        kept = Kept(worker, lambda: looks.append(threading.current_thread().name) or len(looks), clock=clock)
        assert set(await asyncio.gather(*(kept.get() for _ in range(100)))) == {1}
        clock.now += LEAST_S - 0.01
        assert await kept.get() == 1
        clock.now += 0.02
        assert set(await asyncio.gather(*(kept.get() for _ in range(100)))) == {2}
        worker.close()

    asyncio.run(watch())
    assert looks == ["t", "t"]


def test_a_look_that_costs_much_is_made_less_often() -> None:
    def burn() -> None:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass

    async def watch() -> float:
        worker = Worker("t")
        kept = Kept(worker, burn)
        await kept.get()
        worker.close()
        return kept.pause_s

    assert 4.0 <= asyncio.run(watch()) <= PAUSE_MAX_S


def test_an_error_is_told_to_all_who_asked_and_not_kept() -> None:
    said: list[str] = []

    def look() -> str:
        said.append("x")
        if len(said) == 1:
            raise ValueError("gone")
        return "there"

    async def watch() -> None:
        worker = Worker("t")
        kept = Kept(worker, look, clock=Clock())
        with pytest.raises(ValueError, match="gone"):
            await kept.get()
        assert await kept.get() == "there"
        worker.close()

    asyncio.run(watch())


def test_who_goes_away_does_not_begin_another_look() -> None:
    hold, looks = threading.Event(), list[int]()

    def look() -> int:
        looks.append(1)
        hold.wait()
        return len(looks)

    async def watch() -> None:
        worker = Worker("t")
        kept = Kept(worker, look, clock=Clock())
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(kept.get(), 0.01)
        hold.set()
        assert await kept.get() == 1
        worker.close()

    asyncio.run(watch())


def test_a_look_that_hangs_holds_up_its_own_kind_and_no_end() -> None:
    hold = threading.Event()

    async def watch() -> None:
        stuck, other = Worker("stuck"), Worker("other")
        waiting = asyncio.create_task(Kept(stuck, hold.wait).get())
        assert await Kept(other, lambda: "fine").get() == "fine"
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        crowd = [asyncio.create_task(Kept(stuck, hold.wait).get()) for _ in range(QUEUE_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="hangs"):
            await asyncio.wait_for(Kept(stuck, hold.wait).get(), 60)
        for each in crowd:
            each.cancel()
        other.close()
        stuck.close()

    asyncio.run(watch())  # returns: nobody joined the thread that hangs
    assert any(thread.name == "stuck" and thread.daemon for thread in threading.enumerate())
    hold.set()
