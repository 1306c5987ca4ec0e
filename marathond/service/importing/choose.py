"""Which trial counts: the first valid one of each cell by its start, whatever its score (fault a09).

Owns how trials become cells, and what a second reading of a source may add.  Pure: must not look at a reward.  A cell that is decided stays
decided: what comes later is listed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from marathond.ledger.verbs.imports import ImportedCell, ImportedTrial, Known, Withdrawal
from marathond.service.importing.seen import Listed, Reading, Seen

STANDING = frozenset({"scored", "review"})
CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Choice:
    """``cells``: with what is new, in the order in which they are written; ``grid``: all places (task, arm, replicate) there should be.

    ``listed``: what was not taken, the source's own list first.  ``unchanged``: trials that an earlier reading brought.
    """

    cells: tuple[ImportedCell, ...]
    grid: tuple[tuple[str, str, int], ...]
    listed: tuple[Listed, ...]
    unchanged: int
    replicates: int

    @property
    def trials(self) -> tuple[tuple[ImportedCell, ImportedTrial], ...]:
        return tuple((cell, trial) for cell in self.cells for trial in cell.trials)

    @property
    def changed(self) -> tuple[Listed, ...]:
        return tuple(each for each in self.listed if each.code == CHANGED)


@dataclass(slots=True)
class _Work:
    """Cells of one (task, arm) while they are filled."""

    known: Mapping[int, bool]
    cells: dict[int, list[ImportedTrial]] = field(default_factory=lambda: defaultdict(list))
    standing: dict[int, ImportedTrial] = field(default_factory=dict)

    def decided(self, replicate: int) -> bool:
        return replicate in self.standing or self.known.get(replicate, False)


def choose(reading: Reading, known: Mapping[str, Known], *, replicates: int | None = None) -> Choice:
    """:param known: what the campaign holds already, by key.
    :param replicates: how many trials count per task and arm; None: as the source says.
    """
    listed: list[Listed] = list(reading.listed)
    fresh: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    unchanged, met = 0, set[str]()
    for seen in reading.trials:
        if seen.key in met:
            listed.append(Listed("twice", seen.place, f"{seen.key} was met before: the same trial lies in two places"))
            continue
        met.add(seen.key)
        if (old := known.get(seen.key)) is None:
            fresh[seen.task, seen.arm].append(seen)
        elif (problem := _change(seen, old)) is not None:
            listed.append(problem)
        else:
            unchanged += 1
    limit = reading.replicates if replicates is None else replicates
    counted = Counter((seen.task, seen.arm) for seen in reading.trials)
    width = limit or (Counter(counted.values()).most_common(1)[0][0] if counted else 0)
    cells: list[ImportedCell] = []
    for (task, arm), seens in fresh.items():
        cells += _cells(task, arm, sorted(seens, key=_start), _decided(known, task, arm), limit, listed)
    grid = _grid(counted, known, width, cells)
    at = {place: number for number, place in enumerate(grid)}
    cells.sort(key=lambda cell: at[cell.task, cell.arm, cell.replicate])
    return Choice(tuple(cells), grid, tuple(listed), unchanged, width)


def _start(seen: Seen) -> tuple[bool, int, str]:
    """One without a start comes last: nobody can say that it was the first."""
    at_ms = seen.details.started_at_ms
    return at_ms is None, at_ms or 0, seen.order


def _change(seen: Seen, old: Known) -> Listed | None:
    label = f"t{old.trial_id:04d}"
    if seen.sha256 != old.sha256:
        why = (
            f"its files are not what they were when {label} was read from them: nothing was taken; another --name imports them as they are"
        )
        return Listed(CHANGED, seen.place, why)
    if seen.withdrawn and old.state in STANDING:
        why = f'withdrawn there since it was imported, and {label} still counts here: marathonctl void {label} --reason "…" ({seen.why})'
        return Listed(CHANGED, seen.place, why)
    return None


def _decided(known: Mapping[str, Known], task: str, arm: str) -> dict[int, bool]:
    """Replicate → whether a trial stands there already."""
    found: dict[int, bool] = {}
    for old in known.values():
        if (old.task, old.arm) == (task, arm):
            found[old.replicate] = found.get(old.replicate, False) or old.state in STANDING
    return found


def _cells(
    task: str, arm: str, seens: Sequence[Seen], known: Mapping[int, bool], limit: int | None, listed: list[Listed]
) -> list[ImportedCell]:
    """Of trials in the order of their starts."""
    work = _Work(known)
    if limit is None:
        first = max(known, default=0) + 1
        for replicate, seen in enumerate(seens, start=first):
            _put(work, replicate, seen)
    else:
        for seen in seens:
            _place(work, seen, limit, listed)
    found = {*work.cells, *work.standing}
    return [
        ImportedCell(task, arm, n, (*work.cells.get(n, ()), *([work.standing[n]] if n in work.standing else []))) for n in sorted(found)
    ]


def _put(work: _Work, replicate: int, seen: Seen) -> None:
    if seen.valid:
        work.standing[replicate] = _imported(seen, None)
    else:
        work.cells[replicate].append(_imported(seen, Withdrawal(seen.why, seen.withdrawn)))


def _place(work: _Work, seen: Seen, limit: int, listed: list[Listed]) -> None:
    """Into the first cell that waits for a result; else as a surplus beside the last one that this reading decided."""
    waits = next((n for n in range(1, limit + 1) if not work.decided(n)), None)
    if waits is not None:
        _put(work, waits, seen)
        return
    if not work.standing:
        listed.append(
            Listed("late", seen.place, f"{_have(limit)} already from an earlier import: nothing is exchanged (first valid, never best)")
        )
        return
    beside = max(work.standing)
    if not seen.valid:
        _put(work, beside, seen)
        return
    why = f"surplus: {_have(limit)}, begun before it; the first valid counts, whatever the scores"
    score = seen.score
    evidence = {} if score is None else {"reward": score.reward, "partial": score.partial, "reward_source": score.reward_source}
    work.cells[beside].append(_imported(seen, Withdrawal(why, evidence=evidence)))


def _have(limit: int) -> str:
    return "this task and arm has its trial" if limit == 1 else f"this task and arm has its {limit} trials"


def _imported(seen: Seen, withdrawal: Withdrawal | None) -> ImportedTrial:
    if withdrawal is not None and withdrawal.evidence is None:
        score = seen.score
        # What its files held is no result, but whoever checks the rule wants to see it.
        held = {} if score is None else {"reward": score.reward, "partial": score.partial}
        withdrawal = replace(withdrawal, evidence=held)
    return ImportedTrial(seen.key, seen.sha256, seen.details, seen.score, withdrawal, seen.facts)


def _grid(
    counted: Mapping[tuple[str, str], int], known: Mapping[str, Known], width: int, cells: Sequence[ImportedCell]
) -> tuple[tuple[str, str, int], ...]:
    """Every task with every arm in each replicate: what nobody ran is missing, and is told so.  Beyond them, what there is more."""
    tasks = sorted({task for task, _ in counted} | {old.task for old in known.values()})
    arms = list(dict.fromkeys([old.arm for old in known.values()] + sorted(arm for _, arm in counted)))
    whole = [(task, arm, n) for n in range(1, width + 1) for task in tasks for arm in arms]
    more = [(cell.task, cell.arm, cell.replicate) for cell in cells if cell.replicate > width]
    return tuple(dict.fromkeys([*whole, *more]))
