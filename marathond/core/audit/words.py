"""Words that the rules share: counts with their totals, lists that stay short, and which trials and arms are compared.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.names import AgentKind, trial_label
from marathond.core.text import duration

REFERENCES = frozenset({AgentKind.ORACLE.value, AgentKind.NOP.value})
"""Kinds of arms that are measured to know the task, not to be compared: they are alike by design."""

NAMES_SHOWN = 6


def compared_arms(facts: Facts) -> tuple[str, ...]:
    """In the campaign's order; an arm whose kind is not known is compared."""
    return tuple(arm for arm in facts.arms if facts.kinds.get(arm) not in REFERENCES)


def of_kind(facts: Facts, kind: AgentKind) -> frozenset[str]:
    return frozenset(arm for arm in facts.arms if facts.kinds.get(arm) == kind.value)


def of_compared(facts: Facts, things: str) -> str:
    """``things`` of arms that are compared, said where there is no other arm: "none yet" would be untrue of what reference arms left."""
    return things if compared_arms(facts) else f"{things} of arms that are compared"


def run_here(facts: Facts, things: str) -> str:
    """What was measured elsewhere has its like; a rule that cannot ask for it says so in its words."""
    return things if facts.origin == "run" else f"{things}, run here"


def scored(facts: Facts, arms: Iterable[str] | None = None) -> list[TrialFact]:
    """Trials that fill their cell with a score; of ``arms``, None: of all."""
    wanted = None if arms is None else frozenset(arms)
    return [trial for trial in facts.trials if trial.state == "scored" and (wanted is None or trial.arm in wanted)]


def by_task(trials: Iterable[TrialFact]) -> dict[str, list[TrialFact]]:
    """Sorted by task, so that words and order of findings are the same at every look."""
    found: dict[str, list[TrialFact]] = defaultdict(list)
    for trial in trials:
        found[trial.task].append(trial)
    return dict(sorted(found.items()))


def per_arm(arms: Iterable[str], counts: Mapping[str, int], totals: Mapping[str, int]) -> str:
    """``plain 3 of 20, goal 0 of 20``; arms without any trial are left out."""
    return ", ".join(f"{arm} {counts.get(arm, 0)} of {totals[arm]}" for arm in arms if totals.get(arm))


def some(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


def labels(trials: Iterable[TrialFact]) -> str:
    return some([trial_label(trial.trial_id) for trial in sorted(trials, key=lambda trial: trial.trial_id)])


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def lasting(ms: int) -> str:
    return duration(ms / 1000)
