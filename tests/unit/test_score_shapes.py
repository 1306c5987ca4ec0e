"""Every shape in which the verifiers of a public benchmark write their scores, as really written, and what is read from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marathond.core.score import EXTRACTOR, Fact, Number, Refusal, ScoreReading, Words, read_score

METRICS = "metrics.json"


def read(metrics: Any = None, *, reward: Any = "0\n", exited: bool = True, unread: tuple[Refusal, ...] = (), **files: Any) -> ScoreReading:
    """``reward``: of reward.txt.  Further files by name without ``.json``; tables become JSON."""
    given = {METRICS: metrics, "reward.txt": reward, **{f"{name}.json": content for name, content in files.items()}}
    payload = {
        name: (content if isinstance(content, str) else json.dumps(content)).encode()
        for name, content in given.items()
        if content is not None
    }
    return read_score(payload, verifier_exited=exited, unread=unread)


def value(number: Number | None) -> float | None:
    return None if number is None else number.value


def columns(reading: ScoreReading) -> tuple[float | None, ...]:
    """Reward, partial, passed, total, rate."""
    numbers = (reading.reward, reading.partial, reading.tests_passed, reading.tests_total, reading.rate)
    return tuple(value(number) for number in numbers)


def named(reading: ScoreReading, prefix: str) -> dict[str, Any]:
    return {name: part.value for name, part in reading.named.items() if name.startswith(prefix)}


def why(reading: ScoreReading, source: str, key: str) -> str:
    found = [refusal.why for refusal in reading.refusals if (refusal.source, refusal.key) == (source, key)]
    assert len(found) == 1, reading.refusals
    return found[0]


def ctrf(passed: int, failed: int, **more: Any) -> dict[str, Any]:
    summary = {"tests": passed + failed, "passed": passed, "failed": failed, "skipped": 0, "start": 1, "stop": 2, **more}
    return {"results": {"tool": {"name": "pytest"}, "summary": summary, "tests": [{"name": "a", "status": "passed", "duration": 12}]}}


STRIPE = {
    "health": True,
    **{f"{gate}_gate": gate not in ("refunds", "webhooks") for gate in ("auth", "charges", "customers", "refunds", "webhooks")},
    "gates_passed": 3,
    "gates_total": 5,
    "partial_score": 0.6,
    "pytest": {
        "auth": {"passed": 10, "failed": 0, "total": 10},
        "charges": {"passed": 20, "failed": 0, "total": 20},
        "customers": {"passed": 5, "failed": 0, "total": 5},
        "refunds": {"error": "collection failed: ImportError"},
        "webhooks": {},
    },
    "tests_passed": 35,
    "tests_failed": 4,
    "tests_total": 39,
    "reward": 0,
}


def test_gates_a_table_of_tests_and_counts() -> None:
    reading = read(STRIPE)
    assert columns(reading) == (0, 0.6, 35, 39, 35 / 39)
    assert (reading.partial, reading.tests_total) == (Number(0.6, METRICS, "partial_score"), Number(39, METRICS, "tests_total"))
    assert reading.rate == Number(35 / 39, METRICS, "tests_passed/tests_total")
    assert named(reading, "gate:") == {
        "gate:auth": True,
        "gate:charges": True,
        "gate:customers": True,
        "gate:refunds": False,
        "gate:webhooks": False,
    }
    assert (reading.named["gates_passed"], reading.named["gates_total"]) == (
        Number(3, METRICS, "gates_passed"),
        Number(5, METRICS, "gates_total"),
    )
    assert reading.named["gate:refunds"] == Fact(False, METRICS, "refunds_gate")
    assert reading.named["tests:auth.passed"] == Number(10, METRICS, "pytest.auth.passed")
    assert reading.named["tests:refunds.error"] == Words("collection failed: ImportError", METRICS, "pytest.refunds")
    assert reading.named["tests:webhooks"] == Words("reported nothing", METRICS, "pytest.webhooks")
    assert reading.flags == ()


@pytest.mark.parametrize("stage", ["start_sh_missing", "health_timeout"])
def test_d07_an_early_exit_with_booleans_as_strings(stage: str) -> None:
    reading = read({"partial_score": 0.0, "reward": 0, "health": "false", "stage": stage})
    assert columns(reading) == (0, 0, None, None, None)
    assert reading.flags == (f"early_exit:{stage}",)
    assert reading.parts["metrics.json:health"] == Fact(False, METRICS, "health")
    assert reading.named == {"early_exit": Words(stage, METRICS, "stage")}


def test_a_partial_score_per_test_beside_gates() -> None:
    ruby = {"health": "true", "anti_cheat": True, "gates_passed": 4, "gates_total": 6, "tests_passed": 311, "tests_total": 400}
    reading = read(ruby | {"partial_score": 0.7775, "reward": 0})
    assert columns(reading) == (0, 0.7775, 311, 400, 0.7775)
    assert reading.parts["metrics.json:anti_cheat"] == Fact(True, METRICS, "anti_cheat")


def test_d07_an_early_exit_shifted_by_one_is_refused_whole_and_the_reward_file_stands() -> None:
    reading = read('{"-":"health","false":"stage","decrypt":null}', ctrf=ctrf(5, 0))
    assert columns(reading) == (0, None, None, None, None)
    assert reading.flags == ("malformed_early_exit",)
    assert "shifted by one" in why(reading, METRICS, "-")
    assert "metrics.json comes first" in why(reading, "ctrf.json", "results.summary")


UX = {
    "reward": 0,
    "scoring_mode": "binary",
    "correctness_reward": 1,
    "unit_tests_score": 0.93,
    "ux_reward": 0,
    "cua_rubric_score": 0.4,
    "partial_score": 0.665,
    "partial_score_formula": "0.5 * unit_tests_score + 0.5 * cua_rubric_score",
}


def test_two_stages_in_the_newer_form() -> None:
    reading = read(UX)
    assert columns(reading) == (0, 0.665, None, None, None)
    assert named(reading, "stage:") == {
        "stage:correctness": 1,
        "stage:ux": 0,
        "stage:unit_tests": 0.93,
        "stage:cua_rubric": 0.4,
    }
    assert reading.named["partial_score_formula"].value == UX["partial_score_formula"]
    assert reading.named["scoring_mode"].value == "binary"


def test_stages_of_reward_json_alone() -> None:
    payload = {"reward.json": b'{"reward": 1, "correctness": 1.0, "ux": 0.55}'}
    reading = read_score(payload, verifier_exited=True)
    assert reading.reward == Number(1, "reward.json", "reward")
    assert reading.named == {"stage:correctness": Number(1, "reward.json", "correctness"), "stage:ux": Number(0.55, "reward.json", "ux")}


def test_d02_a_broken_ux_grader_deletes_the_reward_files_and_nothing_steps_in() -> None:
    reading = read(UX, reward=None)
    assert columns(reading) == (None, 0.665, None, None, None)
    assert reading.flags == ("reward_only_in_metrics",)
    assert why(reading, "", "reward") == "neither reward.json nor reward.txt was written"


def test_two_stages_in_the_older_form() -> None:
    stages = {"correctness": {"rewards": {"reward": 1.0, "partial_score": 0.95}}, "ux": {"rewards": {"reward": 0.0}, "error": "no page"}}
    reading = read(None, stages=stages)
    assert named(reading, "stage:") == {
        "stage:correctness": 1,
        "stage:correctness.partial_score": 0.95,
        "stage:ux": 0,
        "stage:ux.error": "no page",
    }
    assert reading.named["stage:correctness.partial_score"] == Number(0.95, "stages.json", "correctness.rewards.partial_score")
    assert columns(reading) == (0, None, None, None, None), "a stage's reward is not the trial's"


def test_a_setup_that_failed() -> None:
    reading = read({"setup": False, "setup_error": "npm ci: exit 1", "reward": 0})
    assert columns(reading) == (0, None, None, None, None)
    assert reading.flags == ("setup_error",)
    assert reading.named["setup_error"] == Words("npm ci: exit 1", METRICS, "setup_error")
    assert read({"setup": True, "setup_error": "false", "reward": 0}).flags == ()
    assert read({"setup": True, "setup_error": None, "reward": 0}).flags == ()


S3_GATES = {f"g{number:02}": number < 16 for number in range(22)}
S3_TESTS = {gate: (41, 0) if passed else (37, 10) for gate, passed in S3_GATES.items()}


def test_d04_gates_stages_and_tests_say_why_partial_zero_stands_beside_green_tests() -> None:
    """Two binary stages overwrite the partial score: 22 gates, 16 passed, most tests green, partial 0.0."""
    table = {gate: {"passed": passed, "failed": failed, "total": passed + failed} for gate, (passed, failed) in S3_TESTS.items()}
    metrics = {
        **{f"{gate}_gate": passed for gate, passed in S3_GATES.items()},
        "gates_passed": 16,
        "gates_total": 22,
        "pytest": table,
        "correctness_reward": 0,
        "ux_reward": 0,
        "partial_score": 0.0,
        "reward": 0,
    }
    stages = {"correctness": {"rewards": {"reward": 0, "partial_score": 0.727}}, "ux": {"rewards": {"reward": 0}}}
    reading = read(metrics, stages=stages)
    passed, total = 16 * 41 + 6 * 37, 16 * 41 + 6 * 47
    assert columns(reading) == (0, 0, passed, total, passed / total)
    assert reading.tests_passed == Number(passed, METRICS, "pytest.*.passed")
    assert reading.tests_total == Number(total, METRICS, "pytest.*.total")
    assert sum(named(reading, "gate:").values()) == 16
    assert named(reading, "stage:") == {"stage:correctness": 0, "stage:ux": 0, "stage:correctness.partial_score": 0.727}
    assert named(reading, "tests:g16") == {"tests:g16.passed": 37, "tests:g16.failed": 10, "tests:g16.total": 47}
    assert reading.flags == (), "no flag cries over what the parts explain"


def test_d04_no_sum_over_gates_of_which_some_tell_nothing() -> None:
    table = {"a": {"passed": 9, "failed": 1}, "b": {"error": "timeout"}, "c": {}}
    reading = read({"pytest": table, "partial_score": 0.0})
    assert columns(reading) == (0, 0, None, None, None)
    assert "gates_without_tests" in reading.flags
    assert why(reading, METRICS, "pytest.*") == "no sum: 2 of 3 gates tell no counts that can be read: b, c"
    assert named(reading, "tests:a") == {"tests:a.passed": 9, "tests:a.failed": 1, "tests:a.total": 10}


def test_d03_a_rate_beside_counts_and_lists() -> None:
    embedding = {"partial_score": 0.75, "pass_rate": 0.75, "passed": 3, "total": 4, "failed_tasks": ["x"], "missing_tasks": []}
    reading = read(embedding)
    assert columns(reading) == (0, 0.75, 3, 4, 0.75)
    assert reading.rate == Number(0.75, METRICS, "pass_rate")
    assert reading.flags == ()
    assert read(embedding | {"pass_rate": 0.5}).flags == ("test_rate_disagrees",)
    assert read({"pass_rate": 0.88, "passed": 877, "total": 1000}).flags == (), "rounded to two decimals it is the same"


def test_d03_other_names_of_counts() -> None:
    assert columns(read({"total_passed": 90, "total_tests": 100, "partial_score": 0.9})) == (0, 0.9, 90, 100, 0.9)
    assert columns(read({"new_passed": 1, "new_total": 4})) == (0, None, 1, 4, 0.25)
    assert columns(read({"pass_rate": 0.31})) == (0, None, None, None, 0.31)
    reading = read({"passed": 30, "failed": 10, "phase": "done"})
    assert columns(reading) == (0, None, 30, 40, 0.75)
    assert reading.rate == Number(0.75, METRICS, "passed/passed+failed")


def test_d05_a_failed_build_is_a_flag_and_a_score() -> None:
    reading = read({"phase": "build_failed", "partial_score": 0.0, "passed": 0, "failed": 0, "error": "error[E0432]: unresolved import"})
    assert columns(reading) == (0, 0, 0, 0, None)
    assert reading.flags == ("build_failed", "no_tests")
    assert reading.named["phase"] == Words("build_failed", METRICS, "phase")
    assert reading.refusals == ()


@pytest.mark.parametrize("txt", ["0", None])
def test_d01_a_payload_that_is_only_initialized_is_no_score(txt: str | None) -> None:
    reading = read({"phase": "initialized", "partial_score": 0.0, "passed": 0, "failed": 0}, reward=txt)
    assert columns(reading) == (None,) * 5
    assert "initialized" in reading.flags
    assert "had not begun" in why(reading, METRICS, "phase")


@pytest.mark.parametrize("strict", [True, 1, "true"])
def test_a_strict_binary_score(strict: Any) -> None:
    reading = read({"binary_strict": strict, "partial_score": 0.81, "reward": 1}, reward="1")
    assert columns(reading) == (1, 0.81, None, None, None)
    assert reading.named["binary_strict"].value == 1


def test_d03_counts_of_one_report_for_all() -> None:
    reading = read({"partial_score": 0.5}, ctrf=ctrf(7, 3))
    assert columns(reading) == (0, 0.5, 7, 10, 0.7)
    assert reading.tests_total == Number(10, "ctrf.json", "results.summary.tests")
    assert reading.parts["ctrf.json:results.summary.failed"] == Number(3, "ctrf.json", "results.summary.failed")
    assert not any("duration" in name for name in reading.parts), "rows of single tests are no parts"


def test_d03_counts_of_a_report_for_each_gate() -> None:
    reading = read(None, auth_ctrf=ctrf(8, 2), upload_pytest=ctrf(5, 0), list_ctrf={"results": {"summary": {"passed": 1, "failed": 1}}})
    assert columns(reading) == (0, None, 14, 17, 14 / 17)
    assert reading.tests_passed == Number(14, "*_ctrf.json+*_pytest.json", "results.summary.passed")
    assert reading.named["tests:auth.total"] == Number(10, "auth_ctrf.json", "results.summary.tests")
    assert reading.named["tests:list.total"] == Number(2, "list_ctrf.json", "results.summary.passed+results.summary.failed")


def test_d03_counts_are_never_of_two_sources() -> None:
    beside = {"ctrf": ctrf(1, 99), "auth_ctrf": ctrf(8, 2)}
    assert columns(read({"tests_passed": 3, "tests_total": 4}, **beside))[2:4] == (3, 4)
    assert columns(read({"pytest": {"a": {"passed": 3, "total": 4}}}, **beside))[2:4] == (3, 4)
    assert columns(read({"pass_rate": 0.5}, **beside))[2:] == (None, None, 0.5)
    assert columns(read({"tests_passed": 5, "tests_total": 4}, **beside))[2:4] == (None, None), "a broken pair is no reason to look on"
    assert columns(read({"pytest": {"a": {}}}, **beside))[2:4] == (1, 100), "a table that tells no count is none"
    assert columns(read(None, **beside))[2:4] == (1, 100)
    assert columns(read("{", **beside))[2:4] == (None, None)
    assert columns(read(None, ctrf="{", auth_ctrf=ctrf(8, 2)))[2:4] == (None, None)


def test_two_reports_of_one_gate_count_once() -> None:
    reading = read(None, auth_ctrf=ctrf(8, 2), auth_pytest=ctrf(8, 2))
    assert (columns(reading)[2:4], reading.flags) == ((8, 10), ())
    reading = read(None, auth_ctrf=ctrf(8, 2), auth_pytest=ctrf(9, 1))
    assert (columns(reading)[2:4], reading.flags) == ((8, 10), ("test_files_disagree",))


@pytest.mark.parametrize(
    ("report", "key", "words"),
    [
        ({"results": {}}, "results.summary", "missing"),
        ({"results": {"summary": [1]}}, "results.summary", "not an object"),
        ({"results": {"summary": {"passed": 3, "tests": 2}}}, "results.summary.passed", "more than results.summary.tests"),
        ({"results": {"summary": {"passed": "3", "tests": 4}}}, "results.summary.passed", "text, not a number: '3'"),
        ({"results": {"summary": {"passed": True, "tests": 4}}}, "results.summary.passed", "boolean"),
        ('{"results": {"summary": {"passed": NaN, "tests": 4}}}', "results.summary.passed", "not finite"),
        ([1], "", "not an object"),
    ],
)
def test_d09_a_report_that_cannot_be_is_refused_by_name_and_spoils_the_sum(report: Any, key: str, words: str) -> None:
    for other in ({}, {"b_ctrf": ctrf(5, 0)}):
        reading = read(None, a_ctrf=report, **other)
        assert words in why(reading, "a_ctrf.json", key)
        assert columns(reading)[2:] == (None, None, None)
    assert words in why(read(None, ctrf=report), "ctrf.json", key)


def test_d09_sums_beyond_any_number_are_refused() -> None:
    huge = {"a": {"passed": 1e308, "total": 1.7e308}, "b": {"passed": 1e308, "total": 1.7e308}}
    reading = read({"pytest": huge})
    assert columns(reading)[2:] == (None, None, None)
    assert why(reading, METRICS, "pytest.*.total") == "not finite"
    assert columns(read({"passed": 1.7e308, "failed": 1.7e308}))[2:] == (None, None, None)


def test_files_that_were_not_handed_over_decide_nothing() -> None:
    link = Refusal("metrics.json", "", "metrics.json is a symbolic link (unsafe_path)")
    reading = read(None, unread=(link,), ctrf=ctrf(7, 3))
    assert columns(reading) == (0, None, None, None, None)
    assert reading.refusals[0] == link
    for name in ("reward.json", "reward.txt"):
        reading = read(None, reward="1", unread=(Refusal(name, "", "too large"),))
        assert reading.reward is None, name
        assert not any(refusal.why.startswith("neither") for refusal in reading.refusals)


def test_words_of_an_agent_are_bounded_and_harmless() -> None:
    reading = read({"setup_error": "\x1b[31m" + "x" * 10_000, "pytest": {"\x1b[2Jg": {"error": {"a": "\x1b[31m" + "y" * 9_000}}}})
    assert all(len(part.value) <= 200 and "\x1b" not in part.value for part in reading.named.values() if isinstance(part, Words))
    assert all("\x1b" not in name and len(name) < 100 for name in reading.named)


def test_no_payload_makes_endless_lists() -> None:
    reading = read(json.dumps({f"g{n}_gate": True for n in range(5_000)}))
    assert len(reading.named) == 400 and len(reading.parts) == 200
    assert reading.flags == ("parts_truncated",)
    reading = read(json.dumps({f"n{number}": float("nan") for number in range(5_000)}))
    assert len(reading.refusals) == 200
    assert reading.flags == ("refusals_truncated",)
    assert reading.reward == Number(0, "reward.txt", "")


def test_a_table_of_too_many_gates_is_refused_whole() -> None:
    reading = read({"pytest": {f"g{n}": {"passed": 1, "total": 1} for n in range(1_001)}}, ctrf=ctrf(1, 0))
    assert columns(reading)[2:] == (None, None, None)
    assert why(reading, METRICS, "pytest") == "1001 gates: at most 1000 are read"


def test_the_rules_have_a_version_of_their_own() -> None:
    assert EXTRACTOR == 2
