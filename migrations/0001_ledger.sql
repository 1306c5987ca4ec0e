-- 0001: the ledger.
-- Every rule that must hold is a constraint, a unique index or a trigger named after the rule, so that the sqlite3 shell meets it too.
-- Vocabularies that grow (events, void codes) are rows, not CHECK lists.  Times are integer milliseconds since 1970 UTC.
-- The migration runner adds, for every table, triggers that refuse writes while foreign keys or recursive triggers are off
-- (see ledger/guards.py): with the latter off, REPLACE would delete rows without asking the triggers below.

-- ── identity and lives ────────────────────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE ledger_identity (
    singleton     INTEGER PRIMARY KEY CONSTRAINT ledger_identity_one_row CHECK (singleton = 1),
    ledger_id     TEXT    NOT NULL CONSTRAINT ledger_id_is_12_hex CHECK (length(ledger_id) = 12 AND ledger_id NOT GLOB '*[^0-9a-f]*'),
    created_at_ms INTEGER NOT NULL,
    path          TEXT    NOT NULL,
    device        INTEGER NOT NULL,
    inode         INTEGER NOT NULL,
    host          TEXT    NOT NULL
) STRICT;

-- One row per daemon life.  Its run_id is the epoch: the writer refuses to write once a newer row exists.
CREATE TABLE run (
    run_id          INTEGER PRIMARY KEY AUTOINCREMENT,
    pid             INTEGER NOT NULL,
    pid_start_ticks INTEGER NOT NULL,
    host            TEXT    NOT NULL,
    boot_id         TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    started_at_ms   INTEGER NOT NULL,
    ready_at_ms     INTEGER,
    seen_at_ms      INTEGER NOT NULL,
    stopped_at_ms   INTEGER,
    stop_reason     TEXT
) STRICT;

-- ── what is compared ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE campaign (
    campaign_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT    NOT NULL CONSTRAINT campaign_name_unique UNIQUE,
    created_at_ms  INTEGER NOT NULL,
    created_by     TEXT    NOT NULL,
    treatment_hash TEXT    NOT NULL,
    treatment_json TEXT    NOT NULL CONSTRAINT campaign_treatment_is_json CHECK (json_valid(treatment_json)),
    config_json    TEXT    NOT NULL CONSTRAINT campaign_config_is_json CHECK (json_valid(config_json)),
    out_dir        TEXT    NOT NULL,
    cell_order     TEXT    NOT NULL,                -- core/order.py; order and seed decide no result and may change
    seed           INTEGER NOT NULL
) STRICT;

CREATE TABLE arm (
    arm_id         INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id    INTEGER NOT NULL REFERENCES campaign,
    name           TEXT    NOT NULL,
    position       INTEGER NOT NULL,
    kind           TEXT    NOT NULL,
    treatment_hash TEXT    NOT NULL,
    data_json      TEXT    NOT NULL CONSTRAINT arm_data_is_json CHECK (json_valid(data_json)),
    CONSTRAINT arm_name_unique_in_campaign UNIQUE (campaign_id, name),
    CONSTRAINT arm_key UNIQUE (arm_id, campaign_id)
) STRICT;

CREATE TABLE task (
    task_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id       INTEGER NOT NULL REFERENCES campaign,
    name              TEXT    NOT NULL,
    path              TEXT    NOT NULL,
    digest            TEXT,                      -- NULL while the directory cannot be read: its cells are parked
    context_digest    TEXT,
    declared_limit_ms INTEGER CONSTRAINT task_limit_positive CHECK (declared_limit_ms > 0),
    cpus              REAL    CONSTRAINT task_cpus_positive CHECK (cpus > 0),
    memory_mb         INTEGER CONSTRAINT task_memory_positive CHECK (memory_mb > 0),
    needs_network     INTEGER NOT NULL CONSTRAINT task_needs_network_is_bool CHECK (needs_network IN (0, 1)),
    data_json         TEXT    NOT NULL CONSTRAINT task_data_is_json CHECK (json_valid(data_json)),
    CONSTRAINT task_name_unique_in_campaign UNIQUE (campaign_id, name),
    CONSTRAINT task_key UNIQUE (task_id, campaign_id)
) STRICT;

-- A block is one task of one replicate with all its arms side by side: the unit of fairness and of paired voids.
CREATE TABLE block (
    block_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id INTEGER NOT NULL REFERENCES campaign,
    task_id     INTEGER NOT NULL,
    replicate   INTEGER NOT NULL CONSTRAINT block_replicate_positive CHECK (replicate >= 1),
    CONSTRAINT block_one_per_task_and_replicate UNIQUE (task_id, replicate),
    CONSTRAINT block_key UNIQUE (block_id, task_id, replicate),
    FOREIGN KEY (task_id, campaign_id) REFERENCES task (task_id, campaign_id)
) STRICT;

CREATE TABLE cell (
    cell_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id INTEGER NOT NULL REFERENCES campaign,
    block_id    INTEGER NOT NULL,
    task_id     INTEGER NOT NULL,
    arm_id      INTEGER NOT NULL,
    replicate   INTEGER NOT NULL,
    ordinal     INTEGER NOT NULL,                -- the planned place, lowest first (core/order.py)
    CONSTRAINT cell_one_per_task_arm_replicate UNIQUE (task_id, arm_id, replicate),
    CONSTRAINT cell_key UNIQUE (cell_id, arm_id),
    FOREIGN KEY (block_id, task_id, replicate) REFERENCES block (block_id, task_id, replicate),
    FOREIGN KEY (arm_id, campaign_id) REFERENCES arm (arm_id, campaign_id),
    FOREIGN KEY (task_id, campaign_id) REFERENCES task (task_id, campaign_id)
) STRICT;
CREATE INDEX cell_in_order ON cell (campaign_id, ordinal);
CREATE INDEX cell_by_block ON cell (block_id);
CREATE INDEX cell_by_arm ON cell (arm_id);

-- ── claims, trials, events ────────────────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE claim (
    claim_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    cell_id        INTEGER NOT NULL REFERENCES cell,
    token          TEXT    NOT NULL CONSTRAINT claim_token_unique UNIQUE,
    run_id         INTEGER NOT NULL REFERENCES run,
    claimed_at_ms  INTEGER NOT NULL,
    released_at_ms INTEGER CONSTRAINT claim_released_at_is_a_time CHECK (released_at_ms >= 0),
    CONSTRAINT claim_key UNIQUE (claim_id, cell_id)
) STRICT;
CREATE UNIQUE INDEX claim_one_live_per_cell ON claim (cell_id) WHERE released_at_ms IS NULL;

