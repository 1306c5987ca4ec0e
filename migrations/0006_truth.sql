-- 0006: what counts, what is compared, and what was measured elsewhere.

-- ── three columns of a score ──────────────────────────────────────────────────────────────────────────────────────────────────────

-- reward, partial and test rate are three different things (fault d04).  test_rate: what the verifier states, else passed of all; NULL:
-- neither was to be had.  Scores written before have none, so that the views fall back on the counts.
ALTER TABLE score ADD COLUMN test_rate REAL CONSTRAINT score_test_rate_in_range CHECK (test_rate >= 0 AND test_rate <= 1);
ALTER TABLE trial ADD COLUMN test_rate REAL;
DROP INDEX trial_by_arm;
CREATE INDEX trial_by_arm
    ON trial (arm_id, state, reward, partial, tests_passed, tests_total, test_rate, budget_ended, cost_nusd, priced, cut);
DROP TRIGGER trial_starts_new;
CREATE TRIGGER trial_starts_new BEFORE INSERT ON trial
WHEN NEW.state <> 'new'
    OR coalesce(NEW.reward, NEW.partial, NEW.tests_passed, NEW.tests_total, NEW.test_rate, NEW.budget_ended) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_starts_new'); END;
DROP TRIGGER trial_repeats_its_score;
CREATE TRIGGER trial_repeats_its_score BEFORE UPDATE OF reward, partial, tests_passed, tests_total, test_rate ON trial WHEN NOT EXISTS
    (SELECT 1 FROM score WHERE trial_id = NEW.trial_id AND score_id = (SELECT max(score_id) FROM score WHERE trial_id = NEW.trial_id)
     AND NEW.reward IS reward AND NEW.partial IS partial AND NEW.tests_passed IS tests_passed AND NEW.tests_total IS tests_total
     AND NEW.test_rate IS test_rate)
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_score'); END;
DROP TRIGGER score_is_repeated_in_trial;
CREATE TRIGGER score_is_repeated_in_trial AFTER INSERT ON score
BEGIN
    UPDATE trial SET reward = NEW.reward, partial = NEW.partial, tests_passed = NEW.tests_passed, tests_total = NEW.tests_total,
        test_rate = NEW.test_rate
    WHERE trial_id = NEW.trial_id;
END;

-- What somebody who decides over a trial can know of its reward: the newest score, else what was read and stands with its review.
CREATE VIEW known_reward AS
SELECT trial_id, coalesce(
    (SELECT reward FROM score WHERE score.trial_id = trial.trial_id ORDER BY score_id DESC LIMIT 1),
    (SELECT coalesce(json_extract(evidence_json, '$.read.reward'), json_extract(evidence_json, '$.reward')) FROM review
     WHERE review.trial_id = trial.trial_id ORDER BY review_id DESC LIMIT 1)) AS reward
FROM trial;
DROP TRIGGER void_says_whether_score_was_known;
CREATE TRIGGER void_says_whether_score_was_known BEFORE INSERT ON void
WHEN NEW.score_was_known IS NOT (SELECT reward IS NOT NULL FROM known_reward WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'void_says_whether_score_was_known'); END;

-- ── what is to be compared ────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The contrasts that the configuration declares.  A declaration is never changed; another one follows it as the next version.
-- scores_known: how many trials of the campaign had a score when it was declared; what was declared first is free of them.
CREATE TABLE contrast (
    campaign_id  INTEGER NOT NULL REFERENCES campaign,
    version      INTEGER NOT NULL,                 -- from 1
    position     INTEGER NOT NULL,                 -- from 1
    arm_a        TEXT    NOT NULL,
    arm_b        TEXT    NOT NULL CONSTRAINT contrast_of_two_arms CHECK (arm_a <> arm_b),
    scores_known INTEGER NOT NULL,
    author       TEXT    NOT NULL,
    at_ms        INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, version, position),
    CONSTRAINT contrast_said_once UNIQUE (campaign_id, version, arm_a, arm_b)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER contrast_follows_the_last BEFORE INSERT ON contrast
