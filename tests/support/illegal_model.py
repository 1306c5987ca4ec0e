"""Rules of what an agent did with its model, with a statement that each refuses, for test_schema_rules.py.  No test of its own."""

from __future__ import annotations

import sqlite3

from support.ledgers import T0

from marathond.core.requests import Begun, Who
from marathond.ledger.verbs import agentlog, usage

MODEL_SIGNS = {
    "mr": "INSERT INTO model_request (journal_id, begin_seq, trial_id, account, number, begun_at_ms, begun_mono_ms, ended_at_ms, end, "
    "usage, input_tokens, output_tokens)",
    "ae": "INSERT INTO agent_event (trial_id, seq, kind, detail_json, at_ms, mono_ms, run_id)",
}

MODEL: list[tuple[str, str]] = [
    ("gateway_journal_taken_once", "INSERT INTO gateway_journal VALUES (2, 'j', 0, 0, 0, 1)"),
    ("model_request_usage_known", "{mr} VALUES (1, 9, {done}, 'agent', 1, 0, 0, 1, 'complete', 'guessed', 1, 1)"),
    ("model_request_ends_whole", "{mr} VALUES (1, 9, {done}, 'agent', 1, 0, 0, NULL, 'complete', 'none', 1, 1)"),
    ("model_request_known_has_tokens", "{mr} VALUES (1, 9, {done}, 'agent', 1, 0, 0, 1, 'complete', 'known', NULL, 1)"),
    ("model_request_is_never_deleted", "DELETE FROM model_request"),
    ("agent_event_detail_is_json", "{ae} VALUES ({done}, 2, 'thread', 'no', 1, 1, {NEW})"),
    ("agent_event_is_gapless", "{ae} VALUES ({done}, 3, 'thread', '{{}}', 1, 1, {NEW})"),
    ("agent_event_is_gapless", "{ae} VALUES ({done}, 1, 'thread', '{{}}', 1, 1, {NEW})"),
    ("agent_event_is_append_only", "UPDATE agent_event SET kind = 'other'"),
    ("agent_event_is_append_only", "DELETE FROM agent_event"),
    ("receipt_is_json", "INSERT INTO receipt VALUES ({done}, 1, 'no', 1)"),
]


def plant_model(c: sqlite3.Connection, trial_id: int) -> None:
    """A line of the agent's log, and a request that has begun."""
    agentlog.append(c, trial_id, kind="thread", detail={}, mono_ms=1, now_ms=T0)
    usage.meet_journal(c, identity="j", segment=1, byte=0, last_seq=0, now_ms=T0)
    begun = Begun(Who(trial_id, "agent", 1), T0, 1)
    usage.ingest(c, [(1, begun)], segment=1, byte=1, last_seq=1, prices={}, now_ms=T0)
