"""All rules of the audit, in the order in which they are told, and one look by all of them.  Owns nothing of what they look for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from marathond.core.audit import agents, arms, bias, house, results, verifiers
from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Look, Rule

RULES: tuple[Rule, ...] = (*bias.RULES, *agents.RULES, *arms.RULES, *results.RULES, *verifiers.RULES, *house.RULES)


def looks(facts: Facts, rules: Sequence[Rule] = RULES) -> Iterator[tuple[Rule, Look | Exception]]:
    """What each rule saw; of one that broke, its error: that one is blind, and no reason for the others to be."""
    for rule in rules:
        try:
            yield rule, rule.look(facts)
        except Exception as bug:  # noqa: BLE001 - told by the caller, by the rule's name
            yield rule, bug
