"""``marathonctl wait``: until a campaign is done or a trial is at rest.

Owns what "done" means to a script that waits, and the exit code it gets.  Looks at the ledger only, at bounded intervals.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from marathond.cli.output import note, print_json
from marathond.core.errors import LedgerRefused
from marathond.core.names import LIVE_STATES, trial_label
from marathond.core.text import clean, plural
from marathond.ledger.verbs.runs import last_run
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import campaign_id, daemon_life, reading

FIRST_S, LAST_S = 0.5, 5.0
"""Between two looks: first short, then longer."""
STARTS_S = 5.0
"""How long a daemon that is not there is waited for: a script that has just started one comes here before it has written anything."""
_NOT_YET = frozenset({"missing", "older", "not_a_ledger", "busy"})
"""Refusals of a ledger that a starting daemon is making."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``code`` None: not yet."""

    code: int | None
    text: str
    states: Mapping[str, int] = field(default_factory=dict)
    """Of cells, or of the one trial, with how many are in each."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of the waiting.

    :param exit: 0: all is scored; 1: something is parked, voided or in review.
    :param text: in words.
    :param states: cells of the campaign by state, or 1 for the state of the trial.
    """

    exit: int
    text: str
    states: Mapping[str, int]


def campaign_outcome(c: sqlite3.Connection, name: str | None) -> Outcome:
    """Done when no cell is open or claimed.  0: every cell has a result; 1: some are parked or wait for a person."""
    found = campaign_id(c, name)
    if found is None:
        return Outcome(None, "no campaign yet")
    rows = c.execute("SELECT state, count(*) FROM cell_state WHERE campaign_id = ? GROUP BY state", (found[0],)).fetchall()
    count = {str(row[0]): int(row[1]) for row in rows}
    text = f"{clean(found[1])}: " + ", ".join(f"{count[state]} {state}" for state in sorted(count))
    if c.execute("SELECT origin FROM campaign WHERE campaign_id = ?", (found[0],)).fetchone()[0] == "import":
        whole = count.keys() <= {"done"}
        return Outcome(Exit.OK if whole else Exit.FAILED, f"{text}; imported, so nothing runs in it", count)
    if count.get("open") or count.get("claimed") or not count:
        return Outcome(None, text)
    return Outcome(Exit.FAILED if count.get("parked") or count.get("review") else Exit.OK, text, count)


def trial_outcome(c: sqlite3.Connection, trial_id: int) -> Outcome:
    """0: scored; 1: voided or in review."""
    row = c.execute("SELECT state FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()
    if row is None:
        raise CallFailed(f"no trial {trial_label(trial_id)} in this ledger")
    text = f"{trial_label(trial_id)} {row[0]}"
    if row[0] in LIVE_STATES:
        return Outcome(None, text)
    return Outcome(Exit.OK if row[0] == "scored" else Exit.FAILED, text, {str(row[0]): 1})


def wait(
    ledger: Path,
    control_socket: Path,
    look: Callable[[sqlite3.Connection], Outcome],
    timeout_s: float | None,
    *,
    as_json: bool = False,
) -> int:
    """Look until there is an outcome.  A daemon of which nobody can tell whether it works is waited for, and named when that begins; one
    that is not there for :data:`STARTS_S`, and so is its ledger.

    :raises LedgerRefused: it cannot be read.
    :raises CallFailed: exit 3, the daemon is not running and so nothing will change; exit 75, the time is up.
    """
    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    starts = time.monotonic() + (STARTS_S if timeout_s is None else min(STARTS_S, timeout_s))
    pause, said = FIRST_S, ""
    while True:
        try:
            with reading(ledger) as connection:
                outcome = look(connection)
                life = daemon_life(last_run(connection), control_socket, time.time_ns() // 1_000_000)
        except LedgerRefused as refused:
            if refused.code not in _NOT_YET or time.monotonic() >= starts:
                raise
            time.sleep(FIRST_S)
            continue
        if outcome.code is not None:
            if as_json:
                print_json(Waited(int(outcome.code), outcome.text, outcome.states))
            else:
                note(outcome.text)
            return outcome.code
        if life.alive is False and time.monotonic() < starts:
            time.sleep(min(FIRST_S, max(starts - time.monotonic(), 0.01)))
            continue
        if life.alive is False:
            raise CallFailed(f"{outcome.text}; marathond is not running ({life.why})", Exit.DOWN)
        if life.alive is None and life.why != said:
            note(f"marathonctl: {outcome.text}; still waiting, though {clean(life.why)}")
        said = "" if life.alive else life.why
        left = None if give_up is None else give_up - time.monotonic()
        if left is not None and left <= 0:
            raise CallFailed(f"{outcome.text}; not done within {plural(round(timeout_s or 0), 'second')}", Exit.BUSY)
        time.sleep(pause if left is None else min(pause, max(left, 0.01)))
        pause = min(pause * 1.5, LAST_S)
