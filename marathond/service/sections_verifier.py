"""``[verifier]``: tasks whose verifier times the code that an agent wrote, and so must not share the host while it runs.

Owns what a valid value is.  What it does: :mod:`marathond.core.turns`.  It decides what is measured, so it is part of the treatment.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from marathond.service.sections import Section, Word, guilty


class VerifierSection(Section):
    """``[verifier]``.  Without it verifiers run beside each other and beside agents, as they are ready."""

    exclusive: tuple[Word, ...] = Field(default=(), description="tasks whose verifier runs alone: it times the code that it judges")
    exclusive_from: Literal["verifiers", "everything"] = Field(
        default="verifiers",
        description="what it is alone from: other verifiers and everything that is being prepared; or agents that run, too",
    )

    @model_validator(mode="after")
    def _each_once(self) -> VerifierSection:
        for index, name in enumerate(self.exclusive):
            if name in self.exclusive[:index]:
                raise guilty(f"exclusive.{index}", "named twice")
        return self
