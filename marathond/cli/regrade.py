"""``marathonctl regrade``: stored artifacts under the newest extractor, and what that changes.

Owns the choice of trials and the tables.  What is read and refused is :mod:`marathond.service.regrade`'s; beside a living daemon only a
dry run is possible, for one process alone writes a ledger.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.cli.output import Column, Screen, note, print_json, say, table, wrapped
from marathond.core.names import trial_label
from marathond.core.score import EXTRACTOR, Overrides
from marathond.core.text import clean, plural
from marathond.ledger.verbs import operator
from marathond.ledger.verbs import regrade as verbs
from marathond.service.exits import CallFailed, Exit
from marathond.service.offline import offline_writer
from marathond.service.picture.reader import campaign_id, check_trial, reading
from marathond.service.regrade import Outcome, Regraded, grade_again

WHAT = "marathonctl regrade"
NAMED_MAX = 20
"""Trials named under one heading; the count before them is complete."""


@dataclass(frozen=True, slots=True)
class Shown:
    """:param extractor: version of the extractor that read."""

    extractor: int
    dry_run: bool
    trials: list[Regraded]


def run(
    ledger: Path,
    where: Screen,
    *,
    trials: Sequence[int],
    campaign: str | None,
    task: str | None,
    rules: Mapping[str, Mapping[str, Overrides]],
    dry_run: bool,
    as_json: bool,
) -> int:
    """:param rules: campaign → task → rules, of the present configuration.
    :return: exit status: 0 nothing was refused, 1 something was.
    """
    if dry_run:
        with reading(ledger) as c:
            results = _read_again(c, trials, campaign, task, rules)
    else:
        with offline_writer(ledger, WHAT) as writer:
            results = writer.read(_read_again, trials, campaign, task, rules)
            rows = [(each.trial_id, each.row) for each in results if each.row is not None]
            if rows:
                writer.write(verbs.write_newer, rows, now_ms=time.time_ns() // 1_000_000)
    if as_json:
        print_json(Shown(EXTRACTOR, dry_run, results))
    else:
        _say(results, where, dry_run=dry_run)
    return Exit.FAILED if any(each.outcome is Outcome.REFUSED for each in results) else Exit.OK


def _read_again(
    c: sqlite3.Connection,
    trials: Sequence[int],
    campaign: str | None,
    task: str | None,
    rules: Mapping[str, Mapping[str, Overrides]],
) -> list[Regraded]:
    results = []
    for trial_id in _chosen(c, trials, campaign, task):
        trial = verbs.gradable(c, trial_id)
        results.append(grade_again(trial, rules.get(trial.campaign)))
    return results


def _chosen(c: sqlite3.Connection, trials: Sequence[int], campaign: str | None, task: str | None) -> list[int]:
    """:raises CallFailed: exit 2, there is no such trial, campaign or task."""
    if trials:
        for trial_id in trials:
            check_trial(c, trial_id)
        return sorted(set(trials))
    found = campaign_id(c, campaign)
    if found is None:
        raise CallFailed("no campaign in this ledger yet", Exit.USAGE)
    known = [str(row[0]) for row in c.execute("SELECT name FROM task WHERE campaign_id = ? ORDER BY task_id", (found[0],))]
    if task is not None and task not in known:
        raise CallFailed(f"no task {task} in campaign {found[1]}; there are: {', '.join(known[:12])}", Exit.USAGE)
    return operator.select_trials(c, campaign_id=found[0], task=task, states=("scored", "review"))


def _say(results: Sequence[Regraded], where: Screen, *, dry_run: bool) -> None:
    if not results:
        say("nothing to read again: no trial there was graded")
        return
    by = {outcome: [each for each in results if each.outcome is outcome] for outcome in Outcome}
    differs = by[Outcome.DIFFERS]
    if differs:
        rows = [
            (trial_label(each.trial_id) if first else "", change.column, clean(change.old), clean(change.new), clean(change.source))
            for each in differs
            for first, change in zip([True] + [False] * len(each.changes), each.changes, strict=False)
        ]
        columns = (
            Column("trial"),
            Column("column"),
            Column("old", least=6, wrap=True),
            Column("new", least=6, wrap=True),
            Column("from", least=12, wrap=True),
        )
        for line in table(columns, rows, where):
            say(line)
    _name(by[Outcome.READABLE], "readable now", where)
    _name(by[Outcome.KEPT], "kept as it is", where)
    _name(by[Outcome.REFUSED], "refused", where)
    wrote = "would differ, nothing was written" if dry_run else "differ, newer scores written; the older ones are kept"
    counts = [f"{len(by[Outcome.ALIKE])} alike", f"{len(differs)} {wrote if differs else 'differ'}"]
    for outcome, word in ((Outcome.READABLE, "readable now"), (Outcome.KEPT, "kept"), (Outcome.REFUSED, "refused")):
        counts += [f"{len(by[outcome])} {word}"] if by[outcome] else []
    for line in wrapped(f"{plural(len(results), 'trial')} read by extractor {EXTRACTOR}: {' · '.join(counts)}", where):
        say(line)
    for each in by[Outcome.READABLE][:NAMED_MAX]:
        note(f"decide: marathonctl review {trial_label(each.trial_id)}")


def _name(results: Sequence[Regraded], heading: str, where: Screen) -> None:
    for each in results[:NAMED_MAX]:
        for line in wrapped(f"{trial_label(each.trial_id)} {clean(each.task)} / {clean(each.arm)}: {heading}: {clean(each.why)}", where):
            say(line)
    if len(results) > NAMED_MAX:
        say(f"and {len(results) - NAMED_MAX} more: {heading} (--json names all)")
