"""What the audit looks at, read from the ledger (:mod:`marathond.core.audit.facts`).

Some twenty statements, each over an index or a range of keys, whatever the size of the ledger: a campaign is read whole up to AT_MOST
trials; of a larger one the newest AT_MOST, and ``Facts.left_out`` says how many older ones were not looked at.  How long it takes is
measured in ``tests/ledger/test_audit_facts.py``.  Must not judge.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from hashlib import sha256
from statistics import median
from typing import Any

from marathond.core.audit.facts import FIRST_REQUESTS, Facts, FindingFact, LeaseFact, ReviewFact, TrialFact
from marathond.core.model_rules import AGENTS_OWN
from marathond.core.names import AgentKind
from marathond.core.score import REFUSED, RULE, refused_values
from marathond.ledger.verbs.findings import open_findings
from marathond.ledger.verbs.mounts import readings
from marathond.ledger.verbs.runs import last_run
from marathond.ledger.verbs.settings import observations
from marathond.ledger.verbs.sql import marks, must, one, scalar

AT_MOST = 5_000
"""Trials that one look reads; more than any campaign of long tasks has."""
FILES_AT_MOST = 50_000
"""Rows of artifacts that one look reads."""
HOUR_MS, HOUR_AT_MOST = 3_600_000, 5_000
ALIVE_MS = 60_000
"""A daemon says every few seconds that it lives."""
NO_FAILURE = frozenset({"accepted"})
"""Void codes of the infrastructure's side that are no failure."""
SAID = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
"""The verifier's own words; what it writes beside them are results."""


def facts(
    c: sqlite3.Connection,
    campaign_id: int,
    *,
    now_ms: int,
    wal_bytes: int | None = None,
    wal_readers: tuple[str, ...] = (),
    daemon_alive: bool | None = None,
) -> Facts:
    """In one transaction of the caller's.

    :param daemon_alive: of who can look at its process; None: as the ledger shows, where a life that did not end and has not been seen
        for a minute is one of which nobody can tell.
    :raises LookupError: no such campaign.
    """
    campaign = must(one(c, "SELECT name, treatment_json, origin FROM campaign WHERE campaign_id = ?", (campaign_id,)), "campaign")
    arms = c.execute("SELECT arm_id, name, kind, data_json FROM arm WHERE campaign_id = ? ORDER BY position", (campaign_id,)).fetchall()
    tasks = c.execute("SELECT task_id, name, context_digest FROM task WHERE campaign_id = ? ORDER BY task_id", (campaign_id,)).fetchall()
    read = _Trials(c, campaign_id, now_ms, arms, {row["task_id"]: row["name"] for row in tasks})
    trials = read.all()
    findings = [f for f in open_findings(c) if f.campaign_id in (None, campaign_id)]
    alive, up_ms = _daemon(c, now_ms, daemon_alive)
    hour_requests, hour_failed = _hour(c, now_ms, read.rows)
    return Facts(
        campaign_id,
        campaign["name"],
        now_ms,
        tuple(row["name"] for row in arms),
        tuple(row["name"] for row in tasks),
        int(scalar(c, "SELECT count(*) FROM cell WHERE campaign_id = ?", (campaign_id,))),
        trials,
        _reviews(c, trials, now_ms),
        _leases(c, now_ms),
        {key: (said.value, max(0, now_ms - said.at_ms)) for key, said in observations(c).items()},
        wal_bytes,
        Counter(finding.code for finding in findings),
        json.loads(campaign["treatment_json"]),
        {row["name"]: row["kind"] for row in arms},
        campaign["origin"],
        {row["name"]: row["context_digest"] for row in tasks if row["context_digest"] is not None},
        {row["engine"]: row["cap"] for row in c.execute("SELECT engine, cap FROM network_pool ORDER BY engine").fetchall()},
        hour_requests,
        hour_failed,
        tuple(FindingFact(f.code, f.severity, f.subject, max(0, now_ms - f.opened_at_ms), f.acked_at_ms is not None) for f in findings),
        alive,
        up_ms,
        wal_readers=wal_readers,
        leases_released=int(scalar(c, "SELECT count(*) FROM network_lease WHERE released_at_ms IS NOT NULL")),
        reviews_decided=read.reviews_decided,
        findings_closed=int(
            scalar(
                c,
                "SELECT count(*) FROM finding WHERE closed_at_ms IS NOT NULL AND (campaign_id IS NULL OR campaign_id = ?)",
                (campaign_id,),
            )
        ),
        mounted=readings(c, campaign_id),
        left_out=read.left_out,
    )


