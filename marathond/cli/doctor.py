"""``marathonctl doctor``: can the watcher see, and is what it counts by alive?

Owns the screen and the exit status.  The first line says which ledger, host and campaign were looked at: a monitor that looked at the wrong
place said OK all night (fault e01).  It never says ok for what it did not look at (fault e04).

Exit status: 0 all good; 1 a proof failed or a source is dead; 4 something is unknown, or the ledger cannot be read, or is another host's.
"""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from marathond import __version__
from marathond.cli.doctor_status import prove_status
from marathond.cli.output import Screen, print_json, say, wrapped
from marathond.core.paths import DaemonPaths
from marathond.core.text import UNKNOWN, clean, when
from marathond.ledger.place import is_elsewhere, read_identity
from marathond.ledger.verbs.runs import last_run
from marathond.service.doctor import run, source, sources
from marathond.service.doctor.run import Proof
from marathond.service.doctor.source import DEAD, Daemon, Place, Source
from marathond.service.exits import Exit
from marathond.service.picture.reader import campaign_id, daemon_life, reading

_SHADES = {source.OK: "green", DEAD: "red", source.UNKNOWN: "yellow", source.NOTHING: "dim"}


@dataclass(frozen=True, slots=True)
class Looked:
    """What was looked at.  ``elsewhere``: in what this place differs from the one that the ledger knows; empty: it is its own."""

    ledger: str
    ledger_id: str
    made_on: str
    host: str
    version: str
    campaign: str | None
    campaigns: int
    cells: int
    daemon: str
    elsewhere: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    looked: Looked
    proofs: list[Proof]
    sources: list[Source]

    @property
    def exit_code(self) -> int:
        if any(not proof.ok for proof in self.proofs) or any(row.verdict == DEAD for row in self.sources):
            return Exit.FAILED
        return Exit.BLIND if self.looked.elsewhere or any(row.verdict == source.UNKNOWN for row in self.sources) else Exit.OK


def gather(paths: DaemonPaths, campaign: str | None, now_ms: int) -> Report:
    """Look first, then prove: what is looked at is a moment, and the proof takes seconds.

    :raises LedgerRefused: the ledger is missing, none, or cannot be read.  :raises CallFailed: no such campaign.
    """
    with reading(paths.ledger) as connection:
        found = campaign_id(connection, campaign)
        looked = _looked(connection, paths, found, now_ms)
        if looked.elsewhere:
            return Report(looked, [], [])
        life = daemon_life(last_run(connection), paths.control_socket, now_ms)
        place = Place(connection, found, paths.state_dir, now_ms, Daemon(life.alive, life.why))
        rows = sources.look(place)
    return Report(looked, [*run.prove_rules(), *prove_status()], rows)


def _looked(c: sqlite3.Connection, paths: DaemonPaths, found: tuple[int, str] | None, now_ms: int) -> Looked:
    path = Path(paths.ledger).resolve()
    identity, host = read_identity(c, path), socket.gethostname()
    life = daemon_life(last_run(c), paths.control_socket, now_ms)
    running = {
        True: f"running, pid {UNKNOWN if life.run is None else life.run.pid}",
        False: f"not running ({life.why})",
        None: f"{UNKNOWN}: {life.why}",
    }
    campaigns = c.execute("SELECT count(*) FROM campaign").fetchone()[0]
    cells = 0 if found is None else c.execute("SELECT count(*) FROM cell WHERE campaign_id = ?", (found[0],)).fetchone()[0]
    return Looked(
        ledger=str(path),
        ledger_id=identity.ledger_id,
        made_on=f"{identity.host} at {when(identity.created_at_ms)}",
        host=host,
        version=__version__,
        campaign=None if found is None else found[1],
        campaigns=campaigns,
        cells=cells,
        daemon=running[life.alive],
        elsewhere=is_elsewhere(identity, path, host),
    )


@dataclass(frozen=True, slots=True)
class ProofShown:
    """What became of one rule of the audit, or of one look of ``status``.

    :param kind: rule or status.
    :param why: empty: it was silent when all was well, and saw the fault planted for it.
    """

    kind: str
    name: str
    why: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """:param proofs: can the watcher see.  :param sources: is what it counts by alive."""

    exit: int
    looked_at: Looked
    proofs: list[ProofShown]
    sources: list[Source]


