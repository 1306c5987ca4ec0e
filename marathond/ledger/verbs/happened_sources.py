"""Where it is written what happened: one question for each kind of rows, see :mod:`.happened`.

Owns the SQL.  Every question takes the same parameters, :meth:`Of.params` among them, and gives the columns of a Happening; any other
column is a detail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from marathond.core.names import REACHED_INTO
from marathond.ledger.verbs.reached import FACT, PERSON


@dataclass(frozen=True, slots=True)
class Of:
    """Whose happenings; None: everybody's.

    ``trials``: of these trials alone; ``cells``: parks of these; ``events``: of what happens to trials this alone.  With one of ``trials``,
    ``arm``, ``task`` what is not a trial's, a cell's or said of one of them is left out; with a campaign what is another's.
    """

    campaign_id: int | None = None
    arm: str | None = None
    task: str | None = None
    trials: tuple[int, ...] | None = None
    cells: tuple[int, ...] | None = None
    events: frozenset[str] | None = None

    @property
    def narrow(self) -> bool:
        return self.arm is not None or self.task is not None or self.trials is not None

    def params(self) -> dict[str, Any]:
        subjects = [f"t{trial_id:04d}" for trial_id in self.trials or ()]
        subjects += [] if self.trials is not None else [name for name in (self.arm, self.task) if name is not None]
        return {
            "campaign": self.campaign_id,
            "arm": self.arm,
            "task": self.task,
            "trials": None if self.trials is None else json.dumps(self.trials),
            "cells": None if self.cells is None else json.dumps(self.cells),
            "events": None if self.events is None else json.dumps(sorted(self.events)),
            "narrow": self.narrow,
            "subjects": json.dumps(subjects),
        }


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of rows.

    ``sql`` asks for them newest first, at most ``:most``, of those above the number ``:after`` or of those among ``:ids``, both None for
    all.  ``newest_id``: the highest number there is.  ``pending``: of what is written as an update of its row, the numbers of the rows that
    it has not met yet; None: a row is what it is when it is written.  ``numbers``: all there are, where they do not grow with each row.
    """

    name: str
    sql: str
    newest_id: str = ""
    pending: str | None = None
    numbers: str | None = None


_OF_CELL = """(:campaign IS NULL OR cell.campaign_id = :campaign) AND (:arm IS NULL OR arm.name = :arm)
    AND (:task IS NULL OR task.name = :task)"""
_IDS = "(:ids IS NULL OR {id} IN (SELECT value FROM json_each(:ids)))"

EVENT_SAYS = """coalesce(v.code, r.code, '') AS name,
    CASE e.event WHEN 'voided' THEN v.author WHEN 'unvoided' THEN v.undone_by WHEN 'accepted' THEN decided.author END AS author,
    CASE e.event WHEN 'voided' THEN v.reason WHEN 'unvoided' THEN v.undone_reason WHEN 'accepted' THEN decided.reason
        WHEN 'doubted' THEN r.detail ELSE '' END AS text,
    s.reward, s.partial, a.ended_by, a.exit_code, v.score_was_known"""
EVENT_OF = """LEFT JOIN void AS v ON e.event IN ('voided', 'unvoided') AND v.void_id = json_extract(e.detail_json, '$.void_id')
    LEFT JOIN review AS r ON e.event = 'doubted' AND r.review_id = json_extract(e.detail_json, '$.review_id')
    LEFT JOIN review AS decided ON e.event = 'accepted' AND decided.review_id = (SELECT max(review_id) FROM review AS d
        WHERE d.trial_id = e.trial_id AND d.decision = 'accepted' AND d.decided_at_ms <= e.at_ms)
    LEFT JOIN score AS s ON e.event IN ('scored', 'accepted') AND s.score_id = json_extract(e.detail_json, '$.score_id')
    LEFT JOIN trial_agent AS a ON e.event IN ('agent_ended', 'budget_spent') AND a.trial_id = e.trial_id"""
"""What the event ``e`` of a trial says beside its own row, and the rows where that stands: for whoever tells of it in the same words."""

