"""What may be packed, and what may be removed to make room.

Owns the decision, for one thing at a time, and its words.  Pure: times are the ledger's own, never a file's.  Must not know files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from marathond.core.text import plural

DAY_MS = 86_400_000
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_WORDS_MS = {"day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "millisecond": 1}
_AGE = re.compile(r"(\d{1,6})([mhdw])")


class Kind(StrEnum):
    """What takes room and can be given up.  Rows of the ledger are not among it."""

    ARTIFACTS = "artifacts"
    RUN_DIR = "run_dir"
    BUILD_LOG = "build_log"
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class Trial:
    """Of one trial, by the ledger: what bears on whether its artifacts may be packed or removed.

    ``rested_at_ms``: the later of its last event and its export; None: not exported.  ``archived``: an archive stands that was made since.
    """

    state: str
    rested_at_ms: int | None
    claim_live: bool
    imported: bool
    archived: bool
    pruned: bool


def age_ms(text: str) -> int:
    """``30d``, ``12h``, ``90m``, ``2w``.

    :raises ValueError: it is none, in words.
    """
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError("must be such as 90m, 12h, 30d or 4w")
    return int(match[1]) * _UNITS_MS[match[2]]


def not_packed(trial: Trial) -> str:
    """Why a trial's artifacts are not packed; empty: they may be."""
    if trial.imported:
        return "was imported: its files lie where they were read from, and are not marathond's"
    if trial.state == "review":
        return "is in review: decide it first"
    if trial.state not in ("scored", "voided"):
        return f"is {trial.state}: only what has ended is packed"
    if trial.rested_at_ms is None:
        return "is not exported yet"
    return ""


def not_pruned(trial: Trial, *, now_ms: int, older_than_ms: int, voids_only: bool = False, unarchived: bool = False) -> str:
    """Why a trial's artifacts are not removed; empty: they may be.

    :param unarchived: somebody said that they may be lost.
    """
    if why := not_packed(trial):
        return why
    assert trial.rested_at_ms is not None
    if trial.pruned:
        return "is pruned already"
    if voids_only and trial.state != "voided":
        return f"is {trial.state}, and only voids were asked for"
    if trial.claim_live:
        return "is not torn down yet"
    if now_ms - trial.rested_at_ms < older_than_ms:
        return f"came to rest within the last {_within(older_than_ms)}"
    if not (trial.archived or unarchived):
        return "is not archived as it is now: marathonctl archive, or --unarchived to lose it"
    return ""


def too_young(rested_at_ms: int, *, now_ms: int, older_than_ms: int) -> str:
    """Why something that belongs to no single trial is not removed; empty: it may be."""
    return "" if now_ms - rested_at_ms >= older_than_ms else f"was last used within the last {_within(older_than_ms)}"


def _within(older_than_ms: int) -> str:
    """``30 days``, ``day``, ``90 minutes``: the age that was asked for and not its own, so that what is left for this counts together."""
    word, unit_ms = next(each for each in _WORDS_MS.items() if older_than_ms % each[1] == 0)
    count = older_than_ms // unit_ms
    return word if count == 1 else plural(count, word)
