"""What a campaign has cost, what is to be expected, and what the planner sees of it.

Owns the reading of costs; who writes them is :mod:`marathond.ledger.verbs.usage`.  Bounded by the campaign, never by the number of
requests.  What leaves :func:`purse` are sums over whole blocks: no arm.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from marathond.core.money import MODEL_KINDS, Forecast, Purse, Rules, Sample, Spent, Work
from marathond.core.plan import OpenCell
from marathond.ledger.verbs.sql import LIVE, marks
from marathond.ledger.verbs.unpriced import unpriced

SAMPLES_MAX = 1_000
"""Newest ended trials that the forecast rests on."""

# One pass over the index trial_by_arm.
_SPENT = """
SELECT state = 'voided' AS void, sum(cost_nusd) AS cost_nusd, sum(priced) AS priced, sum(cut) AS cut
FROM trial WHERE arm_id IN (SELECT arm_id FROM arm WHERE campaign_id = ?) GROUP BY void"""


def spent(c: sqlite3.Connection, campaign_id: int) -> Spent:
    """All its trials, voided ones apart."""
    rows = {bool(row["void"]): row for row in c.execute(_SPENT, (campaign_id,)).fetchall()}
    return Spent(
        valid_nusd=rows[False]["cost_nusd"] if False in rows else 0,
        voids_nusd=rows[True]["cost_nusd"] if True in rows else 0,
        priced=sum(row["priced"] for row in rows.values()),
        cut=sum(row["cut"] for row in rows.values()),
        unpriced=unpriced(c, campaign_id),
    )


_SAMPLES = """
SELECT task_id, cell.arm_id, cost_nusd FROM trial CROSS JOIN cell ON cell.cell_id = trial.cell_id
WHERE state IN ('scored', 'review') AND cell.campaign_id = ?
    AND NOT EXISTS (SELECT 1 FROM model_usage u WHERE u.trial_id = trial.trial_id AND unpriced > 0)
ORDER BY trial_id DESC LIMIT ?"""


def forecast(c: sqlite3.Connection, campaign_id: int, rules: Rules) -> Forecast:
    """From the newest ended trials whose cost is known."""
    samples = [Sample(*row) for row in c.execute(_SAMPLES, (campaign_id, SAMPLES_MAX)).fetchall()]
    kinds = [kind.value for kind in MODEL_KINDS]
    sql = f"SELECT arm_id FROM arm WHERE campaign_id = ? AND kind IN ({marks(kinds)})"
    return Forecast(samples, rules, [row[0] for row in c.execute(sql, (campaign_id, *kinds)).fetchall()])


def ended_costs(c: sqlite3.Connection, campaign_id: int) -> list[tuple[str, str, int]]:
    """(task, arm, nano-dollars) of those trials, by name."""
    sql = f"""SELECT task.name, arm.name, s.cost_nusd FROM ({_SAMPLES}) AS s JOIN task ON task.task_id = s.task_id
              JOIN arm ON arm.arm_id = s.arm_id"""
    return [(row[0], row[1], row[2]) for row in c.execute(sql, (campaign_id, SAMPLES_MAX)).fetchall()]


# The three IS NULL follow from 'open'; said here, they spare the further look-ups of a cell that is done.
_OPEN = """
SELECT cell_id, task_id, arm_id, block_id, ordinal FROM cell_state
WHERE campaign_id = :campaign AND state = 'open' AND trial_id IS NULL AND claim_id IS NULL AND park_id IS NULL"""

# Blocks are looked up once each, not once per cell.
_BEGUN = f"""
WITH o AS MATERIALIZED ({_OPEN}), begun AS MATERIALIZED (
    SELECT block_id FROM (SELECT DISTINCT block_id FROM o) AS b
    WHERE EXISTS (SELECT 1 FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id WHERE cell.block_id = b.block_id))"""

_BEGUN_WORK = f"{_BEGUN} SELECT task_id, arm_id, count(*) FROM o WHERE block_id IN begun GROUP BY task_id, arm_id"

_BEGUN_CELLS = f"""
{_BEGUN} SELECT cell_id, o.task_id, cpus, memory_mb, needs_network, block_id FROM o JOIN task ON task.task_id = o.task_id
WHERE ordinal > :after AND block_id IN begun ORDER BY ordinal LIMIT :most"""

# A cell whose trial was voided a moment ago is claimed until its container is gone, and has everything before it.
_IN_WORK = f"""
SELECT cell.task_id, cell.arm_id, 1, coalesce(standing.cost_nusd, 0)
FROM claim CROSS JOIN cell ON cell.cell_id = claim.cell_id
    LEFT JOIN trial AS standing ON standing.cell_id = cell.cell_id AND standing.state <> 'voided'
