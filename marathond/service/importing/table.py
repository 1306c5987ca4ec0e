"""A table of trials in CSV: one row, one trial.

Owns which column is what, and that a row is read whole or listed with its line and the reason: nothing is guessed.  Numbers are read by the
extractor's rules (core/payload): a boolean is none, ``.674`` is one.  Must not decide which trial counts: all of them do, in the order of
their starts.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import ConfigError, Refused
from marathond.core.money import NUSD
from marathond.core.payload import BOOLEANS, NUMBER, not_a_number, outside_unit
from marathond.core.score import EXTRACTOR
from marathond.core.text import printable
from marathond.ledger.verbs.imports import Details
from marathond.ledger.verbs.trials import Fact, ScoreRow
from marathond.service.importing.seen import AGENT_TIMEOUT, DEADLINE, NAME_MAX, Listed, Names, Reading, Seen, instant_ms

MAX_BYTES = 256 << 20
MAX_ROWS = 1_000_000
SUCCESS = "success"

FIELDS: Mapping[str, tuple[str, ...]] = {
    "task": ("task", "task_name"),
    "arm": ("arm",),
    "agent": ("agent", "harness"),
    "model": ("model",),
    "trial": ("trial", "trial_name", "trial_id"),
    "reward": ("reward",),
    "partial": ("partial", "partial_score"),
    "test_rate": ("test_rate", "pass_rate"),
    "tests_passed": ("tests_passed",),
    "tests_total": ("tests_total",),
    "tokens": ("tokens", "total_tokens"),
    "cost_usd": ("cost_usd", "cost"),
    "duration_s": ("duration_s", "duration"),
    "started_at": ("started_at", "startedat"),
    "status": ("status",),
    "turns": ("turns", "steps"),
}
"""What a column may be, and by which headers (in any case) it is known.  Every other column is kept beside the score."""
_UNIT = ("reward", "partial", "test_rate")


class _Unreadable(Exception):
    """A row that is listed; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class _Row:
    """``remarks``: what it says other than success, and what of it beside the score could not be read."""

    seen: Seen
    remarks: tuple[tuple[str, str], ...]


def read_table(path: Path, mapping: Sequence[str] = ()) -> Reading:
    """Every row of the file.

    :param mapping: ``COLUMN=FIELD`` each; a field of :data:`FIELDS`, or empty: the column is kept beside the score.
    :raises Refused: the file cannot be read, or is no table of trials.
    :raises ConfigError: the mapping names what is not there.
    """
    data = _bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: not UTF-8 at byte {error.start}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = _header(path, reader)
    columns = _columns(path, header, mapping)
    rows: list[_Row] = []
    listed: list[Listed] = []
    remarks: list[Listed] = []
    known: dict[str, int] = {}
    names = Names()
    for line, cells in _rows(path, reader, listed):
        where = f"{path.name}:{line}"
        try:
            if len(cells) != len(header):
                raise _Unreadable(f"{len(cells)} fields, the header has {len(header)}")
            row = _row(path, line, dict(zip(header, cells, strict=True)), columns, names)
        except _Unreadable as error:
            listed.append(Listed("unreadable_row", where, str(error)))
            continue
        if (first := known.setdefault(row.seen.key, line)) != line:
            listed.append(
                Listed("twice", where, f"the trial of line {first} again ({row.seen.key}): neither is chosen by its score, the first stays")
            )
            continue
        rows.append(row)
        remarks += [Listed(code, where, why) for code, why in row.remarks]
    seen = tuple(row.seen for row in rows)
    return Reading("csv", str(path), seen, tuple(listed), told=(_told(header, columns),), remarks=tuple(remarks))


def _bytes(path: Path) -> bytes:
    """:raises Refused: absent, no regular file, too large."""
    try:
        # Not blocking: a pipe in its place would be waited for without end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}: must be a CSV file of trials") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        os.close(descriptor)
        what = "must be a regular file: a CSV table of trials" if not stat.S_ISREG(status.st_mode) else f"more than {MAX_BYTES} bytes"
        raise Refused(f"{path}: {what}")
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _rows(path: Path, reader: Iterator[list[str]], listed: list[Listed]) -> Iterator[tuple[int, list[str]]]:
    """(line of the row's end, its fields).  What is no CSV ends the reading: where the next row begins is not known then."""
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            listed.append(Listed("no_csv", f"{path.name}:{_line(reader)}", f"{error}: nothing from here on was read"))
            return
        if cells is None:
            return
        if _line(reader) > MAX_ROWS:
            raise Refused(f"{path}: more than {MAX_ROWS} lines")
        if cells:
            yield _line(reader), cells


