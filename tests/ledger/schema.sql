-- user_version 7, application_id 0x6d72746e; made by: python tests/ledger/test_migrate.py

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

CREATE TABLE archive (
    archive_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id      INTEGER NOT NULL REFERENCES artifact_export,
    file          TEXT    NOT NULL CONSTRAINT archive_file_is_absolute CHECK (file GLOB '/*'),
    sha256        TEXT    NOT NULL CONSTRAINT archive_sha256_is_64_hex CHECK (length(sha256) = 64 AND sha256 NOT GLOB '*[^0-9a-f]*'),
    size_bytes    INTEGER NOT NULL CONSTRAINT archive_is_not_empty CHECK (size_bytes > 0),
    files         INTEGER NOT NULL,              -- in it
    content_bytes INTEGER NOT NULL,              -- of those, unpacked
    author        TEXT    NOT NULL,
    at_ms         INTEGER NOT NULL,
    ended_at_ms   INTEGER,
    ended_by      TEXT,
    ended_reason  TEXT,
    CONSTRAINT archive_ends_whole CHECK ((ended_at_ms IS NULL) = (ended_by IS NULL) AND (ended_by IS NULL) = (ended_reason IS NULL))
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

CREATE TABLE artifact (
    trial_id   INTEGER NOT NULL REFERENCES artifact_export,
    path       TEXT    NOT NULL,
    sha256     TEXT    NOT NULL,                 -- empty when the file was left out, and why says why
    size_bytes INTEGER NOT NULL,
    why        TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (trial_id, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifact_export (
    trial_id  INTEGER PRIMARY KEY REFERENCES trial,
    folder    TEXT    NOT NULL,                  -- relative to the campaign's out_dir
    at_ms     INTEGER NOT NULL
) STRICT;

CREATE TABLE block (
    block_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign_id INTEGER NOT NULL REFERENCES campaign,
    task_id     INTEGER NOT NULL,
    replicate   INTEGER NOT NULL CONSTRAINT block_replicate_positive CHECK (replicate >= 1),
    CONSTRAINT block_one_per_task_and_replicate UNIQUE (task_id, replicate),
    CONSTRAINT block_key UNIQUE (block_id, task_id, replicate),
    FOREIGN KEY (task_id, campaign_id) REFERENCES task (task_id, campaign_id)
) STRICT;

CREATE TABLE budget_end (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

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
, origin TEXT NOT NULL DEFAULT 'run' CONSTRAINT campaign_origin_known CHECK (origin IN ('run', 'import'))) STRICT;

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

CREATE TABLE claim (
    claim_id       INTEGER PRIMARY KEY AUTOINCREMENT,
    cell_id        INTEGER NOT NULL REFERENCES cell,
    token          TEXT    NOT NULL CONSTRAINT claim_token_unique UNIQUE,
    run_id         INTEGER NOT NULL REFERENCES run,
    claimed_at_ms  INTEGER NOT NULL,
    released_at_ms INTEGER CONSTRAINT claim_released_at_is_a_time CHECK (released_at_ms >= 0),
    CONSTRAINT claim_key UNIQUE (claim_id, cell_id)
) STRICT;

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

CREATE TABLE first_request (
    trial_id   INTEGER PRIMARY KEY REFERENCES trial,
    shape_json TEXT    NOT NULL CONSTRAINT first_request_shape_is_json CHECK (json_valid(shape_json)),
    at_ms      INTEGER NOT NULL
) STRICT;

CREATE TABLE gateway_journal (
    journal_id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity   TEXT    NOT NULL CONSTRAINT gateway_journal_taken_once UNIQUE,   -- its own word; '': nothing was read of it yet
    segment    INTEGER NOT NULL,
    byte       INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL
) STRICT;

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

CREATE TABLE ledger_identity (
    singleton     INTEGER PRIMARY KEY CONSTRAINT ledger_identity_one_row CHECK (singleton = 1),
    ledger_id     TEXT    NOT NULL CONSTRAINT ledger_id_is_12_hex CHECK (length(ledger_id) = 12 AND ledger_id NOT GLOB '*[^0-9a-f]*'),
    created_at_ms INTEGER NOT NULL,
    path          TEXT    NOT NULL,
    device        INTEGER NOT NULL,
    inode         INTEGER NOT NULL,
    host          TEXT    NOT NULL
) STRICT;

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

CREATE TABLE notice (
    notice_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    key          TEXT    NOT NULL CONSTRAINT notice_told_once UNIQUE,   -- of the event: finding:12, stop:3, done:1:40
    kind         TEXT    NOT NULL,
    message_json TEXT    NOT NULL CONSTRAINT notice_message_is_json CHECK (json_valid(message_json)),
    at_ms        INTEGER NOT NULL
) STRICT;

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

CREATE TABLE observation (
    key        TEXT    PRIMARY KEY,
    value_json TEXT    NOT NULL CONSTRAINT observation_is_json CHECK (json_valid(value_json)),
    at_ms      INTEGER NOT NULL,
    run_id     INTEGER NOT NULL REFERENCES run
) STRICT, WITHOUT ROWID;

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

CREATE TABLE prune (
    prune_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT    NOT NULL CONSTRAINT prune_kind_known CHECK (kind IN ('artifacts', 'run_dir', 'build_log', 'backup')),
    path         TEXT    NOT NULL CONSTRAINT prune_path_is_absolute CHECK (path GLOB '/*'),
    trial_id     INTEGER REFERENCES trial,       -- of artifacts and of a run directory
    archive_id   INTEGER REFERENCES archive,     -- what artifacts are kept in
    unarchived   INTEGER NOT NULL CONSTRAINT prune_unarchived_is_bool CHECK (unarchived IN (0, 1)),  -- said: they may be lost
    rested_at_ms INTEGER NOT NULL,               -- since when it was at rest, by the ledger's own times
    files        INTEGER NOT NULL,
    size_bytes   INTEGER NOT NULL,
    author       TEXT    NOT NULL,
    reason       TEXT    NOT NULL CONSTRAINT prune_says_why CHECK (trim(reason) <> ''),
    at_ms        INTEGER NOT NULL,
    done_at_ms   INTEGER,
    CONSTRAINT prune_of_a_trial_or_of_none CHECK ((kind IN ('artifacts', 'run_dir')) = (trial_id IS NOT NULL)),
    CONSTRAINT prune_archive_of_artifacts CHECK (kind = 'artifacts' OR (archive_id IS NULL AND unarchived = 0)),
    CONSTRAINT prune_archived_or_said CHECK (kind <> 'artifacts' OR (archive_id IS NULL) = (unarchived = 1)),
    CONSTRAINT prune_after_the_rest CHECK (rested_at_ms <= at_ms)
) STRICT;

CREATE TABLE receipt (
    trial_id     INTEGER PRIMARY KEY REFERENCES trial,
    schema       INTEGER NOT NULL,
    receipt_json TEXT    NOT NULL CONSTRAINT receipt_is_json CHECK (json_valid(receipt_json)),
    at_ms        INTEGER NOT NULL
) STRICT;

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
    run_id        INTEGER NOT NULL REFERENCES run, test_rate REAL CONSTRAINT score_test_rate_in_range CHECK (test_rate >= 0 AND test_rate <= 1),
    CONSTRAINT score_tests_make_sense
        CHECK (tests_passed IS NULL OR (tests_passed >= 0 AND (tests_total IS NULL OR tests_passed <= tests_total)))
) STRICT;

CREATE TABLE score_part (
    score_id INTEGER NOT NULL REFERENCES score,
    name     TEXT    NOT NULL,
    value    TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    PRIMARY KEY (score_id, name)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE subnet_quarantine (
    engine   TEXT    NOT NULL REFERENCES network_pool,
    subnet   TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    detail   TEXT    NOT NULL,
    PRIMARY KEY (engine, subnet)
) STRICT, WITHOUT ROWID;

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
    budget_ended  INTEGER, cost_nusd INTEGER NOT NULL DEFAULT 0, priced INTEGER NOT NULL DEFAULT 0, cut INTEGER NOT NULL DEFAULT 0, test_rate REAL,
    CONSTRAINT trial_attempt_unique_in_cell UNIQUE (cell_id, attempt),
    FOREIGN KEY (claim_id, cell_id) REFERENCES claim (claim_id, cell_id),
    FOREIGN KEY (cell_id, arm_id) REFERENCES cell (cell_id, arm_id)
) STRICT;

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

CREATE TABLE trial_fact (
    trial_id INTEGER NOT NULL REFERENCES trial,
    name     TEXT    NOT NULL,
    value    TEXT    NOT NULL,
    origin   TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (trial_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE trial_transition (
    from_state TEXT NOT NULL,
    event      TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    PRIMARY KEY (from_state, event, to_state)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE verifier_turn (
    turn_id       INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order in which they asked
    trial_id      INTEGER NOT NULL REFERENCES trial,
    round         INTEGER NOT NULL,
    alone         TEXT    NOT NULL CONSTRAINT verifier_turn_alone_known CHECK (alone IN ('no', 'verifiers', 'everything')),
    asked_at_ms   INTEGER NOT NULL,
    granted_at_ms INTEGER,
    agents_beside INTEGER,
    ended_at_ms   INTEGER,
    CONSTRAINT verifier_turn_one_per_round UNIQUE (trial_id, round),
    CONSTRAINT verifier_turn_granted_whole CHECK ((granted_at_ms IS NULL) = (agents_beside IS NULL)),
    CONSTRAINT verifier_turn_no_agent_beside CHECK (alone <> 'everything' OR coalesce(agents_beside, 0) = 0)
) STRICT;

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

CREATE TABLE void_code (
    code        TEXT PRIMARY KEY,
    side        TEXT NOT NULL,                   -- 'infrastructure' (retried within the passes) or 'operator'
    explanation TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX admission_stop_one_live_per_kind ON admission_stop (kind) WHERE ended_at_ms IS NULL;

CREATE INDEX archive_by_trial ON archive (trial_id);

CREATE UNIQUE INDEX archive_one_standing_per_file ON archive (file) WHERE ended_at_ms IS NULL;

CREATE UNIQUE INDEX archive_one_standing_per_trial ON archive (trial_id) WHERE ended_at_ms IS NULL;

CREATE INDEX cell_by_arm ON cell (arm_id);

CREATE INDEX cell_by_block ON cell (block_id);

CREATE INDEX cell_in_order ON cell (campaign_id, ordinal);

CREATE UNIQUE INDEX claim_one_live_per_cell ON claim (cell_id) WHERE released_at_ms IS NULL;

CREATE INDEX container_maybe_there ON container (engine) WHERE gone_at_ms IS NULL;

CREATE INDEX finding_by_subject ON finding (subject);

CREATE UNIQUE INDEX finding_one_open_per_subject ON finding (code, subject) WHERE closed_at_ms IS NULL;

CREATE INDEX imported_trial_by_key ON imported_trial (key);

CREATE INDEX model_request_by_trial ON model_request (trial_id, account, number);

CREATE INDEX model_request_held ON model_request (trial_id, held_from_mono_ms) WHERE held_from_mono_ms IS NOT NULL;

CREATE INDEX model_request_open ON model_request (trial_id) WHERE ended_at_ms IS NULL;

CREATE INDEX model_request_unpriced ON model_request (model) WHERE cost_nusd IS NULL AND usage = 'known';

CREATE INDEX model_usage_unpriced ON model_usage (model) WHERE unpriced > 0;

CREATE INDEX network_lease_live ON network_lease (engine) WHERE released_at_ms IS NULL;

CREATE UNIQUE INDEX network_lease_one_live_per_subnet ON network_lease (engine, subnet) WHERE released_at_ms IS NULL AND subnet IS NOT NULL;

CREATE UNIQUE INDEX network_lease_one_live_per_trial ON network_lease (trial_id) WHERE released_at_ms IS NULL;

CREATE INDEX notice_unsent ON notice_sending (channel) WHERE told_at_ms IS NULL AND gave_up_at_ms IS NULL;

CREATE INDEX park_by_cell ON park (cell_id);

CREATE UNIQUE INDEX park_one_standing_per_cell ON park (cell_id) WHERE ended_at_ms IS NULL;

CREATE UNIQUE INDEX prune_once_per_trial ON prune (trial_id, kind) WHERE trial_id IS NOT NULL;

CREATE UNIQUE INDEX prune_one_open_per_path ON prune (path) WHERE done_at_ms IS NULL;

CREATE INDEX review_by_trial ON review (trial_id);

CREATE UNIQUE INDEX review_one_open_per_trial ON review (trial_id) WHERE decided_at_ms IS NULL;

CREATE INDEX score_by_trial ON score (trial_id);

CREATE INDEX setting_change_by_key ON setting_change (key, change_id);

CREATE INDEX trial_by_arm
    ON trial (arm_id, state, reward, partial, tests_passed, tests_total, test_rate, budget_ended, cost_nusd, priced, cut);

CREATE INDEX trial_in_review ON trial (trial_id) WHERE state = 'review';

CREATE UNIQUE INDEX trial_one_standing_per_cell ON trial (cell_id) WHERE state <> 'voided';

CREATE INDEX trial_unfinished ON trial (state) WHERE state IN ('new', 'reserved', 'preparing', 'running', 'verifying');

CREATE INDEX verifier_turn_open ON verifier_turn (trial_id) WHERE ended_at_ms IS NULL;

CREATE INDEX void_by_batch ON void (batch);

CREATE INDEX void_by_trial ON void (trial_id, void_id);

CREATE UNIQUE INDEX void_one_standing_per_trial ON void (trial_id) WHERE undone_at_ms IS NULL;

CREATE TRIGGER admission_stop_ends_once BEFORE UPDATE ON admission_stop WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'admission_stop_ends_once'); END;

CREATE TRIGGER admission_stop_is_fixed BEFORE UPDATE OF stop_id, kind, detail, author, at_ms ON admission_stop
BEGIN SELECT RAISE(ABORT, 'admission_stop_is_fixed'); END;

CREATE TRIGGER admission_stop_is_never_deleted BEFORE DELETE ON admission_stop
BEGIN SELECT RAISE(ABORT, 'admission_stop_is_never_deleted'); END;

CREATE TRIGGER agent_ended_needs_ending BEFORE INSERT ON trial_event WHEN NEW.event IN ('agent_ended', 'budget_spent')
    AND NOT EXISTS (SELECT 1 FROM trial_agent WHERE trial_id = NEW.trial_id AND ended_at_ms IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'agent_ended_needs_ending'); END;

CREATE TRIGGER agent_event_is_append_only_d BEFORE DELETE ON agent_event BEGIN SELECT RAISE(ABORT, 'agent_event_is_append_only'); END;

CREATE TRIGGER agent_event_is_append_only_u BEFORE UPDATE ON agent_event BEGIN SELECT RAISE(ABORT, 'agent_event_is_append_only'); END;

CREATE TRIGGER agent_event_is_gapless BEFORE INSERT ON agent_event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM agent_event WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'agent_event_is_gapless'); END;

CREATE TRIGGER agent_started_needs_deadline BEFORE INSERT ON trial_event WHEN NEW.event = 'agent_started'
    AND NOT EXISTS (SELECT 1 FROM trial_agent WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'agent_started_needs_deadline'); END;

CREATE TRIGGER archive_ends_once BEFORE UPDATE OF ended_at_ms, ended_by, ended_reason ON archive WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'archive_ends_once'); END;

CREATE TRIGGER archive_is_fixed BEFORE UPDATE OF archive_id, trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms
    ON archive
BEGIN SELECT RAISE(ABORT, 'archive_is_fixed'); END;

CREATE TRIGGER archive_is_never_deleted BEFORE DELETE ON archive BEGIN SELECT RAISE(ABORT, 'archive_is_never_deleted'); END;

CREATE TRIGGER archive_of_a_run_here BEFORE INSERT ON archive
WHEN EXISTS (SELECT 1 FROM imported_trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'archive_of_a_run_here'); END;

CREATE TRIGGER archive_only_at_rest BEFORE INSERT ON archive
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided')
BEGIN SELECT RAISE(ABORT, 'archive_only_at_rest'); END;

CREATE TRIGGER archive_starts_standing BEFORE INSERT ON archive WHEN NEW.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'archive_starts_standing'); END;

CREATE TRIGGER arm_is_never_deleted BEFORE DELETE ON arm BEGIN SELECT RAISE(ABORT, 'arm_is_never_deleted'); END;

CREATE TRIGGER arm_treatment_is_fixed BEFORE UPDATE OF campaign_id, name, kind, treatment_hash, data_json ON arm
BEGIN SELECT RAISE(ABORT, 'arm_treatment_is_fixed'); END;

CREATE TRIGGER artifact_export_is_fixed_d BEFORE DELETE ON artifact_export BEGIN SELECT RAISE(ABORT, 'artifact_export_is_fixed'); END;

CREATE TRIGGER artifact_export_is_fixed_u BEFORE UPDATE ON artifact_export BEGIN SELECT RAISE(ABORT, 'artifact_export_is_fixed'); END;

CREATE TRIGGER artifact_export_only_at_rest BEFORE INSERT ON artifact_export
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided', 'review')
BEGIN SELECT RAISE(ABORT, 'artifact_export_only_at_rest'); END;

CREATE TRIGGER artifact_is_fixed_d BEFORE DELETE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact_is_fixed'); END;

CREATE TRIGGER artifact_is_fixed_u BEFORE UPDATE ON artifact BEGIN SELECT RAISE(ABORT, 'artifact_is_fixed'); END;

CREATE TRIGGER block_is_fixed BEFORE UPDATE ON block BEGIN SELECT RAISE(ABORT, 'block_is_fixed'); END;

CREATE TRIGGER block_is_never_deleted BEFORE DELETE ON block BEGIN SELECT RAISE(ABORT, 'block_is_never_deleted'); END;

CREATE TRIGGER campaign_is_never_deleted BEFORE DELETE ON campaign BEGIN SELECT RAISE(ABORT, 'campaign_is_never_deleted'); END;

CREATE TRIGGER campaign_origin_is_fixed BEFORE UPDATE OF origin ON campaign BEGIN SELECT RAISE(ABORT, 'campaign_origin_is_fixed'); END;

CREATE TRIGGER campaign_treatment_is_fixed BEFORE UPDATE OF campaign_id, name, treatment_hash, treatment_json ON campaign
BEGIN SELECT RAISE(ABORT, 'campaign_treatment_is_fixed'); END;

CREATE TRIGGER cell_is_fixed BEFORE UPDATE OF campaign_id, block_id, task_id, arm_id, replicate ON cell
BEGIN SELECT RAISE(ABORT, 'cell_is_fixed'); END;

CREATE TRIGGER cell_is_never_deleted BEFORE DELETE ON cell BEGIN SELECT RAISE(ABORT, 'cell_is_never_deleted'); END;

CREATE TRIGGER claim_by_newest_run BEFORE INSERT ON claim WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;

CREATE TRIGGER claim_is_fixed BEFORE UPDATE OF claim_id, cell_id, token, run_id, claimed_at_ms ON claim
BEGIN SELECT RAISE(ABORT, 'claim_is_fixed'); END;

CREATE TRIGGER claim_is_never_deleted BEFORE DELETE ON claim BEGIN SELECT RAISE(ABORT, 'claim_is_never_deleted'); END;

CREATE TRIGGER claim_only_open_cell BEFORE INSERT ON claim WHEN
    EXISTS (SELECT 1 FROM trial WHERE cell_id = NEW.cell_id AND state <> 'voided')
    OR EXISTS (SELECT 1 FROM park WHERE cell_id = NEW.cell_id AND ended_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'claim_only_open_cell'); END;

CREATE TRIGGER claim_released_once BEFORE UPDATE OF released_at_ms ON claim WHEN OLD.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'claim_released_once'); END;

CREATE TRIGGER claim_released_only_after_container BEFORE UPDATE OF released_at_ms ON claim WHEN EXISTS
    (SELECT 1 FROM trial JOIN container USING (trial_id) WHERE claim_id = NEW.claim_id AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'claim_released_only_after_container'); END;

CREATE TRIGGER claim_released_only_after_trial BEFORE UPDATE OF released_at_ms ON claim WHEN EXISTS
    (SELECT 1 FROM trial WHERE claim_id = NEW.claim_id AND state NOT IN ('scored', 'voided', 'review'))
BEGIN SELECT RAISE(ABORT, 'claim_released_only_after_trial'); END;

CREATE TRIGGER claim_starts_live BEFORE INSERT ON claim WHEN NEW.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'claim_starts_live'); END;

