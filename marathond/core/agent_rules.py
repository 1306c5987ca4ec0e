"""What an agent's own log and its container say that people should know beside its score (faults c01, c07, c13).  Pure.

Owns the findings of an agent's end.  They decide nothing: the end was decided by the arm's rules and is graded like every other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from marathond.core.model_rules import Found
from marathond.core.names import EndedBy, trial_label

BY_RULE = {
    EndedBy.TURN_CAP: ("turn_cap_reached", "as many turns as the arm allows (turns_at_most)"),
    EndedBy.UNBLOCK_CAP: ("unblock_cap_reached", "resumed as often as the arm allows (unblocks_at_most), and blocked again"),
    EndedBy.NO_PROGRESS: ("no_progress", "turn after turn without a tool call, or resumed and nothing done (idle_turns_at_most)"),
}
"""Ends that a rule of the arm brought about: code and words."""


def of_agent(trial_id: int, kinds: Iterable[str], ended_by: EndedBy, pids_refused: int = 0) -> list[Found]:
    """:param kinds: of the entries of its log, in their order.

    :param pids_refused: how often its container was refused another process or thread, for ``limits.pids``.
    """
    counts = Counter(kinds)
    subject, turns = trial_label(trial_id), counts["turn_completed"]
    found = []
    if ended_by in BY_RULE:
        code, words = BY_RULE[ended_by]
        found.append(Found(code, "warning", subject, f"{words}: {turns} turns, {counts['unblock']} times set active again"))
    if counts["no_commands"]:
        found.append(Found("no_commands", "warning", subject, f"ended without one command, in {turns} turns"))
    if counts["crowded"]:
        words = "its model failed while its own connections or requests filled its listener at the gateway: no void, its own end"
        found.append(Found("gateway_crowded", "warning", subject, words))
    if replayed := counts["replayed"]:
        words = f"LoopX knew the id of {replayed} of {counts['wake_intended']} wakes before its agent asked with it: no fresh wakes"
        found.append(Found("wake_replayed", "warning", subject, words))
    if counts["loopx_refused"]:
        words = "LoopX gave the driver no answer any more after its agent had acted: no void, the run went on or ended without it"
        found.append(Found("loopx_refused", "warning", subject, words))
    if counts["goal_alone"]:
        words = "its goal was active before codex had the task: the daemon or its connection ended between the two; said again afterwards"
        found.append(Found("goal_before_task", "warning", subject, words))
    if silent := counts["silent_turn"]:
        found.append(Found("silent_turns", "warning", subject, f"{silent} of {turns} turns completed with neither a word nor an act"))
    if pids_refused:
        words = f"refused another process or thread {pids_refused} times by the end of its agent (limits.pids)"
        found.append(Found("pids_limit_hit", "warning", subject, words))
    return found