def _line(reader: Iterator[list[str]]) -> int:
    return int(getattr(reader, "line_num"))  # noqa: B009 - the csv module's reader has no public type


def _header(path: Path, reader: Iterator[list[str]]) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise Refused(f"{path}:1: {error}: must be a CSV table of trials") from None
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise Refused(f"{path}:1: the column {printable(twice, NAME_MAX)!r} appears twice")
    return header


def _columns(path: Path, header: Sequence[str], mapping: Sequence[str]) -> dict[str, str]:
    """Field → column."""
    found: dict[str, str] = {}
    spoken: set[str] = set()
    for entry in mapping:
        column, sign, name = entry.rpartition("=")
        if not sign or column not in header:
            shown = ", ".join(printable(each, 40) for each in header)
            raise ConfigError("", f"--map {entry}", f"must be COLUMN=FIELD with a column of {path.name}: {shown}")
        if name and name not in FIELDS:
            raise ConfigError("", f"--map {entry}", f"FIELD must be one of {', '.join(FIELDS)}, or empty")
        spoken.add(column)
        if name:
            found[name] = column
    for name, aliases in FIELDS.items():
        known = [each for each in header if each.lower() in aliases and each not in spoken]
        if name in found or not known:
            continue
        if len(known) > 1:
            shown = " and ".join(printable(each, 40) for each in known)
            raise Refused(f"{path}:1: {shown} could each be the {name}: say which with --map {printable(known[0], 40)}={name}")
        found[name] = known[0]
    missing = [name for name in ("task", "reward") if name not in found]
    if "arm" not in found and "agent" not in found:
        missing.append("arm (or agent and model)")
    if missing:
        raise Refused(
            f"{path}:1: no column for {', '.join(missing)}: expected a table of trials, a row each; --map COLUMN=FIELD names columns"
        )
    return found


def _told(header: Sequence[str], columns: Mapping[str, str]) -> str:
    beside = [name for name in header if name not in columns.values()]
    read = ", ".join(name if name == column else f"{name} from {column}" for name, column in columns.items())
    return f"columns: {read}" + (f"; kept beside the score: {', '.join(printable(name, 40) for name in beside)}" if beside else "")


def _cell(row: Mapping[str, str], columns: Mapping[str, str], name: str) -> str:
    return row[columns[name]].strip() if name in columns else ""


def _row(path: Path, line: int, row: Mapping[str, str], columns: Mapping[str, str], names: Names) -> _Row:
    """:raises _Unreadable: what the result is made of is missing, or not what its column holds."""
    remarks: list[tuple[str, str]] = []

    def cell(name: str) -> str:
        return _cell(row, columns, name)

    task = _name(names, cell("task"), "task")
    model = printable(cell("model"), NAME_MAX) or None
    arm = _name(names, cell("arm"), "arm") if "arm" in columns else _agent(names, cell("agent"), cell("model"))
    started_at_ms, why = _start(cell("started_at"))
    if why:
        remarks.append(("left_out", f"{columns['started_at']}: {why}: numbered after those whose start is known"))
    status = cell("status")
    score = _score(path, line, row, columns)
    if score is None and (not status or status.lower() == SUCCESS):
        raise _Unreadable(f"{columns['reward']}: empty, and the status does not say why")
    trial = printable(cell("trial"), NAME_MAX)
    beside: dict[str, float | None] = {}
    for name, read in (("duration_s", _number), ("cost_usd", _number), ("tokens", _whole), ("turns", _whole)):
        try:
            beside[name] = read(columns, name, cell(name))
        except _Unreadable as error:
            beside[name] = None
            remarks.append(("left_out", str(error)))
    duration_s, cost_usd, tokens, turns = beside["duration_s"], beside["cost_usd"], beside["tokens"], beside["turns"]
    if status and status.lower() != SUCCESS:
        remarks.append(
            ("status", f"{printable(status, NAME_MAX)}: {'no reward, so no result' if score is None else 'taken with its reward'}")
        )
    ended_by = None if not status or status.lower() == SUCCESS else DEADLINE if status == AGENT_TIMEOUT else printable(status, NAME_MAX)
    sha256 = hashlib.sha256(repr(sorted(row.items())).encode("utf-8", "surrogatepass")).hexdigest()
    # A row without a name is known again by all of it: several may begin in the same minute.
    key = "/".join((task, arm, trial or f"{started_at_ms} {sha256[:12]}"))
    seen = Seen(
        key=key,
        place=f"{path.name}:{line}",
        task=task,
        arm=arm,
        order=trial or f"{line:09d}",
        sha256=sha256,
        score=score,
        why="" if score is not None else f"no reward; status {printable(status, NAME_MAX)}",
        details=Details(
            model=model,
            started_at_ms=started_at_ms,
            agent_ms=None if duration_s is None else round(duration_s * 1000),
            ended_by=ended_by,
            tokens=None if tokens is None else int(tokens),
            cost_nusd=None if cost_usd is None else round(cost_usd * NUSD),
            turns=None if turns is None else int(turns),
        ),
        facts=(Fact("read from", f"{path}:{line}", "import"), *((Fact("called there", trial, "import"),) if trial else ())),
    )
    return _Row(seen, tuple(remarks))