CREATE TRIGGER container_id_set_once BEFORE UPDATE OF docker_id ON container
WHEN OLD.docker_id IS NOT NULL AND NEW.docker_id IS NOT OLD.docker_id
BEGIN SELECT RAISE(ABORT, 'container_id_set_once'); END;

CREATE TRIGGER container_is_fixed BEFORE UPDATE OF container_row, trial_id, engine, name, image_id, context_digest, intended_at_ms
    ON container
BEGIN SELECT RAISE(ABORT, 'container_is_fixed'); END;

CREATE TRIGGER container_is_never_deleted BEFORE DELETE ON container BEGIN SELECT RAISE(ABORT, 'container_is_never_deleted'); END;

CREATE TRIGGER container_needs_lease BEFORE INSERT ON container WHEN EXISTS
    (SELECT 1 FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE trial_id = NEW.trial_id AND needs_network)
    AND NOT EXISTS (SELECT 1 FROM network_lease WHERE trial_id = NEW.trial_id AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'container_needs_lease'); END;

CREATE TRIGGER container_needs_live_trial BEFORE INSERT ON container
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'reserved'
BEGIN SELECT RAISE(ABORT, 'container_needs_live_trial'); END;

CREATE TRIGGER container_starts_there BEFORE INSERT ON container WHEN NEW.gone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'container_starts_there'); END;

