"""Rules of money, first requests and notices with a statement that each refuses, for test_schema_rules.py.  No test of its own."""

from __future__ import annotations

import sqlite3

USAGE = "INSERT INTO model_usage (trial_id, account, model, requests, cost_nusd)"
CLAIM = "INSERT INTO claim (cell_id, token, run_id, claimed_at_ms) VALUES ({again}, 'paid', {NEW}, 1)"
TRIAL = "INSERT INTO trial (cell_id, arm_id, claim_id, attempt, run_id, state, created_at_ms, cost_nusd)"

MONEY: list[tuple[str, str]] = [
    (
        "trial_starts_unpaid",
        f"{CLAIM}; {TRIAL} SELECT cell_id, arm_id, (SELECT max(claim_id) FROM claim), 2, {{NEW}}, 'new', 1, 5 FROM cell "
        "WHERE cell_id = {again}",
    ),
    ("trial_repeats_its_usage", "UPDATE trial SET cost_nusd = cost_nusd + 1 WHERE trial_id = {done}"),
    ("trial_repeats_its_usage", "UPDATE trial SET cut = 1 WHERE trial_id = {done}"),
    ("trial_repeats_its_usage", "UPDATE trial SET priced = 9 WHERE trial_id = {running}"),
    ("model_usage_is_fixed", "UPDATE model_usage SET model = 'other'"),
    ("model_usage_is_never_deleted", "DELETE FROM model_usage"),
    ("first_request_shape_is_json", "INSERT INTO first_request VALUES ({running}, 'no', 1)"),
    ("first_request_is_fixed", "UPDATE first_request SET shape_json = '{{}}'"),
    ("first_request_is_never_deleted", "DELETE FROM first_request"),
    ("notice_told_once", "INSERT INTO notice (key, kind, message_json, at_ms) VALUES ('finding:1', 'x', '{{}}', 1)"),
    ("notice_message_is_json", "INSERT INTO notice (key, kind, message_json, at_ms) VALUES ('finding:9', 'x', 'no', 1)"),
    ("notice_is_fixed", "UPDATE notice SET kind = 'other'"),
    ("notice_is_never_deleted", "DELETE FROM notice"),
    ("notice_sending_ends_one_way", "UPDATE notice_sending SET told_at_ms = 1, gave_up_at_ms = 1 WHERE channel = 'webhook'"),
    ("notice_sending_ends_once", "UPDATE notice_sending SET tries = 9 WHERE channel = 'command'"),
    ("notice_sending_is_never_deleted", "DELETE FROM notice_sending"),
]


def plant_money(c: sqlite3.Connection, trial_id: int) -> None:
    """Usage and first request of one trial, and a notice that one channel took and the other did not yet."""
    c.execute(f"{USAGE} VALUES (?, 'agent', 'm', 1, 7)", (trial_id,))
    c.execute("INSERT INTO first_request VALUES (?, '{}', 1)", (trial_id,))
    c.execute("INSERT INTO notice (key, kind, message_json, at_ms) VALUES ('finding:1', 'stop_loss', '{}', 1)")
    c.execute("INSERT INTO notice_sending (notice_id, channel, tries, told_at_ms) VALUES (1, 'command', 1, 2), (1, 'webhook', 1, NULL)")
