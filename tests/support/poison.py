"""A ledger whose every free text was written by somebody hostile, and its twin with the same words made harmless.  No test of its own.

Made from the schema: whatever column of type TEXT the ledger itself lets anybody fill is filled, also inside JSON.  A new table without a
row here, or a new column that must not be touched, fails :func:`poison` by name.
"""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from typing import Any

from marathond.core.notices import Notice
from marathond.core.text import printable
from marathond.ledger.verbs import admission, contrasts, findings, imports, notices, operator, parks, runs, settings, trials
from marathond.ledger.verbs.imports import Details, ImportedCell, ImportedTrial, Withdrawal
from marathond.ledger.verbs.trials import Fact, ScoreRow
from marathond.service.doctor.ground import ENGINE, MINUTE_MS
from marathond.service.doctor.planted import Usage
from marathond.service.doctor.scratch import Scratch

HOSTILE = (
    "\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http:a\x1b\\link\x1b]8;;\x1b\\\x9b2J\x1bP+q\x1b\\\u202eevil\u2066\u200f\r\n"
    "second\tthird\x08\x7f\u2028fourth\x85<script>alert(1)</script><!-- ' \" `; DROP TABLE trial; --\ufeff|&amp;{{7*7}}日\x00"
)
TAME = printable(HOSTILE, 1000)
PREFIX = "=1+"
"""A spreadsheet would take it for a formula."""


def powers(text: str) -> set[str]:
    """Characters that steer: every control but the line feed, overrides of direction, invisible ones, half ones."""
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {f"U+{ord(each):04X}" for each in text if unicodedata.category(each) in kinds and each not in "\n\u200c\u200d"}


VOCABULARY = frozenset({"trial_transition", "void_code", "budget_end"})
"""Rows of the migrations; triggers refuse any other."""
OURS = {
    "arm.kind": "read back as an enumeration",
    "campaign.origin": "read back as an enumeration",
    "trial_agent.ended_by": "read back as an enumeration",
}
"""Columns without a rule of the schema that only an enumeration of ours is ever written to, with the reason."""


