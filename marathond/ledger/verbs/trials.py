"""A trial's way through its states, one verb per fact that was seen.

Owns the writing of trial_event and of the rows that exist only in some states.  Whether a step is legal is the schema's business.  Must
not decide anything: evidence comes in, rows go out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.lifecycle import Event
from marathond.core.names import BUDGET_ENDS, REACHED_INTO
from marathond.ledger.verbs import reached
from marathond.ledger.verbs.sql import LIVE, NEWEST_RUN, changed, dump
from marathond.ledger.verbs.voids import VoidSeen, newest_void, passes_used, void_by_daemon, voids_after

__all__ = [
    "Fact",
    "LooseContainer",
    "ScoreRow",
    "VoidSeen",
    "agent_ended",
    "agent_started",
    "container_created",
    "container_gone",
    "container_intended",
    "doubted",
    "environment_up",
    "facts",
    "live_tokens",
    "loose_claims",
    "loose_containers",
    "newest_void",
    "passes_used",
    "reattached",
    "release_claim",
    "scored",
    "unfinished",
    "verification_ended",
    "verification_started",
    "verify_again",
    "void_by_daemon",
    "voids_after",
]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that really applied, and where it came from."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """What the extractor read.  ``extractor``: its version, 0 for a person; ``parts``: (name, value, source file and key).

    ``test_rate``: what the verifier states, else passed of all tests; None: neither was to be had.
    """

    extractor: int
    reward: float
    reward_source: str
    partial: float | None = None
    tests_passed: int | None = None
    tests_total: int | None = None
    flags: tuple[str, ...] = ()
    parts: Sequence[tuple[str, str, str]] = ()
    test_rate: float | None = None


def _event(c: sqlite3.Connection, trial_id: int, event: Event, to_state: str, detail: Mapping[str, Any], now_ms: int) -> None:
    cursor = c.execute(
        f"""INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
            SELECT trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = ?1), ?2, state, ?3, ?4, {NEWEST_RUN}, ?5
            FROM trial WHERE trial_id = ?1""",
        (trial_id, event.value, to_state, now_ms, dump(detail)),
    )
    changed(cursor, f"trial {trial_id}")


def container_intended(
    c: sqlite3.Connection, trial_id: int, *, engine: str, name: str, image_id: str, context_digest: str, now_ms: int
) -> None:
    """Before the call that creates it (fault b05)."""
    c.execute(
        "INSERT INTO container (trial_id, engine, name, image_id, context_digest, intended_at_ms) VALUES (?, ?, ?, ?, ?, ?)",
        (trial_id, engine, name, image_id, context_digest, now_ms),
    )


def container_created(c: sqlite3.Connection, trial_id: int, *, docker_id: str) -> None:
    """The engine's answer, or what a look showed after an answer that never came."""
    changed(c.execute("UPDATE container SET docker_id = ? WHERE trial_id = ?", (docker_id, trial_id)), f"container of trial {trial_id}")


def container_gone(c: sqlite3.Connection, trial_id: int, *, now_ms: int, because: str = "seen_gone") -> bool:
    """``seen_gone``, or ``never_created``; False when there is no such row or it was known already."""
    sql = "UPDATE container SET gone_at_ms = ?, gone_because = ? WHERE trial_id = ? AND gone_at_ms IS NULL"
    return c.execute(sql, (now_ms, because, trial_id)).rowcount == 1


def release_claim(c: sqlite3.Connection, trial_id: int, *, now_ms: int) -> bool:
    """Give the cell back: only a resting trial whose container is gone may (the schema asks).  False: released before."""
    return (
        c.execute(
            """UPDATE claim SET released_at_ms = ? WHERE released_at_ms IS NULL
               AND claim_id = (SELECT claim_id FROM trial WHERE trial_id = ?)""",
            (now_ms, trial_id),
        ).rowcount
        == 1
    )


def environment_up(c: sqlite3.Connection, trial_id: int, *, started_at: str, detail: Mapping[str, Any], now_ms: int) -> None:
    """``started_at``: the engine's StartedAt, which with the id names one life of the container."""
    changed(c.execute("UPDATE container SET started_at = ? WHERE trial_id = ?", (started_at, trial_id)), f"container of trial {trial_id}")
    _event(c, trial_id, Event.ENVIRONMENT_UP, "preparing", detail, now_ms)


