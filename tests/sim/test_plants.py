"""Each planted bug is caught by a rule that was named before, within a bounded number of seeds, which are clean without it."""

from __future__ import annotations

import pytest

from tests.sim.plants import PLANTS
from tests.sim.run import simulate

SEEDS_AT_MOST = 25


@pytest.mark.parametrize("name", PLANTS)
def test_f02_a_planted_bug_is_caught(name: str) -> None:
    plant = PLANTS[name]
    for seed in range(plant.first, plant.first + SEEDS_AT_MOST):
        caught = simulate(seed, [name], script=plant.script(seed)).violations
        if caught:
            assert caught[0].rule in plant.rules, caught
            assert simulate(seed, script=plant.script(seed)).violations == []
            return
    pytest.fail(f"{name!r} was not caught by {SEEDS_AT_MOST} seeds")
