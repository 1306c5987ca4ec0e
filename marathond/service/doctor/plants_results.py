"""Faults for the rules about scores, verifiers and images, planted in scratch ledgers.

Owns one plant per code of ``core/audit/results.py`` and ``core/audit/verifiers.py``, each the least that its rule must see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from marathond.ledger.verbs import operator, trials
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.doctor.ground import AUTHOR
from marathond.service.doctor.planted import ARMS, REPLICATES, TASKS, facts_of
from marathond.service.doctor.scratch import Scratch

TASK = TASKS[0]
CODEX = ARMS[:3]
"""Arms that are compared; the fourth is the reference."""


def _each(scratch: Scratch, arms: Iterable[str], replicates: Iterable[int], **values: object) -> list[int]:
    """A trial of :data:`TASK` for each arm and replicate."""
    plant: Callable[..., int] = scratch.trial
    return [plant(task=TASK, arm=arm, replicate=replicate, **values) for replicate in replicates for arm in arms]


def budget_binding(scratch: Scratch) -> None:
    """Every cell of one task ends at its deadline."""
    _each(scratch, CODEX, range(1, REPLICATES + 1), ended_by="deadline")


def same_failure_everywhere(scratch: Scratch) -> None:
    """The same build error in every arm of a task (fault d13); the reference is built."""
    scratch.clean(tasks=TASKS[1:], replicates=[1])
    _each(scratch, CODEX, [1], reward=0.0, partial=0.0, tests=(0, 40), flags=("build_failed",))
    _each(scratch, ["oracle"], [1])


def identical_outputs(scratch: Scratch) -> None:
    """Two arms have the same half of the work done, and their verifiers say the same, to the byte."""
    said = "".join(f"test {n:03d} {'passed' if n % 3 else 'failed'} in {n * 37 % 101} ms\n" for n in range(60)).encode()
    shared = {"parts": [("gate login", "true", "metrics.json:login_gate")], "reward": 0.0, "tests": (26, 40)}
    _each(scratch, CODEX[:2], [1], export={"verifier/test-stdout.txt": said}, **shared)


def zero_everywhere(scratch: Scratch) -> None:
    _each(scratch, CODEX, [1], reward=0.0)


def one_everywhere(scratch: Scratch) -> None:
    _each(scratch, CODEX, [1], reward=1.0)


def score_columns(scratch: Scratch) -> None:
    """One arm's verifier writes a reward and nothing else."""
    _each(scratch, CODEX[:2], [1, 2])
    for trial_id in _each(scratch, CODEX[2:], [1, 2], state="verifying"):
        trials.scored(scratch.c, trial_id, ScoreRow(1, 0.0, "reward.txt", None, None, None, (), []), now_ms=scratch.now_ms - 60_000)


def replicate_imbalance(scratch: Scratch) -> None:
    """One arm's cells were never begun, and nothing runs."""
    scratch.clean(arms=ARMS[1:], replicates=[1], voids=False)


def scores_by_person(scratch: Scratch) -> None:
    scratch.clean(replicates=[2])
    trial_id = scratch.trial(task=TASK, arm=ARMS[0], replicate=1, state="review")
    operator.decide_review(scratch.c, trial_id, accept=True, reward=1.0, reason="planted", author=AUTHOR, now_ms=scratch.now_ms - 60_000)


def post_score_voids(scratch: Scratch) -> None:
    """A whole block was withdrawn, scores known, and filled again."""
    _each(scratch, CODEX, [1], state="voided", void_code="provider")
    _each(scratch, CODEX, [1])


def post_score_voids_uneven(scratch: Scratch) -> None:
    """Of a block whose scores are known one side is withdrawn and run again (fault a08)."""
    _each(scratch, CODEX[:1], [1], state="voided", void_code="operator")
    _each(scratch, CODEX, [1])


def score_rules_differ(scratch: Scratch) -> None:
    """A rule of [scores] came in mid-campaign: one arm's score was read by it, the others' were not."""
    _each(scratch, CODEX[:1], [1], parts=[("rule:reward", "metrics.json:final", "configuration")])
    _each(scratch, CODEX[1:], [1])


def score_refused(scratch: Scratch) -> None:
    """A verifier writes its partial score in percent: what is above 1 is refused, and the zeros stay."""
    _each(scratch, CODEX[:2], [1], reward=0.0, partial=0.0)
    refused = [("refused 1", "above 1: 50", "metrics.json:partial_score")]
    for trial_id in _each(scratch, CODEX[2:], [1], state="verifying"):
        trials.scored(scratch.c, trial_id, ScoreRow(1, 0.0, "reward.txt", None, 3, 4, (), refused), now_ms=scratch.now_ms - 60_000)


def no_reward_written(scratch: Scratch) -> None:
    """A task's verifier leaves no reward, whoever's work it grades (fault d02)."""
    _each(scratch, [*CODEX, "oracle"], [1], state="review", review_code="score_unreadable", outcomes=("exited", "exited"))


def verifier_flaky(scratch: Scratch) -> None:
    """The reference solution passes in one replicate and fails in the next."""
    scratch.clean(replicates=[3])
    _each(scratch, ["oracle"], [1], reward=1.0)
    _each(scratch, ["oracle"], [2], reward=0.0)


def oracle_fails(scratch: Scratch) -> None:
    _each(scratch, ["oracle"], [1, 2], reward=0.0)


def mount_changed(scratch: Scratch) -> None:
    """A file of what an arm mounts is edited between two of its trials (fault a18)."""
    _each(scratch, ["goal"], [1])
    _each(scratch, ["goal"], [2], facts=facts_of("goal", "ad73"))


def image_stale(scratch: Scratch) -> None:
    """The task's image was made anew between two trials (fault b14)."""
    _each(scratch, CODEX[:2], [1])
    _each(scratch, CODEX[2:], [1], image_id="sha256:image-of-another-day")


PLANTS: Mapping[str, Callable[[Scratch], None]] = {
    plant.__name__: plant
    for plant in (
        budget_binding,
        same_failure_everywhere,
        identical_outputs,
        zero_everywhere,
        one_everywhere,
        score_columns,
        replicate_imbalance,
        scores_by_person,
        post_score_voids,
        post_score_voids_uneven,
        score_rules_differ,
        score_refused,
        no_reward_written,
        verifier_flaky,
        oracle_fails,
        mount_changed,
        image_stale,
    )
}
