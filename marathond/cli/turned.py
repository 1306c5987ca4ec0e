"""What ``marathonctl set`` recorded in the ledger, for commands that else read the configuration alone: it is stronger than that.

Owns the look at the ledger and the words.  Must not know what a knob does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from marathond.cli.output import note
from marathond.core.errors import LedgerRefused
from marathond.core.text import clean, when
from marathond.ledger.verbs.settings import turned
from marathond.service.effective import configured_knobs
from marathond.service.knobs import KNOBS, KnobValue, short_name
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings


@dataclass(frozen=True, slots=True)
class Turned:
    """A knob that stands otherwise than the configuration has it: for all campaigns of its ledger, until it is set to default.

    :param configured: the configuration's own value.
    """

    key: str
    value: KnobValue
    configured: KnobValue
    author: str
    reason: str
    at_ms: int


def turned_now(settings: Settings) -> tuple[Turned, ...]:
    """By key; without a ledger nobody has set anything.  One that cannot be read is told on stderr."""
    try:
        with reading(settings.daemon.ledger) as c:
            found = turned(c)
    except LedgerRefused as error:
        if error.code != "missing":
            note(f"note: whether marathonctl set has turned a knob is unknown: {clean(error)}")
        return ()
    configured = configured_knobs(settings)
    return tuple(
        Turned(key, each.value, configured[key], each.author, each.reason, each.at_ms) for key, each in found.items() if key in KNOBS
    )


def values(all_of: Sequence[Turned]) -> dict[str, KnobValue]:
    return {each.key: each.value for each in all_of}


def whose(each: Turned) -> str:
    """``set by ana at …, until marathonctl set concurrency=default``."""
    return f"set by {clean(each.author)} at {when(each.at_ms)}, until marathonctl set {short_name(each.key)}=default"


def turned_words(each: Turned) -> str:
    return f"{each.key} = {clean(each.value)}: {whose(each)}; configured: {clean(each.configured)}"
