"""What is paired, what is left out, and the sentences that must stand beside the numbers; degenerate campaigns are told honestly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marathond.core.compare import compare
from marathond.core.compare.result import ArmSummary, BudgetPoint, Comparison, LeftOut, Metric, MetricContrast, Tasks
from marathond.core.errors import Refused
from marathond.core.results import CellResult, Contrast, Results
from tests.support.some_results import T0, a_campaign, a_cell, rewards, some_results

GOAL = (Contrast("goal", "plain"),)


def over(results: Results, metric: Metric = Metric.REWARD) -> MetricContrast:
    found = compare(results).contrasts[0].of(metric)
    assert found is not None
    return found


def tasks_of(found: MetricContrast) -> Tasks:
    assert found.tasks is not None
    return found.tasks


def of_arm(comparison: Comparison, arm: str) -> ArmSummary:
    return next(each for each in comparison.arms if each.arm == arm)


# ── pairing ──


def test_a07_only_cells_valid_in_both_arms_are_paired_and_the_rest_is_named() -> None:
    """Arms that ran different tasks: the means of whole arms say goal is better, the common cells say that nothing differs."""
    easy = rewards("easy", {"goal": [1, 1, None], "plain": [1, 1, 0]})
    hard = rewards("hard", {"goal": [None, None, None], "plain": [0, 0, 0]})
    results = some_results([*easy, *hard], contrasts=GOAL)
    comparison = compare(results)
    assert (of_arm(comparison, "goal").reward, of_arm(comparison, "plain").reward) == (1.0, 2 / 6)
    found = over(results)
    assert (found.cells, tasks_of(found).n, tasks_of(found).difference) == (2, 1, 0.0)
    assert found.left_out == (
        LeftOut("easy", 3, "open in goal"),
        LeftOut("hard", 1, "open in goal"),
        LeftOut("hard", 2, "open in goal"),
        LeftOut("hard", 3, "open in goal"),
    )


def test_a07_every_reason_why_a_cell_is_left_out_is_said() -> None:
    cells = [
        a_cell("t", "goal", 1, state="parked", park_code="task_unsupported"),
        a_cell("t", "plain", 1, state="parked", park_code="task_unsupported"),
        a_cell("t", "goal", 2, state="review", review_code="d06"),
        a_cell("t", "plain", 2, 1.0, partial=1.0),
        a_cell("t", "goal", 3, state="claimed"),
        a_cell("t", "plain", 3, state="open"),
        a_cell("t", "goal", 4, 1.0, partial=1.0),
        a_cell("t", "goal", 5, 1.0, partial=0.5),
        a_cell("t", "plain", 5, 0.0),
        a_cell("t", "goal", 6, 0.0, partial=0.25),
        a_cell("t", "plain", 6, 0.0, partial=0.5),
    ]
    results = some_results(cells, contrasts=GOAL)
    said = [
        "parked: task_unsupported in goal and plain",
        "review: d06 in goal",
        "claimed in goal; open in plain",
        "not planned in plain",
    ]
    assert [each.why for each in over(results).left_out] == said
    partial = over(results, Metric.PARTIAL)
    assert [each.why for each in partial.left_out] == [*said, "no partial in plain"]
    assert (over(results).cells, partial.cells) == (2, 1), "each table has its own n"
    assert tasks_of(partial).difference == -0.25


def test_a09_a_trial_that_was_withdrawn_does_not_come_back_for_its_reward() -> None:
    """The standing trial's reward counts, whatever a voided one of the same cell had."""
    results = a_campaign(tasks=2, replicates=1, arms=("plain", "goal"), whole=True)
    void = a_campaign().voids[1]
    better = replace(void, task=results.cells[0].task, arm="plain", replicate=1, reward=1.0, kept_reward=0.0)
    assert compare(replace(results, voids=(better,))).contrasts == compare(results).contrasts
    assert of_arm(compare(replace(results, voids=(better,))), "plain").post_score_voids == 1


