"""The planned places of cells.

Owns ``cell.ordinal``: all places when a campaign is submitted or its order changes, and the places of one replicate when it begins and
takes from the trials before it, of this campaign and of others in the ledger, how long its tasks last.  A replicate that has begun keeps
the order of its blocks.  The rules are in core/order.py; no arm's name or duration reaches them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.order import CellKey, Lasted, Order, block_order, order_cells, short_half_first
from marathond.ledger.verbs import settings
from marathond.ledger.verbs.sql import marks, one, scalar
from marathond.ledger.verbs.stored import arms_of

LEARNED_FROM = 10_000
"""The newest trials of a campaign from which lengths are learned: read in some 20 ms, once per replicate."""

ELSEWHERE = 200
"""Of each task, the trials of other campaigns from which lengths are learned."""


@dataclass(frozen=True, slots=True)
class BlockBasis:
    """``place`` of the ``blocks`` of its replicate, counted from 1, and by what it got there, in seconds.

    ``trials`` that had ended, ``elsewhere`` of them in other campaigns, ``mean_s`` of all (None: there was none); ``short_first``: the
    replicate's shorter half went first.
    """

    replicate: int
    place: int
    blocks: int
    limit_s: float | None
    trials: int
    mean_s: float | None
    short_first: bool
    elsewhere: int = 0


def reorder(c: sqlite3.Connection, campaign_id: int, *, order: str, seed: int) -> int:
    """Plan the places of all cells anew; returns how many moved.  Operational: which cells are done does not matter.

    Blocks of replicates that have learned keep their order; what was added to such a replicate comes behind them.
    """
    rows = c.execute(
        """SELECT cell_id, ordinal, task.name AS task, arm.name AS arm, replicate, declared_limit_ms
           FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id) WHERE cell.campaign_id = ?""",
        (campaign_id,),
    ).fetchall()
    limits = {row["task"]: _seconds(row["declared_limit_ms"]) for row in rows}
    at = {(row["task"], row["arm"], row["replicate"]): row for row in rows}
    keys = [CellKey(task, arm, replicate, limits[task]) for task, arm, replicate in at]
    names = [arm.name for arm in arms_of(c, campaign_id)]
    ordered = order_cells(keys, order=Order(order), seed=seed, arms=names, settled=_settled(c, campaign_id, rows))
    moves = []
    for place, key in enumerate(ordered, start=1):
        row = at[key.task, key.arm, key.replicate]
        if row["ordinal"] != place:
            moves.append((place, row["cell_id"]))
    c.executemany("UPDATE cell SET ordinal = ? WHERE cell_id = ?", moves)
    c.execute("UPDATE campaign SET cell_order = ?, seed = ? WHERE campaign_id = ?", (order, seed, campaign_id))
    return len(moves)


def due(c: sqlite3.Connection, campaign_id: int, cell_ids: Collection[int]) -> int | None:
    """The replicate that begins with one of these cells and has not learned yet, the first one; None: there is none.

    Only under ``replicate-major``: in the other orders no replicate begins.
    """
    ids = list(cell_ids)
    if scalar(c, "SELECT cell_order FROM campaign WHERE campaign_id = ?", (campaign_id,)) != Order.REPLICATE_MAJOR:
        return None
    sql = f"SELECT min(replicate) FROM cell WHERE cell_id IN ({marks(ids)}) AND replicate > ?"
    found = scalar(c, sql, (*ids, _newest(c, campaign_id)))
    return None if found is None else int(found)


def begin(c: sqlite3.Connection, campaign_id: int, replicate: int, *, slots: int, now_ms: int) -> int:
    """Order the blocks of ``replicate`` by what is known now, and note by what; returns how many cells moved.

    Nothing moves when a trial of it exists already: it has begun, in the order that it had.

    :param slots: trials at one time.
    """
    campaign = one(c, "SELECT seed FROM campaign WHERE campaign_id = ?", (campaign_id,))
    assert campaign is not None
    rows = c.execute(
        """SELECT cell_id, ordinal, task.name AS task, arm.name AS arm, declared_limit_ms,
               EXISTS (SELECT 1 FROM trial WHERE trial.cell_id = cell.cell_id) AS begun
           FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id) WHERE cell.campaign_id = ? AND replicate = ?""",
        (campaign_id, replicate),
    ).fetchall()
    seed, limits = int(campaign["seed"]), {row["task"]: _seconds(row["declared_limit_ms"]) for row in rows}
    if any(row["begun"] for row in rows):
        places: dict[str, int] = {}
        for row in rows:
            places[row["task"]] = min(row["ordinal"], places.get(row["task"], row["ordinal"]))
        _note(c, campaign_id, replicate, sorted(places, key=places.__getitem__), limits, {}, {}, short_first=False, now_ms=now_ms)
        return 0
    elsewhere = _lasted_elsewhere(c, campaign_id)
    lasted = _together(_lasted(c, campaign_id), elsewhere)
    last = scalar(c, "SELECT max(replicate) FROM block WHERE campaign_id = ?", (campaign_id,))
    short_first = replicate == last - 1 and short_half_first(lasted, cells=_cells(c, campaign_id, last), slots=slots)
    tasks = block_order(limits, lasted, replicate=replicate, seed=seed, short_first=short_first)
    keys = [CellKey(row["task"], row["arm"], replicate, limits[row["task"]]) for row in rows]
    at = {(row["task"], row["arm"]): row for row in rows}
    ordered = order_cells(keys, order=Order.REPLICATE_MAJOR, seed=seed, settled={replicate: tasks})
    free = sorted(row["ordinal"] for row in rows)  # its own places: no other replicate's cell moves
    moves = [
        (place, row["cell_id"]) for place, key in zip(free, ordered, strict=True) if (row := at[key.task, key.arm])["ordinal"] != place
    ]
    c.executemany("UPDATE cell SET ordinal = ? WHERE cell_id = ?", moves)
    _note(c, campaign_id, replicate, tasks, limits, lasted, elsewhere, short_first=short_first, now_ms=now_ms)
    return len(moves)


def basis(c: sqlite3.Connection, campaign_id: int, replicate: int, task: str) -> BlockBasis | None:
    """By what the block got its place; None: not known, for its replicate is not the newest one that began."""
    said = _noted(c, campaign_id)
    if said is None or said["replicate"] != replicate:
        return None
    for place, (name, limit_s, trials, mean_s, *more) in enumerate(said["blocks"], start=1):  # an older version noted no more
        if name == task:
            return BlockBasis(replicate, place, len(said["blocks"]), limit_s, trials, mean_s, said["short_first"], *more)
    return None


# Newest first.  What was voided measured no task; what is under review, or ended by its budget, held a slot as long as any other.
_LASTED = """
SELECT task.name AS task, count(*) AS n, sum(took_ms) AS total_ms, max(took_ms) AS longest_ms
FROM (SELECT task_id, released_at_ms - claimed_at_ms AS took_ms
      FROM trial CROSS JOIN claim ON claim.claim_id = trial.claim_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
      WHERE state IN ('scored', 'review') AND cell.campaign_id = ? AND released_at_ms >= claimed_at_ms ORDER BY trial_id DESC LIMIT ?)
