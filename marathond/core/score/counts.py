"""How many tests passed, of how many.

Owns every way in which verifiers write that, and the order in which one is believed: metrics.json's own counts, metrics.json's table of
gates (``pytest``), ctrf.json, the reports of single gates.  One source alone is read: sums over files that count differently mean nothing.
A source that is there and cannot be read ends the search: a broken winner is no reason to believe the loser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marathond.core.payload import MAX_WORDS
from marathond.core.score.model import Number, Words
from marathond.core.score.names import CTRF, METRICS, gate_file
from marathond.core.score.payload import Payload
from marathond.core.text import printable

PYTEST = "pytest"
SUMMARY = "results.summary"

_PAIRS = (("tests_passed", "tests_total"), ("total_passed", "total_tests"), ("new_passed", "new_total"), ("passed", "total"))
_SUMS = (("tests_passed", "tests_failed"), ("passed", "failed"))
COUNTS = frozenset(key for pair in (*_PAIRS, *_SUMS) for key in pair)
"""Keys of metrics.json that count tests."""
MAX_GATES = 1_000
_SHOWN = 5
_TOLERANCE = 0.005 + 1e-9
"""A rate that is written with two decimals may lie this far from its counts."""


@dataclass(frozen=True, slots=True)
class Tests:
    rate: Number | None = None
    passed: Number | None = None
    total: Number | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """The tests of one gate.  ``counts`` None: it reports none, or they were refused (``broken``)."""

    name: str
    source: str
    counts: tuple[Number, Number] | None = None
    failed: Number | None = None
    error: str = ""
    broken: bool = False

    def parts(self) -> Iterator[tuple[str, Number | Words]]:
        """Under the names that are the same for every task."""
        name = f"tests:{self.name}"
        if self.error:
            yield f"{name}.error", Words(self.error, self.source, f"{PYTEST}.{self.name}")
        if self.counts is not None:
            yield f"{name}.passed", self.counts[0]
            yield f"{name}.total", self.counts[1]
        elif not self.broken and not self.error:
            yield name, Words("reported nothing", self.source, f"{PYTEST}.{self.name}" if self.source == METRICS else SUMMARY)
        if self.failed is not None:
            yield f"{name}.failed", self.failed


def read_tests(payload: Payload, metrics: Mapping[str, Any], table: list[Gate], files: list[Gate]) -> Tests:
    """:param table: gates of metrics.json.  :param files: gates that have a report of their own."""
    rate = payload.unit(METRICS, metrics, "pass_rate")
    if payload.broken(METRICS):
        for name in (CTRF, *sorted({gate.source for gate in files})):
            if payload.has(name):
                payload.refuse(name, SUMMARY, f"not counted: {METRICS} comes first, and it cannot be read")
        return Tests()
    found, counts = _of_metrics(payload, metrics)
    if not found and table:
        found, counts = _sum(payload, table, METRICS, PYTEST)
    if not found and "pass_rate" not in metrics:  # a rate in one file and counts in another are not of the same tests
        counts = _of_reports(payload, files)
    passed, total = counts or (None, None)
    if total is not None and total.value == 0:
        payload.flag("no_tests")
    return Tests(rate, passed, total)


def compare(payload: Payload, tests: Tests) -> Tests:
    """Say so when a stated rate is not that of the counts beside it."""
    counted = tests.passed.value / tests.total.value if tests.passed and tests.total and tests.total.value else None
    if tests.rate and counted is not None and abs(tests.rate.value - counted) > _TOLERANCE:
        payload.flag("test_rate_disagrees")
    return tests


def _of_metrics(payload: Payload, metrics: Mapping[str, Any]) -> tuple[bool, tuple[Number, Number] | None]:
    """The first complete pair of counts, by a fixed order of names; a total that is not written is the sum of passed and failed."""
    for passed_key, total_key in _PAIRS:
        if passed_key in metrics and total_key in metrics:
            passed, total = (payload.count(metrics[key], METRICS, key) for key in (passed_key, total_key))
            return True, payload.pair(passed, total)
    for passed_key, failed_key in _SUMS:
        if passed_key in metrics and failed_key in metrics:
            passed, failed = (payload.count(metrics[key], METRICS, key) for key in (passed_key, failed_key))
            return True, payload.pair(passed, _plus(passed, failed))
    return False, None


def _plus(passed: Number | None, failed: Number | None) -> Number | None:
    if passed is None or failed is None:
        return None
    # Two finite numbers may have a sum that is none; with infinity as the total, every rate would be 0.
    total = passed.value + failed.value
    return Number(total, passed.source, f"{passed.key}+{failed.key}") if math.isfinite(total) else None


def gates_of_metrics(payload: Payload, metrics: Mapping[str, Any]) -> list[Gate]:
    """The gates of ``pytest: {gate: {passed, failed, total} | {} | {error}}``, by name."""
    table = metrics.get(PYTEST)
    if not isinstance(table, dict):
        return []
    if len(table) > MAX_GATES:
        payload.refuse(METRICS, PYTEST, f"{len(table)} gates: at most {MAX_GATES} are read")
        return [Gate("*", METRICS, broken=True)]
    shown = {name: printable(name, MAX_WORDS) for name in sorted(table)}
    return [_gate(payload, METRICS, shown[name], table[name], f"{PYTEST}.{shown[name]}") for name in shown]


def gates_of_files(payload: Payload) -> list[Gate]:
    """Gates with a report of their own, by name.  Of two reports that one gate has, CTRF's is taken."""
    found: dict[str, Gate] = {}
    for source in payload.names():  # sorted: <gate>_ctrf.json comes before <gate>_pytest.json
        named = gate_file(source)
        if named is None:
            continue
        gate = _report(payload, source, named[0])
        if (first := found.setdefault(gate.name, gate)) is not gate and _values(first) != _values(gate):
            payload.flag("test_files_disagree")
    return [found[name] for name in sorted(found)]