_EVENTS = f"""
SELECT 'event:' || e.event_id AS key, 'trial' AS kind, e.event AS what, e.at_ms, e.run_id AS life, campaign.name AS campaign, e.trial_id,
    task.name AS task, arm.name AS arm, cell.replicate, e.detail_json, trial.attempt, {EVENT_SAYS}
FROM trial_event AS e CROSS JOIN trial ON trial.trial_id = e.trial_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
    CROSS JOIN task ON task.task_id = cell.task_id CROSS JOIN arm ON arm.arm_id = cell.arm_id
    CROSS JOIN campaign ON campaign.campaign_id = cell.campaign_id
    {EVENT_OF}
WHERE (:after IS NULL OR e.event_id > :after) AND (:events IS NULL OR e.event IN (SELECT value FROM json_each(:events)))
    AND (:trials IS NULL OR e.trial_id IN (SELECT value FROM json_each(:trials))) AND {_OF_CELL}
ORDER BY e.event_id DESC LIMIT :most"""

_SCORES = f"""
SELECT 'score:' || s.score_id AS key, 'score' AS kind, 'regraded' AS what, s.at_ms, s.run_id AS life, campaign.name AS campaign, s.trial_id,
    task.name AS task, arm.name AS arm, cell.replicate, s.reward_source AS text, s.reward, s.partial
FROM score AS s CROSS JOIN trial ON trial.trial_id = s.trial_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
    CROSS JOIN task ON task.task_id = cell.task_id CROSS JOIN arm ON arm.arm_id = cell.arm_id
    CROSS JOIN campaign ON campaign.campaign_id = cell.campaign_id
WHERE (:after IS NULL OR s.score_id > :after) AND (:trials IS NULL OR s.trial_id IN (SELECT value FROM json_each(:trials)))
    AND EXISTS (SELECT 1 FROM score AS first WHERE first.trial_id = s.trial_id AND first.score_id < s.score_id) AND {_OF_CELL}
ORDER BY s.score_id DESC LIMIT :most"""
_REACHED_ID = "(a.trial_id * 1000 + CAST(substr(a.name, 6) AS INTEGER))"
_OF_TRIAL_ROW = f"""
CROSS JOIN trial ON trial.trial_id = a.trial_id CROSS JOIN cell ON cell.cell_id = trial.cell_id
    CROSS JOIN task ON task.task_id = cell.task_id CROSS JOIN arm ON arm.arm_id = cell.arm_id
    CROSS JOIN campaign ON campaign.campaign_id = cell.campaign_id
WHERE {{kept}} AND (:trials IS NULL OR a.trial_id IN (SELECT value FROM json_each(:trials))) AND {_OF_CELL}"""


def _archives(what: str, time: str, author: str, text: str, order: str, kept: str) -> str:
    return f"""
SELECT 'archive:' || archive_id || ':{what}' AS key, 'archive' AS kind, '{what}' AS what, a.{time} AS at_ms, a.{author} AS author,
    a.{text} AS text, a.trial_id, campaign.name AS campaign, task.name AS task, arm.name AS arm, cell.replicate, a.file, a.files,
    a.size_bytes
FROM archive AS a {_OF_TRIAL_ROW.format(kept=kept)} ORDER BY {order} LIMIT :most"""


# The finding leads to the few trials that have such facts; it is never closed.
_REACHED = f"""
SELECT 'exec:' || a.trial_id || ':' || substr(a.name, 6) AS key, 'trial' AS kind, '{REACHED_INTO}' AS what, a.at_ms,
    substr(a.origin, {len(PERSON) + 1}) AS author, a.value AS text, a.trial_id, campaign.name AS campaign, task.name AS task,
    arm.name AS arm, cell.replicate
FROM finding AS f CROSS JOIN trial_fact AS a ON a.trial_id = CAST(substr(f.subject, 2) AS INTEGER) AND a.name >= '{FACT}'
    AND a.name < 'exec!' AND a.origin GLOB '{PERSON}*'
{_OF_TRIAL_ROW.format(kept="f.code = '" + REACHED_INTO + "' AND f.closed_at_ms IS NULL AND " + _IDS.format(id=_REACHED_ID))}
ORDER BY a.at_ms DESC, a.trial_id DESC, a.name DESC LIMIT :most"""

