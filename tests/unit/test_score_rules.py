"""Rules of the configuration for single tasks: how they are written, what they read, and that nothing steps in where they find none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marathond.core.errors import ConfigError
from marathond.core.score import Number, Refusal, ScoreReading, Words, files_of, parse, read_score, rules_from_data
from marathond.flow.score_row import score_row
from marathond.service import effective
from marathond.service.settings import Settings, load, origins
from marathond.service.submission import config_json
from marathond.service.taskpaths import task_folders
from marathond.service.treatment import Change, campaign_treatment, change_of

MINIMAL = """[campaign]
name = "first"
tasks = ["tasks/*"]
[arms.nop]
kind = "nop"
"""


@pytest.mark.parametrize(
    ("text", "file", "steps"),
    [
        ("metrics.json:reward", "metrics.json", ("reward",)),
        ("metrics.json:results.scores[0].value", "metrics.json", ("results", "scores", 0, "value")),
        ("out/summary-1.json:[12].a_b", "out/summary-1.json", (12, "a_b")),
        ('x.json:a["b.c"].d', "x.json", ("a", "b.c", "d")),
        ("x.json:tests passed.of all", "x.json", ("tests passed", "of all")),
        ("x.json:a[0][1]", "x.json", ("a", 0, 1)),
    ],
)
def test_a_rule_that_is_one(text: str, file: str, steps: tuple[str | int, ...]) -> None:
    path = parse(text)
    assert (path.file, path.steps, path.text) == (file, steps, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "metrics.json",
        "metrics.json:",
        ":reward",
        "reward.txt:reward",
        "metrics.json:.reward",
        "metrics.json:a..b",
        "metrics.json:a.",
        "metrics.json:a[-1]",
        "metrics.json:a[01]",
        "metrics.json:a[x]",
        "metrics.json:a[0]b",
        "metrics.json:a[",
        "../metrics.json:reward",
        "a/../metrics.json:reward",
        "/logs/metrics.json:reward",
        "metrics.json:a\nb",
        "metrics.json:" + "a" * 400,
    ],
)
def test_a_rule_that_is_none_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match=r'must be "file\.json:dotted\.path"'):
        parse(text)


def read(rules: dict[str, str], **files: Any) -> ScoreReading:
    payload = {"reward.txt": b"0", **{f"{name}.json": json.dumps(content).encode() for name, content in files.items()}}
    return read_score(payload, verifier_exited=True, overrides={column: parse(text) for column, text in rules.items()})


FINAL = {"final": {"reward": 1, "stages": [{"score": 0.25}, {"score": 0.5}], "passed": 3, "total": 4, "rate": 0.7, "bad": "1", "on": True}}


def test_a_column_is_read_by_its_rule_and_says_so() -> None:
    rules = {"reward": "result.json:final.reward", "partial": "result.json:final.stages[1].score"}
    reading = read(rules, result=FINAL, metrics={"partial_score": 0.1, "reward": 0, "passed": 1, "total": 2})
    assert reading.reward == Number(1, "result.json", "final.reward")
    assert reading.partial == Number(0.5, "result.json", "final.stages[1].score")
    assert reading.tests_passed == Number(1, "metrics.json", "passed"), "a column without a rule is read as everywhere"
    assert reading.parts["metrics.json:partial_score"] == Number(0.1, "metrics.json", "partial_score")
    assert reading.flags == ()
    assert reading.named["rule:reward"] == Words("result.json:final.reward", "configuration", "")
    assert reading.reward is not None
    row = score_row(reading, reading.reward)
    assert (row.reward, row.reward_source, row.partial) == (1, "result.json:final.reward", 0.5)
    assert ("rule:partial", "result.json:final.stages[1].score", "configuration") in row.parts
    assert ("partial", "0.5", "result.json:final.stages[1].score") in row.parts


@pytest.mark.parametrize(
    ("place", "source", "key", "words"),
    [
        ("result.json:final.nothing", "result.json", "final.nothing", "missing, and a rule names it for reward"),
        ("result.json:final.stages[9].score", "result.json", "final.stages[9].score", "missing"),
        ("result.json:final.reward.deeper", "result.json", "final.reward.deeper", "missing"),
        ("other.json:a", "other.json", "a", "no such file, and a rule names it for reward"),
        ("broken.json:a", "broken.json", "a", "cannot be read, and a rule names it for reward"),
        ("result.json:final.bad", "result.json", "final.bad", "text, not a number: '1'"),
        ("result.json:final.on", "result.json", "final.on", "a boolean is not a number"),
        ("result.json:final.passed", "result.json", "final.passed", "above 1: 3"),
        ("result.json:final", "result.json", "final", "not a number"),
    ],
)
def test_a_place_that_is_missing_or_wrong_refuses_its_column_and_nothing_steps_in(place: str, source: str, key: str, words: str) -> None:
    payload = {"reward.txt": b"1", "result.json": json.dumps(FINAL).encode(), "broken.json": b"{"}
    reading = read_score(payload, verifier_exited=True, overrides={"reward": parse(place)})
    assert reading.reward is None
    found = [refusal.why for refusal in reading.refusals if (refusal.source, refusal.key) == (source, key)]
    assert len(found) == 1 and words in found[0]


def test_one_rule_about_tests_takes_all_three() -> None:
    metrics = {"pass_rate": 0.9, "passed": 9, "total": 10}
    counts = read({"tests_passed": "result.json:final.passed", "tests_total": "result.json:final.total"}, result=FINAL, metrics=metrics)
    assert (counts.tests_passed, counts.test_rate) == (Number(3, "result.json", "final.passed"), None)
    assert counts.rate == Number(0.75, "result.json", "final.passed/final.total")
    rate = read({"test_rate": "result.json:final.rate"}, result=FINAL, metrics=metrics)
    assert (rate.tests_passed, rate.tests_total, rate.rate) == (None, None, Number(0.7, "result.json", "final.rate"))
    all_of_them = {
        "test_rate": "result.json:final.rate",
        "tests_passed": "result.json:final.passed",
        "tests_total": "result.json:final.total",
    }
    assert read(all_of_them, result=FINAL).flags == ("test_rate_disagrees",)
    gone = read({"tests_passed": "result.json:no", "tests_total": "result.json:final.total"}, result=FINAL, metrics=metrics)
    assert (gone.tests_passed, gone.tests_total, gone.rate) == (None, None, None)
    assert Refusal("result.json", "no", "missing, and a rule names it for tests_passed") in gone.refusals


def test_counts_of_two_files_name_both() -> None:
    reading = read({"tests_passed": "a.json:n", "tests_total": "b.json:n"}, a={"n": 1}, b={"n": 2})
    assert reading.rate == Number(0.5, "a.json", "n/b.json:n")


def test_d01_a_rule_makes_no_score_of_a_verifier_that_did_not_come_to_its_end() -> None:
    rules = {"reward": parse("metrics.json:reward")}
    initialized = b'{"phase": "initialized", "reward": 0}'
    assert read_score({"metrics.json": initialized}, verifier_exited=True, overrides=rules).reward is None
    assert read_score({"metrics.json": b'{"reward": 1}'}, verifier_exited=False, overrides=rules).reward is None


# ── in the configuration ──


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Settings]:
    for name in ("zstd-decoder", "ruby.port"):
        (tmp_path / "tasks" / name).mkdir(parents=True)
        (tmp_path / "tasks" / name / "task.toml").touch()

    def read(text: str) -> Settings:
        (tmp_path / "config.toml").write_text(MINIMAL + text, encoding="utf-8")
        return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=tmp_path, uid=0)

    return read


RULES = """[scores."zstd-decoder"]
reward = "result.json:final.reward"
[scores."ruby.port"]
tests_passed = "metrics.json:n"
tests_total = "metrics.json:m"
"""


def test_rules_come_from_the_file_with_their_lines_and_are_no_treatment(config: Callable[[str], Settings]) -> None:
    settings = config(RULES)
    found = origins(settings)
    assert found["scores.zstd-decoder.reward"] == ("result.json:final.reward", "config.toml:7")
    assert found["scores.zstd-decoder.partial"] == (None, "default")
    assert found["scores.ruby.port.tests_total"] == ("metrics.json:m", "config.toml:10")
    assert change_of("scores.zstd-decoder.reward") is Change.RELOAD
    assert campaign_treatment(settings) == campaign_treatment(config(""))
    assert len(task_folders(settings)) == 2
    rules = effective.score_rules(settings)
    assert rules["zstd-decoder"] == {"reward": parse("result.json:final.reward")}
    assert files_of(rules["ruby.port"]) == ("metrics.json",)
    stored = json.loads(config_json(settings))
    assert rules_from_data(stored["scores"]) == rules, "what regrading finds in the ledger is what the daemon grades by"
    assert rules_from_data(None) == {} == rules_from_data({"x": {"reward": None}})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            '[scores.zstd-decoder]\nreward = "metrics"\n',
            'config.toml:7: scores.zstd-decoder.reward = "metrics": must be "file.json:dotted.path", '
            'such as "metrics.json:results.scores[0].value"',
        ),
        (
            '[scores.zstd-decoder]\npartial = "../x.json:a"\n',
            'config.toml:7: scores.zstd-decoder.partial = "../x.json:a": must be "file.json:dotted.path", '
            'such as "metrics.json:results.scores[0].value": ../x.json is no .json file below /logs/verifier',
        ),
        ("[scores.zstd-decoder]\nreward = 1\n", "config.toml:7: scores.zstd-decoder.reward = 1: must be text in quotes"),
        (
            '[scores.zstd-decoder]\nrewards = "a.json:b"\n',
            'config.toml:7: scores.zstd-decoder.rewards = "a.json:b": unknown key; did you mean reward?',
        ),
        (
            '[scores.zstd-decoder]\ntests_total = "a.json:b"\n',
            'config.toml:7: scores.zstd-decoder.tests_total = "a.json:b": needs tests_passed beside it: a count of one source '
            "and a total of another are not of the same tests",
        ),
        ('[scores]\nzstd-decoder = "a.json:b"\n', 'config.toml:7: scores.zstd-decoder = "a.json:b": must be a table'),
    ],
)
def test_a_wrong_rule_is_one_line_with_its_place(config: Callable[[str], Settings], text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(text)
    assert str(caught.value) == line


def test_a_rule_for_no_task_names_the_tasks_there_are_unless_a_daemon_goes_on(config: Callable[[str], Settings]) -> None:
    settings = config('[scores.zstd-decodr]\nreward = "a.json:b"\n[scores.other]\nreward = "a.json:b"\n')
    with pytest.raises(ConfigError) as caught:
        task_folders(settings)
    assert str(caught.value).split("\n") == [
        "config.toml:6: scores.zstd-decodr: no such task; did you mean zstd-decoder?",
        "config.toml:8: scores.other: no such task; there are ruby.port, zstd-decoder",
    ]
    assert len(task_folders(settings, begun={})) == 2, "running agents must not lose their daemon over it"


def test_a_rule_for_a_task_that_is_left_out_now_is_no_mistake(config: Callable[[str], Settings], tmp_path: Path) -> None:
    settings = config(RULES)
    narrowed = load(Path("config.toml"), {"campaign.include": ["zstd-decoder"]}, environ={}, cwd=tmp_path, uid=0)
    assert [folder.name for folder in task_folders(narrowed)] == ["zstd-decoder"]
    assert set(settings.scores) == {"zstd-decoder", "ruby.port"}


def test_the_example_in_the_documented_configuration_is_accepted(config: Callable[[str], Settings]) -> None:
    lines = (Path(__file__).parents[2] / "config.example.toml").read_text(encoding="utf-8").split("\n")
    start = lines.index('#     [scores."zstd-decoder"]')
    block = [line.removeprefix("#     ") for line in lines[start : start + 6]]
    rules = effective.score_rules(config("\n".join(block) + "\n"))["zstd-decoder"]
    assert set(rules) == {"reward", "partial", "test_rate", "tests_passed", "tests_total"}
