-- 0007: what was packed, what was removed, and which verifier ran alone.

-- ── archives ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- The exported artifacts of one trial in one file, read back entry by entry against the hashes in artifact before this row was written.
-- One stands per trial; another one follows after the first was ended (replaced, or lost).
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
CREATE INDEX archive_by_trial ON archive (trial_id);
CREATE UNIQUE INDEX archive_one_standing_per_trial ON archive (trial_id) WHERE ended_at_ms IS NULL;
CREATE UNIQUE INDEX archive_one_standing_per_file ON archive (file) WHERE ended_at_ms IS NULL;
CREATE TRIGGER archive_only_at_rest BEFORE INSERT ON archive
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided')
BEGIN SELECT RAISE(ABORT, 'archive_only_at_rest'); END;
-- What was imported lies in its source's folder, which is not ours.
CREATE TRIGGER archive_of_a_run_here BEFORE INSERT ON archive
WHEN EXISTS (SELECT 1 FROM imported_trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'archive_of_a_run_here'); END;
CREATE TRIGGER archive_starts_standing BEFORE INSERT ON archive WHEN NEW.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'archive_starts_standing'); END;
CREATE TRIGGER archive_is_fixed BEFORE UPDATE OF archive_id, trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms
    ON archive
BEGIN SELECT RAISE(ABORT, 'archive_is_fixed'); END;
CREATE TRIGGER archive_ends_once BEFORE UPDATE OF ended_at_ms, ended_by, ended_reason ON archive WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'archive_ends_once'); END;
CREATE TRIGGER archive_is_never_deleted BEFORE DELETE ON archive BEGIN SELECT RAISE(ABORT, 'archive_is_never_deleted'); END;

-- ── what was removed to make room ─────────────────────────────────────────────────────────────────────────────────────────────────

-- The row commits before the removal: from then on the thing counts as removed, and done_at_ms is set when it was seen gone.  Rows of the
-- ledger are never pruned.
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
CREATE UNIQUE INDEX prune_once_per_trial ON prune (trial_id, kind) WHERE trial_id IS NOT NULL;
CREATE UNIQUE INDEX prune_one_open_per_path ON prune (path) WHERE done_at_ms IS NULL;
CREATE TRIGGER prune_needs_exported_trial BEFORE INSERT ON prune
WHEN NEW.trial_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM artifact_export WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_needs_exported_trial'); END;
CREATE TRIGGER prune_only_at_rest BEFORE INSERT ON prune
WHEN NEW.trial_id IS NOT NULL AND (SELECT state FROM trial WHERE trial_id = NEW.trial_id) NOT IN ('scored', 'voided')
BEGIN SELECT RAISE(ABORT, 'prune_only_at_rest'); END;
CREATE TRIGGER prune_only_after_teardown BEFORE INSERT ON prune
WHEN EXISTS (SELECT 1 FROM trial JOIN claim USING (claim_id)
    WHERE trial_id = NEW.trial_id AND state IN ('scored', 'voided') AND released_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'prune_only_after_teardown'); END;
CREATE TRIGGER prune_of_a_run_here BEFORE INSERT ON prune
WHEN EXISTS (SELECT 1 FROM imported_trial WHERE trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_of_a_run_here'); END;
CREATE TRIGGER prune_names_the_standing_archive BEFORE INSERT ON prune
WHEN NEW.archive_id IS NOT NULL AND NOT EXISTS
    (SELECT 1 FROM archive WHERE archive_id = NEW.archive_id AND trial_id = NEW.trial_id AND ended_at_ms IS NULL)
BEGIN SELECT RAISE(ABORT, 'prune_names_the_standing_archive'); END;
CREATE TRIGGER prune_by_the_ledgers_time BEFORE INSERT ON prune
WHEN NEW.rested_at_ms <> (
    SELECT max(export.at_ms, (SELECT max(at_ms) FROM trial_event WHERE trial_id = NEW.trial_id))
    FROM artifact_export AS export WHERE export.trial_id = NEW.trial_id)
BEGIN SELECT RAISE(ABORT, 'prune_by_the_ledgers_time'); END;
CREATE TRIGGER prune_starts_undone BEFORE INSERT ON prune WHEN NEW.done_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'prune_starts_undone'); END;
CREATE TRIGGER prune_is_fixed BEFORE UPDATE OF prune_id, kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes,
    author, reason, at_ms ON prune
