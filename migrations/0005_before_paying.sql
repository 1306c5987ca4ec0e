-- 0005: what is checked, and what must be told, before anybody pays for a campaign.

-- The disclosures of a campaign, made from its arms' data (core/disclosures.py).  A campaign only grows; where its growth changes what is to
-- be told, all of it is written again as the next version.  Earlier versions stay: they are what stood in reports and exports until then.
CREATE TABLE disclosure (
    campaign_id   INTEGER NOT NULL REFERENCES campaign,
    version       INTEGER NOT NULL,                -- from 1
    position      INTEGER NOT NULL,                -- from 1, in the order in which they are told
    code          TEXT    NOT NULL,
    arms_json     TEXT    NOT NULL CONSTRAINT disclosure_arms_are_a_list
        CHECK (json_valid(arms_json) AND json_type(arms_json) = 'array' AND json_array_length(arms_json) > 0),
    text          TEXT    NOT NULL CONSTRAINT disclosure_says_something CHECK (trim(text) <> ''),
    compared_with TEXT    NOT NULL CONSTRAINT disclosure_is_compared CHECK (trim(compared_with) <> ''),
    at_ms         INTEGER NOT NULL,
    PRIMARY KEY (campaign_id, version, position),
    CONSTRAINT disclosure_said_once UNIQUE (campaign_id, version, code, arms_json)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER disclosure_follows_the_last BEFORE INSERT ON disclosure
WHEN (NEW.version, NEW.position) NOT IN (
    SELECT coalesce(max(version), 0) + 1, 1 FROM disclosure WHERE campaign_id = NEW.campaign_id
    UNION ALL
    SELECT version, max(position) + 1 FROM disclosure
    WHERE campaign_id = NEW.campaign_id AND version = (SELECT max(version) FROM disclosure WHERE campaign_id = NEW.campaign_id)
    GROUP BY version)
BEGIN SELECT RAISE(ABORT, 'disclosure_follows_the_last'); END;
CREATE TRIGGER disclosure_names_arms_of_the_campaign BEFORE INSERT ON disclosure
WHEN json_valid(NEW.arms_json) AND EXISTS (
    SELECT 1 FROM json_each(NEW.arms_json) AS named
    WHERE named.value NOT IN (SELECT name FROM arm WHERE campaign_id = NEW.campaign_id))
BEGIN SELECT RAISE(ABORT, 'disclosure_names_arms_of_the_campaign'); END;
CREATE TRIGGER disclosure_is_append_only_u BEFORE UPDATE ON disclosure BEGIN SELECT RAISE(ABORT, 'disclosure_is_append_only'); END;
CREATE TRIGGER disclosure_is_append_only_d BEFORE DELETE ON disclosure BEGIN SELECT RAISE(ABORT, 'disclosure_is_append_only'); END;

-- What is to be told now.  arms: their names, joined by a comma and a blank.
CREATE VIEW v_disclosure AS
SELECT campaign.name AS campaign, d.code,
    (SELECT group_concat(value, ', ') FROM (SELECT value FROM json_each(d.arms_json) ORDER BY key)) AS arms,
    d.text, d.compared_with, d.position, d.version,
    d.at_ms, strftime('%Y-%m-%dT%H:%M:%S', d.at_ms / 1000, 'unixepoch') || printf('.%03dZ', d.at_ms % 1000) AS at
FROM disclosure AS d JOIN campaign ON campaign.campaign_id = d.campaign_id
WHERE d.version = (SELECT max(version) FROM disclosure WHERE campaign_id = d.campaign_id);

-- An arm's harness may fail beside codex.
INSERT INTO void_code (code, side, explanation) VALUES
    ('loopx_failed',          'infrastructure', 'LoopX gave the driver no answer before the agent had acted: it could not be run, or came to no end'),
    ('loopx_python',          'infrastructure', 'the profile''s Python does not run in the container, or has no sqlite3'),
    ('loopx_copies',          'infrastructure', 'another copy of LoopX can be found in the container'),
    ('loopx_profile',         'infrastructure', 'the LoopX in the container is not the arm''s'),
    ('loopx_command',         'infrastructure', 'a bare loopx in the agent''s shell is not the profile''s'),
    ('loopx_node',            'infrastructure', 'LoopX finds no Node, or one that is too old, with its daemon stopped'),
    ('loopx_skills',          'infrastructure', 'the skills that LoopX requires are not there or not whole'),
    ('loopx_setup',           'infrastructure', 'LoopX did not set up the goal and its todo'),
    ('loopx_quota',           'infrastructure', 'LoopX''s quota does not select the task''s todo: the goal would be hollow'),
    ('loopx_body',            'infrastructure', 'the body that LoopX renders holds a placeholder, is too long, or differs where it must not'),
    ('loopx_doctor',          'infrastructure', 'LoopX''s doctor does not call the delivery of its skills ready'),
    ('loopx_left',            'infrastructure', 'a process of LoopX is still there after the gates');

-- One row per trial of an arm with LoopX that has its receipt.  delivered: all of LoopX reached the agent; used: the agent called it.
-- calls: in the texts of its commands; calls_logged: by LoopX's own log, without the harness's, NULL: it was not left.  first_call: which of
-- its commands was the first with a call.  wakes: that codex took, NULL for arms that are driven by a goal.
CREATE VIEW v_treatment AS
SELECT campaign.name AS campaign, printf('t%04d', t.trial_id) AS trial, task.name AS task, arm.name AS arm, cell.replicate, t.state,
    json_extract(r.loopx, '$.delivered_all') AS delivered, json_extract(r.loopx, '$.used_any') AS used,
    json_extract(r.loopx, '$.used.calls') AS calls,
    iif(json_extract(r.loopx, '$.used.events') IS NULL, NULL,
        (SELECT coalesce(sum(value), 0) FROM json_each(r.loopx, '$.used.events.agent'))) AS calls_logged,
    json_extract(r.loopx, '$.used.first') AS first_call,
    json_extract(r.loopx, '$.delivered.wakes.taken') AS wakes,
    json_extract(r.loopx, '$.operator.model') AS unblocks_model,
    json_extract(r.loopx, '$.operator.infra') AS unblocks_infra,
    json_extract(r.loopx, '$.operator.gate') AS unblocks_gate
FROM (SELECT trial_id, json_extract(receipt_json, '$.loopx') AS loopx FROM receipt WHERE json_type(receipt_json, '$.loopx') = 'object') AS r
JOIN trial AS t ON t.trial_id = r.trial_id
JOIN cell ON cell.cell_id = t.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = t.arm_id;
