"""Rules over scores, verifiers and images: each with what it must name, and the nearest thing that it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from marathond.core.audit import house, results, verifiers
from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Look, Rule
from marathond.core.mounts import Reading
from marathond.core.score import FILE, RefusedValue
from tests.support.audit_facts import ARMS, clean, facts, trial

RULES = {rule.code: rule for rule in (*results.RULES, *verifiers.RULES)}


def look(code: str, seen: Facts) -> Look:
    return RULES[code].look(seen)


def rows(count: int, arms: tuple[str, ...] = ("plain", "goal"), *, first: int = 1, **values: object) -> list[TrialFact]:
    """``count`` trials, the arms in turn, each pair of one block."""
    made = [trial(first + n, arms[n % len(arms)], replicate=1 + n // len(arms), **values) for n in range(count)]
    return [replace(row, block_id=row.replicate * 100 + hash_of(row.task)) for row in made]


def hash_of(task: str) -> int:
    return sum(map(ord, task)) % 97


def mute(count: int, arms: tuple[str, ...] = ("plain", "goal"), *, first: int = 1) -> list[TrialFact]:
    """In review, for their verifier left no reward in both of its rounds."""
    return rows(count, arms, first=first, state="review", reward=None, review_code="score_unreadable", verify_agains=("unreadable",))


def same(count: int, **values: object) -> list[TrialFact]:
    return rows(count, reward=0.0, partial=0.0, test_rate=None, **values)


def oracle(rewards: list[float], **values: object) -> list[TrialFact]:
    return [trial(500 + n, "oracle", replicate=n + 1, reward=reward, asks_model=False, **values) for n, reward in enumerate(rewards)]


def with_oracle(trials: list[TrialFact]) -> Facts:
    return facts(trials, ("plain", "goal", "oracle"), kinds={"plain": "codex", "goal": "codex", "oracle": "oracle"})


def over_tasks(count: int, lacking: tuple[str, ...] = ("goal",), has: int = 0) -> list[TrialFact]:
    """One replicate of ``count`` tasks; arms in ``lacking`` have no partial but in the first ``has`` tasks."""
    made = []
    for n in range(count):
        for place, arm in enumerate(("plain", "goal", "heartbeat")):
            partial = None if arm in lacking and n >= has else 0.4
            made.append(trial(10 * n + place + 1, arm, f"task-{n}", partial=partial))
    return made


def voids(*, pair: bool) -> list[TrialFact]:
    """Block 1 was withdrawn with known scores: both sides, or only plain's, whose cell was filled again."""
    gone = {"state": "voided", "void_code": "operator", "void_by": "operator", "score_known": True}
    first = [trial(1, "plain", **gone), trial(2, "goal", **(gone if pair else {}))]
    again = [trial(3, "plain", attempt=2), *([trial(4, "goal", attempt=2)] if pair else [])]
    return [*first, *again, trial(5, "plain", replicate=2), trial(6, "goal", replicate=2)]


def held(arm: str, digits: str, trials: int, first: str | None = "t0004", *, submitted: bool = False) -> Reading:
    return Reading(arm, "/a", "sha256:" + 32 * digits, trials, first, submitted)


PERCENT = RefusedValue("partial", "metrics.json:partial_score", "above 1: 50", ("partial",))
BROKEN = RefusedValue(FILE, "metrics.json", "no valid JSON: Expecting value", ("partial", "test_rate"))
EMPTY = RefusedValue("partial", "a.json:b", "missing, and a rule names it for partial", ("partial",))