def _values(gate: Gate) -> tuple[float, float] | None:
    return None if gate.counts is None else (gate.counts[0].value, gate.counts[1].value)


def summary_of(payload: Payload, source: str) -> dict[str, Any] | None:
    """A report's ``results.summary``; None, with a refusal, when it is not to be had."""
    results = payload.table(source).get("results")
    summary = results.get("summary") if isinstance(results, dict) else None
    if isinstance(summary, dict):
        return summary
    if not payload.broken(source):
        payload.refuse(source, SUMMARY, "missing" if summary is None else "not an object")
    return None


def _report(payload: Payload, source: str, name: str) -> Gate:
    summary = summary_of(payload, source)
    return Gate(name, source, broken=True) if summary is None else _gate(payload, source, name, summary, SUMMARY, "tests")


def _gate(payload: Payload, source: str, name: str, value: Any, prefix: str, total_key: str = "total") -> Gate:
    """One gate's table: ``passed`` with a total, or with ``failed``.  A table without counts reports none, and may say why."""
    if not isinstance(value, dict):
        payload.refuse(source, prefix, "not an object")
        return Gate(name, source, broken=True)
    held = {key: f"{prefix}.{key}" for key in ("passed", "failed", total_key) if key in value}
    numbers = {key: payload.count(value[key], source, where) for key, where in held.items()}
    error = printable(str(value["error"]), MAX_WORDS) if value.get("error") not in (None, "", False) else ""
    gate = Gate(name, source, error=error, failed=numbers.get("failed"))
    if "passed" not in numbers or len(numbers) == 1:
        return replace(gate, broken=None in numbers.values())
    passed = numbers["passed"]
    counts = payload.pair(passed, numbers[total_key] if total_key in numbers else _plus(passed, numbers["failed"]))
    return replace(gate, counts=counts, broken=counts is None)


def _of_reports(payload: Payload, files: list[Gate]) -> tuple[Number, Number] | None:
    if payload.has(CTRF):
        return _report(payload, CTRF, CTRF).counts
    sources = "+".join(kind for kind in ("*_ctrf.json", "*_pytest.json") if any(gate.source.endswith(kind[1:]) for gate in files))
    return _sum(payload, files, sources, SUMMARY)[1]


def _sum(payload: Payload, gates: Sequence[Gate], source: str, prefix: str) -> tuple[bool, tuple[Number, Number] | None]:
    """Over all gates, with whether there was anything to add up.  None, with a refusal, when not every gate tells its counts.

    A sum over the others would be a higher rate than anybody reached.
    """
    told = [gate for gate in gates if gate.counts is not None or gate.broken]
    if not told:
        return False, None
    silent = [gate.name for gate in gates if gate.counts is None]
    if silent:
        payload.flag("gates_without_tests")
        shown = ", ".join(silent[:_SHOWN]) + (f" and {len(silent) - _SHOWN} more" if len(silent) > _SHOWN else "")
        payload.refuse(source, f"{prefix}.*", f"no sum: {len(silent)} of {len(gates)} gates tell no counts that can be read: {shown}")
        return True, None
    counts = [gate.counts for gate in told if gate.counts is not None]
    star = f"{prefix}.*" if prefix == PYTEST else prefix
    ends = {total.key.rpartition(".")[2] for _, total in counts}
    over = f"{star}.{ends.pop()}" if len(ends) == 1 and not any("+" in total.key for _, total in counts) else f"{star}.passed+{star}.failed"
    passed = Number(sum(number.value for number, _ in counts), source, f"{star}.passed")
    total = Number(sum(number.value for _, number in counts), source, over)
    if not math.isfinite(total.value):
        payload.refuse(source, over, "not finite")
        return True, None
    return True, (passed, total)
