"""Rules of what is kept, removed and verified alone, with a statement that each refuses, for test_schema_rules.py.  No test of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from support.ledgers import T0

from marathond.ledger.verbs import artifacts

SHA = "ab" * 32
ARCHIVE = "INSERT INTO archive (trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms)"
PRUNE = "INSERT INTO prune (kind, path, trial_id, archive_id, unarchived, rested_at_ms, files, size_bytes, author, reason, at_ms)"
TURN = "INSERT INTO verifier_turn (trial_id, round, alone, asked_at_ms)"
LATER = T0 + 1000
ALONE = (  # {twice} lets go, and {verifying} begins alone
    f"UPDATE verification SET ended_at_ms = {LATER}, outcome = 'exited' WHERE trial_id = {{twice}} AND ended_at_ms IS NULL; "
    f"UPDATE verifier_turn SET ended_at_ms = {LATER} WHERE trial_id = {{twice}}; "
    f"UPDATE verifier_turn SET granted_at_ms = {LATER}, agents_beside = 1 WHERE trial_id = {{verifying}}"
)

KEPT: list[tuple[str, str]] = [
    ("archive_file_is_absolute", f"{ARCHIVE} VALUES ({{back}}, 'a.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    ("archive_sha256_is_64_hex", f"{ARCHIVE} VALUES ({{back}}, '/b.tar', 'ab', 1, 1, 1, 'ana', 1)"),
    ("archive_sha256_is_64_hex", f"{ARCHIVE} VALUES ({{back}}, '/b.tar', upper('{SHA}'), 1, 1, 1, 'ana', 1)"),
    ("archive_is_not_empty", f"{ARCHIVE} VALUES ({{back}}, '/b.tar', '{SHA}', 0, 1, 1, 'ana', 1)"),
    ("archive_ends_whole", "UPDATE archive SET ended_at_ms = 5"),
    ("archive_ends_whole", "UPDATE archive SET ended_at_ms = 5, ended_by = 'ana'"),
    ("archive_one_standing_per_trial", f"{ARCHIVE} VALUES ({{done}}, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    ("archive_one_standing_per_file", f"{ARCHIVE} VALUES ({{back}}, '/a.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    ("foreign_key", f"{ARCHIVE} VALUES ({{decided}}, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    ("archive_only_at_rest", f"{ARCHIVE} VALUES ({{running}}, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    ("archive_only_at_rest", f"{ARCHIVE} VALUES ({{review}}, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1)"),
    (
        "archive_of_a_run_here",
        f"INSERT INTO imported_trial (trial_id, import_id, key, sha256) SELECT 779, 1, 'k2', 'h'; {ARCHIVE} "
        f"VALUES (779, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1)",
    ),
    ("archive_starts_standing", f"INSERT INTO archive SELECT 99, {{back}}, '/b.tar', '{SHA}', 1, 1, 1, 'ana', 1, 5, 'ana', 'r'"),
    ("archive_is_fixed", "UPDATE archive SET file = '/elsewhere.tar'"),
    ("archive_is_fixed", f"UPDATE archive SET sha256 = '{SHA}'"),
    (
        "archive_ends_once",
        "UPDATE archive SET ended_at_ms = 5, ended_by = 'ana', ended_reason = 'r'; UPDATE archive SET ended_at_ms = NULL, ended_by = NULL, "
        "ended_reason = NULL",
    ),
    ("archive_is_never_deleted", "DELETE FROM archive"),
    ("prune_kind_known", f"{PRUNE} VALUES ('ledger', '/p', NULL, NULL, 0, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_path_is_absolute", f"{PRUNE} VALUES ('backup', 'p', NULL, NULL, 0, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_unarchived_is_bool", f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, 2, 2, {LATER}, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_says_why", f"{PRUNE} VALUES ('backup', '/p', NULL, NULL, 0, 1, 1, 1, 'ana', ' ', 2)"),
    ("prune_of_a_trial_or_of_none", f"{PRUNE} VALUES ('build_log', '/p', {{back}}, NULL, 0, {LATER}, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_of_a_trial_or_of_none", f"{PRUNE} VALUES ('artifacts', '/p', NULL, NULL, 1, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_archive_of_artifacts", f"{PRUNE} VALUES ('run_dir', '/p', {{back}}, 2, 0, {LATER}, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_archive_of_artifacts", f"{PRUNE} VALUES ('backup', '/p', NULL, NULL, 1, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_archived_or_said", f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, NULL, 0, {LATER}, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_archived_or_said", f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, 2, 1, {LATER}, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_after_the_rest", f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, 2, 0, {LATER}, 1, 1, 'ana', 'r', {LATER} - 1)"),
    ("prune_once_per_trial", f"{PRUNE} SELECT kind, '/p', trial_id, archive_id, 0, rested_at_ms, 1, 1, 'ana', 'r', at_ms FROM prune"),
    ("prune_one_open_per_path", f"{PRUNE} VALUES ('backup', '/f', NULL, NULL, 0, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_needs_exported_trial", f"{PRUNE} VALUES ('artifacts', '/p', {{withdrawn}}, NULL, 1, 1, 1, 1, 'ana', 'r', 2)"),
    ("prune_needs_exported_trial", f"{PRUNE} VALUES ('run_dir', '/p', {{withdrawn}}, NULL, 0, 1, 1, 1, 'ana', 'r', 2)"),
    (
        "prune_only_at_rest",
        f"INSERT INTO artifact_export VALUES ({{review}}, 'r', {LATER}); {PRUNE} "
        f"VALUES ('artifacts', '/p', {{review}}, NULL, 1, {LATER}, 1, 1, 'ana', 'r', {LATER})",
    ),
    (
        "prune_only_after_teardown",
        f"INSERT INTO artifact_export VALUES ({{scored}}, 'r', {LATER}); {PRUNE} "
        f"VALUES ('artifacts', '/p', {{scored}}, NULL, 1, {LATER}, 1, 1, 'ana', 'r', {LATER})",
    ),
    (
        "prune_of_a_run_here",
        f"INSERT INTO imported_trial (trial_id, import_id, key, sha256) SELECT 779, 1, 'k2', 'h'; {PRUNE} "
        "VALUES ('artifacts', '/p', 779, NULL, 1, 1, 1, 1, 'ana', 'r', 2)",
    ),
    (
        "prune_names_the_standing_archive",
        f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, 1, 0, {LATER}, 1, 1, 'ana', 'r', {LATER})",
    ),
    (
        "prune_names_the_standing_archive",
        f"UPDATE archive SET ended_at_ms = 5, ended_by = 'ana', ended_reason = 'lost'; {PRUNE} "
        f"VALUES ('artifacts', '/p', {{back}}, 2, 0, {LATER}, 1, 1, 'ana', 'r', {LATER})",
    ),
    ("prune_by_the_ledgers_time", f"{PRUNE} VALUES ('artifacts', '/p', {{back}}, 2, 0, {LATER} - 1, 1, 1, 'ana', 'r', {LATER})"),
    ("prune_starts_undone", "INSERT INTO prune SELECT 99, 'backup', '/p', NULL, NULL, 0, 1, 1, 1, 'ana', 'r', 2, 3"),
    ("prune_is_fixed", "UPDATE prune SET reason = 'other'"),
    ("prune_done_once", f"UPDATE prune SET done_at_ms = {LATER}; UPDATE prune SET done_at_ms = NULL"),
    ("prune_is_never_deleted", "DELETE FROM prune"),
    ("verifier_turn_alone_known", f"{TURN} VALUES ({{twice}}, 3, 'perhaps', 1)"),
    ("verifier_turn_one_per_round", f"{TURN} VALUES ({{twice}}, 2, 'no', 1)"),
    ("verifier_turn_granted_whole", "UPDATE verifier_turn SET agents_beside = 1 WHERE trial_id = {verifying}"),
    (
        "verifier_turn_no_agent_beside",
        f"{ALONE.rpartition('; ')[0]}; {TURN} VALUES ({{verifying}}, 2, 'everything', 1); "
        f"UPDATE verifier_turn SET granted_at_ms = {LATER}, agents_beside = 1 WHERE trial_id = {{verifying}} AND round = 2",
    ),
    ("verifier_turn_of_verifying_trial", f"{TURN} VALUES ({{running}}, 1, 'no', 1)"),
    ("verifier_turn_starts_waiting", "INSERT INTO verifier_turn SELECT 99, {twice}, 3, 'no', 1, 2, 0, NULL"),
    ("verifier_turn_is_fixed", "UPDATE verifier_turn SET alone = 'no' WHERE trial_id = {verifying}"),
    ("verifier_turn_granted_once", f"UPDATE verifier_turn SET granted_at_ms = {LATER} WHERE trial_id = {{twice}}"),
    ("verifier_turn_keeps_apart", f"UPDATE verifier_turn SET granted_at_ms = {LATER}, agents_beside = 1 WHERE trial_id = {{verifying}}"),
    (
        "verifier_turn_ends_once",
        f"{ALONE}; UPDATE verifier_turn SET ended_at_ms = NULL WHERE trial_id = {{twice}}",
    ),
    ("verifier_turn_outlives_its_verifier", f"UPDATE verifier_turn SET ended_at_ms = {LATER} WHERE trial_id = {{twice}}"),
    ("verifier_turn_is_never_deleted", "DELETE FROM verifier_turn"),
    (
        "verification_waits_its_turn",
        f"{ALONE}; INSERT INTO verification (trial_id, round, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin) "
        "VALUES ({twice}, 3, 1, 1, 'b', 1, 'o')",
    ),
    (
        "trial_waits_for_a_lone_verifier",
        f"{ALONE}; INSERT INTO trial (cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms) "
        "SELECT cell_id, 1, claim_id, 2, {NEW}, 'new', 1 FROM claim WHERE cell_id = {c_voided}",
    ),
]


def plant_kept(c: sqlite3.Connection, names: Mapping[str, str]) -> None:
    """Two archived trials, one of them pruned; a turn that is held and one that waits; an imported trial whose files are known.

    Comes after ``plant_truth``, whose imported campaign it uses.
    """
    done, back = int(names["done"]), int(names["back"])
    artifacts.exported(c, back, folder="b", records=[], now_ms=LATER)
    c.execute(f"{ARCHIVE} VALUES (?, '/a.tar', '{'cd' * 32}', 1, 1, 1, 'ana', {LATER})", (done,))
    c.execute(f"{ARCHIVE} VALUES (?, '/c.tar', '{SHA}', 1, 1, 1, 'ana', {LATER})", (back,))
    c.execute(f"{PRUNE} VALUES ('artifacts', '/f', ?, 1, 0, {T0}, 1, 1, 'ana', 'r', {LATER})", (done,))
    c.execute(f"{TURN} VALUES (?, 2, 'no', {T0})", (int(names["twice"]),))
    c.execute(f"UPDATE verifier_turn SET granted_at_ms = {T0}, agents_beside = 0")
    c.execute(f"{TURN} VALUES (?, 1, 'verifiers', {T0})", (int(names["verifying"]),))
    c.execute("INSERT INTO arm VALUES (79, 77, 'goal', 2, 'imported', 't', '{}')")
    c.execute("INSERT INTO cell VALUES (79, 77, 77, 77, 79, 1, 2)")
    c.execute("INSERT INTO claim VALUES (779, 79, 'imported-2', (SELECT max(run_id) FROM run), 1, NULL)")
    c.execute(
        """INSERT INTO trial (trial_id, cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)
           VALUES (779, 79, 79, 779, 1, (SELECT max(run_id) FROM run), 'new', 1)"""
    )
    c.execute(
        """INSERT INTO void (trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, score_was_known, counts_pass,
               batch)
           VALUES (779, 'imported_void', 'r', '{}', 'operator', 'ana', 1, 'reserved', 0, 0, 'b')"""
    )
    c.execute("UPDATE claim SET released_at_ms = 1 WHERE claim_id = 779")
    c.execute("INSERT INTO artifact_export VALUES (779, 'there', 1)")
