"""What a person's request becomes in the ledger: one transaction that chooses, checks and decides.

Owns turning names and filters into the ledger's own verbs, and answers that fit a request sent twice.  Sync functions on a connection,
to be run by the Ledger port.  Must not know sockets.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.errors import ConfigError, Refused
from marathond.core.names import block_label, cell_label, trial_label
from marathond.ledger.verbs import admission, findings, operator
from marathond.ledger.verbs.operator import UnvoidResult, VoidResult


@dataclass(frozen=True, slots=True)
class Choice:
    """Which trials a person means: named ones, or every one that all given filters meet."""

    trials: tuple[int, ...] = ()
    campaign: str | None = None
    arm: str | None = None
    task: str | None = None
    replicate: int | None = None
    since_ms: int | None = None
    pair: bool = False
    block_id: int | None = None

    @property
    def filters(self) -> bool:
        return any(value is not None for value in (self.arm, self.task, self.replicate, self.since_ms, self.block_id))


def campaign_of(c: sqlite3.Connection, name: str | None) -> int:
    """The named campaign, or the newest that runs here, else the newest that was imported.

    :raises ConfigError: none has that name.  :raises Refused: there is none at all.
    """
    if name is None:
        row = c.execute("SELECT campaign_id FROM campaign ORDER BY origin = 'run' DESC, campaign_id DESC LIMIT 1").fetchone()
    else:
        row = c.execute("SELECT campaign_id FROM campaign WHERE name = ?", (name,)).fetchone()
    if row is None or row[0] is None:
        raise Refused("no campaign in this ledger yet") if name is None else ConfigError("", f"no campaign {name} in this ledger", "")
    return int(row[0])


def choose(c: sqlite3.Connection, choice: Choice) -> list[int]:
    """Ids, ascending.

    :raises ConfigError: no campaign, arm or task of that name, which is what the caller wrote (exit 2, as of every command that looks).
    :raises Refused: a trial or block that does not exist, or neither names nor filters.
    """
    if choice.trials:
        chosen: set[int] = set()
        for trial_id in choice.trials:
            campaign_id = _campaign_of_trial(c, trial_id)
            chosen.update(operator.select_trials(c, campaign_id=campaign_id, trial=trial_id, pair=choice.pair))
        return sorted(chosen)
    if not choice.filters:
        raise Refused(
            "name trials, or give filters (arm, task, replicate, since, block): a whole campaign is not voided by leaving them out"
        )
    campaign_id = campaign_of(c, choice.campaign) if choice.block_id is None else _campaign_of_block(c, choice.block_id)
    for table, name in (("arm", choice.arm), ("task", choice.task)):
        if name is not None:
            _check_name(c, table, campaign_id, name)
    return operator.select_trials(
        c,
        campaign_id=campaign_id,
        pair=choice.pair,
        arm=choice.arm,
        task=choice.task,
        replicate=choice.replicate,
        since_ms=choice.since_ms,
        block_id=choice.block_id,
    )


def _campaign_of_block(c: sqlite3.Connection, block_id: int) -> int:
    row = c.execute("SELECT campaign_id FROM block WHERE block_id = ?", (block_id,)).fetchone()
    if row is None:
        raise Refused(f"no block {block_label(block_id)} in this ledger")
    return int(row[0])


def _campaign_of_trial(c: sqlite3.Connection, trial_id: int) -> int:
    row = c.execute("SELECT campaign_id FROM trial JOIN cell USING (cell_id) WHERE trial_id = ?", (trial_id,)).fetchone()
    if row is None:
        last = c.execute("SELECT max(trial_id) FROM trial").fetchone()[0]
        hint = f"last is {trial_label(last)}" if last else "it has none yet"
        raise Refused(f"no trial {trial_label(trial_id)} in this ledger ({hint})")
    return int(row[0])


def _check_name(c: sqlite3.Connection, table: str, campaign_id: int, name: str) -> None:
    known = [str(row[0]) for row in c.execute(f"SELECT name FROM {table} WHERE campaign_id = ? ORDER BY {table}_id", (campaign_id,))]
    if name not in known:
        shown = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
        raise ConfigError("", f"no {table} {name} in this campaign; there are: {shown}", "")


@dataclass(frozen=True, slots=True)
class Preview:
    """A trial that a void would meet.  ``state`` voided: it was before, and stays.  ``reward``: known by now; None: nobody knows one."""

    trial_id: int
    task: str
    arm: str
    replicate: int
    state: str
    reward: float | None = None


def preview(c: sqlite3.Connection, choice: Choice, *, code: str) -> list[Preview]:
    """What :func:`void` would touch.  Reads only, and refuses what :func:`void` refuses."""
    operator.check_code(c, code)
    rows = c.execute(
        """SELECT trial_id, task.name, arm.name, cell.replicate, trial.state, known.reward FROM trial JOIN cell USING (cell_id)
           JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id JOIN known_reward AS known USING (trial_id)
           WHERE trial_id IN (SELECT value FROM json_each(?)) ORDER BY trial_id""",
        (json.dumps(choose(c, choice)),),
    )
    return [Preview(*row) for row in rows.fetchall()]


@dataclass(frozen=True, slots=True)
class Voided:
    """``reopened``: cells that are open again now; the others still hold a container or are parked.

    ``left``: trials of the same blocks that stand and were not voided: what is now compared with nothing.
    """

    result: VoidResult
    reopened: int
    left: int = 0
    imported: int = 0
    """Cells of imported campaigns among them, in which nothing runs again."""
    parked: int = 0
    """Cells that stay parked until a person opens them."""


def void(c: sqlite3.Connection, choice: Choice, *, code: str, reason: str, author: str, now_ms: int) -> Voided:
    result = operator.void_trials(c, choose(c, choice), code=code, reason=reason, author=author, now_ms=now_ms)
    cells = json.dumps([trial.cell_id for trial in result.voided])
    sql = """SELECT count(*) FILTER (WHERE origin = 'run' AND state = 'open'), count(*) FILTER (WHERE origin = 'import'),
                 count(*) FILTER (WHERE origin = 'run' AND state = 'parked')
             FROM cell_state JOIN campaign USING (campaign_id) WHERE cell_id IN (SELECT value FROM json_each(?))"""
    mates = """SELECT count(*) FROM cell_state
               WHERE block_id IN (SELECT block_id FROM cell WHERE cell_id IN (SELECT value FROM json_each(?1)))
                   AND cell_id NOT IN (SELECT value FROM json_each(?1)) AND trial_id IS NOT NULL"""
    reopened, imported, parked = c.execute(sql, (cells,)).fetchone()
    return Voided(result, int(reopened), int(c.execute(mates, (cells,)).fetchone()[0]), int(imported), int(parked))


def unvoid(
    c: sqlite3.Connection,
    *,
    trial_id: int | None,
    block_id: int | None,
    batch: str | None,
    reason: str,
    author: str,
    now_ms: int,
    dry_run: bool = False,
) -> UnvoidResult:
    """:raises Refused: no such trial, block or batch."""
    if trial_id is not None:
        _campaign_of_trial(c, trial_id)
    if block_id is not None and c.execute("SELECT 1 FROM block WHERE block_id = ?", (block_id,)).fetchone() is None:
        raise Refused(f"no block {block_label(block_id)} in this ledger")
    if batch is not None and c.execute("SELECT 1 FROM void WHERE batch = ? LIMIT 1", (batch,)).fetchone() is None:
        raise Refused(f"no batch {batch} of voids in this ledger")
    which = {"trial_id": trial_id, "block_id": block_id}
    return operator.unvoid(c, **which, batch=batch, author=author, reason=reason, now_ms=now_ms, dry_run=dry_run)


def review(
    c: sqlite3.Connection,
    trial_id: int,
    *,
    accept: bool,
    reward: float | None,
    reason: str,
    author: str,
    now_ms: int,
    code: str = "operator",
) -> dict[str, Any]:
    """``already`` None: decided now, and ``reward`` counts.  Otherwise who decided the same before; a different decision is refused.

    To accept as it was read, and to give the same reward oneself, are two decisions: the one keeps all columns, the other none.
    """
    _campaign_of_trial(c, trial_id)
    row = c.execute(
        """SELECT decision, author, reason, decided_at_ms, state FROM review JOIN trial USING (trial_id)
           WHERE trial_id = ? ORDER BY review_id DESC LIMIT 1""",
        (trial_id,),
    ).fetchone()
    wanted, resting = ("accepted", "scored") if accept else ("voided", "voided")
    if row is not None and row["decision"] == wanted and row["state"] == resting and (not accept or _same_reward(c, trial_id, reward)):
        return {"already": dict(row), "reward": reward}
    known = operator.look_at(c, trial_id).reward
    counts = operator.decide_review(c, trial_id, accept=accept, reward=reward, reason=reason, author=author, now_ms=now_ms, code=code)
    return {"already": None, "reward": counts, "known": known}


def _same_reward(c: sqlite3.Connection, trial_id: int, reward: float | None) -> bool:
    sql = "SELECT reward, extractor FROM score WHERE trial_id = ? ORDER BY score_id DESC LIMIT 1"
    row = c.execute(sql, (trial_id,)).fetchone()
    if row is None:  # voided, and never scored
        return reward is None
    by_person = row["extractor"] == operator.OPERATOR_EXTRACTOR
    return not by_person if reward is None else by_person and row["reward"] == reward


def retry(
    c: sqlite3.Connection, *, cell_id: int | None, trial_id: int | None, reason: str, author: str, now_ms: int
) -> operator.RetryResult:
    if trial_id is not None:
        _campaign_of_trial(c, trial_id)
    if cell_id is not None and c.execute("SELECT 1 FROM cell WHERE cell_id = ?", (cell_id,)).fetchone() is None:
        raise Refused(f"no cell {cell_label(cell_id)} in this ledger")
    return operator.retry(c, cell_id=cell_id, trial_id=trial_id, author=author, reason=reason, now_ms=now_ms)


def unpark(
    c: sqlite3.Connection,
    *,
    campaign: str | None,
    cell_id: int | None,
    task: str | None,
    arm: str | None,
    reason: str,
    author: str,
    now_ms: int,
) -> int:
    """How many parks were ended."""
    campaign_id = campaign_of(c, campaign)
    if cell_id is not None:
        row = c.execute("SELECT campaign_id FROM cell WHERE cell_id = ?", (cell_id,)).fetchone()
        if row is None:
            raise Refused(f"no cell {cell_label(cell_id)} in this ledger")
        campaign_id = int(row[0])
    for table, name in (("task", task), ("arm", arm)):
        if name is not None:
            _check_name(c, table, campaign_id, name)
    return operator.unpark(c, campaign_id=campaign_id, cell_id=cell_id, task=task, arm=arm, author=author, reason=reason, now_ms=now_ms)


def close_admission(c: sqlite3.Connection, kind: str, *, reason: str, author: str, now_ms: int) -> admission.StopRow | None:
    """None: closed now.  Otherwise the stop of that kind that stands already."""
    if admission.open_stop(c, kind, detail=reason, author=author, until_ms=None, now_ms=now_ms):
        return None
    return next(stop for stop in admission.stops(c) if stop.kind == kind)


def reopen_admission(c: sqlite3.Connection, *, author: str, now_ms: int) -> Sequence[admission.StopRow]:
    """Ends every standing stop, the daemon's own included: a person has looked.  Returns those that stood.

    What a broken invariant told of is over with its stop: no rule looks for it again, so that nothing else would ever end the finding and
    let the campaign be ranked.
    """
    standing = admission.stops(c)
    for stop in standing:
        admission.end_stop(c, stop.kind, author=author, now_ms=now_ms)
        if stop.kind == "invariant":
            for row in findings.open_findings(c):
                if row.code == "invariant_broken":
                    findings.close_finding(c, code=row.code, subject=row.subject, now_ms=now_ms)
    return standing


@dataclass(frozen=True, slots=True)
class Acked:
    """``already``: acknowledged before, by whom.  ``open``: all that are open, ``alarms`` of them that nobody has acknowledged yet."""

    count: int
    already: tuple[findings.FindingRow, ...]
    open: int
    alarms: int


def ack(c: sqlite3.Connection, which: int | str, *, reason: str, author: str, now_ms: int) -> Acked:
    """:raises Refused: nothing open has that number or code."""
    standing = findings.open_findings(c)
    rows = [row for row in standing if which in (row.finding_id, row.code)]
    if not rows:
        known = sorted({row.code for row in standing})
        raise Refused(f"no open finding {which}; open are: {', '.join(known) or 'none'}")
    already = tuple(row for row in rows if row.acked_at_ms is not None)
    count = findings.ack(c, which, author=author, reason=reason, now_ms=now_ms)
    alarms = sum(row.severity in ("error", "stop_loss") and row.acked_at_ms is None for row in findings.open_findings(c))
    return Acked(count, already, len(standing), alarms)