-- state repeats the last event's to_state, arm_id the cell's arm, and the five columns after created_at_ms repeat score and trial_agent;
-- triggers alone write them.  They are here for trial_by_arm, so that status counts 100,000 trials in one pass over one index.
CREATE TABLE trial (
    trial_id      INTEGER PRIMARY KEY AUTOINCREMENT,
    cell_id       INTEGER NOT NULL,
    arm_id        INTEGER NOT NULL,
    claim_id      INTEGER NOT NULL CONSTRAINT trial_one_per_claim UNIQUE,
    attempt       INTEGER NOT NULL,
    run_id        INTEGER NOT NULL REFERENCES run,
    state         TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    reward        REAL,
    partial       REAL,
    tests_passed  INTEGER,
    tests_total   INTEGER,
    budget_ended  INTEGER,
    CONSTRAINT trial_attempt_unique_in_cell UNIQUE (cell_id, attempt),
    FOREIGN KEY (claim_id, cell_id) REFERENCES claim (claim_id, cell_id),
    FOREIGN KEY (cell_id, arm_id) REFERENCES cell (cell_id, arm_id)
) STRICT;
-- The first valid trial of a cell counts, by construction: while one stands that is not voided there can be no other (fault a09).
CREATE UNIQUE INDEX trial_one_standing_per_cell ON trial (cell_id) WHERE state <> 'voided';
CREATE INDEX trial_unfinished ON trial (state) WHERE state IN ('new', 'reserved', 'preparing', 'running', 'verifying');
CREATE INDEX trial_by_arm ON trial (arm_id, state, reward, partial, tests_passed, tests_total, budget_ended);
CREATE INDEX trial_in_review ON trial (trial_id) WHERE state = 'review';

CREATE TABLE trial_transition (
    from_state TEXT NOT NULL,
    event      TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    PRIMARY KEY (from_state, event, to_state)
) STRICT, WITHOUT ROWID;
INSERT INTO trial_transition (from_state, event, to_state) VALUES
    ('new',       'reserved',       'reserved'),
    ('reserved',  'environment_up', 'preparing'),
    ('preparing', 'agent_started',  'running'),
    ('running',   'reattached',     'running'),
    ('running',   'agent_ended',    'verifying'),
    ('running',   'budget_spent',   'verifying'),
    ('verifying', 'verify_again',   'verifying'),
    ('verifying', 'scored',         'scored'),
    ('verifying', 'doubted',        'review'),
    ('review',    'accepted',       'scored'),
    ('review',    'voided',         'voided'),
    ('reserved',  'voided',         'voided'),
    ('preparing', 'voided',         'voided'),
    ('running',   'voided',         'voided'),
    ('verifying', 'voided',         'voided'),
    ('scored',    'voided',         'voided'),
    ('voided',    'unvoided',       'scored'),
    ('voided',    'unvoided',       'review');

CREATE TABLE trial_event (
    event_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id    INTEGER NOT NULL REFERENCES trial,
    seq         INTEGER NOT NULL,
    event       TEXT    NOT NULL,
    from_state  TEXT    NOT NULL,
    to_state    TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    run_id      INTEGER NOT NULL REFERENCES run,
    detail_json TEXT    NOT NULL DEFAULT '{}' CONSTRAINT trial_event_detail_is_json CHECK (json_valid(detail_json)),
    CONSTRAINT trial_event_seq_unique UNIQUE (trial_id, seq),
    CONSTRAINT trial_event_is_a_transition FOREIGN KEY (from_state, event, to_state)
        REFERENCES trial_transition (from_state, event, to_state)
) STRICT;

-- ── what exists only in some states ───────────────────────────────────────────────────────────────────────────────────────────────

-- A container's own life: the row commits before the call that creates it; gone_at_ms is set when it was seen gone.
CREATE TABLE container (
    container_row INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id      INTEGER NOT NULL CONSTRAINT container_one_per_trial UNIQUE REFERENCES trial,
    engine        TEXT    NOT NULL,
    name          TEXT    NOT NULL CONSTRAINT container_name_unique UNIQUE,
    image_id      TEXT    NOT NULL,
    context_digest TEXT   NOT NULL,
    intended_at_ms INTEGER NOT NULL,
    docker_id     TEXT    CONSTRAINT container_docker_id_unique UNIQUE,
    started_at    TEXT,
    gone_at_ms    INTEGER,
    gone_because  TEXT    CONSTRAINT container_gone_known CHECK (gone_because IN ('seen_gone', 'never_created', 'ledger_copied')),
    CONSTRAINT container_gone_whole CHECK ((gone_at_ms IS NULL) = (gone_because IS NULL)),
    CONSTRAINT container_never_created_has_no_id CHECK (gone_because IS NOT 'never_created' OR docker_id IS NULL)
) STRICT;
CREATE INDEX container_maybe_there ON container (engine) WHERE gone_at_ms IS NULL;

