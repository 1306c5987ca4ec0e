"""What verifiers really write, and what is read from it: numbers that know their source, refusals by name, never a guess."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.score import Fact, Number, Refusal, ScoreReading, parts, read_score


def read(metrics: Any = None, *, txt: str | bytes | None = "0\n", exited: bool = True, **more: Any) -> ScoreReading:
    """Files by content: dicts become JSON; keyword ``reward`` stands for reward.json and ``stages`` for stages.json."""
    files: dict[str, bytes] = {}
    for name, content in (
        ("metrics.json", metrics),
        ("reward.txt", txt),
        ("reward.json", more.get("reward")),
        ("stages.json", more.get("stages")),
    ):
        if content is not None:
            text = content if isinstance(content, str | bytes) else json.dumps(content)
            files[name] = text if isinstance(text, bytes) else text.encode()
    return read_score(files, verifier_exited=exited)


def why(reading: ScoreReading, source: str, key: str) -> str:
    found = [refusal.why for refusal in reading.refusals if (refusal.source, refusal.key) == (source, key)]
    assert len(found) == 1, reading.refusals
    return found[0]


@pytest.mark.parametrize(("text", "value"), [("1.0\n", 1.0), ("0", 0.0), (" .674 ", 0.674), ("1e-1", 0.1), ("+1", 1.0), ("1.", 1.0)])
def test_a_reward_text_that_is_valid(text: str, value: float) -> None:
    assert read(txt=text).reward == Number(value, "reward.txt", "")


def test_a_negative_zero_is_a_zero() -> None:
    assert str(getattr(read(txt="-0.0").reward, "value", None)) == "0.0"
    assert str(getattr(read({"partial_score": -0.0}).partial, "value", None)) == "0.0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("true", "a boolean is not a number"),
        ("True\n", "a boolean is not a number"),
        ("nan", "not finite"),
        ("-inf", "not finite"),
        ("1" + "0" * 400, "not finite"),
        ("1.5", "above 1: 1.5"),
        ("-0.1", "below 0: -0.1"),
        ("", "empty"),
        ("\n", "empty"),
        ("1\n0\n", "not a number"),
        ("1_0", "not a number"),
        ("0x1", "not a number"),
        ("١", "not a number"),
        ("pass\x1b[31m", "'pass'"),
        (b"\xff", "not UTF-8 at byte 0"),
    ],
)
def test_d09_a_reward_text_that_is_no_score_is_refused_by_name(text: str | bytes, words: str) -> None:
    reading = read(txt=text)
    assert reading.reward is None
    assert words in why(reading, "reward.txt", "")


@pytest.mark.parametrize(
    ("payload", "key", "words"),
    [
        ({"reward": True}, "reward", "a boolean is not a number"),
        ({"reward": 1.01}, "reward", "above 1: 1.01"),
        ({"reward": "1"}, "reward", "text, not a number: '1'"),
        ({"reward": None}, "reward", "null"),
        ({"reward": [1]}, "reward", "not a number"),
        ('{"reward": NaN}', "reward", "not finite"),
        ('{"reward": 1e999}', "reward", "not finite"),
        ('{"reward": 1' + "0" * 400 + "}", "reward", "not finite"),
        ('{"reward": 1' + "0" * 5000 + "}", "", "no valid JSON"),
        ({"correctness": 1}, "reward", "missing"),
        ('{"reward": 1, "reward": 0}', "", "the key reward appears twice"),
        ("1.0", "", "not an object"),
        ("", "", "empty"),
        ('{"reward": 1', "", "no valid JSON"),
        ("[" * 100_000, "", "nested too deeply"),
    ],
)
def test_d09_a_reward_json_that_is_no_score_is_refused_and_the_text_file_does_not_step_in(payload: Any, key: str, words: str) -> None:
    reading = read(reward=payload, txt="1")
    assert reading.reward is None
    assert words in why(reading, "reward.json", key)


def test_reward_json_beats_reward_txt_and_a_disagreement_is_flagged() -> None:
    reading = read(reward={"reward": 1, "correctness": 1.0, "ux": 0.5}, txt="0")
    assert reading.reward == Number(1.0, "reward.json", "reward")
    assert reading.parts["reward.json:ux"] == Number(0.5, "reward.json", "ux")
    assert reading.flags == ("reward_files_disagree",)
    assert read(reward={"reward": 1}, txt="1.0").flags == ()


def test_d01_an_initialized_payload_is_no_score() -> None:
    reading = read({"phase": "initialized", "partial_score": 0.0, "passed": 0, "total": 3}, txt="0")
    assert (reading.reward, reading.partial, reading.tests_passed, reading.tests_total) == (None, None, None, None)
    assert "initialized" in reading.flags
    assert "had not begun" in why(reading, "metrics.json", "phase")


@pytest.mark.parametrize("phase", ["Initialized", " INITIALIZED\n"])
def test_d01_initialized_is_no_score_however_it_is_spelled(phase: str) -> None:
    reading = read({"phase": phase, "partial_score": 0.0}, txt="0")
    assert (reading.reward, reading.partial) == (None, None) and "initialized" in reading.flags


def test_an_early_exit_whose_stage_cannot_be_shown_still_has_a_name() -> None:
    assert read({"stage": "\x00\x07"}).flags == ("early_exit:(unprintable)",)


def test_d01_files_of_a_verifier_that_did_not_end_are_no_score() -> None:
    reading = read({"partial_score": 0.4, "pass_rate": 0.5}, txt="1", exited=False)
    assert (reading.reward, reading.partial, reading.test_rate) == (None, None, None)
    assert "verifier_unfinished" in reading.flags
    assert why(reading, "", "") == "the verifier has not finished"


def test_d02_no_reward_file_is_none_with_a_reason_and_never_zero() -> None:
    assert read(txt=None) == ScoreReading(refusals=(Refusal("", "reward", "neither reward.json nor reward.txt was written"),))
    reading = read({"reward": 1.0, "partial_score": 1.0}, txt=None)
    assert reading.reward is None
    assert reading.partial == Number(1.0, "metrics.json", "partial_score")
    assert reading.parts["metrics.json:reward"] == Number(1.0, "metrics.json", "reward")
    assert reading.flags == ("reward_only_in_metrics",)


@pytest.mark.parametrize(("reward", "partial"), [("0", 1.0), ("1", 0.98)])
def test_reward_and_partial_do_not_speak_for_each_other(reward: str, partial: float) -> None:
    reading = read({"partial_score": partial}, txt=reward)
    assert reading.reward == Number(float(reward), "reward.txt", "")
    assert reading.partial == Number(partial, "metrics.json", "partial_score")
    assert read({}, txt=reward).partial is None


@pytest.mark.parametrize(
    ("metrics", "passed", "total"),
    [
        ({"tests_passed": 3, "tests_total": 4, "tests_failed": 1}, (3, "tests_passed"), (4, "tests_total")),
        ({"total_passed": 3, "total_tests": 4}, (3, "total_passed"), (4, "total_tests")),
        ({"new_passed": 3.0, "new_total": 4}, (3, "new_passed"), (4, "new_total")),
        ({"passed": 3, "total": 4}, (3, "passed"), (4, "total")),
        ({"passed": 3, "failed": 1}, (3, "passed"), (4, "passed+failed")),
        ({"tests_passed": 3, "tests_failed": 1}, (3, "tests_passed"), (4, "tests_passed+tests_failed")),
    ],
)
def test_d03_every_way_to_write_counts_is_read_with_its_keys(
    metrics: dict[str, Any], passed: tuple[float, str], total: tuple[float, str]
) -> None:
    reading = read(metrics)
    assert reading.tests_passed == Number(passed[0], "metrics.json", passed[1])
    assert reading.tests_total == Number(total[0], "metrics.json", total[1])
    assert reading.test_rate is None


def test_d03_only_a_pass_rate_or_gates() -> None:
    assert read({"pass_rate": 0.877}).test_rate == Number(0.877, "metrics.json", "pass_rate")
    reading = read({"gates_passed": 16, "gates_total": 22, "login_gate": True, "pytest": {"login": {"passed": 2, "total": 2}, "x": {}}})
    assert (reading.tests_passed, reading.test_rate) == (None, None)
    assert reading.parts["metrics.json:gates_passed"] == Number(16.0, "metrics.json", "gates_passed")
    assert reading.parts["metrics.json:login_gate"] == Fact(True, "metrics.json", "login_gate")
    assert reading.parts["metrics.json:pytest.login.passed"] == Number(2.0, "metrics.json", "pytest.login.passed")


@pytest.mark.parametrize(
    ("metrics", "key", "words"),
    [
        ({"passed": 5, "total": 4}, "passed", "more than total"),
        ({"passed": -1, "total": 4}, "passed", "negative"),
        ({"passed": 1.5, "total": 4}, "passed", "not whole"),
        ({"passed": True, "total": 4}, "passed", "boolean"),
        ({"passed": 1, "total": "4"}, "total", "text"),
        ({"pass_rate": 87.7}, "pass_rate", "above 1: 87.7"),
        ({"partial_score": True}, "partial_score", "boolean"),
        ('{"partial_score": NaN}', "partial_score", "not finite"),
        ('{"cost": Infinity}', "cost", "not finite"),
    ],
)
def test_d09_numbers_of_metrics_that_cannot_be_are_refused(metrics: Any, key: str, words: str) -> None:
    reading = read(metrics)
    assert words in why(reading, "metrics.json", key)
    assert (reading.tests_passed, reading.test_rate, reading.partial) == (None, None, None)
    assert reading.reward == Number(0.0, "reward.txt", "")


def test_d07_booleans_as_text_are_coerced_and_an_early_exit_is_flagged() -> None:
    reading = read({"partial_score": 0.0, "reward": 0, "health": "false", "stage": "start_sh_missing"})
    assert reading.parts["metrics.json:health"] == Fact(False, "metrics.json", "health")
    assert reading.flags == ("early_exit:start_sh_missing",)
    assert reading.partial == Number(0.0, "metrics.json", "partial_score")


def test_d07_a_bare_decimal_is_completed_and_flagged() -> None:
    reading = read('{"partial_score": .674, "note": "a .5 here", "delta": -.25}')
    assert reading.partial == Number(0.674, "metrics.json", "partial_score")
    assert reading.parts["metrics.json:delta"] == Number(-0.25, "metrics.json", "delta")
    assert reading.flags == ("repaired:metrics.json",)
    assert why(read(".674"), "metrics.json", "") == "not an object"
    assert "no valid JSON" in why(read('{"partial_score": 1.2.674}'), "metrics.json", "")


@pytest.mark.parametrize("hostile", ['\\"' * 40_000, '{"a": "' + '\\"' * 40_000, '"' * 80_001, '{"a": .5, "b": ' + '.5 "' * 20_000])
def test_a_text_of_nothing_but_quotes_is_refused_in_linear_time(hostile: str) -> None:
    """An agent's process may write beside its verifier: minutes over one file would hold up the whole daemon."""
    began = time.process_time()
    reading = read(hostile, txt=hostile)
    assert time.process_time() - began < 5.0
    assert reading.partial is None and "no valid JSON" in why(reading, "metrics.json", "")
    assert reading.reward is None