WHEN (NEW.version, NEW.position) NOT IN (
    SELECT coalesce(max(version), 0) + 1, 1 FROM contrast WHERE campaign_id = NEW.campaign_id
    UNION ALL
    SELECT version, max(position) + 1 FROM contrast
    WHERE campaign_id = NEW.campaign_id AND version = (SELECT max(version) FROM contrast WHERE campaign_id = NEW.campaign_id)
    GROUP BY version)
BEGIN SELECT RAISE(ABORT, 'contrast_follows_the_last'); END;
CREATE TRIGGER contrast_names_arms_of_the_campaign BEFORE INSERT ON contrast
WHEN (SELECT count(*) FROM arm WHERE campaign_id = NEW.campaign_id AND name IN (NEW.arm_a, NEW.arm_b))
    < iif(NEW.arm_a = NEW.arm_b, 1, 2)
BEGIN SELECT RAISE(ABORT, 'contrast_names_arms_of_the_campaign'); END;
CREATE TRIGGER contrast_says_what_was_known BEFORE INSERT ON contrast
WHEN NEW.scores_known IS NOT (SELECT count(*) FROM trial JOIN cell USING (cell_id) WHERE campaign_id = NEW.campaign_id
    AND EXISTS (SELECT 1 FROM score WHERE score.trial_id = trial.trial_id))
BEGIN SELECT RAISE(ABORT, 'contrast_says_what_was_known'); END;
CREATE TRIGGER contrast_is_append_only_u BEFORE UPDATE ON contrast BEGIN SELECT RAISE(ABORT, 'contrast_is_append_only'); END;
CREATE TRIGGER contrast_is_append_only_d BEFORE DELETE ON contrast BEGIN SELECT RAISE(ABORT, 'contrast_is_append_only'); END;

-- What is declared now.  declared_at: when a version first had the contrast, either way round; scores_known: how many there were by then.
CREATE VIEW v_contrast AS
SELECT campaign.name AS campaign, c.arm_a, c.arm_b, c.position, c.version, min(f.scores_known) AS scores_known,
    min(f.at_ms) AS declared_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', min(f.at_ms) / 1000, 'unixepoch') || printf('.%03dZ', min(f.at_ms) % 1000) AS declared_at
FROM contrast AS c
JOIN campaign ON campaign.campaign_id = c.campaign_id
JOIN contrast AS f ON f.campaign_id = c.campaign_id
    AND ((f.arm_a, f.arm_b) = (c.arm_a, c.arm_b) OR (f.arm_a, f.arm_b) = (c.arm_b, c.arm_a))
WHERE c.version = (SELECT max(version) FROM contrast WHERE campaign_id = c.campaign_id)
GROUP BY c.campaign_id, c.position;

-- ── what was measured elsewhere ───────────────────────────────────────────────────────────────────────────────────────────────────

-- 'run': by this ledger's daemon; 'import': read from files of other runs.  Nothing of an imported campaign is ever admitted.
ALTER TABLE campaign ADD COLUMN origin TEXT NOT NULL DEFAULT 'run' CONSTRAINT campaign_origin_known CHECK (origin IN ('run', 'import'));
CREATE TRIGGER campaign_origin_is_fixed BEFORE UPDATE OF origin ON campaign BEGIN SELECT RAISE(ABORT, 'campaign_origin_is_fixed'); END;

