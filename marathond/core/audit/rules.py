"""All rules of the audit, in the order in which they are told.  Owns the list and nothing of what they look for."""

from __future__ import annotations

from marathond.core.audit import agents, arms, bias, house, results, verifiers
from marathond.core.audit.rule import Rule

RULES: tuple[Rule, ...] = (*bias.RULES, *agents.RULES, *arms.RULES, *results.RULES, *verifiers.RULES, *house.RULES)