def poison(c: sqlite3.Connection, words: str) -> list[str]:
    """Add ``words`` to every text that the schema lets anybody write; the columns that were filled, as ``table.column``.

    Triggers are away meanwhile: they forbid changes, not words.
    """
    triggers = [row[0] for row in c.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()]
    for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        c.execute(f"DROP TRIGGER {name}")
    filled = []
    tables = [row[0] for row in c.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'").fetchall()]
    for table in sorted(set(tables) - VOCABULARY):
        info = c.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [row[1] for row in sorted(info, key=lambda row: row[5]) if row[5]]
        for column in [row[1] for row in info if row[2] == "TEXT"]:
            if f"{table}.{column}" not in OURS and _fill(c, table, keys, column, words):
                filled.append(f"{table}.{column}")
    for sql in triggers:
        c.execute(sql)
    return filled


def _fill(c: sqlite3.Connection, table: str, keys: list[str], column: str, words: str) -> bool:
    """False where the schema refuses: a list of its own, or a reference."""
    rows = c.execute(f"SELECT {', '.join(keys)}, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
    assert rows, f"{table}.{column}: no row has it; give it one in hostile_ledger()"
    where = " AND ".join(f"{key} IS ?" for key in keys)
    c.execute("SAVEPOINT fill")
    try:
        words = words.replace("\0", "") if f"{table}.{column}" in PATHS else words
        for *key, value in rows:
            c.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (_poisoned(column, value, words), *key))
    except sqlite3.IntegrityError:
        c.execute("ROLLBACK TO fill")
        return False
    finally:
        c.execute("RELEASE fill")
    return True


def _poisoned(column: str, value: str, words: str) -> str:
    return json.dumps(_in_json(json.loads(value), words)) if column.endswith("_json") else f"{PREFIX}{value}{words}"


def _in_json(value: Any, words: str, key: str = "") -> Any:
    """Every text but those that an enumeration of ours is read from."""
    if isinstance(value, dict):
        return {name: _in_json(each, words, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_json(each, words, key) for each in value]
    return f"{PREFIX}{value}{words}" if isinstance(value, str) and key not in JSON_OURS else value


PATHS = frozenset({"campaign.out_dir", "artifact_export.folder"})
"""What is looked for on disk: no path holds a NUL, and the twin's does not either."""
JSON_OURS = frozenset({"kind", "drive", "profile", "after_agent", "network", "origin", "fate"})
"""Keys of JSON that are read back as enumerations."""


OPEN_CELLS = """SELECT cell_id FROM cell JOIN task USING (task_id)
    WHERE task.name = 'filesystem' AND cell_id NOT IN (SELECT cell_id FROM trial)"""


def hostile_ledger(words: str, now_ms: int) -> Scratch:
    """With every table that has a text; poisoned with ``words``, committed; the caller closes it."""
    scratch = Scratch(now_ms=now_ms, replicates=1)
    try:
        _every_table(scratch)
        poison(scratch.c, words)
        scratch.commit()
    except BaseException:
        scratch.close()
        raise
    return scratch


def _every_table(scratch: Scratch) -> None:
    c, now = scratch.c, scratch.now_ms
    runs.end_run(c, reason="SIGTERM", now_ms=now - 2 * MINUTE_MS)
    scratch.begin_run(now_ms=now - MINUTE_MS)
    scratch.all_is_well()
    scratch.clean(tasks=("archive", "bitmap", "compiler"))
    scratch.trial(task="editor", arm="plain", usage=Usage(statuses=(200, 400)))
    last: dict[str, int] = {}
    for state, arm in (("running", "plain"), ("verifying", "goal"), ("review", "heartbeat"), ("voided", "oracle")):
        last[state] = scratch.trial(task="decoder", arm=arm, state=state, log=[("turn", {"status": "completed"})])
    later = scratch.trial(task="editor", arm="goal", state="voided", void_code="operator", reward=0.5, parts=[("a", "b", "c.json:d")])
    trials.facts(c, later, [Fact("fact", "value", "origin")], now_ms=now)
    trials.facts(c, last["running"], [Fact("gate healthcheck", "passed", "arm")], now_ms=now)
    for number, severity in enumerate(("info", "warning", "error")):
        scratch.finding(f"finding_{severity}", severity, f"subject {number}")
    scratch.finding("treatment_unused", "warning", "goal")
    findings.ack(c, "finding_error", author="ana", reason="known", now_ms=now)
    scratch.finding("host_disk_low", "error", "over")
    findings.close_finding(c, code="host_disk_low", subject="over", now_ms=now)
    admission.open_stop(c, "drain", detail="later", author="ana", until_ms=None, now_ms=now)
    admission.end_stop(c, "drain", author="ana", now_ms=now)
    contrasts.declare(c, scratch.campaign_id, [("plain", "goal")], author="ana", now_ms=now)
    settings.set_value(c, "admission.concurrency", old=8, new=4, author="ana", reason="noise", now_ms=now)
    notice = notices.intend(c, Notice("stop:1", "breaker", "title", "detail"), {"title": "title"}, channels=["command"], now_ms=now)
    assert notice is not None
    notices.tried(c, notice, "command", ok=False, last=True, answer="exit 1", now_ms=now)
    undone = scratch.trial(task="filesystem", arm="plain", state="voided", void_code="operator")
    operator.unvoid(c, trial_id=undone, reason="doubted", author="ana", now_ms=now)
    decided = scratch.trial(task="filesystem", arm="goal", state="review")
    admission.open_stop(c, "pause", detail="lunch", author="ana", until_ms=None, now_ms=now)
    operator.decide_review(c, decided, accept=True, reward=0.5, author="ana", reason="looked", now_ms=now)
    cells = [int(row[0]) for row in c.execute(OPEN_CELLS).fetchall()]
    for cell in cells[:2]:
        parks.park_cell(c, cell, code="task_unsupported", detail="GPUs", author="marathond", now_ms=now)
    parks.end_parks_by_person(c, cells[:1], author="ana", reason="installed", now_ms=now)
    for table, row in _rows(scratch, later).items():
        marks = ", ".join("?" * len(row))
        c.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    _kept(scratch, last["verifying"])
    _imported(scratch)


def _kept(scratch: Scratch, verifying: int) -> None:
    """An archive that stands, one that was lost, what was pruned, and a verifier that waits for its turn."""
    c, now = scratch.c, scratch.now_ms
    exported = """SELECT trial_id, max(e.at_ms, (SELECT max(at_ms) FROM trial_event AS v WHERE v.trial_id = e.trial_id)) AS rested_at_ms
        FROM artifact_export AS e JOIN trial USING (trial_id) JOIN claim USING (claim_id)
        WHERE state IN ('scored', 'voided') AND released_at_ms IS NOT NULL LIMIT 1"""
    trial_id, rested = tuple(c.execute(exported).fetchone())
    archive = (
        "INSERT INTO archive (trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms) VALUES (?, ?, ?, 9, 1, 9, 'ana', ?)"
    )
    c.execute(archive, (trial_id, "/lost.tar.gz", "ab" * 32, now))
    c.execute("UPDATE archive SET ended_at_ms = ?, ended_by = 'ana', ended_reason = 'the disk died'", (now,))
    c.execute(archive, (trial_id, "/kept.tar.gz", "ab" * 32, now))
    c.execute(
        """INSERT INTO prune (kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes, author, reason, at_ms)
           VALUES ('artifacts', '/out/x', ?, (SELECT max(archive_id) FROM archive), 0, ?, 1, 9, 'ana', 'room', ?)""",
        (trial_id, rested, max(now, rested)),
    )
    c.execute("INSERT INTO verifier_turn (trial_id, round, alone, asked_at_ms) VALUES (?, 9, 'verifiers', ?)", (verifying, now))


def _rows(scratch: Scratch, trial_id: int) -> dict[str, dict[str, object]]:
    """What no verb writes without a whole gateway or engine."""
    now, campaign_id = scratch.now_ms, scratch.campaign_id
    told = {"campaign_id": campaign_id, "version": 1, "position": 1, "code": "operator_acts", "arms_json": '["goal"]', "at_ms": now}
    return {
        "disclosure": {**told, "text": "An operator acts.", "compared_with": "plain"},
        "first_request": {"trial_id": trial_id, "shape_json": '{"model": "gpt", "tools": ["shell"]}', "at_ms": now},
        "model_refusal": {"trial_id": trial_id, "account": "agent", "code": "deadline", "count": 2, "told": 2}
        | {"first_at_ms": now, "last_at_ms": now},
        "subnet_quarantine": {"engine": ENGINE, "subnet": "198.19.9.0/28", "at_ms": now, "until_ms": now + 600_000, "detail": "taken"},
    }


def _imported(scratch: Scratch) -> None:
    c, now = scratch.c, scratch.now_ms
    refused = [{"path": "runs/7", "why": "another owner's"}]
    number = imports.begin_import(
        c, "imported", kind="csv", source="runs", author="ana", refused=refused, conditions={"owner": "ana"}, planned=1, now_ms=now
    )
    imports.add_cells(c, number, [("archive", "old", 1)])
    score, facts = ScoreRow(1, 1.0, "reward.txt"), (Fact("read from", "runs/1", "import"),)
    said = Details(model="gpt", agent_ms=60_000, ended_by="agent", tokens=7)
    trial = ImportedTrial("runs/1", "sha", said, score, facts=facts)
    gone = ImportedTrial("runs/0", "sha", said, score, Withdrawal("surplus", by_person=True, evidence={"seen": "twice"}))
    imports.import_cells(c, number, [ImportedCell("archive", "old", 1, (gone, trial))], now_ms=now)