-- The agent's start: effective deadline with its origin.  Monotonic milliseconds count within boot_id only.
CREATE TABLE trial_agent (
    trial_id          INTEGER PRIMARY KEY REFERENCES trial,
    exec_id           TEXT,
    started_at_ms     INTEGER NOT NULL,
    started_mono_ms   INTEGER NOT NULL,
    boot_id           TEXT    NOT NULL,
    limit_ms          INTEGER CONSTRAINT trial_agent_limit_positive CHECK (limit_ms > 0),
    limit_origin      TEXT    NOT NULL,
    limit_loser       TEXT    NOT NULL,
    credit_ms         INTEGER NOT NULL DEFAULT 0, -- on top of the limit: time that the gateway held requests and that is not charged
    ended_at_ms       INTEGER,
    ended_mono_ms     INTEGER,
    ended_by          TEXT,
    exit_code         INTEGER,
    exit_source       TEXT,                      -- 'exec' (the engine's word) or 'file' (forgeable; only after the engine forgot the exec)
    oom_killed        INTEGER CONSTRAINT trial_agent_oom_is_bool CHECK (oom_killed IN (0, 1)),
    overrun_ms        INTEGER,
    processes_json    TEXT    CONSTRAINT trial_agent_processes_is_json 
        CHECK (processes_json IS NULL OR json_valid(processes_json)),
    CONSTRAINT trial_agent_ends_whole CHECK ((ended_at_ms IS NULL) = (ended_by IS NULL))
) STRICT;

-- Endings (trial_agent.ended_by) that are a spent budget; every other one is the agent's own.
CREATE TABLE budget_end (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO budget_end (name) VALUES ('deadline'), ('timer'), ('turn_cap'), ('token_budget'), ('money');

-- Every run of the verifier, the first and the one "in place".
CREATE TABLE verification (
    trial_id      INTEGER NOT NULL REFERENCES trial,
    round         INTEGER NOT NULL CONSTRAINT verification_round_positive CHECK (round >= 1),
    exec_id       TEXT,
    started_at_ms INTEGER NOT NULL,
    started_mono_ms INTEGER NOT NULL,
    boot_id       TEXT    NOT NULL,
    limit_ms      INTEGER NOT NULL CONSTRAINT verification_limit_positive CHECK (limit_ms > 0),
    limit_origin  TEXT    NOT NULL,
    ended_at_ms   INTEGER,
    outcome       TEXT,                          -- 'exited', 'deadline', 'lost'
    exit_code     INTEGER,
    CONSTRAINT verification_one_per_round PRIMARY KEY (trial_id, round),
    CONSTRAINT verification_ends_whole CHECK ((ended_at_ms IS NULL) = (outcome IS NULL))
) STRICT;

-- What really applied, with origins: network policy per phase, limits, gates passed.  Shown by `marathonctl show`.
CREATE TABLE trial_fact (
    trial_id INTEGER NOT NULL REFERENCES trial,
    name     TEXT    NOT NULL,
    value    TEXT    NOT NULL,
    origin   TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (trial_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE score (
    score_id      INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id      INTEGER NOT NULL REFERENCES trial,
    extractor     INTEGER NOT NULL,
    reward        REAL    NOT NULL CONSTRAINT score_reward_in_range CHECK (reward >= 0 AND reward <= 1),
    reward_source TEXT    NOT NULL,              -- file and key, or 'operator'
    partial       REAL    CONSTRAINT score_partial_in_range CHECK (partial >= 0 AND partial <= 1),
    tests_passed  INTEGER,
    tests_total   INTEGER,
    flags_json    TEXT    NOT NULL CONSTRAINT score_flags_is_json CHECK (json_valid(flags_json)),
    at_ms         INTEGER NOT NULL,
    run_id        INTEGER NOT NULL REFERENCES run,
    CONSTRAINT score_tests_make_sense
        CHECK (tests_passed IS NULL OR (tests_passed >= 0 AND (tests_total IS NULL OR tests_passed <= tests_total)))
) STRICT;
CREATE INDEX score_by_trial ON score (trial_id);

CREATE TABLE score_part (
    score_id INTEGER NOT NULL REFERENCES score,
    name     TEXT    NOT NULL,
    value    TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    PRIMARY KEY (score_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE review (
    review_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id      INTEGER NOT NULL REFERENCES trial,
    code          TEXT    NOT NULL,
    detail        TEXT    NOT NULL,
    evidence_json TEXT    NOT NULL CONSTRAINT review_evidence_is_json CHECK (json_valid(evidence_json)),
    opened_at_ms  INTEGER NOT NULL,
    decided_at_ms INTEGER,
    decision      TEXT,
    author        TEXT,
    reason        TEXT,
    CONSTRAINT review_is_decided_whole CHECK ((decided_at_ms IS NULL) = (decision IS NULL) AND (decision IS NULL) = (author IS NULL))
) STRICT;
CREATE INDEX review_by_trial ON review (trial_id);
CREATE UNIQUE INDEX review_one_open_per_trial ON review (trial_id) WHERE decided_at_ms IS NULL;

CREATE TABLE void_code (
    code        TEXT PRIMARY KEY,
    side        TEXT NOT NULL,                   -- 'infrastructure' (retried within the passes) or 'operator'
    explanation TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO void_code (code, side, explanation) VALUES
    ('network_failed',        'infrastructure', 'the network could not be created for a reason other than a full pool'),
    ('container_failed',      'infrastructure', 'the container could not be created or started'),
    ('image_gone',            'infrastructure', 'the image vanished between the build and the container'),
    ('environment_mismatch',  'infrastructure', 'what the engine shows is not what was asked for: labels, network mode, limits'),
    ('environment_dirty',     'infrastructure', 'the running container carries proxy settings that nobody asked for'),
    ('healthcheck_failed',    'infrastructure', 'the task''s healthcheck did not pass in time'),
    ('install_check_failed',  'infrastructure', 'the arm''s install check did not exit 0'),
    ('gate_failed',           'infrastructure', 'a gate before the agent''s start said no'),
    ('agent_not_started',     'infrastructure', 'the agent''s command could not be executed'),
    ('container_lost',        'infrastructure', 'the container ended or vanished while the trial needed it'),
    ('engine_failed',         'infrastructure', 'the engine answered with an error that none of the other codes names'),
    ('agent_undead',          'infrastructure', 'the agent''s death could not be proven, so the verifier must not start'),
    ('verifier_not_started',  'infrastructure', 'the verifier could not be uploaded or started'),
    ('task_vanished',         'infrastructure', 'the task directory changed or vanished between plan and start'),
    ('daemon_lost',           'infrastructure', 'the daemon ended before the trial''s agent had started'),
    ('host_rebooted',         'infrastructure', 'the host was started anew in the middle of the trial'),
    ('ledger_copied',         'infrastructure', 'the ledger was adopted as a copy; the trial belongs to the original'),
    ('run_dir_lost',          'infrastructure', 'the trial''s run directory cannot be read or written'),
    ('gateway_failed',        'infrastructure', 'the gateway did not open the trial''s way to the model, or lost it'),
    ('sidecar_failed',        'infrastructure', 'codex''s code-mode host does not run in this container'),
    ('config_mismatch',       'infrastructure', 'what codex says it runs with is not what the arm demands'),
    ('model_unreachable',     'infrastructure', 'the scripted command on the configured model did not leave its proof'),
    ('model_failed',          'infrastructure', 'turns failed for reasons of the provider or the gateway, more often than is retried'),
    ('usage_limit',           'infrastructure', 'the provider''s quota is used up'),
    ('driver_failed',         'infrastructure', 'the agent''s server could not be driven: no answer, or an answer of unknown form'),
    ('dead_agent',            'infrastructure', 'no command was run, and the sidecar or the server''s own errors say why'),
    ('accepted',              'infrastructure', 'its gates passed and nothing more was wanted: marathonctl verify-envs'),
    ('operator',              'operator',       'withdrawn by a person'),
    ('provider',              'operator',       'the model provider failed'),
    ('stop_now',              'operator',       'ended by stop --now');

CREATE TABLE void (
    void_id         INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id        INTEGER NOT NULL REFERENCES trial,
    code            TEXT    NOT NULL REFERENCES void_code,
    reason          TEXT    NOT NULL,
    evidence_json   TEXT    NOT NULL CONSTRAINT void_evidence_is_json CHECK (json_valid(evidence_json)),
    decided_by      TEXT    NOT NULL CONSTRAINT void_decided_by_known CHECK (decided_by IN ('daemon', 'operator')),
    author          TEXT    NOT NULL,
    at_ms           INTEGER NOT NULL,
    from_state      TEXT    NOT NULL,
    score_was_known INTEGER NOT NULL CONSTRAINT void_score_was_known_is_bool CHECK (score_was_known IN (0, 1)),
    counts_pass     INTEGER NOT NULL CONSTRAINT void_counts_pass_is_bool CHECK (counts_pass IN (0, 1)),
    batch           TEXT    NOT NULL,            -- voids decided together (a block, an arm) share it
    undone_at_ms    INTEGER,
    undone_by       TEXT,
    undone_reason   TEXT,
    CONSTRAINT void_is_undone_whole CHECK ((undone_at_ms IS NULL) = (undone_by IS NULL))
) STRICT;
CREATE UNIQUE INDEX void_one_standing_per_trial ON void (trial_id) WHERE undone_at_ms IS NULL;
CREATE INDEX void_by_trial ON void (trial_id, void_id);
CREATE INDEX void_by_batch ON void (batch);

CREATE TABLE park (
    park_id      INTEGER PRIMARY KEY AUTOINCREMENT,
    cell_id      INTEGER NOT NULL REFERENCES cell,
    code         TEXT    NOT NULL,
    detail       TEXT    NOT NULL,
    author       TEXT    NOT NULL,
    at_ms        INTEGER NOT NULL,
    ended_at_ms  INTEGER,
    ended_by     TEXT,
    ended_reason TEXT,
    passes_from_void_id INTEGER,                 -- set when a person ends it: earlier voids use up no passes any more
    CONSTRAINT park_ends_whole CHECK ((ended_at_ms IS NULL) = (ended_by IS NULL))
) STRICT;
CREATE UNIQUE INDEX park_one_standing_per_cell ON park (cell_id) WHERE ended_at_ms IS NULL;
CREATE INDEX park_by_cell ON park (cell_id);

-- ── networks ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE network_pool (
    engine       TEXT    PRIMARY KEY,
    url          TEXT    NOT NULL DEFAULT '',    -- where that engine answers; '': never said
    mode         TEXT    NOT NULL CONSTRAINT network_pool_mode_known CHECK (mode IN ('explicit', 'auto')),
    range        TEXT    NOT NULL,
    prefix       INTEGER NOT NULL,
    cap          INTEGER NOT NULL CONSTRAINT network_pool_cap_not_negative CHECK (cap >= 0),
    margin       INTEGER NOT NULL CONSTRAINT network_pool_margin_not_negative CHECK (margin >= 0),
    total        INTEGER,                        -- what could be had if nobody else used it; NULL: unknown
    foreign_used INTEGER,                        -- taken by others' networks, NULL: unknown
    host_used    INTEGER,                        -- taken by routes, interfaces, resolvers, NULL: unknown
    observed_at_ms INTEGER
) STRICT;

-- A lease is a network that may exist.  It outlives trial and claim until the network was seen gone.
CREATE TABLE network_lease (
    lease_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    engine         TEXT    NOT NULL REFERENCES network_pool,
    trial_id       INTEGER NOT NULL REFERENCES trial,
    subnet         TEXT,                         -- NULL in auto mode: the engine chooses
    network_name   TEXT    NOT NULL,
    leased_at_ms   INTEGER NOT NULL,
    network_id     TEXT,
    leaked_at_ms   INTEGER,                      -- first time that its removal was refused or found undone
    remove_attempts INTEGER NOT NULL DEFAULT 0,
    removal_failed_at_ms INTEGER,                -- the last refusal
    released_at_ms INTEGER,
    released_because TEXT CONSTRAINT network_lease_release_known
        CHECK (released_because IN ('seen_gone', 'never_created', 'ledger_copied')),
    CONSTRAINT network_lease_released_whole CHECK ((released_at_ms IS NULL) = (released_because IS NULL))
) STRICT;
CREATE UNIQUE INDEX network_lease_one_live_per_subnet ON network_lease (engine, subnet) WHERE released_at_ms IS NULL AND subnet IS NOT NULL;
CREATE UNIQUE INDEX network_lease_one_live_per_trial ON network_lease (trial_id) WHERE released_at_ms IS NULL;
CREATE INDEX network_lease_live ON network_lease (engine) WHERE released_at_ms IS NULL;

CREATE TABLE subnet_quarantine (
    engine   TEXT    NOT NULL REFERENCES network_pool,
    subnet   TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    detail   TEXT    NOT NULL,
    PRIMARY KEY (engine, subnet)
) STRICT, WITHOUT ROWID;

-- The last complete listing of the engine's networks, so that `pool --foreign` needs no Docker.
CREATE TABLE network_seen (
    engine     TEXT    NOT NULL REFERENCES network_pool,
    network_id TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    owner      TEXT    NOT NULL CONSTRAINT network_seen_owner_known CHECK (owner IN ('ours', 'other_ledger', 'foreign')),
    project    TEXT    NOT NULL,
    subnets    TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    seen_at_ms INTEGER NOT NULL,
    PRIMARY KEY (engine, network_id)
) STRICT, WITHOUT ROWID;

-- ── what the daemon saw and decided ───────────────────────────────────────────────────────────────────────────────────────────────

CREATE TABLE finding (
    finding_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id   INTEGER REFERENCES campaign,
    code          TEXT    NOT NULL,
    severity      TEXT    NOT NULL CONSTRAINT finding_severity_known CHECK (severity IN ('info', 'warning', 'error', 'stop_loss')),
    subject       TEXT    NOT NULL,
    detail        TEXT    NOT NULL,
    opened_at_ms  INTEGER NOT NULL,
    seen_at_ms    INTEGER NOT NULL,
    times         INTEGER NOT NULL DEFAULT 1,
    closed_at_ms  INTEGER,
    acked_at_ms   INTEGER,
    acked_by      TEXT,
    ack_reason    TEXT
) STRICT;
CREATE INDEX finding_by_subject ON finding (subject);
CREATE UNIQUE INDEX finding_one_open_per_subject ON finding (code, subject) WHERE closed_at_ms IS NULL;

-- Why nothing is admitted right now, apart from resources: pause and drain by a person, breaker by the daemon.
CREATE TABLE admission_stop (
    stop_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    kind        TEXT    NOT NULL CONSTRAINT admission_stop_kind_known
        CHECK (kind IN ('pause', 'drain', 'breaker', 'invariant', 'stop_loss')),
    detail      TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    until_ms    INTEGER,
    ended_at_ms INTEGER,
    ended_by    TEXT
) STRICT;
CREATE UNIQUE INDEX admission_stop_one_live_per_kind ON admission_stop (kind) WHERE ended_at_ms IS NULL;

CREATE TABLE setting_change (
    change_id INTEGER PRIMARY KEY AUTOINCREMENT,
    key       TEXT    NOT NULL,
    old_json  TEXT    NOT NULL CONSTRAINT setting_change_old_is_json CHECK (json_valid(old_json)),
    new_json  TEXT    NOT NULL CONSTRAINT setting_change_new_is_json CHECK (json_valid(new_json)),
    author    TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    at_ms     INTEGER NOT NULL,
    run_id    INTEGER NOT NULL REFERENCES run
) STRICT;
CREATE INDEX setting_change_by_key ON setting_change (key, change_id);

-- The daemon's latest word on things that only it can see (waiting reasons, disk, engine health); stale rows read as unknown.
CREATE TABLE observation (
    key        TEXT    PRIMARY KEY,
    value_json TEXT    NOT NULL CONSTRAINT observation_is_json CHECK (json_valid(value_json)),
    at_ms      INTEGER NOT NULL,
    run_id     INTEGER NOT NULL REFERENCES run
) STRICT, WITHOUT ROWID;

CREATE TABLE artifact_export (
    trial_id  INTEGER PRIMARY KEY REFERENCES trial,
    folder    TEXT    NOT NULL,                  -- relative to the campaign's out_dir
    at_ms     INTEGER NOT NULL
) STRICT;

CREATE TABLE artifact (
    trial_id   INTEGER NOT NULL REFERENCES artifact_export,
    path       TEXT    NOT NULL,
    sha256     TEXT    NOT NULL,                 -- empty when the file was left out, and why says why
    size_bytes INTEGER NOT NULL,
    why        TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (trial_id, path)
) STRICT, WITHOUT ROWID;

-- ── rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Every life of the daemon writes under its own number; a life that was replaced must not (the writer asks, too).
CREATE TRIGGER claim_by_newest_run BEFORE INSERT ON claim WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;
CREATE TRIGGER trial_by_newest_run BEFORE INSERT ON trial WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;
CREATE TRIGGER trial_event_by_newest_run BEFORE INSERT ON trial_event WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;

CREATE TRIGGER trial_starts_new BEFORE INSERT ON trial
WHEN NEW.state <> 'new' OR coalesce(NEW.reward, NEW.partial, NEW.tests_passed, NEW.tests_total, NEW.budget_ended) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_starts_new'); END;

CREATE TRIGGER trial_needs_live_claim BEFORE INSERT ON trial
WHEN NOT EXISTS (SELECT 1 FROM claim WHERE claim_id = NEW.claim_id AND cell_id = NEW.cell_id AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'trial_needs_live_claim'); END;

CREATE TRIGGER trial_attempt_is_next BEFORE INSERT ON trial
WHEN NEW.attempt IS NOT (SELECT coalesce(max(attempt), 0) + 1 FROM trial WHERE cell_id = NEW.cell_id)
BEGIN SELECT RAISE(ABORT, 'trial_attempt_is_next'); END;

CREATE TRIGGER trial_is_reserved AFTER INSERT ON trial
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id)
    VALUES (NEW.trial_id, 1, 'reserved', 'new', 'reserved', NEW.created_at_ms, NEW.run_id);
END;

CREATE TRIGGER trial_identity_is_fixed BEFORE UPDATE OF trial_id, cell_id, arm_id, claim_id, attempt, run_id, created_at_ms ON trial
BEGIN SELECT RAISE(ABORT, 'trial_identity_is_fixed'); END;

CREATE TRIGGER trial_state_follows_events BEFORE UPDATE OF state ON trial
WHEN NEW.state IS NOT (SELECT to_state FROM trial_event WHERE trial_id = NEW.trial_id ORDER BY seq DESC LIMIT 1)
BEGIN SELECT RAISE(ABORT, 'trial_state_follows_events'); END;

CREATE TRIGGER trial_repeats_its_score BEFORE UPDATE OF reward, partial, tests_passed, tests_total ON trial WHEN NOT EXISTS
    (SELECT 1 FROM score WHERE trial_id = NEW.trial_id AND score_id = (SELECT max(score_id) FROM score WHERE trial_id = NEW.trial_id)
     AND NEW.reward IS reward AND NEW.partial IS partial AND NEW.tests_passed IS tests_passed AND NEW.tests_total IS tests_total)
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_score'); END;
CREATE TRIGGER trial_repeats_its_agent BEFORE UPDATE OF budget_ended ON trial
WHEN NEW.budget_ended IS NOT (SELECT ended_by IN (SELECT name FROM budget_end) FROM trial_agent WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_agent'); END;

CREATE TRIGGER trial_is_never_deleted BEFORE DELETE ON trial BEGIN SELECT RAISE(ABORT, 'trial_is_never_deleted'); END;

CREATE TRIGGER trial_event_is_gapless BEFORE INSERT ON trial_event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM trial_event WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_event_is_gapless'); END;

CREATE TRIGGER trial_event_starts_where_the_trial_is BEFORE INSERT ON trial_event
WHEN NEW.from_state IS NOT (SELECT state FROM trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_event_starts_where_the_trial_is'); END;

-- The foreign key says the same; the trigger also holds when somebody has foreign keys off and dropped the guards.
CREATE TRIGGER trial_event_is_legal BEFORE INSERT ON trial_event
WHEN NOT EXISTS (SELECT 1 FROM trial_transition WHERE from_state = NEW.from_state AND event = NEW.event AND to_state = NEW.to_state)
BEGIN SELECT RAISE(ABORT, 'trial_event_is_legal'); END;

CREATE TRIGGER environment_up_needs_container BEFORE INSERT ON trial_event WHEN NEW.event = 'environment_up' AND NOT EXISTS
    (SELECT 1 FROM container WHERE trial_id = NEW.trial_id AND docker_id IS NOT NULL AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'environment_up_needs_container'); END;

CREATE TRIGGER environment_up_needs_network BEFORE INSERT ON trial_event WHEN NEW.event = 'environment_up' AND EXISTS
    (SELECT 1 FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE trial_id = NEW.trial_id AND needs_network)
    AND NOT EXISTS (SELECT 1 FROM network_lease WHERE trial_id = NEW.trial_id AND network_id IS NOT NULL AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'environment_up_needs_network'); END;

CREATE TRIGGER agent_started_needs_deadline BEFORE INSERT ON trial_event WHEN NEW.event = 'agent_started'
    AND NOT EXISTS (SELECT 1 FROM trial_agent WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'agent_started_needs_deadline'); END;

CREATE TRIGGER agent_ended_needs_ending BEFORE INSERT ON trial_event WHEN NEW.event IN ('agent_ended', 'budget_spent')
    AND NOT EXISTS (SELECT 1 FROM trial_agent WHERE trial_id = NEW.trial_id AND ended_at_ms IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'agent_ended_needs_ending'); END;

CREATE TRIGGER verify_again_only_once BEFORE INSERT ON trial_event WHEN NEW.event = 'verify_again'
    AND json_extract(NEW.detail_json, '$.cause') IS NOT 'interrupted'
    AND EXISTS (SELECT 1 FROM trial_event WHERE trial_id = NEW.trial_id AND event = 'verify_again'
                AND json_extract(detail_json, '$.cause') IS NOT 'interrupted')
BEGIN SELECT RAISE(ABORT, 'verify_again_only_once'); END;

CREATE TRIGGER scored_needs_score BEFORE INSERT ON trial_event WHEN NEW.to_state = 'scored'
    AND NOT EXISTS (SELECT 1 FROM score WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'scored_needs_score'); END;

CREATE TRIGGER review_needs_evidence BEFORE INSERT ON trial_event WHEN NEW.to_state = 'review'
    AND NOT EXISTS (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'review_needs_evidence'); END;

CREATE TRIGGER voided_needs_void BEFORE INSERT ON trial_event WHEN NEW.to_state = 'voided'
    AND NOT EXISTS (SELECT 1 FROM void WHERE trial_id = NEW.trial_id AND undone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'voided_needs_void'); END;

-- A void that is undone moves its trial itself (below), to where it came from and only without a later trial.
CREATE TRIGGER unvoided_needs_undone_void BEFORE INSERT ON trial_event WHEN NEW.event = 'unvoided'
    AND EXISTS (SELECT 1 FROM void WHERE trial_id = NEW.trial_id AND undone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'unvoided_needs_undone_void'); END;

CREATE TRIGGER trial_event_moves_the_trial AFTER INSERT ON trial_event
BEGIN UPDATE trial SET state = NEW.to_state WHERE trial_id = NEW.trial_id; END;

CREATE TRIGGER trial_event_is_append_only_u BEFORE UPDATE ON trial_event BEGIN SELECT RAISE(ABORT, 'trial_event_is_append_only'); END;
CREATE TRIGGER trial_event_is_append_only_d BEFORE DELETE ON trial_event BEGIN SELECT RAISE(ABORT, 'trial_event_is_append_only'); END;

CREATE TRIGGER claim_is_fixed BEFORE UPDATE OF claim_id, cell_id, token, run_id, claimed_at_ms ON claim
BEGIN SELECT RAISE(ABORT, 'claim_is_fixed'); END;
CREATE TRIGGER claim_is_never_deleted BEFORE DELETE ON claim BEGIN SELECT RAISE(ABORT, 'claim_is_never_deleted'); END;
CREATE TRIGGER claim_starts_live BEFORE INSERT ON claim WHEN NEW.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'claim_starts_live'); END;
CREATE TRIGGER claim_released_once BEFORE UPDATE OF released_at_ms ON claim WHEN OLD.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'claim_released_once'); END;
CREATE TRIGGER claim_released_only_after_trial BEFORE UPDATE OF released_at_ms ON claim WHEN EXISTS
    (SELECT 1 FROM trial WHERE claim_id = NEW.claim_id AND state NOT IN ('scored', 'voided', 'review'))
BEGIN SELECT RAISE(ABORT, 'claim_released_only_after_trial'); END;
CREATE TRIGGER claim_released_only_after_container BEFORE UPDATE OF released_at_ms ON claim WHEN EXISTS
    (SELECT 1 FROM trial JOIN container USING (trial_id) WHERE claim_id = NEW.claim_id AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'claim_released_only_after_container'); END;
-- A cell is claimed only while it is open: nothing standing, not parked (claim_one_live_per_cell covers the rest).
CREATE TRIGGER claim_only_open_cell BEFORE INSERT ON claim WHEN
    EXISTS (SELECT 1 FROM trial WHERE cell_id = NEW.cell_id AND state <> 'voided')
    OR EXISTS (SELECT 1 FROM park WHERE cell_id = NEW.cell_id AND ended_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'claim_only_open_cell'); END;

CREATE TRIGGER container_is_fixed BEFORE UPDATE OF container_row, trial_id, engine, name, image_id, context_digest, intended_at_ms
    ON container
BEGIN SELECT RAISE(ABORT, 'container_is_fixed'); END;
CREATE TRIGGER container_id_set_once BEFORE UPDATE OF docker_id ON container
WHEN OLD.docker_id IS NOT NULL AND NEW.docker_id IS NOT OLD.docker_id
BEGIN SELECT RAISE(ABORT, 'container_id_set_once'); END;
CREATE TRIGGER container_stays_gone BEFORE UPDATE OF gone_at_ms, gone_because, docker_id ON container WHEN OLD.gone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'container_stays_gone'); END;
CREATE TRIGGER container_is_never_deleted BEFORE DELETE ON container BEGIN SELECT RAISE(ABORT, 'container_is_never_deleted'); END;
CREATE TRIGGER container_needs_live_trial BEFORE INSERT ON container
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'reserved'
BEGIN SELECT RAISE(ABORT, 'container_needs_live_trial'); END;

-- The subnet gate: no container of a task with network without a network of its own (faults b01, b05).
CREATE TRIGGER container_needs_lease BEFORE INSERT ON container WHEN EXISTS
    (SELECT 1 FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE trial_id = NEW.trial_id AND needs_network)
    AND NOT EXISTS (SELECT 1 FROM network_lease WHERE trial_id = NEW.trial_id AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'container_needs_lease'); END;
CREATE TRIGGER container_starts_there BEFORE INSERT ON container WHEN NEW.gone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'container_starts_there'); END;

CREATE TRIGGER network_lease_needs_live_trial BEFORE INSERT ON network_lease
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'reserved'
BEGIN SELECT RAISE(ABORT, 'network_lease_needs_live_trial'); END;
CREATE TRIGGER network_lease_within_cap BEFORE INSERT ON network_lease WHEN
    (SELECT count(*) FROM network_lease WHERE engine = NEW.engine AND released_at_ms IS NULL)
    >= (SELECT cap FROM network_pool WHERE engine = NEW.engine)
BEGIN SELECT RAISE(ABORT, 'network_lease_within_cap'); END;
CREATE TRIGGER network_lease_starts_live BEFORE INSERT ON network_lease WHEN NEW.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'network_lease_starts_live'); END;
CREATE TRIGGER network_lease_network_id_set_once BEFORE UPDATE OF network_id ON network_lease
WHEN OLD.network_id IS NOT NULL AND NEW.network_id IS NOT OLD.network_id
BEGIN SELECT RAISE(ABORT, 'network_lease_network_id_set_once'); END;
CREATE TRIGGER network_lease_is_fixed BEFORE UPDATE OF lease_id, engine, trial_id, subnet, network_name, leased_at_ms ON network_lease
BEGIN SELECT RAISE(ABORT, 'network_lease_is_fixed'); END;
CREATE TRIGGER network_lease_released_once BEFORE UPDATE OF released_at_ms, released_because, network_id ON network_lease
WHEN OLD.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'network_lease_released_once'); END;
CREATE TRIGGER network_lease_outlives_container BEFORE UPDATE OF released_at_ms ON network_lease
WHEN NEW.released_because = 'seen_gone' AND EXISTS
    (SELECT 1 FROM container WHERE trial_id = NEW.trial_id AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'network_lease_outlives_container'); END;
CREATE TRIGGER network_lease_is_never_deleted BEFORE DELETE ON network_lease
BEGIN SELECT RAISE(ABORT, 'network_lease_is_never_deleted'); END;

CREATE TRIGGER score_is_fixed_u BEFORE UPDATE ON score BEGIN SELECT RAISE(ABORT, 'score_is_fixed'); END;
CREATE TRIGGER score_is_fixed_d BEFORE DELETE ON score BEGIN SELECT RAISE(ABORT, 'score_is_fixed'); END;
CREATE TRIGGER score_only_while_graded BEFORE INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('verifying', 'review', 'scored')
BEGIN SELECT RAISE(ABORT, 'score_only_while_graded'); END;
CREATE TRIGGER score_of_review_needs_acceptance BEFORE INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) = 'review' AND EXISTS
    (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'score_of_review_needs_acceptance'); END;
-- A score is final when it is written: the same statement moves the trial (fault d01).
CREATE TRIGGER score_ends_the_trial AFTER INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IN ('verifying', 'review')
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    SELECT trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id),
        iif(state = 'review', 'accepted', 'scored'), state, 'scored', NEW.at_ms, NEW.run_id, json_object('score_id', NEW.score_id)
    FROM trial WHERE trial_id = NEW.trial_id;
