"""Is the engine of this start the one that the ledger's live trials run on?

Owns the refusal of a start that would ask one engine about another's containers: each of them would look gone, and its trial would be
void.  Must not ask any engine.
"""

from __future__ import annotations

import os
import sqlite3

from marathond.core.errors import Refused
from marathond.ledger.verbs import networks

_UNIX = "unix://"


def same_engine(one: str, other: str) -> bool:
    """Whether two URLs name one engine: equal, or one socket under two names (``/var/run`` is a link), or one port by two schemes."""
    return one == other or _plain(one) == _plain(other)


def _plain(url: str) -> str:
    if url.startswith(_UNIX):
        return _UNIX + os.path.realpath(url.removeprefix(_UNIX))
    return url.partition("://")[2].rstrip("/").lower()


def refuse_other_engine(c: sqlite3.Connection, engine: str, url: str) -> None:
    """To be asked before anything looks at an engine.

    :raises Refused: trials are live on another engine, or something may be left on the one that had this name until now.
    """
    known = networks.engine_url(c, engine)
    left = networks.held(c, engine)
    if known and left.anything and not same_engine(known, url):
        raise Refused(
            f"engine {engine} was {known} and is now {url}, but {left.containers} containers and {left.networks} networks of this ledger "
            f"may still be on the first: put engine.url (or DOCKER_HOST) = {known} back until nothing is left there, as after "
            "marathonctl drain; a second engine needs another engine.name"
        )
    for other in networks.live_elsewhere(c, engine):
        raise Refused(
            f"engine.name is now {engine}, but {other.trials} live trials run on engine {other.engine} ({other.url or 'address unknown'}): "
            f"put engine.name = {other.engine} back until they are at rest, as after marathonctl drain"
        )
