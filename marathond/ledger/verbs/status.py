"""What ``status`` reads.  Bounded by the campaign, quick at 100,000 trials: few passes, each over an index.

Must not decide what is healthy; it counts.  A number that cannot be known is None, never 0.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from marathond.core.money import MODEL_KINDS
from marathond.core.names import LIVE_STATES
from marathond.ledger.verbs.cells import cells_by_arm
from marathond.ledger.verbs.findings import open_findings
from marathond.ledger.verbs.pools import pools
from marathond.ledger.verbs.runs import last_run
from marathond.ledger.verbs.settings import observations
from marathond.ledger.verbs.sql import LIVE
from marathond.ledger.verbs.stops import stops

__all__ = [
    "ArmCounts",
    "LiveTrial",
    "counts_by_arm",
    "durations",
    "last_run",
    "live_trials",
    "observations",
    "oldest_review_ms",
    "open_findings",
    "open_tasks",
    "parked_by_code",
    "pools",
    "stops",
    "task_limits",
]


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """Cells of one arm by state, and means over its done cells (None: none of them has that number).

    ``claimed`` includes trials in work and those being torn down; ``running`` says how many are in which phase.  ``voids``: standing ones,
    of all attempts.  ``passed``: done cells with reward 1.  ``budget_ended``: share of done cells whose agent ended by its budget.
    ``partial_cells``, ``test_rate_cells``: done cells that have that number, which its mean is over; the other means are over all of them.

    ``valid_nusd``, ``voids_nusd``: known nano-dollars of trials that stand, and of voided ones; ``priced`` and ``cut``: requests behind
    them, and requests of unknown usage.  ``ended_nusd``: of the ``ended`` trials that stand and have ended.  ``asks_model``: its kind does.
    """

    arm_id: int
    arm: str
    done: int
    open: int
    claimed: int
    parked: int
    review: int
    running: dict[str, int]
    voids: int
    passed: int
    reward: float | None
    partial: float | None
    partial_cells: int
    test_rate: float | None
    test_rate_cells: int
    budget_ended: float | None
    asks_model: bool
    valid_nusd: int
    voids_nusd: int
    priced: int
    cut: int
    ended: int
    ended_nusd: int


# One pass over the index trial_by_arm, which holds every column asked for.
_TRIALS = """
SELECT arm_id, state, count(*) AS n, sum(reward = 1) AS passed, avg(reward) AS reward, avg(partial) AS partial,
    count(partial) AS partial_cells, avg(coalesce(test_rate, tests_passed * 1.0 / tests_total)) AS test_rate,
    count(coalesce(test_rate, tests_passed * 1.0 / tests_total)) AS test_rate_cells, avg(budget_ended) AS budget_ended,
    sum(cost_nusd) AS cost_nusd, sum(priced) AS priced, sum(cut) AS cut
FROM trial WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) GROUP BY arm_id, state"""


_RESULTS = ("scored", "review")


def counts_by_arm(c: sqlite3.Connection, campaign_id: int) -> list[ArmCounts]:
    """One row per arm, in the arms' order."""
    trials: dict[int, dict[str, sqlite3.Row]] = {}
    for row in c.execute(_TRIALS, (campaign_id,)).fetchall():
        trials.setdefault(row["arm_id"], {})[row["state"]] = row
    standing = {(arm_id, state): int(row["n"]) for arm_id, rows in trials.items() for state, row in rows.items() if state in _RESULTS}
    cells = cells_by_arm(c, campaign_id, standing)
    arms = c.execute("SELECT arm_id, name, kind FROM arm WHERE campaign_id = ? ORDER BY position", (campaign_id,)).fetchall()
    return [_arm_counts(arm, cells.get(arm["arm_id"], {}), trials.get(arm["arm_id"], {})) for arm in arms]


