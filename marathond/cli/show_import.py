"""What ``show`` tells of a trial that was not run here: where it was read from, and what its source says of it."""

from __future__ import annotations

from collections.abc import Iterator

from marathond.core.money import NUSD
from marathond.core.text import clean, span, text_of, when
from marathond.ledger.verbs.imports import ImportedRow


def section(row: ImportedRow) -> Iterator[str]:
    yield f"  imported from {clean(row.source)} ({clean(row.kind)}) by {clean(row.author)} at {when(row.at_ms)}"
    yield f"  called there {clean(row.key)}   sha256 of what was read {clean(row.sha256)[:16]}"
    known = (
        ("model", text_of(row.model)),
        ("began", when(row.started_at_ms)),
        ("agent ran", span(row.agent_ms)),
        ("ended by", text_of(row.ended_by)),
        ("tokens", "-" if row.tokens is None else f"{row.tokens:,}"),
        ("cost", "-" if row.cost_nusd is None else f"${row.cost_nusd / NUSD:,.2f}"),
        ("turns", text_of(row.turns)),
    )
    said = [f"{name} {value}" for name, value in known if value != "-"]
    silent = [name for name, value in known if value == "-"]
    yield f"  by its source: {' · '.join(said) or 'nothing'}" + (f"; not said: {', '.join(silent)}" if silent else "")
