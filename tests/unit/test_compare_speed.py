"""The comparison is quick: a report has three seconds for everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MEASURE = """
import resource, sys
from dataclasses import replace
from tests.support.some_results import a_campaign
results = a_campaign()
before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
from marathond.core.compare import compare
found = compare(replace(results, contrasts=()) if sys.argv[1] == "10" else results)
assert len(found.contrasts) == int(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
"""


@pytest.mark.parametrize("contrasts", [4, 10])
def test_twenty_tasks_five_arms_five_replicates_are_compared_well_within_a_report(contrasts: int) -> None:
    """The library's import is in it.  Processor time, for the machine may be busy: 1.5 s, where a quiet one needs a quarter of that.

    The best of up to five: of a core that others share, even the processor's time grows.
    """
    took_s: list[float] = []
    while len(took_s) < 5 and not any(each < 1.5 for each in took_s):
        done = subprocess.run([sys.executable, "-c", MEASURE, str(contrasts)], cwd=ROOT, capture_output=True, text=True, check=True)
        took_s.append(float(done.stdout))
    assert min(took_s) < 1.5, took_s