-- One row per reading of a source; what it listed and did not take (another owner's folder, an excluded one) stands in refused_json.
CREATE TABLE import (
    import_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id  INTEGER NOT NULL REFERENCES campaign,
    kind         TEXT    NOT NULL,                 -- 'csv', 'runs' (folders of scripts), 'harbor' (job folders)
    source       TEXT    NOT NULL,                 -- the path as it was given
    author       TEXT    NOT NULL,
    at_ms        INTEGER NOT NULL,
    refused_json TEXT    NOT NULL CONSTRAINT import_refused_is_json CHECK (json_valid(refused_json)),
    planned      INTEGER NOT NULL DEFAULT 0        -- trials it was to bring; fewer imported_trial rows: it was broken off
) STRICT;
CREATE TRIGGER import_is_fixed_u BEFORE UPDATE ON import BEGIN SELECT RAISE(ABORT, 'import_is_fixed'); END;
CREATE TRIGGER import_is_fixed_d BEFORE DELETE ON import BEGIN SELECT RAISE(ABORT, 'import_is_fixed'); END;

-- What the source says of a trial beyond its score.  NULL: it does not say.  key: what the source calls it, by which a second reading
-- knows it again.  agent_ms: how long its agent ran; tokens: in and out together, as such tables have them.
CREATE TABLE imported_trial (
    trial_id      INTEGER PRIMARY KEY REFERENCES trial,
    import_id     INTEGER NOT NULL REFERENCES import,
    key           TEXT    NOT NULL,
    sha256        TEXT    NOT NULL,                -- of what was read
    model         TEXT,
    started_at_ms INTEGER,
    agent_ms      INTEGER,
    ended_by      TEXT,
    tokens        INTEGER,
    cost_nusd     INTEGER,
    turns         INTEGER
) STRICT;
CREATE INDEX imported_trial_by_key ON imported_trial (key);
CREATE TRIGGER imported_trial_of_imported_campaign BEFORE INSERT ON imported_trial
WHEN (SELECT origin FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) WHERE trial_id = NEW.trial_id) IS NOT 'import'
BEGIN SELECT RAISE(ABORT, 'imported_trial_of_imported_campaign'); END;
CREATE TRIGGER imported_trial_is_fixed_u BEFORE UPDATE ON imported_trial BEGIN SELECT RAISE(ABORT, 'imported_trial_is_fixed'); END;
CREATE TRIGGER imported_trial_is_fixed_d BEFORE DELETE ON imported_trial BEGIN SELECT RAISE(ABORT, 'imported_trial_is_fixed'); END;

-- An imported trial goes the short way: no container, no agent of ours.
DROP TRIGGER trial_transition_is_fixed_i;
INSERT INTO trial_transition (from_state, event, to_state) VALUES
    ('reserved', 'imported', 'verifying');
CREATE TRIGGER trial_transition_is_fixed_i BEFORE INSERT ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;
CREATE TRIGGER imported_only_in_imported_campaign BEFORE INSERT ON trial_event WHEN NEW.event = 'imported'
    AND (SELECT origin FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) WHERE trial_id = NEW.trial_id) IS NOT 'import'
BEGIN SELECT RAISE(ABORT, 'imported_only_in_imported_campaign'); END;
INSERT INTO void_code (code, side, explanation) VALUES
    ('imported_void',         'import',         'withdrawn in the runs that it was imported from');

-- ── the views, with the test rate ─────────────────────────────────────────────────────────────────────────────────────────────────

