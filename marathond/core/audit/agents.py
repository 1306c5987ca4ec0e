"""Arms whose agents are dead, silent, or without their treatment: seen within one arm, so that three dead ones are not each other's excuse
(fault f15).

Pure.  A single strange agent is named where it ends (``no_commands``, ``silent_turns``, ``treatment_not_delivered``); here it is the arm's.
"""

from __future__ import annotations

from collections.abc import Sequence

from marathond.core.audit.arms import ASKED, asked, shares
from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import compared_arms, labels, lasting
from marathond.core.names import trial_label

DEAD = "dead_agent"
DEAD_IN_A_ROW = 5
"""An agent now and then does nothing; of one in ten so many in a row come once in 100,000 trials."""
SILENT_MS = 30 * 60_000
"""A long build or test run is silent, too: one such trial is worth a look, not an alarm."""
ARM_SILENT_MS, ARM_SILENT_TRIALS = 60 * 60_000, 2
UNDELIVERED_AT_LEAST, UNDELIVERED_SHARE = 3, 0.2
UNUSED_AT_LEAST, UNUSED_SHARE = 4, 0.5


def dead(trial: TrialFact) -> bool | None:
    """Whether its agent did nothing at all; None: nobody kept a receipt of it."""
    if trial.void_code == DEAD:
        return True
    return None if trial.commands is None else trial.commands == 0


def dead_agents(facts: Facts) -> Look:
    unseen = "no receipt is there that would tell of commands"
    return shares(facts, "dead_agents", "warning", "ran not one command", _acted(facts), dead, unseen, things=ASKED)


def _acted(facts: Facts) -> list[TrialFact]:
    """Trials whose agent asked a model and has ended, and those that were voided as dead."""
    compared = frozenset(compared_arms(facts))
    return [t for t in facts.trials if t.asks_model and t.arm in compared and (t.ended_by is not None or t.void_code == DEAD)]


def arm_dead(facts: Facts) -> Look:
    """The newest ones: what was repaired is over by itself, once a trial of the arm does something."""
    trials = _acted(facts)
    told = [trial for trial in trials if dead(trial) is not None]
    found = []
    for arm in compared_arms(facts):
        mine = [t for t in sorted(told, key=lambda t: (t.rested_at_ms or 0, t.trial_id)) if t.arm == arm]
        last = mine[-DEAD_IN_A_ROW:]
        if len(last) == DEAD_IN_A_ROW and all(dead(trial) for trial in last):
            words = f"infrastructure first: the last {len(last)} of {len(mine)} ended trials of {arm} ran not one command: {labels(last)}"
            on = tuple(trial.trial_id for trial in last)
            found.append(Found("arm_dead", "stop_loss", arm, words, stops=True, trials=on))
    unseen = "no receipt is there that would tell of commands" if trials and not told else ""
    return Look(len(told), len(trials), ASKED, tuple(found), unseen)


def quiet_ms(trial: TrialFact) -> int:
    """For how long the running agent has asked its model nothing; 0 while an answer is on its way, or held."""
    if trial.running_ms is None or trial.open_requests:
        return 0
    return trial.running_ms if trial.last_request_ms is None else min(trial.running_ms, trial.last_request_ms)


def _running(facts: Facts) -> list[TrialFact]:
    compared = frozenset(compared_arms(facts))
    return [t for t in facts.trials if t.state == "running" and t.asks_model and t.running_ms is not None and t.arm in compared]


RUNNING = "trials that ask a model, running or ended"


def _looked(facts: Facts, running: Sequence[TrialFact], found: Sequence[Found]) -> Look:
    """An agent that has ended is silent no more: it was there, and is in order."""
    every = len(running) + len(asked(facts))
    return Look(every, every, RUNNING, tuple(found))


def agent_silent(facts: Facts) -> Look:
    running = _running(facts)
    found = [
        Found(
            "agent_silent",
            "warning",
            trial_label(trial.trial_id),
            f"{trial.arm}, {trial.task}: it runs, and for more than {lasting(SILENT_MS)} it has asked its model nothing",
        )
        for trial in running
        if quiet_ms(trial) >= SILENT_MS
    ]
    return _looked(facts, running, found)