END;
CREATE TRIGGER score_is_repeated_in_trial AFTER INSERT ON score
BEGIN
    UPDATE trial SET reward = NEW.reward, partial = NEW.partial, tests_passed = NEW.tests_passed, tests_total = NEW.tests_total
    WHERE trial_id = NEW.trial_id;
END;
CREATE TRIGGER score_part_is_fixed_u BEFORE UPDATE ON score_part BEGIN SELECT RAISE(ABORT, 'score_part_is_fixed'); END;
CREATE TRIGGER score_part_is_fixed_d BEFORE DELETE ON score_part BEGIN SELECT RAISE(ABORT, 'score_part_is_fixed'); END;

CREATE TRIGGER void_is_fixed BEFORE UPDATE OF void_id, trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state,
    score_was_known, counts_pass, batch ON void
BEGIN SELECT RAISE(ABORT, 'void_is_fixed'); END;
CREATE TRIGGER void_undone_once BEFORE UPDATE OF undone_at_ms ON void WHEN OLD.undone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'void_undone_once'); END;
CREATE TRIGGER void_is_never_deleted BEFORE DELETE ON void BEGIN SELECT RAISE(ABORT, 'void_is_never_deleted'); END;
CREATE TRIGGER void_says_the_state BEFORE INSERT ON void WHEN NEW.from_state IS NOT (SELECT state FROM trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'void_says_the_state'); END;
CREATE TRIGGER void_says_whether_score_was_known BEFORE INSERT ON void
WHEN NEW.score_was_known IS NOT EXISTS (SELECT 1 FROM score WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'void_says_whether_score_was_known'); END;
CREATE TRIGGER void_starts_standing BEFORE INSERT ON void WHEN NEW.undone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'void_starts_standing'); END;
CREATE TRIGGER void_needs_decided_review BEFORE INSERT ON void
WHEN EXISTS (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'void_needs_decided_review'); END;
CREATE TRIGGER void_undone_only_without_later_trial BEFORE UPDATE OF undone_at_ms ON void WHEN EXISTS
    (SELECT 1 FROM trial t JOIN trial later ON later.cell_id = t.cell_id AND later.attempt > t.attempt WHERE t.trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'unvoided_only_without_later_trial'); END;
