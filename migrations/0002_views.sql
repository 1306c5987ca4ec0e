-- 0002: the views.
-- cell_state is the one definition of "done"; scheduler, status, report and the published views share it.
-- v_* are published: names and columns are an interface that tests hold.  Times are ISO-8601 UTC text beside integer milliseconds, ids read
-- as the command line prints them (t0871, b0174, c0012), every row of an experiment names its campaign.

-- By precedence: done, review, claimed, parked, open.  trial_id is the trial that stands (not voided): at most one, by unique index.
CREATE VIEW cell_state AS
SELECT cell.cell_id, cell.campaign_id, cell.block_id, cell.task_id, cell.arm_id, cell.replicate, cell.ordinal,
    standing.trial_id, standing.state AS trial_state, standing.reward, standing.partial, standing.tests_passed, standing.tests_total,
    standing.budget_ended, claim.claim_id, park.park_id,
    CASE
        WHEN standing.state = 'scored' THEN 'done'
        WHEN standing.state = 'review' THEN 'review'
        WHEN claim.claim_id IS NOT NULL THEN 'claimed'
        WHEN park.park_id IS NOT NULL THEN 'parked'
        ELSE 'open'
    END AS state
FROM cell
LEFT JOIN trial AS standing ON standing.cell_id = cell.cell_id AND standing.state <> 'voided'
LEFT JOIN claim ON claim.cell_id = cell.cell_id AND claim.released_at_ms IS NULL
LEFT JOIN park ON park.cell_id = cell.cell_id AND park.ended_at_ms IS NULL;

-- One row per cell.  Scores are those of the trial that counts (its last score, should it have been read again), NULL while there is none.
CREATE VIEW v_cell AS
SELECT campaign.name AS campaign, printf('c%04d', s.cell_id) AS cell, printf('b%04d', s.block_id) AS block,
    task.name AS task, arm.name AS arm, s.replicate, s.ordinal, s.state,
    iif(s.trial_id IS NULL, NULL, printf('t%04d', s.trial_id)) AS trial, s.trial_state,
    iif(s.state = 'done', s.reward, NULL) AS reward,
    iif(s.state = 'done', s.partial, NULL) AS partial,
    iif(s.state = 'done', s.tests_passed, NULL) AS tests_passed,
    iif(s.state = 'done', s.tests_total, NULL) AS tests_total,
    agent.ended_by, s.budget_ended,
    (SELECT count(*) FROM trial WHERE trial.cell_id = s.cell_id) AS attempts,
    (SELECT count(*) FROM trial WHERE trial.cell_id = s.cell_id AND trial.state = 'voided') AS voids,
    park.code AS park_code, park.detail AS park_detail
FROM cell_state AS s
JOIN campaign ON campaign.campaign_id = s.campaign_id
JOIN task ON task.task_id = s.task_id
JOIN arm ON arm.arm_id = s.arm_id
LEFT JOIN trial_agent AS agent ON agent.trial_id = s.trial_id
LEFT JOIN park ON park.park_id = s.park_id;

