"""Reads what a verifier wrote into numbers that each know where they came from.

Owns the rules of what is a reward, a partial score, a test count.  Pure: bytes in, a reading out.  Must not know trials or Docker.
Never a guess: what cannot be read is refused by name, and nothing here ever becomes 0.  A reward comes from ``reward.json`` or
``reward.txt`` alone (Harbor reads no other file), never from a partial score: released benchmark data holds 73 trials with partial 1 and
reward 0, and 5 with reward 1 and partial below 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marathond.core.payload import BOOLEANS, MAX_WORDS, NUMBER, leaves, not_a_number, outside_unit, parse_json
from marathond.core.text import printable

REWARD_JSON, REWARD_TXT, METRICS, STAGES = "reward.json", "reward.txt", "metrics.json", "stages.json"
MAX_PARTS = 200
EXTRACTOR = 1
"""Version of these rules; a newer one grades stored artifacts again and keeps this one's rows."""

_COUNT_PAIRS = (("tests_passed", "tests_total"), ("total_passed", "total_tests"), ("new_passed", "new_total"), ("passed", "total"))
_COUNT_SUMS = (("tests_passed", "tests_failed"), ("passed", "failed"))


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number: ``key`` of file ``source``; a ``+`` in the key means that the file holds the summands."""

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
class Refusal:
    """Something that was not read, and why.  ``key`` is empty when the whole file is meant."""

    source: str
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """Everything read from one verifier run.

    ``reward``, ``partial`` and ``test_rate`` lie in [0, 1]; ``tests_passed <= tests_total``.  ``test_rate`` is a rate that a file states;
    nobody divides here.  ``parts`` holds every other number and boolean under ``file:dotted.key``.  Flags: ``verifier_unfinished``,
    ``initialized``, ``build_failed``, ``early_exit:<stage>``, ``setup_error``, ``malformed_early_exit``, ``reward_only_in_metrics``,
    ``reward_files_disagree``, ``metrics_reward_disagrees``, ``repaired:<file>``, ``no_tests``, ``parts_truncated``.
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


def read_score(files: Mapping[str, bytes], *, verifier_exited: bool, unread: Sequence[Refusal] = ()) -> ScoreReading:
    """Read the files of ``/logs/verifier`` (name to bytes, sizes bounded by the caller; other names are ignored).

    :param verifier_exited: whether the verifier came to its own end.  Files of one that did not are no score.
    :param unread: files that are there and were not handed over, with the reason (:func:`marathond.tasks.scorefiles.collect`).
    """
    reading = _Reader(files, verifier_exited).read()
    if not unread:
        return reading
    # A reward file that must not be opened decides nothing, and neither does the other one then: which of them counts is not ours to guess.
    reward = None if any(refusal.source.startswith("reward.") for refusal in unread) else reading.reward
    return replace(reading, reward=reward, refusals=(*unread, *reading.refusals))