def as_json(report: Report) -> Shown:
    """The report as it is printed for a program."""
    proofs = [ProofShown(proof.kind, proof.name, proof.why, proof.ok) for proof in report.proofs]
    return Shown(int(report.exit_code), report.looked, proofs, report.sources)


def show(report: Report, where: Screen, *, as_json_: bool) -> None:
    if as_json_:
        print_json(as_json(report))
        return
    for line in lines(report, where):
        say(line)


def lines(report: Report, where: Screen) -> list[str]:
    looked = report.looked
    campaign = "no campaign yet" if looked.campaign is None else f"campaign {clean(looked.campaign)} ({looked.cells} cells)"
    of = f"1 of {looked.campaigns} campaigns" if looked.campaigns > 1 else ""
    first = f"ledger {clean(looked.ledger)} on host {clean(looked.host)}, {campaign}{f', {of}' if of else ''}"
    second = (
        f"  {looked.ledger_id}, made on {clean(looked.made_on)}; marathond {clean(looked.daemon)}; this is marathonctl {looked.version}"
    )
    head = [*wrapped(first, where), *wrapped(second, where)]
    if looked.elsewhere:
        words = f"not looked at: {clean(looked.elsewhere)}. Run doctor there, or say which it is: marathonctl ledger adopt"
        return [*head, *wrapped(where.paint(words, "red"), where)]
    return [*head, "", *_proofs(report.proofs, where), "", *_sources(report.sources, where), "", *_verdict(report, where)]


def _proofs(proofs: Sequence[Proof], where: Screen) -> list[str]:
    found = []
    for kind, words in (("rule", "rules of the audit"), ("status", "looks of status")):
        mine = [proof for proof in proofs if proof.kind == kind]
        bad = [proof for proof in mine if not proof.ok]
        line = f"can it see: {len(mine) - len(bad)} of {len(mine)} {words} are silent when all is well and find the fault planted for them"
        found += wrapped(line, where)
        for proof in bad:
            found += [where.paint(part, "red") for part in wrapped(f"  FAILED {clean(proof.name)}: {clean(proof.why)}", where)]
    return found


def _sources(rows: Sequence[Source], where: Screen) -> list[str]:
    """A line for each, the verdict first: how much of how much, of which campaign, and why."""
    room = max((len(row.verdict) for row in rows), default=0)
    found = ["is it alive, what is counted by:"] if rows else []
    for row in rows:
        of = "the house" if row.campaign == source.HOUSE else f"campaign {row.campaign}"
        words = f"{row.name}: {_seen(row)}{row.things} ({of})" + (f": {row.why}" if row.why else "")
        inner = where if where.width is None else replace(where, width=where.width - room - 4)
        first, *rest = wrapped(clean(words, 2_000), inner)
        verdict = where.paint(row.verdict, _SHADES[row.verdict]) + " " * (room - len(row.verdict))
        found += [f"  {verdict}  {first}", *(f"{' ' * (room + 2)}{line}" for line in rest)]
    return found


def _seen(row: Source) -> str:
    if row.verdict == source.NOTHING:
        return ""
    if row.seen is None and row.total is None:
        return f"{UNKNOWN} "
    seen, total = (UNKNOWN if value is None else str(value) for value in (row.seen, row.total))
    return f"{seen} of {total} "


def _verdict(report: Report, where: Screen) -> list[str]:
    bad = [proof.name for proof in report.proofs if not proof.ok]
    dead = [row.name for row in report.sources if row.verdict == DEAD]
    blind = [row.name for row in report.sources if row.verdict == source.UNKNOWN]
    parts = [f"{word}: {clean(', '.join(names))}" for word, names in (("FAILED", bad), ("dead", dead), ("unknown", blind)) if names]
    words = "; ".join(parts) if parts else "all that was looked at is alive, and the watcher sees"
    return [where.paint(part, "red" if bad or dead else "yellow" if blind else "green") for part in wrapped(words, where)]