CREATE TRIGGER container_stays_gone BEFORE UPDATE OF gone_at_ms, gone_because, docker_id ON container WHEN OLD.gone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'container_stays_gone'); END;

CREATE TRIGGER contrast_follows_the_last BEFORE INSERT ON contrast
WHEN (NEW.version, NEW.position) NOT IN (
    SELECT coalesce(max(version), 0) + 1, 1 FROM contrast WHERE campaign_id = NEW.campaign_id
    UNION ALL
    SELECT version, max(position) + 1 FROM contrast
    WHERE campaign_id = NEW.campaign_id AND version = (SELECT max(version) FROM contrast WHERE campaign_id = NEW.campaign_id)
    GROUP BY version)
BEGIN SELECT RAISE(ABORT, 'contrast_follows_the_last'); END;

CREATE TRIGGER contrast_is_append_only_d BEFORE DELETE ON contrast BEGIN SELECT RAISE(ABORT, 'contrast_is_append_only'); END;

CREATE TRIGGER contrast_is_append_only_u BEFORE UPDATE ON contrast BEGIN SELECT RAISE(ABORT, 'contrast_is_append_only'); END;

CREATE TRIGGER contrast_names_arms_of_the_campaign BEFORE INSERT ON contrast
WHEN (SELECT count(*) FROM arm WHERE campaign_id = NEW.campaign_id AND name IN (NEW.arm_a, NEW.arm_b))
    < iif(NEW.arm_a = NEW.arm_b, 1, 2)