def facts(c: sqlite3.Connection, trial_id: int, facts: Sequence[Fact], *, now_ms: int) -> None:
    """What really applied; a name that is known is overwritten."""
    c.executemany(
        """INSERT INTO trial_fact (trial_id, name, value, origin, at_ms) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT (trial_id, name) DO UPDATE SET value = excluded.value, origin = excluded.origin, at_ms = excluded.at_ms""",
        [(trial_id, fact.name, fact.value, fact.origin, now_ms) for fact in facts],
    )


def fact(c: sqlite3.Connection, trial_id: int, name: str) -> tuple[str, int] | None:
    """Its value and when it was written; None: it was not."""
    row = c.execute("SELECT value, at_ms FROM trial_fact WHERE trial_id = ? AND name = ?", (trial_id, name)).fetchone()
    return None if row is None else (row[0], row[1])


def agent_started(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    exec_id: str | None,
    started_mono_ms: int,
    boot_id: str,
    limit_ms: int | None,
    limit_origin: str,
    limit_loser: str,
    now_ms: int,
) -> None:
    """The deadline clock starts here (fault c09); the effective limit is stored with its origin (fault c15)."""
    c.execute(
        """INSERT INTO trial_agent (trial_id, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin, limit_loser)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (trial_id, exec_id, now_ms, started_mono_ms, boot_id, limit_ms, limit_origin, limit_loser),
    )
    _event(c, trial_id, Event.AGENT_STARTED, "running", {"limit_ms": limit_ms, "limit_origin": limit_origin}, now_ms)


def reattached(c: sqlite3.Connection, trial_id: int, *, detail: Mapping[str, Any], now_ms: int) -> None:
    """A new daemon life took the running agent over."""
    _event(c, trial_id, Event.REATTACHED, "running", detail, now_ms)


def credited(c: sqlite3.Connection, trial_id: int, *, credit_ms: int) -> None:
    """The deadline of a running agent has moved: for whoever asks how long it still has (fault a17)."""
    changed(c.execute("UPDATE trial_agent SET credit_ms = ? WHERE trial_id = ?", (credit_ms, trial_id)), f"agent of trial {trial_id}")


def agent_ended(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    ended_by: str,
    exit_code: int | None,
    exit_source: str,
    oom_killed: bool,
    overrun_ms: int | None,
    processes: Sequence[Mapping[str, Any]],
    ended_mono_ms: int | None,
    now_ms: int,
    credit_ms: int = 0,
    ended_at_ms: int | None = None,
    time_source: str = "watched",
) -> None:
    """The agent is proven dead.  A spent budget is an ordinary end (fault c10).

    :param exit_source: ``exec`` or ``file`` (forgeable, fault c18).
    :param processes: what it left running.
    :param credit_ms: what it had on top of its limit.
    :param ended_mono_ms: None: nobody knows when it ended; then ``ended_at_ms`` of the row is only when that was found.
    :param ended_at_ms: None: now.
    :param time_source: whose word that time is (core/endtime.py).
    """
    cursor = c.execute(
        """UPDATE trial_agent SET ended_at_ms = ?, ended_mono_ms = ?, ended_by = ?, exit_code = ?, exit_source = ?, oom_killed = ?,
           overrun_ms = ?, processes_json = ?, credit_ms = ? WHERE trial_id = ?""",
        (
            now_ms if ended_at_ms is None else ended_at_ms,
            ended_mono_ms,
            ended_by,
            exit_code,
            exit_source,
            int(oom_killed),
            overrun_ms,
            dump([dict(p) for p in processes]),
            credit_ms,
            trial_id,
        ),
    )
    changed(cursor, f"agent of trial {trial_id}")
    event = Event.BUDGET_SPENT if ended_by in BUDGET_ENDS else Event.AGENT_ENDED
    detail = {"ended_by": ended_by, "exit_code": exit_code, "exit_source": exit_source}
    if time_source != "watched":
        detail["time_source"] = time_source
    _event(c, trial_id, event, "verifying", detail, now_ms)


def verification_started(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    round: int,
    exec_id: str | None,
    started_mono_ms: int,
    boot_id: str,
    limit_ms: int,
    limit_origin: str,
    now_ms: int,
) -> None:
    """``round`` counts from 1."""
    c.execute(
        """INSERT INTO verification (trial_id, round, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
        (trial_id, round, exec_id, now_ms, started_mono_ms, boot_id, limit_ms, limit_origin),
    )


def verification_ended(c: sqlite3.Connection, trial_id: int, round: int, *, outcome: str, exit_code: int | None, now_ms: int) -> None:
    """``outcome``: exited, deadline or lost."""
    sql = "UPDATE verification SET ended_at_ms = ?, outcome = ?, exit_code = ? WHERE trial_id = ? AND round = ?"
    changed(c.execute(sql, (now_ms, outcome, exit_code, trial_id, round)), f"verification {round} of trial {trial_id}")


def verify_again(c: sqlite3.Connection, trial_id: int, *, cause: str, now_ms: int) -> None:
    """``unreadable`` or ``deadline``: once per trial (faults d02, d10).  ``interrupted``: the daemon or engine went away, not counted."""
    _event(c, trial_id, Event.VERIFY_AGAIN, "verifying", {"cause": cause}, now_ms)


def scored(c: sqlite3.Connection, trial_id: int, score: ScoreRow, *, now_ms: int) -> int:
    """Write the final score; the schema moves the trial in the same statement.  Returns the score's id.

    It is flagged where a person reached into the trial, whoever reads it and however often.
    """
    flags = list(score.flags)
    if REACHED_INTO not in flags and reached.any_of(c, trial_id):
        flags.append(REACHED_INTO)
    score_id = c.execute(
        f"""INSERT INTO score (trial_id, extractor, reward, reward_source, partial, tests_passed, tests_total, test_rate, flags_json, at_ms,
                run_id)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NEWEST_RUN})""",
        (
            trial_id,
            score.extractor,
            float(score.reward),
            score.reward_source,
            None if score.partial is None else float(score.partial),
            score.tests_passed,
            score.tests_total,
            None if score.test_rate is None else float(score.test_rate),
            dump(flags),
            now_ms,
        ),
    ).lastrowid
    assert score_id is not None
    c.executemany(
        "INSERT INTO score_part (score_id, name, value, source) VALUES (?, ?, ?, ?)",
        [(score_id, name, value, source) for name, value, source in score.parts],
    )
    return score_id


def doubted(c: sqlite3.Connection, trial_id: int, *, code: str, detail: str, evidence: Mapping[str, Any], now_ms: int) -> None:
    """No score that anybody could read: a person decides (fault d02)."""
    c.execute(
        "INSERT INTO review (trial_id, code, detail, evidence_json, opened_at_ms) VALUES (?, ?, ?, ?, ?)",
        (trial_id, code, detail, dump(evidence), now_ms),
    )


def unfinished(c: sqlite3.Connection) -> list[int]:
    """Trials that are not at rest, of all campaigns."""
    return [row[0] for row in c.execute(f"SELECT trial_id FROM trial WHERE state IN {LIVE} ORDER BY trial_id").fetchall()]


@dataclass(frozen=True, slots=True)
class LooseContainer:
    """A container that may still be there although its trial is at rest."""

    trial_id: int
    name: str
    docker_id: str | None
    intended_at_ms: int


def loose_containers(c: sqlite3.Connection, engine: str) -> list[LooseContainer]:
    rows = c.execute(
        f"""SELECT trial_id, name, docker_id, intended_at_ms FROM container JOIN trial USING (trial_id)
            WHERE engine = ? AND gone_at_ms IS NULL AND state NOT IN {LIVE} ORDER BY trial_id""",
        (engine,),
    )
    return [LooseContainer(**dict(row)) for row in rows.fetchall()]


def live_tokens(c: sqlite3.Connection) -> frozenset[str]:
    """Tokens of live claims: a container with our label and another token is an orphan (fault b06)."""
    return frozenset(row[0] for row in c.execute("SELECT token FROM claim WHERE released_at_ms IS NULL").fetchall())


def loose_claims(c: sqlite3.Connection) -> list[int]:
    """Trials at rest, container gone (or never intended), claim still held: ready to be released."""
    rows = c.execute(
        f"""SELECT trial_id FROM claim INDEXED BY claim_one_live_per_cell CROSS JOIN trial ON trial.claim_id = claim.claim_id
                LEFT JOIN container USING (trial_id)
            WHERE released_at_ms IS NULL AND state NOT IN {LIVE} AND (container_row IS NULL OR gone_at_ms IS NOT NULL) ORDER BY trial_id"""
    )
    return [row[0] for row in rows.fetchall()]
