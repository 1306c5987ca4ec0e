"""When repeated voids close admission, and what the one trial shows that is then tried.

Owns the count, the pauses and the verdict on a probe.  Must not see an arm: voids are counted by code and task, and the cell that is tried
is the plan's next one.

Closed, then half-open, then open.  After the pause one trial is admitted while everything else waits.  Its agent runs: open.  It is void
like the ones before: closed again, for twice as long, at most LONGEST times the pause.  What a restart of ours or a person ended shows
nothing, and another one is tried.  A cell whose probe failed by what its own task can cause is not tried again in the same series (fault
f06: one bad task must not hold all others up); when no other cell is left, or PROBES of them failed so, trying tells nothing more:
admission opens, and the cells' passes decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from marathond.core.names import TrialState, trial_label
from marathond.core.text import printable

OWN_ENDS = frozenset({"daemon_lost", "host_rebooted", "ledger_copied"})
"""Voids that a restart of ours caused: no sign of an infrastructure that fails again and again."""

OF_ENGINE = frozenset(
    {"network_failed", "container_lost", "engine_failed", "run_dir_lost", "agent_undead", "environment_mismatch", "verifier_not_started"}
)
"""Voids that no single task can cause.  Of every other code one bad task may cause any number (fault f06: it must disturb nobody), so each
task counts for at most PER_TASK of them, unless the campaign has too few tasks to tell."""
PER_TASK = 2
FEW_TASKS = 2

LONGEST = 8
"""The longest pause, in pauses as configured."""
REASON_MAX = 200
"""Characters of an example's reason."""
PROBES = 6
"""Cells that are tried one by one and fail by what their own task can cause, before admission opens all the same."""


def worst(seen: Iterable[tuple[str, int]], *, tasks: int) -> tuple[str, int]:
    """The code that counts most, and how often; ``("", 0)`` for none.  ``seen``: (code, task) of each void; ``tasks``: of the campaign."""
    counts: Counter[str] = Counter()
    for (code, _), times in Counter(seen).items():
        counts[code] += times if code in OF_ENGINE or tasks <= FEW_TASKS else min(times, PER_TASK)
    return next(iter(counts.most_common(1)), ("", 0))


def detail(code: str, count: int, within_s: float, example: tuple[int, str] | None) -> str:
    """What the stop says: ``5 x agent_not_started within 600 s, e.g. t0012: exec: /opt/arms/nothere: no such file``.

    :param example: a trial and why it was void: words for a person, upon which nothing is decided.
    """
    said = f"{count} x {code} within {within_s:g} s"
    if example is None:
        return said
    reason = printable(example[1], REASON_MAX)
    return f"{said}, e.g. {trial_label(example[0])}" + (f": {reason}" if reason else "")


def pause_ms(configured_ms: int, failed: int) -> int:
    """How long admission stays closed after so many probes in a row that failed."""
    return configured_ms * min(1 << min(failed, 10), LONGEST)


@dataclass(frozen=True, slots=True)
class Trying:
    """Where a standing breaker is, as the ledger keeps it.

    ``half_open``: its pause is over.  ``probe``: the trial that is being tried; None: none was admitted yet.  ``failed``: probes in a row
    that were void.  ``tried``: cells whose probe failed by what their own task can cause.
    """

    stop_id: int
    half_open: bool = False
    probe: int | None = None
    failed: int = 0
    tried: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """What the ledger shows of the trial that is tried.  ``void_code`` empty: not void.  ``agent_runs``: its agent was seen to run."""

    state: TrialState
    cell_id: int
    void_code: str
    by_daemon: bool
    agent_runs: bool


class Verdict(Enum):
    NOT_YET = "not yet"
    GOOD = "good"
    BAD = "bad"
    NOTHING = "nothing"
    """It ended and says nothing of the infrastructure."""


def verdict(probe: Probe) -> Verdict:
    """What the probe shows by now."""
    if probe.state == TrialState.VOIDED:
        return Verdict.BAD if probe.by_daemon and probe.void_code not in OWN_ENDS else Verdict.NOTHING
    if probe.state in (TrialState.VERIFYING, TrialState.SCORED, TrialState.REVIEW):
        return Verdict.GOOD
    return Verdict.GOOD if probe.state == TrialState.RUNNING and probe.agent_runs else Verdict.NOT_YET