NAMED: dict[str, list[tuple[str, Callable[[], Facts], list[str]]]] = {
    "budget_binding": [
        ("an arm", lambda: facts([*rows(10, ("plain",), budget_ended=True), *rows(15, ("goal",), first=20)]), ["arms"]),
        ("task and arms", lambda: facts(rows(22, budget_ended=True)), ["arms", "tasks"]),
    ],
    "same_failure_everywhere": [
        ("flags", lambda: facts(same(4, flags=("build_failed",))), ["zstd"]),
        ("a stage", lambda: facts(same(3, flags=("verified_again", "early_exit:health_timeout"))), ["zstd"]),
        ("d06: words", lambda: facts(same(3, flags=("log:dns",))), ["zstd"]),
        ("d06: words and more", lambda: facts([*same(2, flags=("log:dns",)), *same(2, flags=("log:dns", "log:tls"), first=8)]), ["zstd"]),
        (
            "d13: a build, and words of some",
            lambda: facts([*same(2, flags=("build_failed",)), *same(2, flags=("build_failed", "log:dns"), first=8)]),
            ["zstd"],
        ),
        ("bytes", lambda: facts(same(3, outputs="o", outputs_bytes=40)), ["zstd"]),
    ],
    "identical_outputs": [
        ("halves", lambda: facts(rows(2, outputs="o", parts="p", reward=0.0, partial=0.37)), ["t0001"]),
        (
            "two tasks",
            lambda: facts([trial(n, task=f"task-{n}", outputs="o", parts="p", partial=0.0, test_rate=None) for n in (7, 8)]),
            ["t0007"],
        ),
        ("artifacts", lambda: facts(rows(3, left="l")), ["t0001"]),
    ],
    "zero_everywhere": [("all", lambda: facts(rows(4)), ["x"])],
    "one_everywhere": [("all", lambda: facts(rows(4, reward=1.0)), ["x"])],
    "score_columns": [
        ("within a task", lambda: facts([*rows(2, ("plain",)), *rows(2, ("goal",), first=5, partial=None)]), ["zstd, goal: partial"]),
        ("over tasks", lambda: facts(over_tasks(3), ("plain", "goal", "heartbeat")), ["goal: partial"]),
    ],
    "replicate_imbalance": [
        ("at rest", lambda: facts([*rows(4), *rows(1, ("plain",), first=9, task="rust")]), ["x"]),
        ("while others run", lambda: facts([*rows(3, ("plain",)), trial(9, "goal", "rust", state="running")]), ["x"]),
    ],
    "scores_by_person": [("one", lambda: facts([*rows(4), trial(9, by_person=True, replicate=9)]), ["x"])],
    "post_score_voids": [("both sides", lambda: facts(voids(pair=True)), ["x"]), ("one", lambda: facts(voids(pair=False)), ["x"])],
    "post_score_voids_uneven": [("one side", lambda: facts(voids(pair=False)), ["x"])],
    "score_rules_differ": [
        ("a rule came", lambda: facts([*rows(4), trial(9, "goal", score_rules="reward = a.json:b")]), ["zstd"]),
        (
            "a rule changed",
            lambda: facts([*rows(4, score_rules="partial = a.json:b"), trial(9, score_rules="partial = a.json:c")]),
            ["zstd"],
        ),
    ],
    "score_refused": [
        ("percent", lambda: facts([*rows(4, partial=0.0), *rows(2, first=9, partial=None, refused=(PERCENT,))]), ["zstd"]),
        ("the oracle's", lambda: with_oracle([*rows(4), *oracle([1.0], partial=None, refused=(PERCENT,))]), ["zstd"]),
    ],
    "mount_changed": [
        (
            "between trials",
            lambda: facts(rows(4), mounted=[held("goal", "3c", 2, "t0002", submitted=True), held("goal", "ad", 1)]),
            ["goal /a"],
        ),
        (
            "after the first",
            lambda: facts(rows(4), mounted=[held("goal", "3c", 0, None, submitted=True), held("goal", "ad", 1), held("goal", "bb", 1)]),
            ["goal /a"],
        ),
        (
            "a socket came",
            lambda: facts(
                rows(4), mounted=[held("goal", "3c", 1), replace(held("goal", "", 1, "t0009"), value="not digested: holds a socket, s")]
            ),
            ["goal /a"],
        ),
    ],
    "no_reward_written": [
        ("three", lambda: facts(mute(3)), ["zstd"]),
        ("the oracle's", lambda: with_oracle(mute(1, ("oracle",))), ["zstd"]),
        ("by a person", lambda: facts([*mute(3), trial(9, by_person=True, verify_agains=("unreadable",))]), ["zstd"]),
    ],
    "verifier_flaky": [
        ("now and then", lambda: facts([*rows(8), *mute(3, first=20)]), ["zstd"]),
        ("again", lambda: facts([*rows(8), *rows(3, first=20, verify_agains=("unreadable",))]), ["zstd"]),
        ("in review", lambda: facts([*rows(8), *rows(3, first=20, state="review", verify_agains=("deadline",))]), ["zstd"]),
        ("changed", lambda: facts([*rows(8), trial(9, flags=("changed_after_exit",))]), ["zstd"]),
        ("oracle", lambda: with_oracle([*rows(4), *oracle([1.0, 0.0, 1.0])]), ["zstd"]),
    ],
    "oracle_fails": [("never", lambda: with_oracle([*rows(4), *oracle([0.0])]), ["zstd"])],
    "image_stale": [
        ("image", lambda: facts([*rows(4), trial(9, "goal", image_id="sha256:other")]), ["zstd"]),
        ("context", lambda: facts(rows(4, context_digest="c-older")), ["zstd"]),
    ],
}

