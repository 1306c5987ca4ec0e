"""The last third of the corpus: see test_sim.py."""

from __future__ import annotations

import pytest

from tests.sim import corpus

# A killed life is a killed process: nobody closes the files that it had open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("seeds", corpus.chunks(corpus.THIRD), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_f02_no_seed_breaks_an_invariant(seeds: range) -> None:
    assert corpus.problems(seeds) == []
