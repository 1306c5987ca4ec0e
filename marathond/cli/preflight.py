"""``marathonctl preflight``: everything that one checks before paying, in one table.

Owns how rows are shown and the exit code; looking is :mod:`marathond.service.preflight`'s, judging :mod:`marathond.core.preflight`'s.
SIGTERM and a closed terminal end it as Ctrl-C does: what stands on the engine is removed first.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import anyio

from marathond.cli.output import note, print_json, say, screen
from marathond.core.errors import MarathonError
from marathond.core.preflight.rows import Row, State, conclusion
from marathond.core.text import clean, plural
from marathond.service.exits import CallFailed, Exit
from marathond.service.preflight.checks import preflight
from marathond.service.settings import Settings

TEXT_MAX = 1000
FOLD_FROM = 4
"""So many good rows of one code become one line: twenty images that are as they should be are no news."""
_STYLES = {State.OK: "green", State.WARN: "yellow", State.RED: "bold red", State.UNKNOWN: "magenta", State.NOT_NEEDED: "dim"}
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Shown:
    """:param conclusion: red: do not start; unknown: not everything could be seen; ok."""

    conclusion: State
    rows: list[Row]


def run(settings: Settings, environ: Mapping[str, str], *, send: bool, as_json: bool) -> int:
    """Look, print, conclude: 1 something is red, 4 something is unknown and nothing red, else 0.

    :raises ConfigError: as a submission would.  :raises CallFailed: ended by a signal.
    """
    if not as_json and sys.stderr.isatty():
        note("looking; this takes up to some minutes where there are many images …")
    rows = anyio.run(_looked, settings, environ, send)
    if as_json:
        print_json(Shown(conclusion(rows), rows))
    else:
        show(rows)
    return exit_code(rows)


def exit_code(rows: Sequence[Row]) -> int:
    return {State.RED: Exit.FAILED, State.UNKNOWN: Exit.BLIND}.get(conclusion(rows), Exit.OK)


async def _looked(settings: Settings, environ: Mapping[str, str], send: bool) -> list[Row]:
    rows: list[Row] = []
    ended_by: list[signal.Signals] = []
    refused: list[MarathonError] = []
    async with anyio.create_task_group() as group:

        async def mind_signals() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
                async for number in signals:
                    ended_by.append(number)
                    group.cancel_scope.cancel()

        group.start_soon(mind_signals)
        try:
            rows += await preflight(settings, environ, send=send)
        except MarathonError as error:  # past the group, which would wrap it
            refused.append(error)
        group.cancel_scope.cancel()
    if refused:
        raise refused[0]
    if ended_by:
        raise CallFailed(f"preflight: ended by {ended_by[0].name}; what it had made is removed", _SIGNALLED + ended_by[0])
    return rows


def folded(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows of one code in a row that are good, alike and many, as one."""
    for (_, state), group in groupby(rows, key=lambda row: (row.code, row.state)):
        same = list(group)
        if state is not State.OK or len(same) < FOLD_FROM:
            yield from same
            continue
        counts: dict[str, int] = {}
        for row in same:
            counts[row.seen] = counts.get(row.seen, 0) + 1
        yield Row(same[0].code, state, ", ".join(f"{seen} ({times})" for seen, times in counts.items()), "", plural(len(same), "row"))


def show(rows: Sequence[Row]) -> None:
    """The table; on a terminal as wide as that, elsewhere one line a row."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    where = screen()
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("state", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for row in folded(rows):
        seen = Text(f"{clean(row.subject, 200)}: " if row.subject and not row.seen.startswith(row.subject) else "")
        seen.append(clean(row.seen, TEXT_MAX))
        if row.todo:
            seen.append(f"{' ' if where.width is None else chr(10)}→ {clean(row.todo, TEXT_MAX)}", style="italic")
        table.add_row(Text(row.state.value, style=_STYLES[row.state]), row.code, seen)
    width = where.width or 20 * TEXT_MAX
    console = Console(width=width, no_color=not where.colour, highlight=False, soft_wrap=where.width is None)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        say(line.rstrip())
    say(summary(rows))


def summary(rows: Sequence[Row]) -> str:
    """``2 red, 1 unknown, 3 warn, 17 ok: not ready``."""
    counts = ", ".join(
        f"{sum(row.state is state for row in rows)} {state.value}" for state in _BY_WEIGHT if any(r.state is state for r in rows)
    )
    words = {State.RED: "not ready", State.UNKNOWN: "not everything could be seen"}.get(conclusion(rows), "ready")
    return f"{counts}: {words}"


_BY_WEIGHT = (State.RED, State.UNKNOWN, State.WARN, State.OK, State.NOT_NEEDED)