def _start(text: str) -> tuple[int | None, str]:
    """Milliseconds, and why there are none although something is written."""
    try:
        return instant_ms(text), ""
    except (ValueError, OverflowError) as error:
        return None, str(error)


def _name(names: Names, text: str, what: str) -> str:
    if not text:
        raise _Unreadable(f"{what}: empty")
    try:
        return names.plain(what, text)
    except ValueError as error:
        raise _Unreadable(str(error)) from None


def _agent(names: Names, agent: str, model: str) -> str:
    """An arm is an agent with its model."""
    return _name(names, agent, "agent") + (f" / {_name(names, model, 'model')}" if model else "")


def _score(path: Path, line: int, row: Mapping[str, str], columns: Mapping[str, str]) -> ScoreRow | None:
    """None: the reward's field is empty."""
    units: dict[str, float | None] = {}
    for name in _UNIT:
        value = units[name] = _number(columns, name, _cell(row, columns, name))
        if value is not None and (why := outside_unit(value)):
            raise _Unreadable(f"{columns[name]}: {why}")
    passed, total = (_whole(columns, name, _cell(row, columns, name)) for name in ("tests_passed", "tests_total"))
    if passed is not None and total is not None and passed > total:
        raise _Unreadable(f"{columns['tests_passed']}: {passed}, more than {columns['tests_total']} {total}")
    reward = units["reward"]
    if reward is None:
        return None
    rate = units["test_rate"]
    if rate is None and passed is not None and total:
        rate = passed / total
    where = f"{path.name}:{line}"
    beside = [column for column in row if column not in columns.values() and row[column].strip()]
    parts = [(name, repr(value), f"{where}:{columns[name]}") for name, value in units.items() if value is not None and name != "reward"]
    parts += [
        (printable(column, NAME_MAX), printable(row[column], NAME_MAX), f"{where}:{printable(column, NAME_MAX)}") for column in beside
    ]
    return ScoreRow(
        extractor=EXTRACTOR,
        reward=reward,
        reward_source=f"{where}:{columns['reward']}",
        partial=units["partial"],
        tests_passed=passed if total is not None else None,
        tests_total=total if passed is not None else None,
        parts=list({part[0]: part for part in parts}.values()),
        test_rate=rate,
    )


def _number(columns: Mapping[str, str], name: str, text: str) -> float | None:
    """None: the field is empty.  :raises _Unreadable: it holds no finite number of at least 0."""
    if not text:
        return None
    value: object = float(text) if NUMBER.fullmatch(text) else BOOLEANS.get(text.lower(), text)
    if why := not_a_number(value):
        raise _Unreadable(f"{columns[name]}: {why}")
    assert isinstance(value, float)
    if value < 0:
        raise _Unreadable(f"{columns[name]}: below 0: {value:g}")
    if value >= 2**63 / NUSD and name not in _UNIT and name != "tokens":
        raise _Unreadable(f"{columns[name]}: too large: {value:g}")
    return value


def _whole(columns: Mapping[str, str], name: str, text: str) -> int | None:
    value = _number(columns, name, text)
    if value is None:
        return None
    if value != int(value) or value >= 2**63:
        raise _Unreadable(f"{columns[name]}: no count: {value:g}")
    return int(value)
