"""``marathonctl import``: says what a source holds, what would be taken and what not, and takes it.

Owns the layout.  A dry run and a real one print the same, but for the last line.  Must not decide anything.
"""

from __future__ import annotations

import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import Column, Screen, print_json, say, screen, table, wrapped
from marathond.core.text import clean, plural
from marathond.service.exits import CallFailed, Exit
from marathond.service.importing.choose import CHANGED
from marathond.service.importing.run import Planned, Wanted, carry_out, plan
from marathond.service.importing.runs import HARBOR_JOB
from marathond.service.importing.seen import Difference, Listed
from marathond.service.importing.tree import TOO_MANY, UNREADABLE
from marathond.service.peers import user_name

SHOWN = 20
"""Rows of one kind on the screen; --json has all."""
KINDS = {"runs": "runs of the old scripts", "harbor": "Harbor jobs", "csv": "a table of trials"}
ALARMS = frozenset({CHANGED, HARBOR_JOB, TOO_MANY, UNREADABLE, "unreadable_row", "twice", "no_csv"})
"""Codes of what was refused that make the exit status 1."""


def wanted(
    folder: Path | None,
    csv: Path | None,
    *,
    name: str | None,
    columns: Sequence[str],
    owner: str | None,
    arm_by: str,
    replicates: int | None,
) -> Wanted:
    """:raises CallFailed: there is no such user."""
    source = folder if folder is not None else csv
    assert source is not None
    return Wanted(
        source.absolute(),
        csv=folder is None,
        name=name,
        mapping=tuple(columns),
        owner=None if owner is None else _uid(owner),
        arm_by=arm_by,
        replicates=replicates,
    )


def _uid(owner: str) -> int:
    if owner.isascii() and owner.isdigit():
        return int(owner)
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        raise CallFailed(f"import: --owner {clean(owner)}: no such user here; a number is taken as it is", Exit.USAGE) from None


def run(ledger: Path, wanted: Wanted, *, dry_run: bool, as_json: bool) -> int:
    """Carry out the plan, unless it is a dry run, and print it; the exit code."""
    planned = plan(ledger, wanted, user_name(os.geteuid()))
    if not dry_run:
        carry_out(ledger, planned)  # before the first word: whoever closes the pipe after a few lines has imported all the same
    if as_json:
        print_json(document(planned, dry_run=dry_run))
    else:
        where = screen()
        for line in (*lines(planned, where, dry_run=dry_run), last_line(planned, dry_run=dry_run)):
            say(line)
    return Exit.FAILED if any(each.code in ALARMS for each in planned.choice.listed) else Exit.OK


