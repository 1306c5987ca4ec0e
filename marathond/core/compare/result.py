"""What a comparison says, as values: shapes only, no arithmetic, so that a report can be laid out without numpy.

Owns the names.  A number that cannot be had is None and ``why`` or a note says so; nothing is ever 0 for "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Metric(StrEnum):
    REWARD = "reward"
    PARTIAL = "partial"
    TEST_RATE = "test_rate"


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True, slots=True)
class PairedTask:
    """One task in both arms: means over the replicates whose cells are valid in both; ``difference`` is a minus b."""

    task: str
    mean_a: float
    mean_b: float
    difference: float
    replicates: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell that was not paired, and why (``parked: task_unsupported in b``, ``review in a``, ``no partial in a``)."""

    task: str
    replicate: int
    why: str


@dataclass(frozen=True, slots=True)
class Tasks:
    """The estimand "tasks like these": the task is the unit.  Student's t over the tasks' differences, and the exact sign-flip test.

    ``discordant``: tasks whose means differ; ``wins``/``losses`` of a among them; ``smallest_p``: the least two-sided exact p that so many
    discordant tasks can ever give, 2 x (1/2)^m.  ``mde``: minimum detectable difference at 80 % power, two-sided 5 %, by the observed
    spread.  ``sign_flip_how``: ``exact`` or ``sampled``.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    se: float | None = None
    t: float | None = None
    p_t: float | None = None
    interval: Interval | None = None
    p_sign_flip: float | None = None
    sign_flip_how: str = "exact"
    p_holm: float | None = None
    p_sign_test: float | None = None
    p_wilcoxon: float | None = None
    discordant: int = 0
    wins: int = 0
    losses: int = 0
    smallest_p: float | None = None
    mde: float | None = None


@dataclass(frozen=True, slots=True)
class TheseTasks:
    """The estimand "these tasks": stratified within task, for rewards of 0 and 1.  ``p_exact``: conditional, two-sided.

    ``informative``: strata in which both outcomes occur.
    """

    p_exact: float | None
    p_cmh: float | None
    odds_ratio: float | None
    informative: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Discordance:
    """McNemar over pairs of single replicates: ``only_a`` solved by a alone."""

    only_a: int
    only_b: int
    both: int
    neither: int
    p_exact: float | None
    p_mid: float | None


@dataclass(frozen=True, slots=True)
class MetricContrast:
    """One metric of one contrast.  ``cells``: of each arm, paired.  ``bounds``: the difference of task means over ALL cells that are
    planned in both arms, were every missing one as bad, or as good, for a as could be (its level is 1: nothing can lie outside); a task
    whose verifier tells no such number in any trial is not among them.
    ``without_build_failed``: as ``tasks``, pairs with a cell flagged build_failed left out; None when there is none, or nothing is left.
    ``build_failed``: such pairs."""

    metric: Metric
    tasks: Tasks | None
    pairs: tuple[PairedTask, ...] = ()
    cells: int = 0
    left_out: tuple[LeftOut, ...] = ()
    bounds: Interval | None = None
    these_tasks: TheseTasks | None = None
    mcnemar: Discordance | None = None
    without_build_failed: Tasks | None = None
    build_failed: int = 0
    why: str = ""
    """Why there is nothing, when ``tasks`` is None; else what is undefined in it, and why."""
    refused: int = 0
    """Pairs left out because a value was refused: what is compared is what was left."""


@dataclass(frozen=True, slots=True)
class ContrastResult:
    """``notes``: sentences that must stand beside the numbers, such as that fewer than 6 discordant tasks can never reach .05."""

    a: str
    b: str
    declared_at_ms: int | None
    scores_known: int | None
    metrics: tuple[MetricContrast, ...]
    notes: tuple[str, ...] = ()

    def of(self, metric: Metric) -> MetricContrast | None:
        return next((each for each in self.metrics if each.metric is metric), None)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of a quantity over done cells: ``n`` known, ``unknown`` not."""

    n: int
    unknown: int
    mean: float | None = None
    median: float | None = None
    p10: float | None = None
    p90: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class AtK:
    """pass@k (at least one of k) and pass^k (all of k), means over the ``tasks`` that have a done cell; None: undefined, for some of them
    has fewer than k."""

    k: int
    at_least_one: float | None
    all_of: float | None
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class ByEnding:
    """Cells by how their agent ended.

    ``known``: metric → cells that have it, the n of its mean.  ``exits``: exit status other than 0 → cells whose agent ended by itself with
    it; what we killed has our signal's and says nothing of the agent.
    """

    ended_by: str
    cells: int
    reward: float | None
    partial: float | None
    known: Mapping[str, int] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """Share of ALL the arm's done cells that had scored full reward by an agent that had ended within ``seconds``: the height of a step
    curve from here to the next point.  The first is (0, 0), the last where the last agent ended."""

    seconds: float
    solved: float


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """One arm by itself; means are over its own done cells and are NOT what arms are compared by (fault a07).

    ``solved``: done cells with reward 1; ``solved_interval``: Wilson's, over trials taken to be independent.  ``voids``: standing, by
    code.  ``post_score_voids``: standing voids that were decided when the score was known.  ``budget_ended``: share of
    done cells; None where it is not known of one of them, for a source that names deadlines alone would show 1.
    """

    arm: str
    cells: int
    done: int
    review: int
    parked: int
    open: int
    solved: int
    solved_interval: Interval | None
    reward: float | None
    partial: float | None
    test_rate: float | None
    budget_ended: float | None
    build_failed: int
    voids: Mapping[str, int] = field(default_factory=dict)
    post_score_voids: int = 0
    at_k: tuple[AtK, ...] = ()
    by_ending: tuple[ByEnding, ...] = ()
    agent_s: Spread | None = None
    tokens: Spread | None = None
    output_tokens: Spread | None = None
    cost_usd: Spread | None = None
    budget: tuple[BudgetPoint, ...] = ()
    claimed: int = 0
    tasks: int = 0
    """With a done cell."""
    reward_se: float | None = None
    """Of ``reward``: trials of one task go together (clustered by task, corrected)."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Metric → done cells that have it: the n of its mean."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``estimands``: in words, what is estimated.  ``family``: what Holm's correction runs over, in words.
    ``notes``: of the whole."""

    arms: tuple[ArmSummary, ...]
    contrasts: tuple[ContrastResult, ...]
    estimands: tuple[str, ...]
    family: str
    notes: tuple[str, ...] = ()
    across: str = ""
    """Names of the two campaigns, when arms of two were compared over their common cells."""
    chosen: bool = False
    """Who asked for the report chose the contrasts then; nobody declared them."""