NOT_NAMED: dict[str, list[tuple[str, Callable[[], Facts]]]] = {
    "budget_binding": [
        ("three in five", lambda: facts([*rows(24, budget_ended=True), *rows(16, first=50)])),
        ("too few", lambda: facts(rows(6, budget_ended=True))),
    ],
    "same_failure_everywhere": [
        ("one arm only", lambda: facts(same(6, flags=("build_failed",))[::2])),
        ("two cells", lambda: facts(same(2, flags=("build_failed",)))),
        ("one built", lambda: facts([*same(5, flags=("build_failed",)), trial(9, "goal")])),
        ("other stages", lambda: facts([*same(2, flags=("early_exit:health",)), *same(2, flags=("early_exit:setup",), first=8)])),
        ("other words", lambda: facts([*same(2, flags=("log:dns",)), *same(2, flags=("log:tls",), first=8)])),
        ("words of one arm", lambda: facts([*same(4, flags=("log:dns",))[::2], *same(2, first=8)])),
        ("rewarded", lambda: facts(rows(4, reward=1.0, flags=("build_failed",)))),
        ("the same words of agents that did nothing", lambda: facts(same(3, outputs="o", commands=0, requests=0))),
        ("the oracle too", lambda: with_oracle([*oracle([0.0] * 4, flags=("build_failed",))])),
    ],
    "identical_outputs": [
        ("two solutions", lambda: facts(rows(4, outputs="o", parts="p", left="l", reward=1.0, partial=1.0, test_rate=1.0))),
        ("nothing passed", lambda: facts(rows(4, outputs="o", parts="p", partial=0.0, test_rate=0.0))),
        ("short", lambda: facts(rows(4, outputs="o", parts="p", outputs_bytes=60))),
        ("other parts", lambda: facts(rows(4, outputs="o"))),
        ("by design", lambda: with_oracle([*rows(4), *oracle([0.0] * 3, outputs="o", parts="p", left="l")])),
        ("small artifacts", lambda: facts(rows(4, left="l", left_bytes=12))),
    ],
    "zero_everywhere": [
        ("one solved", lambda: facts([*rows(4), trial(9, reward=1.0)])),
        ("an arm is not there yet", lambda: facts(rows(4), ARMS)),
        ("said as a failure", lambda: facts(same(4, flags=("build_failed",)))),
    ],
    "one_everywhere": [("one not", lambda: facts([*rows(4, reward=1.0), trial(9, reward=0.0)]))],
    "score_columns": [
        ("nobody has it", lambda: facts(rows(4, partial=None, test_rate=None))),
        ("words are no early end", lambda: facts(rows(4, flags=("log:dns",)))),
        ("an early end", lambda: facts([*rows(2, ("plain",)), *rows(2, ("goal",), first=5, partial=None, flags=("build_failed",))])),
        ("a person's", lambda: facts([*rows(2, ("plain",)), *rows(2, ("goal",), first=5, partial=None, by_person=True)])),
        ("other rules read it", lambda: facts([*rows(2, ("plain",)), *rows(2, ("goal",), first=5, test_rate=None, extractor=1)])),
        ("one of two", lambda: facts([*rows(2, ("plain",)), trial(5, "goal"), trial(6, "goal", partial=None, replicate=2)])),
        ("two tasks", lambda: facts(over_tasks(2), ("plain", "goal", "heartbeat"))),
        ("not everywhere", lambda: facts(over_tasks(5, has=1), ("plain", "goal", "heartbeat"))),
    ],
    "replicate_imbalance": [
        ("a block that is just begun", lambda: facts([*rows(4), trial(9, "plain", "rust"), trial(10, "plain", "zinc", state="running")])),
        ("the rest runs", lambda: facts([trial(1), trial(2, "goal", state="running")])),
        ("the rest is in review", lambda: facts([trial(1), trial(2, "goal", state="review")])),
    ],
    "scores_by_person": [("none", lambda: facts(rows(4)))],
    "post_score_voids": [("not known", lambda: facts([*rows(4), trial(9, state="voided", score_known=False, void_by="daemon")]))],
    "post_score_voids_uneven": [
        ("whole block", lambda: facts(voids(pair=True))),
        ("before the score", lambda: facts([*rows(4), trial(9, state="voided", score_known=False, replicate=1)])),
    ],
    "score_rules_differ": [
        ("one rule", lambda: facts(rows(6, score_rules="reward = a.json:b"))),
        ("of tasks", lambda: facts([*rows(4), *[trial(20 + n, task="rust", score_rules="reward = a.json:b") for n in range(3)]])),
        ("withdrawn", lambda: facts([*rows(4), trial(9, state="voided", score_rules="reward = a.json:b")])),
    ],
    "mount_changed": [
        ("the same", lambda: facts(rows(4), mounted=[held("goal", "3c", 3, submitted=True), held("plain", "ad", 2)])),
        ("before the first", lambda: facts(rows(4), mounted=[held("goal", "3c", 0, None, submitted=True), held("goal", "ad", 3)])),
        (
            "unread",
            lambda: facts(rows(4), mounted=[held("goal", "3c", 3), replace(held("goal", "", 1, "t0009"), value="not read: no answer")]),
        ),
        ("writable", lambda: facts(rows(4), mounted=[replace(held("goal", "", 4), value="not digested: writable")])),
    ],
    "score_refused": [
        ("withdrawn", lambda: facts([*rows(4), trial(9, state="voided", refused=(PERCENT,))])),
        ("an empty place of a build that failed", lambda: facts(rows(4, partial=None, refused=(EMPTY,), flags=("build_failed",)))),
    ],
    "no_reward_written": [
        ("two", lambda: facts(mute(2))),
        ("one was read", lambda: facts([*mute(3), trial(9)])),
        ("late", lambda: facts(rows(4, state="review", review_code="verifier_deadline", verify_agains=("deadline",)))),
    ],
    "verifier_flaky": [
        ("never a reward", lambda: with_oracle([*mute(3), *mute(1, ("oracle",), first=9)])),
        ("twice", lambda: facts([*rows(4), *rows(2, first=9, verify_agains=("deadline",))])),
        ("ours", lambda: facts(rows(4, verify_agains=("interrupted",)))),
        ("rare", lambda: facts([*rows(40), *rows(3, first=80, verify_agains=("deadline",))])),
        ("a good oracle", lambda: with_oracle([*rows(4), *oracle([1.0, 1.0])])),
    ],
    "oracle_fails": [
        ("sometimes", lambda: with_oracle([*rows(4), *oracle([1.0, 0.0])])),
        ("no oracle", lambda: facts(rows(4))),
    ],
    "image_stale": [
        ("withdrawn", lambda: facts([*rows(4), trial(9, "goal", image_id="sha256:other", state="voided")])),
        ("another task", lambda: facts([*rows(4), trial(9, "goal", "rust")])),
    ],
}


