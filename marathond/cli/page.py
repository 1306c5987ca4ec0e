"""``marathonctl page``: the live page from the ledger alone, in the foreground, without a daemon or beside one.

Owns the command's life.  What is served is :mod:`marathond.service.page`'s.
"""

from __future__ import annotations

import asyncio
import signal

from marathond.cli.output import note
from marathond.core.errors import ConfigError
from marathond.core.paths import DaemonPaths
from marathond.service.page.address import Address, parse
from marathond.service.page.place import Place
from marathond.service.picture.reader import campaign_id, reading


def run(paths: DaemonPaths, campaign: str | None, listen: str) -> None:
    """Serve until interrupted or terminated.

    :raises ConfigError: the address is none.  :raises CallFailed: no such campaign.  :raises Refused: it cannot listen there.
    """
    try:
        address = parse(listen)
    except ValueError as error:
        raise ConfigError("--listen", listen, str(error)) from error
    with reading(paths.ledger) as c:
        campaign_id(c, campaign)
    asyncio.run(_serve(Place(paths.ledger, paths.state_dir, paths.control_socket, campaign), address))


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
