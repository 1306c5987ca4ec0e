"""``marathonctl diff A B``: what two campaigns of a ledger differ in, and their results side by side.

Owns the reading of both from the ledger and the layout.  What differs and what that means is :mod:`marathond.core.unlike`; intervals and
tests are the report's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from marathond.cli.config_cmds import hidden
from marathond.cli.output import Column, Screen, flow, print_json, say, screen, table, wrapped
from marathond.core.contract import shown
from marathond.core.mounts import HELD
from marathond.core.text import clean, number, plural
from marathond.core.unlike import HASH, Change, Done, Means, Named, Side, Unlike, unlike
from marathond.ledger.verbs.mounts import readings
from marathond.ledger.verbs.stored import arms_of, campaign_by_name, tasks_of
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import campaign_id, reading
from marathond.service.treatment import Change as How
from marathond.service.treatment import change_of

VALUE_MAX = 200
SAID_ELSEWHERE = frozenset({"campaign.name", "campaign.tasks", "campaign.arms", "campaign.digests", "profile"})
"""Keys of the configuration whose effect stands among treatment, arms and tasks."""
VARIABLES = frozenset({"env", "verifier_env", "headers", "build_args", "runtime_proxy"})


def run(ledger: Path, a: str, b: str, *, as_json: bool) -> None:
    """:raises CallFailed: exit 2, one of the campaigns is not there, or they are one."""
    if a == b:
        raise CallFailed(f"diff: {clean(a)} twice; name two campaigns", Exit.USAGE)
    with reading(ledger) as c:
        found = without_secrets(unlike(side(c, a), side(c, b)))
    if as_json:
        print_json(found)
        return
    where = screen()
    for line in render(found, where):
        say(line)


_DONE = """
SELECT task.name AS task, arm.name AS arm, replicate, reward, partial, test_rate FROM cell_state AS s
    JOIN task ON task.task_id = s.task_id JOIN arm ON arm.arm_id = s.arm_id
