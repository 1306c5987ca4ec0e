"""The trial's life cycle: one table, the same rows as ``trial_transition`` in the ledger (a test compares them).

Owns which event may follow which state.  Must not know who caused an event.
"""

from __future__ import annotations

from enum import StrEnum

from marathond.core.names import TrialState as S


class Event(StrEnum):
    """Past facts about a trial."""

    RESERVED = "reserved"
    ENVIRONMENT_UP = "environment_up"
    AGENT_STARTED = "agent_started"
    REATTACHED = "reattached"
    IMPORTED = "imported"
    AGENT_ENDED = "agent_ended"
    BUDGET_SPENT = "budget_spent"
    VERIFY_AGAIN = "verify_again"
    SCORED = "scored"
    DOUBTED = "doubted"
    ACCEPTED = "accepted"
    VOIDED = "voided"
    UNVOIDED = "unvoided"


TRANSITIONS: frozenset[tuple[S | None, Event, S]] = frozenset(
    {
        (None, Event.RESERVED, S.RESERVED),
        (S.RESERVED, Event.ENVIRONMENT_UP, S.PREPARING),
        (S.PREPARING, Event.AGENT_STARTED, S.RUNNING),
        (S.RUNNING, Event.REATTACHED, S.RUNNING),
        (S.RESERVED, Event.IMPORTED, S.VERIFYING),
        (S.RUNNING, Event.AGENT_ENDED, S.VERIFYING),
        (S.RUNNING, Event.BUDGET_SPENT, S.VERIFYING),
        (S.VERIFYING, Event.VERIFY_AGAIN, S.VERIFYING),
        (S.VERIFYING, Event.SCORED, S.SCORED),
        (S.VERIFYING, Event.DOUBTED, S.REVIEW),
        (S.REVIEW, Event.ACCEPTED, S.SCORED),
        (S.REVIEW, Event.VOIDED, S.VOIDED),
        (S.RESERVED, Event.VOIDED, S.VOIDED),
        (S.PREPARING, Event.VOIDED, S.VOIDED),
        (S.RUNNING, Event.VOIDED, S.VOIDED),
        (S.VERIFYING, Event.VOIDED, S.VOIDED),
        (S.SCORED, Event.VOIDED, S.VOIDED),
        (S.VOIDED, Event.UNVOIDED, S.SCORED),
        (S.VOIDED, Event.UNVOIDED, S.REVIEW),
    }
)


def targets(state: S | None, event: Event) -> frozenset[S]:
    """States that ``event`` may lead to from ``state``; empty when the jump is illegal."""
    return frozenset(to for start, name, to in TRANSITIONS if start == state and name == event)