def arm_silent(facts: Facts) -> Look:
    """Every running agent of an arm.  No stop-loss: agents train models for hours and wake after long pauses, and nothing here can tell.

    A task on which another arm's agent is silent, too, is such a task: its trials say nothing of the arm.
    """
    running = _running(facts)
    quiet = [trial for trial in running if quiet_ms(trial) >= SILENT_MS]
    found = []
    for arm in compared_arms(facts):
        elsewhere = {trial.task for trial in quiet if trial.arm != arm}
        mine = [trial for trial in running if trial.arm == arm and trial.task not in elsewhere]
        if len(mine) >= ARM_SILENT_TRIALS and all(quiet_ms(trial) >= ARM_SILENT_MS for trial in mine):
            words = f"all {len(mine)} running trials of {arm} have asked their model nothing for more than an hour"
            found.append(Found("arm_silent", "error", arm, f"{words}, and no other arm is silent on their tasks: {labels(mine)}"))
    return _looked(facts, running, found)


def silent_turns_disparity(facts: Facts) -> Look:
    words = "had turns with neither a word nor an act"
    unseen = "no receipt is there that would tell of turns"
    return shares(
        facts,
        "silent_turns_disparity",
        "warning",
        words,
        asked(facts),
        lambda trial: None if trial.silent_turns is None else trial.silent_turns > 0,
        unseen,
        things=ASKED,
    )


def _treated(facts: Facts) -> tuple[list[TrialFact], list[TrialFact]]:
    graded = [trial for trial in asked(facts) if trial.loopx and trial.state in ("scored", "review")]
    return [trial for trial in graded if trial.delivered is not None], graded


def _treatment(facts: Facts, code: str, words: str, missing: Sequence[TrialFact], least: int, share: float) -> Look:
    told, graded = _treated(facts)
    found = []
    for arm in compared_arms(facts):
        of, without = sum(trial.arm == arm for trial in told), [trial for trial in missing if trial.arm == arm]
        if len(without) >= least and len(without) >= share * of:
            severity = "error" if code == "arm_untreated" else "warning"
            found.append(Found(code, severity, arm, f"{len(without)} of {of} graded trials of {arm} {words}: {labels(without)}"))
    unseen = "no receipt tells of the treatment" if graded and not told else ""
    return Look(len(told), len(graded), "graded trials with LoopX", tuple(found), unseen)


def arm_untreated(facts: Facts) -> Look:
    told, _ = _treated(facts)
    missing = [trial for trial in told if not trial.delivered]
    words = "were not given all of its treatment"
    return _treatment(facts, "arm_untreated", words, missing, UNDELIVERED_AT_LEAST, UNDELIVERED_SHARE)


def arm_treatment_unused(facts: Facts) -> Look:
    told, _ = _treated(facts)
    missing = [trial for trial in told if trial.delivered and trial.used is False]
    words = "were given its treatment and never used it"
    return _treatment(facts, "arm_treatment_unused", words, missing, UNUSED_AT_LEAST, UNUSED_SHARE)


RULES: tuple[Rule, ...] = (
    Rule(
        "arm_dead",
        "stop_loss",
        "Infrastructure first: the agents of one arm end one after another without having done anything.",
        "Look at the last one (`marathonctl logs`), repair what its tools or its prompt lack, then `marathonctl resume`.",
        arm_dead,
        ("f15", "c01"),
    ),
    Rule(
        "arm_silent",
        "error",
        "All running agents of one arm have stopped asking their model, and other arms' have not.",
        "Look at their logs and at the gateway (`marathonctl logs`, `exec TRIAL -- ps axf`); void what is stuck, with its block.",
        arm_silent,
        ("f15", "b18"),
    ),
    Rule(
        "dead_agents",
        "warning",
        "Agents of one arm end without a single command far more often than the others'.",
        "Look at their last messages (`marathonctl logs`): tools that do not work there, or a prompt that asks for nothing.",
        dead_agents,
        ("c01", "f15"),
    ),
    Rule(
        "agent_silent",
        "warning",
        "A running agent has asked its model nothing for half an hour: a long command, or it hangs.",
        "Look what runs there (`marathonctl exec TRIAL -- ps axf`); its deadline ends it in any case.",
        agent_silent,
        ("f15", "b18"),
    ),
    Rule(
        "silent_turns_disparity",
        "warning",
        "One arm's turns are completed without a word or an act far more often than the others': answers get lost on its way.",
        "Compare a trial's trajectory with the gateway's journal; a client that drops answers needs repair in a new campaign.",
        silent_turns_disparity,
        ("c13",),
    ),
    Rule(
        "arm_untreated",
        "error",
        "A good part of an arm's trials was not given the arm's treatment, so that its mean is not the arm's.",
        "See treatment_not_delivered of each for what was missing; repair it and void these trials with their blocks.",
        arm_untreated,
        ("a13",),
    ),
    Rule(
        "arm_treatment_unused",
        "warning",
        "Half of an arm's trials or more never used the treatment that they were given.",
        "Nothing to repair: say so beside the arm's result, it then says little of the treatment.",
        arm_treatment_unused,
        ("a13",),
    ),
)
