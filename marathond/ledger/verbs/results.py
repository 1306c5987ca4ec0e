"""What a campaign has shown so far, read whole: for the comparison and the report.

Owns the queries behind :mod:`marathond.core.results`.  Must be called in one read transaction, and asks no clock: the same ledger gives the
same value, whoever reads it when.  Must not compute a mean.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from marathond.core.errors import Refused
from marathond.core.money import NUSD
from marathond.core.mounts import by_mount, story
from marathond.core.names import trial_label
from marathond.core.results import ArmResult, CellResult, DisclosureResult, FindingResult, Results, VoidResult, columns
from marathond.core.score import REFUSED, RULE, refused_values
from marathond.ledger.verbs.contrasts import declared
from marathond.ledger.verbs.disclosures import told
from marathond.ledger.verbs.mounts import readings
from marathond.ledger.verbs.readings import broken_off
from marathond.ledger.verbs.sql import must, one, scalar
from marathond.ledger.verbs.stored import progress, tasks_of

BY_OPERATOR = "by_operator"
"""Flag of a score that is a person's word."""
NEVER = 1 << 62
NAMED = 10
"""Campaigns named in a refusal."""


def read_results(c: sqlite3.Connection, campaign: str | None = None) -> Results:
    """Everything there is to tell of one campaign.

    :param campaign: its name; None: the newest that this ledger runs, else the newest that was imported.
    :raises Refused: there is none of that name, or none at all.
    """
    row = _campaign(c, campaign)
    campaign_id, name = int(row["campaign_id"]), str(row["name"])
    refused = _refused(c, campaign_id)
    cells = tuple(_cell(each, refused) for each in c.execute(_CELLS, {"campaign": campaign_id}).fetchall())
    profile = json.loads(row["config_json"]).get("profile") or {}
    benchmark = profile.get("name")
    disclosed, said = told(c, campaign_id), declared(c, campaign_id)
    valid, voids, unpriced = _money(c, campaign_id)
    life = _life(c, row)
    findings = tuple(FindingResult(*each) for each in c.execute(_FINDINGS, life).fetchall())
    tasks = tasks_of(c, campaign_id)
    return Results(
        ledger_id=str(scalar(c, "SELECT ledger_id FROM ledger_identity") or ""),
        campaign=name,
        origin=row["origin"],
        treatment_hash=row["treatment_hash"],
        benchmark=benchmark,
        as_of_ms=max([life["last"], *(at for each in findings for at in (each.opened_at_ms, each.closed_at_ms) if at is not None)]),
        replicates=int(scalar(c, "SELECT max(replicate) FROM block WHERE campaign_id = ?", (campaign_id,)) or 0),
        arms=_arms(c, campaign_id),
        tasks=tuple(task.name for task in tasks),
        cells=cells,
        columns=columns(cells, profile.get("scores"), benchmark),
        contrasts=said.contrasts,
        voids=tuple(_void(each) for each in c.execute(_VOIDS, (campaign_id,)).fetchall()),
        findings=findings,
        disclosures=tuple(DisclosureResult(each.code, ", ".join(each.arms), each.text, each.compared_with) for each in disclosed.rows),
        disclosure_version=disclosed.version,
        spent_usd=valid,
        voids_usd=voids,
        unpriced=unpriced,
        imported=_imported(c, campaign_id),
        declaration=said.version,
        declared_after=said.scores_known,
        dropped=said.dropped,
        task_digests={task.name: task.digest for task in tasks if task.digest is not None},
    )


def _campaign(c: sqlite3.Connection, name: str | None) -> sqlite3.Row:
    wanted = "SELECT campaign_id, name, treatment_hash, config_json, origin FROM campaign"
    if name is None:
        row = one(c, f"{wanted} ORDER BY origin = 'run' DESC, campaign_id DESC LIMIT 1")
        if row is None:
            raise Refused("no campaign was ever submitted or imported to this ledger")
        return row
    row = one(c, f"{wanted} WHERE name = ?", (name,))
    if row is None:
        known = [str(each[0]) for each in c.execute("SELECT name FROM campaign ORDER BY campaign_id DESC LIMIT ?", (NAMED,)).fetchall()]
        raise Refused(f"no campaign {name}; there " + (f"are: {', '.join(known)}" if known else "is none yet"))
    return row


