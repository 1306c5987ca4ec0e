"""``marathonctl disclosures``, and the short section of them in ``plan``, ``arms`` and ``arms show``.

Owns their layout, and whose they are: the ledger's, which are what every report and export carries; without a campaign there, what a
submission of the configuration would write.  Must not word a disclosure.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from marathond.cli.locate import locate
from marathond.cli.output import Column, Screen, print_json, say, screen, table
from marathond.cli.settled import Settled
from marathond.core.disclosure import Disclosure
from marathond.core.errors import LedgerRefused
from marathond.core.text import clean, plural, when
from marathond.ledger.verbs import stored
from marathond.ledger.verbs.disclosures import Disclosed, told
from marathond.service.disclosing import configured
from marathond.service.exits import CallFailed
from marathond.service.picture.reader import campaign_id, reading
from marathond.service.settings import Settings
from marathond.service.taskread import read_tasks

TEXT_MAX = 2000
ALL_ARMS = "all arms"


@dataclass(frozen=True, slots=True)
class Told:
    """``version`` 0: nothing is stored, ``rows`` are the configuration's."""

    campaign: str
    rows: tuple[Disclosure, ...]
    version: int = 0
    at_ms: int = 0


def gather(chosen: Settled, campaign: str | None) -> Told:
    """Of the named campaign; by default the configured one; without a configuration the newest.

    :raises CallFailed: no such campaign, or neither a campaign nor a configuration.
    :raises ConfigError: the configuration is needed, and wrong.  :raises LedgerRefused: the ledger is needed, and not to be read.
    """
    has_configuration = locate(chosen.config).config is not None
    settings = chosen.settings() if campaign is None and has_configuration else None
    try:
        found = _stored(chosen, campaign, settings)
    except LedgerRefused as error:
        if error.code != "missing" or settings is None:
            raise
        found = None
    if found is not None:
        return found
    if settings is None:
        raise CallFailed("no campaign yet, and no configuration: nothing to tell")
    return Told(settings.campaign.name, configured(settings, read_tasks(settings, os.environ).tasks))


def _stored(chosen: Settled, campaign: str | None, settings: Settings | None) -> Told | None:
    """None: the ledger has no campaign, or not the configured one."""
    with reading(chosen.located().paths.ledger) as c:
        if settings is not None and stored.campaign_by_name(c, settings.campaign.name) is None:
            return None
        found = campaign_id(c, campaign or (None if settings is None else settings.campaign.name))
        if found is None:
            return None
        kept: Disclosed = told(c, found[0])
        return Told(found[1], kept.rows, kept.version, kept.at_ms)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader of the comparison must be told.

    :param version: as stored in the ledger; 0: nothing is stored, they are the configuration's.
    :param at: since when they are told, ISO-8601 UTC; null: not stored.
    """

    campaign: str
    version: int
    at: str | None
    disclosures: tuple[Disclosure, ...]


def print_all(found: Told, *, as_json: bool) -> None:
    if as_json:
        print_json(Shown(found.campaign, found.version, when(found.at_ms) if found.version else None, found.rows))
        return
    since = f"version {found.version}, told since {when(found.at_ms)}" if found.version else "not stored yet: by this configuration"
    say(f"campaign {clean(found.campaign)}: {plural(len(found.rows), 'disclosure')} ({since})")
    columns = (Column("code"), Column("arms", least=12, wrap=True))
    words = (Column("here", least=24, wrap=True), Column("compared with", least=24, wrap=True))
    everyone = {name for row in found.rows for name in row.arms}
    lines = [(clean(row.code), _arms(row, everyone), clean(row.text, TEXT_MAX), clean(row.compared_with, TEXT_MAX)) for row in found.rows]
    for line in table((*columns, *words), lines, screen()):
        say(line)


def short(rows: Sequence[Disclosure], arms: Collection[str], where: Screen) -> Iterator[str]:
    """The section of a list: how many there are, which, and of which arms."""
    if not rows:
        return
    yield f"{plural(len(rows), 'disclosure')} (marathonctl disclosures tells each):"
    yield from table(
        (Column("code"), Column("arms", least=12, wrap=True)), [(clean(row.code), _arms(row, arms)) for row in rows], where, indent="  "
    )


def of_one(rows: Sequence[Disclosure], arm: str) -> Iterator[str]:
    """The section of one arm: whole, a line each, to be wrapped."""
    mine = [row for row in rows if arm in row.arms]
    if mine:
        yield f"{plural(len(mine), 'disclosure')} that concern it:"
    for row in mine:
        yield f"  {clean(row.code)}: {clean(row.text, TEXT_MAX)} Compared with: {clean(row.compared_with, TEXT_MAX)}"


def _arms(row: Disclosure, everyone: Collection[str]) -> str:
    return ALL_ARMS if len(row.arms) > 1 and set(row.arms) >= set(everyone) else ", ".join(map(clean, row.arms))
