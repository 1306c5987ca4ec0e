"""``marathonctl audit``: every rule of the audit asked now, read-only and without a daemon.

Owns the screen and the exit status.  Every count names its campaign and its total (faults e01, e02): what was found, what is in order,
over how much that was seen, and what could not be seen at all, which is never ok (fault e04).

What is found where it happens (by the gateway's journal, the engine, an agent's end) is asked of nobody again: what stands open of it is
listed below the rules, and counts for the exit status.

Exit status: 1 an error or a stop-loss was found, or stands open and nobody has acknowledged it; 4 a rule broke or could not see; else 0.
What the files of an import do not tell is said to be unknown, and is no 4: nothing that anybody does would change it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import Column, Screen, print_json, say, table, wrapped
from marathond.core.audit.facts import Facts, FindingFact
from marathond.core.audit.house import WAL_BYTES
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.rules import looks
from marathond.core.paths import DaemonPaths
from marathond.core.text import UNKNOWN, clean, plural, when
from marathond.ledger import wal
from marathond.ledger.verbs import audit
from marathond.ledger.verbs.runs import last_run
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import campaign_id, daemon_life, reading
from marathond.service.picture.status import ALARMS

DETAIL_MAX = 2_000
OK, FOUND, NOTHING = "ok", "found", "nothing yet"
"""``nothing yet``: there is nothing that the rule could have judged so far."""
_SHADES = {OK: "green", UNKNOWN: "yellow", NOTHING: "dim", "info": "dim", "warning": "yellow", "error": "red", "stop_loss": "red"}
_ORDER = ("stop_loss", "error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Asked:
    """``why``: in what it could not see, or how it broke."""

    rule: Rule
    look: Look
    why: str = ""

    @property
    def broke(self) -> bool:
        return bool(self.why) and not self.look.unseen

    @property
    def verdict(self) -> str:
        if self.look.found:
            return FOUND
        return UNKNOWN if self.why else OK if self.look.looked_at else NOTHING


@dataclass(frozen=True, slots=True)
class Report:
    ledger: str
    facts: Facts
    asked: list[Asked]

    @property
    def beside(self) -> list[FindingFact]:
        """Open findings that no rule has found just now."""
        found = {(found.code, found.subject) for each in self.asked for found in each.look.found}
        return [each for each in self.facts.findings if (each.code, each.subject) not in found]

    @property
    def exit_code(self) -> int:
        found = any(found.severity in ALARMS for each in self.asked for found in each.look.found)
        if found or any(each.severity in ALARMS and not each.acked for each in self.beside):
            return Exit.FAILED
        blind = [each for each in self.asked if each.why and (each.broke or self.facts.origin == "run")]
        return Exit.BLIND if blind else Exit.OK


def gather(paths: DaemonPaths, campaign: str | None, now_ms: int) -> Report:
    """:raises LedgerRefused: the ledger is missing, none, or cannot be read.  :raises CallFailed: no such campaign, or none yet."""
    with reading(paths.ledger) as connection:
        found = campaign_id(connection, campaign)
        if found is None:
            raise CallFailed("no campaign was ever submitted to this ledger: there is nothing to audit", Exit.BLIND)
        life = daemon_life(last_run(connection), paths.control_socket, now_ms)
        size, readers = wal.look(Path(paths.ledger), WAL_BYTES)
        facts = audit.facts(connection, found[0], now_ms=now_ms, wal_bytes=size, wal_readers=readers, daemon_alive=life.alive)
    asked = [
        Asked(rule, Look(0, 0, ""), f"the rule broke: {type(look).__name__}: {look}")
        if isinstance(look, Exception)
        else Asked(rule, look, look.unseen)
        for rule, look in looks(facts)
    ]
    return Report(str(Path(paths.ledger).resolve()), facts, asked)


@dataclass(frozen=True, slots=True)
class LookedAt:
    """What was audited.

    :param ledger: the file that was really read.
    :param origin: run: it runs here; import: it was measured elsewhere.
    :param trials: of the campaign; the newest were looked at, trials_left_out were not.
    """

    ledger: str
    campaign: str
    origin: str
    cells: int
    trials: int
    trials_left_out: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class RuleShown:
    """One rule and what it saw.

    :param verdict: ok, found, unknown, or "nothing yet": there was nothing that it could have judged.
    :param looked_at: how many things it could judge ...
    :param of: ... of how many.
    :param things: what they are.
    :param unseen: why it could not see, or how it broke; empty: it saw.
    :param faults: of the catalogue of faults.
    """

    code: str
    severity: str
    verdict: str
    looked_at: int
    of: int
    things: str
    unseen: str
    found: tuple[Found, ...]
    means: str
    todo: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """:param open_beside: open findings that no rule has found just now."""

    exit: int
    looked_at: LookedAt
    rules: list[RuleShown]
    open_beside: list[FindingFact]


def as_json(report: Report) -> Shown:
    """The report as it is printed for a program."""
    facts = report.facts
    rules = [
        RuleShown(
            code=each.rule.code,
            severity=each.rule.severity,
            verdict=each.verdict,
            looked_at=each.look.looked_at,
            of=each.look.of,
            things=each.look.things,
            unseen=each.why,
            found=tuple(each.look.found),
            means=each.rule.means,
            todo=each.rule.todo,
            faults=tuple(each.rule.faults),
        )
        for each in report.asked
    ]
    looked = LookedAt(
        ledger=report.ledger,
        campaign=facts.campaign,
        origin=facts.origin,
        cells=facts.cells,
        trials=len(facts.trials) + facts.left_out,
        trials_left_out=facts.left_out,
        at_ms=facts.now_ms,
    )
    return Shown(int(report.exit_code), looked, rules, report.beside)


def show(report: Report, where: Screen, *, as_json_: bool) -> None:
    if as_json_:
        print_json(as_json(report))
        return
    for line in lines(report, where):
        say(line)


def lines(report: Report, where: Screen) -> Iterator[str]:
    yield from wrapped(_head(report), where)
    yield ""
    yield from table(
        (Column("rule"), Column(""), Column("looked at", right=True), Column("of what", least=12, wrap=True)), _body(report, where), where
    )
    for severity in _ORDER:
        for each in report.asked:
            yield from _found(each, severity, where)
    blind = [each for each in report.asked if each.why]
    if blind:
        yield ""
    for each in blind:
        yield from (where.paint(part, "yellow") for part in wrapped(f"{UNKNOWN}: {each.rule.code}: {clean(each.why)}", where))
    yield from _beside(report, where)
    yield ""
    yield from _verdict(report, where)


def _head(report: Report) -> str:
    """``audit of campaign x: 240 trials (212 scored, 3 in review, 20 void, 5 live) of 500 cells; ledger /srv/m/ledger.db at …``."""
    facts = report.facts
    states = Counter(trial.state for trial in facts.trials)
    named = {"scored": states.pop("scored", 0), "in review": states.pop("review", 0), "void": states.pop("voided", 0)}
    named["live"] = sum(states.values())
    parts = ", ".join(f"{count} {word}" for word, count in named.items() if count)
    trials = plural(len(facts.trials), "trial") + (f" ({parts})" if parts else "")
    left = f", the newest of {len(facts.trials) + facts.left_out}" if facts.left_out else ""
    origin = ", imported" if facts.origin == "import" else ""
    of = f"{trials}{left}, of {plural(facts.cells, 'cell')}"
    return f"audit of campaign {clean(facts.campaign)}{origin}: {of}; ledger {clean(report.ledger)} as of {when(facts.now_ms)}"


def _body(report: Report, where: Screen) -> Iterator[tuple[str, ...]]:
    for each in report.asked:
        shade = _worst(each) if each.look.found else each.verdict
        word = f"{len(each.look.found)} {FOUND}" if each.look.found else each.verdict
        seen = "-" if not each.look.of else f"{each.look.looked_at} of {each.look.of}"
        yield each.rule.code, where.paint(word, _SHADES[shade]), seen, clean(each.look.things)


def _worst(each: Asked) -> str:
    return min((found.severity for found in each.look.found), key=_ORDER.index)


def _found(each: Asked, severity: str, where: Screen) -> Iterator[str]:
    mine = [found for found in each.look.found if found.severity == severity]
    if not mine:
        return
    yield ""
    for found in mine:
        mark = "STOP-LOSS" if severity == "stop_loss" else severity
        yield where.paint(where.fit(f"{mark} {clean(found.code)} {clean(found.subject)}"), _SHADES[severity])
        yield from (f"  {part}" for part in wrapped(clean(found.detail, DETAIL_MAX), _narrower(where)))
    yield from (f"  {part}" for part in wrapped(f"means: {each.rule.means}", _narrower(where)))
    yield from (f"  {part}" for part in wrapped(f"do: {each.rule.todo}", _narrower(where)))


def _beside(report: Report, where: Screen) -> Iterator[str]:
    """By code, the worst first; findings of single trials come by the dozen."""
    count = Counter((each.severity, each.code, each.acked) for each in report.beside)
    rows = sorted(count, key=lambda key: (key[2], _ORDER.index(key[0]), key[1]))
    parts = [f"{count[key]} x {key[1]} ({key[0].replace('_', '-')}{', acknowledged' if key[2] else ''})" for key in rows]
    if parts:
        yield ""
        yield from wrapped(f"open besides, found where it happens: {clean(', '.join(parts), DETAIL_MAX)}; see marathonctl findings", where)


def _narrower(where: Screen) -> Screen:
    return where if where.width is None else Screen(where.width - 2, where.colour)


def _verdict(report: Report, where: Screen) -> Iterator[str]:
    count = Counter(found.severity for each in report.asked for found in each.look.found)
    found = ", ".join(f"{count[severity]} {severity.replace('_', '-')}" for severity in _ORDER if count[severity]) or "nothing"
    silent, judged = sum(each.verdict == OK for each in report.asked), sum(each.verdict != NOTHING for each in report.asked)
    blind = sum(bool(each.why) for each in report.asked)
    words = f"campaign {clean(report.facts.campaign)}: {found} found; {silent} of {len(report.asked)} rules looked and found nothing"
    words += f", {len(report.asked) - judged} have nothing to look at yet" if judged < len(report.asked) else ""
    what = " what was not imported" if report.facts.origin == "import" else ""
    words += f", {blind} could not see{what}" if blind else ""
    shade = {Exit.FAILED: "red", Exit.BLIND: "yellow"}.get(Exit(report.exit_code), "green")
    yield from (where.paint(part, shade) for part in wrapped(words, where))