BEGIN SELECT RAISE(ABORT, 'prune_is_fixed'); END;
CREATE TRIGGER prune_done_once BEFORE UPDATE OF done_at_ms ON prune WHEN OLD.done_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'prune_done_once'); END;
CREATE TRIGGER prune_is_never_deleted BEFORE DELETE ON prune BEGIN SELECT RAISE(ABORT, 'prune_is_never_deleted'); END;

-- ── whose verifier may run now ────────────────────────────────────────────────────────────────────────────────────────────────────

-- In a campaign with tasks that time their own code each verifier asks for its turn.  alone: 'no' beside others; 'verifiers' with no other
-- verifier and nothing being prepared; 'everything' with no agent either.  agents_beside: agents that ran when it was granted.
-- A turn is held from granted_at_ms until ended_at_ms, or until its trial left 'verifying'.
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
CREATE INDEX verifier_turn_open ON verifier_turn (trial_id) WHERE ended_at_ms IS NULL;
CREATE TRIGGER verifier_turn_of_verifying_trial BEFORE INSERT ON verifier_turn
WHEN (SELECT state FROM trial WHERE trial_id = NEW.trial_id) IS NOT 'verifying'
BEGIN SELECT RAISE(ABORT, 'verifier_turn_of_verifying_trial'); END;
CREATE TRIGGER verifier_turn_starts_waiting BEFORE INSERT ON verifier_turn
WHEN coalesce(NEW.granted_at_ms, NEW.ended_at_ms) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_starts_waiting'); END;
CREATE TRIGGER verifier_turn_is_fixed BEFORE UPDATE OF turn_id, trial_id, round, alone, asked_at_ms ON verifier_turn
BEGIN SELECT RAISE(ABORT, 'verifier_turn_is_fixed'); END;
CREATE TRIGGER verifier_turn_granted_once BEFORE UPDATE OF granted_at_ms, agents_beside ON verifier_turn
WHEN OLD.granted_at_ms IS NOT NULL OR OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_granted_once'); END;
CREATE TRIGGER verifier_turn_keeps_apart BEFORE UPDATE OF granted_at_ms ON verifier_turn
WHEN NEW.granted_at_ms IS NOT NULL AND EXISTS
    (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
     WHERE other.trial_id <> NEW.trial_id AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL AND trial.state = 'verifying'
       AND (other.alone <> 'no' OR NEW.alone <> 'no'))
BEGIN SELECT RAISE(ABORT, 'verifier_turn_keeps_apart'); END;
CREATE TRIGGER verifier_turn_ends_once BEFORE UPDATE OF ended_at_ms ON verifier_turn WHEN OLD.ended_at_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'verifier_turn_ends_once'); END;
CREATE TRIGGER verifier_turn_outlives_its_verifier BEFORE UPDATE OF ended_at_ms ON verifier_turn
WHEN NEW.ended_at_ms IS NOT NULL AND EXISTS
    (SELECT 1 FROM verification JOIN trial USING (trial_id)
     WHERE trial_id = NEW.trial_id AND round = NEW.round AND verification.ended_at_ms IS NULL AND state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'verifier_turn_outlives_its_verifier'); END;
CREATE TRIGGER verifier_turn_is_never_deleted BEFORE DELETE ON verifier_turn
BEGIN SELECT RAISE(ABORT, 'verifier_turn_is_never_deleted'); END;
-- Beside a verifier that runs alone nothing begins: no other verifier, no trial.
CREATE TRIGGER verification_waits_its_turn BEFORE INSERT ON verification
WHEN EXISTS (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
    WHERE other.trial_id <> NEW.trial_id AND other.alone <> 'no' AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL
      AND trial.state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'verification_waits_its_turn'); END;
CREATE TRIGGER trial_waits_for_a_lone_verifier BEFORE INSERT ON trial
WHEN (SELECT origin FROM cell JOIN campaign USING (campaign_id) WHERE cell_id = NEW.cell_id) = 'run' AND EXISTS
    (SELECT 1 FROM verifier_turn AS other JOIN trial USING (trial_id)
     WHERE other.alone <> 'no' AND other.granted_at_ms IS NOT NULL AND other.ended_at_ms IS NULL AND trial.state = 'verifying')
BEGIN SELECT RAISE(ABORT, 'trial_waits_for_a_lone_verifier'); END;

-- ── views ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

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

-- campaign and trial are NULL for what belongs to no trial.  done_at NULL: the removal was broken off; the next prune finishes it.
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

-- waited_s NULL: it waits still, or its trial ended before its turn came.
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
