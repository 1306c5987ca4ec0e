"""The comparison of arms: pure, by numpy and scipy.  Imported by ``report`` alone; daemon and ``status`` never load it.

Owns the way in.  What it answers is :mod:`marathond.core.compare.result`, which needs neither library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marathond.core.compare.result import Comparison
    from marathond.core.results import Results

__all__ = ["compare"]


def compare(results: Results, against: Results | None = None, *, pairs: Sequence[tuple[str, str]] = ()) -> Comparison:
    """Every arm by itself, and the campaign's contrasts; of two campaigns, one's arms less the other's over their common cells.

    :param against: another campaign.  Then the campaigns' own contrasts are not looked at.
    :param pairs: with ``against``: an arm of ``results`` and one of ``against`` each; by default those of the same name.  Without it:
        arms to compare instead of the declared contrasts; chosen by who asks, they count as not declared, and the comparison says so.
    :raises Refused: ``pairs`` names an arm that is not there, one with itself or two of them twice, or no two arms can be paired.
    """
    from marathond.core.compare.whole import compare_across, compare_within  # not before somebody compares: numpy takes its time

    return compare_within(results, pairs) if against is None else compare_across(results, against, pairs)
