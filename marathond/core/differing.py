"""A task whose files are not those that its campaign was submitted with: what is known of it, and what that means.

Owns the words, which are the same before a submission (``config check``, ``plan``) and after it (``submit``).
"""

from __future__ import annotations

from dataclasses import dataclass

from marathond.core.text import clean, plural

DIGEST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Differing:
    """``was``, ``now``: digests of the folder, hex sha256, as it was submitted and as it is.

    :param scored: its cells that have a score.
    :param left: all its other cells, those included that a submission would add.
    """

    task: str
    campaign: str
    was: str
    now: str
    scored: int
    left: int


def meaning(each: Differing) -> str:
    """What it is and what follows, in one line that begins with a verb: the task's name belongs before it."""
    digests = f"digest {each.was[:DIGEST_SHOWN]}, now {each.now[:DIGEST_SHOWN]}"
    stands = f"its {plural(each.scored, 'score')} {'stands' if each.scored == 1 else 'stand'}" if each.scored else ""
    if each.left:
        cells = f"{plural(each.left, 'cell')} without a score {'parks' if each.left == 1 else 'park'} until the old files are back"
        follows = f"{cells}{f', {stands}' if stands else ''}; to run the new files begin a campaign of another name"
    else:
        follows = f"{stands}, nothing of it is left to run"
    return f"differs from what campaign {clean(each.campaign)} was submitted with ({digests}): {follows}"