def _cases(table: dict[str, list[tuple[str, Callable[[], Facts], list[str]]]]) -> list[object]:
    return [pytest.param(code, make, subjects, id=f"{code}: {name}") for code, cases in table.items() for name, make, subjects in cases]


@pytest.mark.parametrize(("code", "make", "subjects"), _cases(NAMED))
def test_named(code: str, make: Callable[[], Facts], subjects: list[str]) -> None:
    seen = look(code, make())
    assert [each.subject for each in seen.found] == subjects
    assert {each.code for each in seen.found} == {code}
    assert {each.severity for each in seen.found} == {RULES[code].severity}
    assert not seen.unseen


def test_a_mount_of_which_names_sizes_and_times_alone_differ_may_have_changed() -> None:
    coarse = [replace(each, value=f"names, sizes and times alone {each.value}") for each in (held("goal", "3c", 2), held("goal", "ad", 1))]
    (found,) = look("mount_changed", facts(rows(4), mounted=coarse)).found
    assert found.severity == "warning"
    assert found.detail.startswith("what goal mounts at /a may have changed: it was names, sizes and times alone 3c3c3c3c3c3c in 2 trials")
    (found,) = look("mount_changed", facts(rows(4), mounted=[coarse[0], held("goal", "3c", 1)])).found
    assert found.severity == "error", "it grew, or shrank"