CREATE TRIGGER void_undone_only_from_rest BEFORE UPDATE OF undone_at_ms ON void WHEN OLD.from_state NOT IN ('scored', 'review')
BEGIN SELECT RAISE(ABORT, 'void_undone_only_from_rest'); END;
-- A void and its undoing move the trial in the same statement: no void stands beside a trial that counts.
CREATE TRIGGER void_moves_the_trial AFTER INSERT ON void
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'voided', NEW.from_state, 'voided',
        NEW.at_ms, (SELECT max(run_id) FROM run), json_object('void_id', NEW.void_id, 'code', NEW.code, 'by', NEW.author));
END;
CREATE TRIGGER void_undone_moves_the_trial AFTER UPDATE OF undone_at_ms ON void
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'unvoided', 'voided', NEW.from_state,
        NEW.undone_at_ms, (SELECT max(run_id) FROM run), json_object('void_id', NEW.void_id, 'by', NEW.undone_by));
END;
CREATE TRIGGER void_after_score_only_by_operator BEFORE INSERT ON void
WHEN NEW.decided_by = 'daemon' AND NEW.from_state IN ('scored', 'review')
BEGIN SELECT RAISE(ABORT, 'void_after_score_only_by_operator'); END;

CREATE TRIGGER trial_agent_needs_prepared_trial BEFORE INSERT ON trial_agent
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'preparing'
BEGIN SELECT RAISE(ABORT, 'trial_agent_needs_prepared_trial'); END;
CREATE TRIGGER trial_agent_start_is_fixed BEFORE UPDATE OF trial_id, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms,
    limit_origin, limit_loser ON trial_agent
