"""``[comparison]``: what will be compared, said before anybody knows the scores.

Owns what a valid declaration is.  Must not know the arms there are: that is :mod:`marathond.service.settings`' rule.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from marathond.service.sections import Section, Slug, guilty


def _two(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) != 2:
        raise PydanticCustomError("wrong", "{expected}", {"expected": 'must be two arms, as in ["goal", "plain"]'})
    return value


def _pairs(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("wrong", "{expected}", {"expected": 'must be a list of pairs of arms, as in [["goal", "plain"]]'})
    if value and all(isinstance(each, str) for each in value):  # one pair without the list around it
        meant = f", as in {json.dumps([value])}" if len(value) == 2 else ', as in [["goal", "plain"]]'
        raise PydanticCustomError("wrong", "{expected}", {"expected": f"must be a list of pairs of arms{meant}"})
    return value


Pair = Annotated[tuple[Slug, Slug], BeforeValidator(_two)]


class Comparison(Section):
    """``[comparison]``: contrasts, each two arms; every difference is the first minus the second."""

    contrasts: Annotated[tuple[Pair, ...], BeforeValidator(_pairs)] = Field(
        default=(), description="pairs of arms that are compared; none: every pair of them"
    )

    @model_validator(mode="after")
    def _each_once(self) -> Comparison:
        for index, (a, b) in enumerate(self.contrasts):
            if a == b:
                raise guilty(f"contrasts.{index}", "must be two arms, not one twice")
            if (a, b) in self.contrasts[:index]:
                raise guilty(f"contrasts.{index}", "named twice")
            if (b, a) in self.contrasts[:index]:
                raise guilty(f"contrasts.{index}", f"is {b} against {a} the other way round, which stands above")
        return self
