-- 0004: what trials cost, and what a person is told.

-- What a trial has cost, repeated in its row by the triggers below: status and the planner add up 100,000 of them in one pass over one index.
-- cost_nusd: as far as it is known; priced: the requests behind it; cut: requests whose usage nobody told.  Gates ask no provider.
ALTER TABLE trial ADD COLUMN cost_nusd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trial ADD COLUMN priced INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trial ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
DROP INDEX trial_by_arm;
CREATE INDEX trial_by_arm ON trial (arm_id, state, reward, partial, tests_passed, tests_total, budget_ended, cost_nusd, priced, cut);
CREATE VIEW trial_cost AS
SELECT trial_id, sum(cost_nusd) AS cost_nusd, sum(max(requests - max(failed, unknown) - unpriced, 0)) AS priced, sum(unknown) AS cut
FROM model_usage WHERE account <> 'gate' GROUP BY trial_id;
CREATE TRIGGER trial_starts_unpaid BEFORE INSERT ON trial WHEN NEW.cost_nusd <> 0 OR NEW.priced <> 0 OR NEW.cut <> 0
BEGIN SELECT RAISE(ABORT, 'trial_starts_unpaid'); END;
CREATE TRIGGER trial_repeats_its_usage BEFORE UPDATE OF cost_nusd, priced, cut ON trial WHEN NOT EXISTS
    (SELECT 1 FROM trial_cost AS u WHERE u.trial_id = NEW.trial_id AND (u.cost_nusd, u.priced, u.cut) = (NEW.cost_nusd, NEW.priced, NEW.cut))
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_usage'); END;
CREATE TRIGGER model_usage_is_repeated_in_trial_i AFTER INSERT ON model_usage WHEN NEW.account <> 'gate'
BEGIN
    UPDATE trial SET (cost_nusd, priced, cut) = (SELECT cost_nusd, priced, cut FROM trial_cost AS u WHERE u.trial_id = NEW.trial_id)
    WHERE trial_id = NEW.trial_id;
END;
CREATE TRIGGER model_usage_is_repeated_in_trial_u AFTER UPDATE ON model_usage WHEN NEW.account <> 'gate'
BEGIN
    UPDATE trial SET (cost_nusd, priced, cut) = (SELECT cost_nusd, priced, cut FROM trial_cost AS u WHERE u.trial_id = NEW.trial_id)
    WHERE trial_id = NEW.trial_id;
END;
CREATE TRIGGER model_usage_is_fixed BEFORE UPDATE OF trial_id, account, model ON model_usage
BEGIN SELECT RAISE(ABORT, 'model_usage_is_fixed'); END;
CREATE TRIGGER model_usage_is_never_deleted BEFORE DELETE ON model_usage BEGIN SELECT RAISE(ABORT, 'model_usage_is_never_deleted'); END;

-- What has no price yet: looked for at each start, and before any block begins.
CREATE INDEX model_usage_unpriced ON model_usage (model) WHERE unpriced > 0;
CREATE INDEX model_request_unpriced ON model_request (model) WHERE cost_nusd IS NULL AND usage = 'known';

-- What a person is told of, each once.  Written before it is sent and marked after: one that is sent when the daemon is killed is sent
-- again by the next (at least once).
CREATE TABLE notice (
    notice_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    key          TEXT    NOT NULL CONSTRAINT notice_told_once UNIQUE,   -- of the event: finding:12, stop:3, done:1:40
    kind         TEXT    NOT NULL,
    message_json TEXT    NOT NULL CONSTRAINT notice_message_is_json CHECK (json_valid(message_json)),
    at_ms        INTEGER NOT NULL
) STRICT;
CREATE TRIGGER notice_is_fixed BEFORE UPDATE ON notice BEGIN SELECT RAISE(ABORT, 'notice_is_fixed'); END;
CREATE TRIGGER notice_is_never_deleted BEFORE DELETE ON notice BEGIN SELECT RAISE(ABORT, 'notice_is_never_deleted'); END;

-- One row per notice and channel that it is meant for.
CREATE TABLE notice_sending (
    notice_id INTEGER NOT NULL REFERENCES notice,
    channel   TEXT    NOT NULL,                  -- 'command', 'webhook'
    tries     INTEGER NOT NULL DEFAULT 0,
    told_at_ms INTEGER,                          -- the channel took it
    gave_up_at_ms INTEGER,                       -- it did not, as often as is tried
    answer    TEXT    NOT NULL DEFAULT '',       -- the last one
    PRIMARY KEY (notice_id, channel),
    CONSTRAINT notice_sending_ends_one_way CHECK (told_at_ms IS NULL OR gave_up_at_ms IS NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX notice_unsent ON notice_sending (channel) WHERE told_at_ms IS NULL AND gave_up_at_ms IS NULL;
CREATE TRIGGER notice_sending_ends_once BEFORE UPDATE ON notice_sending
WHEN OLD.told_at_ms IS NOT NULL OR OLD.gave_up_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'notice_sending_ends_once'); END;
CREATE TRIGGER notice_sending_is_never_deleted BEFORE DELETE ON notice_sending
BEGIN SELECT RAISE(ABORT, 'notice_sending_is_never_deleted'); END;
