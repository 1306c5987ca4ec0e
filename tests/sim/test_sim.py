"""The second third of the corpus: lives are killed, engines fail, and every invariant holds; the same seed is the same run.

The others are in test_sim_reach.py and test_sim_rest.py, so that three test processes share the work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim import corpus
from tests.sim.run import simulate

# A killed life is a killed process: nobody closes the files that it had open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seeds", corpus.chunks(corpus.SECOND), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_f02_no_seed_breaks_an_invariant(seeds: range) -> None:
    assert corpus.problems(seeds) == []


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1446, id="voided by a person while it was taken over and its task's files had changed"),
        pytest.param(2340, id="replaced while it recovered beside an engine that hangs: it wrote nothing, so it met no refusal"),
        pytest.param(3154, id="a verifier that runs alone began beside the agent of a trial that a person had just voided"),
        pytest.param(4651, id="killed between an interrupted verification and the next: the interruption was counted twice"),
        pytest.param(6478, id="an engine that hung began an agent late, beside a lone verifier: a rule that was too strict"),
        pytest.param(9321, id="a verifier killed for want of memory after it had written its reward: the score is flagged"),
        pytest.param(2505, id="a dead life's order to put tests in place came while the next life's verifier ran"),
    ],
)
def test_f02_a_seed_that_broke_one_once_breaks_none(seed: int) -> None:
    """Beyond the corpus; found by longer searches."""
    assert corpus.problems(range(seed, seed + 1)) == []


def test_a_seed_is_the_same_run_in_another_process() -> None:
    """Whatever the hash seed is and whatever ran before."""
    here = simulate(7)
    argv = [sys.executable, "-m", "tests.sim", "--seed", "7"]
    hashes = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True, timeout=300, check=False
    )
    assert f"digest {here.digest}\n" in done.stdout, done.stdout + done.stderr
    assert simulate(7).digest == here.digest
    assert simulate(8).digest != here.digest


def test_a_broken_invariant_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A watcher that can find nothing would be content for ever."""
    from tests.sim import __main__ as command
    from tests.sim.invariants import Invariants

    monkeypatch.setattr(Invariants, "_claimed", lambda self, claim_id: self._broken("claims are few", f"claim {claim_id}"))
    monkeypatch.setattr(sys, "argv", ["sim", "--seeds", "3..3", "--jobs", "1"])
    assert command.main() == 1
    said = capsys.readouterr().out
    assert "seed 3: claims are few: claim 1 (at " in said and "replay: python -m tests.sim --seed 3 -v" in said
    assert "1 seeds, 1 violations" in said
