"""What a rule of the audit is.

Owns the shape: a code, what it means, what to do, and a pure look at the facts that says how much it could see.  A rule that could not see
says ``unseen``, and that is never "nothing found" (fault e04).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from marathond.core.audit.facts import Facts
from marathond.core.model_rules import Found

__all__ = ["Found", "Look", "Rule"]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look brought.  ``looked_at``: how many ``things`` the rule could judge, of ``of`` there are; every count has its total.

    ``unseen``: why nothing could be judged although there was something to judge, or that what was seen decides nothing yet; empty: it
    could see, or there is nothing yet.
    """

    looked_at: int
    of: int
    things: str
    found: tuple[Found, ...] = ()
    unseen: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """``code`` is the code of every finding of its look.  ``severity`` info, warning, error or stop_loss; ``stop_loss`` closes admission
    for all arms until a person resumes.  ``means``: one sentence a person understands at night; ``todo``: what to do about it."""

    code: str
    severity: str
    means: str
    todo: str
    look: Callable[[Facts], Look]
    faults: tuple[str, ...] = field(default=())
    """Ids of the catalogue of silent faults that it names."""