WHERE released_at_ms IS NULL AND cell.campaign_id = ? AND (standing.state IS NULL OR standing.state IN {LIVE})"""


def begun_work(c: sqlite3.Connection, campaign_id: int) -> list[Work]:
    """What blocks that have begun still need: their open cells, and the trials in work less what those have cost."""
    works = [Work(*row) for row in c.execute(_BEGUN_WORK, {"campaign": campaign_id}).fetchall()]
    return works + [Work(*row) for row in c.execute(_IN_WORK, (campaign_id,)).fetchall()]


def begun_cells(c: sqlite3.Connection, campaign_id: int, *, after: int, most: int) -> list[OpenCell]:
    """The first open cells of blocks that have begun, behind the place ``after`` of the order."""
    rows = c.execute(_BEGUN_CELLS, {"campaign": campaign_id, "after": after, "most": most}).fetchall()
    return [open_cell(row) for row in rows]


def open_cell(row: sqlite3.Row) -> OpenCell:
    """Of a row with the columns of that name."""
    return OpenCell(row["cell_id"], row["task_id"], row["cpus"], row["memory_mb"], bool(row["needs_network"]), row["block_id"])


def new_blocks(c: sqlite3.Connection, block_ids: Collection[int]) -> dict[int, list[Work]]:
    """Of ``block_ids`` those that have not begun, each with its open cells."""
    wanted = list(block_ids)
    sql = f"""SELECT DISTINCT block_id FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id WHERE block_id IN ({marks(wanted)})"""
    begun = {row[0] for row in c.execute(sql, wanted).fetchall()}
    new = [block_id for block_id in wanted if block_id not in begun]
    sql = f"""SELECT block_id, task_id, arm_id, count(*) AS n FROM cell_state WHERE block_id IN ({marks(new)}) AND state = 'open'
              GROUP BY block_id, task_id, arm_id"""
    found: dict[int, list[Work]] = {block_id: [] for block_id in new}
    for row in c.execute(sql, new).fetchall():
        found[row["block_id"]].append(Work(row["task_id"], row["arm_id"], row["n"]))
    return found


def purse(c: sqlite3.Connection, campaign_id: int, rules: Rules, cells: Iterable[OpenCell]) -> Purse | None:
    """What the planner sees of money; None: there is no campaign cap.  ``cells``: those that it looks at."""
    if rules.campaign_cap_nusd is None:
        return None
    so_far, expected = spent(c, campaign_id), forecast(c, campaign_id, rules)
    promised = expected.of(begun_work(c, campaign_id)).nusd
    blocks = new_blocks(c, {cell.block_id for cell in cells})
    unknown = ""
    if so_far.unpriced:
        unknown = f"no price for {', '.join(model or 'a model that was not named' for model in so_far.unpriced)}"
    return Purse(
        cap_nusd=rules.campaign_cap_nusd,
        spent_nusd=so_far.known_nusd + _cut_nusd(so_far, rules),
        promised_nusd=promised or 0,
        blocks={block_id: None if promised is None else expected.of(works).nusd for block_id, works in blocks.items()},
        unknown=unknown,
    )


def _cut_nusd(so_far: Spent, rules: Rules) -> int:
    """Cut requests are like the others; before there are others, all of them together are taken for one whole trial."""
    if so_far.cut_nusd is not None:
        return so_far.cut_nusd
    return rules.trial_cap_nusd or rules.expected_trial_nusd or 0


@dataclass(frozen=True, slots=True)
class TrialUsage:
    """One trial's requests by account and model, gates left out.  ``cost_nusd`` None: some of it has no price."""

    account: str
    model: str
    requests: int
    failed: int
    unknown: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    held_ms: int
    retries: int
    cost_nusd: int | None
    unpriced: int


def usage_of(c: sqlite3.Connection, trial_id: int) -> tuple[TrialUsage, ...]:
    """By account and model."""
    names = ", ".join(each.name for each in fields(TrialUsage) if each.name != "cost_nusd")
    sql = f"""SELECT {names}, iif(unpriced > 0, NULL, cost_nusd) AS cost_nusd
             FROM model_usage WHERE trial_id = ? AND account <> 'gate' ORDER BY account, model"""
    return tuple(TrialUsage(**dict(row)) for row in c.execute(sql, (trial_id,)).fetchall())