def test_task_means_are_over_the_replicates_that_both_have() -> None:
    found = over(some_results(rewards("t", {"goal": [1, 1, 0, None], "plain": [0, 1, None, 1]}), contrasts=GOAL))
    (task,) = found.pairs
    assert (task.mean_a, task.mean_b, task.difference, task.replicates) == (1.0, 0.5, 0.5, 2)


# ── bounds ──


def test_bounds_hold_whatever_the_missing_cells_would_have_shown() -> None:
    cells = [*rewards("t", {"goal": [1, None], "plain": [0, 1]}), *rewards("u", {"goal": [1, 1], "plain": [None, 1]})]
    found = over(some_results(cells, contrasts=GOAL))
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == (0.0, 0.5)


def test_without_a_missing_cell_the_bounds_are_the_difference() -> None:
    found = over(some_results(rewards("t", {"goal": [1, 0], "plain": [0, 0]}), contrasts=GOAL))
    assert found.bounds is not None
    assert (found.bounds.low, found.bounds.high) == (0.5, 0.5) == (tasks_of(found).difference,) * 2


# ── degenerate campaigns ──


def test_one_task_alone_has_no_spread() -> None:
    found = over(some_results(rewards("t", {"goal": [1, 1], "plain": [0, 1]}), contrasts=GOAL))
    tasks = tasks_of(found)
    assert (tasks.n, tasks.difference, tasks.se, tasks.t, tasks.p_t, tasks.interval, tasks.mde) == (1, 0.5, None, None, None, None, None)
    assert (tasks.p_sign_flip, tasks.smallest_p) == (1.0, 1.0)
    assert found.why.startswith("one task alone has no spread")


def test_tasks_that_all_differ_alike_leave_t_undefined_and_the_exact_test_stands() -> None:
    cells = [cell for n in range(6) for cell in rewards(f"t{n}", {"goal": [1, 0], "plain": [0, 0]})]
    found = over(some_results(cells, contrasts=GOAL))
    tasks = tasks_of(found)
    assert (tasks.se, tasks.t, tasks.p_t, tasks.interval, tasks.mde) == (0.0, None, None, None, None)
    assert (tasks.p_sign_flip, tasks.discordant) == (2 / 64, 6)
    assert "all 6 tasks differ by the same +0.5" in found.why


def test_arms_that_are_equal_everywhere_have_no_discordant_task() -> None:
    cells = [cell for n in range(3) for cell in rewards(f"t{n}", {"goal": [1, 0], "plain": [0, 1]})]
    found = over(some_results(cells, contrasts=GOAL))
    tasks = tasks_of(found)
    assert (tasks.difference, tasks.t, tasks.p_t, tasks.p_sign_flip, tasks.p_sign_test, tasks.p_wilcoxon) == (0, None, None, 1.0, 1.0, None)
    assert "all 3 tasks are equal in both arms" in found.why
    assert any("no task differs" in note for note in compare(some_results(cells, contrasts=GOAL)).contrasts[0].notes)


def test_no_common_cell_is_said_and_nothing_is_computed() -> None:
    cells = [*rewards("t", {"goal": [1, None], "plain": [None, 1]})]
    found = over(some_results(cells, contrasts=GOAL))
    assert (found.tasks, found.pairs, found.why) == (None, (), "no cell is valid in both arms")
    assert found.bounds is not None and (found.bounds.low, found.bounds.high) == (-0.5, 0.5)
    assert len(found.left_out) == 2


def test_nothing_is_done_yet() -> None:
    comparison = compare(some_results(rewards("t", {"goal": [None], "plain": [None]}), contrasts=GOAL))
    assert comparison.contrasts[0].metrics == ()
    assert "no column reward: no cell is done yet" in comparison.notes
    plain = of_arm(comparison, "plain")
    assert (plain.cells, plain.open, plain.done, plain.reward, plain.solved_interval, plain.at_k, plain.budget) == (
        1,
        1,
        0,
        None,
        None,
        (),
        (),
    )


def test_one_arm_alone_has_nothing_to_be_compared_with() -> None:
    comparison = compare(some_results(rewards("t", {"plain": [1, 0]})))
    assert (comparison.contrasts, comparison.family) == ((), "one arm alone: there is nothing to compare")
    assert of_arm(comparison, "plain").reward == 0.5


