"""A small report whose every number is written down here, not computed: for the golden text and for what each format must hold."""

from __future__ import annotations

from dataclasses import replace

from marathond.core.columns import Column
from marathond.core.compare.result import (
    ArmSummary,
    AtK,
    BudgetPoint,
    ByEnding,
    Comparison,
    ContrastResult,
    Discordance,
    Interval,
    LeftOut,
    Metric,
    MetricContrast,
    PairedTask,
    Spread,
    Tasks,
    TheseTasks,
)
from marathond.core.results import ArmResult, Contrast, DisclosureResult, FindingResult, Results, VoidResult
from marathond.report.document import Report, make
from tests.support.some_results import T0, a_cell, some_results

HOUR_MS = 3_600_000
STOP = FindingResult("own_stop", "stop_loss", "goal", "7 voids of 12, others 0 of 40", T0 + 5, None, None, None, "small")


def results() -> Results:
    """Two arms, three tasks, two replicates: one cell parked, one open, one void before and one after the score."""
    cells = []
    for number, (task, arm, replicate, reward, partial) in enumerate(_CELLS):
        more = {"agent_s": 60.0 * (number + 1), "tokens": 1_000_000 * (number + 1), "scored_at_ms": T0 + number * HOUR_MS}
        more |= {"ended_by": "agent", "budget_ended": False, "partial": partial, "cost_usd": 1.5}
        cells.append(a_cell(task, arm, replicate, reward, **more))
    cells.append(a_cell("rust", "plain", 2, state="parked", park_code="task_unsupported"))
    cells.append(a_cell("rust", "goal", 2, state="open"))
    return some_results(
        cells,
        campaign="small",
        benchmark="own",
        as_of_ms=T0 + 24 * HOUR_MS,
        arms=(ArmResult("plain", "codex", 1, "h-plain", "gpt-x"), ArmResult("goal", "codex", 2, "h-goal", "gpt-x")),
        contrasts=(Contrast("goal", "plain", T0, 0),),
        declaration=1,
        declared_after=0,
        columns=(Column("reward", True), Column("partial", True), Column("test_rate", False, "own has none")),
        voids=(
            VoidResult("t0003", "sql", "goal", 1, "engine_failed", "infrastructure", "it broke", "daemon", "daemon", T0, False, True),
            VoidResult("t0007", "sql", "plain", 1, "operator", "operator", "wrong key", "operator", "ana", T0 + 9, True, True, 1.0, 0.0),
        ),
        findings=(
            FindingResult("own_note", "warning", "t0008", "LoopX was not called", T0, None, "ana", "known", "small"),
            FindingResult("disk_low", "error", "disk:/", "4 % free", T0, T0 + 1, None, None, None),
        ),
        disclosures=(DisclosureResult("goals_on", "goal", "goals are on", "plain, where they are off"),),
        disclosure_version=2,
        spent_usd={"plain": 7.5, "goal": 7.5},
        voids_usd={"goal": 0.75},
        unpriced={"goal": 1},
    )


_CELLS = (
    *(("sql", "plain", 1, 0.0, 0.25), ("sql", "plain", 2, 1.0, 1.0), ("sql", "goal", 1, 1.0, 1.0), ("sql", "goal", 2, 1.0, 1.0)),
    *(("zip", "plain", 1, 0.0, 0.5), ("zip", "plain", 2, 0.0, 0.5), ("zip", "goal", 1, 0.0, 0.75), ("zip", "goal", 2, 1.0, 1.0)),
    *(("rust", "plain", 1, 0.0, 0.125), ("rust", "goal", 1, 0.0, 0.25)),
)
REWARD = MetricContrast(
    Metric.REWARD,
    Tasks(
        n=3,
        mean_a=0.5,
        mean_b=0.16667,
        difference=0.33333,
        se=0.16789,
        t=1.98765,
        p_t=0.18456,
        interval=Interval(-0.38391, 1.05057),
        p_sign_flip=0.50001,
        p_holm=0.50002,
        p_sign_test=0.50003,
        p_wilcoxon=0.50004,
        discordant=2,
        wins=2,
        losses=0,
        smallest_p=0.50005,
        mde=0.87654,
    ),
    pairs=(PairedTask("rust", 0.0, 0.0, 0.0, 1), PairedTask("sql", 1.0, 0.5, 0.5, 2), PairedTask("zip", 0.5, 0.0, 0.5, 2)),
    cells=5,
    left_out=(LeftOut("rust", 2, "open in goal, parked: task_unsupported in plain"),),
    bounds=Interval(0.11111, 0.44444),
    these_tasks=TheseTasks(0.03211, 0.01234, 3.0833, 2),
    mcnemar=Discordance(6, 1, 3, 2, 0.12512, 0.07031),
    without_build_failed=Tasks(
        n=2, mean_a=0.75, mean_b=0.25, difference=0.51234, interval=Interval(-0.1, 0.9), p_t=0.21212, p_sign_flip=0.54321
    ),
    build_failed=1,
)
PARTIAL = MetricContrast(Metric.PARTIAL, Tasks(n=3, mean_a=0.8, mean_b=0.45, difference=0.35, p_t=0.00001, discordant=3, wins=3), cells=5)
NONE = MetricContrast(Metric.TEST_RATE, None, why="no cell that is valid in both arms has a test rate in both")


def comparison() -> Comparison:
    contrast = ContrastResult("goal", "plain", T0, 0, (REWARD, PARTIAL, NONE), ("fewer than 6 discordant tasks can never reach .05",))
    return Comparison(
        arms=(_arm("plain", 5, 1, 0.2, parked=1, voids={"operator": 1}), _arm("goal", 5, 3, 0.6, open=1, voids={"engine_failed": 1})),
        contrasts=(contrast,),
        estimands=("tasks like these: first sentence", "these tasks: second sentence"),
        family="Holm's correction runs over 1 contrast",
        notes=("a note of the whole",),
    )


def _arm(name: str, done: int, solved: int, reward: float, *, voids: dict[str, int], parked: int = 0, open: int = 0) -> ArmSummary:
    return ArmSummary(
        arm=name,
        cells=6,
        done=done,
        review=0,
        parked=parked,
        open=open,
        solved=solved,
        solved_interval=Interval(round(0.03621 + solved / 10, 5), round(0.62451 + solved / 10, 5)),
        reward=reward,
        partial=0.475 if name == "plain" else 0.8,
        test_rate=None,
        budget_ended=0.0,
        build_failed=1 if name == "goal" else 0,
        voids=voids,
        post_score_voids=1 if name == "plain" else 0,
        at_k=(AtK(1, 0.25, 0.26), AtK(2, 0.5, None)),
        by_ending=(ByEnding("agent", done, reward, 0.475, {"partial": 3}, {"3": 2, "137": 1} if name == "plain" else {}),),
        known={"reward": done, "partial": 3 if name == "plain" else done},
        agent_s=Spread(5, 0, 330.0, 300.0, 61.0, 600.0, 1650.0),
        tokens=Spread(4, 1, 5_500_000.0, 5_000_000.0, 1_100_000.0, 10_000_000.0, 27_500_000.0),
        cost_usd=Spread(5, 0, 1.51, 1.52, 1.53, 1.54, 7.55),
        budget=(BudgetPoint(120.0, 0.1), BudgetPoint(180.0, solved / done)),
    )


def report(*, stop: bool = False, anyway: bool = False) -> Report:
    """``stop``: a stop-loss finding is open."""
    made = results()
    if stop:
        made = replace(made, findings=(*made.findings, STOP))
    return make(made, comparison(), anyway=anyway)
