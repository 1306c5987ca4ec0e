"""What a reading of a verifier's files consists of: numbers, booleans and words with their places, refusals, flags.

Owns those shapes.  Must not know any file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTRACTOR = 2
"""Version of the rules of this package; a newer one grades stored artifacts again and keeps this one's rows."""


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number: ``key`` of file ``source``.

    A ``+`` in the key means that the file holds the summands, a ``*`` in key or source that it is a sum over all gates, a ``/`` a quotient.
    """

    value: float
    source: str
    key: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A boolean, also one that was written as text (``"false"``)."""

    value: bool
    source: str
    key: str


@dataclass(frozen=True, slots=True)
class Words:
    """A text that explains a number, one harmless line: an early exit's stage, a gate's error, a formula, a rule of the configuration."""

    value: str
    source: str
    key: str


Part = Number | Fact | Words


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that was not read, and why.  ``key`` is empty when the whole file is meant."""

    source: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """Everything read from one verifier run.

    ``reward``, ``partial`` and ``test_rate`` lie in [0, 1]; ``tests_passed <= tests_total``.  ``test_rate`` is a rate that a file states;
    :attr:`rate` is the column: that one, else the counts' quotient.  ``parts`` holds every other number and boolean under
    ``file:dotted.key``; ``named`` those with a name that is the same for every task, whatever file they stand in:

    * ``gate:<name>``, ``gates_passed``, ``gates_total``, ``binary_strict``;
    * ``stage:<name>`` a stage's reward, ``stage:<name>.<key>`` what else it tells;
    * ``tests:<gate>.passed``, ``….failed``, ``….total``, ``….error``; ``tests:<gate>`` of a gate that reported nothing;
    * ``phase``, ``early_exit``, ``setup_error``, ``scoring_mode``, ``partial_score_formula``: words;
    * ``rule:<column>``: the configuration's rule by which that column was read.

    Flags: ``verifier_unfinished``, ``initialized``, ``build_failed``, ``early_exit:<stage>``, ``setup_error``, ``malformed_early_exit``,
    ``reward_only_in_metrics``, ``reward_files_disagree``, ``metrics_reward_disagrees``, ``repaired:<file>``, ``no_tests``,
    ``test_rate_disagrees`` (with the counts), ``gates_without_tests`` (so that there is no sum over gates), ``test_files_disagree`` (a gate
    has two reports), ``parts_truncated``, ``refusals_truncated``.
    A missing reward always has a refusal; whether the trial then goes to review is the caller's decision.
    """

    reward: Number | None = None
    partial: Number | None = None
    tests_passed: Number | None = None
    tests_total: Number | None = None
    test_rate: Number | None = None
    flags: tuple[str, ...] = ()
    parts: Mapping[str, Number | Fact] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    named: Mapping[str, Part] = field(default_factory=dict)

    @property
    def rate(self) -> Number | None:
        """The share of tests that passed: as stated, else from the counts; its key says which."""
        if self.test_rate is not None:
            return self.test_rate
        passed, total = self.tests_passed, self.tests_total
        if passed is None or total is None or not total.value:
            return None
        over = total.key if passed.source == total.source else f"{total.source}:{total.key}"
        return Number(passed.value / total.value, passed.source, f"{passed.key}/{over}")
