"""``marathonctl report``: from the ledger to text, HTML, JSON and CSV.

Owns the outputs (which there are, that each file is whole or not there) and the exit code.  What a report says lies in
:mod:`marathond.report`; imported by nothing else, for it brings numpy and jinja2 along.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import Column, Screen, note, print_json, say, screen, table
from marathond.cli.report_text import render
from marathond.core.errors import LedgerRefused, Refused
from marathond.core.results import Results
from marathond.core.text import clean
from marathond.ledger.verbs.results import read_results
from marathond.report.document import Report, document, make
from marathond.report.gate import refusal
from marathond.report.page import page
from marathond.report.tables import COLUMNS, to_csv, to_json
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import reading

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which outputs: each a path, ``-`` for stdout, None: not asked for.  None of them: text."""

    html: str | None = None
    as_json: str | None = None
    as_csv: str | None = None
    page: bool = False

    def check(self) -> None:
        """:raises CallFailed: exit 2, these do not go together."""
        targets = [each for each in (self.html, self.as_json, self.as_csv) if each is not None]
        if targets.count(STDOUT) > 1:
            raise CallFailed("report: only one output can go to stdout (-)", Exit.USAGE)
        if any(not each for each in targets):
            raise CallFailed("report: an output needs a file name, or - for stdout", Exit.USAGE)
        files = [str(Path(each).absolute()) for each in targets if each != STDOUT]
        if len(set(files)) < len(files):
            raise CallFailed("report: two outputs name the same file", Exit.USAGE)
        if self.page and self.html is None and targets:
            raise CallFailed("report: --page is text or --html; JSON and CSV have no pages", Exit.USAGE)


def run(
    ledger: Path,
    campaign: str | None,
    against: str | None,
    wanted: Wanted,
    pairs: Sequence[tuple[str, str]] = (),
    chosen: Sequence[str] = (),
    *,
    anyway: bool = False,
) -> int:
    """Write every output that is wanted.  1: arms are not ranked, because a stop-loss finding is open.

    :param chosen: ``A,B`` each: arms to compare instead of what is declared.
    :raises CallFailed: no such campaign; outputs that do not go together; a file that cannot be written.
    :raises LedgerRefused: the ledger is not to be read.
    """
    wanted.check()
    report = gather(ledger, campaign, against, pairs, chosen, anyway=anyway)
    shown = page(report) if wanted.page else document(report)
    if wanted.html is not None:
        from marathond.report.html import render as as_html

        write(wanted.html, as_html(shown))
    if wanted.as_json is not None:
        write(wanted.as_json, to_json(report))
    if wanted.as_csv is not None:
        write(wanted.as_csv, to_csv(report))
    if wanted.html is None and wanted.as_json is None and wanted.as_csv is None:
        for line in render(shown, screen()):
            say(line)
    if report.refusal is None:
        return Exit.OK
    note(f"marathonctl: {report.refusal.words()}")
    return Exit.FAILED if report.withheld else Exit.OK


def gather(
    ledger: Path,
    campaign: str | None,
    against: str | None,
    pairs: Sequence[tuple[str, str]] = (),
    chosen: Sequence[str] = (),
    *,
    anyway: bool = False,
) -> Report:
    """Everything from one read transaction; numbers that are withheld are not even computed.

    :raises CallFailed: exit 2, no such campaign, or two that cannot be compared, or ``chosen`` names what is not there.
    """
    try:
        with reading(ledger) as connection:
            results = read_results(connection, campaign)
            other = None if against is None else read_results(connection, against)
        names = [arm.name for arm in results.arms]
        return _compared(results, other, pairs or [two_arms(text, names, results.campaign) for text in chosen], anyway=anyway)
    except LedgerRefused:
        raise
    except Refused as error:
        raise CallFailed(f"report: {error}", Exit.USAGE) from error


def arm_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """``plain=goal``: an arm of the one campaign and one of the other.

    :raises CallFailed: exit 2.
    """
    pairs = []
    for text in texts:
        first, sign, second = text.partition("=")
        if not (first and sign and second):
            raise CallFailed(f"report: --pair {text!r}: must be two arms, such as plain=goal", Exit.USAGE)
        pairs.append((first, second))
    return pairs


def two_arms(text: str, names: Sequence[str], campaign: str) -> tuple[str, str]:
    """``A,B``: two arms of ``names``, whose own names may hold commas; blanks around them do not count.

    :raises CallFailed: exit 2, it is not two of them, or could be read in two ways.
    """
    parts = text.split(",")
    cuts = [(",".join(parts[:at]), ",".join(parts[at:])) for at in range(1, len(parts))]
    found = {pair for a, b in cuts for pair in [(_arm(a, names), _arm(b, names))] if None not in pair}
    if len(found) == 1:
        a, b = found.pop()
        assert a is not None and b is not None
        return a, b
    if found:
        raise CallFailed(f"report: --contrast {clean(text)}: can be read as two arms in more than one way", Exit.USAGE)
    known = ", ".join(map(clean, names))
    raise CallFailed(
        f"report: --contrast {clean(text)}: must be two arms with a comma between, A,B; arms of campaign {clean(campaign)}: {known}",
        Exit.USAGE,
    )


def _arm(text: str, names: Sequence[str]) -> str | None:
    return next((each for each in (text, text.strip()) if each in names), None)


def _compared(results: Results, other: Results | None, pairs: Sequence[tuple[str, str]], *, anyway: bool) -> Report:
    found = refusal((results,) if other is None else (results, other), anyway=anyway)
    if found is not None and found.withheld:
        return make(results, None, other, anyway=anyway)
    from marathond.core.compare import compare

    return make(results, compare(results, other, pairs=pairs), other, anyway=anyway)


def show_columns(where: Screen, *, as_json: bool = False) -> None:
    """What each column of the CSV means."""
    if as_json:
        print_json(COLUMNS)
        return
    for line in table((Column("column"), Column("meaning", least=20, wrap=True)), list(COLUMNS.items()), where):
        say(line)


def write(target: str, text: str) -> None:
    """To stdout, or to a file that is replaced whole.  A device or a pipe is written straight.

    :raises CallFailed: it cannot be written; an older file is then as it was.
    """
    data = text.encode("utf-8", errors="replace")
    if target == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(target))
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                raise CallFailed(f"{target}: is a folder; name the file to make", Exit.USAGE)
            path.write_bytes(data)
            return
        _replace(path, data)
    except OSError as error:
        raise CallFailed(f"{target}: {(error.strerror or str(error)).lower()}") from error
    note(f"wrote {target} ({len(data)} bytes)")


def _replace(path: Path, data: bytes) -> None:
    """A name aside of its own, so that two reports to one file never mix; whoever renames last wins, whole."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()


def _umask() -> int:
    """Of this process; Linux tells it without changing it (proc(5))."""
    return next((int(line.split()[1], 8) for line in _status() if line.startswith("Umask:")), 0o022)


def _status() -> Iterator[str]:
    with Path("/proc/self/status").open() as file:
        yield from file
