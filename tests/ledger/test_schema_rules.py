"""Every rule of the schema refuses what it was written for, and is named in the refusal.

The table below is complete: :func:`test_every_rule_has_an_illegal_statement` fails when a rule of the schema has no row in it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ledgers as help
from support.illegal_archive import KEPT, plant_kept
from support.illegal_model import MODEL, MODEL_SIGNS, plant_model
from support.illegal_money import MONEY, plant_money
from support.illegal_told import TOLD, plant_told
from support.illegal_truth import TRUTH, plant_truth
from support.ledgers import STATES, T0, arm, bring_to, cell, fill, let_go, memory_ledger, start_verifier, submission, task

from marathond.core.lifecycle import TRANSITIONS
from marathond.core.names import LIVE_STATES
from marathond.ledger.errors import UNIQUE_RULES, RuleBroken, rule_of, translate
from marathond.ledger.verbs import admission, artifacts, findings, operator, settings
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.sql import LIVE

SIGNS = {
    **MODEL_SIGNS,
    "ev": "INSERT INTO trial_event (trial_id, seq, event, from_state, to_state, at_ms, run_id, detail_json)",
    "tr": "INSERT INTO trial (cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms)",
    "cl": "INSERT INTO claim (cell_id, token, run_id, claimed_at_ms)",
    "co": "INSERT INTO container (trial_id, engine, name, image_id, context_digest, intended_at_ms)",
    "le": "INSERT INTO network_lease (engine, trial_id, subnet, network_name, leased_at_ms)",
    "sc": "INSERT INTO score (trial_id, extractor, reward, reward_source, flags_json, at_ms, run_id)",
    "vo": "INSERT INTO void (trial_id, code, reason, evidence_json, decided_by, author, at_ms, from_state, "
    "score_was_known, counts_pass, batch)",
    "ag": "INSERT INTO trial_agent (trial_id, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin, limit_loser)",
    "ve": "INSERT INTO verification (trial_id, round, started_at_ms, started_mono_ms, boot_id, limit_ms, limit_origin)",
    "re": "INSERT INTO review (trial_id, code, detail, evidence_json, opened_at_ms)",
    "pa": "INSERT INTO park (cell_id, code, detail, author, at_ms)",
    "ca": "INSERT INTO campaign (name, created_at_ms, created_by, treatment_hash, treatment_json, config_json, out_dir, cell_order, seed)",
    "ta": "INSERT INTO task (campaign_id, name, path, declared_limit_ms, cpus, memory_mb, needs_network, data_json)",
    "po": "INSERT INTO network_pool (engine, mode, range, prefix, cap, margin)",
    "fi": "INSERT INTO finding (code, severity, subject, detail, opened_at_ms, seen_at_ms)",
    "st": "INSERT INTO admission_stop (kind, detail, author, at_ms)",
    "se": "INSERT INTO setting_change (key, old_json, new_json, author, reason, at_ms, run_id)",
    "id": "INSERT INTO ledger_identity (singleton, ledger_id, created_at_ms, path, device, inode, host)",
    "ru": "INSERT INTO run (run_id, pid, pid_start_ticks, host, boot_id, version, started_at_ms, seen_at_ms)",
}

# rule, statement.  {reserved} … {voided}, {done}: trial ids; {c_…}: their cells; {free}: an open cell; {again}: a cell whose trial was
# voided and let go; {parked}: a parked cell; {NEW}: the newest run.  For the others see the gallery.
ILLEGAL: list[tuple[str, str]] = [
    # identity, lives
    ("ledger_identity_one_row", "{id} VALUES (2, '0123456789ab', 1, 'p', 1, 1, 'h')"),
    ("ledger_id_is_12_hex", "{id} VALUES (1, '0123456789AB', 1, 'p', 1, 1, 'h')"),
    ("ledger_id_is_12_hex", "{id} VALUES (1, '0123456789', 1, 'p', 1, 1, 'h')"),
    ("ledger_identity_is_never_deleted", "DELETE FROM ledger_identity"),
    ("run_is_fixed", "UPDATE run SET pid = 7"),
    ("run_number_grows", "{ru} VALUES (1, 1, 1, 'h', 'b', 'v', 1, 1)"),
    ("run_is_never_deleted", "DELETE FROM run"),
    # what is compared
    ("campaign_name_unique", "{ca} VALUES ('x', 1, 'a', 't', '{{}}', '{{}}', 'o', 'arm-major', 1)"),
    ("campaign_treatment_is_json", "{ca} VALUES ('y', 1, 'a', 't', 'no', '{{}}', 'o', 'arm-major', 1)"),
    ("campaign_config_is_json", "{ca} VALUES ('y', 1, 'a', 't', '{{}}', 'no', 'o', 'arm-major', 1)"),
    ("campaign_treatment_is_fixed", "UPDATE campaign SET treatment_hash = 'other'"),
    ("campaign_is_never_deleted", "DELETE FROM campaign"),
    ("arm_name_unique_in_campaign", "INSERT INTO arm SELECT NULL, campaign_id, name, 9, kind, 'h', '{{}}' FROM arm LIMIT 1"),
    ("arm_data_is_json", "INSERT INTO arm SELECT NULL, campaign_id, 'new', 9, kind, 'h', 'no' FROM arm LIMIT 1"),
    ("arm_treatment_is_fixed", "UPDATE arm SET data_json = '{{\"argv\":[]}}'"),
    ("arm_is_never_deleted", "DELETE FROM arm"),
    ("task_name_unique_in_campaign", "{ta} VALUES (1, 'free', '/p', 1, 1.0, 1, 1, '{{}}')"),
    ("task_limit_positive", "{ta} VALUES (1, 'new', '/p', 0, 1.0, 1, 1, '{{}}')"),
    ("task_cpus_positive", "{ta} VALUES (1, 'new', '/p', 1, -1.0, 1, 1, '{{}}')"),
    ("task_memory_positive", "{ta} VALUES (1, 'new', '/p', 1, 1.0, 0, 1, '{{}}')"),
    ("task_needs_network_is_bool", "{ta} VALUES (1, 'new', '/p', 1, 1.0, 1, 2, '{{}}')"),
    ("task_data_is_json", "{ta} VALUES (1, 'new', '/p', 1, 1.0, 1, 1, 'no')"),
    ("task_digest_is_fixed", "UPDATE task SET digest = 'other'"),
    ("task_digest_is_fixed", "UPDATE task SET context_digest = 'other'"),
    ("task_is_never_deleted", "DELETE FROM task"),
    ("block_replicate_positive", "INSERT INTO block (campaign_id, task_id, replicate) VALUES (1, 1, 0)"),
    ("block_one_per_task_and_replicate", "INSERT INTO block (campaign_id, task_id, replicate) VALUES (1, 1, 1)"),
    ("foreign_key", "INSERT INTO block (campaign_id, task_id, replicate) VALUES (99, 1, 2)"),
    ("block_is_fixed", "UPDATE block SET replicate = 3"),
    ("block_is_never_deleted", "DELETE FROM block"),
    (
        "cell_one_per_task_arm_replicate",
        "INSERT INTO cell SELECT NULL, campaign_id, block_id, task_id, arm_id, replicate, 9 FROM cell LIMIT 1",
    ),
    ("cell_is_fixed", "UPDATE cell SET arm_id = 2 WHERE cell_id = {free}"),
    ("cell_is_never_deleted", "DELETE FROM cell WHERE cell_id = {free}"),
    # claims (fault f09)
    ("claim_token_unique", "{cl} SELECT {free}, token, {NEW}, 1 FROM claim LIMIT 1"),
    ("claim_only_open_cell", "{cl} VALUES ({c_done}, 'fresh', {NEW}, 1)"),
    ("claim_only_open_cell", "{cl} VALUES ({c_running}, 'fresh', {NEW}, 1)"),
    ("claim_only_open_cell", "{cl} VALUES ({parked}, 'fresh', {NEW}, 1)"),
    ("claim_one_live_per_cell", "{cl} VALUES ({c_voided}, 'fresh', {NEW}, 1)"),
    ("written_by_newest_run", "{cl} VALUES ({free}, 'fresh', {NEW} - 1, 1)"),
    (
        "claim_starts_live",
        "INSERT INTO claim (cell_id, token, run_id, claimed_at_ms, released_at_ms) VALUES ({free}, 'fresh', {NEW}, 1, 1)",
    ),
    ("claim_released_at_is_a_time", "UPDATE claim SET released_at_ms = -1 WHERE cell_id = {c_voided}"),
    ("claim_is_fixed", "UPDATE claim SET token = 'stolen' WHERE cell_id = {c_running}"),
    ("claim_is_never_deleted", "DELETE FROM claim WHERE cell_id = {c_running}"),
    ("claim_released_once", "UPDATE claim SET released_at_ms = NULL WHERE cell_id = {c_done}"),
    ("claim_released_only_after_trial", "UPDATE claim SET released_at_ms = 5 WHERE cell_id = {c_reserved}"),
    ("claim_released_only_after_container", "UPDATE claim SET released_at_ms = 5 WHERE cell_id = {c_scored}"),
    # trials and events
    ("trial_starts_new", "{tr} SELECT cell_id, 1, claim_id, 2, {NEW}, 'scored', 1 FROM claim WHERE cell_id = {c_voided}"),
    ("trial_needs_live_claim", "{tr} SELECT cell_id, 1, claim_id, 2, {NEW}, 'new', 1 FROM claim WHERE cell_id = {again}"),
    ("trial_one_per_claim", "{tr} SELECT cell_id, 1, claim_id, 2, {NEW}, 'new', 1 FROM claim WHERE cell_id = {c_voided}"),
    ("trial_attempt_is_next", "{tr} SELECT cell_id, 1, claim_id, 3, {NEW}, 'new', 1 FROM claim WHERE cell_id = {c_voided}"),
    ("trial_one_standing_per_cell", "{tr} SELECT cell_id, 1, claim_id, 2, {NEW}, 'new', 1 FROM claim WHERE cell_id = {c_running}"),
    ("written_by_newest_run", "{tr} SELECT cell_id, 1, claim_id, 2, {NEW} - 1, 'new', 1 FROM claim WHERE cell_id = {c_voided}"),
    ("trial_identity_is_fixed", "UPDATE trial SET cell_id = {free} WHERE trial_id = {running}"),
    ("trial_identity_is_fixed", "UPDATE trial SET arm_id = 2 WHERE trial_id = {running}"),
    ("trial_state_follows_events", "UPDATE trial SET state = 'scored' WHERE trial_id = {running}"),
    ("trial_repeats_its_score", "UPDATE trial SET reward = 1 WHERE trial_id = {running}"),
    ("trial_repeats_its_score", "UPDATE trial SET reward = 0 WHERE trial_id = {done}"),
    ("trial_repeats_its_agent", "UPDATE trial SET budget_ended = 1 WHERE trial_id = {done}"),
    ("trial_is_never_deleted", "DELETE FROM trial WHERE trial_id = {voided}"),
    ("trial_event_is_gapless", "{ev} VALUES ({running}, 9, 'reattached', 'running', 'running', 1, {NEW}, '{{}}')"),
    ("trial_event_is_gapless", "{ev} VALUES ({running}, 1, 'reattached', 'running', 'running', 1, {NEW}, '{{}}')"),
    ("trial_event_starts_where_the_trial_is", "{ev} VALUES ({running}, 4, 'verify_again', 'verifying', 'verifying', 1, {NEW}, '{{}}')"),
    ("trial_event_is_legal", "{ev} VALUES ({running}, 4, 'environment_up', 'running', 'preparing', 1, {NEW}, '{{}}')"),
    ("trial_event_detail_is_json", "{ev} VALUES ({running}, 4, 'reattached', 'running', 'running', 1, {NEW}, 'no')"),
    ("written_by_newest_run", "{ev} VALUES ({running}, 4, 'reattached', 'running', 'running', 1, {NEW} - 1, '{{}}')"),
    ("environment_up_needs_container", "{ev} VALUES ({dry}, 2, 'environment_up', 'reserved', 'preparing', 1, {NEW}, '{{}}')"),
    ("environment_up_needs_network", "{ev} VALUES ({made}, 2, 'environment_up', 'reserved', 'preparing', 1, {NEW}, '{{}}')"),
    ("agent_started_needs_deadline", "{ev} VALUES ({preparing}, 3, 'agent_started', 'preparing', 'running', 1, {NEW}, '{{}}')"),
    ("agent_ended_needs_ending", "{ev} VALUES ({running}, 4, 'agent_ended', 'running', 'verifying', 1, {NEW}, '{{}}')"),
    ("agent_ended_needs_ending", "{ev} VALUES ({running}, 4, 'budget_spent', 'running', 'verifying', 1, {NEW}, '{{}}')"),
    (
        "verify_again_only_once",
        "{ev} VALUES ({twice}, 6, 'verify_again', 'verifying', 'verifying', 1, {NEW}, '{{}}')",
    ),
    ("scored_needs_score", "{ev} VALUES ({verifying}, 5, 'scored', 'verifying', 'scored', 1, {NEW}, '{{}}')"),
    ("scored_needs_score", "{ev} VALUES ({review}, 6, 'accepted', 'review', 'scored', 1, {NEW}, '{{}}')"),
    ("review_needs_evidence", "{ev} VALUES ({verifying}, 5, 'doubted', 'verifying', 'review', 1, {NEW}, '{{}}')"),
    ("voided_needs_void", "{ev} VALUES ({running}, 4, 'voided', 'running', 'voided', 1, {NEW}, '{{}}')"),
    ("unvoided_needs_undone_void", "{ev} VALUES ({withdrawn}, 7, 'unvoided', 'voided', 'scored', 1, {NEW}, '{{}}')"),
    ("trial_event_is_append_only", "UPDATE trial_event SET at_ms = 1"),
    ("trial_event_is_append_only", "DELETE FROM trial_event WHERE trial_id = {running}"),
    (
        "trial_event_is_append_only",
        "REPLACE INTO trial_event VALUES (1, {running}, 4, 'reattached', 'running', 'running', 1, {NEW}, '{{}}')",
    ),
    ("trial_transition_is_fixed", "INSERT INTO trial_transition VALUES ('running', 'scored', 'scored')"),
    ("trial_transition_is_fixed", "UPDATE trial_transition SET to_state = 'scored'"),
    ("trial_transition_is_fixed", "DELETE FROM trial_transition"),
    # containers
    ("container_one_per_trial", "{co} VALUES ({made}, 'main', 'other', 'i', 'c', 1)"),
    ("container_name_unique", "{co} SELECT {reserved}, 'main', name, 'i', 'c', 1 FROM container WHERE trial_id = {running}"),
    ("container_docker_id_unique", "UPDATE container SET docker_id = 'id-{running}' WHERE trial_id = {intended}"),
    ("container_needs_live_trial", "{co} VALUES ({voided}, 'main', 'other', 'i', 'c', 1)"),
    ("container_needs_lease", "{co} VALUES ({bare}, 'main', 'other', 'i', 'c', 1)"),
    (
        "container_starts_there",
        "INSERT INTO container SELECT NULL, {reserved}, 'main', 'other', 'i', 'c', 1, NULL, NULL, 1, 'seen_gone'",
    ),
    ("container_gone_known", "UPDATE container SET gone_at_ms = 1, gone_because = 'guessed' WHERE trial_id = {running}"),
    ("container_gone_whole", "UPDATE container SET gone_at_ms = 1 WHERE trial_id = {running}"),
    ("container_never_created_has_no_id", "UPDATE container SET gone_at_ms = 1, gone_because = 'never_created' WHERE trial_id = {running}"),
    ("container_is_fixed", "UPDATE container SET image_id = 'other' WHERE trial_id = {running}"),
    ("container_id_set_once", "UPDATE container SET docker_id = 'other' WHERE trial_id = {running}"),
    ("container_stays_gone", "UPDATE container SET gone_at_ms = NULL, gone_because = NULL WHERE trial_id = {done}"),
    ("container_is_never_deleted", "DELETE FROM container WHERE trial_id = {done}"),
    # agent, verification
    ("trial_agent_needs_prepared_trial", "{ag} VALUES ({reserved}, 1, 1, 'b', 1, 'own', '')"),
    ("trial_agent_limit_positive", "{ag} VALUES ({preparing}, 1, 1, 'b', 0, 'own', '')"),
    (
        "trial_agent_starts_running",
        "INSERT INTO trial_agent SELECT {preparing}, 'e', 1, 1, 'b', 1, 'own', '', 0, 1, 1, 'agent', 0, 'exec', 0, 0, '[]'",
    ),
    ("trial_agent_oom_is_bool", "UPDATE trial_agent SET oom_killed = 2 WHERE trial_id = {running}"),
    ("trial_agent_processes_is_json", "UPDATE trial_agent SET processes_json = 'no' WHERE trial_id = {running}"),
    ("trial_agent_ends_whole", "UPDATE trial_agent SET ended_at_ms = 1 WHERE trial_id = {running}"),
    ("trial_agent_start_is_fixed", "UPDATE trial_agent SET limit_ms = 999999 WHERE trial_id = {running}"),
    ("trial_agent_ends_once", "UPDATE trial_agent SET exit_code = 1 WHERE trial_id = {done}"),
    ("trial_agent_is_never_deleted", "DELETE FROM trial_agent WHERE trial_id = {running}"),
    ("verification_needs_verifying_trial", "{ve} VALUES ({running}, 1, 1, 1, 'b', 1, 'own')"),
    ("verification_round_positive", "{ve} VALUES ({verifying}, 0, 1, 1, 'b', 1, 'own')"),
    ("verification_one_per_round", "{ve} VALUES ({verifying}, 1, 1, 1, 'b', 1, 'own')"),
    ("verification_limit_positive", "{ve} VALUES ({verifying}, 2, 1, 1, 'b', 0, 'own')"),
    ("verification_ends_whole", "UPDATE verification SET ended_at_ms = 1 WHERE trial_id = {verifying}"),
    ("verification_start_is_fixed", "UPDATE verification SET limit_ms = 9 WHERE trial_id = {verifying}"),
    ("verification_ends_once", "UPDATE verification SET exit_code = 9 WHERE trial_id = {done}"),
    ("verification_is_never_deleted", "DELETE FROM verification"),
    ("trial_fact_is_never_deleted", "DELETE FROM trial_fact"),
    # scores, reviews
    ("score_only_while_graded", "{sc} VALUES ({running}, 1, 1.0, 's', '[]', 1, {NEW})"),
    ("score_only_while_graded", "{sc} VALUES ({voided}, 1, 1.0, 's', '[]', 1, {NEW})"),
    ("score_reward_in_range", "{sc} VALUES ({verifying}, 1, 1.5, 's', '[]', 1, {NEW})"),
    ("score_reward_in_range", "{sc} VALUES ({verifying}, 1, 9e999, 's', '[]', 1, {NEW})"),
    ("score_partial_in_range", "INSERT INTO score SELECT NULL, {verifying}, 1, 1.0, 's', -0.1, NULL, NULL, '[]', 1, {NEW}, NULL"),
    ("score_tests_make_sense", "INSERT INTO score SELECT NULL, {verifying}, 1, 1.0, 's', NULL, 5, 4, '[]', 1, {NEW}, NULL"),
    ("score_flags_is_json", "{sc} VALUES ({verifying}, 1, 1.0, 's', 'no', 1, {NEW})"),
    ("score_of_review_needs_acceptance", "{sc} VALUES ({review}, 0, 1.0, 'operator', '[]', 1, {NEW})"),
    ("score_is_fixed", "UPDATE score SET reward = 1"),
    ("score_is_fixed", "DELETE FROM score"),
    ("score_part_is_fixed", "UPDATE score_part SET value = '1'"),
    ("score_part_is_fixed", "DELETE FROM score_part"),
    ("score.reward_not_null", "{sc} VALUES ({verifying}, 1, NULL, 's', '[]', 1, {NEW})"),
    ("column_type", "{sc} VALUES ({verifying}, 1, 'nan', 's', '[]', 1, {NEW})"),
    ("review_only_of_doubted_trial", "{re} VALUES ({running}, 'c', 'd', '{{}}', 1)"),
    ("review_evidence_is_json", "{re} VALUES ({verifying}, 'c', 'd', 'no', 1)"),
    ("review_one_open_per_trial", "{re} SELECT {withdrawn}, 'c', 'd', '{{}}', n FROM (SELECT 1 AS n UNION SELECT 2)"),
    ("review_is_decided_whole", "UPDATE review SET decided_at_ms = 1 WHERE trial_id = {review}"),
    ("review_is_fixed", "UPDATE review SET detail = 'other' WHERE trial_id = {review}"),
    ("review_decided_once", "UPDATE review SET reason = 'other' WHERE trial_id = {decided}"),
    ("review_is_never_deleted", "DELETE FROM review"),
    # voids (fault a08)
    ("void_evidence_is_json", "{vo} VALUES ({running}, 'operator', 'r', 'no', 'operator', 'ana', 1, 'running', 0, 0, 'b')"),
    ("void_decided_by_known", "{vo} VALUES ({running}, 'operator', 'r', '{{}}', 'somebody', 'ana', 1, 'running', 0, 0, 'b')"),
    ("void_counts_pass_is_bool", "{vo} VALUES ({running}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'running', 0, 2, 'b')"),
    ("foreign_key", "{vo} VALUES ({running}, 'bad_luck', 'r', '{{}}', 'operator', 'ana', 1, 'running', 0, 0, 'b')"),
    ("void_says_the_state", "{vo} VALUES ({running}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'reserved', 0, 0, 'b')"),
    ("void_says_whether_score_was_known", "{vo} VALUES ({done}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'scored', 0, 0, 'b')"),
    ("void_after_score_only_by_operator", "{vo} VALUES ({done}, 'engine_failed', 'r', '{{}}', 'daemon', 'daemon', 1, 'scored', 1, 1, 'b')"),
    ("void_needs_decided_review", "{vo} VALUES ({review}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'review', 0, 0, 'b')"),
    ("void_one_standing_per_trial", "{vo} VALUES ({voided}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'voided', 0, 0, 'b')"),
    (
        "void_starts_standing",
        "INSERT INTO void SELECT NULL, {running}, 'operator', 'r', '{{}}', 'operator', 'ana', 1, 'running', 0, 0, 'b', 1, 'ana', 'r'",
    ),
    ("void_is_fixed", "UPDATE void SET reason = 'prettier'"),
    ("void_is_undone_whole", "UPDATE void SET undone_by = 'ana' WHERE trial_id = {withdrawn}"),
    ("void_undone_once", "UPDATE void SET undone_at_ms = 2 WHERE trial_id = {back}"),
    ("void_undone_only_from_rest", "UPDATE void SET undone_at_ms = 1, undone_by = 'ana' WHERE trial_id = {voided}"),
    ("unvoided_only_without_later_trial", "UPDATE void SET undone_at_ms = 1, undone_by = 'ana' WHERE trial_id = {first}"),
    ("void_is_never_deleted", "DELETE FROM void"),
    ("void_code_is_fixed", "UPDATE void_code SET side = 'operator'"),
    ("void_code_is_fixed", "DELETE FROM void_code WHERE code = 'provider'"),
    # parks
    ("park_one_standing_per_cell", "{pa} VALUES ({parked}, 'c', 'd', 'a', 1)"),
    ("park_is_fixed", "UPDATE park SET code = 'other' WHERE cell_id = {parked}"),
    ("park_ends_whole", "UPDATE park SET ended_at_ms = 1 WHERE cell_id = {parked}"),
    ("park_ends_once", "UPDATE park SET ended_reason = 'other' WHERE cell_id = {free}"),
    ("park_is_never_deleted", "DELETE FROM park"),
    # networks
    ("network_pool_mode_known", "{po} VALUES ('b', 'magic', '', 28, 1, 0)"),
    ("network_pool_cap_not_negative", "{po} VALUES ('b', 'auto', '', 28, -1, 0)"),
    ("network_pool_margin_not_negative", "{po} VALUES ('b', 'auto', '', 28, 1, -1)"),
    ("network_pool_is_never_deleted", "DELETE FROM network_pool"),
    ("network_lease_needs_live_trial", "{le} VALUES ('main', {voided}, '198.19.99.0/28', 'n', 1)"),
    ("network_lease_within_cap", "UPDATE network_pool SET cap = 3; {le} VALUES ('main', {bare}, '198.19.99.0/28', 'n', 1)"),
    ("network_lease_one_live_per_subnet", "{le} SELECT 'main', {bare}, subnet, 'n', 1 FROM network_lease WHERE trial_id = {running}"),
    ("network_lease_one_live_per_trial", "{le} VALUES ('main', {reserved}, '198.19.99.0/28', 'n', 1)"),
    (
        "network_lease_starts_live",
        "INSERT INTO network_lease SELECT NULL, 'main', {bare}, NULL, 'n', 1, NULL, NULL, 0, NULL, 1, 'seen_gone'",
    ),
    ("network_lease_release_known", "UPDATE network_lease SET released_at_ms = 1, released_because = 'hoped' WHERE trial_id = {reserved}"),
    ("network_lease_released_whole", "UPDATE network_lease SET released_at_ms = 1 WHERE trial_id = {reserved}"),
    ("network_lease_is_fixed", "UPDATE network_lease SET subnet = '198.19.99.0/28' WHERE trial_id = {reserved}"),
    ("network_lease_network_id_set_once", "UPDATE network_lease SET network_id = 'other' WHERE trial_id = {running}"),
    ("network_lease_released_once", "UPDATE network_lease SET released_at_ms = 9 WHERE trial_id = {done}"),
    (
        "network_lease_outlives_container",
        "UPDATE network_lease SET released_at_ms = 9, released_because = 'seen_gone' WHERE trial_id = {running}",
    ),
    ("network_lease_is_never_deleted", "DELETE FROM network_lease"),
    ("network_seen_owner_known", "INSERT INTO network_seen VALUES ('main', 'n', 'n', 'nobody', '', '', 1, 1)"),
    # what the daemon saw
    ("finding_severity_known", "{fi} VALUES ('c', 'meh', 's', 'd', 1, 1)"),
    ("finding_one_open_per_subject", "{fi} VALUES ('open', 'info', 's', 'd', 1, 1)"),
    ("finding_is_fixed", "UPDATE finding SET code = 'other'"),
    ("finding_closes_once", "UPDATE finding SET closed_at_ms = 9 WHERE code = 'closed'"),
    ("finding_is_never_deleted", "DELETE FROM finding"),
    ("admission_stop_kind_known", "{st} VALUES ('mood', 'd', 'a', 1)"),
    ("admission_stop_one_live_per_kind", "{st} VALUES ('pause', 'd', 'a', 1)"),
    ("admission_stop_is_fixed", "UPDATE admission_stop SET author = 'other'"),
    ("admission_stop_ends_once", "UPDATE admission_stop SET ended_by = 'other' WHERE kind = 'drain'"),
    ("admission_stop_is_never_deleted", "DELETE FROM admission_stop"),
    ("setting_change_old_is_json", "{se} VALUES ('k', 'no', '1', 'a', 'r', 1, {NEW})"),
    ("setting_change_new_is_json", "{se} VALUES ('k', '1', 'no', 'a', 'r', 1, {NEW})"),
    ("setting_change_is_append_only", "UPDATE setting_change SET author = 'other'"),
    ("setting_change_is_append_only", "DELETE FROM setting_change"),
    ("observation_is_json", "INSERT INTO observation VALUES ('k', 'no', 1, {NEW})"),
    ("artifact_export_only_at_rest", "INSERT INTO artifact_export VALUES ({running}, 'f', 1)"),
    ("artifact_export_is_fixed", "UPDATE artifact_export SET folder = 'other'"),
    ("artifact_export_is_fixed", "DELETE FROM artifact_export"),
    ("artifact_is_fixed", "UPDATE artifact SET sha256 = 'other'"),
    ("artifact_is_fixed", "DELETE FROM artifact"),
    *MODEL,
    *MONEY,
    *TOLD,
    *TRUTH,
    *KEPT,
]

UNREACHABLE = {
    # Keys that only serve as targets of references, or that a trigger guards before the constraint is asked.
    "arm_key": "contains arm_id, the primary key",
    "task_key": "contains task_id, the primary key",
    "block_key": "contains block_id, the primary key",
    "cell_key": "contains cell_id, the primary key",
    "claim_key": "contains claim_id, the primary key",
    "trial_attempt_unique_in_cell": "trial_attempt_is_next asks first",
    "trial_event_seq_unique": "trial_event_is_gapless asks first",
    "void_score_was_known_is_bool": "void_says_whether_score_was_known asks first",
    "trial_event_is_a_transition": "trial_event_is_legal asks first",
}


@pytest.fixture(scope="module")
def gallery() -> Iterator[tuple[sqlite3.Connection, dict[str, str]]]:
    """A ledger with something in every state, and the names by which the table speaks of it."""
    c = memory_ledger()
    extra = ("done", "free", "again", "parked", "intended", "made", "twice", "first", "withdrawn", "decided", "back", "bare")
    fill(c, submission(arms=[arm("plain"), arm("goal")], tasks=[*(task(name) for name in (*STATES, *extra)), task("dry", network=False)]))
    help.begin(c)  # a second life, so that NEW - 1 exists
    names: dict[str, str] = dict(SIGNS)
    for state in STATES:
        names[f"c_{state}"] = str(cell(c, state))
        names[state] = str(bring_to(c, cell(c, state), state).trial_id)
    done = bring_to(c, cell(c, "done"), "scored")
    artifacts.exported(c, done.trial_id, folder="f", records=[ArtifactRecord("a", "00", 1)], now_ms=T0)
    let_go(c, done)
    names |= {"done": str(done.trial_id), "c_done": str(cell(c, "done")), "NEW": "(SELECT max(run_id) FROM run)"}
    c.execute("INSERT INTO ledger_identity VALUES (1, '0123456789ab', 1, 'p', 1, 1, 'h')")
    admission.park_cell(c, cell(c, "free"), code="c", detail="d", author="a", now_ms=T0)
    operator.unpark(c, campaign_id=1, cell_id=cell(c, "free"), author="ana", reason="r", now_ms=T0)
    names["free"] = str(cell(c, "free"))
    let_go(c, bring_to(c, cell(c, "again"), "voided"))
    names["again"] = str(cell(c, "again"))
    admission.park_cell(c, cell(c, "parked"), code="c", detail="d", author="a", now_ms=T0)
    names["parked"] = str(cell(c, "parked"))
    intended = help.admit(c, cell(c, "intended"))
    help.intend(c, intended)
    made = help.admit(c, cell(c, "made"))
    help.intend(c, made)
    help.trials.container_created(c, made.trial_id, docker_id="id-made")
    twice = bring_to(c, cell(c, "twice"), "verifying")
    help.trials.verify_again(c, twice.trial_id, cause="unreadable", now_ms=T0)
    first = bring_to(c, cell(c, "first"), "scored")
    withdrawn = bring_to(c, cell(c, "withdrawn"), "scored")
    back = bring_to(c, cell(c, "back"), "scored")
    for each in (first, withdrawn, back):
        operator.void_trials(c, [each.trial_id], code="operator", reason="r", author="ana", now_ms=T0)
        let_go(c, each)
    bring_to(c, cell(c, "first"), "reserved")
    operator.unvoid(c, trial_id=back.trial_id, author="ana", reason="r", now_ms=T0)
    decided = bring_to(c, cell(c, "decided"), "review")
    operator.decide_review(c, decided.trial_id, accept=True, reward=1.0, reason="r", author="ana", now_ms=T0)
    bare = help.admit(c, cell(c, "bare"))
    assert bare.lease_id is not None
    help.networks.release_lease(c, bare.lease_id, because="never_created", now_ms=T0)
    for name, admitted in (("intended", intended), ("made", made), ("twice", twice), ("first", first), ("withdrawn", withdrawn)):
        names[name] = str(admitted.trial_id)
    names["dry"] = str(help.admit(c, cell(c, "dry")).trial_id)
    names |= {"back": str(back.trial_id), "decided": str(decided.trial_id), "bare": str(bare.trial_id)}
    help.trials.facts(c, done.trial_id, [help.trials.Fact("network", "public", "task")], now_ms=T0)
    plant_model(c, done.trial_id)
    plant_money(c, done.trial_id)
    plant_told(c)
    for code in ("open", "closed"):
        findings.raise_finding(c, code=code, severity="info", subject="s", detail="d", campaign_id=None, now_ms=T0)
    findings.close_finding(c, code="closed", subject="s", now_ms=T0)
    for kind in ("pause", "drain"):
        admission.open_stop(c, kind, detail="d", author="a", until_ms=None, now_ms=T0)
    admission.end_stop(c, "drain", author="a", now_ms=T0)
    settings.set_value(c, "k", old=1, new=2, author="a", reason="r", now_ms=T0)
    start_verifier(c, twice.trial_id, round=2)
    plant_truth(c)
    plant_kept(c, names)
    yield c, names
    c.close()


def refused(c: sqlite3.Connection, statements: str) -> sqlite3.IntegrityError:
    """Run it in a savepoint that is rolled back; the error of the last statement."""
    c.execute("SAVEPOINT try")
    try:
        *before, last = statements.split("; ")
        for statement in before:
            c.execute(statement)
        with pytest.raises(sqlite3.IntegrityError) as caught:
            c.execute(last).fetchall()
        return caught.value
    finally:
        c.execute("ROLLBACK TO try")
        c.execute("RELEASE try")


@pytest.mark.parametrize(("rule", "statement"), ILLEGAL, ids=[f"{n:03d}-{row[0]}" for n, row in enumerate(ILLEGAL)])
def test_illegal_statement_is_refused_for_its_reason(gallery: tuple[sqlite3.Connection, dict[str, str]], rule: str, statement: str) -> None:
    c, names = gallery
    error = refused(c, statement.format(**names))
    assert rule_of(error) == rule, str(error)
    translated = translate(error)
    assert isinstance(translated, RuleBroken) and translated.rule == rule


def test_every_rule_has_an_illegal_statement(gallery: tuple[sqlite3.Connection, dict[str, str]]) -> None:
    c, _ = gallery
    rules = set()
    for row in c.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'guard%'").fetchall():
        if row["type"] == "trigger":
            rules |= set(re.findall(r"RAISE\(ABORT, '(\w+)'\)", row["sql"]))
        elif row["type"] == "table":
            rules |= set(re.findall(r"CONSTRAINT\s+(\w+)", row["sql"]))
        elif row["type"] == "index" and row["sql"].startswith("CREATE UNIQUE"):
            rules.add(row["name"])
    assert rules - {rule for rule, _ in ILLEGAL} - UNREACHABLE.keys() == set()
    assert UNREACHABLE.keys() <= rules


def test_unique_rules_are_those_of_the_schema(gallery: tuple[sqlite3.Connection, dict[str, str]]) -> None:
    """Columns of each unique index, as SQLite prints them, lead to the name that the schema gives."""
    c, _ = gallery
    found = {}
    for (table,) in c.execute(r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'").fetchall():
        sql = c.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        named = {
            ", ".join(f"{table}.{col.strip()}" for col in columns.split(",")): name
            for name, columns in re.findall(r"CONSTRAINT\s+(\w+)\s+(?:UNIQUE|PRIMARY KEY)\s*\(([^)]*)\)", sql)
        } | {f"{table}.{col}": name for col, name in re.findall(r"^\s+(\w+)[^,\n]*CONSTRAINT (\w+) UNIQUE", sql, re.MULTILINE)}
        for index in c.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (table,)).fetchall():
            columns = [row[0] for row in c.execute("SELECT name FROM pragma_index_info(?)", (index["name"],)).fetchall()]
            subject = ", ".join(f"{table}.{column}" for column in columns)
            if index["origin"] == "c":
                found[subject] = index["name"]
            elif subject in named:
                found[subject] = named[subject]
            else:
                assert index["origin"] == "pk", f"unnamed unique constraint on {subject}"
    assert found == UNIQUE_RULES


def test_transitions_are_those_of_the_core() -> None:
    rows = memory_ledger().execute("SELECT from_state, event, to_state FROM trial_transition").fetchall()
    assert {tuple(row) for row in rows} == {
        ("new" if start is None else start.value, event.value, to.value) for start, event, to in TRANSITIONS
    }


def test_live_states_are_those_of_the_core() -> None:
    assert set(re.findall(r"'(\w+)'", LIVE)) == {state.value for state in LIVE_STATES} | {"new"}
    schema = Path(__file__).resolve().parents[2].joinpath("migrations/0001_ledger.sql").read_text()
    assert f"trial_unfinished ON trial (state) WHERE state IN {LIVE}" in schema
