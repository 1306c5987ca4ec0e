"""One arm out of line, and arms whose agents are dead or silent: each rule with what it must name, and silent where arms are alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from marathond.core.audit import agents, arms
from marathond.core.audit.exact import Ranked, median, ranks
from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Look, Rule
from marathond.core.notices import FindingSeen, Seen, to_tell
from tests.support.audit_facts import ARMS, HOUR, facts, trial
from tests.support.interleaved import campaign

RULES: dict[str, Rule] = {rule.code: rule for rule in (*arms.RULES, *agents.RULES)}
CAMPAIGNS, TASKS, REPLICATES = 1_000, 10, 3
LOOKS = (50, 100, 150)
NO_TEST = frozenset({"reward_by_ending"})
ENDINGS = ("agent",) * 6 + ("deadline",) * 3 + ("blocked",)


def look(code: str, seen: Facts) -> Look:
    return RULES[code].look(seen)


def honest(rng: random.Random, number: int, arm: str, task: str, replicate: int, failed: bool) -> TrialFact:
    """What differs differs by chance and by task."""
    hard = 1 + int(task.rpartition("-")[2])
    turns = 2 + int(rng.expovariate(0.2 / hard))
    by = rng.choice(ENDINGS)
    values: dict[str, Any] = {
        "ended_by": by,
        "budget_ended": by == "deadline",
        "turns": turns,
        "requests": 6 * turns,
        "input_tokens": int(20_000 * turns * rng.lognormvariate(0, 0.8)),
        "first_byte_ms": 900 * rng.lognormvariate(0, 0.6),
        "bad_requests": int(rng.random() < 0.1),
        "commands": 0 if rng.random() < 0.05 else 3 * turns,
        "silent_turns": int(rng.random() < 0.1),
        "overrun_ms": 120_000 if rng.random() < 0.05 else None,
        "reattached": int(rng.random() < 0.1),
        "reward": float(rng.random() < 0.3),
        "rested_at_ms": number * 60_000,
        "exit_code": 137 if by == "deadline" else 3 if rng.random() < 0.1 else 0,
    }
    if failed:
        values |= {"state": "voided", "void_code": "model_failed", "void_by": "daemon", "infra": True}
    return trial(number, arm, task, replicate=replicate, **values)


def clean_looks(seed: int) -> Iterator[Facts]:
    """A campaign whose arms are alike, as it is when a third, two thirds and all of its trials are at rest."""
    rng, rows = random.Random(seed), list[TrialFact]()
    kinds = dict.fromkeys(ARMS, "codex")
    for rest in campaign(rng, [0.05] * len(ARMS), tasks=TASKS, replicates=REPLICATES):
        replicate, task = divmod(rest.block, TASKS)
        rows.append(honest(rng, len(rows) + 1, ARMS[rest.arm], f"task-{task}", replicate + 1, rest.failed))
        if len(rows) in LOOKS:
            yield facts(rows, ARMS, kinds=kinds)


def test_all_rules_together_are_silent_on_99_percent_of_campaigns_whose_arms_are_alike() -> None:
    accused, codes = 0, Counter[str]()
    for seed in range(CAMPAIGNS):
        said = {found.code for seen in clean_looks(seed) for rule in RULES.values() for found in rule.look(seen).found} - NO_TEST
        accused += bool(said)
        codes.update(said)
    print(f"{accused} of {CAMPAIGNS} clean campaigns accused, by {len(RULES) - len(NO_TEST)} rules: {dict(codes)}")
    assert accused <= CAMPAIGNS // 100


def test_the_simulation_can_accuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "UNLIKELY", 0.2)
    told = [rule for code, rule in RULES.items() if code not in NO_TEST]
    assert sum(any(rule.look(seen).found for rule in told) for seed in range(20) for seen in clean_looks(seed)) > 5


def rows(arm: str, count: int = 20, **values: Any) -> list[TrialFact]:
    """Over ten tasks, replicate after replicate."""
    first = 1 + 1000 * ARMS.index(arm)
    return [trial(first + n, arm, f"task-{n % 10}", replicate=1 + n // 10, **values) for n in range(count)]


def one_hit(hit: dict[str, Any], well: dict[str, Any], *, some: dict[str, Any] | None = None) -> Facts:
    """All 20 trials of ``goal`` are hit, none of the others; ``some``: what one trial of another arm has."""
    made = rows("goal", **hit) + [row for arm in ARMS if arm != "goal" for row in rows(arm, **well)]
    if some:
        made[-1] = replace(made[-1], **some)
    return facts(made, ARMS)


HITS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "latency_disparity": ("warning", {"first_byte_ms": 4_000.0}, {"first_byte_ms": 1_200.0}),
    "bad_request_disparity": ("error", {"bad_requests": 2}, {"bad_requests": 0}),
    "overrun_disparity": ("warning", {"overrun_ms": 400_000}, {"overrun_ms": 900}),
    "reattached_differ": ("info", {"reattached": 1}, {"reattached": 0}),
    "tokens_differ": ("info", {"input_tokens": 2_000_000}, {"input_tokens": 400_000}),
    "turns_differ": ("info", {"turns": 60}, {"turns": 4}),
    "exits_differ": ("warning", {"exit_code": 3}, {"exit_code": 0}),
    "silent_turns_disparity": ("warning", {"silent_turns": 3}, {"silent_turns": 0}),
    "dead_agents": ("warning", {"commands": 0}, {"commands": 30}),
}


@pytest.mark.parametrize("code", HITS)
def test_one_arm_out_of_line_is_named_with_all_counts(code: str) -> None:
    severity, hit, well = HITS[code]
    (found,) = look(code, one_hit(hit, well)).found
    assert (found.code, found.severity, found.subject, found.stops) == (code, severity, "goal", False)
    if code in ("tokens_differ", "turns_differ"):
        assert "may be the treatment itself" in found.detail


@pytest.mark.parametrize("code", HITS)
def test_little_data_and_hits_alike_in_all_arms_say_nothing(code: str) -> None:
    _, hit, well = HITS[code]
    least = 3 if code == "exits_differ" else 5  # there all against none is enough for a word
    few = [row for arm in ARMS for row in rows(arm, least, **(hit if arm == "goal" else well))]
    assert look(code, facts(few, ARMS)).found == ()
    assert look(code, facts([row for arm in ARMS for row in rows(arm, **hit)], ARMS)).found == ()


def exits(mine: list[int], others: list[int], **values: Any) -> Facts:
    made = [replace(row, exit_code=code, **values) for row, code in zip(rows("goal", len(mine)), mine, strict=True)]
    made += [replace(row, exit_code=code) for row, code in zip(rows("codex-cli", len(others)), others, strict=True)]
    return facts(made, ("codex-cli", "goal"))


@pytest.mark.parametrize(
    ("mine", "others", "severity"),
    [
        ([3] * 4, [0] * 4, "warning"),
        ([3] * 8, [0] * 4, "warning"),
        ([3, 4] * 9, [0] * 18, "warning"),
        ([3] * 3, [0] * 18, None),
        ([3] * 18, [0] * 3, None),
        ([3] * 3 + [0], [0] * 4, None),
        ([3] * 4, [0] * 3 + [1], None),
        ([0] * 4, [0] * 4, None),
        ([3] * 18 + [0], [0] * 18, "info"),
    ],
)
def test_an_arm_whose_every_agent_fails_is_named_by_its_fourth(mine: list[int], others: list[int], severity: str | None) -> None:
    found = look("exits_differ", exits(mine, others, agent_ms=60_000)).found
    assert [(each.severity, each.subject) for each in found] == ([] if severity is None else [(severity, "goal")])


def test_f15_a_command_whose_path_is_wrong_is_a_dead_arm() -> None:
    (found,) = look("exits_differ", exits([2] * 18, [0] * 18, agent_ms=40, asks_model=False)).found
    assert found.severity == "error" and not found.stops
    for words in ("every agent of goal", "all 18", "within 0.1 s", "exit status 2", "codex-cli 0 of 18", "marathonctl logs t"):
        assert words in found.detail, found.detail
    one_that_worked = exits([2] * 18, [0] * 18, agent_ms=40)
    slow = replace(one_that_worked, trials=(replace(one_that_worked.trials[0], agent_ms=30_000), *one_that_worked.trials[1:]))
    unknown = replace(one_that_worked, trials=(replace(one_that_worked.trials[0], agent_ms=None), *one_that_worked.trials[1:]))
    for seen in (slow, unknown):
        assert [each.severity for each in look("exits_differ", seen).found] == ["warning"]


def test_an_arm_below_the_others_is_named_for_tokens_and_not_for_latency() -> None:
    low = one_hit({"input_tokens": 20_000, "output_tokens": 900, "first_byte_ms": 100.0}, {"first_byte_ms": 1_200.0})
    assert [found.subject for found in look("tokens_differ", low).found] == ["goal"]
    assert look("latency_disparity", low).found == ()


def test_a_difference_that_is_certain_and_small_is_no_latency_disparity() -> None:
    assert look("latency_disparity", one_hit({"first_byte_ms": 1_300.0}, {"first_byte_ms": 1_200.0})).found == ()


def test_a02_requests_that_one_arm_has_refused_more_often_are_named_though_others_are_hit_too() -> None:
    look_ = look("bad_request_disparity", one_hit({"bad_requests": 1}, {"bad_requests": 0}, some={"bad_requests": 3}))
    assert [found.subject for found in look_.found] == ["goal"]
    assert "20 of 20 trials of goal met HTTP 4xx" in look_.found[0].detail
    assert "codex-cli 1 of 20" in look_.found[0].detail


def test_a03_an_arm_that_goes_another_way_to_the_model_is_named_by_its_latency() -> None:
    tasks = [{"first_byte_ms": 500.0 + 300 * n} for n in range(10)]  # tasks differ more than the arms do
    made = [replace(row, **tasks[n % 10]) for arm in ARMS for n, row in enumerate(rows(arm))]
    made = [replace(row, first_byte_ms=(row.first_byte_ms or 0) * (2.2 if row.arm == "goal" else 1)) for row in made]
    assert [found.subject for found in look("latency_disparity", facts(made, ARMS)).found] == ["goal"]


def test_a_source_that_says_nothing_is_unseen_and_not_well() -> None:
    mute = {"first_byte_ms": None, "bad_requests": None, "turns": None, "commands": None, "silent_turns": None, "input_tokens": None}
    seen = facts([row for arm in ARMS for row in rows(arm, **mute)], ARMS)
    for code in ("latency_disparity", "bad_request_disparity", "tokens_differ", "turns_differ", "dead_agents", "arm_dead"):
        assert look(code, seen).unseen, code
    assert not any(look(code, facts((), ARMS)).unseen for code in RULES)


def test_endings_of_one_arm_are_information() -> None:
    made = rows("goal", ended_by="turn_cap") + [row for arm in ARMS if arm != "goal" for row in rows(arm)]
    found = look("endings_differ", facts(made, ARMS)).found
    assert [(each.severity, each.subject) for each in found] == [("info", "goal turn_cap")]
    assert "20 of 20 trials of goal, against plain 0 of 20" in found[0].detail


def test_exits_that_are_not_its_own_or_have_no_status_are_no_crashes() -> None:
    killed = rows("goal", ended_by="deadline", exit_code=137)
    told = look("exits_differ", facts(killed + [row for arm in ARMS if arm != "goal" for row in rows(arm, exit_code=0)], ARMS))
    assert (told.found, told.of) == ((), 80)
    silent = look("exits_differ", facts([row for arm in ARMS for row in rows(arm)], ARMS))
    assert (silent.of, silent.unseen) == (0, "")


def test_reward_by_ending_tells_both_means_with_their_cells() -> None:
    spent = rows("goal", 10, reward=0.0, budget_ended=True)
    own = [replace(row, trial_id=row.trial_id + 500, replicate=2) for row in rows("goal", 10, reward=1.0, budget_ended=False)]
    look_ = look("reward_by_ending", facts([*spent, *own, *rows("plain", 10)], ARMS))
    assert [each.detail for each in look_.found] == [
        "mean reward of goal: 0.00 where its budget ended it (10 cells), 1.00 where it ended itself (10 cells)"
    ]
    assert (look_.looked_at, look_.of) == (30, 30)


# ── dead and silent agents ──


def at(row: TrialFact, minute: int, **values: Any) -> TrialFact:
    return replace(row, rested_at_ms=minute * 60_000, **values)


def test_f15_three_dead_arms_are_each_named_and_stop_all() -> None:
    """No arm is out of line there: each is judged by itself."""
    made = [at(row, n, commands=0) for arm in ARMS[:3] for n, row in enumerate(rows(arm, 5))]
    made += [row for arm in ARMS[3:] for row in rows(arm, 5)]
    found = look("arm_dead", facts(made, ARMS)).found
    assert [each.subject for each in found] == list(ARMS[:3])
    assert all(each.stops and each.severity == "stop_loss" and len(each.trials) == 5 for each in found)
    assert found[0].detail.startswith("infrastructure first: the last 5 of 5 ended trials of plain ran not one command: t0001")


def test_f15_a_void_for_a_dead_agent_counts_and_one_that_acts_ends_the_row() -> None:
    void = {"state": "voided", "void_code": "dead_agent", "infra": True, "commands": None, "ended_by": None}
    five = [at(row, n, **(void if n % 2 else {"commands": 0})) for n, row in enumerate(rows("goal", 5))]
    assert [each.subject for each in look("arm_dead", facts(five, ARMS)).found] == ["goal"]
    alive = at(rows("goal", 6)[-1], 99, commands=4)
    assert look("arm_dead", facts([*five, alive], ARMS)).found == ()
    assert look("arm_dead", facts(five[:4], ARMS)).found == ()


def running(number: int, arm: str, *, quiet: int | None, since: int = 3 * HOUR, **values: Any) -> TrialFact:
    state = {"state": "running", "infra": None, "ended_by": None, "budget_ended": None, "rested_at_ms": None}
    return trial(number, arm, **state, running_ms=since, last_request_ms=quiet, **values)


def test_f15_a_silent_agent_is_named_and_a_silent_arm_is_told() -> None:
    two = [running(1, "goal", quiet=2 * HOUR), running(2, "goal", quiet=None), running(3, "plain", quiet=1_000)]
    assert [each.subject for each in look("agent_silent", facts(two)).found] == ["t0001", "t0002"]
    (found,) = look("arm_silent", facts(two)).found
    assert (found.subject, found.severity, found.stops, found.trials) == ("goal", "error", False, ())
    assert found.detail.startswith("all 2 running trials of goal have asked their model nothing for more than an hour")
    seen = Seen(1, "x", (FindingSeen(7, found.code, found.severity, found.subject, found.detail),))
    assert [notice.kind for notice in to_tell(seen, (), no_score_ms=1)] == ["quiet"]
    assert look("agent_silent", facts(two)).looked_at == 3


def test_f15_who_waits_for_an_answer_has_just_begun_or_builds_alone_stops_nothing() -> None:
    waiting = [running(n, "goal", quiet=2 * HOUR, open_requests=1) for n in (1, 2)]
    young = [running(n, "goal", quiet=None, since=60_000) for n in (3, 4)]
    assert look("agent_silent", facts([*waiting, *young])).found == ()
    alone = [running(5, "goal", quiet=2 * HOUR)]
    assert look("agent_silent", facts(alone)).found and not look("arm_silent", facts(alone)).found
    one_works = [running(6, "goal", quiet=2 * HOUR), running(7, "goal", quiet=40 * 60_000)]
    assert look("arm_silent", facts(one_works)).found == ()
    training = [running(n, arm, quiet=5 * HOUR) for n, arm in ((8, "goal"), (9, "goal"), (10, "plain"))]
    same_task = [replace(each, task="post-train") for each in training]
    assert look("arm_silent", facts(same_task)).found == ()


def test_a13_the_share_of_trials_without_their_treatment_is_lifted_to_the_arm() -> None:
    made = [replace(row, loopx=True, delivered=n >= 4, used=True) for n, row in enumerate(rows("heartbeat", 20))]
    (found,) = look("arm_untreated", facts(made, ARMS)).found
    assert (found.severity, found.subject) == ("error", "heartbeat")
    assert found.detail.startswith("4 of 20 graded trials of heartbeat were not given all of its treatment")
    rarely = [replace(row, delivered=True) if row.trial_id % 20 < 3 else row for row in made]
    assert look("arm_untreated", facts(rarely[2:], ARMS)).found == ()


def test_a13_an_arm_that_hardly_uses_its_treatment_is_named() -> None:
    made = [replace(row, loopx=True, delivered=True, used=n >= 10) for n, row in enumerate(rows("heartbeat", 20))]
    assert [each.subject for each in look("arm_treatment_unused", facts(made, ARMS)).found] == ["heartbeat"]
    more = [replace(row, used=row.trial_id % 1000 > 9) for row in made]
    assert look("arm_treatment_unused", facts(more, ARMS)).found == ()


# ── of how much ──


def test_rules_about_agents_that_ask_a_model_say_so_beside_agents_that_do_not() -> None:
    """Seventeen trials of command arms have ended: a rule that cannot be asked of them must not say that none has."""
    made = [replace(row, asks_model=False, requests=None, turns=None, commands=None) for row in rows("plain", 17)]
    seen = facts(made, ("plain", "goal"), kinds={"plain": "command", "goal": "command"})
    for code in ("dead_agents", "arm_dead", "silent_turns_disparity", "bad_request_disparity", "latency_disparity", "tokens_differ"):
        told = look(code, seen)
        assert (told.of, told.things, told.unseen) == (0, "ended trials that ask a model", ""), code
    assert {(look(code, seen).looked_at, look(code, seen).of) for code in ("overrun_disparity", "endings_differ")} == {(17, 17)}


def test_an_agent_that_has_ended_is_silent_no_more_and_was_there() -> None:
    done = [*rows("plain", 3), running(99, "goal", quiet=1_000)]
    for code in ("agent_silent", "arm_silent"):
        told = look(code, facts(done))
        assert (told.looked_at, told.of, told.things, told.found) == (4, 4, "trials that ask a model, running or ended", ())


def test_reference_arms_alone_are_said_to_be_none_that_is_compared() -> None:
    seen = facts(rows("plain", 4), ("plain",), kinds={"plain": "oracle"})
    assert look("endings_differ", seen).things == "ended trials of arms that are compared"


# ── the arithmetic ──


def test_ranks_agree_with_scipy_where_there_is_one_stratum() -> None:
    rng = random.Random(3)
    ours, theirs = [rng.choice((1, 2, 3, 4, 5)) + 1.0 for _ in range(12)], [rng.choice((1, 2, 3, 4, 5)) * 1.0 for _ in range(30)]
    values = [("t", "a", each) for each in ours] + [("t", "b", each) for each in theirs]
    expected = stats.mannwhitneyu(ours, theirs, alternative="greater", method="asymptotic", use_continuity=False).pvalue
    ranked = ranks(values)["a"]
    assert ranked.p() == pytest.approx(expected, rel=1e-9)
    assert ranked.p(below=True) == pytest.approx(1 - expected, rel=1e-9)


def test_strata_that_hold_one_group_alone_say_nothing() -> None:
    assert ranks([("t", "a", 1.0), ("t", "a", 2.0)]) == {}
    assert ranks([("t", "a", 5.0), ("t", "b", 5.0)])["a"] == Ranked(0.0, 1, 1)
    assert median([3.0, 1.0, 2.0]) == 2.0 and median([1.0, 2.0]) == 1.5
