"""``marathonctl page``: the live page from the ledger alone, in the foreground, without a daemon or beside one.

Owns the command's life.  What is served is :mod:`marathond.service.page`'s.
"""

from __future__ import annotations

import asyncio
import signal

from marathond.cli.output import note
from marathond.cli.settled import Settled
from marathond.core.errors import ConfigError, Refused
from marathond.core.paths import DaemonPaths
from marathond.core.text import clean
from marathond.service.page.address import Address, parse
from marathond.service.page.place import Place
from marathond.service.picture.reader import campaign_id, reading

USUAL = "127.0.0.1:8620"


def configured(chosen: Settled) -> str | None:
    """``[page] listen``; None: it says nothing, or is wrong, which is a note: the page needs the ledger alone."""
    try:
        return chosen.settings().page.listen
    except ConfigError as error:
        if chosen.located().config is not None:
            first = getattr(error, "errors", (error,))[0]
            note(f"note: whether [page] listen names a place is unknown: {clean(first)}")
        return None


def run(paths: DaemonPaths, campaign: str | None, asked: str | None, listen: str | None) -> None:
    """Serve until interrupted or terminated.

    :param asked: where, by ``--listen``; ``listen``: where by the configuration.
    :raises ConfigError: the address is none.  :raises CallFailed: no such campaign.  :raises Refused: it cannot listen there.
    """
    place = asked or listen or USUAL
    try:
        address = parse(place)
    except ValueError as error:
        raise ConfigError("--listen", place, str(error)) from error
    with reading(paths.ledger) as c:
        campaign_id(c, campaign)
    try:
        asyncio.run(_serve(Place(paths.ledger, paths.state_dir, paths.control_socket, campaign), address))
    except Refused as error:
        if asked or not listen:
            raise
        raise Refused(f"{error}; a running daemon serves it there ([page] listen): --listen 127.0.0.1:0 takes another port") from error


async def _serve(place: Place, address: Address) -> None:
    from marathond.service.page.server import serve
    from marathond.service.page.sources import Sources

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    sources = Sources(place)
    try:
        await serve(sources, address, stop, lambda where: note(f"the page is at {where} until Ctrl-C"))
    finally:
        sources.close()