# Whatever a report tells of the campaign happened by then.  A finding that was merely seen again changes nothing that is told.
_AS_OF = """
WITH mine AS MATERIALIZED (SELECT trial_id FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id WHERE campaign_id = :campaign)
SELECT max(at_ms) FROM (
    SELECT created_at_ms AS at_ms FROM campaign WHERE campaign_id = :campaign
    UNION ALL SELECT max(at_ms) FROM trial_event WHERE trial_id IN mine
    UNION ALL SELECT max(at_ms) FROM score WHERE trial_id IN mine
    UNION ALL SELECT max(max(at_ms), coalesce(max(undone_at_ms), 0)) FROM void WHERE trial_id IN mine
    UNION ALL SELECT max(max(opened_at_ms), coalesce(max(decided_at_ms), 0)) FROM review WHERE trial_id IN mine
    UNION ALL SELECT max(max(at_ms), coalesce(max(ended_at_ms), 0)) FROM park JOIN cell USING (cell_id) WHERE campaign_id = :campaign
    UNION ALL SELECT max(at_ms) FROM disclosure WHERE campaign_id = :campaign
    UNION ALL SELECT max(at_ms) FROM contrast WHERE campaign_id = :campaign
    UNION ALL SELECT max(at_ms) FROM import WHERE campaign_id = :campaign
    UNION ALL SELECT max(acked_at_ms) FROM finding WHERE campaign_id = :campaign)"""


def _life(c: sqlite3.Connection, row: sqlite3.Row) -> dict[str, int]:
    """When the campaign began, its ``last`` event, and until when the ``house`` was its own: for ever while a cell is to be run."""
    campaign_id = int(row["campaign_id"])
    last = int(must(one(c, _AS_OF, {"campaign": campaign_id}), "campaign")[0])
    begun = int(scalar(c, "SELECT created_at_ms FROM campaign WHERE campaign_id = ?", (campaign_id,)))
    going = progress(c, campaign_id)["finished_at_ms"] is None
    house = 0 if row["origin"] == "import" else NEVER if going else last
    return {"campaign": campaign_id, "begun": begun, "last": last, "house": house}


# Tokens and money are the agent's own, as v_usage has them: NULL where no request of known usage (of known price) stands behind them.
_CELLS = """
WITH used AS MATERIALIZED (
    SELECT u.trial_id, sum(requests - max(failed, unknown)) AS known, sum(unpriced) AS unpriced, sum(input_tokens) AS input_tokens,
        sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens, sum(u.cost_nusd) AS cost_nusd
    FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id CROSS JOIN model_usage AS u ON u.trial_id = trial.trial_id
    WHERE campaign_id = :campaign AND account = 'agent' GROUP BY u.trial_id),
tried AS MATERIALIZED (
    SELECT trial.cell_id, count(*) AS attempts, sum(trial.state = 'voided') AS voids
    FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id WHERE campaign_id = :campaign GROUP BY trial.cell_id)
SELECT task.name AS task, arm.name AS arm, s.replicate, s.state, s.block_id, s.trial_id, s.reward, s.partial, s.test_rate, s.tests_passed,
    s.tests_total, score.flags_json,
    coalesce(agent.ended_by, there.ended_by) AS ended_by, agent.exit_code,
    coalesce(s.budget_ended, iif(agent.trial_id IS NULL, there.ended_by IN (SELECT name FROM budget_end), NULL)) AS budget_ended,
    coalesce(agent.ended_mono_ms - agent.started_mono_ms, there.agent_ms) AS agent_ms, agent.limit_ms + agent.credit_ms AS limit_ms,
    used.known, used.unpriced, used.input_tokens, used.cached_tokens, used.output_tokens, used.cost_nusd,
    there.tokens AS there_tokens, there.cost_nusd AS there_nusd,
    coalesce(there.started_at_ms + there.agent_ms, (SELECT min(at_ms) FROM score WHERE score.trial_id = s.trial_id)) AS scored_at_ms,
    coalesce(tried.attempts, 0) AS attempts, coalesce(tried.voids, 0) AS voids, park.code AS park_code, review.code AS review_code
FROM cell_state AS s
JOIN task ON task.task_id = s.task_id
JOIN arm ON arm.arm_id = s.arm_id
LEFT JOIN tried ON tried.cell_id = s.cell_id
LEFT JOIN trial_agent AS agent ON agent.trial_id = s.trial_id
LEFT JOIN imported_trial AS there ON there.trial_id = s.trial_id
LEFT JOIN used ON used.trial_id = s.trial_id
LEFT JOIN score ON score.score_id = (SELECT max(score_id) FROM score AS newest WHERE newest.trial_id = s.trial_id)
LEFT JOIN park ON park.park_id = s.park_id
LEFT JOIN review ON review.trial_id = s.trial_id AND review.decided_at_ms IS NULL
WHERE s.campaign_id = :campaign ORDER BY task.name, s.replicate, arm.position"""


