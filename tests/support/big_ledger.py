"""A large ledger in seconds: legal rows written in bulk, with the triggers asleep while they are written and back afterwards.

What the triggers would have refused is looked for at the end (:func:`check`).  No test of its own.
"""

from __future__ import annotations

import sqlite3

from marathond.ledger.verbs import campaigns, networks

from .ledgers import ENGINE, T0, arm, begin, submission, task

ARMS = ("plain", "goal", "heartbeat", "ssh-goal", "codex-cli")
TASKS = 20
LIVE = 12
"""Trials that are running, the newest ones."""


def fill_big(c: sqlite3.Connection, trials: int = 100_000, *, name: str = "big") -> int:
    """A campaign with ``trials`` trials (a multiple of 1,000): a tenth of them voided, twelve running, a tenth of the cells still open.

    Each trial has used its model.

    :param c: a migrated ledger without a run.
    :returns: the campaign's id.
    """
    if trials % 1000:
        raise ValueError("trials must be a multiple of 1,000")
    c.execute("BEGIN IMMEDIATE")
    begin(c)
    networks.set_pool(c, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
    networks.observe_pool(c, ENGINE, total=4096, foreign_used=15, host_used=0, now_ms=T0)
    wanted = submission(
        name=name,
        arms=[arm(each) for each in ARMS],
        tasks=[task(f"task-{n:02d}", limit_ms=(n + 1) * 600_000) for n in range(TASKS)],
        replicates=trials // (len(ARMS) * TASKS),
    )
    campaign_id = campaigns.submit(c, wanted, now_ms=T0).campaign_id
    triggers = c.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for row in triggers:
        c.execute(f'DROP TRIGGER "{row["name"]}"')
    for statement in _FILL:
        c.execute(statement, {"tried": trials * 9 // 10, "twice": trials // 10, "live": LIVE, "t0": T0, "engine": ENGINE})
    for row in triggers:
        c.execute(row["sql"])
    c.execute("COMMIT")
    return campaign_id


# Trial k is of cell k up to :tried; the cells up to :twice had a voided trial before, numbered from 1, so trial ids of standing ones
# begin at :twice + 1.  One trial a second.
_FILL = (
    """INSERT INTO claim (claim_id, cell_id, token, run_id, claimed_at_ms, released_at_ms)
       SELECT cell_id, cell_id, 'a' || cell_id, 1, :t0 + cell_id * 1000, :t0 + cell_id * 1000 + 500 FROM cell WHERE cell_id <= :twice""",
    """INSERT INTO claim (claim_id, cell_id, token, run_id, claimed_at_ms, released_at_ms)
       SELECT :twice + cell_id, cell_id, 'b' || cell_id, 1, :t0 + (:twice + cell_id) * 1000,
           iif(cell_id > :tried - :live, NULL, :t0 + (:twice + cell_id) * 1000 + 7200000 + cell_id % 977 * 1000)
       FROM cell WHERE cell_id <= :tried""",
    """INSERT INTO trial (trial_id, cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)
       SELECT claim_id, cell_id, arm_id, claim_id, iif(claim_id > :twice AND cell_id <= :twice, 2, 1), 1,
           CASE WHEN claim_id <= :twice THEN 'voided' WHEN cell_id > :tried - :live THEN 'running' ELSE 'scored' END, claimed_at_ms
       FROM claim JOIN cell USING (cell_id) ORDER BY claim_id""",
    """INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id)
       SELECT trial_id, seq, event, from_state, to_state, created_at_ms + seq * 1000, 1
       FROM trial CROSS JOIN (
           SELECT 1 AS seq, 'reserved' AS event, 'new' AS from_state, 'reserved' AS to_state
           UNION ALL SELECT 2, 'voided', 'reserved', 'voided' UNION ALL SELECT 2, 'environment_up', 'reserved', 'preparing'
           UNION ALL SELECT 3, 'agent_started', 'preparing', 'running' UNION ALL SELECT 4, 'agent_ended', 'running', 'verifying'
           UNION ALL SELECT 5, 'scored', 'verifying', 'scored')
       WHERE CASE state WHEN 'voided' THEN event IN ('reserved', 'voided') WHEN 'running' THEN event <> 'voided' AND seq <= 3
             ELSE event <> 'voided' END
       ORDER BY trial_id, seq""",
    """INSERT INTO void (trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, score_was_known, counts_pass, batch)
       SELECT trial_id, iif(trial_id % 3, 'engine_failed', 'container_lost'), 'it broke', '{}', 'daemon', 'daemon', created_at_ms + 2000,
           'reserved', 0, 1, 'd' || trial_id FROM trial WHERE state = 'voided'""",
    """INSERT INTO container (trial_id, engine, name, image_id, context_digest, intended_at_ms, docker_id, started_at, gone_at_ms,
           gone_because)
       SELECT trial_id, :engine, 'mt-0123456789ab-t' || trial_id, 'sha256:i', 'c-d1', created_at_ms, 'id' || trial_id, 'now',
           iif(state = 'running', NULL, created_at_ms + 7000), iif(state = 'running', NULL, 'seen_gone')
       FROM trial WHERE state <> 'voided'""",
    """INSERT INTO network_lease (engine, trial_id, subnet, network_name, leased_at_ms, network_id, released_at_ms, released_because)
       SELECT :engine, trial_id, printf('198.19.0.%d/28', trial_id % 16 * 16), 'mn-0123456789ab-t' || trial_id, created_at_ms,
           'n' || trial_id, iif(state = 'running', NULL, created_at_ms + 8000), iif(state = 'running', NULL, 'seen_gone')
       FROM trial WHERE state <> 'voided'""",
    """INSERT INTO trial_agent (trial_id, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin, limit_loser,
           ended_at_ms, ended_mono_ms, ended_by, exit_code, exit_source, oom_killed, processes_json)
       SELECT trial_id, 'e', created_at_ms + 3000, 1000, 'boot-1', 21600000, 'own', 'task 36000 x 1.0',
           iif(state = 'running', NULL, created_at_ms + 4000), iif(state = 'running', NULL, 7000000),
           iif(state = 'running', NULL, iif(trial_id % 5 < 3, 'deadline', 'agent')), iif(state = 'running', NULL, 0),
           iif(state = 'running', NULL, 'exec'), iif(state = 'running', NULL, 0), '[]' FROM trial WHERE state <> 'voided'""",
    """INSERT INTO score (trial_id, extractor, reward, reward_source, partial, tests_passed, tests_total, test_rate, flags_json, at_ms,
           run_id)
       SELECT trial_id, 1, trial_id % 11 = 0, 'reward.txt', (trial_id % 101) / 100.0, trial_id % 41, 40, (trial_id % 41) / 40.0, '[]',
           created_at_ms + 5000, 1
       FROM trial WHERE state = 'scored'""",
    """UPDATE trial SET (reward, partial, tests_passed, tests_total, test_rate) =
           (SELECT reward, partial, tests_passed, tests_total, test_rate FROM score AS s WHERE s.trial_id = trial.trial_id)
       WHERE state = 'scored'""",
    """UPDATE trial SET budget_ended =
           (SELECT ended_by IN (SELECT name FROM budget_end) FROM trial_agent AS a WHERE a.trial_id = trial.trial_id)
       WHERE state = 'scored'""",
    """INSERT INTO artifact_export (trial_id, folder, at_ms)
       SELECT trial_id, 'f/' || trial_id, created_at_ms + 6000 FROM trial WHERE state <> 'running'""",
    """INSERT INTO model_usage (trial_id, account, model, requests, failed, unknown, input_tokens, cached_tokens, output_tokens,
           reasoning_tokens, cost_nusd)
       SELECT trial_id, account, model, 200 + trial_id % 7, 2, trial_id % 50 = 0, 9000000 + trial_id, 8000000, 90000, 40000,
           1000000000 + trial_id * 1000
       FROM trial CROSS JOIN (SELECT 'agent' AS account, 'gpt-x' AS model UNION ALL SELECT 'gate', 'gpt-x'
           UNION ALL SELECT 'verifier', 'judge')
       WHERE account <> 'verifier' OR trial_id % 5 = 0 ORDER BY trial_id, account""",
    """UPDATE trial SET (cost_nusd, priced, cut) =
           (SELECT cost_nusd, priced, cut FROM trial_cost AS u WHERE u.trial_id = trial.trial_id)""",
)


def check(c: sqlite3.Connection) -> list[str]:
    """What is wrong with the ledger as a whole; empty when it is as the triggers would have left it."""
    wrong = [f"reference: {tuple(row)}" for row in c.execute("PRAGMA foreign_key_check").fetchmany(5)]
    for name, sql in _CHECKS.items():
        count = c.execute(sql).fetchone()[0]
        if count:
            wrong.append(f"{name}: {count}")
    return wrong


_CHECKS = {
    "state is not the last event's": """SELECT count(*) FROM trial t WHERE state IS NOT
        (SELECT to_state FROM trial_event e WHERE e.trial_id = t.trial_id ORDER BY seq DESC LIMIT 1)""",
    "events with gaps": """SELECT count(*) FROM (SELECT trial_id FROM trial_event GROUP BY trial_id
        HAVING count(*) <> max(seq) OR min(seq) <> 1)""",
    "events that do not join": """SELECT count(*) FROM trial_event a JOIN trial_event b ON b.trial_id = a.trial_id AND b.seq = a.seq + 1
        WHERE b.from_state <> a.to_state""",
    "voided without void": """SELECT count(*) FROM trial t WHERE (state = 'voided') <> EXISTS
        (SELECT 1 FROM void v WHERE v.trial_id = t.trial_id AND undone_at_ms IS NULL)""",
    "scored without score": """SELECT count(*) FROM trial t WHERE state = 'scored' AND NOT EXISTS
        (SELECT 1 FROM score s WHERE s.trial_id = t.trial_id)""",
    "trial does not repeat its score": """SELECT count(*) FROM trial t WHERE (reward, partial, tests_passed, tests_total) IS NOT
        (SELECT reward, partial, tests_passed, tests_total FROM score s WHERE s.trial_id = t.trial_id ORDER BY score_id DESC LIMIT 1)""",
    "trial does not repeat its agent": """SELECT count(*) FROM trial t WHERE budget_ended IS NOT
        (SELECT ended_by IN (SELECT name FROM budget_end) FROM trial_agent a WHERE a.trial_id = t.trial_id)""",
    "trial does not repeat its usage": """SELECT count(*) FROM trial t WHERE (cost_nusd, priced, cut) IS NOT
        (SELECT coalesce(max(u.cost_nusd), 0), coalesce(max(u.priced), 0), coalesce(max(u.cut), 0)
         FROM trial_cost u WHERE u.trial_id = t.trial_id)""",
    "review without open review": """SELECT count(*) FROM trial t WHERE (state = 'review') <> EXISTS
        (SELECT 1 FROM review r WHERE r.trial_id = t.trial_id AND decided_at_ms IS NULL)""",
    "claim gone before its trial rests": """SELECT count(*) FROM trial JOIN claim USING (claim_id)
        WHERE released_at_ms IS NOT NULL AND state NOT IN ('scored', 'voided', 'review')""",
    "claim gone before its container": """SELECT count(*) FROM trial JOIN claim USING (claim_id) JOIN container USING (trial_id)
        WHERE released_at_ms IS NOT NULL AND gone_at_ms IS NULL""",
    "leases above cap": """SELECT count(*) FROM network_pool p WHERE cap <
        (SELECT count(*) FROM network_lease l WHERE l.engine = p.engine AND released_at_ms IS NULL)""",
    "attempts with gaps": "SELECT count(*) FROM (SELECT cell_id FROM trial GROUP BY cell_id HAVING count(*) <> max(attempt))",
}
