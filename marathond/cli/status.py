"""``marathonctl status``: the first screen.

Is it running, is it fair, what is it waiting for, when will it be done, what must I do.  Owns the layout, the JSON and the fast way in:
100,000 trials and the start of the interpreter in under 300 ms, so nothing here may import typer, rich, pydantic, anyio or aiosqlite.
What is healthy, and which exit status that is: see :mod:`marathond.service.picture.status`.  Parked cells and open reviews make nothing
unhealthy; they stand in the first two lines, with a line per cause below.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from marathond.cli.locate import locate, with_ledger
from marathond.cli.output import Column, Screen, flat, flow, print_json, print_json_line, say, screen, table, told
from marathond.core.errors import LedgerRefused
from marathond.core.names import trial_label
from marathond.core.paths import DaemonPaths
from marathond.core.text import UNKNOWN, clean, clock, number, of_known, plural, span
from marathond.service.exits import Exit
from marathond.service.picture.money_words import money_parts, provider_parts, short_count
from marathond.service.picture.reader import reading
from marathond.service.picture.status import ALARMS, Status, gather
from marathond.service.picture.words import (
    deadline_words,
    disk_words,
    eta_words,
    findings_words,
    note_words,
    park_words,
    pool_words,
    reviews_words,
    set_words,
    waiting_words,
)

WATCH_S = 2.0

PARKS_SHOWN = 4
"""Codes of parks with a line of their own."""

DETAIL_MAX = 200

_MEANS = (("partial", "partial"), ("test_rate", "tests"))
"""Columns that a benchmark may not have, and their heads."""

ROOMY = 100
"""Columns from which on nothing is abbreviated, and beyond which a line of the head goes on below."""

_SHADES = {"healthy": "green", "degraded": "red", "down": "red", "unknown": "yellow"}


Table = tuple[list[Column], list[list[str]], list[str]]
"""Columns, rows, and why something is missing."""


@dataclass(frozen=True, slots=True)
class Options:
    config: Path | None = None
    campaign: str | None = None
    as_json: bool = False
    watch: bool = False
    debug: bool = False


def parse(argv: Sequence[str]) -> Options | None:
    """Options when ``argv`` is a plain ``status`` command; None when typer must look at it (help, errors, other commands)."""
    values: dict[str, str] = {}
    flags: set[str] = set()
    command, rest = False, list(argv)
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if name in ("--config", "-c", "--campaign"):
            if not sign and not rest:
                return None
            key = "--config" if name == "-c" else name
            if key == "--campaign" and not command:
                return None
            values[key] = value if sign else rest.pop(0)
        elif (word in ("--json", "--watch", "-w") and command) or word == "--debug":
            flags.add(word)
        elif word == "status" and not command:
            command = True
        else:
            return None
    if not command:
        return None
    config = values.get("--config")
    watch = bool(flags & {"--watch", "-w"})
    return Options(Path(config) if config else None, values.get("--campaign"), "--json" in flags, watch, "--debug" in flags)


def run(options: Options) -> int:
    """Print once, or again and again until interrupted; the exit code of the last look.

    :raises MarathonError: the configuration or the ledger cannot be read.
    """
    located = with_ledger(locate(options.config))
    code = int(Exit.OK)
    try:
        while True:
            code = _once(options, located.paths)
            if not options.watch:
                return code
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return code


def _once(options: Options, paths: DaemonPaths) -> int:
    with reading(paths.ledger) as connection:
        now_ms, gateway = time.time_ns() // 1_000_000, paths.state_dir / "gateway"
        status = gather(connection, options.campaign, paths.control_socket, now_ms, gateway)
    if options.as_json:
        (print_json_line if options.watch else print_json)(as_json(status))
        return status.exit_code
    where = screen()
    lines = render(status, where)
    if options.watch and where.width is not None:
        sys.stdout.write("\x1b[H\x1b[2J")
        lines = _upper_part(lines)
    for line in lines:
        say(line)
    sys.stdout.flush()
    return status.exit_code


def _upper_part(lines: list[str]) -> list[str]:
    """What fits on the terminal without scrolling its first line away."""
    room = os.get_terminal_size(sys.stdout.fileno()).lines - 1
    return lines if len(lines) <= room else [*lines[: room - 1], f"… {len(lines) - room + 1} more lines"]


def exit_code_of_refusal(error: LedgerRefused) -> int:
    """A ledger that cannot be read is a check that cannot see."""
    return Exit.BUSY if error.code == "busy" else Exit.BLIND


@dataclass(frozen=True, slots=True)
class Verdict:
    """:param exit: the command's exit status, which follows from the health."""

    health: Literal["healthy", "degraded", "down", "unknown"]
    exit: int


