"""Reads what a verifier wrote into numbers that each know where they came from.

Owns the rules of what is a reward and a partial score, and the order of things.  Pure: bytes in, a reading out.  Must not know trials or
Docker.  Never a guess: what cannot be read is refused by name, and nothing here ever becomes 0.  A reward comes from ``reward.json`` or
``reward.txt`` alone (Harbor reads no other file) unless a rule of the configuration says otherwise, never from a partial score: released
benchmark data holds 73 trials with partial 1 and reward 0, and 5 with reward 1 and partial below 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marathond.core.payload import BOOLEANS, MAX_WORDS, NUMBER, leaves, not_a_number, outside_unit
from marathond.core.score.counts import Tests, compare, gates_of_files, gates_of_metrics, read_tests
from marathond.core.score.model import Fact, Number, Refusal, ScoreReading, Words
from marathond.core.score.names import CTRF, METRICS, REWARD_JSON, REWARD_TXT, STAGES, gate_file
from marathond.core.score.parts import named_parts
from marathond.core.score.payload import Payload
from marathond.core.score.rules import RULE, Overrides, ScorePath, files_of, follow
from marathond.core.text import printable

MAX_PARTS = 200
MAX_LOOKED = 10_000
"""Values of one file that are looked at for parts; the columns are not among them."""
CONFIGURATION = "configuration"
"""Source of a part that a rule of the configuration is."""


def read_score(
    files: Mapping[str, bytes], *, verifier_exited: bool, overrides: Overrides | None = None, unread: Sequence[Refusal] = ()
) -> ScoreReading:
    """Read the files of ``/logs/verifier`` (name to bytes, sizes bounded by the caller; other names are ignored).

    :param verifier_exited: whether the verifier came to its own end.  Files of one that did not are no score.
    :param overrides: the configuration's rules for this task.  A column with a rule is read by it or not at all; a rule for one of
        ``test_rate``, ``tests_passed``, ``tests_total`` takes all three, since numbers of two sources are not of the same tests.
    :param unread: files that are there and were not handed over, with the reason (:func:`marathond.tasks.scorefiles.collect`).
    """
    rules = overrides or {}
    return _Reader(Payload(files, unread, files_of(rules)), verifier_exited, rules).read()


class _Reader:
    def __init__(self, payload: Payload, verifier_exited: bool, rules: Overrides) -> None:
        self.payload, self.verifier_exited, self.rules = payload, verifier_exited, rules
        self.parts: dict[str, Number | Fact] = {}

    def read(self) -> ScoreReading:
        payload = self.payload
        metrics = payload.table(METRICS)
        self._flags_of(metrics)
        rewards = payload.table(REWARD_JSON)
        reward = self._ruled("reward") if "reward" in self.rules else self._reward(rewards, metrics)
        partial = self._ruled("partial") if "partial" in self.rules else payload.unit(METRICS, metrics, "partial_score")
        table, reports = gates_of_metrics(payload, metrics), gates_of_files(payload)
        tests = compare(payload, self._tests_by_rule() or read_tests(payload, metrics, table, reports))
        stages = payload.table(STAGES)
        named, cut = named_parts(metrics, rewards, stages, [*table, *reports])
        used = {f"{number.source}:{key}" for number in (reward, partial, *_numbers(tests)) if number for key in number.key.split("+")}
        for source, held in ((REWARD_JSON, rewards), (METRICS, metrics), (STAGES, stages), *self._summaries()):
            self._collect(source, held, used)
        if cut:
            payload.flag("parts_truncated")
        named |= {f"{RULE}{column}": Words(path.text, CONFIGURATION, "") for column, path in sorted(self.rules.items())}
        if final := self._not_final(metrics):
            payload.refusals.append(final)
            reward, partial, tests = None, None, Tests()
        return ScoreReading(
            reward,
            partial,
            tests.passed,
            tests.total,
            tests.rate,
            tuple(payload.flags),
            self.parts,
            tuple(payload.refusals),
            named,
        )

    def _not_final(self, metrics: Mapping[str, Any]) -> Refusal | None:
        """A payload of a verifier that has not come to its end is no score, whatever numbers it holds."""
        if not self.verifier_exited:
            self.payload.flag("verifier_unfinished")
            return Refusal("", "", "the verifier has not finished")
        if _phase(metrics) == "initialized":
            return Refusal(METRICS, "phase", "only initialized: the verifier had not begun to score")
        return None

    def _flags_of(self, metrics: Mapping[str, Any]) -> None:
        if (phase := _phase(metrics)) in ("initialized", "build_failed"):
            self.payload.flag(phase)
        if (stage := metrics.get("stage")) and isinstance(stage, str):
            self.payload.flag(f"early_exit:{printable(stage, MAX_WORDS) or '(unprintable)'}")
        error = metrics.get("setup_error")
        if BOOLEANS.get(error.strip().lower(), error) if isinstance(error, str) else error:
            self.payload.flag("setup_error")

    def _reward(self, rewards: Mapping[str, Any], metrics: Mapping[str, Any]) -> Number | None:
        """reward.json beats reward.txt, also when it cannot be read: a broken winner is no reason to believe the loser."""
        reward = self._reward_of_files(rewards)
        other = metrics.get("reward")
        if other is not None and not not_a_number(other):
            if not self.payload.has(REWARD_JSON) and not self.payload.has(REWARD_TXT):
                self.payload.flag("reward_only_in_metrics")
            elif reward is not None and reward.value != other:
                self.payload.flag("metrics_reward_disagrees")
        return reward

    def _reward_of_files(self, rewards: Mapping[str, Any]) -> Number | None:
        payload = self.payload
        text = self._reward_text()
        if payload.has(REWARD_JSON):
            reward = payload.unit(REWARD_JSON, rewards, "reward")
            if rewards and "reward" not in rewards:
                payload.refuse(REWARD_JSON, "reward", "missing")
            elif not rewards and not payload.broken(REWARD_JSON):
                payload.refuse(REWARD_JSON, "reward", "missing: the object is empty")
            if reward and text and reward.value != text.value:
                payload.flag("reward_files_disagree")
        else:
            reward = text
            if not payload.has(REWARD_TXT):
                payload.refuse("", "reward", "neither reward.json nor reward.txt was written")
        # A reward file that must not be opened decides nothing, nor does the other one then: which of them counts is not ours to guess.
        unread = any(payload.has(name) and payload.bytes_of(name) is None for name in (REWARD_JSON, REWARD_TXT))
        return None if unread else reward

    def _reward_text(self) -> Number | None:
        data = self.payload.bytes_of(REWARD_TXT)
        if data is None:
            return None
        try:
            text = data.decode().strip()
        except UnicodeDecodeError as error:
            self.payload.refuse(REWARD_TXT, "", f"not UTF-8 at byte {error.start}")
            return None
        value: object = float(text) if NUMBER.fullmatch(text) else BOOLEANS.get(text.lower(), text)
        if why := not_a_number(value) or outside_unit(value):
            self.payload.refuse(REWARD_TXT, "", why)
            return None
        return Number(float(text) + 0.0, REWARD_TXT, "")  # of a negative zero: zero

    def _tests_by_rule(self) -> Tests | None:
        """None: no rule is about tests."""
        if not {"test_rate", "tests_passed", "tests_total"} & set(self.rules):
            return None
        rate, passed, total = (self._ruled(column) for column in ("test_rate", "tests_passed", "tests_total"))
        pair = self.payload.pair(passed, total)
        if pair is not None and pair[1].value == 0:
            self.payload.flag("no_tests")
        return Tests(rate, *(pair or (None, None)))

    def _ruled(self, column: str) -> Number | None:
        """By the configuration's rule; what is not there is refused, and nothing else steps in.  None without a refusal: no rule."""
        path = self.rules.get(column)
        if path is None:
            return None
        document = self.payload.document(path.file)
        found = None if document is None else follow(document[0], path)
        if found is None:
            self.payload.refuse(path.file, path.key, self._why_not(path, column))
            return None
        check = self.payload.count if column in ("tests_passed", "tests_total") else self.payload.share
        return check(found[0], path.file, path.key)

    def _why_not(self, path: ScorePath, column: str) -> str:
        if not self.payload.has(path.file):
            return f"no such file, and a rule names it for {column}"
        if self.payload.document(path.file) is None:
            return f"cannot be read, and a rule names it for {column}"
        return f"missing, and a rule names it for {column}"

    def _summaries(self) -> list[tuple[str, dict[str, Any]]]:
        """Of reports their summaries alone: below it lies a row for each test."""
        names = [name for name in self.payload.names() if name == CTRF or gate_file(name)]
        tables = ((name, self.payload.table(name).get("results")) for name in names)
        return [(name, {"results": {"summary": held.get("summary")}}) for name, held in tables if isinstance(held, dict)]

    def _collect(self, source: str, table: Mapping[str, Any], used: set[str]) -> None:
        refused = {(refusal.source, refusal.key) for refusal in self.payload.refusals}
        for looked, (key, value) in enumerate(leaves(table)):
            name = f"{source}:{key}"
            if name in used or (source, key) in refused:
                continue
            if len(self.parts) >= MAX_PARTS or looked >= MAX_LOOKED:
                self.payload.flag("parts_truncated")
                return
            if isinstance(value, bool):
                self.parts[name] = Fact(value, source, key)
            elif not (why := not_a_number(value)):
                self.parts[name] = Number(float(value), source, key)
            elif isinstance(value, float | int):
                self.payload.refuse(source, key, why)


def _phase(metrics: Mapping[str, Any]) -> str:
    """However it is spelled: what is only begun must not count for a capital letter."""
    phase = metrics.get("phase")
    return phase.strip().lower() if isinstance(phase, str) else ""


def _numbers(tests: Tests) -> tuple[Number | None, ...]:
    return tests.rate, tests.passed, tests.total