def test_a_contrast_of_an_arm_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="contrast of arm gaol: no such arm in some; there are: goal, plain"):
        compare(some_results(rewards("t", {"goal": [1], "plain": [0]}), contrasts=(Contrast("gaol", "plain"),)))


# ── these tasks, single replicates ──


def test_rewards_between_0_and_1_are_not_counted() -> None:
    found = over(some_results(rewards("t", {"goal": [0.5], "plain": [0.0]}), contrasts=GOAL))
    assert found.mcnemar is None and found.these_tasks is not None
    assert (found.these_tasks.p_exact, found.these_tasks.why) == (None, "some rewards lie between 0 and 1: they cannot be counted")


def test_single_replicates_have_mcnemars_test_and_several_have_not() -> None:
    cells = [cell for n in range(7) for cell in rewards(f"t{n}", {"goal": [n < 6], "plain": [n == 6]})]
    found = over(some_results(cells, contrasts=GOAL))
    assert found.mcnemar is not None
    assert (found.mcnemar.only_a, found.mcnemar.only_b, found.mcnemar.p_exact, found.mcnemar.p_mid) == (6, 1, 0.125, 0.0703125)
    twice = [cell for n in range(7) for cell in rewards(f"t{n}", {"goal": [n < 6] * 2, "plain": [n == 6] * 2})]
    assert over(some_results(twice, contrasts=GOAL)).mcnemar is None


def test_no_discordant_pair_is_no_evidence() -> None:
    found = over(some_results(rewards("t", {"goal": [1], "plain": [1]}), contrasts=GOAL))
    assert found.mcnemar is not None and found.these_tasks is not None
    assert (found.mcnemar.p_exact, found.mcnemar.p_mid) == (1.0, 1.0)
    assert (found.these_tasks.p_exact, found.these_tasks.p_cmh, found.these_tasks.odds_ratio, found.these_tasks.informative) == (
        1.0,
        None,
        None,
        0,
    )
    assert found.these_tasks.why.startswith("no task was solved in some of its trials and not in others")


def test_an_infinite_odds_ratio_is_none_with_the_reason() -> None:
    found = over(some_results(rewards("t", {"goal": [1, 1], "plain": [0, 0]}), contrasts=GOAL))
    assert found.these_tasks is not None
    assert found.these_tasks.odds_ratio is None and found.these_tasks.p_cmh is not None
    assert found.these_tasks.why == "the odds ratio is infinite: no task has a trial that plain solved beside one that goal did not"


# ── notes ──


def _notes(results: Results) -> str:
    return "\n".join(compare(results).contrasts[0].notes)


@pytest.mark.parametrize(("differ", "said"), [(5, True), (6, False)])
def test_fewer_than_six_discordant_tasks_can_never_reach_05_and_that_is_said(differ: int, said: bool) -> None:
    cells = [cell for n in range(9) for cell in rewards(f"t{n}", {"goal": [n < differ], "plain": [0]})]
    results = some_results(cells, contrasts=GOAL)
    tasks = tasks_of(over(results))
    assert tasks.smallest_p == 2 / 2**differ == tasks.p_sign_flip
    assert ("fewer than 6 discordant tasks can never reach .05" in _notes(results)) == said
    assert (tasks.p_sign_flip > 0.05) == said
    if said:
        assert "5 of 9 tasks differ" in _notes(results) and "0.0625" in _notes(results)


def test_a_contrast_that_was_declared_after_scores_were_known_says_so() -> None:
    cells = rewards("t", {"goal": [1], "plain": [0]})
    late = some_results(cells, contrasts=(Contrast("goal", "plain", T0, 37),))
    early = some_results(cells, contrasts=(Contrast("goal", "plain", T0, 0),))
    assert "declared when 37 scores were known: it may have been chosen by what was seen" in _notes(late)
    assert "declared when" not in _notes(early)
    assert (compare(late).contrasts[0].declared_at_ms, compare(late).contrasts[0].scores_known) == (T0, 37)


