"""The soak in its short form: the same kills and the same count as `make soak`, as soon as agents run (fault f02)."""

from __future__ import annotations

import pytest

from tests.soak.cells import Cells
from tests.soak.count import table
from tests.soak.run import Plan, soak
from tests.support.private_engine import PrivateEngine

# The bounds within it are for hangs, and its plan has more of them than one test usually has time for.
pytestmark = [pytest.mark.docker, pytest.mark.anyio, pytest.mark.timeout(1800)]

PLAN = Plan(minutes=5, seed=6, kills=4, dockerd_kills=1, pairs=2, low_water=1, drain_s=900, cells=Cells(4, 3.0, loopx=False))


@pytest.fixture
def restorable(own_engine: PrivateEngine) -> PrivateEngine:
    """With live-restore; plain again afterwards."""
    own_engine.stop()
    own_engine.arguments.append("--live-restore")
    own_engine.start()
    return own_engine


async def test_f02_nothing_is_lost_twice_or_left_whatever_is_killed(restorable: PrivateEngine) -> None:
    lines = await soak(restorable, PLAN, print)
    told = table(lines)
    print(told)
    assert [line.name for line in lines if line.ok is False] == [], told
    assert {"cells", "none scored twice", "tokens", "daemon killed over agents", "nothing left", "ledger is sound"} <= {
        line.name for line in lines
    }, told
