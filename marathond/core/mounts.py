"""What an arm's mounts hold, as one value each: a digest, or why there is none.

Owns the value's form and the words about it, which are the same in a trial's facts, in a finding, before a submission (``config check``,
``plan``) and at it (``submit``).  Pure: who reads the folders is :mod:`marathond.staging.mounted`.

A value is one of

* ``sha256:…``: everything was read: names, kinds, executable bits, links' targets, bytes;
* ``names, sizes and times alone sha256:…``: there is too much of it to read whole;
* ``not digested: …``: it is no part of the harness (writable, or it holds a socket, a pipe or a device);
* ``not read: …``: it should have been read, and could not be.  What it held is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.text import clean, plural

FACT = "mount "
"""Before the target: the name of a trial's fact, noted when its agent starts."""
AT_END = " (at the agent's end)"
"""After the target: noted only where it is another value than at the start, or unread; where the start is unknown, nothing is."""
HELD = "mounts_held"
"""Key of a stored arm: target to value, as they were at its submission.  No part of its treatment hash, which is older."""
WHOLE, NAMES, APART, UNREAD = "sha256:", "names, sizes and times alone sha256:", "not digested: ", "not read: "
WRITABLE = f"{APART}writable"
DIGEST_SHOWN = 12


def known(value: str) -> bool:
    """Whether it says what was there, so that another value says that something else was."""
    return value.startswith((WHOLE, NAMES))


def short(value: str) -> str:
    """For a line that names several."""
    for form in (WHOLE, NAMES):
        if value.startswith(form):
            return form.removesuffix(WHOLE) + value.removeprefix(form)[:DIGEST_SHOWN]
    return clean(value)


@dataclass(frozen=True, slots=True)
class Held:
    """A mount of an arm whose content is not what it was.  ``was``: at the submission, or in the campaign's first trial."""

    arm: str
    target: str
    source: str
    was: str
    now: str

    @property
    def sure(self) -> bool:
        """Of names, sizes and times alone it is not: a copy of the same files has other times."""
        return not (self.was.startswith(NAMES) and self.now.startswith(NAMES))


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that a mount of an arm had in trials that are not withdrawn.

    :param trials: how many of them.
    :param first: the first of them; None: it is the submission's alone.
    :param submitted: the arm was submitted with it.
    """

    arm: str
    target: str
    value: str
    trials: int
    first: str | None
    submitted: bool


def by_mount(readings: Iterable[Reading]) -> dict[tuple[str, str], tuple[Reading, ...]]:
    """By arm and target."""
    found: dict[tuple[str, str], tuple[Reading, ...]] = {}
    for each in readings:
        found[each.arm, each.target] = (*found.get((each.arm, each.target), ()), each)
    return found


def mixed(readings: Sequence[Reading]) -> bool:
    """Whether one mount was seen to hold different things, or (:func:`sure` is not) may have been.

    What it was submitted with counts only where no trial is known: edited before the first of them, it is one arm.
    """
    values = _counted(readings)
    return len(values) > 1 and any(map(known, values))


def sure(readings: Sequence[Reading]) -> bool:
    """Of a mixed one: not only times, of what is too much to be read, may differ, which differ between copies of the same files, too."""
    return len({NAMES if value.startswith(NAMES) else value for value in _counted(readings)}) > 1


def _counted(readings: Sequence[Reading]) -> set[str]:
    tried = [each for each in readings if each.trials]
    counted = tried if any(known(each.value) for each in tried) else readings
    return {each.value for each in counted if not each.value.startswith(UNREAD)}


def story(readings: Sequence[Reading]) -> str:
    """What one mount held, and since when."""
    return "; ".join(f"{short(each.value)} {_where(each)}" for each in readings)


def _where(each: Reading) -> str:
    trials = f"in {plural(each.trials, 'trial')} from {each.first} on" if each.first is not None else ""
    return " and ".join(filter(None, ("as submitted" if each.submitted else "", trials)))


def changed(arm: str, mounts: Sequence[Mapping[str, Any]], was: Mapping[str, str], now: Mapping[str, str]) -> tuple[Held, ...]:
    """Those of ``mounts`` (as a stored arm has them) of which both values are known and differ."""
    return tuple(
        Held(arm, target, mount["source"], was[target], now[target])
        for mount in mounts
        if known(was.get(target := mount["target"], "")) and known(now.get(target, "")) and was[target] != now[target]
    )


def meaning(each: Held, campaign: str) -> str:
    """What it is and what follows, in one line that begins with a verb: the arm's name belongs before it."""
    said = f"is not that of campaign {clean(campaign)}" if each.sure else f"may have changed since campaign {clean(campaign)} began"
    then = "trials" if each.sure else "if it did, and not its times alone, trials"
    return (
        f"mounts {clean(each.source)} at {clean(each.target)}, whose content {said} "
        f"({short(each.was)}, now {short(each.now)}): {then} from now on run another arm under the same name; put the old files back, "
        "or begin a campaign (or an arm) of another name"
    )


def refusal(each: Held) -> str:
    """Why a submission is not taken."""
    return (
        f"arm {clean(each.arm)}: what it mounts at {clean(each.target)} was {short(each.was)}, now {short(each.now)} "
        f"(changed: files below {clean(each.source)}): put the old files back, or it needs a new campaign (or another name)"
    )
