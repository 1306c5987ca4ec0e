"""Acts of one command as one line of ``history``: an archive of a campaign is one decision, not one for each of its trials.

Owns which happenings belong together, and the line that tells them.  One command is not written down as such, so it is told by what it
leaves: the same kind, author and reason, each within a minute of the one before, and nothing else decided in between.  What differs within
a group is counted (scores that were known, files, bytes), never dropped; ``--each`` and ``--json`` tell one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from marathond.cli.happened import why, words
from marathond.core.names import trial_label
from marathond.core.text import clean, plural, when
from marathond.ledger.verbs.happened import Happening

FOLD_FROM = 3
"""Two lines are read as quickly as one that sums them up."""
GAP_MS = 60_000
KINDS = frozenset({"trial", "score", "archive", "prune", "park", "finding"})
"""Kinds of which one command does many."""
TOGETHER = frozenset({"archive", "prune"})
"""``archive --remove`` does both, trial by trial."""


def folded(found: Sequence[Happening]) -> Iterator[tuple[Happening, ...]]:
    """In their order, each group where its first one stands.  Every happening is in one group, and a group of few is taken apart."""
    groups: list[list[Happening]] = []
    open_groups: dict[object, list[Happening]] = {}
    for one in found:
        key = _key(one)
        group = open_groups.get(key)
        if group is not None and one.at_ms - group[-1].at_ms <= GAP_MS:
            group.append(one)
            continue
        if one.kind not in TOGETHER or not all(of[0].kind in TOGETHER for of in open_groups.values()):
            open_groups.clear()
        groups.append([one])
        if one.kind in KINDS:
            open_groups[key] = groups[-1]
    for group in groups:
        if len(group) >= FOLD_FROM:
            yield tuple(group)
        else:
            yield from ((one,) for one in group)


def _key(one: Happening) -> object:
    # The text of an archive that stands is its own file.
    text = "" if one.what == "archived" else one.text
    return one.kind, one.what, one.name, one.author, text, one.campaign, one.trial_id is None, one.life


def line_of(group: Sequence[Happening]) -> str:
    """``2026-09-21T14:13:20Z  t0001 … t0018  archived 18 trials into /srv/a/x (54 files, 1234 bytes) by ana  (x)``."""
    first = group[0]
    if len(group) == 1:
        return words(first)
    where = f"  ({clean(first.campaign)})" if first.campaign else ""
    return f"{when(first.at_ms)}  {_SAID[first.kind](group)}{where}"


def _range(group: Sequence[Happening]) -> str:
    numbers = [one.trial_id for one in group if one.trial_id is not None]
    return f"{trial_label(min(numbers))} … {trial_label(max(numbers))}  " if numbers else ""


def _trials(group: Sequence[Happening]) -> str:
    first = group[0]
    known = sum(bool(one.detail.get("score_was_known")) for one in group) if first.what == "voided" else 0
    of = f"; of {known} the score was known" if known else ""
    return f"{_range(group)}{first.what} {plural(len(group), 'trial')}{f' {clean(first.name)}' if first.name else ''}{why(first)}{of}"


def _archives(group: Sequence[Happening]) -> str:
    first = group[0]
    place = clean(os.path.commonpath([Path(str(one.detail["file"])).parent for one in group]))
    size = f"{plural(_sum(group, 'files'), 'file')}, {_sum(group, 'size_bytes')} bytes"
    by = f" by {clean(first.author)}" if first.what == "archived" else why(first)
    return f"{_range(group)}{first.what.replace('_', ' ')} {plural(len(group), 'trial')} in {place} ({size}){by}"


def _prunes(group: Sequence[Happening]) -> str:
    first = group[0]
    return f"{_range(group)}pruned {len(group)} x {clean(first.name)} ({plural(_sum(group, 'files'), 'file')}){why(first)}"


def _parks(group: Sequence[Happening]) -> str:
    first, tasks = group[0], {one.task for one in group}
    cells = sum(one.cells or 0 for one in group)
    return f"{first.what}  {plural(cells, 'cell')} of {plural(len(tasks), 'task')} {clean(first.name)}{why(first)}"


def _findings(group: Sequence[Happening]) -> str:
    first, numbers = group[0], [int(one.detail["finding_id"]) for one in group]
    return f"findings {min(numbers)} … {max(numbers)}  {first.what} {len(group)} x {clean(first.name)}{why(first)}"


def _sum(group: Sequence[Happening], name: str) -> int:
    return sum(int(one.detail[name]) for one in group)


_SAID = {"trial": _trials, "score": _trials, "archive": _archives, "prune": _prunes, "park": _parks, "finding": _findings}
