"""``marathonctl capacity``: what limits now, and what one more of each thing would give.

Owns the layout.  The answers are the scheduler's own plan, asked with one thing changed: see :mod:`marathond.core.capacity`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from marathond.cli.output import Column, Screen, flow, print_json, say, screen, table, wrapped
from marathond.core.paths import DaemonPaths
from marathond.core.text import UNKNOWN, clean, plural, span
from marathond.service.exits import Exit
from marathond.service.picture.capacity import Capacity, More, gather_capacity
from marathond.service.picture.money_words import money_parts, provider_parts
from marathond.service.picture.reader import reading
from marathond.service.picture.words import disk_words


def run(paths: DaemonPaths, campaign: str | None, *, as_json: bool) -> int:
    """Exit status: 3 when the daemon is down, 4 when something is unknown.

    :raises CallFailed: exit 2, no such campaign.
    """
    with reading(paths.ledger) as c:
        found = gather_capacity(c, campaign, paths.control_socket, time.time_ns() // 1_000_000, Path(paths.state_dir) / "gateway")
    if as_json:
        print_json(found)
    else:
        where = screen()
        for line in render(found, where):
            say(line)
    if found.alive is False:
        return Exit.DOWN
    return Exit.BLIND if found.unknown else Exit.OK


def render(found: Capacity, where: Screen) -> Iterator[str]:
    yield from flow([f"campaign {clean(found.campaign)}" if found.campaign else "no campaign yet", *_holds(found)], where)
    for line in _limits(found):
        yield from wrapped(line, where)
    if found.more and found.cells:
        yield ""
        yield from table(_COLUMNS, [_row(each) for each in found.more], where)
        if any(each.starts == 0 and each.then for each in found.more):
            yield from wrapped("0: that alone gives nothing, the cells would wait for what stands beside it", where)
    if found.provider is not None and found.provider.routes is not None and any(route.waiting for route in found.provider.routes):
        yield from wrapped("requests wait for the provider: more tokens a minute make agents that run quicker, and start none", where)


_COLUMNS = (Column("one more"), Column("starts", right=True), Column("done in", right=True), Column("then waiting", least=20, wrap=True))


def _row(each: More) -> tuple[str, str, str, str]:
    eta = "-" if each.eta_ms is None else span(each.eta_ms)
    if each.starts is None:
        return clean(each.what), UNKNOWN, eta, clean(each.then)
    return clean(each.what), str(each.starts), eta, clean(each.then) or "nothing"


def _holds(found: Capacity) -> list[str]:
    """``slots 12/12``, ``CPU 15/16``, …: what is held, of how much."""
    used = found.used
    if used is None:
        return []
    cpus, memory = _of(used.cpus_of), UNKNOWN if used.memory_mb_of is None else f"{used.memory_mb_of / 1024:.1f}"
    networks = UNKNOWN if used.networks_of is None else str(used.networks_of)
    held = [f"slots {used.slots}/{used.slots_of}", f"CPU {used.cpus:g}/{cpus}", f"memory {used.memory_mb / 1024:.1f}/{memory} GiB"]
    held += [f"networks {used.networks}/{networks}", f"disk {disk_words(found.disk)}"]
    return [*held, *(money_parts(found.money) if found.money else []), *provider_parts(found.provider)]


def _of(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:g}"


def _limits(found: Capacity) -> Iterator[str]:
    if found.alive is False:
        yield f"marathond is not running ({clean(found.why_down)}): what would limit it is unknown"
        return
    if found.unknown:
        yield f"{UNKNOWN}: {', '.join(map(clean, found.unknown))}"
    if found.waiting is None:
        return
    if not found.cells:
        yield "no cell is open: nothing limits"
        return
    now = f"{found.starts} would start at the next look" if found.starts else "none can start now"
    eta = f"; done in {span(found.eta.ms)} as things are ({found.eta.basis})" if found.eta.ms is not None else ""
    yield f"{plural(found.cells, 'cell')} open, {now}{eta}"
    for waiting in found.waiting:
        yield f"  {waiting.count} wait: {clean(waiting.text)}"
