"""Names: folders that any task or arm gives a safe one, and ids that stay the same however often a document is written.

Owns what makes a name or an id.  Must not know documents.
"""

from __future__ import annotations

import re
import uuid
from pathlib import PurePosixPath

from marathond.core.names import trial_label

PART_LENGTH = 60
"""Characters of a task's or an arm's name in a folder's name; with the numbers it stays far below the 255 bytes of a file name."""

_NAMESPACE = uuid.UUID("6f0f1f5e-8a63-5d0c-9a0b-3d1f0c7d7e11")
_UNSAFE = re.compile(r"[^A-Za-z0-9._]+")


def trial_folder(trial_id: int, task: str, arm: str, replicate: int) -> str:
    """``t0871__zstd-decoder__plain__r1``: one safe path component of ASCII, unique in the ledger by its first part alone.

    :raises ValueError: a number below 1.
    """
    if trial_id < 1 or replicate < 1:
        raise ValueError(f"trial {trial_id}, replicate {replicate}: expected numbers from 1")
    return f"{trial_label(trial_id)}__{_part(task)}__{_part(arm)}__r{replicate}"


def _part(name: str) -> str:
    return _UNSAFE.sub("-", name)[:PART_LENGTH].strip("-._") or "unnamed"


def trial_uuid(ledger_id: str, trial_id: int) -> str:
    """The trial's id in Harbor's words; no other ledger's trial has it."""
    return str(uuid.uuid5(_NAMESPACE, f"{ledger_id}/trial/{trial_id}"))


def job_uuid(ledger_id: str, campaign_id: int) -> str:
    """The campaign's id in Harbor's words."""
    return str(uuid.uuid5(_NAMESPACE, f"{ledger_id}/campaign/{campaign_id}"))


def dataset(task_path: str) -> str:
    """The name of the folder that holds the task: Harbor's rule for datasets on disk, ``adhoc`` when there is none."""
    return PurePosixPath(task_path).parent.name or "adhoc"