class _Trials:
    """The newest trials of the campaign, each statement's rows put to their trial."""

    def __init__(self, c: sqlite3.Connection, campaign_id: int, now_ms: int, arms: list[sqlite3.Row], tasks: dict[int, str]) -> None:
        self.c, self.now_ms, self.tasks = c, now_ms, tasks
        self.reviews_decided = 0
        self.arms = {row["arm_id"]: row["name"] for row in arms}
        self.asking = {row["name"] for row in arms if row["kind"] == AgentKind.CODEX.value}
        self.loopx = {row["name"] for row in arms if (json.loads(row["data_json"]).get("codex") or {}).get("loopx") is not None}
        # Forward by arm over its index, and no further back than the newest AT_MOST of all of them.
        marked = marks(self.arms)
        total = int(scalar(c, f"SELECT count(*) FROM trial WHERE arm_id IN ({marked})", tuple(self.arms)) or 0)
        self.left_out = max(0, total - AT_MOST)
        newest = "trial_id >= 0"
        if self.left_out:
            newest = (
                f"trial_id IN (SELECT trial_id FROM trial NOT INDEXED WHERE arm_id IN ({marked}) ORDER BY trial_id DESC LIMIT {AT_MOST})"
            )
        listed = c.execute(
            f"""SELECT t.trial_id, cell.task_id, t.arm_id, cell.block_id, cell.replicate, t.attempt, t.state, t.created_at_ms, t.reward,
                    t.partial, coalesce(t.test_rate, t.tests_passed * 1.0 / t.tests_total) AS test_rate, t.budget_ended,
                    iif(t.state IN ('scored', 'voided', 'review'),
                        (SELECT at_ms FROM trial_event AS e WHERE e.trial_id = t.trial_id ORDER BY seq DESC LIMIT 1), NULL) AS rested_at_ms
                FROM trial AS t JOIN cell USING (cell_id) WHERE t.arm_id IN ({marked}) AND {newest} ORDER BY t.trial_id""",
            tuple(self.arms) * (2 if self.left_out else 1),
        )
        self.rows: dict[int, dict[str, Any]] = {row["trial_id"]: dict(row) for row in listed.fetchall()}
        self.from_id = min(self.rows, default=0)

    def all(self) -> tuple[TrialFact, ...]:
        for add in (self._ends, self._containers, self._voids, self._scores, self._requests, self._receipts, self._rounds, self._files):
            add()
        self._running()
        return tuple(self._made(row) for row in self.rows.values())

    def _made(self, row: dict[str, Any]) -> TrialFact:
        arm, task = self.arms[row.pop("arm_id")], self.tasks[row.pop("task_id")]
        budget = row.pop("budget_ended")
        if row["state"] in ("scored", "review"):
            row["infra"] = False
        elif row["state"] == "voided":
            row["infra"] = row["void_by"] == "daemon" and row["void_side"] == "infrastructure" and row["void_code"] not in NO_FAILURE
        return TrialFact(
            task=task,
            arm=arm,
            asks_model=arm in self.asking,
            loopx=arm in self.loopx,
            budget_ended=None if budget is None else bool(budget),
            **row,
        )

    def _each(self, sql: str, *values: object) -> list[tuple[dict[str, Any], sqlite3.Row]]:
        """Rows whose first column is a trial of ours.  ``{from_id}`` in the statement is where ours begin."""
        found = self.c.execute(sql.replace("{from_id}", str(self.from_id)), values).fetchall()
        return [(self.rows[row[0]], row) for row in found if row[0] in self.rows]

    def _ends(self) -> None:
        sql = """SELECT trial_id, ended_by, exit_code, ended_mono_ms - started_mono_ms AS agent_ms, limit_ms + credit_ms AS limit_ms,
                     overrun_ms, started_at_ms FROM trial_agent WHERE trial_id >= {from_id}"""
        for trial, row in self._each(sql):
            trial |= {name: row[name] for name in ("ended_by", "exit_code", "agent_ms", "limit_ms", "overrun_ms")}
            if trial["state"] == "running":
                trial["running_ms"] = max(0, self.now_ms - row["started_at_ms"])
        # Not its ended_by: rules over how agents ended look at what only our own side measures (overruns, takeovers), and would say ok.
        sql = """SELECT trial_id, iif(ended_by IS NULL, NULL, ended_by IN (SELECT name FROM budget_end)) AS budget_ended, agent_ms
                 FROM imported_trial WHERE trial_id >= {from_id}"""
        for trial, row in self._each(sql):
            trial |= {"budget_ended": row["budget_ended"], "agent_ms": row["agent_ms"]}

    def _containers(self) -> None:
        for trial, row in self._each("SELECT trial_id, image_id, context_digest FROM container WHERE trial_id >= {from_id}"):
            trial |= {"image_id": row["image_id"], "context_digest": row["context_digest"]}

    def _voids(self) -> None:
        sql = """SELECT trial_id, void.code, side, decided_by, score_was_known FROM void JOIN void_code USING (code)
                 WHERE trial_id >= {from_id} AND undone_at_ms IS NULL"""
        for trial, row in self._each(sql):
            trial |= {"void_code": row["code"], "void_side": row["side"], "void_by": row["decided_by"]}
            trial["score_known"] = bool(row["score_was_known"])
        for trial, row in self._each("SELECT trial_id, code, decided_at_ms FROM review WHERE trial_id >= {from_id}"):
            if row["decided_at_ms"] is None:
                trial["review_code"] = row["code"]
            else:
                self.reviews_decided += 1

    def _scores(self) -> None:
        """The newest row of each trial counts; its parts with it."""
        newest: dict[int, int] = {}
        sql = """SELECT trial_id, score_id, extractor, reward_source, flags_json FROM score INDEXED BY score_by_trial
                 WHERE trial_id >= {from_id} ORDER BY trial_id, score_id"""
        for trial, row in self._each(sql):
            trial |= {"extractor": row["extractor"], "by_person": row["reward_source"].split(" ", 1)[0] == "operator"}
            trial["flags"] = tuple(json.loads(row["flags_json"]))
            newest[trial["trial_id"]] = row["score_id"]
        of = {score_id: trial_id for trial_id, score_id in newest.items()}
        parts: dict[int, Any] = {}
        rules: dict[int, list[str]] = defaultdict(list)
        told: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
        first = min(of, default=0)
        for row in self.c.execute(
            "SELECT score_id, name, value, source FROM score_part WHERE score_id >= ? ORDER BY score_id, name", (first,)
        ):
            if row["score_id"] in of:
                parts.setdefault(of[row["score_id"]], sha256()).update(f"{row['name']}\0{row['value']}\0".encode())
                if row["name"].startswith((RULE, REFUSED)):
                    told[of[row["score_id"]]].append((row["name"], row["value"], row["source"]))
                if row["name"].startswith(RULE):
                    rules[of[row["score_id"]]].append(f"{row['name'].removeprefix(RULE)} = {row['value']}")
        for trial_id, digest in parts.items():
            self.rows[trial_id]["parts"] = digest.hexdigest()
        for trial_id, named in rules.items():
            self.rows[trial_id]["score_rules"] = ", ".join(named)
        for trial_id, each in told.items():
            trial = self.rows[trial_id]
            trial["refused"] = refused_values(each, partial=trial["partial"], test_rate=trial["test_rate"])

    def _requests(self) -> None:
        sql = """SELECT trial_id, sum(requests) AS requests, sum(failed) AS failed, sum(input_tokens) AS input_tokens,
                     sum(output_tokens) AS output_tokens, sum(held_ms) AS held_ms
                 FROM model_usage WHERE trial_id >= {from_id} AND account = 'agent' GROUP BY trial_id"""
        for trial, row in self._each(sql):
            trial |= {name: row[name] for name in ("requests", "failed", "input_tokens", "output_tokens", "held_ms")}
            trial["bad_requests"] = 0
        models: dict[int, set[str]] = defaultdict(set)
        sql = (
            """SELECT trial_id, model, status, error_type, requests FROM model_outcome WHERE trial_id >= {from_id} AND account = 'agent'"""
        )
        for trial, row in self._each(sql):
            if row["model"]:
                models[trial["trial_id"]].add(row["model"])
            if 400 <= row["status"] < 500 and row["status"] != 429 and row["error_type"] not in AGENTS_OWN:
                trial["bad_requests"] = (trial.get("bad_requests") or 0) + row["requests"]
        for trial_id, names in models.items():
            self.rows[trial_id]["models"] = tuple(sorted(names))
        waited: dict[int, list[int]] = defaultdict(list)
        sql = f"""SELECT r.trial_id, r.first_byte_ms FROM model_usage AS u CROSS JOIN model_request AS r
                  ON r.trial_id = u.trial_id AND r.account = 'agent' AND r.number BETWEEN 1 AND {FIRST_REQUESTS}
                  WHERE u.trial_id >= {{from_id}} AND u.account = 'agent' AND r.status = 200 AND r.first_byte_ms IS NOT NULL"""
        for trial, row in self._each(sql):
            waited[trial["trial_id"]].append(row["first_byte_ms"])
        for trial_id, each in waited.items():
            self.rows[trial_id]["first_byte_ms"] = float(median(each))

    def _receipts(self) -> None:
        sql = """SELECT trial_id, json_extract(receipt_json, '$.turns.by_status', '$.turns.open', '$.turns.commands', '$.turns.silent',
                     '$.loopx.delivered_all', '$.loopx.used_any') FROM receipt WHERE trial_id >= {from_id}"""
        for trial, row in self._each(sql):
            by_status, begun, commands, silent, delivered, used = json.loads(row[1])
            # A turn that its deadline cut off has no status, and was a turn: of an arm with one turn it is all there is.
            turns = None if by_status is None else sum(by_status.values()) + (begun or 0)
            trial |= {"turns": turns, "commands": commands, "silent_turns": silent, "delivered": delivered, "used": used}

    def _rounds(self) -> None:
        for trial, row in self._each("SELECT trial_id, count(*) FROM verification WHERE trial_id >= {from_id} GROUP BY trial_id"):
            trial["verifier_rounds"] = row[1]
        sql = """SELECT trial_id, event, json_extract(detail_json, '$.cause') FROM trial_event
                 WHERE trial_id >= {from_id} AND event IN ('verify_again', 'reattached') ORDER BY trial_id, seq"""
        for trial, row in self._each(sql):
            if row[1] == "reattached":
                trial["reattached"] = trial.get("reattached", 0) + 1
            else:
                trial["verify_agains"] = (*trial.get("verify_agains", ()), row[2] or "")

    def _files(self) -> None:
        for trial, _ in self._each("SELECT trial_id FROM artifact_export WHERE trial_id >= {from_id}"):
            trial["exported"] = True
        said = f"a.path IN ({marks(SAID)})"
        self._hashed("outputs", said, *SAID)
        self._hashed("left", "a.path >= 'artifacts/' AND a.path < 'artifacts0'")

    def _hashed(self, name: str, which: str, *paths: str) -> None:
        """A hash over paths and contents, and the bytes; a trial whose files are cut off by the bound, or were left out of its export, has
        none: what nobody read is not the same as another's."""
        digests: dict[int, Any] = {}
        sizes: Counter[int] = Counter()
        sql = f"""SELECT a.trial_id, a.path, a.sha256, a.size_bytes FROM artifact_export AS e CROSS JOIN artifact AS a
                  ON a.trial_id = e.trial_id AND {which} WHERE e.trial_id >= {{from_id}}
                  ORDER BY e.trial_id DESC, a.path LIMIT {FILES_AT_MOST}"""
        rows = self._each(sql, *paths)
        for trial, row in rows:
            digests.setdefault(trial["trial_id"], sha256()).update(f"{row['path']}\0{row['sha256']}\0".encode())
            sizes[trial["trial_id"]] += row["size_bytes"]
        if len(rows) == FILES_AT_MOST:
            digests.pop(rows[-1][0]["trial_id"])
        for trial_id in {trial["trial_id"] for trial, row in rows if not row["sha256"]}:
            digests.pop(trial_id, None)
        for trial_id, digest in digests.items():
            self.rows[trial_id] |= {name: digest.hexdigest(), f"{name}_bytes": sizes[trial_id]}

    def _running(self) -> None:
        for trial in self.rows.values():
            if trial["state"] == "running":
                row = must(
                    one(
                        self.c,
                        """SELECT max(ended_at_ms), count(*) FILTER (WHERE ended_at_ms IS NULL) FROM model_request
                           WHERE trial_id = ? AND account = 'agent'""",
                        (trial["trial_id"],),
                    ),
                    "counts",
                )
                trial["last_request_ms"] = None if row[0] is None else max(0, self.now_ms - row[0])
                trial["open_requests"] = row[1]


