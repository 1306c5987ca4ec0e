"""May arms be ranked by these results?  Not while something that spoils them is open.

Owns the refusal and its words.  Numbers by arm and contrasts are withheld; counts, voids, findings and disclosures never are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marathond.core.audit.catalogue import meaning_of
from marathond.core.results import FindingResult, Results
from marathond.report.blocks import word

NAMED_AT_MOST = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """``anyway``: somebody asked for the numbers all the same, which every form of the report says first."""

    findings: tuple[FindingResult, ...]
    anyway: bool

    @property
    def withheld(self) -> bool:
        return not self.anyway

    def named(self) -> str:
        names = [f"{word(each.code)} ({word(each.subject)})" for each in self.findings[:NAMED_AT_MOST]]
        more = len(self.findings) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "")

    def words(self) -> str:
        """One line: what is open, what that means here, what to do."""
        noun = "stop-loss finding is open" if len(self.findings) == 1 else "stop-loss findings are open"
        if self.anyway:
            return f"PRINTED ANYWAY: {noun}: {self.named()}. Infrastructure first: these numbers may compare it, not the arms."
        known = meaning_of(self.findings[0].code)
        todo = f"; to do: {known.todo.rstrip('.')}" if known is not None and len(self.findings) == 1 else ""
        return (
            f"arms are not ranked, numbers by arm and contrasts are withheld: {noun}: {self.named()}{todo}; "
            "see `marathonctl findings`; --anyway prints them with this warning"
        )


def refusal(results: Iterable[Results], *, anyway: bool) -> Refusal | None:
    """None: nothing is open that stops a comparison.  An acknowledged finding is still open."""
    found = {
        (each.code, each.subject, each.campaign): each
        for one in results
        for each in one.findings
        if each.stop_loss and each.closed_at_ms is None
    }
    return Refusal(tuple(found[key] for key in sorted(found, key=str)), anyway) if found else None
