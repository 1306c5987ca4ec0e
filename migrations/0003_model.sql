-- 0003: what an agent did with its model.
-- The gateway's journal is the source of every token and of the money; what the client says of itself is kept apart (agent_event, receipt).
-- Money is integer nano-dollars: a single cached token of a cheap model costs about 25 of them.

-- The gateway's journals that were taken in, and how far.  Moved in the same transaction as what was made of the records.  The newest row is
-- the present one; there is a second only when the gateway's folder was made anew.
CREATE TABLE gateway_journal (
    journal_id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity   TEXT    NOT NULL CONSTRAINT gateway_journal_taken_once UNIQUE,   -- its own word; '': nothing was read of it yet
    segment    INTEGER NOT NULL,
    byte       INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL
) STRICT;

-- One row per request that a trial's listener let in.  usage 'unknown': cut in mid-stream, so its tokens are NULL, never 0.
CREATE TABLE model_request (
    journal_id     INTEGER NOT NULL REFERENCES gateway_journal,
    begin_seq      INTEGER NOT NULL,             -- of the journal's line that began it
    trial_id       INTEGER NOT NULL REFERENCES trial,
    account        TEXT    NOT NULL,             -- 'agent', 'gate', 'verifier'
    number         INTEGER NOT NULL,             -- the gateway's count within the trial
    begun_at_ms    INTEGER NOT NULL,
    begun_mono_ms  INTEGER NOT NULL,
    held_from_mono_ms  INTEGER,                  -- NULL: it was not made to wait
    held_until_mono_ms INTEGER,                  -- NULL: it waits still.  Includes the Retry-After of a request that was given up
    ended_at_ms    INTEGER,                      -- NULL: not ended yet
    end            TEXT,                         -- complete, refused, gave_up, cut_by_..., gateway_died, not_recorded, lost
    status         INTEGER,
    upstream_status INTEGER,
    first_byte_ms  INTEGER,
    total_ms       INTEGER,
    held_ms        INTEGER NOT NULL DEFAULT 0,
    budget_held_ms INTEGER NOT NULL DEFAULT 0,
    retries        INTEGER NOT NULL DEFAULT 0,
    rate_limited   INTEGER NOT NULL DEFAULT 0,   -- a part of retries: answered 429
    model_asked    TEXT,
    model          TEXT,
    usage          TEXT    CONSTRAINT model_request_usage_known CHECK (usage IN ('known', 'unknown', 'none')),
    input_tokens   INTEGER,
    cached_tokens  INTEGER,                      -- a part of input_tokens
    cache_write_tokens INTEGER,                  -- a part of input_tokens
    output_tokens  INTEGER,
    reasoning_tokens INTEGER,                    -- a part of output_tokens
    cost_nusd      INTEGER,                      -- NULL: unknown (no price, or usage unknown)
    error_type     TEXT,
    PRIMARY KEY (journal_id, begin_seq),
    CONSTRAINT model_request_ends_whole CHECK ((ended_at_ms IS NULL) = (end IS NULL) AND (end IS NULL) = (usage IS NULL)),
    CONSTRAINT model_request_known_has_tokens CHECK (usage IS NOT 'known' OR (input_tokens IS NOT NULL AND output_tokens IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX model_request_by_trial ON model_request (trial_id, account, number);
CREATE INDEX model_request_held ON model_request (trial_id, held_from_mono_ms) WHERE held_from_mono_ms IS NOT NULL;
CREATE INDEX model_request_open ON model_request (trial_id) WHERE ended_at_ms IS NULL;
CREATE TRIGGER model_request_is_never_deleted BEFORE DELETE ON model_request
BEGIN SELECT RAISE(ABORT, 'model_request_is_never_deleted'); END;

-- What a trial's listener turned away at its door.  The gateway tells of the first ones and then of every doubling, and counts anew in each
-- of its lives: count is what was told, the true number lies below twice that.
CREATE TABLE model_refusal (
    trial_id INTEGER NOT NULL REFERENCES trial,
    account  TEXT    NOT NULL,
    code     TEXT    NOT NULL,                   -- deadline, bad_key, web_search, not_allowed, ...
    count    INTEGER NOT NULL,
    told     INTEGER NOT NULL,                   -- the last number of the gateway's present life
    first_at_ms INTEGER NOT NULL,
    last_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (trial_id, account, code)
) STRICT, WITHOUT ROWID;

-- What the first request of a trial's agent asked for: names, hashes and small values, no word of what was said (core/contract.py, fault a14).
-- The first that was told counts: after a restart the gateway tells of a later one again.
CREATE TABLE first_request (
    trial_id   INTEGER PRIMARY KEY REFERENCES trial,
    shape_json TEXT    NOT NULL CONSTRAINT first_request_shape_is_json CHECK (json_valid(shape_json)),
    at_ms      INTEGER NOT NULL
) STRICT;
CREATE TRIGGER first_request_is_fixed BEFORE UPDATE ON first_request BEGIN SELECT RAISE(ABORT, 'first_request_is_fixed'); END;
CREATE TRIGGER first_request_is_never_deleted BEFORE DELETE ON first_request
BEGIN SELECT RAISE(ABORT, 'first_request_is_never_deleted'); END;

-- The sums of model_request per trial, account and model; written in the same transaction, so that status need not add up a million rows.
CREATE TABLE model_usage (
    trial_id        INTEGER NOT NULL REFERENCES trial,
    account         TEXT    NOT NULL,
    model           TEXT    NOT NULL,            -- as the provider answered; '' where it did not say
    requests        INTEGER NOT NULL DEFAULT 0,
    failed          INTEGER NOT NULL DEFAULT 0,  -- requests that got no whole answer, or one with an error
    unknown         INTEGER NOT NULL DEFAULT 0,  -- requests whose usage is unknown
    input_tokens    INTEGER NOT NULL DEFAULT 0,
    cached_tokens   INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens   INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    held_ms         INTEGER NOT NULL DEFAULT 0,  -- of all requests; those that were held at one time count each
    retries         INTEGER NOT NULL DEFAULT 0,
    rate_limited    INTEGER NOT NULL DEFAULT 0,
    cost_nusd       INTEGER NOT NULL DEFAULT 0,
    unpriced        INTEGER NOT NULL DEFAULT 0,  -- requests with known usage and no price
    PRIMARY KEY (trial_id, account, model)
) STRICT, WITHOUT ROWID;

-- How the requests of a trial ended, by what was asked and answered: few rows, from which arms are compared (faults a02, a16).
CREATE TABLE model_outcome (
    trial_id    INTEGER NOT NULL REFERENCES trial,
    account     TEXT    NOT NULL,
    model_asked TEXT    NOT NULL,                -- '': it could not be read
    model       TEXT    NOT NULL,                -- '': none answered
    status      INTEGER NOT NULL,                -- as the client saw it; 0: no answer
    error_type  TEXT    NOT NULL,                -- '': none
    requests    INTEGER NOT NULL,
    PRIMARY KEY (trial_id, account, model_asked, model, status, error_type)
) STRICT, WITHOUT ROWID;

-- What the driver did and saw, in its own order: threads, turns, goal changes with their cause, retries, warnings.  A new daemon goes on
-- from here, so an intention is written before it is acted on.
CREATE TABLE agent_event (
    trial_id    INTEGER NOT NULL REFERENCES trial,
    seq         INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    detail_json TEXT    NOT NULL CONSTRAINT agent_event_detail_is_json CHECK (json_valid(detail_json)),
    at_ms       INTEGER NOT NULL,
    mono_ms     INTEGER NOT NULL,
    run_id      INTEGER NOT NULL REFERENCES run,
    PRIMARY KEY (trial_id, seq)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER agent_event_is_gapless BEFORE INSERT ON agent_event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM agent_event WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'agent_event_is_gapless'); END;
CREATE TRIGGER agent_event_is_append_only_u BEFORE UPDATE ON agent_event BEGIN SELECT RAISE(ABORT, 'agent_event_is_append_only'); END;
CREATE TRIGGER agent_event_is_append_only_d BEFORE DELETE ON agent_event BEGIN SELECT RAISE(ABORT, 'agent_event_is_append_only'); END;

-- The agent's receipt, validated against its schema before it is written (fault e03).
CREATE TABLE receipt (
    trial_id     INTEGER PRIMARY KEY REFERENCES trial,
    schema       INTEGER NOT NULL,
    receipt_json TEXT    NOT NULL CONSTRAINT receipt_is_json CHECK (json_valid(receipt_json)),
    at_ms        INTEGER NOT NULL
) STRICT;

-- One row per trial, account and model that was asked; the scripted answers of the gates are no usage.  cost_usd NULL: some of it has no price.
CREATE VIEW v_usage AS
SELECT campaign.name AS campaign, printf('t%04d', u.trial_id) AS trial, task.name AS task, arm.name AS arm, cell.replicate,
    trial.state, u.account, u.model, u.requests, u.failed, u.unknown, u.input_tokens, u.cached_tokens, u.cache_write_tokens,
    u.output_tokens, u.reasoning_tokens, u.held_ms / 1000.0 AS held_s, u.retries,
    iif(u.unpriced > 0, NULL, u.cost_nusd / 1e9) AS cost_usd, u.unpriced
FROM model_usage AS u
JOIN trial ON trial.trial_id = u.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = trial.arm_id
WHERE u.account <> 'gate';