def _cell(row: sqlite3.Row, refused: Mapping[int, list[tuple[str, str, str]]]) -> CellResult:
    done = row["state"] == "done"
    flags = tuple(json.loads(row["flags_json"])) if done and row["flags_json"] else ()
    known = bool(row["known"])
    cost_nusd = row["cost_nusd"] if known and not row["unpriced"] else row["there_nusd"]
    return CellResult(
        task=row["task"],
        arm=row["arm"],
        replicate=row["replicate"],
        state=row["state"],
        block_id=row["block_id"],
        trial=None if row["trial_id"] is None else trial_label(row["trial_id"]),
        **{name: row[name] if done else None for name in ("reward", "partial", "test_rate", "tests_passed", "tests_total", "scored_at_ms")},
        flags=flags,
        ended_by=row["ended_by"],
        exit_code=row["exit_code"],
        budget_ended=None if row["budget_ended"] is None else bool(row["budget_ended"]),
        agent_s=_seconds(row["agent_ms"]),
        limit_s=_seconds(row["limit_ms"]),
        input_tokens=row["input_tokens"] if known else None,
        cached_tokens=row["cached_tokens"] if known else None,
        output_tokens=row["output_tokens"] if known else None,
        tokens=row["input_tokens"] + row["output_tokens"] if known else row["there_tokens"],
        cost_usd=None if cost_nusd is None else cost_nusd / NUSD,
        attempts=row["attempts"],
        voids=row["voids"],
        park_code=row["park_code"],
        review_code=row["review_code"],
        by_operator=BY_OPERATOR in flags,
        refused=refused_values(refused.get(row["trial_id"], ()), partial=row["partial"], test_rate=row["test_rate"]) if done else (),
    )


def _refused(c: sqlite3.Connection, campaign_id: int) -> Mapping[int, list[tuple[str, str, str]]]:
    """Trial → those parts of its newest score that say what was refused, and by which rules it was read."""
    rows = c.execute(
        """SELECT trial.trial_id, part.name, part.value, part.source
           FROM cell CROSS JOIN trial ON trial.cell_id = cell.cell_id CROSS JOIN score_part AS part
               ON part.score_id = (SELECT max(score_id) FROM score WHERE score.trial_id = trial.trial_id)
           WHERE cell.campaign_id = ? AND (substr(part.name, 1, ?) = ? OR substr(part.name, 1, ?) = ?)""",
        (campaign_id, len(REFUSED), REFUSED, len(RULE), RULE),
    )
    found: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
    for row in rows.fetchall():
        found[row[0]].append((row[1], row[2], row[3]))
    return found


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _arms(c: sqlite3.Connection, campaign_id: int) -> tuple[ArmResult, ...]:
    """An imported arm's model is what all its trials say; None: they differ, or do not say."""
    rows = c.execute(
        """SELECT name, kind, position, treatment_hash, coalesce(json_extract(data_json, '$.codex.model'),
               (SELECT iif(count(DISTINCT model) = 1 AND count(model) = count(*), min(model), NULL) FROM imported_trial
                JOIN trial USING (trial_id) WHERE trial.arm_id = arm.arm_id)) AS model
           FROM arm WHERE campaign_id = ? ORDER BY position""",
        (campaign_id,),
    )
    held: dict[str, list[str]] = defaultdict(list)
    for (arm, target), group in by_mount(readings(c, campaign_id)).items():
        held[arm].append(f"{target}: {story(group)}")
    return tuple(ArmResult(**dict(row), mounted=tuple(held[row["name"]])) for row in rows.fetchall())