@dataclass(frozen=True, slots=True)
class TrialShown:
    """A trial that is taken over.

    :param key: its name in the source.
    :param counts: false: it becomes a void, for the reason that ``why`` tells.
    """

    key: str
    task: str
    arm: str
    replicate: int
    counts: bool
    reward: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a source holds, and what of it is taken.

    :param campaign: the name that it gets.
    :param kind: runs: of the old scripts; harbor: jobs; csv: a table.
    :param replicates: trials that count per task and arm.
    :param unchanged: trials that an earlier import took.
    :param trials: new ones.
    :param differences: trials that the old rule (completed, none errored) would have judged otherwise.
    :param listed: what is not taken, and why.
    :param remarks: of what is taken and worth a look.
    :param told: what the source says of itself.
    :param conditions: that its trials were driven with.
    """

    campaign: str
    kind: str
    source: str
    dry_run: bool
    replicates: int
    unchanged: int
    trials: list[TrialShown]
    differences: Sequence[Difference]
    listed: Sequence[Listed]
    remarks: Sequence[Listed]
    told: Sequence[str]
    conditions: Mapping[str, str]


def document(planned: Planned, *, dry_run: bool) -> Shown:
    """Everything, for a program."""
    reading, choice = planned.reading, planned.choice
    trials = [
        TrialShown(
            key=trial.key,
            task=cell.task,
            arm=cell.arm,
            replicate=cell.replicate,
            counts=trial.withdrawal is None,
            reward=None if trial.score is None else trial.score.reward,
            why="" if trial.withdrawal is None else trial.withdrawal.reason,
        )
        for cell, trial in choice.trials
    ]
    return Shown(
        campaign=planned.name,
        kind=reading.kind,
        source=reading.source,
        dry_run=dry_run,
        replicates=choice.replicates,
        unchanged=choice.unchanged,
        trials=trials,
        differences=reading.differences,
        listed=choice.listed,
        remarks=reading.remarks,
        told=reading.told,
        conditions=dict(reading.conditions),
    )


def lines(planned: Planned, where: Screen, *, dry_run: bool) -> Iterator[str]:
    """The plan, for a person."""
    reading, choice = planned.reading, planned.choice
    yield where.fit(
        f"{clean(reading.source)}: {KINDS[reading.kind]}, as campaign {clean(planned.name)}" + (" (dry run)" if dry_run else "")
    )
    for told in [*reading.told, *([_conditions(planned)] if reading.conditions else [])]:
        yield from wrapped(f"  {clean(told)}", where)
    counted = sum(trial.withdrawal is None for _, trial in choice.trials)
    new = len(choice.trials)
    known = f", {choice.unchanged} known already" if choice.unchanged else ""
    listed = f"; {len(choice.listed)} listed and not taken" if choice.listed else ""
    yield f"{plural(new, 'new trial')}: {counted} count, {new - counted} do not{known}{listed}" if new else f"nothing new{known}{listed}"
    grid = {(task, arm) for task, arm, _ in choice.grid}
    yield where.fit(
        f"cells {len(choice.grid)}: {plural(len({task for task, _ in grid}), 'task')} x {plural(len({arm for _, arm in grid}), 'arm')}"
        f", {plural(choice.replicates, 'replicate')}"
    )
    if new:
        yield ""
        yield from _arms(planned, where)
    yield from _withdrawn(planned, where)
    yield from _differences(planned, where)
    yield from _listed("taken, and worth a look:", reading.remarks, where)
    yield from _listed("listed, not taken:", choice.listed, where)
    yield ""


def _conditions(planned: Planned) -> str:
    return "driven with " + ", ".join(f"{key}={value}" for key, value in sorted(planned.reading.conditions.items()))


def last_line(planned: Planned, *, dry_run: bool) -> str:
    if not planned.choice.cells:
        return "nothing new: the ledger is as it was"
    if dry_run:
        return "dry run: nothing was written; without --dry-run it is"
    trials = plural(len(planned.choice.trials), "trial")
    return f"imported {trials} into campaign {clean(planned.name)}; next: marathonctl report --campaign {clean(planned.name)}"


def _arms(planned: Planned, where: Screen) -> Iterator[str]:
    """What is new, by arm.  No means: they are the report's, over cells that are valid in both arms."""
    new: Counter[str] = Counter()
    void: Counter[str] = Counter()
    solved: Counter[str] = Counter()
    for cell, trial in planned.choice.trials:
        new[cell.arm] += 1
        void[cell.arm] += trial.withdrawal is not None
        solved[cell.arm] += trial.withdrawal is None and trial.score is not None and trial.score.reward == 1
    columns = (Column("arm", least=12), *(Column(title, right=True) for title in ("new", "count", "reward 1", "void")))
    rows = [(clean(arm), str(new[arm]), str(new[arm] - void[arm]), str(solved[arm]), str(void[arm])) for arm in sorted(new)]
    return iter(table(columns, rows, where))


def _withdrawn(planned: Planned, where: Screen) -> Iterator[str]:
    rows = [(clean(trial.key), clean(trial.withdrawal.reason)) for _, trial in planned.choice.trials if trial.withdrawal is not None]
    columns = (Column("trial", least=24, wrap=True), Column("why", least=30, wrap=True))
    yield from _some("taken as voids (imported_void):", columns, rows, where)


def _differences(planned: Planned, where: Screen) -> Iterator[str]:
    rows = [(clean(each.place), clean(each.old), clean(each.new), clean(each.why)) for each in planned.reading.differences]
    columns = (Column("trial", least=24, wrap=True), Column("old", least=8, wrap=True), Column("now"), Column("why", least=24, wrap=True))
    yield from _some("judged otherwise than by the old rule (completed >= 1 and errored == 0):", columns, rows, where)


def _listed(title: str, listed: Sequence[Listed], where: Screen) -> Iterator[str]:
    """What has the same reason is one row, with where it was met first; of each code only the first few rows."""
    same: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in listed:
        same[each.code, each.why].append(clean(each.place))
    by_code: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for (code, why), places in same.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        by_code[code].append((code, f"{places[0]}{more}", clean(why)))
    rows = [row for some in by_code.values() for row in some[:SHOWN]]
    hidden = sum(max(0, len(some) - SHOWN) for some in by_code.values())
    columns = (Column("code"), Column("where", least=24, wrap=True), Column("why", least=30, wrap=True))
    yield from _some(title, columns, rows, where, hidden=hidden, most=len(rows))


def _some(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]], where: Screen, *, hidden: int = 0, most: int = SHOWN
) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield where.paint(where.fit(title), "bold")
    yield from table(columns, rows[:most], where, indent="  ")
    if hidden := hidden + len(rows[most:]):
        yield f"  and {hidden} more (--json has all)"
