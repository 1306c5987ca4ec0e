"""``marathonctl clean --ledger ID``: removes what a lost ledger left on the engine.

Owns the order (containers, then networks) and the refusal to touch a ledger that is in use.  Only things that carry the label
``marathond.ledger`` with exactly that id are looked at; everything is addressed by id.  What merely carries the label, under a name that
marathond does not give, is shown and left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from marathond.cli.output import Column, note, print_json, say, screen, table
from marathond.core.belongings import is_ours
from marathond.core.errors import EngineError
from marathond.core.text import clean as printed
from marathond.core.text import plural
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerInfo, Engine, NetworkInfo
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import reading

if TYPE_CHECKING:
    from marathond.service.settings import Settings

LEDGER_ID = re.compile(r"[0-9a-f]{12}")
LEFT_ALONE = "left alone: it carries the label, and no name that marathond gives"


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of a lost ledger.  ``outcome``: ``would be removed``, ``removed``, or why it is still there."""

    kind: str
    id: str
    name: str
    trial: str
    created_ms: int
    state: str
    outcome: str


@dataclass(frozen=True, slots=True)
class LedgersSeen:
    """:param ledgers: id of a ledger to how many things on the engine carry its label.
    :param configured: id of the ledger that is configured here; null: there is none."""

    ledgers: Mapping[str, int]
    configured: str | None


def check_id(ledger_id: str, own_id: str | None) -> None:
    """:raises CallFailed: exit 2, it is no ledger id, or the id of the ledger that is configured here."""
    if not LEDGER_ID.fullmatch(ledger_id):
        raise CallFailed(f"--ledger {ledger_id!r}: must be the 12 hexadecimal digits of the label {LABEL_LEDGER}", Exit.USAGE)
    if ledger_id == own_id:
        raise CallFailed(f"--ledger {ledger_id}: that is the ledger configured here; its daemon cleans up after itself", Exit.USAGE)


async def ledgers_seen(engine: Engine) -> dict[str, int]:
    """Ledger ids on this engine's containers and networks, with the number of things that carry each."""
    seen: dict[str, int] = {}
    things: list[ContainerInfo | NetworkInfo] = [*await engine.list_containers(), *await engine.list_networks()]
    for thing in things:
        if (found := thing.labels.get(LABEL_LEDGER)) is not None:
            seen[found] = seen.get(found, 0) + 1
    return seen


async def clean(engine: Engine, ledger_id: str, *, really: bool) -> list[Orphan]:
    """Containers first (running ones included: their ledger is lost, nobody will ever end them), then networks.

    :raises EngineError: the engine cannot be asked; a thing that it will not remove is named in the result instead.
    """
    labels = {LABEL_LEDGER: ledger_id}
    containers = [one for one in await engine.list_containers(labels) if one.labels.get(LABEL_LEDGER) == ledger_id]
    found = [await _container(engine, one, really=really) for one in containers]
    networks = [one for one in await engine.list_networks() if one.labels.get(LABEL_LEDGER) == ledger_id]
    return found + [await _network(engine, one, really=really) for one in networks]


def _left_alone(one: ContainerInfo | NetworkInfo) -> str:
    """Empty for what marathond made."""
    labels = one.labels
    ours = is_ours(one.name, ledger_id=labels[LABEL_LEDGER], trial=labels.get(LABEL_TRIAL), claim=labels.get(LABEL_CLAIM))
    return "" if ours else LEFT_ALONE


async def _container(engine: Engine, one: ContainerInfo, *, really: bool) -> Orphan:
    outcome = _left_alone(one) or "would be removed"
    if really and not _left_alone(one):
        try:
            outcome = "removed" if await engine.remove_container(one.id) else "the engine could not remove it; try again"
        except EngineError as error:
            outcome = f"not removed: {error}"
    return Orphan("container", one.id, one.name, one.labels.get(LABEL_TRIAL, ""), one.created_ms, one.status, outcome)


async def _network(engine: Engine, one: NetworkInfo, *, really: bool) -> Orphan:
    outcome = _left_alone(one) or "would be removed"
    if really and not _left_alone(one):
        try:
            outcome = "removed" if await engine.remove_network(one.id) else "in use by a container that is not of this ledger"
        except EngineError as error:
            outcome = f"not removed: {error}"
    return Orphan("network", one.id, one.name, one.labels.get(LABEL_TRIAL, ""), one.created_ms, ",".join(one.subnets), outcome)


def run(settings: Settings, ledger_id: str | None, *, really: bool, as_json: bool) -> int:
    """The whole command; returns its exit code.  Without an id it lists the ids that there are."""
    own_id = _own_id(settings.daemon.ledger)
    if ledger_id is not None:
        check_id(ledger_id, own_id)

    async def work() -> list[Orphan] | dict[str, int]:
        engine = DockerEngine(settings.engine.name, settings.engine.url, call_timeout_s=settings.engine.call_timeout_s)
        try:
            return await (ledgers_seen(engine) if ledger_id is None else clean(engine, ledger_id, really=really))
        finally:
            await engine.aclose()

    found = anyio.run(work)
    if isinstance(found, dict):
        _show_ids(found, own_id, as_json=as_json)
        return Exit.OK
    if as_json:
        print_json(found)
    else:
        _show_orphans(found, really=really)
    return exit_code(found, really=really)


def _own_id(ledger: Path) -> str | None:
    """Id of the configured ledger; None when there is none: then every id is a lost one, as far as this host knows."""
    if not ledger.exists():
        return None
    with reading(ledger) as connection:
        return str(connection.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0])


def _show_ids(found: Mapping[str, int], own_id: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json(LedgersSeen(found, own_id))
        return
    for ledger_id, things in sorted(found.items()):
        say(f"{printed(ledger_id)}  {plural(things, 'thing')}" + ("  (the ledger configured here)" if ledger_id == own_id else ""))
    if not found:
        say(f"nothing on this engine carries the label {LABEL_LEDGER}")
    else:
        note("a ledger that is in use elsewhere on this engine shows here, too: clean only what you know to be lost")


def _show_orphans(found: Sequence[Orphan], *, really: bool) -> None:
    if not found:
        say("nothing on this engine carries that ledger's label")
        return
    columns = (Column("kind"), Column("id"), Column("name", least=12), Column("trial"), Column("state"), Column("outcome", least=10))
    rows = [(o.kind, o.id[:12], printed(o.name), printed(o.trial), printed(o.state), printed(o.outcome)) for o in found]
    for line in table(columns, rows, screen()):
        say(line)
    if not really:
        say(f"nothing was changed; remove {plural(sum(o.outcome != LEFT_ALONE for o in found), 'thing')} with --yes")


def exit_code(orphans: Sequence[Orphan], *, really: bool) -> int:
    """1 when something is still there that should be gone."""
    return Exit.FAILED if really and any(orphan.outcome not in ("removed", LEFT_ALONE) for orphan in orphans) else Exit.OK