_PRUNES = f"""
SELECT 'prune:' || prune_id AS key, 'prune' AS kind, 'pruned' AS what, p.at_ms, p.kind AS name, p.author, p.reason AS text, p.trial_id,
    campaign.name AS campaign, task.name AS task, arm.name AS arm, cell.replicate, p.path, p.files, p.size_bytes
FROM prune AS p LEFT JOIN trial ON trial.trial_id = p.trial_id LEFT JOIN cell ON cell.cell_id = trial.cell_id
    LEFT JOIN task ON task.task_id = cell.task_id LEFT JOIN arm ON arm.arm_id = cell.arm_id
    LEFT JOIN campaign ON campaign.campaign_id = cell.campaign_id
WHERE (:after IS NULL OR prune_id > :after) AND iif(p.trial_id IS NULL, NOT :narrow,
    (:trials IS NULL OR p.trial_id IN (SELECT value FROM json_each(:trials))) AND {_OF_CELL})
ORDER BY prune_id DESC LIMIT :most"""


# Of a finding of a trial, by what it names; of whom trials were named, those are the subjects already.
_OF_TRIAL = f"""(:trials IS NULL AND f.subject GLOB 't[0-9]*' AND EXISTS (
    SELECT 1 FROM trial CROSS JOIN cell ON cell.cell_id = trial.cell_id
        CROSS JOIN task ON task.task_id = cell.task_id CROSS JOIN arm ON arm.arm_id = cell.arm_id
    WHERE trial.trial_id = CAST(substr(f.subject, 2) AS INTEGER) AND {_OF_CELL}))"""


def _findings(what: str, time: str, author: str, text: str, order: str, kept: str) -> str:
    return f"""
SELECT 'finding:' || f.finding_id || ':{what}' AS key, 'finding' AS kind, '{what}' AS what, f.{time} AS at_ms, f.code AS name,
    {author} AS author, {text} AS text, campaign.name AS campaign, f.severity, f.subject, f.times, f.finding_id
FROM finding AS f LEFT JOIN campaign ON campaign.campaign_id = f.campaign_id
WHERE {kept} AND (:campaign IS NULL OR f.campaign_id IS NULL OR f.campaign_id = :campaign)
    AND (NOT :narrow OR f.subject IN (SELECT value FROM json_each(:subjects)) OR {_OF_TRIAL})
ORDER BY {order} LIMIT :most"""


def _stops(what: str, time: str, author: str, text: str, order: str, kept: str) -> str:
    return f"""
SELECT 'stop:' || stop_id || ':{what}' AS key, 'stop' AS kind, '{what}' AS what, {time} AS at_ms, kind AS name, {author} AS author,
    {text} AS text, stop_id
FROM admission_stop WHERE {kept} AND NOT :narrow ORDER BY {order} LIMIT :most"""


def _parks(what: str, time: str, author: str, text: str, order: str, kept: str) -> str:
    """Cells of one task that were parked or opened together are one row."""
    return f"""
SELECT 'park:' || max(park.park_id) || ':{what}' AS key, 'park' AS kind, '{what}' AS what, park.{time} AS at_ms, park.code AS name,
    park.{author} AS author, park.{text} AS text, campaign.name AS campaign, task.name AS task, iif(count(*) = 1, arm.name, NULL) AS arm,
    iif(count(*) = 1, cell.replicate, NULL) AS replicate, count(*) AS cells, min(park.cell_id) AS cell_id
FROM park CROSS JOIN cell ON cell.cell_id = park.cell_id CROSS JOIN task ON task.task_id = cell.task_id
    CROSS JOIN arm ON arm.arm_id = cell.arm_id CROSS JOIN campaign ON campaign.campaign_id = cell.campaign_id
WHERE {kept} AND {_OF_CELL} AND (:cells IS NULL OR park.cell_id IN (SELECT value FROM json_each(:cells)))
GROUP BY park.{time}, park.code, park.{author}, park.{text}, cell.task_id ORDER BY {order} LIMIT :most"""