-- One row per trial.  phase = state.  elapsed_s: seconds in the present phase for a live trial, else from claim to rest.
-- deadline_in_s: what is left of the agent's or the verifier's limit by the wall clock (the daemon goes by the monotonic one); NULL: no limit.
-- credit_s: what was added to the agent's limit, because the gateway held its requests.
CREATE VIEW v_trial AS
SELECT campaign.name AS campaign, printf('t%04d', t.trial_id) AS trial, printf('c%04d', t.cell_id) AS cell,
    printf('b%04d', cell.block_id) AS block,
    task.name AS task, arm.name AS arm, cell.replicate, t.attempt, t.state AS phase, t.state,
    t.state IN ('new', 'reserved', 'preparing', 'running', 'verifying') AS live,
    round((CASE WHEN t.state IN ('new', 'reserved', 'preparing', 'running', 'verifying')
        THEN CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
            - (SELECT max(e.at_ms) FROM trial_event AS e WHERE e.trial_id = t.trial_id AND e.from_state <> e.to_state)
        ELSE last.at_ms - t.created_at_ms END) / 1000.0, 3) AS elapsed_s,
    round((CASE t.state
        WHEN 'running' THEN agent.started_at_ms + agent.limit_ms + agent.credit_ms
        WHEN 'verifying' THEN (SELECT v.started_at_ms + v.limit_ms FROM verification AS v
                               WHERE v.trial_id = t.trial_id AND v.ended_at_ms IS NULL ORDER BY v.round DESC LIMIT 1)
        END - CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) / 1000.0, 3) AS deadline_in_s,
    agent.limit_ms / 1000.0 AS limit_s, agent.limit_origin, agent.ended_by, agent.exit_code, agent.oom_killed,
    agent.overrun_ms / 1000.0 AS overrun_s,
    round((agent.ended_mono_ms - agent.started_mono_ms) / 1000.0, 3) AS agent_s,
    t.reward, t.partial, t.tests_passed, t.tests_total, score.reward_source,
    (SELECT code FROM void WHERE void.trial_id = t.trial_id AND void.undone_at_ms IS NULL) AS void_code,
    container.docker_id AS container, container.image_id AS image, export.folder,
    t.created_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', t.created_at_ms / 1000, 'unixepoch') || printf('.%03dZ', t.created_at_ms % 1000) AS created_at,
    last.at_ms AS changed_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', last.at_ms / 1000, 'unixepoch') || printf('.%03dZ', last.at_ms % 1000) AS changed_at,
    agent.credit_ms / 1000.0 AS credit_s
FROM trial AS t
JOIN cell ON cell.cell_id = t.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = t.arm_id
JOIN trial_event AS last ON last.trial_id = t.trial_id
    AND last.seq = (SELECT max(seq) FROM trial_event WHERE trial_event.trial_id = t.trial_id)
LEFT JOIN trial_agent AS agent ON agent.trial_id = t.trial_id
LEFT JOIN score ON score.score_id = (SELECT max(score_id) FROM score AS sc WHERE sc.trial_id = t.trial_id)
LEFT JOIN container ON container.trial_id = t.trial_id
LEFT JOIN artifact_export AS export ON export.trial_id = t.trial_id;

CREATE VIEW v_event AS
SELECT campaign.name AS campaign, printf('t%04d', e.trial_id) AS trial, e.seq, e.event, e.from_state, e.to_state,
    e.at_ms, strftime('%Y-%m-%dT%H:%M:%S', e.at_ms / 1000, 'unixepoch') || printf('.%03dZ', e.at_ms % 1000) AS at,
    e.run_id AS run, e.detail_json AS detail
FROM trial_event AS e
JOIN trial ON trial.trial_id = e.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id;

-- One row per arm.  Means are over done cells; test_rate is the mean of each cell's own rate; voids are the standing ones of all attempts.
CREATE VIEW v_arm AS
SELECT campaign.name AS campaign, arm.name AS arm, arm.position, arm.kind,
    count(s.cell_id) AS cells,
    count(*) FILTER (WHERE s.state = 'done') AS done,
    count(*) FILTER (WHERE s.state = 'claimed') AS claimed,
    count(*) FILTER (WHERE s.state = 'open') AS open,
    count(*) FILTER (WHERE s.state = 'parked') AS parked,
    count(*) FILTER (WHERE s.state = 'review') AS review,
    (SELECT count(*) FROM trial WHERE trial.arm_id = arm.arm_id AND trial.state = 'voided') AS voids,
    avg(s.reward) FILTER (WHERE s.state = 'done') AS reward,
    avg(s.partial) FILTER (WHERE s.state = 'done') AS partial,
    avg(s.tests_passed * 1.0 / s.tests_total) FILTER (WHERE s.state = 'done') AS test_rate,
    avg(s.budget_ended) FILTER (WHERE s.state = 'done') AS budget_ended
FROM cell_state AS s
JOIN arm ON arm.arm_id = s.arm_id
JOIN campaign ON campaign.campaign_id = arm.campaign_id
GROUP BY arm.arm_id;