DROP VIEW v_pair;
DROP VIEW v_arm;
DROP VIEW v_trial;
DROP VIEW v_cell;
DROP VIEW cell_state;
-- By precedence: done, review, claimed, parked, open.  trial_id is the trial that stands (not voided): at most one, by unique index.
CREATE VIEW cell_state AS
SELECT cell.cell_id, cell.campaign_id, cell.block_id, cell.task_id, cell.arm_id, cell.replicate, cell.ordinal,
    standing.trial_id, standing.state AS trial_state, standing.reward, standing.partial, standing.tests_passed, standing.tests_total,
    coalesce(standing.test_rate, standing.tests_passed * 1.0 / standing.tests_total) AS test_rate, standing.budget_ended, claim.claim_id, park.park_id,
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
-- How an imported trial ended is its source's word.
CREATE VIEW v_cell AS
SELECT campaign.name AS campaign, printf('c%04d', s.cell_id) AS cell, printf('b%04d', s.block_id) AS block,
    task.name AS task, arm.name AS arm, s.replicate, s.ordinal, s.state,
    iif(s.trial_id IS NULL, NULL, printf('t%04d', s.trial_id)) AS trial, s.trial_state,
    iif(s.state = 'done', s.reward, NULL) AS reward,
    iif(s.state = 'done', s.partial, NULL) AS partial,
    iif(s.state = 'done', s.tests_passed, NULL) AS tests_passed,
    iif(s.state = 'done', s.tests_total, NULL) AS tests_total,
    coalesce(agent.ended_by, there.ended_by) AS ended_by,
    coalesce(s.budget_ended, there.ended_by IN (SELECT name FROM budget_end)) AS budget_ended,
    (SELECT count(*) FROM trial WHERE trial.cell_id = s.cell_id) AS attempts,
    (SELECT count(*) FROM trial WHERE trial.cell_id = s.cell_id AND trial.state = 'voided') AS voids,
    park.code AS park_code, park.detail AS park_detail,
    iif(s.state = 'done', s.test_rate, NULL) AS test_rate
FROM cell_state AS s
JOIN campaign ON campaign.campaign_id = s.campaign_id
JOIN task ON task.task_id = s.task_id
JOIN arm ON arm.arm_id = s.arm_id
LEFT JOIN trial_agent AS agent ON agent.trial_id = s.trial_id
LEFT JOIN imported_trial AS there ON there.trial_id = s.trial_id
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
    agent.limit_ms / 1000.0 AS limit_s, agent.limit_origin, coalesce(agent.ended_by, there.ended_by) AS ended_by, agent.exit_code, agent.oom_killed,
    agent.overrun_ms / 1000.0 AS overrun_s,
    round(coalesce(agent.ended_mono_ms - agent.started_mono_ms, there.agent_ms) / 1000.0, 3) AS agent_s,
    t.reward, t.partial, t.tests_passed, t.tests_total, score.reward_source,
    (SELECT code FROM void WHERE void.trial_id = t.trial_id AND void.undone_at_ms IS NULL) AS void_code,
    container.docker_id AS container, container.image_id AS image, export.folder,
    t.created_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', t.created_at_ms / 1000, 'unixepoch') || printf('.%03dZ', t.created_at_ms % 1000) AS created_at,
    last.at_ms AS changed_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', last.at_ms / 1000, 'unixepoch') || printf('.%03dZ', last.at_ms % 1000) AS changed_at,
    agent.credit_ms / 1000.0 AS credit_s,
    coalesce(t.test_rate, t.tests_passed * 1.0 / t.tests_total) AS test_rate
FROM trial AS t
JOIN cell ON cell.cell_id = t.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = t.arm_id
JOIN trial_event AS last ON last.trial_id = t.trial_id
    AND last.seq = (SELECT max(seq) FROM trial_event WHERE trial_event.trial_id = t.trial_id)
LEFT JOIN trial_agent AS agent ON agent.trial_id = t.trial_id
LEFT JOIN imported_trial AS there ON there.trial_id = t.trial_id
LEFT JOIN score ON score.score_id = (SELECT max(score_id) FROM score AS sc WHERE sc.trial_id = t.trial_id)
LEFT JOIN container ON container.trial_id = t.trial_id
LEFT JOIN artifact_export AS export ON export.trial_id = t.trial_id;

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
    avg(s.test_rate) FILTER (WHERE s.state = 'done') AS test_rate,
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
    a.test_rate AS test_rate_a, b.test_rate AS test_rate_b
FROM cell_state AS a
JOIN cell_state AS b ON b.block_id = a.block_id AND b.arm_id <> a.arm_id
JOIN arm AS arm_a ON arm_a.arm_id = a.arm_id
JOIN arm AS arm_b ON arm_b.arm_id = b.arm_id
JOIN task ON task.task_id = a.task_id
JOIN campaign ON campaign.campaign_id = a.campaign_id
WHERE a.state = 'done' AND b.state = 'done';
