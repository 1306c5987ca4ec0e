"""The disclosures of a campaign, made from its arms' data and what they share; nobody writes one by hand.

Owns the list of rules and the table of everything that they looked at.  Pure: :func:`disclosures` is the same for the same arms and
conditions, so that what is stored, shown and exported can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marathond.core import disclose_arms, disclose_conditions, disclose_loopx
from marathond.core.disclosure import Conditions, Disclosure
from marathond.core.model import Arm

RULES = (*disclose_arms.RULES, *disclose_loopx.RULES, *disclose_conditions.RULES)

LOOKED_AT: Mapping[str, tuple[str, ...] | str] = {
    "Arm.name": "what the arm is called",
    "Arm.kind": ("oracle_is_no_agent", "nop_is_no_agent", "command_of_its_own"),
    "Arm.argv": ("command_of_its_own",),
    "Arm.env": ("own_surroundings",),
    "Arm.user": ("own_surroundings",),
    "Arm.cwd": ("own_surroundings",),
    "Arm.mounts": ("own_surroundings",),
    "Arm.install_check": "a gate: it changes nothing that an agent sees, and one that fails is infrastructure",
    "Arm.after_agent": ("after_agent_keep_detached", "after_agent_kill_all", "agent_dead_before_verifier"),
    "Arm.codex": "its fields are looked at one by one",
    "CodexArm.package": ("codex_staged", "models_differ"),
    "CodexArm.version": ("codex_staged", "models_differ"),
    "CodexArm.model": ("models_differ",),
    "CodexArm.effort": ("models_differ",),
    "CodexArm.infra_retries": ("failed_turn_retried", "caps_differ"),
    "CodexArm.request_max_retries": ("codex_retries_pinned",),
    "CodexArm.stream_max_retries": ("codex_retries_pinned",),
    "CodexArm.stream_idle_timeout_ms": ("codex_retries_pinned",),
    "CodexArm.drive": ("plain_over_app_server", "goals_off", "goal_objective_literal", "loopx_body_as_objective", "heartbeat_per_wake"),
    "CodexArm.objective": ("goal_objective_literal",),
    "CodexArm.token_budget": ("token_budget",),
    "CodexArm.operator": ("operator_on", "operator_off", "loopx_operator_on", "loopx_operator_off"),
    "CodexArm.unblocks_at_most": ("operator_on", "loopx_operator_on", "caps_differ"),
    "CodexArm.turns_at_most": ("turn_cap", "caps_differ"),
    "CodexArm.idle_turns_at_most": ("idle_turn_cap", "caps_differ"),
    "CodexArm.loopx": ("loopx_task_as_todo", "loopx_daemon_ended"),
    "LoopXArm.package": ("loopx_staged",),
    "LoopXArm.version": ("loopx_staged",),
    "LoopXArm.source": ("loopx_staged",),
    "LoopXArm.state_inside": ("loopx_state_inside", "loopx_state_outside"),
    "LoopXArm.profile": ("loopx_body_as_objective", "codex_cli_over_app_server", "heartbeat_on_generic_cli"),
    "LoopXArm.wake_interval_s": ("wake_interval_set",),
    # What is the same for every codex that this version drives: the keys of its config.toml (agents/codex/config.py).
    "config.model": "the arm's, CodexArm.model",
    "config.model_reasoning_effort": "the arm's, CodexArm.effort",
    "config.model_provider": ("gateway_between",),
    "config.model_providers": ("gateway_between", "codex_retries_pinned"),
    "config.approval_policy": ("no_approvals",),
    "config.sandbox_mode": ("no_approvals",),
    "config.web_search": ("web_search_off",),
    "config.features.goals": ("goals_off",),
    "config.features.unbounded_connection_retries": ("codex_retries_pinned",),
    "config.skills": ("bundled_skills_off",),
    "config.analytics": ("bundled_skills_off",),
    "config.projects": ("project_untrusted", "agents_md_dropped"),
    "Conditions.benchmark": (
        *("own_deadline", "agent_time_multiplied", "verifier_time_multiplied", "held_time_charged", "held_time_not_charged"),
        *("money_cap", "no_network", "runtime_proxy", "token_budget", "own_surroundings"),
    ),
    "Conditions.usual_agent_multiplier": ("agent_time_multiplied", "own_deadline"),
    "Conditions.usual_verifier_multiplier": ("verifier_time_multiplied",),
    "Conditions.own_deadline_s": ("own_deadline",),
    "Conditions.agent_multiplier": ("agent_time_multiplied", "own_deadline"),
    "Conditions.verifier_multiplier": ("verifier_time_multiplied",),
    "Conditions.pids": ("pids_limit", "no_pids_limit"),
    "Conditions.exclusive": ("exclusive_verifier",),
    "Conditions.exclusive_from": ("exclusive_verifier",),
    "Conditions.build_args": ("build_args",),
    "Conditions.runtime_proxy": ("runtime_proxy",),
    "Conditions.gateway": ("gateway_between",),
    "Conditions.strip": ("fields_stripped",),
    "Conditions.hold_s": ("gateway_between",),
    "Conditions.held_is_charged": ("held_time_charged", "held_time_not_charged"),
    "Conditions.held_at_most_s": ("held_time_charged", "held_time_not_charged"),
    "Conditions.judge": ("judge_by_gateway",),
    "Conditions.trial_cap_usd": ("money_cap",),
    "Conditions.tasks": "their fields are looked at one by one",
    "TaskFacts.name": "what the task is called",
    "TaskFacts.network": ("no_network", "network_by_default", "runtime_proxy"),
    "TaskFacts.network_origin": ("network_by_default", "no_network_by_default"),
    "TaskFacts.limit_s": ("own_deadline", "agent_time_multiplied"),
    "TaskFacts.speaks": ("tasks_with_project_files",),
    "TaskFacts.differs": ("tasks_not_the_benchmarks",),
}
"""Every field that an arm, and what arms share, is made of: the codes that tell of it, or why none does.  A field that is not in here is
one that nobody decided on: a test refuses it."""

CODES = frozenset(code for codes in LOOKED_AT.values() if not isinstance(codes, str) for code in codes)


def disclosures(arms: Sequence[Arm], on: Conditions) -> tuple[Disclosure, ...]:
    """All that must be told, in a fixed order.

    :param arms: of the whole campaign, in its order, those that were added later included.
    """
    return tuple(made for rule in RULES for made in rule(arms, on)) if arms else ()