def _arm_counts(arm: sqlite3.Row, cells: dict[str, int], trials: dict[str, sqlite3.Row]) -> ArmCounts:
    scored = trials.get("scored")
    voided = trials.get("voided")
    ended = [trials[state] for state in _RESULTS if state in trials]
    voids_nusd = 0 if voided is None else int(voided["cost_nusd"])
    return ArmCounts(
        arm_id=arm["arm_id"],
        arm=arm["name"],
        done=cells.get("done", 0),
        open=cells.get("open", 0),
        claimed=cells.get("claimed", 0),
        parked=cells.get("parked", 0),
        review=cells.get("review", 0),
        running={state: int(row["n"]) for state, row in trials.items() if state in LIVE_STATES},
        voids=0 if voided is None else int(voided["n"]),
        passed=0 if scored is None else int(scored["passed"]),
        reward=None if scored is None else scored["reward"],
        partial=None if scored is None else scored["partial"],
        partial_cells=0 if scored is None else int(scored["partial_cells"]),
        test_rate=None if scored is None else scored["test_rate"],
        test_rate_cells=0 if scored is None else int(scored["test_rate_cells"]),
        budget_ended=None if scored is None else scored["budget_ended"],
        asks_model=arm["kind"] in MODEL_KINDS,
        valid_nusd=sum(int(row["cost_nusd"]) for row in trials.values()) - voids_nusd,
        voids_nusd=voids_nusd,
        priced=sum(int(row["priced"]) for row in trials.values()),
        cut=sum(int(row["cut"]) for row in trials.values()),
        ended=sum(int(row["n"]) for row in ended),
        ended_nusd=sum(int(row["cost_nusd"]) for row in ended),
    )


@dataclass(frozen=True, slots=True)
class LiveTrial:
    """A trial in work.  ``phase_at_ms``: when its phase began.

    ``limit_ms`` with ``limit_from_ms``: the limit that runs now, with what was credited to it; both None: none.  ``tokens``: of the
    agent's requests that have ended, in and out; None: there were none.  ``cost_nusd``: what is known of it.
    """

    trial_id: int
    task: str
    arm: str
    replicate: int
    attempt: int
    phase: str
    created_at_ms: int
    phase_at_ms: int
    limit_from_ms: int | None
    limit_ms: int | None
    reattached: int
    tokens: int | None
    cost_nusd: int
    turn: str | None = None
    """Of its verifier: ``waits`` for its turn, or runs ``alone``; None: neither."""


_LIVE_TRIALS = f"""
SELECT trial.trial_id, task.name AS task, arm.name AS arm, replicate, attempt, trial.state AS phase, trial.created_at_ms,
    (SELECT max(at_ms) FROM trial_event e WHERE e.trial_id = trial.trial_id AND from_state <> to_state) AS phase_at_ms,
    CASE trial.state WHEN 'running' THEN a.started_at_ms WHEN 'verifying' THEN v.started_at_ms END AS limit_from_ms,
    CASE trial.state WHEN 'running' THEN a.limit_ms + a.credit_ms WHEN 'verifying' THEN v.limit_ms END AS limit_ms,
    (SELECT count(*) FROM trial_event e WHERE e.trial_id = trial.trial_id AND event = 'reattached') AS reattached,
    (SELECT sum(input_tokens + output_tokens) FROM model_usage u WHERE u.trial_id = trial.trial_id AND account = 'agent') AS tokens,
    trial.cost_nusd,
    (SELECT CASE WHEN granted_at_ms IS NULL THEN 'waits' WHEN alone <> 'no' THEN 'alone' END FROM verifier_turn AS turn
     WHERE turn.trial_id = trial.trial_id AND ended_at_ms IS NULL ORDER BY turn_id DESC LIMIT 1) AS turn
FROM trial INDEXED BY trial_unfinished CROSS JOIN cell ON cell.cell_id = trial.cell_id JOIN task ON task.task_id = cell.task_id
    JOIN arm ON arm.arm_id = cell.arm_id LEFT JOIN trial_agent a ON a.trial_id = trial.trial_id
    LEFT JOIN verification v ON v.trial_id = trial.trial_id AND v.ended_at_ms IS NULL
        AND v.round = (SELECT max(round) FROM verification w WHERE w.trial_id = trial.trial_id)
WHERE trial.state IN {LIVE} AND cell.campaign_id = ? ORDER BY trial.trial_id"""


