"""``[scores."TASK"]``: where a task's verifier keeps a number that it does not keep where others do.

Owns what a valid rule is, in the words of an error line; how one is written and followed: :mod:`marathond.core.score.rules`.

A rule may change while a campaign runs (a reload or ``marathonctl submit``), and is no part of its treatment: an agent sees nothing of it,
and what was graded before can be graded again from the stored files.  That it changed is seen all the same: each score keeps the rules it
was read by among its parts, as ``rule:<column>``, and scores of one task with different ones are the finding ``score_rules_differ``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from marathond.core.score import parse
from marathond.service.sections import Section, guilty


def _place(value: str) -> str:
    try:
        parse(value)
    except ValueError as error:
        raise PydanticCustomError("wrong", "{expected}", {"expected": str(error)}) from error
    return value


Place = Annotated[str, Strict(), AfterValidator(_place)]


class ScoreSection(Section):
    """Each key is a column; one that is not named is read as everywhere.  A place that is missing refuses its column."""

    reward: Place | None = Field(default=None, description="instead of reward.json and reward.txt; a number from 0 to 1")
    partial: Place | None = Field(default=None, description="a number from 0 to 1")
    test_rate: Place | None = Field(default=None, description="a number from 0 to 1; takes tests_passed and tests_total over, too")
    tests_passed: Place | None = Field(default=None, description="a whole number; with tests_total, and takes test_rate over, too")
    tests_total: Place | None = Field(default=None, description="a whole number; with tests_passed")

    @model_validator(mode="after")
    def _both_counts(self) -> ScoreSection:
        if (self.tests_passed is None) != (self.tests_total is None):
            there, missing = ("tests_passed", "tests_total") if self.tests_total is None else ("tests_total", "tests_passed")
            raise guilty(there, f"needs {missing} beside it: a count of one source and a total of another are not of the same tests")
        return self