def test_with_and_without_builds_that_failed() -> None:
    cells = [
        *rewards("t", {"goal": [1, 1], "plain": [1]}),
        a_cell("t", "plain", 2, 0.0, flags=("build_failed",)),
        *rewards("u", {"goal": [0, 0], "plain": [0, 0]}),
    ]
    found = over(some_results(cells, contrasts=GOAL))
    assert found.without_build_failed is not None
    assert (tasks_of(found).difference, found.without_build_failed.difference) == (0.25, 0.0)
    assert (found.build_failed, found.cells) == (1, 4)
    assert "in 1 of 4 pairs a build failed, which is the agent's own and counts" in _notes(some_results(cells, contrasts=GOAL))
    assert over(some_results(rewards("t", {"goal": [1], "plain": [0]}), contrasts=GOAL)).without_build_failed is None


def test_a_persons_word_among_the_rewards_is_told() -> None:
    cells = [a_cell("t", "goal", 1, 1.0, by_operator=True), a_cell("t", "plain", 1, 0.0)]
    assert "1 of the rewards is a person's word, from a review" in _notes(some_results(cells, contrasts=GOAL))


# ── families ──


def test_holm_runs_over_the_declared_contrasts_of_each_metric() -> None:
    results = a_campaign(whole=True)
    comparison = compare(results)
    assert len(comparison.contrasts) == 4
    assert "the 4 contrasts that the configuration declares" in comparison.family
    for metric in Metric:
        found = [tasks_of(each) for contrast in comparison.contrasts if (each := contrast.of(metric)) is not None]
        ps = sorted((each.p_sign_flip, each.p_holm) for each in found)
        assert ps[0][1] == pytest.approx(min(1.0, 4 * (ps[0][0] or 0)))
        assert all(adjusted is not None and p is not None and adjusted >= p for p, adjusted in ps)


def test_without_a_declaration_every_pair_is_compared_and_that_is_said() -> None:
    results = replace(a_campaign(whole=True), contrasts=())
    comparison = compare(results)
    assert len(comparison.contrasts) == 10
    assert "no contrast is declared, so every pair of the 5 arms is compared" in comparison.family
    assert (comparison.contrasts[0].a, comparison.contrasts[0].b) == ("goal", "plain"), "the later arm less the earlier one"


def test_a_contrast_without_a_p_counts_in_its_family() -> None:
    cells = [cell for n in range(6) for cell in rewards(f"t{n}", {"goal": [1], "plain": [0], "loop": [None]})]
    comparison = compare(some_results(cells, contrasts=(Contrast("goal", "plain"), Contrast("loop", "plain"))))
    first, second = (each.of(Metric.REWARD) for each in comparison.contrasts)
    assert first is not None and second is not None and second.tasks is None
    assert tasks_of(first).p_holm == pytest.approx(2 * (tasks_of(first).p_sign_flip or 0))


def test_a_column_that_does_not_exist_is_no_metric_and_is_noted() -> None:
    comparison = compare(some_results(rewards("t", {"goal": [1], "plain": [0]}), contrasts=GOAL))
    assert [each.metric for each in comparison.contrasts[0].metrics] == [Metric.REWARD]
    assert "no column partial: none of 2 done cells has a partial score" in comparison.notes


# ── one arm by itself ──


def _one(*cells: CellResult) -> ArmSummary:
    return compare(some_results(cells)).arms[0]


def test_pass_at_k_is_undefined_where_a_task_has_fewer_trials() -> None:
    arm = _one(*rewards("t", {"x": [1, 1, 0]}), *rewards("u", {"x": [0, 1, None]}), *rewards("v", {"x": [None, None, None]}))
    assert [(each.k, each.at_least_one is None, each.all_of is None, each.tasks) for each in arm.at_k] == [
        (1, False, False, 2),
        (2, False, False, 2),
        (3, True, True, 2),
    ]
    assert arm.at_k[0].at_least_one == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert (arm.at_k[1].at_least_one, arm.at_k[1].all_of) == (1.0, pytest.approx((1 / 3 + 0) / 2))


