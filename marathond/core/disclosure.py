"""What a reader of a comparison must be told about how it was made: the words' shapes, and the facts that they are made from.

Owns the values.  Must not know which facts give which disclosure (:mod:`marathond.core.disclosures`), nor where the facts come from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from marathond.core.model import Arm, CodexArm
from marathond.core.names import NetworkPolicy

NAMED_AT_MOST = 8
"""Tasks named in one text."""

Value = TypeVar("Value", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """One deviation, or one choice that the name of an arm does not tell.

    :param code: stable; several of one campaign may share it, for different arms.
    :param arms: names of the arms that it concerns, in the campaign's order; at least one.
    :param text: one or two sentences about what is done here.
    :param compared_with: what the ordinary way, or the earlier public runs, did.
    """

    code: str
    arms: tuple[str, ...]
    text: str
    compared_with: str


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What of a task may need to be told.  ``limit_s`` None: it declares none; ``speaks``: project files in its ``environment/``;
    ``differs``: in what it is not as the benchmark's profile has it, a line each.
    """

    name: str
    network: NetworkPolicy
    network_origin: str = ""
    limit_s: float | None = None
    speaks: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all arms of a campaign share, as its settings and tasks say it.  No secret is in here: names and addresses alone.

    :param benchmark: name of the benchmark's profile, empty: none is named.  The ``usual_...`` are what it does by itself.
    :param own_deadline_s: our own deadline of an agent; None: the task's alone.
    :param pids: most processes and threads of a container; None: no limit.
    :param exclusive: tasks whose verifier runs alone; ``exclusive_from``: from ``verifiers``, or from ``everything``.
    :param build_args: names of build arguments that are no proxy.
    :param runtime_proxy: proxy variables of containers with a network, in words; empty: none.
    :param gateway: whether there is one; what follows is its policy.
    :param judge: whether verifiers get a way to a judge model through it.
    :param trial_cap_usd: what a trial may spend; None: no cap.
    """

    benchmark: str = ""
    usual_agent_multiplier: float = 1.0
    usual_verifier_multiplier: float = 1.0
    own_deadline_s: float | None = None
    agent_multiplier: float = 1.0
    verifier_multiplier: float = 1.0
    pids: int | None = None
    exclusive: tuple[str, ...] = ()
    exclusive_from: str = "verifiers"
    build_args: tuple[str, ...] = ()
    runtime_proxy: str = ""
    gateway: bool = False
    strip: tuple[str, ...] = ()
    hold_s: float = 0.0
    held_is_charged: bool = False
    held_at_most_s: float = 0.0
    judge: bool = False
    trial_cap_usd: float | None = None
    tasks: tuple[TaskFacts, ...] = ()


def names(arms: Iterable[Arm]) -> tuple[str, ...]:
    return tuple(arm.name for arm in arms)


def codex_arms(arms: Iterable[Arm]) -> list[tuple[Arm, CodexArm]]:
    """Those that drive codex, with the row of it."""
    return [(arm, arm.codex) for arm in arms if arm.codex is not None]


def alike(arms: Sequence[tuple[Arm, CodexArm]], key: Callable[[CodexArm], Value]) -> list[tuple[Value, tuple[str, ...]]]:
    """Arms by what they have in common, in their order."""
    found: dict[Value, list[str]] = {}
    for arm, codex in arms:
        found.setdefault(key(codex), []).append(arm.name)
    return [(value, tuple(members)) for value, members in found.items()]


def ordinary_source(on: Conditions) -> str:
    """Who says what is ordinarily done with these tasks, in the middle of a sentence: the benchmark by its name, else their format."""
    return on.benchmark or "the task format"


def begun(sentence: str) -> str:
    """A sentence whose first word may be :func:`ordinary_source`: a benchmark's name keeps the case that it has."""
    return f"T{sentence[1:]}" if sentence.startswith("the ") else sentence


def number(value: float) -> str:
    """``5340``, ``0.3``, ``1,500,000``."""
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def count(value: float, word: str) -> str:
    """``1 turn``, ``500 turns``."""
    return f"{number(value)} {word}" if value == 1 else f"{number(value)} {word}s"


def listed(values: Sequence[str], *, between: str = ", ") -> str:
    """``a, b and 3 more``."""
    more = f" and {len(values) - NAMED_AT_MOST} more" if len(values) > NAMED_AT_MOST else ""
    return between.join(values[:NAMED_AT_MOST]) + more
