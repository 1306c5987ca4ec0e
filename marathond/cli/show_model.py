"""What an agent did with its model, for ``marathonctl show``: tokens by kind, cost, time held, turns, and the last lines of its log.

Owns the layout of that part.  The tokens and the money are the gateway's count, turns and goals what the driver wrote down; the receipt is
what the agent's own files say of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from marathond.cli.output import Column, Screen, table
from marathond.core.money import dollars
from marathond.core.text import UNKNOWN, clean, fields, plural, span, text_of, when
from marathond.ledger.verbs.show import TrialShown
from marathond.ports.agent import LogEntry
from marathond.service.picture.money_words import cut_words

LOG_SHOWN = 15
RECEIPT_SHOWN = 40
VALUE_MAX = 160
ROOMY = 110
"""Columns that all of the usage's table needs."""
ELSEWHERE = ("names.", "given.gates.", "goal.", "tokens.gateway.", "rpc.requests.", "rpc.notifications.", "loopx.", "receipt")
"""What of a receipt stands on this screen already, or is for nobody at a screen, by the beginning of its name."""


def sections(trial: TrialShown, where: Screen) -> Iterator[Iterator[str]]:
    """Nothing for a trial that asked no model."""
    yield _usage(trial, where)
    yield _driver(trial.log)
    yield _receipt(trial)
    yield _log(trial.log, where)


def _usage(trial: TrialShown, where: Screen) -> Iterator[str]:
    if not trial.usage and not trial.held_ms:
        return
    yield ""
    columns = (Column("account"), Column("model", least=12), *(Column(title, right=True) for title in _NUMBERS), Column("cost", right=True))
    rows = [_usage_row(row) for row in trial.usage]
    narrow = where.width is not None and where.width < ROOMY
    shown = [i for i, column in enumerate(columns) if not narrow or column.title not in _RARE or any(row[i] != "0" for row in rows)]
    yield from table([columns[i] for i in shown], [[row[i] for i in shown] for row in rows], where, indent="  ")
    known = sum(row.cost_nusd or 0 for row in trial.usage)
    unpriced, cut = sum(row.unpriced for row in trial.usage), sum(row.unknown for row in trial.usage)
    words = f"  cost {'at least ' if unpriced else ''}{dollars(known)}"
    priced = sum(row.requests - max(row.failed, row.unknown) - row.unpriced for row in trial.usage)
    words += cut_words(cut, cut * known // priced if priced > 0 else None)
    words += f" + {UNKNOWN} for {plural(unpriced, 'request')} without a price" if unpriced else ""
    yield f"{words}   held by the gateway {span(trial.held_ms)}"


_RARE = frozenset({"failed", "cut", "written", "retries"})
"""Left out of a narrow screen while they are nothing."""
_NUMBERS = ("requests", "failed", "cut", "input", "cached", "written", "output", "reasoning", "retries")


def _usage_row(row: Any) -> tuple[str, ...]:
    counts = (row.requests, row.failed, row.unknown, row.input_tokens, row.cached_tokens, row.cache_write_tokens, row.output_tokens)
    cost = UNKNOWN if row.cost_nusd is None else dollars(row.cost_nusd)
    return (clean(row.account), clean(row.model) or "-", *(f"{n:,}" for n in (*counts, row.reasoning_tokens, row.retries)), cost)


def _driver(log: tuple[LogEntry, ...]) -> Iterator[str]:
    """Turns by status, messages and unblocks by cause, the way of the goal."""
    ends: dict[str, str] = {}
    sent: Counter[str] = Counter()
    unblocks: Counter[str] = Counter()
    goal: list[str] = []
    warnings = 0
    for entry in log:
        detail = entry.detail
        if entry.kind == "turn_completed":
            ends.setdefault(str(detail.get("turn_id", len(ends))), str(detail.get("status", UNKNOWN)))
        elif entry.kind in ("turn_intended", "wake_intended"):
            sent[str(detail.get("cause", UNKNOWN))] += 1
        elif entry.kind == "unblock":
            unblocks[str(detail.get("cause", UNKNOWN))] += 1
        elif entry.kind == "goal" and (status := str(detail.get("status", UNKNOWN))) not in goal[-1:]:
            goal.append(status)
        elif entry.kind in ("warning", "stderr"):
            warnings += 1
    parts = [f"turns {_counted(Counter(ends.values()))}"] if ends else []
    parts += [f"messages {_counted(sent)}"] if sent else []
    parts += [f"unblocks {_counted(unblocks)}"] if unblocks else []
    parts += [f"goal {' → '.join(clean(status) for status in goal[:20])}"] if goal else []
    parts += [plural(warnings, "warning")] if warnings else []
    if parts:
        yield ""
        yield f"  driver: {'   '.join(parts)}"


def _counted(counts: Counter[str]) -> str:
    """``12 completed, 1 failed``."""
    return ", ".join(f"{count} {clean(name)}" for name, count in counts.most_common())


def _receipt(trial: TrialShown) -> Iterator[str]:
    if trial.receipt is None:
        return
    yield ""
    yield f"  receipt, schema {trial.receipt.schema}:"
    every = list(_flat(trial.receipt.data))
    lines = [(name, value) for name, value in every if not name.startswith(ELSEWHERE) and (value or value is False)][:RECEIPT_SHOWN]
    yield from (f"    {clean(name)} {text_of(value, VALUE_MAX)}" for name, value in lines)
    if len(every) > len(lines):
        yield f"    … {len(every) - len(lines)} more, most of them nothing or said above (--json shows all)"


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Tables by dotted name; a list of simple values is one value, a list of tables its length."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
            yield f"{prefix}{name}", f"({len(value)})"
        elif isinstance(value, list):
            yield f"{prefix}{name}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{name}", value


def _log(log: tuple[LogEntry, ...], where: Screen) -> Iterator[str]:
    if not log:
        return
    yield ""
    last = log[-LOG_SHOWN:]
    yield f"  agent log, last {len(last)} of {len(log)} lines:" if len(last) < len(log) else "  agent log:"
    rows = [
        (
            str(entry.seq),
            when(entry.at_ms),
            clean(entry.kind),
            fields(entry.detail),
        )
        for entry in last
    ]
    columns = (Column("#", right=True), Column("at"), Column("what"), Column("detail", least=10))
    yield from table(columns, rows, where, indent="  ")