BEGIN SELECT RAISE(ABORT, 'contrast_names_arms_of_the_campaign'); END;

CREATE TRIGGER contrast_says_what_was_known BEFORE INSERT ON contrast
WHEN NEW.scores_known IS NOT (SELECT count(*) FROM trial JOIN cell USING (cell_id) WHERE campaign_id = NEW.campaign_id
    AND EXISTS (SELECT 1 FROM score WHERE score.trial_id = trial.trial_id))
BEGIN SELECT RAISE(ABORT, 'contrast_says_what_was_known'); END;

CREATE TRIGGER disclosure_follows_the_last BEFORE INSERT ON disclosure
WHEN (NEW.version, NEW.position) NOT IN (
    SELECT coalesce(max(version), 0) + 1, 1 FROM disclosure WHERE campaign_id = NEW.campaign_id
    UNION ALL
    SELECT version, max(position) + 1 FROM disclosure
    WHERE campaign_id = NEW.campaign_id AND version = (SELECT max(version) FROM disclosure WHERE campaign_id = NEW.campaign_id)
    GROUP BY version)
BEGIN SELECT RAISE(ABORT, 'disclosure_follows_the_last'); END;

CREATE TRIGGER disclosure_is_append_only_d BEFORE DELETE ON disclosure BEGIN SELECT RAISE(ABORT, 'disclosure_is_append_only'); END;

CREATE TRIGGER disclosure_is_append_only_u BEFORE UPDATE ON disclosure BEGIN SELECT RAISE(ABORT, 'disclosure_is_append_only'); END;

CREATE TRIGGER disclosure_names_arms_of_the_campaign BEFORE INSERT ON disclosure
WHEN json_valid(NEW.arms_json) AND EXISTS (
    SELECT 1 FROM json_each(NEW.arms_json) AS named
    WHERE named.value NOT IN (SELECT name FROM arm WHERE campaign_id = NEW.campaign_id))
BEGIN SELECT RAISE(ABORT, 'disclosure_names_arms_of_the_campaign'); END;

CREATE TRIGGER environment_up_needs_container BEFORE INSERT ON trial_event WHEN NEW.event = 'environment_up' AND NOT EXISTS
    (SELECT 1 FROM container WHERE trial_id = NEW.trial_id AND docker_id IS NOT NULL AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'environment_up_needs_container'); END;

CREATE TRIGGER environment_up_needs_network BEFORE INSERT ON trial_event WHEN NEW.event = 'environment_up' AND EXISTS
    (SELECT 1 FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE trial_id = NEW.trial_id AND needs_network)
    AND NOT EXISTS (SELECT 1 FROM network_lease WHERE trial_id = NEW.trial_id AND network_id IS NOT NULL AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'environment_up_needs_network'); END;

CREATE TRIGGER finding_closes_once BEFORE UPDATE OF closed_at_ms, seen_at_ms, times ON finding WHEN OLD.closed_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'finding_closes_once'); END;

CREATE TRIGGER finding_is_fixed BEFORE UPDATE OF finding_id, code, subject, opened_at_ms ON finding
BEGIN SELECT RAISE(ABORT, 'finding_is_fixed'); END;

CREATE TRIGGER finding_is_never_deleted BEFORE DELETE ON finding BEGIN SELECT RAISE(ABORT, 'finding_is_never_deleted'); END;

CREATE TRIGGER first_request_is_fixed BEFORE UPDATE ON first_request BEGIN SELECT RAISE(ABORT, 'first_request_is_fixed'); END;

CREATE TRIGGER first_request_is_never_deleted BEFORE DELETE ON first_request
BEGIN SELECT RAISE(ABORT, 'first_request_is_never_deleted'); END;

CREATE TRIGGER import_is_fixed_d BEFORE DELETE ON import BEGIN SELECT RAISE(ABORT, 'import_is_fixed'); END;

CREATE TRIGGER import_is_fixed_u BEFORE UPDATE ON import BEGIN SELECT RAISE(ABORT, 'import_is_fixed'); END;

CREATE TRIGGER imported_only_in_imported_campaign BEFORE INSERT ON trial_event WHEN NEW.event = 'imported'
    AND (SELECT origin FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) WHERE trial_id = NEW.trial_id) IS NOT 'import'
BEGIN SELECT RAISE(ABORT, 'imported_only_in_imported_campaign'); END;

CREATE TRIGGER imported_trial_is_fixed_d BEFORE DELETE ON imported_trial BEGIN SELECT RAISE(ABORT, 'imported_trial_is_fixed'); END;

CREATE TRIGGER imported_trial_is_fixed_u BEFORE UPDATE ON imported_trial BEGIN SELECT RAISE(ABORT, 'imported_trial_is_fixed'); END;

CREATE TRIGGER imported_trial_of_imported_campaign BEFORE INSERT ON imported_trial
WHEN (SELECT origin FROM campaign JOIN cell USING (campaign_id) JOIN trial USING (cell_id) WHERE trial_id = NEW.trial_id) IS NOT 'import'
BEGIN SELECT RAISE(ABORT, 'imported_trial_of_imported_campaign'); END;

CREATE TRIGGER ledger_identity_is_never_deleted BEFORE DELETE ON ledger_identity
BEGIN SELECT RAISE(ABORT, 'ledger_identity_is_never_deleted'); END;

CREATE TRIGGER model_request_is_never_deleted BEFORE DELETE ON model_request
BEGIN SELECT RAISE(ABORT, 'model_request_is_never_deleted'); END;

CREATE TRIGGER model_usage_is_fixed BEFORE UPDATE OF trial_id, account, model ON model_usage
BEGIN SELECT RAISE(ABORT, 'model_usage_is_fixed'); END;

CREATE TRIGGER model_usage_is_never_deleted BEFORE DELETE ON model_usage BEGIN SELECT RAISE(ABORT, 'model_usage_is_never_deleted'); END;

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

CREATE TRIGGER network_lease_is_fixed BEFORE UPDATE OF lease_id, engine, trial_id, subnet, network_name, leased_at_ms ON network_lease
BEGIN SELECT RAISE(ABORT, 'network_lease_is_fixed'); END;

CREATE TRIGGER network_lease_is_never_deleted BEFORE DELETE ON network_lease
BEGIN SELECT RAISE(ABORT, 'network_lease_is_never_deleted'); END;