def _reviews(c: sqlite3.Connection, trials: tuple[TrialFact, ...], now_ms: int) -> tuple[ReviewFact, ...]:
    """Of the trials that wait for a person, by the index of those alone."""
    of = {trial.trial_id: trial for trial in trials if trial.state == "review"}
    rows = c.execute(
        """SELECT review.trial_id, code, opened_at_ms FROM trial INDEXED BY trial_in_review CROSS JOIN review USING (trial_id)
           WHERE trial.state = 'review' AND decided_at_ms IS NULL ORDER BY opened_at_ms, review_id"""
    ).fetchall()
    made = ((of[row[0]], row) for row in rows if row[0] in of)
    return tuple(ReviewFact(t.trial_id, t.task, t.arm, row["code"], max(0, now_ms - row["opened_at_ms"])) for t, row in made)


def _leases(c: sqlite3.Connection, now_ms: int) -> tuple[LeaseFact, ...]:
    """The house's: a pool has no campaign."""
    rows = c.execute(
        "SELECT engine, network_name, trial_id, leaked_at_ms FROM network_lease WHERE released_at_ms IS NULL ORDER BY lease_id"
    )
    return tuple(LeaseFact(row[0], row[1], row[2], None if row[3] is None else max(0, now_ms - row[3])) for row in rows.fetchall())


