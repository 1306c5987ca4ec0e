"""``marathonctl history``: who decided what, when and why; of a trial, a cell, a block or a task all that ever happened to it.

Owns which of what happened is a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marathond.cli.happened import line, of_subject, words
from marathond.cli.output import note, print_json_line, say, screen, wrapped
from marathond.core.text import clean, plural
from marathond.ledger.verbs.happened import ALL, Happening, newest
from marathond.ledger.verbs.happened_sources import Of, Source
from marathond.service.picture.reader import campaign_id, reading

DECIDED = frozenset({"voided", "unvoided", "accepted"})
"""Events of trials that somebody decided."""
KINDS = frozenset({"stop", "setting", "park", "campaign", "contrasts", "import", "score", "archive", "prune"})
"""Kinds that are decisions, all of them."""


def decided(one: Happening) -> bool:
    if one.kind == "trial":
        return one.what in DECIDED
    return one.kind in KINDS or (one.kind == "finding" and one.what == "acknowledged") or (one.kind == "daemon" and one.what != "ready")


def run(ledger: Path, subject: str | None, most: int | None, *, campaign: str | None, by: str | None, as_json: bool) -> None:
    """Newest last.  ``most`` None: all; ``by``: of this author alone.

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
    left_out = 0 if most is None else max(0, len(found) - most)
    found = found[left_out:]
    if as_json:
        for one in found:
            print_json_line(line(one))
        return
    if not found:
        note(f"(nothing {'was decided' if subject is None else 'happened'} in {clean(what)}{f' by {clean(by)}' if by else ''} yet)")
    elif left_out:
        say(f"… {plural(left_out, 'earlier line')}: -n 0 shows all")
    where = screen()
    for one in found:
        for part in wrapped(words(one), where):
            say(part)


def _may_decide(source: Source) -> bool:
    return source.name not in ("found", "closed", "ready")