CREATE TRIGGER network_lease_needs_live_trial BEFORE INSERT ON network_lease
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'reserved'
BEGIN SELECT RAISE(ABORT, 'network_lease_needs_live_trial'); END;

CREATE TRIGGER network_lease_network_id_set_once BEFORE UPDATE OF network_id ON network_lease
WHEN OLD.network_id IS NOT NULL AND NEW.network_id IS NOT OLD.network_id
BEGIN SELECT RAISE(ABORT, 'network_lease_network_id_set_once'); END;

CREATE TRIGGER network_lease_outlives_container BEFORE UPDATE OF released_at_ms ON network_lease
WHEN NEW.released_because = 'seen_gone' AND EXISTS
    (SELECT 1 FROM container WHERE trial_id = NEW.trial_id AND gone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'network_lease_outlives_container'); END;

CREATE TRIGGER network_lease_released_once BEFORE UPDATE OF released_at_ms, released_because, network_id ON network_lease
WHEN OLD.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'network_lease_released_once'); END;

CREATE TRIGGER network_lease_starts_live BEFORE INSERT ON network_lease WHEN NEW.released_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'network_lease_starts_live'); END;

CREATE TRIGGER network_lease_within_cap BEFORE INSERT ON network_lease WHEN
    (SELECT count(*) FROM network_lease WHERE engine = NEW.engine AND released_at_ms IS NULL)
    >= (SELECT cap FROM network_pool WHERE engine = NEW.engine)
BEGIN SELECT RAISE(ABORT, 'network_lease_within_cap'); END;

CREATE TRIGGER network_pool_is_never_deleted BEFORE DELETE ON network_pool
BEGIN SELECT RAISE(ABORT, 'network_pool_is_never_deleted'); END;

CREATE TRIGGER notice_is_fixed BEFORE UPDATE ON notice BEGIN SELECT RAISE(ABORT, 'notice_is_fixed'); END;

CREATE TRIGGER notice_is_never_deleted BEFORE DELETE ON notice BEGIN SELECT RAISE(ABORT, 'notice_is_never_deleted'); END;

CREATE TRIGGER notice_sending_ends_once BEFORE UPDATE ON notice_sending
WHEN OLD.told_at_ms IS NOT NULL OR OLD.gave_up_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'notice_sending_ends_once'); END;

CREATE TRIGGER notice_sending_is_never_deleted BEFORE DELETE ON notice_sending
BEGIN SELECT RAISE(ABORT, 'notice_sending_is_never_deleted'); END;

CREATE TRIGGER park_ends_once BEFORE UPDATE ON park WHEN OLD.ended_at_ms IS NOT NULL BEGIN SELECT RAISE(ABORT, 'park_ends_once'); END;

CREATE TRIGGER park_is_fixed BEFORE UPDATE OF park_id, cell_id, code, at_ms ON park BEGIN SELECT RAISE(ABORT, 'park_is_fixed'); END;

CREATE TRIGGER park_is_never_deleted BEFORE DELETE ON park BEGIN SELECT RAISE(ABORT, 'park_is_never_deleted'); END;

CREATE TRIGGER prune_by_the_ledgers_time BEFORE INSERT ON prune
WHEN NEW.rested_at_ms <> (
    SELECT max(export.at_ms, (SELECT max(at_ms) FROM trial_event WHERE trial_id = NEW.trial_id))
    FROM artifact_export AS export WHERE export.trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_by_the_ledgers_time'); END;

CREATE TRIGGER prune_done_once BEFORE UPDATE OF done_at_ms ON prune WHEN OLD.done_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'prune_done_once'); END;

CREATE TRIGGER prune_is_fixed BEFORE UPDATE OF prune_id, kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes,
    author, reason, at_ms ON prune
BEGIN SELECT RAISE(ABORT, 'prune_is_fixed'); END;

CREATE TRIGGER prune_is_never_deleted BEFORE DELETE ON prune BEGIN SELECT RAISE(ABORT, 'prune_is_never_deleted'); END;

CREATE TRIGGER prune_names_the_standing_archive BEFORE INSERT ON prune
WHEN NEW.archive_id IS NOT NULL AND NOT EXISTS
    (SELECT 1 FROM archive WHERE archive_id = NEW.archive_id AND trial_id = NEW.trial_id AND ended_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'prune_names_the_standing_archive'); END;

CREATE TRIGGER prune_needs_exported_trial BEFORE INSERT ON prune
WHEN NEW.trial_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM artifact_export WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_needs_exported_trial'); END;

CREATE TRIGGER prune_of_a_run_here BEFORE INSERT ON prune
WHEN EXISTS (SELECT 1 FROM imported_trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_of_a_run_here'); END;

CREATE TRIGGER prune_only_after_teardown BEFORE INSERT ON prune
WHEN EXISTS (SELECT 1 FROM trial JOIN claim USING (claim_id)
    WHERE trial_id = NEW.trial_id AND state IN ('scored', 'voided') AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'prune_only_after_teardown'); END;

CREATE TRIGGER prune_only_at_rest BEFORE INSERT ON prune
WHEN NEW.trial_id IS NOT NULL AND (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided')
BEGIN SELECT RAISE(ABORT, 'prune_only_at_rest'); END;

CREATE TRIGGER prune_starts_undone BEFORE INSERT ON prune WHEN NEW.done_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'prune_starts_undone'); END;

CREATE TRIGGER review_decided_once BEFORE UPDATE ON review WHEN OLD.decided_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'review_decided_once'); END;

CREATE TRIGGER review_is_fixed BEFORE UPDATE OF review_id, trial_id, code, detail, evidence_json, opened_at_ms ON review
BEGIN SELECT RAISE(ABORT, 'review_is_fixed'); END;

CREATE TRIGGER review_is_never_deleted BEFORE DELETE ON review BEGIN SELECT RAISE(ABORT, 'review_is_never_deleted'); END;

CREATE TRIGGER review_moves_the_trial AFTER INSERT ON review
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) = 'verifying'
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'doubted', 'verifying', 'review',
        NEW.opened_at_ms, (SELECT max(run_id) FROM run), json_object('review_id', NEW.review_id, 'code', NEW.code));
END;

CREATE TRIGGER review_needs_evidence BEFORE INSERT ON trial_event WHEN NEW.to_state = 'review'
    AND NOT EXISTS (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'review_needs_evidence'); END;

CREATE TRIGGER review_only_of_doubted_trial BEFORE INSERT ON review
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('verifying', 'voided') OR NEW.decided_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'review_only_of_doubted_trial'); END;

CREATE TRIGGER run_is_fixed BEFORE UPDATE OF run_id, pid, pid_start_ticks, host, boot_id, version, started_at_ms ON run
BEGIN SELECT RAISE(ABORT, 'run_is_fixed'); END;

CREATE TRIGGER run_is_never_deleted BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run_is_never_deleted'); END;

CREATE TRIGGER run_number_grows BEFORE INSERT ON run WHEN NEW.run_id > 0 AND NEW.run_id <= (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'run_number_grows'); END;

CREATE TRIGGER score_ends_the_trial AFTER INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IN ('verifying', 'review')
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    SELECT trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id),
        iif(state = 'review', 'accepted', 'scored'), state, 'scored', NEW.at_ms, NEW.run_id, json_object('score_id', NEW.score_id)
    FROM trial WHERE trial_id = NEW.trial_id;
END;

