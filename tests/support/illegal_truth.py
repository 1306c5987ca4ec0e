"""Rules of what is compared and of what was imported, with a statement that each refuses, for test_schema_rules.py.  No test of its own."""

from __future__ import annotations

import sqlite3

SCORES = "(SELECT count(*) FROM trial JOIN cell USING (cell_id) WHERE campaign_id = 1 AND trial_id IN (SELECT trial_id FROM score))"
CONTRAST = "INSERT INTO contrast (campaign_id, version, position, arm_a, arm_b, scores_known, author, at_ms)"
TRIAL = "INSERT INTO imported_trial (trial_id, import_id, key, sha256)"

TRUTH: list[tuple[str, str]] = [
    (
        "score_test_rate_in_range",
        "INSERT INTO score SELECT 99, trial_id, 1, 1, 'f', NULL, NULL, NULL, '[]', 1, run_id, 1.5 FROM score LIMIT 1",
    ),
    ("contrast_of_two_arms", f"{CONTRAST} VALUES (1, 2, 1, 'plain', 'plain', {SCORES}, 'ana', 1)"),
    ("contrast_said_once", f"{CONTRAST} VALUES (1, 1, 2, 'plain', 'goal', {SCORES}, 'ana', 1)"),
    ("contrast_follows_the_last", f"{CONTRAST} VALUES (1, 1, 3, 'goal', 'plain', {SCORES}, 'ana', 1)"),
    ("contrast_follows_the_last", f"{CONTRAST} VALUES (1, 3, 1, 'goal', 'plain', {SCORES}, 'ana', 1)"),
    ("contrast_names_arms_of_the_campaign", f"{CONTRAST} VALUES (1, 2, 1, 'plain', 'nobody', {SCORES}, 'ana', 1)"),
    ("contrast_says_what_was_known", f"{CONTRAST} VALUES (1, 2, 1, 'goal', 'plain', {SCORES} + 1, 'ana', 1)"),
    ("contrast_is_append_only", "UPDATE contrast SET at_ms = 2"),
    ("contrast_is_append_only", "DELETE FROM contrast"),
    (
        "campaign_origin_known",
        "INSERT INTO campaign SELECT 99, 'z', 1, 'ana', 't', '[]', '[]', '/o', 'r', 1, 'elsewhere' FROM campaign LIMIT 1",
    ),
    ("campaign_origin_is_fixed", "UPDATE campaign SET origin = 'import'"),
    (
        "import_refused_is_json",
        "INSERT INTO import (campaign_id, kind, source, author, at_ms, refused_json) VALUES (1, 'csv', 's', 'ana', 1, 'no')",
    ),
    ("import_is_fixed", "UPDATE import SET source = 'other'"),
    ("import_is_fixed", "DELETE FROM import"),
    ("imported_trial_of_imported_campaign", f"{TRIAL} SELECT trial_id, 1, 'k', 'h' FROM trial LIMIT 1"),
    ("imported_trial_is_fixed", "UPDATE imported_trial SET key = 'other'"),
    ("imported_trial_is_fixed", "DELETE FROM imported_trial"),
    (
        "imported_only_in_imported_campaign",
        """INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id)
           SELECT trial_id, 2, 'imported', 'reserved', 'verifying', 1, (SELECT max(run_id) FROM run) FROM trial WHERE state = 'reserved'""",
    ),
]


def plant_truth(c: sqlite3.Connection) -> None:
    """A contrast of the first campaign, and another campaign with one imported trial."""
    c.execute(f"{CONTRAST} VALUES (1, 1, 1, 'plain', 'goal', {SCORES}, 'ana', 1)")
    c.execute("INSERT INTO campaign VALUES (77, 'before', 1, 'ana', 't', '{}', '{}', '/o', 'replicate-major', 1, 'import')")
    c.execute("INSERT INTO arm VALUES (77, 77, 'plain', 1, 'imported', 't', '{}')")
    c.execute("INSERT INTO task VALUES (77, 77, 'zstd', '', NULL, NULL, NULL, NULL, NULL, 0, '{}')")
    c.execute("INSERT INTO block VALUES (77, 77, 77, 1)")
    c.execute("INSERT INTO cell VALUES (77, 77, 77, 77, 77, 1, 1)")
    c.execute("INSERT INTO claim VALUES (777, 77, 'imported', (SELECT max(run_id) FROM run), 1, NULL)")
    c.execute(
        """INSERT INTO trial (trial_id, cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)
           VALUES (777, 77, 77, 777, 1, (SELECT max(run_id) FROM run), 'new', 1)"""
    )
    c.execute("INSERT INTO import VALUES (1, 77, 'csv', 's', 'ana', 1, '[]', 1)")
    c.execute(f"{TRIAL} VALUES (777, 1, 'k', 'h')")
