"""Names are safe whatever they are made from; documents are the same bytes each time, and say what the ledger says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.tasks.layout import ArmView, Moment, TaskView, job_documents, line_of, trial_documents, trial_folder
from tests.support.layout_samples import GOAL, PLAIN, SECRET, SORT, START_MS, TOLD, VOID, ZSTD, job, moments, trial, trials

ANY_TEXT = st.text(st.characters(), max_size=300)


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def read(document: bytes) -> Any:
    return json.loads(document.decode("ascii"), parse_constant=refuse)


def result_of(index: int, **changes: Any) -> Any:
    return read(trial_documents(replace(trials()[index], **changes))["result.json"])


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_folder_reads_like_its_trial() -> None:
    assert trial_folder(871, "zstd-decoder", "plain", 1) == "t0871__zstd-decoder__plain__r1"


@given(st.integers(1, 2**63 - 1), ANY_TEXT, ANY_TEXT, st.integers(1, 2**63 - 1))
def test_folder_is_one_safe_component(trial_id: int, task: str, arm: str, replicate: int) -> None:
    name = trial_folder(trial_id, task, arm, replicate)
    assert PurePosixPath(name).parts == (name,)
    assert name.isascii() and name.isprintable() and not set(name) & set(" /\\:*?\"'<>|$`~")
    assert name[0] == "t" and name[-1].isdigit() and len(name) <= 200


@given(st.integers(1, 10**6), st.integers(1, 10**6), ANY_TEXT, ANY_TEXT)
def test_folders_of_two_trials_differ_also_where_case_does_not_count(one: int, other: int, task: str, arm: str) -> None:
    same = trial_folder(one, task, arm, 1).casefold() == trial_folder(other, task.swapcase(), arm, 1).casefold()
    assert not same or one == other


@pytest.mark.parametrize("name", ["..", "../../etc", "/", "", ".hidden", "a/b", "名前", "-rf", "\x1b[2J", "__", "\ud800"])
def test_hostile_names(name: str) -> None:
    assert trial_folder(1, name, name, 1).count("/") == 0
    assert ".." not in trial_folder(1, name, name, 1)


@pytest.mark.parametrize(("trial_id", "replicate"), [(0, 1), (1, 0), (-3, 1)])
def test_numbers_start_at_one(trial_id: int, replicate: int) -> None:
    with pytest.raises(ValueError, match="expected numbers from 1"):
        trial_folder(trial_id, "task", "arm", replicate)


# ── a trial ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_same_values_same_bytes_whatever_the_order_they_came_in() -> None:
    view = trials()[3]
    assert view.void is not None
    turned = dict(reversed(list(view.void.evidence.items())))
    data = dict(reversed(list(view.arm.data.items())))
    again = replace(view, void=replace(view.void, evidence=turned), arm=replace(view.arm, data=data))
    assert trial_documents(view) == trial_documents(again)
    lines = job(trials())
    assert job_documents(lines) == job_documents(replace(lines, trials=tuple(reversed(lines.trials))))


def test_ids_tell_ledgers_campaigns_and_trials_apart() -> None:
    view = trials()[0]
    others = (view, replace(view, trial_id=8), replace(view, ledger_id="ba9876543210"))
    results = [read(trial_documents(v)["result.json"]) for v in others]
    assert len({r["id"] for r in results}) == 3
    assert results[0]["config"]["job_id"] == results[1]["config"]["job_id"] != results[2]["config"]["job_id"]
    assert results[0]["config"]["job_id"] == read(job_documents(job(trials()))["result.json"])["id"]


def test_scored_trial() -> None:
    result = result_of(0)
    assert result["verifier_result"] == {"rewards": {"reward": 1.0}}
    assert result["exception_info"] is None
    assert result["started_at"] == "2023-11-14T22:13:20.000Z" and result["finished_at"] == "2023-11-14T22:14:31.000Z"
    assert result["agent_execution"] == {"started_at": "2023-11-14T22:13:23.000Z", "finished_at": "2023-11-14T22:14:22.500Z"}
    assert result["verifier"] == {"started_at": "2023-11-14T22:14:23.500Z", "finished_at": "2023-11-14T22:14:30.000Z"}
    own = result["agent_result"]["metadata"]["marathond"]
    assert own["score"]["partial"] == 0.75 and own["score"]["counts"] is True
    assert own["score"]["parts"] == {"test_rate": {"value": "0.75", "source": "metrics.json:pass_rate"}}
    assert own["facts"] == {"network.agent": {"value": "none", "origin": "task"}}
    assert own["agent"]["limit_origin"] == "own" and own["agent"]["limit_loser"] == "task 36000 x 1.0"


def test_c10_spent_deadline_is_a_scored_trial_without_an_exception() -> None:
    result = result_of(1)
    assert result["exception_info"] is None
    assert result["verifier_result"] == {"rewards": {"reward": 0.0}}
    assert result["agent_result"]["metadata"]["marathond"]["agent"]["ended_by"] == "deadline"


def test_tokens_and_cost_are_the_gateways_and_a_cost_is_known_whole_or_not_at_all() -> None:
    told = result_of(1)["agent_result"]
    assert {key: told[key] for key in ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")} == {
        **{"n_input_tokens": 12_100, "n_cache_tokens": 8_000, "n_output_tokens": 520, "cost_usd": None}
    }
    assert {model: usage["cost_usd"] for model, usage in told["model_usage"].items()} == {"big-1": 0.25, "small-1": None}
    assert set(result_of(0)["agent_result"]) == {"metadata"}, "an arm that asks no model has no tokens, not 0"


def test_trial_voided_before_its_container() -> None:
    result = result_of(2)
    assert result["exception_info"]["exception_type"] == "MarathondVoid:network_failed"
    assert result["environment_setup"] == {"started_at": "2023-11-14T22:13:20.000Z", "finished_at": None}
    assert result["agent_setup"] is result["agent_execution"] is result["verifier"] is None
    assert result["finished_at"] == "2023-11-14T22:13:21.000Z"


def test_void_after_the_score_keeps_the_score_where_nobody_counts_it() -> None:
    result = result_of(4)
    assert result["verifier_result"] is None
    assert result["exception_info"]["policy_override"]["has_valid_reward"] is False
    own = result["agent_result"]["metadata"]["marathond"]
    assert own["score"]["reward"] == 1.0 and own["score"]["counts"] is False
    assert own["void"]["score_was_known"] is True
    assert result["finished_at"] == "2023-11-14T22:14:31.000Z", "a later decision does not make the trial longer"


def test_review_has_no_reward_until_a_person_decides() -> None:
    assert result_of(5)["verifier_result"] is None
    assert result_of(5)["exception_info"]["exception_type"] == "MarathondReview:reward_missing"
    accepted = result_of(6)
    assert accepted["exception_info"] is None
    assert accepted["verifier_result"] == {"rewards": {"reward": 0.5}}
    assert accepted["agent_result"]["metadata"]["marathond"]["review"]["author"] == "ana"


def test_no_secret_leaves_the_ledger() -> None:
    files = [*job_documents(job(trials())).values(), *(b for v in trials() for b in trial_documents(v).values())]
    assert SECRET in PLAIN.data["env"].values()
    assert not any(SECRET.encode() in data for data in files)
    assert read(trial_documents(trials()[0])["config.json"])["agent"]["kwargs"]["env"] == ["API_KEY"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"timeline": ()}, "no events"),
        ({"timeline": moments(upto=3)}, "t0001 is running: expected a trial at rest"),
        ({"score": None}, "t0001 is scored, without the row"),
        ({"void": VOID}, "but void container_lost stands"),
        ({"timeline": moments(("doubted", "review", 9)), "score": None}, "t0001 is review, without the row"),
        ({"out_dir": "relative"}, "relative path"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        trial_documents(replace(trials()[0], **changes))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(ANY_TEXT, ANY_TEXT, st.dictionaries(ANY_TEXT, JSON, max_size=4))
def test_any_text_becomes_strict_ascii_json(task: str, words: str, evidence: dict[str, Any]) -> None:
    timeline = (Moment("reserved", "reserved", START_MS), Moment("voided", "voided", START_MS + 1))
    where = replace(ZSTD, name=task)
    view = trial(9, where, ArmView(words, "command", "", {"argv": [words]}), timeline, void=replace(VOID, reason=words, evidence=evidence))
    documents = trial_documents(view) | {f"job {k}": v for k, v in job_documents(job([view], tasks=(where,))).items() if k != "README.txt"}
    for data in documents.values():
        text = json.dumps(read(data), ensure_ascii=False)
        assert text.encode(), "no lone half of a surrogate pair is left"
        assert not any((byte < 0x20 and byte != 0x0A) or byte == 0x7F for byte in data)


# ── the campaign ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_counts_and_means_leave_out_what_does_not_count() -> None:
    result = read(job_documents(job(trials()))["result.json"])
    stats = result["stats"]
    assert result["n_total_trials"] == 10
    assert (stats["n_completed_trials"], stats["n_errored_trials"], stats["n_running_trials"], stats["n_pending_trials"]) == (7, 4, 1, 2)
    assert set(stats["evals"]) == {"plain__sample-set", "goal__big-1__sample-set"}
    plain = stats["evals"]["plain__sample-set"]
    assert (plain["n_trials"], plain["n_errors"], plain["metrics"]) == (2, 2, [{"mean": 0.75}])
    assert plain["exception_stats"]["MarathondReview:reward_missing"] == ["t0006__sort-lines__plain__r1"]


def test_campaign_without_trials_has_no_mean() -> None:
    result = read(job_documents(job([]))["result.json"])
    assert result["stats"]["evals"] == {} and result["n_total_trials"] == 3
    voided = read(job_documents(job([trials()[2]]))["result.json"])
    assert voided["stats"]["evals"]["plain__sample-set"]["metrics"] == []


def test_arms_that_differ_only_in_settings_stay_apart() -> None:
    one, other = trials()[0], replace(trials()[0], trial_id=8, arm=replace(GOAL, name="goal-2", model=None))
    assert len(read(job_documents(job([one, other]))["result.json"])["stats"]["evals"]) == 2


def test_a_line_says_exactly_one_thing() -> None:
    line = line_of(trials()[0])
    assert (line.reward, line.void_code, line.review_code) == (1.0, None, None)
    assert line_of(trials()[4]).reward is None
    for broken in (replace(line, reward=None), replace(line, void_code="operator")):
        with pytest.raises(ValueError, match="t0001: expected exactly one of"):
            job_documents(replace(job([]), trials=(broken,)))


def test_task_names_are_no_patterns() -> None:
    star = TaskView("odd", "/srv/other/task[1]*", None)
    config = read(job_documents(job([], tasks=(ZSTD, SORT, star)))["config.json"])
    assert config["datasets"][0] == {"path": "/srv/other", "task_names": ["task[[]1][*]"]}


def test_readme_tells_what_was_voided_and_how_to_see_it() -> None:
    text = job_documents(job(trials()))["README.txt"].decode()
    assert "container_lost 1, network_failed 1, operator 1" in text
    assert "harbor view" in text and "marathonctl show" in text and "harbor job resume" in text
    assert max(map(len, text.splitlines())) <= 140
    assert "none" in job_documents(job([]))["README.txt"].decode()


def test_what_must_be_told_lies_beside_the_results_and_in_each_trial() -> None:
    documents = job_documents(job(trials()))
    told = read(documents["disclosures.json"])
    assert (told["campaign"], told["version"], told["at"]) == ("pilot", 3, "2023-11-14T22:13:20.000Z")
    assert told["disclosures"][0] == {
        "code": "agent_dead_before_verifier",
        "arms": ["plain", "goal"],
        "text": "It is dead.",
        "compared_with": "Harbor does not end it.",
    }
    assert "disclosures.json holds the 2 things" in documents["README.txt"].decode()
    codes = ["agent_dead_before_verifier", "goal_objective_literal"]
    assert read(documents["config.json"])["marathond"]["disclosures"] == {"file": "disclosures.json", "codes": codes}
    own = result_of(1, disclosures=TOLD[1:])["agent_result"]["metadata"]["marathond"]
    assert [(each["code"], each["arms"]) for each in own["disclosures"]] == [("goal_objective_literal", ["goal"])]
    assert result_of(0)["agent_result"]["metadata"]["marathond"]["disclosures"] == []


def test_a_campaign_of_which_nothing_is_told_says_so() -> None:
    told = read(job_documents(job([], disclosures=(), told_version=0, told_at_ms=None))["disclosures.json"])
    assert (told["version"], told["at"], told["disclosures"]) == (0, None, [])
