"""A Harbor job's own documents: which trials it says ended, and how.

Owns reading ``<job>/result.json`` and ``<job>/config.json``.  Must not read a score out of them: what a job says of a reward cannot be
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marathond.service.importing.seen import instant_ms
from marathond.service.importing.tree import Parts, Tree

RESULT, CONFIG = "result.json", "config.json"
MAX_ATTEMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Job:
    """``exceptions``: trial → classes; ``ended``: trials that it counts as over; ``document``: its result could be read.

    ``completed``, ``errored``: as the old rule reads them, None: not there.
    """

    parts: Parts
    document: bool = False
    completed: int | None = None
    errored: int | None = None
    finished: bool = False
    started_at_ms: int | None = None
    attempts: int = 1
    exceptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()

    @property
    def old_rule(self) -> tuple[bool, str]:
        """Whether the old scripts took it for done, and the numbers that said so."""
        if not self.document or self.completed is None or self.errored is None:
            return False, "its job has no readable result.json"
        return self.completed >= 1 and self.errored == 0, f"completed {self.completed}, errored {self.errored}"


def is_result(document: Mapping[str, Any]) -> bool:
    """Whether a result.json is a job's."""
    return "n_total_trials" in document or ("stats" in document and "trial_name" not in document)


def read_job(tree: Tree, parts: Parts) -> Job:
    """Whatever can be read of the job's folder; nothing of it is required."""
    config, _ = tree.table((*parts, CONFIG))
    result, _ = tree.table((*parts, RESULT))
    attempts = _count((config or {}).get("n_attempts")) or 1
    if result is None:
        return Job(parts, attempts=min(attempts, MAX_ATTEMPTS))
    stats = result.get("stats")
    stats = stats if isinstance(stats, dict) else {}
    evals = [each for each in _values(stats.get("evals")) if isinstance(each, dict)]
    exceptions: dict[str, tuple[str, ...]] = {}
    for each in evals:
        for name, trial in _names(each.get("exception_stats")):
            exceptions[trial] = (*exceptions.get(trial, ()), name)
    rewarded = {trial for each in evals for table in _values(each.get("reward_stats")) for _, trial in _names(table)}
    return Job(
        parts,
        document=True,
        completed=_first(stats, "n_completed_trials", "n_trials"),
        errored=_first(stats, "n_errored_trials", "n_errors"),
        finished=bool(result.get("finished_at")),
        started_at_ms=moment(result.get("started_at")),
        attempts=min(attempts, MAX_ATTEMPTS),
        exceptions=exceptions,
        ended=frozenset(rewarded | exceptions.keys()),
    )


def moment(value: object) -> int | None:
    """Milliseconds; None also for what is no time: a job's word on a time decides no score."""
    try:
        return instant_ms(value)
    except (ValueError, OverflowError):
        return None


def _first(table: Mapping[str, Any], *names: str) -> int | None:
    """The newer name, then the one of older versions."""
    return next((count for name in names if (count := _count(table.get(name))) is not None), None)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _names(value: object) -> Iterator[tuple[str, str]]:
    """(key, trial) of a table of lists."""
    if isinstance(value, dict):
        for key, trials in value.items():
            for trial in trials if isinstance(trials, list) else []:
                if isinstance(trial, str):
                    yield str(key), trial