def test_a_text_larger_than_any_payload_is_not_repaired() -> None:
    assert "repaired:metrics.json" in read('{"partial_score": .5}').flags
    large = read('{"partial_score": .5, "log": "' + "x" * (1 << 20) + '"}')
    assert large.partial is None and "no valid JSON" in why(large, "metrics.json", "")


def test_a_million_keys_that_tell_nothing_cost_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    shown = parts._shown

    def noted(key: str) -> str:
        named.append(key)
        return shown(key)

    monkeypatch.setattr(parts, "_shown", noted)
    many: dict[str, object] = {f"k{n}_gate": ["", [], {}, None, "x", float("nan")][n % 6] for n in range(5_000)}
    assert read(many, reward={**many, "reward": 1}).reward == Number(1.0, "reward.json", "reward")
    assert len(named) < 100


def test_d07_a_payload_shifted_by_one_is_refused_whole() -> None:
    reading = read('{"-":"health","false":"stage","decrypt":null,"partial_score":1.0,"passed":1,"total":1}')
    assert (reading.partial, reading.tests_passed, dict(reading.parts)) == (None, None, {})
    assert "shifted by one" in why(reading, "metrics.json", "-")
    assert reading.flags == ("malformed_early_exit",)
    assert reading.reward == Number(0.0, "reward.txt", "")


