"""A campaign's folder in Harbor's layout, so that ``harbor view <out>`` lists it: ``<out>/<campaign>/<trial>/{config,result}.json``.

Owns names and documents.  Pure: values in, bytes out; the same values give the same bytes, so an unchanged document can be rewritten.
Must not know the ledger or the disk.  Shapes and rules were read in Harbor 0.26 (its models of trial and job results, its viewer).

How a trial's end is told, since the viewer takes every ``exception_info`` for an error:
- scored: rewards and no exception, also when the agent spent its deadline (fault c10).  Harbor itself would add an AgentTimeoutError
  there, count the trial as errored and show the error in place of the ending; here ``metadata.marathond.agent.ended_by`` says it.
- voided: ``MarathondVoid:<code>`` and no rewards.  Harbor takes the reward of an exception that it does not know for valid, so a score
  that was known before is kept in the metadata only, and the policy says that nothing is valid.
- in review: ``MarathondReview:<code>`` and no rewards, as Harbor does when no reward file was written.

``rewards`` holds ``reward`` alone, which is all that Harbor would have read: its averages count an absent second key as 0.
"""

from __future__ import annotations

from marathond.tasks.layout.job import job_documents
from marathond.tasks.layout.names import trial_folder
from marathond.tasks.layout.trial import line_of, trial_documents
from marathond.tasks.layout.views import (
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

__all__ = [
    "AgentView",
    "ArmView",
    "FactView",
    "JobView",
    "Moment",
    "ReviewView",
    "ScoreView",
    "TaskView",
    "TrialLine",
    "TrialView",
    "UsageView",
    "VerifierView",
    "VoidView",
    "job_documents",
    "line_of",
    "trial_documents",
    "trial_folder",
]
