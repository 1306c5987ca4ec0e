"""A breaker's steps, and what it has tried: kept beside its stop, so that the next daemon life goes on where this one was.

Owns the observation that belongs to the stop by its id (one of an earlier stop means nothing), and the finding that tells of it: each step
and its words are one transaction.  So are the probe's admission and its name: a daemon killed in between would try a second one beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, replace

from marathond.core.breaker import Probe, Trying
from marathond.core.names import TrialState
from marathond.ledger.verbs import findings, settings
from marathond.ledger.verbs.stops import stops

KEY = "breaker"
"""Of the observation, and code of the finding."""


def trying(c: sqlite3.Connection) -> Trying | None:
    """Of the breaker that stands; None: none does."""
    standing = next((stop for stop in stops(c) if stop.kind == "breaker"), None)
    if standing is None:
        return None
    said = settings.observations(c).get(KEY)
    if said is None or said.value["stop_id"] != standing.stop_id:
        return Trying(standing.stop_id)
    return Trying(**{**said.value, "tried": tuple(said.value["tried"])})


def close(c: sqlite3.Connection, *, detail: str, until_ms: int, words: str, now_ms: int) -> None:
    """Admission is closed until then; ``words``: of the finding."""
    _say(c, words, now_ms)
    sql = "INSERT INTO admission_stop (kind, detail, author, at_ms, until_ms) VALUES ('breaker', ?, 'marathond', ?, ?)"
    c.execute(sql, (detail, now_ms, until_ms))


def half_open(c: sqlite3.Connection, before: Trying, *, words: str, now_ms: int) -> None:
    """From now on one trial may be admitted."""
    if trying(c) != before:
        return  # a person opened admission meanwhile
    _write(c, replace(before, half_open=True, probe=None), now_ms)
    _say(c, words, now_ms)


def probe_admitted(c: sqlite3.Connection, trial_id: int, *, now_ms: int) -> None:
    """To be called with each admission: it is the probe of a breaker that is half-open, and nothing while none stands."""
    before = trying(c)
    if before is not None and before.half_open and before.probe is None:
        _write(c, replace(before, probe=trial_id), now_ms)


def close_again(c: sqlite3.Connection, before: Trying, *, tried: Sequence[int], until_ms: int, words: str, now_ms: int) -> None:
    """The probe failed: closed until then.  ``tried``: cells that are not to be the next one."""
    if trying(c) != before:
        return  # a person opened admission meanwhile
    _write(c, replace(before, half_open=False, probe=None, failed=before.failed + 1, tried=tuple(tried)), now_ms)
    c.execute("UPDATE admission_stop SET until_ms = ? WHERE stop_id = ?", (until_ms, before.stop_id))
    _say(c, words, now_ms)


def open_again(c: sqlite3.Connection, *, now_ms: int) -> None:
    """The breaker's end, and its finding's; nothing where a person was quicker."""
    sql = "UPDATE admission_stop SET ended_at_ms = ?, ended_by = 'marathond' WHERE kind = 'breaker' AND ended_at_ms IS NULL"
    c.execute(sql, (now_ms,))
    findings.close_finding(c, code=KEY, subject="admission", now_ms=now_ms)


def probe(c: sqlite3.Connection, trial_id: int) -> Probe:
    """What is known of it.  An agent runs when the engine showed its session, when a daemon took it over, or when it has no process."""
    row = c.execute(
        """SELECT trial.state, trial.cell_id, coalesce(void.code, '') AS code, coalesce(void.decided_by, '') AS decided_by,
               coalesce(agent.trial_id IS NOT NULL AND agent.exec_id IS NULL, 0)
               OR EXISTS (SELECT 1 FROM trial_fact f WHERE f.trial_id = trial.trial_id AND f.name = 'agent session')
               OR EXISTS (SELECT 1 FROM trial_event e WHERE e.trial_id = trial.trial_id AND e.event = 'reattached') AS runs
           FROM trial LEFT JOIN trial_agent agent USING (trial_id)
           LEFT JOIN void ON void.trial_id = trial.trial_id AND void.undone_at_ms IS NULL
           WHERE trial.trial_id = ?""",
        (trial_id,),
    ).fetchall()[0]
    return Probe(TrialState(row["state"]), row["cell_id"], row["code"], row["decided_by"] == "daemon", bool(row["runs"]))


def others_open(c: sqlite3.Connection, campaign_id: int, tried: Sequence[int]) -> bool:
    """Whether a cell that was not tried yet could still be."""
    sql = "SELECT cell_id FROM cell_state WHERE campaign_id = ? AND state = 'open' ORDER BY ordinal"
    return any(cell_id not in tried for (cell_id,) in c.execute(sql, (campaign_id,)).fetchall())


def _write(c: sqlite3.Connection, now: Trying, now_ms: int) -> None:
    settings.observe(c, KEY, asdict(now), now_ms=now_ms)


def _say(c: sqlite3.Connection, words: str, now_ms: int) -> None:
    findings.raise_finding(c, code=KEY, severity="warning", subject="admission", detail=words, campaign_id=None, now_ms=now_ms)