def test_flags_of_a_failed_build_a_failed_setup_and_a_contradiction() -> None:
    assert read({"phase": "build_failed", "passed": 0, "failed": 0}).flags == ("build_failed", "no_tests")
    assert read({"setup": False, "setup_error": "npm"}).flags == ("setup_error",)
    assert read({"reward": 1}, txt="0").flags == ("metrics_reward_disagrees",)


def test_an_older_stages_file_gives_parts() -> None:
    reading = read(stages={"correctness": {"rewards": {"reward": 1.0}}, "ux": {"rewards": {"reward": 0.4}}})
    assert reading.parts["stages.json:ux.rewards.reward"] == Number(0.4, "stages.json", "ux.rewards.reward")


def test_agent_written_words_are_bounded_and_harmless() -> None:
    reading = read({"stage": "\x1b[31m" + "x" * 1000, "k\x1b[2J" + "y" * 1000: 1, **{f"n{number}": number for number in range(500)}})
    assert reading.flags[0].startswith("early_exit:xxx") and len(reading.flags[0]) < 100
    assert "parts_truncated" in reading.flags
    assert all("\x1b" not in key and len(key) < 100 for key in reading.parts)


PAYLOAD = {
    "phase": "done",
    "partial_score": 0.625,
    "pass_rate": 0.8125,
    "tests_passed": 13,
    "tests_failed": 3,
    "tests_total": 16,
    "passed": 7,
    "total": 9,
    "health": "true",
    "reward": 0.25,
    "gates": {"a": {"passed": 2, "total": 5}},
}
TOKENS = re.compile(r"(?<![\d.eE])-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def held(files: dict[str, bytes]) -> set[float]:
    """Every number that any suffix of any digit run in the files can spell: what a payload may honestly be said to hold."""
    text = "\n".join(data.decode(errors="replace") for data in files.values())
    return {float(token) for token in TOKENS.findall(text)}


@st.composite
def spoiled(draw: st.DrawFn) -> dict[str, bytes]:
    """The payload shuffled, some keys dropped or exchanged, then cut off or with bytes changed."""
    keys = draw(st.permutations(sorted(PAYLOAD)))[draw(st.integers(0, 4)) :]
    table = dict(zip(keys, [PAYLOAD[key] for key in (draw(st.permutations(keys)) if draw(st.booleans()) else keys)], strict=True))
    files = {"metrics.json": json.dumps(table).encode(), "reward.json": b'{"reward": 0.75, "ux": 0.5}', "reward.txt": b"0.75\n"}
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=3)):
        data = bytearray(files.get(name, b""))
        match draw(st.integers(0, 2)):
            case 0:
                files.pop(name, None)
            case 1:
                files[name] = bytes(data[: draw(st.integers(0, len(data)))])
            case _ if data:
                data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b'0123456789.,:"{}[]-+eE tfn\xff'))
                files[name] = bytes(data)
    return files


@settings(max_examples=200, deadline=None)
@given(files=spoiled(), exited=st.booleans())
def test_no_number_is_ever_invented(files: dict[str, bytes], exited: bool) -> None:
    reading = read_score(files, verifier_exited=exited)
    numbers = held(files)
    single = [reading.reward, reading.partial, reading.test_rate, reading.tests_passed]
    for number in [*single, *(part for part in reading.parts.values() if isinstance(part, Number))]:
        assert number is None or number.value in numbers
    if (total := reading.tests_total) is not None:
        assert total.value in numbers if "+" not in total.key else any(total.value - number in numbers for number in numbers)
        assert reading.tests_passed is not None and reading.tests_passed.value <= total.value
    for share in (reading.reward, reading.partial, reading.test_rate):
        assert share is None or 0 <= share.value <= 1
    assert reading.reward is not None or reading.refusals
    assert exited or reading.reward is None
