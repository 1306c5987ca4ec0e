"""An import from its source to the ledger: read, choose, say, write.

Owns the order, and that a dry run and a real one are the same up to the writing.  A cell of folders is one transaction and a table is one,
so that a killed import leaves whole cells, and the next one brings the rest.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from marathond.core.errors import ConfigError, LedgerRefused, Refused
from marathond.core.text import printable
from marathond.ledger.readonly import open_readonly
from marathond.ledger.verbs import imports
from marathond.ledger.verbs.imports import Known
from marathond.service.importing.choose import Choice, choose
from marathond.service.importing.harbor import BY_AGENT, is_harbor, job_folders, read_harbor
from marathond.service.importing.runs import is_runs, read_runs
from marathond.service.importing.seen import NAME_MAX, Listed, Reading
from marathond.service.importing.table import read_table
from marathond.service.importing.tree import Parts, Tree
from marathond.service.offline import offline_writer

WHAT = "marathonctl import"
EXPECTED = (
    "neither runs of the old scripts (<task>/<arm>/<stamp>/<arm>/<trial>) nor a Harbor job (<job>/result.json with <trial>/result.json), "
    "nor a folder of such jobs; a table of trials is imported with --csv FILE"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for.  ``owner``: uid whose folders are taken, None: the source's own owner's."""

    source: Path
    csv: bool = False
    name: str | None = None
    mapping: tuple[str, ...] = ()
    owner: int | None = None
    arm_by: str = BY_AGENT
    replicates: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What an import does: the same for a dry run.  ``author``: whoever asks."""

    name: str
    author: str
    reading: Reading
    choice: Choice
    replicates: int | None = None


def read(wanted: Wanted) -> Reading:
    """The source, whichever kind it is.

    :raises Refused: it is none of those.
    """
    if wanted.csv:
        return read_table(wanted.source, wanted.mapping)
    if wanted.mapping:
        raise ConfigError("", "--map", "names columns of a table: it goes with --csv")
    tree = Tree(wanted.source)
    if is_runs(tree):
        return _models_told(read_runs(tree, wanted.owner, _jobs_aside(tree)))
    if is_harbor(tree):
        return _models_told(read_harbor(tree, wanted.owner, wanted.arm_by))
    raise Refused(f"{wanted.source}: {EXPECTED}")


def _jobs_aside(tree: Tree) -> list[Parts]:
    """Harbor jobs in a folder of runs: to be left out, for a job's folders look like a task's.

    :raises Refused: the folder itself is one.
    """
    jobs = job_folders(tree)
    if () in jobs:
        raise Refused(f"{tree.root}: is a Harbor job and holds runs of the old scripts, too: an import takes one kind, so nothing was read")
    return jobs


def _models_told(reading: Reading) -> Reading:
    """An arm that asked several models is compared as one all the same, and a person must know."""
    models: dict[str, set[str]] = defaultdict(set)
    for seen in reading.trials:
        if seen.details.model is not None:
            models[seen.arm].add(seen.details.model)
    remarks = [
        Listed("models_differ", arm, f"its trials name several models: {', '.join(sorted(names))}")
        for arm, names in sorted(models.items())
        if len(names) > 1
    ]
    return replace(reading, remarks=(*reading.remarks, *remarks))


def _future_told(reading: Reading, now_ms: int) -> Reading:
    """By its start it is decided which trial of a cell is the first: a clock that was wrong decides it, too."""
    why = "its start lies in the future: by it the first trial of a cell is found"
    remarks = [Listed("future", seen.place, why) for seen in reading.trials if (seen.details.started_at_ms or 0) > now_ms]
    return replace(reading, remarks=(*reading.remarks, *remarks))


def plan(ledger: Path, wanted: Wanted, author: str) -> Planned:
    """Reads the source and the ledger, writes nothing.

    :raises Refused: the source is none, or a campaign of that name was run here.
    """
    name = default_name(wanted.source) if wanted.name is None else wanted.name
    if not name or printable(name, NAME_MAX) != name:
        raise ConfigError("", f"campaign name {printable(name, NAME_MAX)!r}", "must be plain characters: give one with --name")
    reading = _future_told(read(wanted), _now_ms())
    return Planned(name, author, reading, choose(reading, _known(ledger, name), replicates=wanted.replicates), wanted.replicates)


def default_name(source: Path) -> str:
    """The folder's or the file's own name."""
    return source.stem if source.suffix.lower() == ".csv" else source.resolve().name


def _known(ledger: Path, name: str) -> Mapping[str, Known]:
    connection = open_readonly(ledger)
    try:
        imports.check_name(connection, name)
        return imports.known(connection, name)
    finally:
        connection.close()


def carry_out(ledger: Path, planned: Planned, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write what is new.  Nothing new: the ledger is not touched.

    :param progress: after each cell, with how many of how many.
    :raises LedgerRefused: a daemon lives.
    """
    choice, reading = planned.choice, planned.reading
    if not choice.cells:
        return
    with offline_writer(ledger, WHAT) as writer:
        # Somebody may have imported the same between the plan and the lock.
        again = choose(reading, writer.read(imports.known, planned.name), replicates=planned.replicates)
        if again.cells != choice.cells:
            raise LedgerRefused("busy", f"{WHAT}: campaign {planned.name} was changed meanwhile; nothing was written, try again")
        import_id = writer.write(
            imports.begin_import,
            planned.name,
            kind=reading.kind,
            source=reading.source,
            author=planned.author,
            refused=[asdict(each) for each in choice.listed],
            conditions=reading.conditions,
            planned=len(choice.trials),
            now_ms=_now_ms(),
        )
        writer.write(imports.add_cells, import_id, choice.grid)
        for done, cells in enumerate(_portions(planned), start=1):
            writer.write(imports.import_cells, import_id, cells, now_ms=_now_ms())
            progress(done, len(choice.cells))


def _portions(planned: Planned) -> Sequence[Sequence[imports.ImportedCell]]:
    cells = planned.choice.cells
    return [cells] if planned.reading.kind == "csv" else [[cell] for cell in cells]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
