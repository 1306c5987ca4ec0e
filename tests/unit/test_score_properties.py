"""Payloads shuffled, truncated and mutated: never a number that they do not hold, never an exception, the same answer every time."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.score import COLUMNS, Fact, Number, ScoreReading, parse, read_score
from marathond.core.score.payload import Payload
from marathond.flow.score_row import score_row

PROFILE = settings(max_examples=150, deadline=None)

SUMMARY = {
    "results": {"summary": {"tests": 21, "passed": 17, "failed": 4, "start": 1717000000, "stop": 1717000009}, "tests": [{"n": 1000}]}
}
DOCUMENTS: dict[str, Any] = {
    "metrics.json": {
        "phase": "done",
        "partial_score": 0.625,
        "pass_rate": 0.8125,
        "tests_passed": 13,
        "tests_failed": 3,
        "tests_total": 16,
        "passed": 7,
        "total": 9,
        "health": "true",
        "note": "reward 0.999, 88 of 99 passed",
        "reward": "0.333",
        "login_gate": True,
        "list_gate": "false",
        "gates_passed": 6,
        "gates_total": 12,
        "ux_reward": 0.375,
        "pytest": {"a": {"passed": 2, "total": 5}, "b": {"passed": 8, "failed": 0}, "c": {}, "d": {"error": "took 777 s"}},
    },
    "reward.json": {"reward": 0.75, "correctness": 1, "ux": 0.5},
    "stages.json": {"correctness": {"rewards": {"reward": 1, "cases": 31}}, "ux": {"error": "no 444"}},
    "ctrf.json": SUMMARY,
    "a_ctrf.json": {"results": {"summary": {"tests": 11, "passed": 10}}},
    "b_pytest.json": {"results": {"summary": {"passed": 22, "failed": 33}}},
    "extra.json": {"final": [{"score": 0.28125}, {"score": "0.555"}], "n": 41, "m": 43},
}
RULES = {
    "reward": parse("extra.json:final[0].score"),
    "partial": parse("extra.json:final[1].score"),
    "test_rate": parse("metrics.json:pass_rate"),
    "tests_passed": parse("extra.json:n"),
    "tests_total": parse("extra.json:m"),
}
STRINGS_OR_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\d.eE])-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?')


def shuffled(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(draw, value[key]) for key in draw(st.permutations(sorted(value)))}
    return [shuffled(draw, item) for item in value] if isinstance(value, list) else value


def test_of_a_report_its_summary_alone_is_kept_unless_a_rule_asks_for_more() -> None:
    report = {"results": {"summary": {"tests": 4, "passed": 3}, "tests": [{"n": 0.25}]}}
    data = json.dumps(report).encode()
    for name in ("ctrf.json", "a_ctrf.json", "a_pytest.json"):
        assert Payload({name: data}, ()).table(name) == {"results": {"summary": report["results"]["summary"]}}
        assert Payload({name: data}, (), [name]).table(name) == report
        assert Payload({name: b"[]"}, ()).broken(name) and not Payload({name: b"{}"}, ()).broken(name)
    rule = {"partial": parse("ctrf.json:results.tests[0].n")}
    reading = read_score({"ctrf.json": data, "reward.txt": b"0"}, verifier_exited=True, overrides=rule)
    assert reading.partial == Number(0.25, "ctrf.json", "results.tests[0].n")
    assert (reading.tests_passed, reading.tests_total) == (
        Number(3.0, "ctrf.json", "results.summary.passed"),
        Number(4.0, "ctrf.json", "results.summary.tests"),
    )


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, bytes]:
    """Some of the files, keys shuffled, dropped or exchanged, then cut off or with bytes changed."""
    files: dict[str, bytes] = {}
    for name in draw(st.lists(st.sampled_from(sorted(DOCUMENTS)), unique=True)):
        document = shuffled(draw, DOCUMENTS[name])
        for key in draw(st.lists(st.sampled_from(sorted(document)), max_size=3, unique=True)):
            document.pop(key) if draw(st.booleans()) else document.update({key: document[draw(st.sampled_from(sorted(document)))]})
            if not document:
                break
        data = bytearray(json.dumps(document).encode())
        if draw(st.integers(0, 3)) == 0:
            data = data[: draw(st.integers(0, len(data)))]
        for _ in range(draw(st.integers(0, 2)) if data else 0):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b'0123456789.,:"{}[]-+eE tfn\\\xff'))
        files[name] = bytes(data)
    if draw(st.booleans()):
        files["reward.txt"] = draw(st.sampled_from([b"0.75\n", b"1", b"0.", b"nan", b"true", b"", b"0.5 of 1", b"\xff"]))
    return files


rules = st.sampled_from(["none", "some", "all"]).map(
    lambda which: {} if which == "none" else RULES if which == "all" else {key: RULES[key] for key in ("reward", "test_rate")}
)


def numbers_outside_strings(data: bytes) -> set[float]:
    """What a file holds as a number: digits inside quotes are words, also those that look like a score."""
    text = data.decode(errors="replace")
    return {float(found[0]) for found in STRINGS_OR_NUMBERS.finditer(text) if not found[0].startswith('"')}


def summands(number: Number, held: Mapping[str, set[float]]) -> bool:
    """Whether the file (or, of a sum over gates, the files) hold the number, or numbers that add up to it."""
    if "*" in number.source or "*" in number.key:
        known = set[float]().union(*(held[name] for name in held if number.source.startswith("*") or name == number.source))
        return adds_up(number.value, [value for value in known if value >= 0], 5)
    known = held[number.source]
    if "/" in number.key:
        return any(math.isclose(number.value, a / b) for a in known for b in known if b)
    return number.value in known or ("+" in number.key and any(number.value - value in known for value in known))


def adds_up(total: float, values: list[float], most: int) -> bool:
    reach = {0.0}
    for _ in range(most):
        reach |= {have + value for have in reach for value in values if have + value <= total}
    return total in reach


def numbers(reading: ScoreReading) -> Iterator[Number]:
    columns = (reading.reward, reading.partial, reading.test_rate, reading.tests_passed, reading.tests_total)
    yield from (number for number in columns if number is not None)
    yield from (part for part in (*reading.parts.values(), *reading.named.values()) if isinstance(part, Number))


@PROFILE
@given(files=spoiled(), exited=st.booleans(), overrides=rules)
def test_no_number_is_ever_invented(files: dict[str, bytes], exited: bool, overrides: Any) -> None:
    reading = read_score(files, verifier_exited=exited, overrides=overrides)
    held = {name: numbers_outside_strings(data) for name, data in files.items()}
    for number in numbers(reading):
        assert math.isfinite(number.value)
        assert summands(number, held), number
    for share in (reading.reward, reading.partial, reading.test_rate, reading.rate):
        assert share is None or 0 <= share.value <= 1
    assert (reading.tests_passed is None) == (reading.tests_total is None)
    if reading.tests_passed is not None and reading.tests_total is not None:
        assert 0 <= reading.tests_passed.value <= reading.tests_total.value
    assert reading.reward is not None or reading.refusals
    assert exited or reading.reward is None


@PROFILE
@given(files=spoiled(), overrides=rules)
def test_d02_a_reward_is_of_a_reward_file_or_of_its_rule_and_never_a_partial_score(files: dict[str, bytes], overrides: Any) -> None:
    reading = read_score(files, verifier_exited=True, overrides=overrides)
    if reading.reward is not None:
        assert reading.reward.source in (("extra.json",) if "reward" in overrides else ("reward.json", "reward.txt"))
    for column in set(COLUMNS) & set(overrides):
        number = getattr(reading, column)
        assert number is None or (number.source, number.key) == (overrides[column].file, overrides[column].key)


@st.composite
def twice(draw: st.DrawFn) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The same documents with their keys, and their files, in two orders."""
    names = draw(st.lists(st.sampled_from(sorted(DOCUMENTS)), unique=True, min_size=1))
    first, second = (
        {name: json.dumps(shuffled(draw, DOCUMENTS[name])).encode() for name in draw(st.permutations(names))} for _ in range(2)
    )
    return first, second


