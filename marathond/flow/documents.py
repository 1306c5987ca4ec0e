"""From the ledger's rows to the values that the artifact documents are written from.  Pure mapping; owns nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marathond import __version__
from marathond.ledger.verbs.campaigns import CampaignRow, StoredArm, StoredTask
from marathond.ledger.verbs.disclosures import Disclosed, of_arm
from marathond.ledger.verbs.show import TrialShown
from marathond.ports.agent import Spent
from marathond.tasks.layout import (
    AgentView,
    ArmView,
    FactView,
    JobView,
    Moment,
    ReviewView,
    ScoreView,
    TaskView,
    TrialLine,
    TrialView,
    UsageView,
    VerifierView,
    VoidView,
)

NOTHING_TOLD = Disclosed()


def trial_view(
    ledger_id: str,
    shown: TrialShown,
    arm: StoredArm,
    void_sides: dict[str, str],
    spent: Sequence[Spent] = (),
    told: Disclosed = NOTHING_TOLD,
) -> TrialView:
    """``void_sides``: void code to its side; ``spent``: what the agent asked of its models; ``told``: of the campaign."""
    c = shown.context
    return TrialView(
        ledger_id=ledger_id,
        campaign_id=c.campaign_id,
        campaign=c.campaign,
        out_dir=c.out_dir,
        version=__version__,
        trial_id=c.trial_id,
        attempt=c.attempt,
        cell_id=c.cell_id,
        block_id=c.block_id,
        replicate=c.replicate,
        task=TaskView(c.task, c.task_path, c.task_digest),
        arm=arm_view(arm),
        timeline=[Moment(e.event, e.to_state, e.at_ms) for e in shown.events],
        agent=_agent(shown),
        verifications=[
            VerifierView(v.round, v.started_at_ms, v.limit_ms, v.limit_origin, v.ended_at_ms, v.outcome, v.exit_code)
            for v in c.verifications
        ],
        facts=[FactView(f.name, f.value, f.origin) for f in shown.facts],
        score=_score(shown),
        void=_void(shown, void_sides),
        review=_review(shown),
        usage=None if _model(arm) is None else [_usage(each) for each in spent],
        disclosures=of_arm(told.rows, arm.name),
    )


def arm_view(arm: StoredArm) -> ArmView:
    return ArmView(arm.name, arm.kind, arm.treatment_hash, arm.data, _model(arm))


def _model(arm: StoredArm) -> str | None:
    codex = arm.data.get("codex")
    return None if codex is None else str(codex["model"])


def _usage(spent: Spent) -> UsageView:
    cost_usd = None if spent.cost_nusd is None else spent.cost_nusd / 1e9
    return UsageView(spent.model, spent.input, spent.cached, spent.output, cost_usd)


def _agent(shown: TrialShown) -> AgentView | None:
    row = shown.context.agent
    if row is None:
        return None
    return AgentView(
        row.started_at_ms,
        row.limit_ms,
        row.limit_origin,
        row.limit_loser,
        None if row.ended_mono_ms is None else row.ended_at_ms,  # else it is only when that was found
        row.ended_by,
        row.exit_code,
        row.exit_source,
        row.oom_killed,
        row.overrun_ms,
        row.processes,
    )


def _score(shown: TrialShown) -> ScoreView | None:
    if not shown.scores:
        return None
    last = max(shown.scores, key=lambda score: score.score_id)
    return ScoreView(
        reward=last.reward,
        reward_source=last.reward_source,
        extractor=last.extractor,
        at_ms=last.at_ms,
        partial=last.partial,
        tests_passed=last.tests_passed,
        tests_total=last.tests_total,
        flags=last.flags,
        parts=last.parts,
    )


def _void(shown: TrialShown, sides: dict[str, str]) -> VoidView | None:
    standing = next((v for v in shown.voids if v.undone_at_ms is None), None)
    if standing is None:
        return None
    return VoidView(
        code=standing.code,
        side=sides[standing.code],
        reason=standing.reason,
        decided_by=standing.decided_by,
        author=standing.author,
        at_ms=standing.at_ms,
        from_state=standing.from_state,
        score_was_known=standing.score_was_known,
        counts_pass=standing.counts_pass,
        batch=standing.batch,
        evidence=standing.evidence,
    )


def _review(shown: TrialShown) -> ReviewView | None:
    if not shown.reviews:
        return None
    last = max(shown.reviews, key=lambda review: review.review_id)
    return ReviewView(last.code, last.detail, last.opened_at_ms, last.evidence, last.decided_at_ms, last.decision, last.author, last.reason)


def job_view(
    ledger_id: str,
    campaign: CampaignRow,
    arms: list[StoredArm],
    tasks: list[StoredTask],
    lines: list[TrialLine],
    counts: dict[str, Any],
    concurrency: int,
    told: Disclosed = NOTHING_TOLD,
) -> JobView:
    """``counts``: ``running`` trials, ``pending`` cells, ``finished_at_ms`` or None."""
    return JobView(
        ledger_id=ledger_id,
        campaign_id=campaign.campaign_id,
        campaign=campaign.name,
        out_dir=campaign.out_dir,
        created_at_ms=campaign.created_at_ms,
        created_by=campaign.created_by,
        treatment_hash=campaign.treatment_hash,
        order=campaign.order,
        seed=campaign.seed,
        replicates=campaign.replicates,
        concurrency=concurrency,
        arms=[arm_view(arm) for arm in arms],
        tasks=[TaskView(task.name, task.path, task.digest) for task in tasks],
        trials=lines,
        running=counts["running"],
        pending=counts["pending"],
        finished_at_ms=counts["finished_at_ms"],
        disclosures=told.rows,
        told_version=told.version,
        told_at_ms=told.at_ms if told.version else None,
    )
