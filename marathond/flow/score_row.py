"""What the extractor read, as the ledger's row of a score.

Owns the names of a score's parts.  Pure; used where a trial is graded, graded again and imported.
"""

from __future__ import annotations

from marathond.core.score import EXTRACTOR, REFUSED, Number, Part, ScoreReading
from marathond.core.score import Fact as ScoreFact
from marathond.ledger.verbs.trials import ScoreRow


def score_row(reading: ScoreReading, reward: Number, flags: tuple[str, ...] = ()) -> ScoreRow:
    """:param reward: the reading's own; asked for apart, for a row without one cannot be.
    :param flags: of the verification, before those of the reading.
    """
    passed, total = _count(reading.tests_passed), _count(reading.tests_total)
    rate = reading.rate
    if (reading.tests_passed and passed is None) or (reading.tests_total and total is None):
        passed = total = None
        rate = reading.test_rate
        flags = (*flags, "counts_too_large")
    return ScoreRow(
        extractor=EXTRACTOR,
        reward=reward.value,
        reward_source=_place(reward.source, reward.key),
        partial=reading.partial.value if reading.partial else None,
        tests_passed=passed,
        tests_total=total,
        flags=(*flags, *reading.flags),
        parts=_parts(reading, rate),
        test_rate=None if rate is None else rate.value,
    )


def _count(number: Number | None) -> int | None:
    """None also from where on floats leave out whole numbers: it might not be the one that was written.  It stays among the parts."""
    return int(number.value) if number is not None and number.value < 2**53 else None


def _parts(reading: ScoreReading, rate: Number | None) -> list[tuple[str, str, str]]:
    """Columns, then what has a name of its own, then the rest of the files under file and key, then what was refused.

    Each once: keys may have been cut to the same name, and the ledger takes a name once.
    """
    columns: dict[str, Part | None] = {
        "partial": reading.partial,
        "tests_passed": reading.tests_passed,
        "tests_total": reading.tests_total,
        "test_rate": rate,
    }
    parts: dict[str, Part] = {name: part for name, part in columns.items() if part is not None}
    for name, part in reading.named.items():
        parts.setdefault(name, part)
    told = {(part.source, part.key) for part in parts.values()}
    for name, part in reading.parts.items():
        if (part.source, part.key) not in told:
            parts.setdefault(name, part)
    rows = {name: (_text(part), _place(part.source, part.key)) for name, part in parts.items()}
    for n, refusal in enumerate(reading.refusals, start=1):
        rows[f"{REFUSED}{n}"] = (refusal.why, _place(refusal.source, refusal.key))
    return [(name, value, source) for name, (value, source) in rows.items()]


def _place(source: str, key: str) -> str:
    """File and key; the file alone when the whole of it was meant."""
    return f"{source}:{key}" if key else source


def _text(part: Part) -> str:
    if isinstance(part, ScoreFact):
        return str(part.value).lower()
    return repr(part.value) if isinstance(part, Number) else part.value