JOIN task USING (task_id) GROUP BY task_id"""


def _lasted(c: sqlite3.Connection, campaign_id: int) -> dict[str, Lasted]:
    rows = c.execute(_LASTED, (campaign_id, LEARNED_FROM)).fetchall()
    return {row["task"]: Lasted(row["n"], row["total_ms"], row["longest_ms"]) for row in rows}


# The same task by its name and, where both are known, its content: one that was imported has no folder.  Newest campaign first.
_NAMESAKES = """
SELECT other.task_id, other.name AS task
FROM task AS mine JOIN task AS other ON other.name = mine.name AND other.campaign_id <> mine.campaign_id
WHERE mine.campaign_id = ? AND coalesce(other.digest = mine.digest, TRUE)
ORDER BY other.campaign_id DESC"""

# What was imported was claimed and released in the moment of its import; how long its agent took is what its source says.
_LASTED_OF = """
SELECT count(*) AS n, sum(took_ms) AS total_ms, max(took_ms) AS longest_ms
FROM (SELECT CASE WHEN imported_trial.trial_id IS NULL THEN released_at_ms - claimed_at_ms ELSE agent_ms END AS took_ms
      FROM block CROSS JOIN cell ON cell.block_id = block.block_id
          CROSS JOIN trial ON trial.cell_id = cell.cell_id AND state <> 'voided' AND state IN ('scored', 'review')
          CROSS JOIN claim ON claim.claim_id = trial.claim_id LEFT JOIN imported_trial ON imported_trial.trial_id = trial.trial_id
      WHERE block.task_id = ? AND took_ms >= 0 LIMIT ?)"""


def _lasted_elsewhere(c: sqlite3.Connection, campaign_id: int) -> dict[str, Lasted]:
    """The same tasks in this ledger's other campaigns, imported ones too: what is known of a task before any trial of this one."""
    found: dict[str, Lasted] = {}
    for row in c.execute(_NAMESAKES, (campaign_id,)).fetchall():
        left = ELSEWHERE - (found[row["task"]].trials if row["task"] in found else 0)
        seen = one(c, _LASTED_OF, (row["task_id"], left)) if left else None
        if seen is not None and seen["n"]:
            found = _together(found, {row["task"]: Lasted(seen["n"], seen["total_ms"], seen["longest_ms"])})
    return found


