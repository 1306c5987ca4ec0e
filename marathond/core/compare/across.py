"""Two campaigns as one: an arm of the one against an arm of the other, over the cells that both planned.

Owns how their arms are named and matched, and what a reader must be told of it.  Pure.  Must not compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from marathond.core.columns import Column
from marathond.core.errors import Refused
from marathond.core.results import ArmResult, CellResult, Contrast, Results

NAMED = 8
"""Tasks named in one note."""


@dataclass(frozen=True, slots=True)
class Merged:
    """``results``: the arms that are compared, named ``campaign/arm``, with their cells.  ``unlike``: names that are not the same task in
    both, by its digest: no cell of them is common."""

    results: Results
    contrasts: tuple[Contrast, ...]
    notes: tuple[str, ...]
    names: str
    unlike: frozenset[str]


def merged(results: Results, against: Results, pairs: Sequence[tuple[str, str]]) -> Merged:
    """:raises Refused: ``pairs`` names an arm that is not there, or one twice; or none are given and no name occurs in both."""
    first, second = _names(results, against)
    chosen = _pairs(results, against, pairs, first, second)
    arms_a, arms_b = list(dict.fromkeys(a for a, _ in chosen)), list(dict.fromkeys(b for _, b in chosen))
    tasks = tuple(task for task in results.tasks if task in set(against.tasks))
    whole = replace(
        results,
        campaign=f"{first} and {second}",
        replicates=max(results.replicates, against.replicates),
        arms=(*_arms(results, arms_a, first, 0), *_arms(against, arms_b, second, len(arms_a))),
        tasks=tuple(sorted({*results.tasks, *against.tasks})),
        cells=(*_cells(results, arms_a, first), *_cells(against, arms_b, second)),
        columns=_columns(results, against, first, second),
        contrasts=(),
        voids=(
            *(replace(void, arm=f"{first}/{void.arm}") for void in results.voids if void.arm in arms_a),
            *(replace(void, arm=f"{second}/{void.arm}") for void in against.voids if void.arm in arms_b),
        ),
    )
    contrasts = tuple(Contrast(f"{first}/{a}", f"{second}/{b}") for a, b in chosen)
    notes = tuple(_notes(results, against, chosen, tasks, first, second))
    return Merged(whole, contrasts, notes, f"{first} against {second}", frozenset(_unlike(results, against)))


def _names(results: Results, against: Results) -> tuple[str, str]:
    if results.campaign != against.campaign:
        return results.campaign, against.campaign
    return f"{results.campaign}@{results.ledger_id}", f"{against.campaign}@{against.ledger_id}"


def _pairs(results: Results, against: Results, pairs: Sequence[tuple[str, str]], first: str, second: str) -> list[tuple[str, str]]:
    names_a, names_b = [arm.name for arm in results.arms], [arm.name for arm in against.arms]
    if first == second:
        raise Refused(f"campaign {results.campaign} cannot be compared with itself")
    for number, (a, b) in enumerate(pairs):
        for name, known, campaign in ((a, names_a, first), (b, names_b, second)):
            if name not in known:
                raise Refused(f"no arm {name} in campaign {campaign}; there are: {', '.join(known)}")
        if (a, b) in pairs[:number]:
            raise Refused(f"{a} against {b} is named twice")
    chosen = list(pairs) or [(name, name) for name in names_a if name in names_b]
    if not chosen:
        raise Refused(f"no arm of {first} ({', '.join(names_a)}) has its name in {second} ({', '.join(names_b)}): name pairs of arms")
    return chosen


def _arms(results: Results, arms: Sequence[str], campaign: str, after: int) -> Iterator[ArmResult]:
    of = {arm.name: arm for arm in results.arms}
    for place, name in enumerate(arms, start=after + 1):
        yield replace(of[name], name=f"{campaign}/{name}", position=place)


def _cells(results: Results, arms: Sequence[str], campaign: str) -> Iterator[CellResult]:
    for cell in results.cells:
        if cell.arm in arms:
            yield replace(cell, arm=f"{campaign}/{cell.arm}")


def _columns(results: Results, against: Results, first: str, second: str) -> tuple[Column, ...]:
    """A column that only one of them has cannot be compared."""
    others, found = {column.name: column for column in against.columns}, []
    for column in results.columns:
        lacking = [(name, each) for name, each in ((first, column), (second, others.get(column.name))) if each is None or not each.exists]
        why = "; ".join(f"{name}: {each.why if each is not None else 'not known'}" for name, each in lacking)
        found.append(Column(column.name, not lacking, why or column.why))
    return tuple(found)


def _notes(
    results: Results, against: Results, pairs: Sequence[tuple[str, str]], common: Sequence[str], first: str, second: str
) -> Iterator[str]:
    of = f"{first} ({len(results.tasks)}) and {second} ({len(against.tasks)})"
    tasks = "1 task is" if len(common) == 1 else f"{len(common)} tasks are"
    yield f"{tasks} common to {of}; cells are matched by task and replicate"
    yield "the two did not run side by side: whatever changed between them (provider, host, images) is in the difference, too"
    if results.treatment_hash != against.treatment_hash:
        yield f"their treatments differ: {first} {_short(results.treatment_hash)}, {second} {_short(against.treatment_hash)}"
    hashes_a, hashes_b = ({arm.name: arm.treatment_hash for arm in each.arms} for each in (results, against))
    differ = [a if a == b else f"{a} and {b}" for a, b in pairs if hashes_a[a] != hashes_b[b]]
    if differ:
        yield f"these arms' own treatments differ: {', '.join(differ)}"
    digests_a, digests_b = results.task_digests, against.task_digests
    if unlike := _unlike(results, against):
        more = f" and {len(unlike) - NAMED} more" if len(unlike) > NAMED else ""
        yield f"not the same task in both, by its digest, and so not compared: {', '.join(unlike[:NAMED])}{more}"
    unknown = [task for task in common if not (digests_a.get(task) and digests_b.get(task))]
    if unknown:
        yield f"whether a task is the same in both is not known of {len(unknown)} of the {len(common)}: one of them keeps no digest of it"
    if results.ledger_id != against.ledger_id:
        yield f"they come from two ledgers, {results.ledger_id} and {against.ledger_id}"


def _unlike(results: Results, against: Results) -> list[str]:
    digests_a, digests_b = results.task_digests, against.task_digests
    return sorted(task for task in digests_a.keys() & digests_b.keys() if digests_a[task] != digests_b[task])


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
