"""What the codes of disclosures mean, in general: a campaign's own texts, with its values, are made by :mod:`marathond.core.disclosures`.

Owns the words of ``explain``; a test compares the codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from marathond.core.audit.catalogue import Meaning


def _told(means: str, decides: str) -> Meaning:
    """``decides``: which part of the configuration does, or that none does."""
    return Meaning(means, f"Report it with the numbers: `marathonctl disclosures` has this campaign's own words. {decides}")


_ALWAYS = "Nothing in the configuration changes it: it is so in every campaign of this version."
_DRIVE = "The arm's drive decides it."
_LOOPX = "The arm's loopx decides it."
_TASKS = "The tasks decide it."


def _by(*keys: str) -> str:
    return f"{' and '.join(keys)} {'decides' if len(keys) == 1 else 'decide'} it, for a new campaign."


DISCLOSED: Mapping[str, Meaning] = {
    "after_agent_keep_detached": _told(
        "Processes that an agent detached go on while its work is verified.", _by("limits.after_agent", "the arm's after_agent")
    ),
    "after_agent_kill_all": _told(
        "Every process that an agent left is killed before its work is verified.", _by("limits.after_agent", "the arm's after_agent")
    ),
    "agent_dead_before_verifier": _told("An agent is dead, and seen to be dead, before the verifier starts.", _ALWAYS),
    "agent_time_multiplied": _told("The time that a task gives its agent is multiplied.", _by("limits.agent_timeout_multiplier")),
    "agents_md_dropped": _told("An AGENTS.md in the task's folder does not reach the model.", _ALWAYS),
    "build_args": _told("Images are built with arguments that the tasks do not set.", _by("engine.build_args")),
    "bundled_skills_off": _told("Skills that codex brings along are off, and so is its sending of usage data.", _ALWAYS),
    "caps_differ": _told(
        "Arms that are compared have different caps of turns, retries or unblocks.", _by("Each arm's caps", "those of [codex]")
    ),
    "codex_cli_over_app_server": _told("LoopX's profile for a terminal is driven without one.", _LOOPX),
    "codex_retries_pinned": _told(
        "codex's own retries and its patience with a silent stream are pinned.",
        _by("codex.request_max_retries", "codex.stream_max_retries", "codex.stream_idle_timeout_ms"),
    ),
    "codex_staged": _told("codex is mounted from a staged tree, in one version for every image.", _by("codex.version")),
    "command_of_its_own": _told(
        "The arm runs a command whose model, transport and retries are its own affair.", "The arm's kind decides it."
    ),
    "exclusive_verifier": _told("The verifiers of some tasks run alone.", _by("verifier.exclusive", "verifier.exclusive_from")),
    "failed_turn_retried": _told("A turn that the infrastructure failed is taken up again.", _by("codex.infra_retries")),
    "fields_stripped": _told("The gateway removes fields from every request.", _by("gateway.strip")),
    "gateway_between": _told(
        "Model calls pass through a gateway that holds the key and waits out the provider's failures.", _by("[gateway]")
    ),
    "goal_objective_literal": _told("The native goal has a fixed text as its objective, not the task.", _by("The arm's objective")),
    "goals_off": _told("codex's feature goals is off, so that no turn begins by itself.", _DRIVE),
    "heartbeat_on_generic_cli": _told("LoopX's heartbeat runs on its profile generic_cli.", _LOOPX),
    "heartbeat_per_wake": _told("Each wake of LoopX is one turn that the program begins, without a native goal.", _LOOPX),
    "held_time_charged": _told(
        "Time in which the gateway held a request counts against the deadline.", _by("gateway.held_is_charged", "gateway.held_at_most_s")
    ),
    "held_time_not_charged": _told(
        "The deadline moves by the time in which the gateway held requests, bounded.",
        _by("gateway.held_is_charged", "gateway.held_at_most_s"),
    ),
    "idle_turn_cap": _told("A run ends after some turns in a row without a tool call.", _by("The arm's idle_turns_at_most")),
    "judge_by_gateway": _told("Verifiers reach their judge model through the gateway.", _by("gateway.verifier_route")),
    "loopx_body_as_objective": _told("The native goal's objective is the body that LoopX renders.", _LOOPX),
    "loopx_daemon_ended": _told("LoopX's runtime daemon is ended together with the agent.", _ALWAYS),
    "loopx_operator_off": _told("A blocked model, or a gate of LoopX, ends the run: nobody clears it.", _by("The arm's operator")),
    "loopx_operator_on": _told(
        "A blocked model, and a gate of LoopX, are cleared by the program, counted and bounded.",
        _by("The arm's operator", "its unblocks_at_most"),
    ),
    "loopx_staged": _told("LoopX is mounted with a Python and a Node of its own.", _by("[loopx]")),
    "loopx_state_inside": _told("LoopX's state files lie inside the task's tree.", _by("loopx.state")),
    "loopx_state_outside": _told("LoopX's state files lie outside the task's tree.", _by("loopx.state")),
    "loopx_task_as_todo": _told("The task is written into LoopX as a goal document and a todo before the agent starts.", _ALWAYS),
    "models_differ": _told(
        "Arms that are compared differ in model, effort or version of codex.", _by("Each arm's model and effort", "codex.version")
    ),
    "money_cap": _told("A trial that has spent its cap ends and is scored as it is.", _by("money.trial_cap_usd")),
    "network_by_default": _told("Tasks that declare no network have the whole internet.", _by("network.undeclared")),
    "no_approvals": _told("Approvals and codex's own sandbox are off: the container is the sandbox.", _ALWAYS),
    "no_network": _told("Containers of some tasks have no network at all.", _TASKS),
    "no_network_by_default": _told("Tasks that declare no network have none.", _by("network.undeclared")),
    "no_pids_limit": _told("The number of processes in a container has no limit of ours.", _by("limits.pids")),
    "nop_is_no_agent": _told("An arm does nothing; it bounds the scores from below.", "The arm's kind decides it."),
    "operator_off": _told("A goal that the model declared blocked ends the run.", _by("The arm's operator")),
    "operator_on": _told(
        "A goal that the model declared blocked is set active again, counted and bounded.",
        _by("The arm's operator", "its unblocks_at_most"),
    ),
    "oracle_is_no_agent": _told("An arm runs the task's own solution; it bounds the scores from above.", "The arm's kind decides it."),
    "own_deadline": _told("Agents have a deadline of ours beside their task's; the earlier one counts.", _by("limits.agent_timeout_s")),
    "own_surroundings": _told(
        "An arm's agent has what its task does not give it: variables, a user, a working folder or mounts.",
        "The arm's env, user, cwd and mounts decide it, for a new campaign.",
    ),
    "pids_limit": _told("A container has a limit of processes and threads.", _by("limits.pids")),
    "plain_over_app_server": _told("A plain run of codex is one turn of codex app-server, not codex exec.", _DRIVE),
    "project_untrusted": _told("The task's folder is an untrusted project for codex: its configuration there changes nothing.", _ALWAYS),
    "runtime_proxy": _told("Containers with a network reach it through a proxy.", _by("network.runtime_proxy")),
    "tasks_not_the_benchmarks": _told("Tasks declare other limits or sizes than the benchmark's profile states.", _TASKS),
    "tasks_with_project_files": _told("Some tasks come with files that speak to an agent, such as AGENTS.md or skills.", _TASKS),
    "token_budget": _told("A native goal has a budget of tokens.", _by("The arm's token_budget")),
    "turn_cap": _told("A run ends after a number of turns.", _by("The arm's turns_at_most")),
    "verifier_time_multiplied": _told("The time that a task gives its verifier is multiplied.", _by("limits.verifier_timeout_multiplier")),
    "wake_interval_set": _told("The pause between two wakes of LoopX is fixed.", _by("The arm's wake_interval_s")),
    "web_search_off": _told("The provider's web search is off in codex.", _ALWAYS),
}
