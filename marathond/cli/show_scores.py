"""What ``marathonctl show`` says of a trial's scores: the columns, and under them why they are what they are.

Owns those lines.  Must not judge: gates, stages and flags are shown as the extractor kept them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from marathond.cli.output import Column, Screen, table
from marathond.core.columns import Column as ScoreColumn
from marathond.core.score import REFUSED, RULE
from marathond.core.text import clean, number, when
from marathond.ledger.verbs.show import ScoreShown

VALUE_MAX = 400
NAMES_SHOWN = 12

GATE, STAGE = "gate:", "stage:"


def section(scores: Sequence[ScoreShown], columns: Sequence[ScoreColumn], where: Screen) -> Iterator[str]:
    """Every row of the trial, the oldest first: a later one was read by a newer extractor, or by other rules."""
    for number_, score in enumerate(scores, start=1):
        yield ""
        yield f"  {_line(score)}"
        if len(scores) > 1:
            counts = "the newest: it counts" if number_ == len(scores) else "older, kept, counts no more"
            yield f"    score {number_} of {len(scores)}, of {when(score.at_ms)}: {counts}"
        parts = {name: value for name, value, _ in score.parts}
        yield from (f"    {line}" for line in (*_why(parts), f"read by extractor {score.extractor}{_rules(parts)}"))
        yield from (f"    {line}" for line in _absent(score, columns))
        if score.parts:
            heads = (Column("part"), Column("value", least=10), Column("source", least=10))
            rows = [(clean(name), clean(value, VALUE_MAX), clean(source)) for name, value, source in score.parts]
            yield from table(heads, rows, where, indent="  ")


def _line(score: ScoreShown) -> str:
    """A column that this score does not hold is left out, never shown as a zero (fault d11)."""
    words = [f"reward {score.reward:g} from {clean(score.reward_source.removesuffix(':'))}"]
    words += [f"partial {number(score.partial)}"] if score.partial is not None else []
    words += [f"tests {score.tests_passed}/{score.tests_total}"] if score.tests_passed is not None else []
    words += [f"test rate {number(score.test_rate, 3)}"] if score.test_rate is not None else []
    words += [f"flags {', '.join(map(clean, score.flags))}"] if score.flags else []
    return "   ".join(words)


def _absent(score: ScoreShown, columns: Sequence[ScoreColumn]) -> Iterator[str]:
    """Why: by the benchmark's profile, or because this verifier told none; of a person's word there is nothing else to expect."""
    held = {"partial": score.partial is not None, "test_rate": score.test_rate is not None or score.tests_passed is not None}
    for column in columns:
        if not held.get(column.name, True) and score.parts:
            yield f"no {column.name.replace('_', ' ')}: {'its verifier told none' if column.exists else clean(column.why, VALUE_MAX)}"


def _why(parts: Mapping[str, str]) -> Iterator[str]:
    """Gates and stages: why partial 0.0 stands beside 87.7 % of tests green (fault d04)."""
    gates = {name.removeprefix(GATE): value for name, value in parts.items() if name.startswith(GATE)}
    passed, total = parts.get("gates_passed"), parts.get("gates_total")
    failed = [name for name, value in gates.items() if value in ("false", "0.0")]
    if gates or (passed and total):
        counts = f"{_whole(passed)} of {_whole(total)}" if passed and total else f"{len(gates) - len(failed)} of {len(gates)}"
        more = f" and {len(failed) - NAMES_SHOWN} more" if len(failed) > NAMES_SHOWN else ""
        yield f"gates {counts}" + (f"; failed: {', '.join(map(clean, failed[:NAMES_SHOWN]))}{more}" if failed else "")
    stages = {name.removeprefix(STAGE): value for name, value in parts.items() if name.startswith(STAGE) and "." not in name}
    if stages:
        yield "stages " + ", ".join(f"{clean(name)} {clean(value)}" for name, value in stages.items())
    refused = sum(name.startswith(REFUSED) for name in parts)
    if refused:
        yield f"{refused} refused, each named below"


def _rules(parts: Mapping[str, str]) -> str:
    rules = [f"{name.removeprefix(RULE)} = {clean(value)}" for name, value in parts.items() if name.startswith(RULE)]
    return f", by rules of the configuration: {', '.join(rules)}" if rules else ""


def _whole(text: str) -> str:
    return text.removesuffix(".0")