def _together(these: Mapping[str, Lasted], those: Mapping[str, Lasted]) -> dict[str, Lasted]:
    both = {**these, **those}
    for task in these.keys() & those.keys():
        a, b = these[task], those[task]
        both[task] = Lasted(a.trials + b.trials, a.total_ms + b.total_ms, max(a.longest_ms, b.longest_ms))
    return both


def _cells(c: sqlite3.Connection, campaign_id: int, replicate: int) -> int:
    return int(scalar(c, "SELECT count(*) FROM cell WHERE campaign_id = ? AND replicate = ?", (campaign_id, replicate)))


def _settled(c: sqlite3.Connection, campaign_id: int, rows: Sequence[sqlite3.Row]) -> dict[int, list[str]]:
    """Replicates that have learned, each with its tasks as they stand; what has no place yet is left out."""
    newest = _newest(c, campaign_id)
    was = scalar(c, "SELECT cell_order FROM campaign WHERE campaign_id = ?", (campaign_id,))
    if not newest or was != Order.REPLICATE_MAJOR:
        return {}
    places: dict[int, dict[str, int]] = {}
    for row in rows:
        if row["replicate"] <= newest and row["ordinal"]:
            mine = places.setdefault(row["replicate"], {})
            mine[row["task"]] = min(row["ordinal"], mine.get(row["task"], row["ordinal"]))
    return {replicate: sorted(mine, key=mine.__getitem__) for replicate, mine in places.items()}


def _note(
    c: sqlite3.Connection,
    campaign_id: int,
    replicate: int,
    tasks: Sequence[str],
    limits_s: Mapping[str, float | None],
    lasted: Mapping[str, Lasted],
    elsewhere: Mapping[str, Lasted],
    *,
    short_first: bool,
    now_ms: int,
) -> None:
    def trials(of: Mapping[str, Lasted], task: str) -> int:
        return of[task].trials if task in of else 0

    blocks = [
        (task, limits_s[task], trials(lasted, task), lasted[task].mean_s if task in lasted else None, trials(elsewhere, task))
        for task in tasks
    ]
    said = {"replicate": replicate, "short_first": short_first, "blocks": blocks}
    settings.observe(c, _key(campaign_id), said, now_ms=now_ms)


def _noted(c: sqlite3.Connection, campaign_id: int) -> dict[str, Any] | None:
    row = one(c, "SELECT value_json FROM observation WHERE key = ?", (_key(campaign_id),))
    return None if row is None else json.loads(row["value_json"])


def _newest(c: sqlite3.Connection, campaign_id: int) -> int:
    """The newest replicate that has learned; 0: none has."""
    sql = "SELECT json_extract(value_json, '$.replicate') FROM observation WHERE key = ?"
    return int(scalar(c, sql, (_key(campaign_id),)) or 0)


def _key(campaign_id: int) -> str:
    return f"order of campaign {campaign_id}"


def _seconds(limit_ms: int | None) -> float | None:
    return None if limit_ms is None else limit_ms / 1000