BEGIN SELECT RAISE(ABORT, 'trial_agent_start_is_fixed'); END;
CREATE TRIGGER trial_agent_ends_once BEFORE UPDATE ON trial_agent WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_agent_ends_once'); END;
CREATE TRIGGER trial_agent_starts_running BEFORE INSERT ON trial_agent WHEN NEW.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_agent_starts_running'); END;
CREATE TRIGGER trial_agent_is_repeated_in_trial AFTER UPDATE OF ended_by ON trial_agent
BEGIN UPDATE trial SET budget_ended = NEW.ended_by IN (SELECT name FROM budget_end) WHERE trial_id = NEW.trial_id; END;
CREATE TRIGGER trial_agent_is_never_deleted BEFORE DELETE ON trial_agent
BEGIN SELECT RAISE(ABORT, 'trial_agent_is_never_deleted'); END;

CREATE TRIGGER verification_needs_verifying_trial BEFORE INSERT ON verification
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'verifying'
BEGIN SELECT RAISE(ABORT, 'verification_needs_verifying_trial'); END;
CREATE TRIGGER verification_start_is_fixed BEFORE UPDATE OF trial_id, round, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms,
    limit_origin ON verification
BEGIN SELECT RAISE(ABORT, 'verification_start_is_fixed'); END;
CREATE TRIGGER verification_ends_once BEFORE UPDATE ON verification WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verification_ends_once'); END;
CREATE TRIGGER verification_is_never_deleted BEFORE DELETE ON verification
BEGIN SELECT RAISE(ABORT, 'verification_is_never_deleted'); END;