def as_json(status: Status) -> dict[str, Any]:
    """Every fact; null where it is unknown."""
    return flat(Verdict(status.health, int(status.exit_code)), status)


def render(status: Status, where: Screen) -> list[str]:
    """The screen, line by line."""
    if status.readings:
        return [*_imported(status, where), *(["", *_arms(status, where)] if status.arms else [])]
    lines = head(status, where)
    if status.arms:
        lines += ["", *_arms(status, where)]
    if status.live:
        lines += ["", *_live(status, where)]
    waiting = waiting_words(status)
    return [*lines, *([""] if waiting and not status.live else []), *_told(waiting, where)]


def _told(lines: Iterable[str], where: Screen, style: str = "") -> list[str]:
    parts = [part for line in lines for part in told(line, where)]
    return [where.paint(part, style) for part in parts] if style else parts


def head(status: Status, where: Screen) -> list[str]:
    """Everything above the tables."""
    if status.readings:
        return _imported(status, where)
    lines = [*_head(status, where), *_cells(status, where), *_undecided(status, where), *flow(_resources(status), where, most=ROOMY)]
    return [*lines, *(flow(money_parts(status.money), where) if status.money else []), *flow(provider_parts(status.provider), where)]


def _imported(status: Status, where: Screen) -> list[str]:
    """Nothing runs in an imported campaign: where it was read from, instead of what a daemon would say.

    A cell without a result is missing, not open.
    """
    cells = status.cells
    counts = [f"{cells.done} done", f"{cells.open} missing", *([f"{cells.review} review"] if cells.review else [])]
    lines = [where.fit(f"{where.paint(f'campaign {clean(status.campaign)}', 'bold')}  imported: nothing runs in it")]
    for row in status.readings:
        listed = f", {row.refused} listed and not taken" if row.refused else ""
        words = f"{plural(row.trials, 'trial')}{row.broken_off} from {clean(row.source)} ({clean(row.kind)})"
        lines.append(where.fit(f"  {words} by {clean(row.author)} at {clock(row.at_ms, status.now_ms)}{listed}"))
    review = told(f"  {reviews_words(status)}", where) if cells.review else []
    return [*lines, where.fit(f"cells {cells.total}: {' · '.join(counts)}"), *review]


def _head(status: Status, where: Screen) -> list[str]:
    life, run = status.life, status.life.run
    campaign = f"campaign {clean(status.campaign)}" if status.campaign else "no campaign yet"
    health = where.paint(status.health, _SHADES[status.health])
    words = ((status.cells.parked, "parked"), (status.cells.review, "in review"))
    findings = "".join(f" · {where.paint(f'{count} {word}', 'yellow')}" for count, word in words if count)
    findings += f" · {findings_words(status)}" if status.findings else ""
    if status.findings_elsewhere:
        findings += f" · {plural(status.findings_elsewhere, 'finding')} of other campaigns: marathonctl findings"
    if life.alive is False:
        seen = f"last seen {clock(run.seen_at_ms, status.now_ms)}, " if run else ""
        as_of = f"ledger as of {clock(run.seen_at_ms, status.now_ms)}" if run else ""
        first = f"marathond is not running ({seen}{clean(life.why)}){';' if as_of else ''}"
        lines = [*flow([where.paint(part, "bold") for part in (first, as_of)], where, gap=" "), *told(f"{campaign}{findings}", where)]
    elif life.alive is None or run is None:
        lines = flow([f"marathond {UNKNOWN}: {clean(life.why)}", campaign, f"{health}{findings}"], where)
    else:
        up = f"pid {run.pid} up {span(status.now_ms - run.started_at_ms)}" + ("" if run.ready_at_ms else ", recovering")
        lines = flow([f"{where.paint(f'marathond {clean(run.version)}', 'bold')}  {up}", campaign, f"{health}{findings}"], where)
    lines += _told((f"  {line}" for line in map(clean, status.degraded)), where)
    # Why it is unknown whether the daemon works stands in the first line; its word may be a second old.
    silent = [each for each in status.unseen if each != "daemon" or not life.why]
    if silent and life.alive is not False:
        lines.append(where.fit(f"  {UNKNOWN}: {', '.join(silent)} (nothing from this daemon within the last minute)"))
    return lines


def _undecided(status: Status, where: Screen) -> list[str]:
    """Why cells are parked, a line per code, and what waits for a person, findings that are no alarm included."""
    lines = [park_words(parks) for parks in status.parks[:PARKS_SHOWN]]
    if len(status.parks) > PARKS_SHOWN:
        left = sum(parks.cells for parks in status.parks[PARKS_SHOWN:])
        query = "select task, arm, park_code, park_detail from v_cell where state = 'parked'"
        lines.append(f'and {len(status.parks) - PARKS_SHOWN} more ({plural(left, "cell")}): marathonctl sql "{query}"')
    if status.cells.review:
        lines.append(reviews_words(status))
    # Alarms stand above, each with its words; of the rest the codes are enough to know whether to look.
    quiet = Counter(row.code for row in status.findings if row.severity not in ALARMS and row.acked_at_ms is None)
    if quiet:
        lines.append(f"{', '.join(f'{count} {clean(code)}' for code, count in quiet.most_common())}: marathonctl findings")
    return _told((f"  {line}" for line in lines), where)


