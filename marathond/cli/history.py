"""``marathonctl history``: who decided what, when and why; of a trial, a cell, a block or a task all that ever happened to it.

Owns which of what happened is a decision.  What one command did to many things is one line there (:mod:`marathond.cli.folded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marathond.cli.folded import folded, line_of
from marathond.cli.happened import line, of_subject
from marathond.cli.output import note, print_json_line, say, screen, wrapped
from marathond.core.names import REACHED_INTO
from marathond.core.text import clean, plural
from marathond.ledger.verbs.happened import ALL, Happening, newest
from marathond.ledger.verbs.happened_sources import Of, Source
from marathond.service.picture.reader import campaign_id, reading

DECIDED = frozenset({"voided", "unvoided", "accepted", REACHED_INTO})
"""Events of trials that somebody decided."""
KINDS = frozenset({"stop", "setting", "park", "campaign", "contrasts", "import", "score", "archive", "prune"})
"""Kinds that are decisions, all of them."""


def decided(one: Happening) -> bool:
    if one.kind == "trial":
        return one.what in DECIDED
    return one.kind in KINDS or (one.kind == "finding" and one.what == "acknowledged") or (one.kind == "daemon" and one.what != "ready")


def run(ledger: Path, subject: str | None, most: int | None, *, campaign: str | None, by: str | None, each: bool, as_json: bool) -> None:
    """Newest last.  ``most`` lines, None: all; ``by``: of this author alone; ``each``: acts of one command one by one, as JSON has them.

    :raises CallFailed: exit 2, there is no such campaign or subject.
    """
    with reading(ledger) as c:
        if subject is None:
            chosen = None if campaign is None else campaign_id(c, campaign)
            of = Of(None if chosen is None else chosen[0], events=DECIDED)
            what = "this ledger" if campaign is None else f"campaign {campaign}"
            found: Sequence[Happening] = [one for one in newest(c, of, ALL, keep=_may_decide) if decided(one)]
        else:
            of, what = of_subject(c, subject, campaign)
            found = newest(c, of, ALL)
    if by is not None:
        found = [one for one in found if one.author == by]
    if as_json:
        for one in found[_left_out(found, most) :]:
            print_json_line(line(one))
        return
    # Lines are counted, not acts: one archive of a campaign must not push the decisions before it out of sight.
    groups = list(folded(found)) if subject is None and not each else [(one,) for one in found]
    left_out = _left_out(groups, most)
    groups = groups[left_out:]
    if not found:
        note(f"(nothing {'was decided' if subject is None else 'happened'} in {clean(what)}{f' by {clean(by)}' if by else ''} yet)")
    elif left_out:
        say(f"… {plural(left_out, 'earlier line')}: -n 0 shows all")
    where = screen()
    for group in groups:
        for part in wrapped(line_of(group), where):
            say(part)
    if any(len(group) > 1 for group in groups):
        note("(acts of one command are one line here; --each shows them one by one)")


def _left_out(rows: Sequence[object], most: int | None) -> int:
    return 0 if most is None else max(0, len(rows) - most)


def _may_decide(source: Source) -> bool:
    return source.name not in ("found", "closed", "ready")
