"""What the daemon answers to a person's decision: what ``marathonctl`` says in words, and with ``--json`` prints as it is.

Owns the names.  They are published (``marathonctl schema``): one may be added, none renamed or removed.  Numbers of trials, cells, blocks
are the ledger's: 871 is t0871.  Of each kind at most 200 rows are named; the counts beside them are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from marathond.ledger.verbs.admission import StopRow
from marathond.ledger.verbs.findings import FindingRow
from marathond.ledger.verbs.operator import AlreadyVoided, NotDone, Touched
from marathond.service.decisions import Preview
from marathond.service.knobs import KnobValue


@dataclass(frozen=True, slots=True)
class VoidCount:
    """:param refused: trials that were left as they are."""

    voided: int
    already: int
    refused: int


@dataclass(frozen=True, slots=True)
class VoidAnswer:
    """What was voided.

    :param batch: takes all of it back: unvoid --batch; empty: nothing was voided.
    :param reopened: cells that are open again now.
    :param left: trials of the same blocks that stand and were not voided: what is now compared with nothing.
    :param imported: cells of imported campaigns among them, in which nothing runs again.
    :param parked: cells that stay parked until a person opens them.
    :param already: trials that somebody had voided before.
    :param refused: trials that were left as they are, and why.
    """

    batch: str
    reopened: int
    left: int
    imported: int
    parked: int
    count: VoidCount
    voided: Sequence[Touched]
    already: Sequence[AlreadyVoided]
    refused: Sequence[NotDone]


@dataclass(frozen=True, slots=True)
class VoidPreview:
    """Of --dry-run: what would be voided.

    :param count: how many trials.
    :param late: trials among them whose score is known: their voids count as post-score voids.
    :param already: trials that are void already.
    """

    would_void: Sequence[Preview]
    count: int
    late: int
    already: Sequence[Preview]


@dataclass(frozen=True, slots=True)
class UnvoidCount:
    restored: int
    refused: int


@dataclass(frozen=True, slots=True)
class Restored:
    """:param state: in which the trial is again."""

    trial: Touched
    state: str


@dataclass(frozen=True, slots=True)
class UnvoidAnswer:
    """:param refused: trials that were left as they are, and why."""

    dry_run: bool
    count: UnvoidCount
    restored: Sequence[Restored]
    refused: Sequence[NotDone]


@dataclass(frozen=True, slots=True)
class DecidedBefore:
    """Who had decided the same.

    :param state: of the trial, now.
    """

    decision: str
    author: str
    reason: str
    decided_at_ms: int
    state: str


@dataclass(frozen=True, slots=True)
class ReviewDecided:
    """What a person decided.

    :param trial: its number.
    :param already: null: decided now.
    :param reward: that counts now; null: none does.
    :param known: reward that was known before the decision; null: none was.
    """

    trial: int
    decision: Literal["accepted", "voided"]
    already: DecidedBefore | None
    reward: float | None
    known: float | None = None


@dataclass(frozen=True, slots=True)
class Unparked:
    """:param count: parks that were ended."""

    count: int


@dataclass(frozen=True, slots=True)
class Closed:
    """:param already: the stop of this kind that stood before; null: admission is closed from now on."""

    already: StopRow | None


@dataclass(frozen=True, slots=True)
class Drained:
    """:param already: the drain that stood before; null: it begins now.
    :param live: numbers of trials that it waits for."""

    already: StopRow | None
    live: Sequence[int]


@dataclass(frozen=True, slots=True)
class Reopened:
    """:param ended: stops that stood; none: admission was open."""

    ended: Sequence[StopRow]


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the daemon ends.

    :param mode: term: agents go on, the next start takes them over; now: running trials are voided and torn down; down: no daemon runs.
    :param pid: its process; null: none runs.
    :param live: numbers of trials that are not at rest.
    """

    mode: Literal["term", "now", "down"]
    pid: int | None
    live: Sequence[int]


@dataclass(frozen=True, slots=True)
class KnobTurned:
    """:param key: full name of the knob.
    :param old: value that counted before.
    :param new: value that counts now."""

    key: str
    old: KnobValue
    new: KnobValue
    changed: bool


@dataclass(frozen=True, slots=True)
class AckAnswer:
    """:param count: findings that are acknowledged now and were not before.
    :param already: those that somebody had acknowledged before.
    :param open: all open findings.
    :param alarms: of them errors and stop-losses that nobody has acknowledged."""

    count: int
    already: Sequence[FindingRow]
    open: int
    alarms: int
