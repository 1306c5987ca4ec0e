"""How late the daemon's loop is: the summary, the looks that a standing loop misses, and a loop that really stands still."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import LedgerRefused
from marathond.ledger.verbs.settings import observations
from marathond.ports.clock import SystemClock
from marathond.service import lag
from marathond.service.lag import LoopLag, missed, summary
from tests.support.ledgers import begin, memory_ledger


def test_no_look_is_no_summary() -> None:
    assert summary([]) is None


def test_percentiles_by_nearest_rank() -> None:
    seen = summary([number / 1000 for number in range(1, 101)])
    assert seen == {"p50_ms": 50.0, "p99_ms": 99.0, "max_ms": 100.0, "samples": 100, "window_s": 60}
    assert summary([0.0071234]) == {"p50_ms": 7.12, "p99_ms": 7.12, "max_ms": 7.12, "samples": 1, "window_s": 60}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=700))
def test_percentiles_are_in_order_and_among_the_looks(lags: list[float]) -> None:
    seen = summary(lags)
    assert seen is not None and 0 <= seen["p50_ms"] <= seen["p99_ms"] <= seen["max_ms"] == round(1000 * max(lags), 2)


def test_a_loop_that_stood_still_counts_every_look_it_missed() -> None:
    assert missed(0.02) == [0.02]
    assert missed(0.35) == pytest.approx([0.35, 0.25, 0.15, 0.05])
    assert len(missed(3600.0)) == lag.RING
    one_stall = [*([0.001] * 300), *missed(30.0)]
    seen = summary(one_stall)
    assert seen is not None and seen["p99_ms"] > 20_000, "half a minute of silence is seen, though it was one look only"


class Rows:
    """The Ledger port over a ledger in memory; refuses the first write with ``code``."""

    def __init__(self, code: str) -> None:
        self.code, self.c = code, memory_ledger()
        begin(self.c)

    async def write(self, verb: Any, *args: Any, **kwargs: Any) -> Any:
        if self.code:
            code, self.code = self.code, ""
            raise LedgerRefused(code, "no")
        return verb(self.c, *args, **kwargs)

    async def read(self, verb: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("nothing is read")

    def told(self) -> dict[str, Any]:
        seen = observations(self.c).get("loop")
        return {} if seen is None else dict(seen.value)


def test_a_loop_that_stands_still_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "TELL_S", 0.2)
    ledger, looked = Rows("disk_full"), LoopLag()

    async def until(low_ms: float) -> None:
        with anyio.fail_after(60):
            while ledger.told().get("max_ms", -1.0) < low_ms:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    async def stand() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(looked.measure)
            group.start_soon(looked.tell, ledger, SystemClock())
            await until(0)
            time.sleep(0.6)  # noqa: ASYNC251 - the loop itself, not a thread
            await until(490)
            group.cancel_scope.cancel()

    anyio.run(stand)
    assert ledger.told()["samples"] > 5


def test_a_refusal_that_does_not_pass_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "TELL_S", 0.2)
    ledger, looked = Rows("old_epoch"), LoopLag()

    async def go() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(looked.measure)
            group.start_soon(looked.tell, ledger, SystemClock())

    with pytest.raises(ExceptionGroup) as caught:
        anyio.run(go)
    assert caught.group_contains(LedgerRefused)