def _cells(status: Status, where: Screen) -> list[str]:
    cells = status.cells
    parts = [f"{cells.done} done", f"{cells.claimed} running", f"{cells.open} open"]
    parts += [f"{count} {word}" for count, word in ((cells.parked, "parked"), (cells.review, "review")) if count]
    line = flow([f"cells {cells.total}: {' · '.join(parts)}", eta_words(status.eta, status)], where)
    stops = [f"{stop.kind} by {clean(stop.author)} at {clock(stop.at_ms, status.now_ms)}: {clean(stop.detail)}" for stop in status.stops]
    turned = [set_words(knob, status.now_ms) for knob in status.set_by_hand]
    return [*line, *_told((*stops, *turned), where, "yellow")]


def _resources(status: Status) -> list[str]:
    pools = [pool_words(pool.engine if len(status.pools) > 1 else "", pool) for pool in status.pools]
    ledger = f"ledger {clean(status.ledger)}" if status.ledger else ""
    return [f"networks {' · '.join(pools) if pools else UNKNOWN}", f"disk {disk_words(status.disk)}", ledger]


def _arms(status: Status, where: Screen) -> list[str]:
    """A narrow terminal goes without the arms' own parked and review: the line above has their sums."""
    columns, rows, why = arm_table(status, roomy=where.width is None or where.width >= ROOMY)
    return [*table(columns, rows, where), *(where.fit(where.paint(f"({line})", "dim")) for line in why)]


def arm_table(status: Status, *, roomy: bool) -> Table:
    """A column that the campaign does not have is left out, with the reason, rather than shown as zeros (fault d11)."""
    arms, absent = status.arms, {column.name: column.why for column in status.columns if not column.exists}
    done = sum(arm.done for arm in arms)
    shown: list[tuple[Column, Any, bool]] = [
        (Column("arm", least=8), lambda a: clean(a.arm), True),
        (Column("done", right=True), lambda a: str(a.done), True),
        (Column("reward"), lambda a: "-" if a.reward is None else f"{a.reward:.2f} ({a.passed}/{a.done})", True),
        (Column("partial", right=True), lambda a: of_known(number(a.partial), a.partial_cells, a.done), "partial" not in absent),
        (Column("tests", right=True), lambda a: of_known(number(a.test_rate), a.test_rate_cells, a.done), "test_rate" not in absent),
        (
            Column("budget-ended" if roomy else "budget", right=True),
            lambda a: "-" if a.budget_ended is None else f"{a.budget_ended:.0%}".replace("%", " %"),
            not status.readings,
        ),
        (Column("voids", right=True), lambda a: str(a.voids), True),
        (Column("running", right=True), lambda a: str(a.claimed), not status.readings),
        (Column("missing" if status.readings else "open", right=True), lambda a: str(a.open), True),
        (Column("parked", right=True), lambda a: str(a.parked), roomy and any(arm.parked for arm in arms)),
        (Column("review", right=True), lambda a: str(a.review), roomy and any(arm.review for arm in arms)),
    ]
    kept = [(column, text) for column, text, keep in shown if keep]
    words = [f"no {title}: {clean(absent[name], DETAIL_MAX)}" for name, title in _MEANS if name in absent]
    return [column for column, _ in kept], [[text(arm) for _, text in kept] for arm in arms], words if done else []


def _live(status: Status, where: Screen) -> list[str]:
    columns, rows, _ = live_table(status)
    return table(columns, rows, where)


def live_table(status: Status) -> Table:
    """A row per trial in work."""
    columns = (Column("trial"), Column("task", least=12), Column("arm", least=8), Column("phase"))
    asks = any(arm.asks_model for arm in status.arms) or any(trial.tokens is not None for trial in status.live)
    tokens = (Column("tokens", right=True),) if asks else ()
    columns_right = (Column("elapsed", right=True), Column("deadline", right=True), *tokens, Column("note"))
    rows = [
        [
            trial_label(trial.trial_id),
            clean(trial.task),
            clean(trial.arm),
            trial.phase,
            span(status.now_ms - trial.phase_at_ms),
            deadline_words(trial, status.now_ms),
            *((short_count(trial.tokens),) if asks else ()),
            note_words(trial),
        ]
        for trial in status.live
    ]
    return [*columns, *columns_right], rows, []