def _runs(what: str, time: str, text: str, order: str, kept: str, more: str = "") -> str:
    return f"""
SELECT 'life:' || run_id || ':{what}' AS key, 'daemon' AS kind, '{what}' AS what, {time} AS at_ms, run_id AS life, {text} AS text, run_id,
    pid, host, version{more}
FROM run WHERE {kept} AND NOT :narrow ORDER BY {order} LIMIT :most"""


# A life that was killed wrote no end: it is known since the next one began.
_LOST = "SELECT run_id FROM run WHERE stopped_at_ms IS NULL AND run_id < (SELECT max(run_id) FROM run)"
_KNOWN_LOST = "(SELECT later.started_at_ms FROM run AS later WHERE later.run_id > run.run_id ORDER BY later.run_id LIMIT 1)"
_NEW = "(:after IS NULL OR {id} > :after)"

# Within one millisecond of one life the kinds stand in this order: that in which they are written where one brings the other about, as a
# finding closes admission, and opening it again ends the finding.
SOURCES = (
    Source(
        "started",
        _runs("started", "started_at_ms", "''", "run_id DESC", _NEW.format(id="run_id")),
        "SELECT max(run_id) FROM run",
    ),
    Source(
        "ready",
        _runs("ready", "ready_at_ms", "''", "run_id DESC", "ready_at_ms IS NOT NULL AND " + _IDS.format(id="run_id")),
        "SELECT max(run_id) FROM run",
        "SELECT run_id FROM run WHERE ready_at_ms IS NULL",
    ),
    Source(
        "submitted",
        """SELECT 'campaign:' || campaign_id AS key, 'campaign' AS kind, iif(origin = 'import', 'imported', 'submitted') AS what,
               created_at_ms AS at_ms, name, created_by AS author, name AS campaign, cell_order AS "order", seed
           FROM campaign WHERE (:after IS NULL OR campaign_id > :after) AND (:campaign IS NULL OR campaign_id = :campaign)
               AND NOT :narrow ORDER BY campaign_id DESC LIMIT :most""",
        "SELECT max(campaign_id) FROM campaign",
    ),
    Source(
        "read",
        """SELECT 'import:' || import_id AS key, 'import' AS kind, 'read' AS what, import.at_ms, kind AS name, import.author,
               source AS text, campaign.name AS campaign, planned
           FROM import JOIN campaign USING (campaign_id) WHERE (:after IS NULL OR import_id > :after)
               AND (:campaign IS NULL OR campaign_id = :campaign) AND NOT :narrow ORDER BY import_id DESC LIMIT :most""",
        "SELECT max(import_id) FROM import",
    ),
    Source(
        "declared",
        """SELECT 'contrasts:' || campaign_id || ':' || version AS key, 'contrasts' AS kind, 'declared' AS what, at_ms, author,
               group_concat(arm_a || ' - ' || arm_b, ', ') AS text, campaign.name AS campaign, version, scores_known
           FROM (SELECT * FROM contrast ORDER BY campaign_id, version, position) AS c JOIN campaign USING (campaign_id)
           WHERE (:ids IS NULL OR campaign_id * 100000 + version IN (SELECT value FROM json_each(:ids)))
               AND (:campaign IS NULL OR campaign_id = :campaign) AND NOT :narrow
           GROUP BY campaign_id, version ORDER BY at_ms DESC, campaign_id DESC, version DESC LIMIT :most""",
        numbers="SELECT DISTINCT campaign_id * 100000 + version FROM contrast",
    ),
    Source(
        "set",
        """SELECT 'setting:' || change_id AS key, 'setting' AS kind, 'set' AS what, at_ms, run_id AS life, key AS name, author,
               reason AS text, old_json, new_json
           FROM setting_change WHERE (:after IS NULL OR change_id > :after) AND NOT :narrow ORDER BY change_id DESC LIMIT :most""",
        "SELECT max(change_id) FROM setting_change",
    ),
    Source("events", _EVENTS, "SELECT max(event_id) FROM trial_event"),
    Source(
        "reached into",
        _REACHED,
        numbers=f"""SELECT {_REACHED_ID} FROM finding AS f CROSS JOIN trial_fact AS a ON a.trial_id = CAST(substr(f.subject, 2) AS INTEGER)
            AND a.name >= '{FACT}' AND a.name < 'exec!' AND a.origin GLOB '{PERSON}*'
            WHERE f.code = '{REACHED_INTO}' AND f.closed_at_ms IS NULL""",
    ),
    Source("scores", _SCORES, "SELECT max(score_id) FROM score"),
    Source(
        "archived",
        _archives("archived", "at_ms", "author", "file", "archive_id DESC", _NEW.format(id="archive_id")),
        "SELECT max(archive_id) FROM archive",
    ),
    Source("pruned", _PRUNES, "SELECT max(prune_id) FROM prune"),
    Source(
        "archive given up",
        _archives(
            "given_up",
            "ended_at_ms",
            "ended_by",
            "ended_reason",
            "a.ended_at_ms DESC, archive_id DESC",
            "a.ended_at_ms IS NOT NULL AND " + _IDS.format(id="archive_id"),
        ),
        "SELECT max(archive_id) FROM archive",
        "SELECT archive_id FROM archive WHERE ended_at_ms IS NULL",
    ),
    Source(
        "parked",
        _parks("parked", "at_ms", "author", "detail", "max(park.park_id) DESC", _NEW.format(id="park.park_id")),
        "SELECT max(park_id) FROM park",
    ),
    Source(
        "found",
        _findings("opened", "opened_at_ms", "NULL", "f.detail", "f.finding_id DESC", _NEW.format(id="f.finding_id")),
        "SELECT max(finding_id) FROM finding",
    ),
    Source(
        "stopped admission",
        _stops("opened", "at_ms", "author", "detail", "stop_id DESC", _NEW.format(id="stop_id")),
        "SELECT max(stop_id) FROM admission_stop",
    ),
    Source(
        "acked",
        _findings(
            "acknowledged",
            "acked_at_ms",
            "f.acked_by",
            "f.ack_reason",
            "f.acked_at_ms DESC, f.finding_id DESC",
            "f.acked_at_ms IS NOT NULL AND " + _IDS.format(id="f.finding_id"),
        ),
        "SELECT max(finding_id) FROM finding",
        "SELECT finding_id FROM finding WHERE acked_at_ms IS NULL AND closed_at_ms IS NULL",
    ),
    Source(
        "opened admission",
        _stops(
            "ended",
            "ended_at_ms",
            "ended_by",
            "''",
            "ended_at_ms DESC, stop_id DESC",
            "ended_at_ms IS NOT NULL AND " + _IDS.format(id="stop_id"),
        ),
        "SELECT max(stop_id) FROM admission_stop",
        "SELECT stop_id FROM admission_stop WHERE ended_at_ms IS NULL",
    ),
    Source(
        "closed",
        _findings(
            "closed",
            "closed_at_ms",
            "NULL",
            "''",
            "f.closed_at_ms DESC, f.finding_id DESC",
            "f.closed_at_ms IS NOT NULL AND " + _IDS.format(id="f.finding_id"),
        ),
        "SELECT max(finding_id) FROM finding",
        "SELECT finding_id FROM finding WHERE closed_at_ms IS NULL",
    ),
    Source(
        "unparked",
        _parks(
            "unparked",
            "ended_at_ms",
            "ended_by",
            "ended_reason",
            "park.ended_at_ms DESC, max(park.park_id) DESC",
            "park.ended_at_ms IS NOT NULL AND " + _IDS.format(id="park.park_id"),
        ),
        "SELECT max(park_id) FROM park",
        "SELECT park_id FROM park WHERE ended_at_ms IS NULL",
    ),
    Source(
        "stopped",
        _runs("stopped", "stopped_at_ms", "stop_reason", "run_id DESC", "stopped_at_ms IS NOT NULL AND " + _IDS.format(id="run_id")),
        "SELECT max(run_id) FROM run",
        "SELECT run_id FROM run WHERE stopped_at_ms IS NULL",
    ),
    Source(
        "lost",
        _runs(
            "lost",
            _KNOWN_LOST,
            "coalesce(stop_reason, '')",
            "run_id DESC",
            f"run_id IN ({_LOST}) AND " + _IDS.format(id="run_id"),
            ", seen_at_ms",
        ),
        numbers=_LOST,
    ),
)