CREATE TRIGGER score_is_fixed_d BEFORE DELETE ON score BEGIN SELECT RAISE(ABORT, 'score_is_fixed'); END;

CREATE TRIGGER score_is_fixed_u BEFORE UPDATE ON score BEGIN SELECT RAISE(ABORT, 'score_is_fixed'); END;

CREATE TRIGGER score_is_repeated_in_trial AFTER INSERT ON score
BEGIN
    UPDATE trial SET reward = NEW.reward, partial = NEW.partial, tests_passed = NEW.tests_passed, tests_total = NEW.tests_total,
        test_rate = NEW.test_rate
    WHERE trial_id = NEW.trial_id;
END;

CREATE TRIGGER score_of_review_needs_acceptance BEFORE INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) = 'review' AND EXISTS
    (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'score_of_review_needs_acceptance'); END;

CREATE TRIGGER score_only_while_graded BEFORE INSERT ON score
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('verifying', 'review', 'scored')
BEGIN SELECT RAISE(ABORT, 'score_only_while_graded'); END;

CREATE TRIGGER score_part_is_fixed_d BEFORE DELETE ON score_part BEGIN SELECT RAISE(ABORT, 'score_part_is_fixed'); END;

CREATE TRIGGER score_part_is_fixed_u BEFORE UPDATE ON score_part BEGIN SELECT RAISE(ABORT, 'score_part_is_fixed'); END;

CREATE TRIGGER scored_needs_score BEFORE INSERT ON trial_event WHEN NEW.to_state = 'scored'
    AND NOT EXISTS (SELECT 1 FROM score WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'scored_needs_score'); END;

CREATE TRIGGER setting_change_is_append_only_d BEFORE DELETE ON setting_change
BEGIN SELECT RAISE(ABORT, 'setting_change_is_append_only'); END;

CREATE TRIGGER setting_change_is_append_only_u BEFORE UPDATE ON setting_change
BEGIN SELECT RAISE(ABORT, 'setting_change_is_append_only'); END;

CREATE TRIGGER task_digest_is_fixed BEFORE UPDATE OF campaign_id, name, digest, context_digest ON task
WHEN OLD.digest IS NOT NULL AND (NEW.digest IS NOT OLD.digest OR NEW.name IS NOT OLD.name OR NEW.campaign_id IS NOT OLD.campaign_id
    OR NEW.context_digest IS NOT OLD.context_digest)
BEGIN SELECT RAISE(ABORT, 'task_digest_is_fixed'); END;

CREATE TRIGGER task_is_never_deleted BEFORE DELETE ON task BEGIN SELECT RAISE(ABORT, 'task_is_never_deleted'); END;

CREATE TRIGGER trial_agent_ends_once BEFORE UPDATE ON trial_agent WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_agent_ends_once'); END;

CREATE TRIGGER trial_agent_is_never_deleted BEFORE DELETE ON trial_agent
BEGIN SELECT RAISE(ABORT, 'trial_agent_is_never_deleted'); END;

CREATE TRIGGER trial_agent_is_repeated_in_trial AFTER UPDATE OF ended_by ON trial_agent
BEGIN UPDATE trial SET budget_ended = NEW.ended_by IN (SELECT name FROM budget_end) WHERE trial_id = NEW.trial_id; END;

CREATE TRIGGER trial_agent_needs_prepared_trial BEFORE INSERT ON trial_agent
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'preparing'
BEGIN SELECT RAISE(ABORT, 'trial_agent_needs_prepared_trial'); END;

CREATE TRIGGER trial_agent_start_is_fixed BEFORE UPDATE OF trial_id, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms,
    limit_origin, limit_loser ON trial_agent
BEGIN SELECT RAISE(ABORT, 'trial_agent_start_is_fixed'); END;

CREATE TRIGGER trial_agent_starts_running BEFORE INSERT ON trial_agent WHEN NEW.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_agent_starts_running'); END;

CREATE TRIGGER trial_attempt_is_next BEFORE INSERT ON trial
WHEN NEW.attempt IS NOT (SELECT coalesce(max(attempt), 0) + 1 FROM trial WHERE cell_id = NEW.cell_id)
BEGIN SELECT RAISE(ABORT, 'trial_attempt_is_next'); END;

CREATE TRIGGER trial_by_newest_run BEFORE INSERT ON trial WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;

CREATE TRIGGER trial_event_by_newest_run BEFORE INSERT ON trial_event WHEN NEW.run_id IS NOT (SELECT max(run_id) FROM run)
BEGIN SELECT RAISE(ABORT, 'written_by_newest_run'); END;

CREATE TRIGGER trial_event_is_append_only_d BEFORE DELETE ON trial_event BEGIN SELECT RAISE(ABORT, 'trial_event_is_append_only'); END;

CREATE TRIGGER trial_event_is_append_only_u BEFORE UPDATE ON trial_event BEGIN SELECT RAISE(ABORT, 'trial_event_is_append_only'); END;

CREATE TRIGGER trial_event_is_gapless BEFORE INSERT ON trial_event
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM trial_event WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_event_is_gapless'); END;

CREATE TRIGGER trial_event_is_legal BEFORE INSERT ON trial_event
WHEN NOT EXISTS (SELECT 1 FROM trial_transition WHERE from_state = NEW.from_state AND event = NEW.event AND to_state = NEW.to_state)
BEGIN SELECT RAISE(ABORT, 'trial_event_is_legal'); END;

CREATE TRIGGER trial_event_moves_the_trial AFTER INSERT ON trial_event
BEGIN UPDATE trial SET state = NEW.to_state WHERE trial_id = NEW.trial_id; END;

CREATE TRIGGER trial_event_starts_where_the_trial_is BEFORE INSERT ON trial_event
WHEN NEW.from_state IS NOT (SELECT state FROM trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_event_starts_where_the_trial_is'); END;

CREATE TRIGGER trial_fact_is_never_deleted BEFORE DELETE ON trial_fact BEGIN SELECT RAISE(ABORT, 'trial_fact_is_never_deleted'); END;

CREATE TRIGGER trial_identity_is_fixed BEFORE UPDATE OF trial_id, cell_id, arm_id, claim_id, attempt, run_id, created_at_ms ON trial
BEGIN SELECT RAISE(ABORT, 'trial_identity_is_fixed'); END;

CREATE TRIGGER trial_is_never_deleted BEFORE DELETE ON trial BEGIN SELECT RAISE(ABORT, 'trial_is_never_deleted'); END;

CREATE TRIGGER trial_is_reserved AFTER INSERT ON trial
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id)
    VALUES (NEW.trial_id, 1, 'reserved', 'new', 'reserved', NEW.created_at_ms, NEW.run_id);
END;

CREATE TRIGGER trial_needs_live_claim BEFORE INSERT ON trial
WHEN NOT EXISTS (SELECT 1 FROM claim WHERE claim_id = NEW.claim_id AND cell_id = NEW.cell_id AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'trial_needs_live_claim'); END;