@PROFILE
@given(pair=twice(), overrides=rules)
def test_the_order_of_keys_and_of_files_says_nothing(pair: tuple[dict[str, bytes], dict[str, bytes]], overrides: Any) -> None:
    readings = [read_score(files, verifier_exited=True, overrides=overrides) for files in (*pair, pair[0])]
    assert readings[0] == readings[1] == readings[2]
    for part in ("parts", "named"):
        assert list(getattr(readings[0], part)) == list(getattr(readings[1], part)), "also what is cut off at a limit"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "passed", "total", "error", "reward", "\ud800"]), inner)
    ),
    max_leaves=12,
)
KEYS = sorted({*DOCUMENTS["metrics.json"], "results", "summary", "setup_error", "stage", "_gate", "-", "a_gate", "rewards", "correctness"})


@PROFILE
@given(
    files=st.dictionaries(
        st.sampled_from([*DOCUMENTS, "reward.txt"]),
        st.binary(max_size=40) | st.dictionaries(st.sampled_from(KEYS), json_values).map(lambda table: json.dumps(table).encode()),
    ),
    overrides=rules,
)
def test_whatever_lies_there_it_is_read_or_refused_and_fits_the_ledger(files: dict[str, bytes], overrides: Any) -> None:
    reading = read_score(files, verifier_exited=True, overrides=overrides)
    row = score_row(reading, reading.reward or Number(0, "reward.txt", ""))
    names = [name for name, _, _ in row.parts]
    assert len(names) == len(set(names)), "the ledger takes a name once"
    kinds = {unicodedata.category(letter) for part in row.parts for text in part for letter in text}
    assert not kinds & {"Cs", "Cc"}, "and no halves of characters"
    assert all(flag.isprintable() for flag in row.flags)
    assert not any(isinstance(part, Fact) and not isinstance(part.value, bool) for part in reading.named.values())