def live_trials(c: sqlite3.Connection, campaign_id: int) -> list[LiveTrial]:
    """Oldest first."""
    return [LiveTrial(**dict(row)) for row in c.execute(_LIVE_TRIALS, (campaign_id,)).fetchall()]


DURATIONS_MAX = 1_000


def durations(c: sqlite3.Connection, campaign_id: int, *, limit: int = DURATIONS_MAX) -> list[tuple[int, str, int]]:
    """(task_id, arm name, milliseconds from claim to release) of the newest scored trials, newest first, for the ETA."""
    rows = c.execute(
        """SELECT task_id, arm.name, released_at_ms - claimed_at_ms
           FROM trial CROSS JOIN claim ON claim.claim_id = trial.claim_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
               CROSS JOIN arm ON arm.arm_id = trial.arm_id
           WHERE state = 'scored' AND cell.campaign_id = ? AND released_at_ms >= claimed_at_ms ORDER BY trial_id DESC LIMIT ?""",
        (campaign_id, limit),
    )
    return [(row[0], row[1], row[2]) for row in rows.fetchall()]


OPEN_MAX = 1_500

# From the end of the planned order, where cells are open; the three IS NULL as in admission.py.
_OPEN_TASKS = """
SELECT task_id FROM (SELECT cell_id, task_id, ordinal FROM cell WHERE campaign_id = ?1 ORDER BY ordinal DESC LIMIT ?2) AS late
WHERE NOT EXISTS (SELECT 1 FROM trial WHERE trial.cell_id = late.cell_id AND state <> 'voided')
    AND NOT EXISTS (SELECT 1 FROM claim WHERE claim.cell_id = late.cell_id AND released_at_ms IS NULL)
    AND NOT EXISTS (SELECT 1 FROM park WHERE park.cell_id = late.cell_id AND ended_at_ms IS NULL) ORDER BY ordinal"""


def open_tasks(c: sqlite3.Connection, campaign_id: int, *, limit: int = OPEN_MAX) -> list[int]:
    """The tasks of open cells in planned order, of the last ``limit`` cells of the campaign: all of them, unless there are more cells."""
    return [row[0] for row in c.execute(_OPEN_TASKS, (campaign_id, limit)).fetchall()]


def task_limits(c: sqlite3.Connection, campaign_id: int) -> list[tuple[int, str, int | None]]:
    """(task_id, name, declared limit in milliseconds or None)."""
    rows = c.execute("SELECT task_id, name, declared_limit_ms FROM task WHERE campaign_id = ?", (campaign_id,))
    return [(row[0], row[1], row[2]) for row in rows.fetchall()]


def parked_by_code(c: sqlite3.Connection, campaign_id: int) -> list[tuple[str, str, int, str]]:
    """(code, task, cells, detail) of standing parks, most cells first."""
    rows = c.execute(
        """SELECT code, task.name, count(*) AS n, max(detail) FROM cell_state JOIN park ON park.park_id = cell_state.park_id
               JOIN task ON task.task_id = cell_state.task_id
           WHERE cell_state.cell_id IN (SELECT cell_id FROM park WHERE ended_at_ms IS NULL) AND +cell_state.campaign_id = ?
               AND state = 'parked' GROUP BY code, task.task_id ORDER BY n DESC, code, task.name""",
        (campaign_id,),
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows.fetchall()]


def oldest_review_ms(c: sqlite3.Connection, campaign_id: int) -> int | None:
    """Since when the longest waiting review is open; None: none is."""
    row = c.execute(
        """SELECT min(opened_at_ms) FROM trial INDEXED BY trial_in_review CROSS JOIN arm USING (arm_id)
               CROSS JOIN review ON review.trial_id = trial.trial_id AND decided_at_ms IS NULL
           WHERE state = 'review' AND campaign_id = ?""",
        (campaign_id,),
    ).fetchone()
    return None if row[0] is None else int(row[0])