CREATE TRIGGER trial_repeats_its_agent BEFORE UPDATE OF budget_ended ON trial
WHEN NEW.budget_ended IS NOT (SELECT ended_by IN (SELECT name FROM budget_end) FROM trial_agent WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_agent'); END;

CREATE TRIGGER trial_repeats_its_score BEFORE UPDATE OF reward, partial, tests_passed, tests_total, test_rate ON trial WHEN NOT EXISTS
    (SELECT 1 FROM score WHERE trial_id = NEW.trial_id AND score_id = (SELECT max(score_id) FROM score WHERE trial_id = NEW.trial_id)
     AND NEW.reward IS reward AND NEW.partial IS partial AND NEW.tests_passed IS tests_passed AND NEW.tests_total IS tests_total
     AND NEW.test_rate IS test_rate)
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_score'); END;

CREATE TRIGGER trial_repeats_its_usage BEFORE UPDATE OF cost_nusd, priced, cut ON trial WHEN NOT EXISTS
    (SELECT 1 FROM trial_cost AS u WHERE u.trial_id = NEW.trial_id AND (u.cost_nusd, u.priced, u.cut) = (NEW.cost_nusd, NEW.priced, NEW.cut))
BEGIN SELECT RAISE(ABORT, 'trial_repeats_its_usage'); END;

CREATE TRIGGER trial_starts_new BEFORE INSERT ON trial
WHEN NEW.state <> 'new'
    OR coalesce(NEW.reward, NEW.partial, NEW.tests_passed, NEW.tests_total, NEW.test_rate, NEW.budget_ended) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'trial_starts_new'); END;

CREATE TRIGGER trial_starts_unpaid BEFORE INSERT ON trial WHEN NEW.cost_nusd <> 0 OR NEW.priced <> 0 OR NEW.cut <> 0
BEGIN SELECT RAISE(ABORT, 'trial_starts_unpaid'); END;

CREATE TRIGGER trial_state_follows_events BEFORE UPDATE OF state ON trial
WHEN NEW.state IS NOT (SELECT to_state FROM trial_event WHERE trial_id = NEW.trial_id ORDER BY seq DESC LIMIT 1)
BEGIN SELECT RAISE(ABORT, 'trial_state_follows_events'); END;

CREATE TRIGGER trial_transition_is_fixed_d BEFORE DELETE ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;

CREATE TRIGGER trial_transition_is_fixed_i BEFORE INSERT ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;

CREATE TRIGGER trial_transition_is_fixed_u BEFORE UPDATE ON trial_transition BEGIN SELECT RAISE(ABORT, 'trial_transition_is_fixed'); END;

CREATE TRIGGER trial_waits_for_a_lone_verifier BEFORE INSERT ON trial
WHEN (SELECT origin FROM cell JOIN campaign USING (campaign_id) WHERE cell_id = NEW.cell_id) = 'run' AND EXISTS
    (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
     WHERE other.alone <> 'no' AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL AND trial.state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'trial_waits_for_a_lone_verifier'); END;

CREATE TRIGGER unvoided_needs_undone_void BEFORE INSERT ON trial_event WHEN NEW.event = 'unvoided'
    AND EXISTS (SELECT 1 FROM void WHERE trial_id = NEW.trial_id AND undone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'unvoided_needs_undone_void'); END;

CREATE TRIGGER verification_ends_once BEFORE UPDATE ON verification WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verification_ends_once'); END;

CREATE TRIGGER verification_is_never_deleted BEFORE DELETE ON verification
BEGIN SELECT RAISE(ABORT, 'verification_is_never_deleted'); END;

CREATE TRIGGER verification_needs_verifying_trial BEFORE INSERT ON verification
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'verifying'
BEGIN SELECT RAISE(ABORT, 'verification_needs_verifying_trial'); END;

CREATE TRIGGER verification_start_is_fixed BEFORE UPDATE OF trial_id, round, exec_id, started_at_ms, started_mono_ms, boot_id, limit_ms,
    limit_origin ON verification
BEGIN SELECT RAISE(ABORT, 'verification_start_is_fixed'); END;

CREATE TRIGGER verification_waits_its_turn BEFORE INSERT ON verification
WHEN EXISTS (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
    WHERE other.trial_id <> NEW.trial_id AND other.alone <> 'no' AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL
      AND trial.state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'verification_waits_its_turn'); END;

CREATE TRIGGER verifier_turn_ends_once BEFORE UPDATE OF ended_at_ms ON verifier_turn WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_ends_once'); END;

CREATE TRIGGER verifier_turn_granted_once BEFORE UPDATE OF granted_at_ms, agents_beside ON verifier_turn
WHEN OLD.granted_at_ms IS NOT NULL OR OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_granted_once'); END;

CREATE TRIGGER verifier_turn_is_fixed BEFORE UPDATE OF turn_id, trial_id, round, alone, asked_at_ms ON verifier_turn
BEGIN SELECT RAISE(ABORT, 'verifier_turn_is_fixed'); END;

CREATE TRIGGER verifier_turn_is_never_deleted BEFORE DELETE ON verifier_turn
BEGIN SELECT RAISE(ABORT, 'verifier_turn_is_never_deleted'); END;

CREATE TRIGGER verifier_turn_keeps_apart BEFORE UPDATE OF granted_at_ms ON verifier_turn
WHEN NEW.granted_at_ms IS NOT NULL AND EXISTS
    (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
     WHERE other.trial_id <> NEW.trial_id AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL AND trial.state = 'verifying'
       AND (other.alone <> 'no' OR NEW.alone <> 'no'))
BEGIN SELECT RAISE(ABORT, 'verifier_turn_keeps_apart'); END;

CREATE TRIGGER verifier_turn_of_verifying_trial BEFORE INSERT ON verifier_turn
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'verifying'
BEGIN SELECT RAISE(ABORT, 'verifier_turn_of_verifying_trial'); END;

CREATE TRIGGER verifier_turn_outlives_its_verifier BEFORE UPDATE OF ended_at_ms ON verifier_turn
WHEN NEW.ended_at_ms IS NOT NULL AND EXISTS
    (SELECT 1 FROM verification JOIN trial USING (trial_id)
     WHERE trial_id = NEW.trial_id AND round = NEW.round AND verification.ended_at_ms IS NULL AND state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'verifier_turn_outlives_its_verifier'); END;

CREATE TRIGGER verifier_turn_starts_waiting BEFORE INSERT ON verifier_turn
WHEN coalesce(NEW.granted_at_ms, NEW.ended_at_ms) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_starts_waiting'); END;

CREATE TRIGGER verify_again_only_once BEFORE INSERT ON trial_event WHEN NEW.event = 'verify_again'
    AND json_extract(NEW.detail_json, '$.cause') IS NOT 'interrupted'
    AND EXISTS (SELECT 1 FROM trial_event WHERE trial_id = NEW.trial_id AND event = 'verify_again'
                AND json_extract(detail_json, '$.cause') IS NOT 'interrupted')
BEGIN SELECT RAISE(ABORT, 'verify_again_only_once'); END;

CREATE TRIGGER void_after_score_only_by_operator BEFORE INSERT ON void
WHEN NEW.decided_by = 'daemon' AND NEW.from_state IN ('scored', 'review')
BEGIN SELECT RAISE(ABORT, 'void_after_score_only_by_operator'); END;

CREATE TRIGGER void_code_is_fixed_d BEFORE DELETE ON void_code BEGIN SELECT RAISE(ABORT, 'void_code_is_fixed'); END;

CREATE TRIGGER void_code_is_fixed_u BEFORE UPDATE ON void_code BEGIN SELECT RAISE(ABORT, 'void_code_is_fixed'); END;

CREATE TRIGGER void_is_fixed BEFORE UPDATE OF void_id, trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state,
    score_was_known, counts_pass, batch ON void
BEGIN SELECT RAISE(ABORT, 'void_is_fixed'); END;

CREATE TRIGGER void_is_never_deleted BEFORE DELETE ON void BEGIN SELECT RAISE(ABORT, 'void_is_never_deleted'); END;