WHERE s.campaign_id = ? AND state = 'done' ORDER BY ordinal"""


def side(c: sqlite3.Connection, name: str) -> Side:
    """One campaign as the ledger has it.

    :raises CallFailed: exit 2, there is none of that name.
    """
    campaign_id(c, name)
    row = campaign_by_name(c, name)
    assert row is not None
    config = {key: value for key, value in flat(row.config).items() if not _said_elsewhere(key)}
    stored = {
        "admission.order": row.order,
        "admission.seed": row.seed,
        "campaign.replicates": row.replicates,
        "daemon.out_dir": row.out_dir,
    }
    arms = {arm.name: {"kind": arm.kind, HASH: arm.treatment_hash, **arm.data} for arm in arms_of(c, row.campaign_id)}
    for each in arms.values():
        each.pop(HELD, None)  # told by what trials had
    tasks = {}
    for task in tasks_of(c, row.campaign_id):
        limit_s = None if task.declared_limit_ms is None else task.declared_limit_ms / 1000
        declared = {"limit_s": limit_s, "cpus": task.cpus, "memory_mb": task.memory_mb, "needs_network": task.needs_network}
        tasks[task.name] = {"digest": task.digest, **declared, "image": task.data.get("image")}
    return Side(
        name=name,
        treatment=row.treatment,
        arms=arms,
        tasks=tasks,
        operation={**config, **stored},
        cells=c.execute("SELECT count(*) FROM cell WHERE campaign_id = ?", (row.campaign_id,)).fetchone()[0],
        done=[Done(**dict(done)) for done in c.execute(_DONE, (row.campaign_id,)).fetchall()],
        mounted=readings(c, row.campaign_id),
    )


def _said_elsewhere(key: str) -> bool:
    """Treatment, or what stands among arms and tasks; also by the name of the whole of which it is a part."""
    parts = key.split(".")
    wholes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return any(whole in SAID_ELSEWHERE or change_of(whole) is How.TREATMENT for whole in wholes)


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def without_secrets(found: Unlike) -> Unlike:
    """What a screen must not show is hidden; a secret that differs is still told as different."""
    arms, tasks = (tuple(Named(one.name, _hidden(one.changes)) for one in named) for named in (found.arms, found.tasks))
    return replace(found, treatment=_hidden(found.treatment), arms=arms, tasks=tasks, operation=_hidden(found.operation))


def _hidden(changes: Sequence[Change]) -> tuple[Change, ...]:
    made = []
    for each in changes:
        path = each.where.split(".")
        # Only variables and headers are named by somebody else: a field of ours holds no secret, whatever its name.
        name = path[-1] if VARIABLES.intersection(path) else ""
        made.append(replace(each, a=hidden("", {name: each.a})[name], b=hidden("", {name: each.b})[name]))
    return tuple(made)


# ── layout ──


def render(found: Unlike, where: Screen) -> Iterator[str]:
    a, b = clean(found.a), clean(found.b)
    yield from flow([f"a: {a}, {found.done_a} of {found.cells_a} done", f"b: {b}, {found.done_b} of {found.cells_b} done"], where)
    for heading, lines in (
        ("treatment", list(_changes(found.treatment))),
        ("arms", [*_only(found.arms_only_a, "a"), *_only(found.arms_only_b, "b"), *_named(found.arms)]),
        ("tasks", [*_only(found.tasks_only_a, "a"), *_only(found.tasks_only_b, "b"), *_named(found.tasks)]),
        ("configuration beside the treatment", list(_changes(found.operation))),
    ):
        yield ""
        yield from wrapped(f"{heading}: {'' if lines else 'the same'}".rstrip(), where)
        for line in lines:
            yield from wrapped(line, where)
    yield ""
    yield from wrapped(f"results over {plural(found.common, 'cell')} that count{'s' if found.common == 1 else ''} in both", where)
    for warning in found.warnings:
        yield from wrapped(where.paint(f"WARNING {clean(warning)}", "yellow"), where)
    if found.common:
        yield from _means("arm", found.by_arm, where)
        yield ""
        yield from _means("task", [each for each in found.by_task if each.cells], where)
        yield from wrapped(f"means alone; intervals and tests: marathonctl report --campaign {a} --against {b}", where)


def _only(names: Sequence[str], side: str) -> Iterator[str]:
    if names:
        yield f"  only in {side}: {', '.join(map(clean, names))}"


def _named(found: Sequence[Named]) -> Iterator[str]:
    for each in found:
        for change in each.changes:
            yield f"  {clean(each.name)} {_words(change)}"


def _changes(found: Sequence[Change]) -> Iterator[str]:
    for each in found:
        yield f"  {_words(each)}"


def _words(change: Change) -> str:
    where = clean(change.where)
    if change.only is not None:
        return f"{where}: only {change.only} has it, {_value(change.a if change.only == 'a' else change.b)}"
    return f"{where}: {_value(change.a)} -> {_value(change.b)}"


def _value(value: Any) -> str:
    return "none" if value is None else clean(shown(value, VALUE_MAX), VALUE_MAX)


def _means(title: str, rows: Sequence[Means], where: Screen) -> list[str]:
    shown_rows, columns = [], [Column(title, least=8), Column("cells", right=True)]
    kept = [
        (key, name)
        for key, name in (("reward", "reward"), ("partial", "partial"), ("test_rate", "tests"))
        if any(getattr(row, f"{key}_{side}") is not None for row in rows for side in "ab")
    ]
    for _, name in kept:
        columns += [Column(f"{name} a", right=True), Column("b", right=True), Column("b - a", right=True)]
    for row in rows:
        cells = [clean(row.name) + ("" if row.like else " !"), str(row.cells)]
        for key, _ in kept:
            left, right = getattr(row, f"{key}_a"), getattr(row, f"{key}_b")
            by = "-" if left is None or right is None else f"{right - left:+.2f}"
            cells += [number(left), number(right), by]
        shown_rows.append(cells)
    return table(columns, shown_rows, where)