# The score that was withdrawn is the newest at the time of the void; a later one (graded again after the void was undone) is not.  Of a
# review it is what had been read and waited for a person.
_VOIDS = """
SELECT v.trial_id, task.name AS task, arm.name AS arm, cell.replicate, v.code, void_code.side, v.reason, v.decided_by, v.author, v.at_ms,
    v.score_was_known, v.undone_at_ms IS NULL AS standing,
    iif(v.score_was_known, coalesce(
        (SELECT reward FROM score WHERE score.trial_id = v.trial_id AND score.at_ms <= v.at_ms ORDER BY score_id DESC LIMIT 1),
        (SELECT coalesce(json_extract(evidence_json, '$.read.reward'), json_extract(evidence_json, '$.reward')) FROM review
         WHERE review.trial_id = v.trial_id AND opened_at_ms <= v.at_ms ORDER BY review_id DESC LIMIT 1)), NULL) AS reward,
    (SELECT kept.reward FROM trial AS kept WHERE kept.cell_id = cell.cell_id AND kept.state = 'scored') AS kept_reward
FROM void AS v JOIN void_code ON void_code.code = v.code JOIN trial ON trial.trial_id = v.trial_id JOIN cell ON cell.cell_id = trial.cell_id
JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
WHERE cell.campaign_id = ? ORDER BY v.void_id"""


def _void(row: sqlite3.Row) -> VoidResult:
    fields: dict[str, Any] = dict(row)
    fields["trial"] = trial_label(fields.pop("trial_id"))
    for name in ("score_was_known", "standing"):
        fields[name] = bool(fields[name])
    return VoidResult(**fields)


# The house's own concern a campaign that it ran while they were open.
_FINDINGS = """
SELECT code, severity, subject, detail, opened_at_ms, closed_at_ms, acked_by, ack_reason, campaign.name FROM finding
LEFT JOIN campaign USING (campaign_id) WHERE finding.campaign_id = :campaign
    OR (finding.campaign_id IS NULL AND opened_at_ms <= :house AND coalesce(closed_at_ms, :begun) >= :begun) ORDER BY finding_id"""


def _money(c: sqlite3.Connection, campaign_id: int) -> tuple[Mapping[str, float], Mapping[str, float], Mapping[str, int]]:
    """By arm: known dollars of trials that stand, of voided ones, and trials some of whose cost nobody knows.  Judges' money is in it."""
    rows = c.execute(
        """SELECT arm.name AS arm, trial.state = 'voided' AS void,
               sum(trial.cost_nusd + coalesce(iif(trial.priced = 0, there.cost_nusd, 0), 0)) AS nusd,
               count(*) FILTER (WHERE trial.priced > 0 OR there.cost_nusd IS NOT NULL) AS known,
               count(*) FILTER (WHERE trial.cut > 0 OR EXISTS (SELECT 1 FROM model_usage AS u
                   WHERE u.trial_id = trial.trial_id AND unpriced > 0 AND account <> 'gate')) AS unpriced
           FROM arm JOIN trial ON trial.arm_id = arm.arm_id LEFT JOIN imported_trial AS there ON there.trial_id = trial.trial_id
           WHERE arm.campaign_id = ? GROUP BY arm.position, void ORDER BY arm.position, void""",
        (campaign_id,),
    ).fetchall()
    valid = {row["arm"]: row["nusd"] / NUSD for row in rows if row["known"] and not row["void"]}
    voids = {row["arm"]: row["nusd"] / NUSD for row in rows if row["known"] and row["void"]}
    unpriced: dict[str, int] = {}
    for row in rows:
        if row["unpriced"]:
            unpriced[row["arm"]] = unpriced.get(row["arm"], 0) + row["unpriced"]
    return valid, voids, unpriced


def _imported(c: sqlite3.Connection, campaign_id: int) -> tuple[str, ...]:
    rows = c.execute(
        """SELECT kind, source, author, at_ms, iif(json_type(refused_json) = 'array', json_array_length(refused_json), 0) AS refused,
               (SELECT count(*) FROM imported_trial WHERE imported_trial.import_id = import.import_id) AS trials, planned
           FROM import WHERE campaign_id = ? ORDER BY import_id""",
        (campaign_id,),
    )
    return tuple(_reading(row) for row in rows.fetchall())


def _reading(row: sqlite3.Row) -> str:
    at = datetime.fromtimestamp(row["at_ms"] / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    refused = f", {row['refused']} listed and not taken" if row["refused"] else ""
    trials = f"{row['trials']} trial{'' if row['trials'] == 1 else 's'}"
    trials += broken_off(row["trials"], row["planned"])
    return f"{trials} from {row['source']} ({row['kind']}) by {row['author']} at {at}{refused}"