def _hour(c: sqlite3.Connection, now_ms: int, ours: dict[int, dict[str, Any]]) -> tuple[int | None, int | None]:
    """Of the newest journal's newest requests; what an agent cut off itself is no failure of its way."""
    journal_id = scalar(c, "SELECT max(journal_id) FROM gateway_journal")
    if journal_id is None:
        return None, None
    rows = c.execute(
        f"""SELECT trial_id, end, status, error_type FROM (SELECT * FROM model_request WHERE journal_id = ? ORDER BY begin_seq DESC
            LIMIT {HOUR_AT_MOST}) WHERE account = 'agent' AND ended_at_ms BETWEEN ? AND ?""",
        (journal_id, now_ms - HOUR_MS, now_ms),
    ).fetchall()
    mine = [row for row in rows if row["trial_id"] in ours]
    failed = [r for r in mine if r["end"] != "cut_by_client" and (r["end"] != "complete" or (r["status"] or 500) >= 400 or r["error_type"])]
    return len(mine), len(failed)


def _daemon(c: sqlite3.Connection, now_ms: int, alive: bool | None) -> tuple[bool | None, int | None]:
    run = last_run(c)
    if run is None:
        return False, None
    if run.stopped_at_ms is not None:
        return False, None
    if alive is None and now_ms - run.seen_at_ms <= ALIVE_MS:
        alive = True
    return alive, None if alive is False else max(0, now_ms - (run.ready_at_ms or run.started_at_ms))
