"""What the extractor read, as the ledger's row of a score.

Owns the names of a score's parts.  Pure; used where a trial is graded, graded again and imported.
"""

from __future__ import annotations

from marathond.core.score import EXTRACTOR, Number, ScoreReading
from marathond.core.score import Fact as ScoreFact
from marathond.ledger.verbs.trials import ScoreRow


def score_row(reading: ScoreReading, reward: Number, flags: tuple[str, ...] = ()) -> ScoreRow:
    """:param reward: the reading's own; asked for apart, for a row without one cannot be.
    :param flags: of the verification, before those of the reading.
    """
    passed, total = _count(reading.tests_passed), _count(reading.tests_total)
    if (reading.tests_passed and passed is None) or (reading.tests_total and total is None):
        passed = total = None
        flags = (*flags, "counts_too_large")
    rate = reading.test_rate.value if reading.test_rate is not None else None
    if rate is None and passed is not None and total:
        rate = passed / total
    return ScoreRow(
        extractor=EXTRACTOR,
        reward=reward.value,
        reward_source=_place(reward.source, reward.key),
        partial=reading.partial.value if reading.partial else None,
        tests_passed=passed,
        tests_total=total,
        flags=(*flags, *reading.flags),
        parts=_parts(reading),
        test_rate=rate,
    )


def _count(number: Number | None) -> int | None:
    """None also beyond what the ledger's integers hold; the number itself stays among the parts."""
    return int(number.value) if number is not None and number.value < 2**63 else None


def _parts(reading: ScoreReading) -> list[tuple[str, str, str]]:
    named: dict[str, Number | None] = {
        "partial": reading.partial,
        "tests_passed": reading.tests_passed,
        "tests_total": reading.tests_total,
        "test_rate": reading.test_rate,
    }
    rows = [(name, repr(number.value), _place(number.source, number.key)) for name, number in named.items() if number is not None]
    rows += [(name, _text(part), _place(part.source, part.key)) for name, part in reading.parts.items()]
    return rows + [(f"refused {n}", r.why, _place(r.source, r.key)) for n, r in enumerate(reading.refusals, start=1)]


def _place(source: str, key: str) -> str:
    """File and key; the file alone when the whole of it was meant."""
    return f"{source}:{key}" if key else source


def _text(part: Number | ScoreFact) -> str:
    return str(part.value).lower() if isinstance(part, ScoreFact) else repr(part.value)