@pytest.mark.parametrize(
    ("code", "make"), [pytest.param(code, make, id=f"{code}: {name}") for code, cases in NOT_NAMED.items() for name, make in cases]
)
def test_not_named(code: str, make: Callable[[], Facts]) -> None:
    seen = look(code, make())
    assert seen.found == ()
    assert not seen.unseen


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_both_cases_and_keeps_quiet_over_nothing(code: str) -> None:
    assert NAMED[code] and NOT_NAMED[code]
    nothing = look(code, facts())
    assert (nothing.found, nothing.unseen, nothing.looked_at) == ((), "", 0)


def test_d13_the_same_build_error_in_every_arm_is_named_with_its_counts() -> None:
    seen = look("same_failure_everywhere", with_oracle([*same(5, flags=("build_failed",)), *oracle([1.0, 1.0])]))
    (found,) = seen.found
    assert found.detail == "all 5 done cells of 2 of 2 arms: reward 0, build_failed; the reference solution passed 2 of 2"
    assert (seen.looked_at, seen.of) == (1, 1)


def test_tasks_that_tell_nothing_apart_are_counted_and_named_with_their_cells() -> None:
    nought, solved = rows(4, task="zstd"), rows(3, task="rust", first=10, reward=1.0)
    mixed = [*rows(3, task="wasm", first=20), trial(30, task="wasm", reward=1.0, replicate=9)]
    (found,) = look("zero_everywhere", facts([*nought, *solved, *mixed])).found
    assert found.detail == "every done cell of every arm scored 0 in 1 of 3 tasks: zstd (4 cells)"
    (found,) = look("one_everywhere", facts([*nought, *solved, *mixed])).found
    assert found.detail == "every done cell of every arm scored 1 in 1 of 3 tasks: rust (3 cells)"


def test_d13_is_over_as_soon_as_one_cell_ends_otherwise() -> None:
    failing = same(5, flags=("build_failed",))
    assert look("same_failure_everywhere", facts(failing)).found
    assert not look("same_failure_everywhere", facts([*failing, trial(9, "goal", partial=0.1)])).found


def test_a08_one_side_of_a_pair_withdrawn_after_its_score_is_named_by_arm() -> None:
    (found,) = look("post_score_voids_uneven", facts(voids(pair=False))).found
    assert found.detail == (
        "1 of 1 post-score void left another arm's score of the same block standing; of all trials plain 1 of 3, goal 0 of 2: t0001; "
        "unvoid cannot take it back: its cell has a later trial"
    )
    (counted,) = look("post_score_voids", facts(voids(pair=True))).found
    assert counted.detail == "2 of 2 voids withdrew a score that was known; of all trials plain 1 of 3, goal 1 of 3"


def test_a08_what_is_advised_can_be_done_whether_the_cell_has_run_again_or_not() -> None:
    """A void is taken back only while its cell has no later trial; afterwards the other side has to go, or the reason stays."""
    once, *_ = again = [each for each in voids(pair=False) if each.trial_id != 3]
    assert once.trial_id == 1
    (found,) = look("post_score_voids_uneven", facts(again)).found
    assert found.detail.endswith(": t0001; unvoid can take back t0001")
    other = [replace(each, trial_id=each.trial_id + 20, block_id=9, replicate=9) for each in voids(pair=False)]
    (found,) = look("post_score_voids_uneven", facts([*again, *other])).found
    assert found.detail.endswith(": t0001, t0021; unvoid can take back t0001; the cells of the others have a later trial")
    todo = RULES["post_score_voids_uneven"].todo
    assert "while" in todo and "`marathonctl unvoid" in todo and "`marathonctl void TRIAL --pair" in todo