class _Reader:
    def __init__(self, files: Mapping[str, bytes], verifier_exited: bool) -> None:
        self.files, self.verifier_exited = files, verifier_exited
        self.flags: list[str] = []
        self.parts: dict[str, Number | Fact] = {}
        self.refusals: list[Refusal] = []

    def read(self) -> ScoreReading:
        metrics = self._table(METRICS)
        self._flags_of(metrics)
        rewards = self._table(REWARD_JSON) if REWARD_JSON in self.files else {}
        reward = self._reward(rewards)
        partial = self._unit(METRICS, metrics, "partial_score")
        rate = self._unit(METRICS, metrics, "pass_rate")
        passed, total = self._counts(metrics)
        self._compare(reward, metrics)
        used = {f"{number.source}:{key}" for number in (reward, partial, rate, passed, total) if number for key in number.key.split("+")}
        for source, table in ((REWARD_JSON, rewards), (METRICS, metrics), (STAGES, self._table(STAGES))):
            self._collect(source, table, used)
        if final := self._not_final(metrics):
            self.refusals.append(final)
            reward = partial = rate = passed = total = None
        return ScoreReading(reward, partial, passed, total, rate, tuple(self.flags), self.parts, tuple(self.refusals))

    def _refuse(self, source: str, key: str, why: str) -> None:
        self.refusals.append(Refusal(source, printable(key, MAX_WORDS), why))

    def _not_final(self, metrics: Mapping[str, Any]) -> Refusal | None:
        """A payload of a verifier that has not come to its end is no score, whatever numbers it holds."""
        if not self.verifier_exited:
            self.flags.append("verifier_unfinished")
            return Refusal("", "", "the verifier has not finished")
        if metrics.get("phase") == "initialized":
            return Refusal(METRICS, "phase", "only initialized: the verifier had not begun to score")
        return None

    def _flags_of(self, metrics: Mapping[str, Any]) -> None:
        if metrics.get("phase") in ("initialized", "build_failed"):
            self.flags.append(metrics["phase"])
        if (stage := metrics.get("stage")) and isinstance(stage, str):
            self.flags.append(f"early_exit:{printable(stage, MAX_WORDS)}")
        if metrics.get("setup_error"):
            self.flags.append("setup_error")

    def _table(self, source: str) -> dict[str, Any]:
        """The object in a JSON file; empty, with a refusal, when it cannot be had whole; empty when there is no file."""
        data = self.files.get(source)
        if data is None:
            return {}
        try:
            value, repaired = parse_json(data.decode())
        except UnicodeDecodeError as error:
            self._refuse(source, "", f"not UTF-8 at byte {error.start}")
        except RecursionError:
            self._refuse(source, "", "nested too deeply")
        except ValueError as error:
            self._refuse(source, "", f"no valid JSON: {printable(str(error), MAX_WORDS)}" if data.strip() else "empty")
        else:
            if repaired:
                self.flags.append(f"repaired:{source}")
            if isinstance(value, dict) and "-" not in value:
                return value
            if isinstance(value, dict):
                self.flags.append("malformed_early_exit")
                self._refuse(source, "-", "keys and values are shifted by one: nothing in this file can be trusted")
            else:
                self._refuse(source, "", "not an object")
        return {}

    def _reward(self, rewards: Mapping[str, Any]) -> Number | None:
        """reward.json beats reward.txt, also when it cannot be read: a broken winner is no reason to believe the loser."""
        text = self._reward_text() if REWARD_TXT in self.files else None
        if REWARD_JSON in self.files:
            reward = self._unit(REWARD_JSON, rewards, "reward")
            if rewards and "reward" not in rewards:
                self._refuse(REWARD_JSON, "reward", "missing")
            if reward and text and reward.value != text.value:
                self.flags.append("reward_files_disagree")
            return reward
        if REWARD_TXT not in self.files:
            self._refuse("", "reward", "neither reward.json nor reward.txt was written")
        return text

    def _reward_text(self) -> Number | None:
        try:
            text = self.files[REWARD_TXT].decode().strip()
        except UnicodeDecodeError as error:
            self._refuse(REWARD_TXT, "", f"not UTF-8 at byte {error.start}")
            return None
        value: object = float(text) if NUMBER.fullmatch(text) else BOOLEANS.get(text.lower(), text)
        if why := not_a_number(value) or outside_unit(value):
            self._refuse(REWARD_TXT, "", why)
            return None
        return Number(float(text), REWARD_TXT, "")

    def _unit(self, source: str, table: Mapping[str, Any], key: str) -> Number | None:
        """The number at ``key`` when it lies in [0, 1]."""
        if key not in table:
            return None
        value = table[key]
        if why := not_a_number(value) or outside_unit(value):
            self._refuse(source, key, why)
            return None
        return Number(float(value), source, key)

    def _counts(self, metrics: Mapping[str, Any]) -> tuple[Number | None, Number | None]:
        """The first complete pair of counts, by a fixed order of names; a total that is not written is the sum of passed and failed."""
        for passed_key, total_key in _COUNT_PAIRS:
            if passed_key in metrics and total_key in metrics:
                return self._pair(self._count(metrics, passed_key), self._count(metrics, total_key))
        for passed_key, failed_key in _COUNT_SUMS:
            if passed_key in metrics and failed_key in metrics:
                passed, failed = self._count(metrics, passed_key), self._count(metrics, failed_key)
                total = Number(passed.value + failed.value, METRICS, f"{passed_key}+{failed_key}") if passed and failed else None
                return self._pair(passed, total)
        return None, None

    def _pair(self, passed: Number | None, total: Number | None) -> tuple[Number | None, Number | None]:
        if passed is None or total is None:
            return None, None
        if passed.value > total.value:
            self._refuse(METRICS, passed.key, f"more than {total.key}")
            return None, None
        if total.value == 0:
            self.flags.append("no_tests")
        return passed, total

    def _count(self, metrics: Mapping[str, Any], key: str) -> Number | None:
        value = metrics[key]
        why = not_a_number(value) or ("no count: negative or not whole" if value < 0 or value != int(value) else "")
        if why:
            self._refuse(METRICS, key, why)
            return None
        return Number(float(value), METRICS, key)

    def _compare(self, reward: Number | None, metrics: Mapping[str, Any]) -> None:
        other = metrics.get("reward")
        if other is None or not_a_number(other):
            return
        if REWARD_JSON not in self.files and REWARD_TXT not in self.files:
            self.flags.append("reward_only_in_metrics")
        elif reward is not None and reward.value != other:
            self.flags.append("metrics_reward_disagrees")

    def _collect(self, source: str, table: Mapping[str, Any], used: set[str]) -> None:
        refused = {(refusal.source, refusal.key) for refusal in self.refusals}
        for key, value in leaves(table):
            name = f"{source}:{key}"
            if name in used or (source, key) in refused:
                continue
            if len(self.parts) >= MAX_PARTS:
                self.flags.append("parts_truncated")
                return
            if isinstance(value, bool):
                self.parts[name] = Fact(value, source, key)
            elif not (why := not_a_number(value)):
                self.parts[name] = Number(float(value), source, key)
            elif isinstance(value, float | int):
                self._refuse(source, key, why)
