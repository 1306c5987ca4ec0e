"""Which of the files in ``/logs/verifier`` can hold a score.

Owns names alone.  Facts: Harbor reads reward.json and reward.txt; metrics.json is what most tasks write beside it, stages.json an older
form of tasks with two stages; CTRF (Common Test Report Format) lies in ctrf.json and, gate by gate, in ``<gate>_ctrf.json`` or
``<gate>_pytest.json``.
"""

from __future__ import annotations

import re

REWARD_JSON, REWARD_TXT, METRICS, STAGES, CTRF = "reward.json", "reward.txt", "metrics.json", "stages.json", "ctrf.json"
FIXED = (REWARD_JSON, REWARD_TXT, METRICS, STAGES, CTRF)

_GATE_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,79})_(ctrf|pytest)\.json")


def gate_file(name: str) -> tuple[str, str] | None:
    """(gate, ``ctrf`` or ``pytest``) of a file that reports the tests of one gate; None: it is another file."""
    found = _GATE_FILE.fullmatch(name)
    return None if found is None else (found[1], found[2])