-- Two done cells of one block, both ways round, so that any (arm_a, arm_b) can be asked for.
CREATE VIEW v_pair AS
SELECT campaign.name AS campaign, printf('b%04d', a.block_id) AS block, task.name AS task, a.replicate,
    arm_a.name AS arm_a, arm_b.name AS arm_b,
    printf('t%04d', a.trial_id) AS trial_a, printf('t%04d', b.trial_id) AS trial_b,
    a.reward AS reward_a, b.reward AS reward_b, a.partial AS partial_a, b.partial AS partial_b,
    a.tests_passed * 1.0 / a.tests_total AS test_rate_a, b.tests_passed * 1.0 / b.tests_total AS test_rate_b
FROM cell_state AS a
JOIN cell_state AS b ON b.block_id = a.block_id AND b.arm_id <> a.arm_id
JOIN arm AS arm_a ON arm_a.arm_id = a.arm_id
JOIN arm AS arm_b ON arm_b.arm_id = b.arm_id
JOIN task ON task.task_id = a.task_id
JOIN campaign ON campaign.campaign_id = a.campaign_id
WHERE a.state = 'done' AND b.state = 'done';

-- One row per engine.  capacity is what we may hold at once, free what is left of it; NULL: unknown (never 0 for "cannot see").
-- A pool is the engine's, not a campaign's: ours counts the leases of all campaigns of this ledger.
CREATE VIEW v_pool AS
SELECT engine, mode, range, prefix, cap, margin, capacity, ours, foreign_used AS "foreign", host_used AS host, leaked,
    max(capacity - ours, 0) AS free, observed_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', observed_at_ms / 1000, 'unixepoch') || printf('.%03dZ', observed_at_ms % 1000) AS observed_at
FROM (
    SELECT p.*,
        CASE WHEN mode = 'auto' THEN max(min(cap, total - foreign_used - host_used - margin), 0)
             ELSE max(min(cap, coalesce(total - foreign_used - host_used, cap)), 0) END AS capacity,
        (SELECT count(*) FROM network_lease AS l WHERE l.engine = p.engine AND l.released_at_ms IS NULL) AS ours,
        (SELECT count(*) FROM network_lease AS l WHERE l.engine = p.engine AND l.released_at_ms IS NULL
            AND l.leaked_at_ms IS NOT NULL) AS leaked
    FROM network_pool AS p
);

-- Every void that was ever decided; standing = 0 for one that was taken back.
CREATE VIEW v_void AS
SELECT campaign.name AS campaign, v.void_id AS void, printf('t%04d', v.trial_id) AS trial, printf('c%04d', trial.cell_id) AS cell,
    printf('b%04d', cell.block_id) AS block, task.name AS task, arm.name AS arm, cell.replicate, trial.attempt,
    v.code, void_code.side, v.reason, v.evidence_json AS evidence, v.decided_by, v.author,
    v.at_ms, strftime('%Y-%m-%dT%H:%M:%S', v.at_ms / 1000, 'unixepoch') || printf('.%03dZ', v.at_ms % 1000) AS at,
    v.from_state, v.score_was_known, v.counts_pass, v.batch, v.undone_at_ms IS NULL AS standing,
    v.undone_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', v.undone_at_ms / 1000, 'unixepoch') || printf('.%03dZ', v.undone_at_ms % 1000) AS undone_at,
    v.undone_by, v.undone_reason
FROM void AS v
JOIN void_code ON void_code.code = v.code
JOIN trial ON trial.trial_id = v.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = cell.arm_id;

CREATE VIEW v_finding AS
SELECT campaign.name AS campaign, f.finding_id AS finding, f.code, f.severity, f.subject, f.detail, f.times,
    f.opened_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', f.opened_at_ms / 1000, 'unixepoch') || printf('.%03dZ', f.opened_at_ms % 1000) AS opened_at,
    f.seen_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', f.seen_at_ms / 1000, 'unixepoch') || printf('.%03dZ', f.seen_at_ms % 1000) AS seen_at,
    f.closed_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', f.closed_at_ms / 1000, 'unixepoch') || printf('.%03dZ', f.closed_at_ms % 1000) AS closed_at,
    f.acked_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', f.acked_at_ms / 1000, 'unixepoch') || printf('.%03dZ', f.acked_at_ms % 1000) AS acked_at,
    f.acked_by, f.ack_reason
FROM finding AS f LEFT JOIN campaign ON campaign.campaign_id = f.campaign_id;