CREATE TRIGGER void_moves_the_trial AFTER INSERT ON void
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'voided', NEW.from_state, 'voided',
        NEW.at_ms, (SELECT max(run_id) FROM run), json_object('void_id', NEW.void_id, 'code', NEW.code, 'by', NEW.author));
END;

CREATE TRIGGER void_needs_decided_review BEFORE INSERT ON void
WHEN EXISTS (SELECT 1 FROM review WHERE trial_id = NEW.trial_id AND decided_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'void_needs_decided_review'); END;

CREATE TRIGGER void_says_the_state BEFORE INSERT ON void WHEN NEW.from_state IS NOT (SELECT state FROM trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'void_says_the_state'); END;

CREATE TRIGGER void_says_whether_score_was_known BEFORE INSERT ON void
WHEN NEW.score_was_known IS NOT (SELECT reward IS NOT NULL FROM known_reward WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'void_says_whether_score_was_known'); END;

CREATE TRIGGER void_starts_standing BEFORE INSERT ON void WHEN NEW.undone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'void_starts_standing'); END;

CREATE TRIGGER void_undone_moves_the_trial AFTER UPDATE OF undone_at_ms ON void
BEGIN
    INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)
    VALUES (NEW.trial_id, (SELECT max(seq) + 1 FROM trial_event WHERE trial_id = NEW.trial_id), 'unvoided', 'voided', NEW.from_state,
        NEW.undone_at_ms, (SELECT max(run_id) FROM run), json_object('void_id', NEW.void_id, 'by', NEW.undone_by));
END;

CREATE TRIGGER void_undone_once BEFORE UPDATE OF undone_at_ms ON void WHEN OLD.undone_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'void_undone_once'); END;

CREATE TRIGGER void_undone_only_from_rest BEFORE UPDATE OF undone_at_ms ON void WHEN OLD.from_state NOT IN ('scored', 'review')
BEGIN SELECT RAISE(ABORT, 'void_undone_only_from_rest'); END;

CREATE TRIGGER void_undone_only_without_later_trial BEFORE UPDATE OF undone_at_ms ON void WHEN EXISTS
    (SELECT 1 FROM trial t JOIN trial later ON later.cell_id = t.cell_id AND later.attempt > t.attempt WHERE t.trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'unvoided_only_without_later_trial'); END;

CREATE TRIGGER voided_needs_void BEFORE INSERT ON trial_event WHEN NEW.to_state = 'voided'
    AND NOT EXISTS (SELECT 1 FROM void WHERE trial_id = NEW.trial_id AND undone_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'voided_needs_void'); END;

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

CREATE VIEW known_reward AS
SELECT trial_id, coalesce(
    (SELECT reward FROM score WHERE score.trial_id = trial.trial_id ORDER BY score_id DESC LIMIT 1),
    (SELECT coalesce(json_extract(evidence_json, '$.read.reward'), json_extract(evidence_json, '$.reward')) FROM review
     WHERE review.trial_id = trial.trial_id ORDER BY review_id DESC LIMIT 1)) AS reward
FROM trial;

CREATE VIEW trial_cost AS
SELECT trial_id, sum(cost_nusd) AS cost_nusd, sum(max(requests - max(failed, unknown) - unpriced, 0)) AS priced, sum(unknown) AS cut
FROM model_usage WHERE account <> 'gate' GROUP BY trial_id;

CREATE VIEW v_archive AS
SELECT campaign.name AS campaign, printf('t%04d', archive.trial_id) AS trial, archive.file, archive.sha256, archive.size_bytes,
    archive.files, archive.content_bytes, archive.author, archive.at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', archive.at_ms / 1000, 'unixepoch') || printf('.%03dZ', archive.at_ms % 1000) AS at,
    archive.ended_at_ms IS NULL AS standing, archive.ended_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', archive.ended_at_ms / 1000, 'unixepoch') || printf('.%03dZ', archive.ended_at_ms % 1000) AS ended_at,
    archive.ended_by, archive.ended_reason
FROM archive
JOIN trial ON trial.trial_id = archive.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id;

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

CREATE VIEW v_disclosure AS
SELECT campaign.name AS campaign, d.code,
    (SELECT group_concat(value, ', ') FROM (SELECT value FROM json_each(d.arms_json) ORDER BY key)) AS arms,
    d.text, d.compared_with, d.position, d.version,
    d.at_ms, strftime('%Y-%m-%dT%H:%M:%S', d.at_ms / 1000, 'unixepoch') || printf('.%03dZ', d.at_ms % 1000) AS at
FROM disclosure AS d JOIN campaign ON campaign.campaign_id = d.campaign_id
WHERE d.version = (SELECT max(version) FROM disclosure WHERE campaign_id = d.campaign_id);

CREATE VIEW v_event AS
SELECT campaign.name AS campaign, printf('t%04d', e.trial_id) AS trial, e.seq, e.event, e.from_state, e.to_state,
    e.at_ms, strftime('%Y-%m-%dT%H:%M:%S', e.at_ms / 1000, 'unixepoch') || printf('.%03dZ', e.at_ms % 1000) AS at,
    e.run_id AS run, e.detail_json AS detail
FROM trial_event AS e
JOIN trial ON trial.trial_id = e.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id;

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

CREATE VIEW v_prune AS
SELECT campaign.name AS campaign, iif(prune.trial_id IS NULL, NULL, printf('t%04d', prune.trial_id)) AS trial, prune.kind, prune.path,
    prune.files, prune.size_bytes, archive.file AS archive, prune.unarchived, prune.author, prune.reason, prune.at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', prune.at_ms / 1000, 'unixepoch') || printf('.%03dZ', prune.at_ms % 1000) AS at, prune.done_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', prune.done_at_ms / 1000, 'unixepoch') || printf('.%03dZ', prune.done_at_ms % 1000) AS done_at,
    prune.rested_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', prune.rested_at_ms / 1000, 'unixepoch') || printf('.%03dZ', prune.rested_at_ms % 1000) AS rested_at
FROM prune
LEFT JOIN trial ON trial.trial_id = prune.trial_id
LEFT JOIN cell ON cell.cell_id = trial.cell_id
LEFT JOIN campaign ON campaign.campaign_id = cell.campaign_id
LEFT JOIN archive ON archive.archive_id = prune.archive_id;

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

CREATE VIEW v_verifier_turn AS
SELECT campaign.name AS campaign, printf('t%04d', turn.trial_id) AS trial, task.name AS task, arm.name AS arm, turn.round, turn.alone,
    round((turn.granted_at_ms - turn.asked_at_ms) / 1000.0, 3) AS waited_s, turn.agents_beside, turn.asked_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', turn.asked_at_ms / 1000, 'unixepoch') || printf('.%03dZ', turn.asked_at_ms % 1000) AS asked_at,
    turn.granted_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', turn.granted_at_ms / 1000, 'unixepoch') || printf('.%03dZ', turn.granted_at_ms % 1000) AS granted_at,
    turn.ended_at_ms,
    strftime('%Y-%m-%dT%H:%M:%S', turn.ended_at_ms / 1000, 'unixepoch') || printf('.%03dZ', turn.ended_at_ms % 1000) AS ended_at
FROM verifier_turn AS turn
JOIN trial ON trial.trial_id = turn.trial_id
JOIN cell ON cell.cell_id = trial.cell_id
JOIN campaign ON campaign.campaign_id = cell.campaign_id
JOIN task ON task.task_id = cell.task_id
JOIN arm ON arm.arm_id = trial.arm_id;

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
