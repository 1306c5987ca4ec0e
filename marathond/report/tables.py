"""The machine-readable forms: one JSON value, and CSV with one row per cell.

Owns their fields.  What is withheld is null (JSON) or empty (CSV), and the reason stands in the same file.  Texts of a CSV that a
spreadsheet would take for a formula are preceded by an apostrophe; everything else is as the ledger has it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from marathond.core.compare.result import Comparison
from marathond.core.results import CellResult, Results
from marathond.core.text import csv_text, iso_utc, printable
from marathond.report.blocks import TEXT_MAX
from marathond.report.document import Report

FORMAT = 1
DIGITS = 12
"""Significant digits of a computed number: what two builds of numpy agree on."""

NUMBERS = (
    *("reward", "partial", "test_rate", "tests_passed", "tests_total", "agent_s"),
    *("input_tokens", "cached_tokens", "output_tokens", "tokens", "cost_usd"),
)
"""Fields of a cell that would allow arms to be ranked."""
SUMS = ("spent_usd", "voids_usd")
"""Fields of a campaign that would."""

COLUMNS: Mapping[str, str] = {
    "campaign": "name of the campaign",
    "task": "name of the task",
    "arm": "name of the arm",
    "replicate": "from 1",
    "state": "done, claimed (running), open, parked or review",
    "trial": "the trial that stands; empty: none",
    "reward": "0 to 1; empty: the cell is not done, or has none",
    "partial": "partial score, 0 to 1; empty: none",
    "test_rate": "share of tests passed, 0 to 1; empty: none",
    "tests_passed": "number of tests; empty: not told",
    "tests_total": "number of tests; empty: not told",
    "flags": "of the newest score, separated by blanks",
    "build_failed": "1: the score is flagged build_failed",
    "by_operator": "1: the reward is a person's word",
    "ended_by": "how the agent ended",
    "budget_ended": "1: a budget (time, tokens, money, turns) ended it; empty: not known",
    "agent_s": "seconds that the agent ran; empty: not known",
    "limit_s": "its limit in seconds, credit included",
    "input_tokens": "of the agent's account, cached ones included",
    "cached_tokens": "of them cached",
    "output_tokens": "of the agent's account",
    "tokens": "in and out together",
    "cost_usd": "dollars; empty: some of it has no price, or nothing is known",
    "scored_at": "UTC; empty: not scored, or not known",
    "attempts": "trials of the cell, voided ones included",
    "voids": "voided trials of the cell",
    "park_code": "why the cell is parked",
    "review_code": "why it is for review",
    "withheld": "why the numbers of this row are empty: the stop-loss findings that are open; empty: nothing is withheld",
}


Columns = dict[str, str]
"""Name of a column to what it means."""


def to_csv(report: Report) -> str:
    """One row per cell of :data:`COLUMNS`, in the order of task, replicate, arm; RFC 4180 with bare line feeds."""
    why = report.refusal.named() if report.withheld and report.refusal else ""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in report.results:
        for cell in one.cells:
            row = _row(one, cell, why)
            writer.writerow([_field(row[name]) for name in COLUMNS])
    return out.getvalue()


def _row(one: Results, cell: CellResult, why: str) -> dict[str, Any]:
    row = _cell(cell, withheld=bool(why))
    row |= {"campaign": one.campaign, "build_failed": cell.build_failed, "flags": " ".join(cell.flags), "withheld": why}
    row["scored_at"] = None if cell.scored_at_ms is None else iso_utc(cell.scored_at_ms)
    return row


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(_rounded(value))
    if isinstance(value, int):
        return str(value)
    return csv_text(printable(str(value), TEXT_MAX))


@dataclass(frozen=True, slots=True)
class Whole:
    """A report for a program.  Numbers that are not known are null.

    :param format: of this object; a higher one means something else by the same names.
    :param withheld: why arms are not ranked, and their numbers are null: the stop-loss findings that are open; null: nothing is withheld.
    :param printed_anyway: what stands open, and was passed over on demand; null: nothing.
    :param campaigns: one, or with --against two.
    :param comparison: null: withheld.
    """

    format: int
    withheld: str | None
    printed_anyway: str | None
    campaigns: tuple[Results, ...]
    comparison: Comparison | None


def to_json(report: Report) -> str:
    """:class:`Whole` as JSON; floats that are no numbers are null, and what is withheld."""
    found = report.refusal
    whole = Whole(
        FORMAT,
        found.words() if found is not None and found.withheld else None,
        found.words() if found is not None and found.anyway else None,
        tuple(report.results),
        report.comparison,
    )
    told = asdict(whole)
    if report.withheld:
        for campaign in told["campaigns"]:
            campaign |= dict.fromkeys(SUMS)
            campaign["cells"] = [cell | dict.fromkeys(NUMBERS) | {"refused": []} for cell in campaign["cells"]]
    return json.dumps(_plain(told), ensure_ascii=True, indent=1, allow_nan=False) + "\n"


def _cell(cell: CellResult, *, withheld: bool) -> dict[str, Any]:
    told = asdict(cell)
    return told | dict.fromkeys(NUMBERS) if withheld else told


def _plain(value: Any) -> Any:
    """Mappings by key where their order is nobody's decision, floats with :data:`DIGITS`, and no NaN."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    return value


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") + 0.0