def test_b14_trials_in_different_images_are_named_by_arm() -> None:
    (found,) = look("image_stale", facts([*rows(4), trial(9, "goal", image_id="sha256:0123456789abcdef")])).found
    assert found.detail == "5 trials ran in 2 different images: zstd in 4 (plain 2, goal 2), 0123456789ab in 1 (goal 1)"


def test_e04_a_source_that_tells_budgets_alone_is_bounded_not_taken_for_the_whole() -> None:
    """An import: its deadlines are known, and of the rest it is not told how they ended."""
    seen = look("budget_binding", facts([*rows(8, budget_ended=True), *rows(20, first=50, budget_ended=None)]))
    assert (seen.looked_at, seen.found) == (8, ()) and "of 20 of 28 done cells it is not known" in seen.unseen
    seen = look("budget_binding", facts([*rows(8, budget_ended=None), *rows(80, first=50)]))
    assert (seen.found, seen.unseen) == ((), "")
    sure = look("budget_binding", facts([*rows(30, budget_ended=True), *rows(2, first=50, budget_ended=None)]))
    assert "plain 15 of 16" in sure.found[0].detail and not sure.unseen


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("budget_binding", {"budget_ended": None}),
        ("identical_outputs", {"outputs": None}),
        ("image_stale", {"image_id": None}),
        ("post_score_voids", {"state": "voided", "score_known": None}),
        ("post_score_voids_uneven", {"state": "voided", "score_known": None}),
    ],
)
def test_e04_a_source_that_says_nothing_is_unseen_and_not_nothing_found(code: str, values: dict[str, object]) -> None:
    seen = look(code, facts(rows(12, **values)))
    assert seen.unseen
    assert (seen.looked_at, seen.of) == (0, 12)


def test_d04_scores_of_one_task_that_were_read_by_different_rules_are_named_with_their_arms() -> None:
    rule = "reward = result.json:final"
    mixed = [trial(1, "plain"), trial(2, "goal", score_rules=rule), trial(3, "plain", replicate=2, score_rules=rule)]
    alike = [trial(n, arm, "rust", score_rules=rule) for n, arm in ((4, "plain"), (5, "goal"))]
    (found,) = look("score_rules_differ", facts([*mixed, *alike])).found
    assert (found.severity, found.subject) == ("warning", "zstd")
    assert found.detail == "2 scores by reward = result.json:final (plain 1, goal 1); 1 score by no rule (plain 1)"
    assert not look("score_rules_differ", facts([*mixed[1:], trial(6, "goal", state="voided")])).found, (
        "what does not count is not compared"
    )
    assert not look("score_rules_differ", facts([*mixed[1:], trial(6, "goal", by_person=True)])).found, "nor a person's word"


LOUD = frozenset({"warning", "error", "stop_loss"})
ALL: tuple[Rule, ...] = (*results.RULES, *verifiers.RULES, *house.RULES)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6, 0.9, 1.0])
def test_a_clean_campaign_is_left_in_peace(share: float) -> None:
    loud = {}
    for seed in range(40):
        seen = clean(seed, share=share)
        for rule in ALL:
            told = rule.look(seen)
            assert not told.unseen, (rule.code, told.unseen)
            if told.found and rule.severity in LOUD:
                loud[seed, rule.code] = told.found
    assert loud == {}


def test_a_clean_campaign_can_be_hurt_by_each_fault() -> None:
    """The campaign above is one in which these rules do look: each change to it is found."""
    seen = clean(1)
    task = seen.tasks[3]
    hurt = {
        "same_failure_everywhere": {"reward": 0.0, "partial": 0.0, "test_rate": None, "flags": ("build_failed",)},
        "image_stale": {"context_digest": "c-older"},
        "identical_outputs": {"outputs": "o", "parts": "p", "partial": 0.4, "reward": 0.0},
        "verifier_flaky": {"flags": ("changed_after_exit",)},
        "budget_binding": {"budget_ended": True},
    }
    for code, change in hurt.items():
        changed = tuple(replace(row, **change) if row.task == task and row.state == "scored" else row for row in seen.trials)
        assert look(code, replace(seen, trials=changed)).found, code