CREATE TRIGGER park_is_fixed BEFORE UPDATE OF park_id, cell_id, code, at_ms ON park BEGIN SELECT RAISE(ABORT, 'park_is_fixed'); END;
CREATE TRIGGER park_ends_once BEFORE UPDATE ON park WHEN OLD.ended_at_ms IS NOT NULL BEGIN SELECT RAISE(ABORT, 'park_ends_once'); END;
CREATE TRIGGER park_is_never_deleted BEFORE DELETE ON park BEGIN SELECT RAISE(ABORT, 'park_is_never_deleted'); END;

CREATE TRIGGER review_only_of_doubted_trial BEFORE INSERT ON review
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('verifying', 'voided') OR NEW.decided_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'review_only_of_doubted_trial'); END;
CREATE TRIGGER review_moves_the_trial AFTER INSERT ON review
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) = 'verifying'
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'doubted', 'verifying', 'review',
        NEW.opened_at_ms, (SELECT max(run_id) FROM run), json_object('review_id', NEW.review_id, 'code', NEW.code));
END;
CREATE TRIGGER review_is_fixed BEFORE UPDATE OF review_id, trial_id, code, detail, evidence_json, opened_at_ms ON review
BEGIN SELECT RAISE(ABORT, 'review_is_fixed'); END;
CREATE TRIGGER review_decided_once BEFORE UPDATE ON review WHEN OLD.decided_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'review_decided_once'); END;
CREATE TRIGGER review_is_never_deleted BEFORE DELETE ON review BEGIN SELECT RAISE(ABORT, 'review_is_never_deleted'); END;

