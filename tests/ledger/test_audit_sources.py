"""Rules about results and house over a real ledger: what the schema and the verbs make of a fault is what the rules see."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Found
from marathond.core.audit.rules import RULES
from marathond.ledger.verbs import artifacts, audit, operator
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.service.doctor.ground import HOUR_MS
from marathond.service.doctor.planted import ARMS, REPLICATES, TASKS, Told, Usage
from marathond.service.doctor.scratch import Scratch

PLAIN, GOAL, HEARTBEAT = ARMS[:3]
TASK = TASKS[0]


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch() as made:
        yield made


def read(scratch: Scratch) -> Facts:
    return audit.facts(scratch.c, scratch.campaign_id, now_ms=scratch.now_ms, wal_bytes=0)


def found(scratch: Scratch, code: str) -> tuple[Found, ...]:
    (rule,) = [rule for rule in RULES if rule.code == code]
    return rule.look(read(scratch)).found


def build_failed(scratch: Scratch, arms: tuple[str, ...], replicates: range) -> None:
    for replicate in replicates:
        for arm in arms:
            scratch.trial(task=TASK, arm=arm, replicate=replicate, reward=0.0, partial=0.0, tests=(0, 40), flags=["build_failed"])


def test_d13_the_same_build_error_in_every_arm_is_named_and_is_over_with_the_first_that_builds(scratch: Scratch) -> None:
    build_failed(scratch, (PLAIN, GOAL, HEARTBEAT), range(1, 3))
    (one,) = found(scratch, "same_failure_everywhere")
    assert (one.subject, one.severity) == (TASK, "warning")
    assert one.detail == "all 6 done cells of 3 of 3 arms: reward 0, build_failed"
    scratch.trial(task=TASK, arm=PLAIN, replicate=3, reward=0.0)
    assert not found(scratch, "same_failure_everywhere")


def test_d13_one_arm_alone_that_does_not_build_is_its_own_failure(scratch: Scratch) -> None:
    build_failed(scratch, (PLAIN,), range(1, REPLICATES + 1))
    assert not found(scratch, "same_failure_everywhere")


def test_a08_one_side_withdrawn_after_its_score_is_named_until_the_block_is_whole_again(scratch: Scratch) -> None:
    first = {arm: scratch.trial(task=TASK, arm=arm, replicate=1) for arm in (PLAIN, GOAL, HEARTBEAT)}
    assert not found(scratch, "post_score_voids")
    void(scratch, first[PLAIN])
    scratch.trial(task=TASK, arm=PLAIN, replicate=1)
    (uneven,) = found(scratch, "post_score_voids_uneven")
    assert "1 of 1 post-score void left another arm's score of the same block standing" in uneven.detail
    assert f"{PLAIN} 1 of 2, {GOAL} 0 of 1" in uneven.detail
    void(scratch, first[GOAL])
    void(scratch, first[HEARTBEAT])
    assert not found(scratch, "post_score_voids_uneven")
    (counted,) = found(scratch, "post_score_voids")
    assert counted.detail.startswith("3 of 3 voids withdrew a score that was known")


def void(scratch: Scratch, trial_id: int) -> None:
    operator.void_trials(scratch.c, [trial_id], code="operator", reason="planted", author="ana", now_ms=scratch.now_ms)


def test_a08_a_void_before_any_score_is_no_choice(scratch: Scratch) -> None:
    scratch.trial(task=TASK, arm=PLAIN, replicate=1, state="voided")
    for arm in (PLAIN, GOAL, HEARTBEAT):
        scratch.trial(task=TASK, arm=arm, replicate=1)
    assert not found(scratch, "post_score_voids") and not found(scratch, "post_score_voids_uneven")


@pytest.mark.parametrize("what", ["image_id", "context_digest"])
def test_b14_another_image_or_another_context_in_one_campaign_is_named(scratch: Scratch, what: str) -> None:
    for arm in (PLAIN, GOAL):
        scratch.trial(task=TASK, arm=arm, replicate=1)
    assert not found(scratch, "image_stale")
    other: dict[str, str] = {what: "sha256:of-another-day"}
    make: Callable[..., int] = scratch.trial
    make(task=TASK, arm=HEARTBEAT, replicate=1, **other)
    (one,) = found(scratch, "image_stale")
    assert one.subject == TASK


def test_e03_graded_trials_without_a_receipt_are_counted_and_their_usage_is_unseen(scratch: Scratch) -> None:
    early = scratch.now_ms - HOUR_MS
    for arm in (PLAIN, GOAL):
        scratch.trial(task=TASK, arm=arm, receipt=None, rested_at_ms=early)
    scratch.trial(task=TASK, arm="oracle", rested_at_ms=early)
    (one,) = found(scratch, "receipts_missing")
    assert one.detail.startswith("2 of 2 graded trials that asked a model have no receipt")


def test_e01_a_gateway_without_a_request_of_a_working_agent_is_named_and_the_other_way_round(scratch: Scratch) -> None:
    early = scratch.now_ms - HOUR_MS
    scratch.trial(task=TASK, arm=PLAIN, rested_at_ms=early)
    assert not found(scratch, "usage_missing")
    scratch.trial(task=TASK, arm=GOAL, usage=None, rested_at_ms=early)
    scratch.trial(task=TASK, arm=HEARTBEAT, receipt=Told(turns=0, commands=0), usage=Usage(requests=9), rested_at_ms=early)
    assert [each.subject for each in found(scratch, "usage_missing")] == ["gateway", "receipts"]


def test_e05_a_clock_that_could_not_be_measured_is_named_and_an_old_measurement_too(scratch: Scratch) -> None:
    assert not found(scratch, "clock_unseen")
    scratch.observe("clock_offset", {"/out": None, "/srv": 0})
    assert [each.subject for each in found(scratch, "clock_unseen")] == ["/out"]
    scratch.observe("clock_offset", {"/out": 0, "/srv": 0}, ago_ms=3 * HOUR_MS)
    assert [each.subject for each in found(scratch, "clock_unseen")] == ["clock"]


def test_e01_the_word_of_an_earlier_life_of_the_daemon_is_none(scratch: Scratch) -> None:
    """However young it is: a life that has run for ten minutes and said nothing is blind."""
    scratch.all_is_well(ago_ms=4 * 60_000)
    assert not found(scratch, "daemon_blind")
    scratch.begin_run(now_ms=scratch.now_ms - 10 * 60_000)
    assert [rule.look(read(scratch)).unseen for rule in RULES if rule.code == "daemon_blind"] == ["whether a daemon runs cannot be told"]
    scratch.all_is_well()
    scratch.observe("waiting", [], ago_ms=11 * 60_000)
    assert [each.subject for each in found(scratch, "daemon_blind")] == ["waiting"]


def test_files_that_an_export_left_out_are_not_the_same_as_others(scratch: Scratch) -> None:
    """Their content is not known; a hash over nothing would be equal for all of them."""
    for arm in (PLAIN, GOAL):
        trial_id = scratch.trial(task=TASK, arm=arm, reward=0.0, tests=(20, 40), parts=[("gate", "true", "m")], export=None)
        left_out = [ArtifactRecord(path, "", 5_000_000, "too large") for path in ("verifier/test-stdout.txt", "artifacts/a.bin")]
        artifacts.exported(scratch.c, trial_id, folder=f"x/{trial_id}", records=left_out, now_ms=scratch.now_ms)
    assert [(trial.outputs, trial.left, trial.exported) for trial in read(scratch).trials] == [(None, None, True)] * 2
    assert not found(scratch, "identical_outputs")


def test_identical_artifacts_of_agents_that_did_not_solve_the_task_are_named(scratch: Scratch) -> None:
    for arm in (PLAIN, GOAL):
        scratch.trial(task=TASK, arm=arm, reward=0.0, export={"verifier/test-stdout.txt": arm.encode(), "artifacts/a.c": b"x" * 2_000})
    (one,) = found(scratch, "identical_outputs")
    assert "artifacts that their agents left, without solving the task, are the same to the byte in 2 trials" in one.detail
