"""The process that serves a daemon's page: ``python -m marathond.service.page.child PLACE LISTEN``, which the daemon begins.

Owns its life: one line on standard output (``at WHERE``, or ``no REASON`` with exit status 1), then requests until standard input ends,
and a line for what breaks meanwhile (:mod:`.breaks`).  Each byte of the input is a beat of the daemon's event loop.  Errors go to standard
error, which is the daemon's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace

from marathond.core.errors import MarathonError, Refused
from marathond.service.logs import configure
from marathond.service.page.address import parse
from marathond.service.page.breaks import Breaks
from marathond.service.page.life import LISTENS, REFUSED
from marathond.service.page.place import Place, from_data
from marathond.service.page.server import serve
from marathond.service.page.sources import Sources

CHUNK = 4096
PATIENCE_S = 3.0
"""With a place that is taken: the page of a daemon that has just been killed needs a moment to notice."""


class Beats:
    """``last_s``: when the daemon's loop last said something, by this process's monotonic clock."""

    def __init__(self) -> None:
        self.last_s: float | None = None


def _say(line: str) -> None:
    """To the daemon; of one that has gone meanwhile, standard input tells.  A few lines a minute never fill a pipe that nobody reads."""
    with suppress(OSError):
        print(line, flush=True)  # noqa: T201


async def _serve(place: Place, listen: str) -> None:
    beats, stop = Beats(), asyncio.Event()

    def heard() -> None:
        try:
            piece = os.read(0, CHUNK)
        except BlockingIOError:
            return
        if piece:
            beats.last_s = time.monotonic()
        else:
            stop.set()
            asyncio.get_running_loop().remove_reader(0)

    os.set_blocking(0, False)
    asyncio.get_running_loop().add_reader(0, heard)
    sources = Sources(replace(place, beat_s=lambda: beats.last_s))
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not stop.is_set():
            try:
                await serve(sources, parse(listen), stop, lambda where: _say(f"{LISTENS}{where}"), Breaks(_say))
            except Refused:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(0.2)
    finally:
        sources.close()


def main(argv: list[str]) -> int:
    configure("info", "auto")
    try:
        asyncio.run(_serve(from_data(json.loads(argv[0])), argv[1]))
    except MarathonError as error:
        _say(f"{REFUSED}{error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
