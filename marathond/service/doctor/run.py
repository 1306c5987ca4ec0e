"""The proof that the watcher can see: every rule of the audit is silent on a clean campaign and finds the fault that is planted for it.

Owns the trial of the rules.  A rule without a plant, a plant that no longer fits the schema, a rule that is blind or that speaks where
nothing is: each is a failure of the doctor, by name (fault e01).  Must not know what a rule looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from marathond.core.audit import rules
from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Look, Rule
from marathond.ledger.verbs import audit
from marathond.service.doctor import plants
from marathond.service.doctor.ground import remove_leftovers
from marathond.service.doctor.scratch import Scratch

Plant = Callable[[Scratch], None]
SPEAKS = frozenset({"warning", "error", "stop_loss"})
"""Severities that must be silent where nothing is wrong; an info may tell of a clean campaign, too."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of one rule (or of one illness that ``status`` shows).  ``why`` empty: silent when clean, seen when planted."""

    kind: str
    name: str
    why: str = ""

    @property
    def ok(self) -> bool:
        return not self.why


def prove_rules(tried: Sequence[Rule] | None = None, planted: Mapping[str, Plant] | None = None) -> list[Proof]:
    """Try every rule (default: all of the audit) with its plant (default: those of this package).  All scratch ledgers are removed."""
    remove_leftovers()
    tried = rules.RULES if tried is None else tried
    planted = plants.PLANTS if planted is None else planted
    with Scratch() as scratch:
        scratch.clean()
        clean = facts_of(scratch)
    proofs = [Proof("rule", rule.code, loud(rule, clean) or unproven(rule, planted.get(rule.code))) for rule in tried]
    known = {rule.code for rule in tried}
    return proofs + [Proof("rule", code, "a fault is planted for it, and there is no such rule") for code in sorted(planted.keys() - known)]


def facts_of(scratch: Scratch) -> Facts:
    """By the reader that the daemon and ``marathonctl audit`` use."""
    scratch.commit()
    return audit.facts(scratch.c, scratch.campaign_id, now_ms=scratch.now_ms, wal_bytes=_wal_bytes(scratch))


def _wal_bytes(scratch: Scratch) -> int:
    return scratch.path.with_name(scratch.path.name + "-wal").stat().st_size


def loud(rule: Rule, clean: Facts) -> str:
    """Why its silence on the clean campaign means nothing, or that there is none; empty: silent, and it could see."""
    look = _looked(rule, clean)
    if isinstance(look, str):
        return f"on a clean campaign it {look}"
    if look.unseen:
        return f"on a clean campaign it cannot see: {look.unseen}"
    found = [each for each in look.found if each.severity in SPEAKS]
    return f"on a clean campaign it speaks: {found[0].code} {found[0].subject}: {found[0].detail}" if found else ""


def unproven(rule: Rule, plant: Plant | None) -> str:
    """Why it is not proven that the rule can see; empty: it saw what was planted."""
    if plant is None:
        return "no fault is planted for it: nobody knows whether it can see"
    with Scratch() as scratch:
        try:
            plant(scratch)
            seen = facts_of(scratch)
        except Exception as error:  # noqa: BLE001 - whatever a plant meets in the schema is its failure, and it is told
            return f"its fault cannot be planted: {type(error).__name__}: {error}"
    look = _looked(rule, seen)
    if isinstance(look, str):
        return f"with its fault planted it {look}"
    if any(each.code == rule.code for each in look.found):
        return ""
    blind = f" ({look.unseen})" if look.unseen else ""
    return f"its fault is planted, and it found nothing among {look.looked_at} of {look.of} {look.things}{blind}"


def _looked(rule: Rule, seen: Facts) -> Look | str:
    try:
        return rule.look(seen)
    except Exception as error:  # noqa: BLE001 - a rule that breaks does not see, and that is told by its name
        return f"breaks: {type(error).__name__}: {error}"
