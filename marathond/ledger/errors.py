"""What SQLite says, in the house's words.

Owns the translation of ``sqlite3`` errors.  A rule's name comes from the constraint or trigger that refused, chosen by
``sqlite_errorname``; SQLite names a UNIQUE constraint by its columns, so those are looked up in :data:`UNIQUE_RULES` (a test holds the
table against the schema).  Must not know which verb ran.
"""

from __future__ import annotations

import sqlite3

from marathond.core.errors import LedgerRefused, MarathonError

UNIQUE_RULES: dict[str, str] = {
    "campaign.name": "campaign_name_unique",
    "arm.campaign_id, arm.name": "arm_name_unique_in_campaign",
    "arm.arm_id, arm.campaign_id": "arm_key",
    "task.campaign_id, task.name": "task_name_unique_in_campaign",
    "task.task_id, task.campaign_id": "task_key",
    "block.task_id, block.replicate": "block_one_per_task_and_replicate",
    "block.block_id, block.task_id, block.replicate": "block_key",
    "cell.task_id, cell.arm_id, cell.replicate": "cell_one_per_task_arm_replicate",
    "cell.cell_id, cell.arm_id": "cell_key",
    "claim.token": "claim_token_unique",
    "claim.claim_id, claim.cell_id": "claim_key",
    "claim.cell_id": "claim_one_live_per_cell",
    "trial.claim_id": "trial_one_per_claim",
    "trial.cell_id, trial.attempt": "trial_attempt_unique_in_cell",
    "trial.cell_id": "trial_one_standing_per_cell",
    "trial_event.trial_id, trial_event.seq": "trial_event_seq_unique",
    "container.trial_id": "container_one_per_trial",
    "container.name": "container_name_unique",
    "container.docker_id": "container_docker_id_unique",
    "verification.trial_id, verification.round": "verification_one_per_round",
    "review.trial_id": "review_one_open_per_trial",
    "void.trial_id": "void_one_standing_per_trial",
    "park.cell_id": "park_one_standing_per_cell",
    "network_lease.engine, network_lease.subnet": "network_lease_one_live_per_subnet",
    "network_lease.trial_id": "network_lease_one_live_per_trial",
    "finding.code, finding.subject": "finding_one_open_per_subject",
    "admission_stop.kind": "admission_stop_one_live_per_kind",
    "notice.key": "notice_told_once",
    "disclosure.campaign_id, disclosure.version, disclosure.code, disclosure.arms_json": "disclosure_said_once",
    "contrast.campaign_id, contrast.version, contrast.arm_a, contrast.arm_b": "contrast_said_once",
    "gateway_journal.identity": "gateway_journal_taken_once",
    "archive.trial_id": "archive_one_standing_per_trial",
    "archive.file": "archive_one_standing_per_file",
    "prune.trial_id, prune.kind": "prune_once_per_trial",
    "prune.path": "prune_one_open_per_path",
    "verifier_turn.trial_id, verifier_turn.round": "verifier_turn_one_per_round",
}
"""Columns as SQLite prints them → the constraint's or index's name."""

SQLITE_CONSTRAINT_DATATYPE = 3091
"""A value of the wrong type in a STRICT table; Python 3.11 has no name for it yet."""


class RuleBroken(MarathonError):
    """The ledger refused an illegal state.

    :param rule: name of the constraint, unique index or trigger; ``foreign_key``; ``<table>.<column>_not_null``;
        ``<table>_primary_key`` for a key that has no name of its own; ``column_type`` for a value of the wrong type.
    """

    def __init__(self, rule: str, detail: str = "") -> None:
        self.rule, self.detail = rule, detail
        super().__init__(f"the ledger refuses: {rule}" + (f" ({detail})" if detail else ""))


def rule_of(exc: sqlite3.IntegrityError) -> str:
    """The name of the rule that an IntegrityError stands for."""
    name, text = exc.sqlite_errorname, str(exc)
    subject = text.partition("constraint failed: ")[2]
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return text.partition(":")[0]
    if name == "SQLITE_CONSTRAINT_CHECK":
        return subject
    if name in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID"):
        return UNIQUE_RULES.get(subject) or f"{subject.partition('.')[0]}_primary_key"
    if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
        return "foreign_key"
    if name == "SQLITE_CONSTRAINT_NOTNULL":
        return f"{subject}_not_null"
    if exc.sqlite_errorcode == SQLITE_CONSTRAINT_DATATYPE:
        return "column_type"
    return name.lower()


REFUSALS: dict[str, tuple[str, str]] = {
    "SQLITE_BUSY": ("busy", "another process holds its write lock"),
    "SQLITE_LOCKED": ("busy", "another connection holds its write lock"),
    "SQLITE_FULL": ("disk_full", "no space left for it"),
    "SQLITE_READONLY": ("read_only", "it cannot be written"),
    "SQLITE_CORRUPT": ("corrupt", "its file is damaged"),
    "SQLITE_NOTADB": ("not_a_ledger", "it is not an SQLite database"),
    "SQLITE_CANTOPEN": ("cannot_open", "it cannot be opened"),
    "SQLITE_IOERR": ("io", "its disk answers with an error"),
    "SQLITE_PERM": ("read_only", "access is denied"),
}
"""Primary error name → code of LedgerRefused and its words."""


def translate(exc: sqlite3.Error, where: str = "the ledger") -> MarathonError | None:
    """The house's exception for ``exc``; None: a bug of ours (bad SQL, closed connection), to be raised as it is.

    :param where: how the message names the ledger (its path).
    """
    if isinstance(exc, sqlite3.IntegrityError):
        return RuleBroken(rule_of(exc), str(exc))
    name = getattr(exc, "sqlite_errorname", None)
    if name is None:
        return None
    # Shared memory lies on the same disk; SQLite has no word of its own for a disk that is too full to make it.
    primary = "SQLITE_FULL" if name == "SQLITE_IOERR_SHMSIZE" else "_".join(name.split("_")[:2])
    if primary not in REFUSALS:
        return None
    code, words = REFUSALS[primary]
    return LedgerRefused(code, f"ledger {where}: {words} ({exc}, {name})")