CREATE TRIGGER campaign_treatment_is_fixed BEFORE UPDATE OF campaign_id, name, treatment_hash, treatment_json ON campaign
BEGIN SELECT RAISE(ABORT, 'campaign_treatment_is_fixed'); END;
CREATE TRIGGER campaign_is_never_deleted BEFORE DELETE ON campaign BEGIN SELECT RAISE(ABORT, 'campaign_is_never_deleted'); END;
CREATE TRIGGER arm_treatment_is_fixed BEFORE UPDATE OF campaign_id, name, kind, treatment_hash, data_json ON arm
BEGIN SELECT RAISE(ABORT, 'arm_treatment_is_fixed'); END;
CREATE TRIGGER arm_is_never_deleted BEFORE DELETE ON arm BEGIN SELECT RAISE(ABORT, 'arm_is_never_deleted'); END;
CREATE TRIGGER task_digest_is_fixed BEFORE UPDATE OF campaign_id, name, digest, context_digest ON task
WHEN OLD.digest IS NOT NULL AND (NEW.digest IS NOT OLD.digest OR NEW.name IS NOT OLD.name OR NEW.campaign_id IS NOT OLD.campaign_id
    OR NEW.context_digest IS NOT OLD.context_digest)
BEGIN SELECT RAISE(ABORT, 'task_digest_is_fixed'); END;
CREATE TRIGGER task_is_never_deleted BEFORE DELETE ON task BEGIN SELECT RAISE(ABORT, 'task_is_never_deleted'); END;
CREATE TRIGGER cell_is_fixed BEFORE UPDATE OF campaign_id, block_id, task_id, arm_id, replicate ON cell
BEGIN SELECT RAISE(ABORT, 'cell_is_fixed'); END;
CREATE TRIGGER cell_is_never_deleted BEFORE DELETE ON cell BEGIN SELECT RAISE(ABORT, 'cell_is_never_deleted'); END;
CREATE TRIGGER block_is_fixed BEFORE UPDATE ON block BEGIN SELECT RAISE(ABORT, 'block_is_fixed'); END;
CREATE TRIGGER block_is_never_deleted BEFORE DELETE ON block BEGIN SELECT RAISE(ABORT, 'block_is_never_deleted'); END;
CREATE TRIGGER run_is_fixed BEFORE UPDATE OF run_id, pid, pid_start_ticks, host, boot_id, version, started_at_ms ON run
BEGIN SELECT RAISE(ABORT, 'run_is_fixed'); END;
CREATE TRIGGER run_number_grows BEFORE INSERT ON run WHEN NEW.run_id > 0 AND NEW.run_id <= (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'run_number_grows'); END;
CREATE TRIGGER run_is_never_deleted BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run_is_never_deleted'); END;
CREATE TRIGGER ledger_identity_is_never_deleted BEFORE DELETE ON ledger_identity
BEGIN SELECT RAISE(ABORT, 'ledger_identity_is_never_deleted'); END;
CREATE TRIGGER network_pool_is_never_deleted BEFORE DELETE ON network_pool
BEGIN SELECT RAISE(ABORT, 'network_pool_is_never_deleted'); END;
CREATE TRIGGER trial_fact_is_never_deleted BEFORE DELETE ON trial_fact BEGIN SELECT RAISE(ABORT, 'trial_fact_is_never_deleted'); END;
CREATE TRIGGER finding_is_fixed BEFORE UPDATE OF finding_id, code, subject, opened_at_ms ON finding
BEGIN SELECT RAISE(ABORT, 'finding_is_fixed'); END;
CREATE TRIGGER finding_closes_once BEFORE UPDATE OF closed_at_ms, seen_at_ms, times ON finding WHEN OLD.closed_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'finding_closes_once'); END;
CREATE TRIGGER finding_is_never_deleted BEFORE DELETE ON finding BEGIN SELECT RAISE(ABORT, 'finding_is_never_deleted'); END;
CREATE TRIGGER admission_stop_is_fixed BEFORE UPDATE OF stop_id, kind, detail, author, at_ms ON admission_stop
BEGIN SELECT RAISE(ABORT, 'admission_stop_is_fixed'); END;
CREATE TRIGGER admission_stop_ends_once BEFORE UPDATE ON admission_stop WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'admission_stop_ends_once'); END;
CREATE TRIGGER admission_stop_is_never_deleted BEFORE DELETE ON admission_stop
BEGIN SELECT RAISE(ABORT, 'admission_stop_is_never_deleted'); END;
CREATE TRIGGER setting_change_is_append_only_u BEFORE UPDATE ON setting_change
BEGIN SELECT RAISE(ABORT, 'setting_change_is_append_only'); END;
CREATE TRIGGER setting_change_is_append_only_d BEFORE DELETE ON setting_change
BEGIN SELECT RAISE(ABORT, 'setting_change_is_append_only'); END;
CREATE TRIGGER artifact_export_only_at_rest BEFORE INSERT ON artifact_export
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided', 'review')
BEGIN SELECT RAISE(ABORT, 'artifact_export_only_at_rest'); END;
CREATE TRIGGER artifact_export_is_fixed_u BEFORE UPDATE ON artifact_export BEGIN SELECT RAISE(ABORT, 'artifact_export_is_fixed'); END;
CREATE TRIGGER artifact_export_is_fixed_d BEFORE DELETE ON artifact_export BEGIN SELECT RAISE(ABORT, 'artifact_export_is_fixed'); END;
CREATE TRIGGER artifact_is_fixed_u BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact_is_fixed'); END;
CREATE TRIGGER artifact_is_fixed_d BEFORE DELETE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact_is_fixed'); END;
-- A migration that teaches the ledger a new transition drops these three, inserts, and makes them again.
CREATE TRIGGER trial_transition_is_fixed_i BEFORE INSERT ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;
CREATE TRIGGER trial_transition_is_fixed_u BEFORE UPDATE ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;
CREATE TRIGGER trial_transition_is_fixed_d BEFORE DELETE ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;
CREATE TRIGGER void_code_is_fixed_u BEFORE UPDATE ON void_code BEGIN SELECT RAISE(ABORT, 'void_code_is_fixed'); END;
CREATE TRIGGER void_code_is_fixed_d BEFORE DELETE ON void_code BEGIN SELECT RAISE(ABORT, 'void_code_is_fixed'); END;