def test_reward_by_how_the_agent_ended() -> None:
    arm = _one(
        a_cell("t", "x", 1, 1.0, ended_by="agent", partial=1.0),
        a_cell("t", "x", 2, 0.0, ended_by="deadline", partial=0.5),
        a_cell("t", "x", 3, 0.0, ended_by="deadline"),
        a_cell("t", "x", 4, 1.0),
    )
    assert [(each.ended_by, each.cells, each.reward, each.partial) for each in arm.by_ending] == [
        ("deadline", 2, 0.0, 0.5),
        ("agent", 1, 1.0, 1.0),
        ("unknown", 1, 1.0, None),
    ]


def test_ends_of_its_own_with_another_exit_status_are_told_apart_and_each_mean_has_its_n() -> None:
    arm = _one(
        *(a_cell("t", "x", n, 0.0, ended_by="agent", exit_code=status) for n, status in enumerate((3, 3, 0, 1, None), 1)),
        a_cell("t", "x", 6, 0.0, ended_by="agent", partial=0.5),
        a_cell("t", "x", 7, 0.0, ended_by="deadline", exit_code=137),
        a_cell("t", "x", 8, state="review", ended_by="agent", exit_code=4),
    )
    own, late = arm.by_ending
    assert (own.cells, own.exits, own.known["reward"], own.known["partial"]) == (6, {"3": 2, "1": 1}, 6, 1)
    assert (late.ended_by, late.exits) == ("deadline", {})


def test_the_share_of_spent_budgets_is_unknown_where_one_ending_is() -> None:
    """An imported table names deadlines and nothing else: of those it names, all are deadlines."""
    known = [a_cell("t", "x", 1, 1.0, budget_ended=True), a_cell("t", "x", 2, 0.0, budget_ended=False)]
    assert _one(*known).budget_ended == 0.5
    assert _one(*known, a_cell("t", "x", 3, 0.0)).budget_ended is None
    assert _one(*known, a_cell("t", "x", 3, state="open")).budget_ended == 0.5


def test_the_curve_over_time_climbs_at_each_solved_trial() -> None:
    arm = _one(
        a_cell("t", "x", 1, 1.0, agent_s=30.0),
        a_cell("t", "x", 2, 0.0, agent_s=90.0),
        a_cell("t", "x", 3, 1.0, agent_s=10.0),
        a_cell("t", "x", 4, 1.0, agent_s=30.0),
        a_cell("t", "x", 5, state="open"),
    )
    assert arm.budget == (BudgetPoint(0, 0), BudgetPoint(10, 0.25), BudgetPoint(30, 0.75), BudgetPoint(90, 0.75))
    assert _one(a_cell("t", "x", 1, 1.0)).budget == ()


def test_spreads_tell_how_many_are_unknown() -> None:
    arm = _one(a_cell("t", "x", 1, 1.0, cost_usd=1.0), a_cell("t", "x", 2, 1.0, cost_usd=3.0), a_cell("t", "x", 3, 1.0))
    assert arm.cost_usd is not None and arm.tokens is not None
    assert (arm.cost_usd.n, arm.cost_usd.unknown, arm.cost_usd.mean, arm.cost_usd.median, arm.cost_usd.total) == (2, 1, 2.0, 2.0, 4.0)
    assert (arm.tokens.n, arm.tokens.unknown, arm.tokens.mean, arm.tokens.total) == (0, 3, None, None), "unknown is never 0"


def test_counts_of_cells_add_up() -> None:
    for arm in compare(a_campaign()).arms:
        assert arm.cells == arm.done + arm.review + arm.parked + arm.open + arm.claimed


def test_standing_voids_are_counted_by_code_and_those_after_a_score_apart() -> None:
    results = a_campaign()
    comparison = compare(results)
    assert sum(sum(arm.voids.values()) for arm in comparison.arms) == sum(void.standing for void in results.voids) == 2
    assert sum(arm.post_score_voids for arm in comparison.arms) == 1


def test_the_error_of_a_mean_takes_trials_of_one_task_together() -> None:
    arm = _one(*rewards("t", {"x": [1, 1]}), *rewards("u", {"x": [1, 0]}), *rewards("v", {"x": [0, 0]}))
    assert arm.reward_se == pytest.approx(0.288675, abs=5e-7)
