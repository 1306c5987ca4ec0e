"""Every finding that the product can raise: what it means and what to do about it, a sentence each.

Owns the words for findings that are raised where something happens (flow/, service/, agents/, ledger/).  The rules of the audit carry
their own (:mod:`marathond.core.audit.rules`) and stand here by :func:`meaning_of`.  A test collects every code that the package raises and
fails when one is missing here, or one here is raised nowhere.  Must stay light: ``status`` and ``findings`` start from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """``means``: one sentence a person understands at night.  ``todo``: what to do.  ``faults``: ids of the catalogue of silent faults."""

    means: str
    todo: str
    faults: tuple[str, ...] = ()


RAISED: Mapping[str, Meaning] = {
    # ── the provider and its account ──
    "usage_limit": Meaning(
        "The provider says that the account is used up; nothing more is admitted, for any arm.",
        "Pay or wait for the account's reset, then `marathonctl resume`; what failed meanwhile is void and runs again.",
        ("f13",),
    ),
    "upstream_auth": Meaning(
        "The provider refuses the gateway's own key; nothing more is admitted, for any arm.",
        "Put a valid key into the route's key_file, then `marathonctl resume`.",
        ("c14",),
    ),
    "model_changed": Meaning(
        "One model name was answered by several models: the provider has changed what lies behind it.",
        "Look when each was first met (`marathonctl sql` over v_usage); void the blocks on one side of the change, or disclose it.",
        ("a16",),
    ),
    "other_model": Meaning(
        "A trial asked for a model that is not its arm's, and was answered.",
        "Look at the trial's log: an agent may do so by itself; void it if the arm must not.",
        ("a16",),
    ),
    "bad_request_one_arm": Meaning(
        "HTTP 400 hits one arm only: a field that its transport alone sends is a likely reason.",
        "Read the error's words, add the field to gateway.strip in a new campaign, and void what it hit, with the whole blocks.",
        ("a02",),
    ),
    "held_disparity": Meaning(
        "The provider's limits make the trials of one arm wait more often than chance allows.",
        "Lower concurrency or raise the provider's limit; check that held time is not charged (gateway.held_is_charged).",
        ("a01", "a17"),
    ),
    "arm_contract_differs": Meaning(
        "What an arm sends in its first request differs from what its row declares, or within the arm.",
        "See `marathonctl arms diff`; declare the difference or repair the arm, in a new campaign.",
        ("a14", "a11"),
    ),
    # ── the gateway and its journal ──
    "gateway_stale": Meaning(
        "The gateway gives no sign of life; nothing is admitted until it does.",
        "Start it again (`marathond gateway`, or its systemd unit) and look at its log.",
        ("e04",),
    ),
    "gateway_key": Meaning(
        "The key file of a route cannot be read, so that all its requests are held.",
        "Make the route's key_file readable for the gateway's user; held requests then go out by themselves.",
    ),
    "gateway_settings": Meaning(
        "The gateway could not take its new settings and goes on with those before.",
        "Repair what its words name, then `marathonctl submit`.",
    ),
    "gateway_journal": Meaning(
        "The gateway cannot write its journal and therefore takes no requests.",
        "Make room on the disk of state_dir, or repair its permissions; it tries again by itself.",
        ("b12",),
    ),
    "gateway_listeners": Meaning(
        "More listener files lie there than the gateway opens.",
        "Look for listener files of trials that are over (state_dir/gateway/listeners), and lower concurrency meanwhile.",
    ),
    "gateway_host_namespace": Meaning(
        "A listener was to be opened in the host's own network and was refused: the trial has no way to its model.",
        "Look at the trial's container: its network mode must not be host.",
        ("b15",),
    ),
    "gateway_not_permitted": Meaning(
        "The gateway may not enter the containers' network: trials have no way to their model.",
        "Run the gateway as root or with CAP_SYS_ADMIN and CAP_SYS_PTRACE.",
    ),
    "gateway_no_route": Meaning(
        "A trial asks for a route that the gateway does not have.",
        "Add the route to [gateway.routes], then `marathonctl submit`.",
    ),
    "gateway_bad_file": Meaning(
        "The gateway cannot read a listener file that the daemon wrote.",
        "Check that daemon and gateway are of the same version, and restart the older one.",
        ("e03",),
    ),
    "gateway_io": Meaning(
        "The gateway could not open or keep a trial's listener.",
        "Read the words; a full disk or too few file descriptors are the usual reasons.",
    ),
    "port_taken": Meaning(
        "Something in the trial's container already listens on the port of its way to the model.",
        "Look whether the task's image uses that port; choose another gateway port in a new campaign.",
    ),
    "journal_unreadable": Meaning(
        "The daemon cannot read the gateway's journal, so that tokens and money are not counted meanwhile.",
        "Repair permissions or disk of state_dir/gateway; the records are taken in later, none is lost.",
        ("e04",),
    ),
    "journal_torn": Meaning(
        "Lines of the gateway's journal are torn: their requests count as unknown, never as 0.",
        "Nothing to repair; look whether the host lost power or the disk was full, and read sums as lower bounds.",
        ("e07",),
    ),
    "journal_gap": Meaning(
        "Records are missing from the gateway's journal, or it was made anew: what they held is unknown.",
        "Find out who removed files from state_dir/gateway; read the sums of that time as lower bounds.",
        ("e03",),
    ),
    "journal_strange": Meaning(
        "The journal holds records that this ledger cannot take in.",
        "Check that daemon and gateway are of the same version and that no other ledger uses this gateway.",
        ("e03",),
    ),
    # ── money ──
    "price_missing": Meaning(
        "A model was used that has no price, so that its cost is unknown.",
        "Add its price to [money.prices]; what was counted is priced at the next start.",
        ("f13",),
    ),
    "money_80": Meaning(
        "Four fifths of the campaign's money are spent.",
        "Look at the forecast in `marathonctl status`; raise money.campaign_cap_usd or leave it.",
        ("f13",),
    ),
    "money_cap": Meaning(
        "The campaign's cap of money lets no further block begin; blocks that have begun go on.",
        "Raise money.campaign_cap_usd, or end the campaign here: whole blocks are complete.",
        ("f13",),
    ),
    # ── one agent ──
    "turn_cap_reached": Meaning(
        "An agent took as many turns as its arm allows; it was graded like every other.",
        "Look at its log; if many trials of an arm end so, turns_at_most decides the result.",
        ("c07",),
    ),
    "unblock_cap_reached": Meaning(
        "A goal was resumed as often as its arm allows, and blocked again; it was graded.",
        "Look at what the model was blocked by; it is a result of the arm.",
        ("c06",),
    ),
    "no_progress": Meaning(
        "An agent went on turn after turn without doing anything and was ended; it was graded.",
        "Look at its log; if a whole arm does so, its prompt or its tools are broken.",
        ("c07",),
    ),
    "no_commands": Meaning(
        "An agent ended without a single command and nothing of ours says why; it was graded.",
        "Look at its last message; several of one arm mean that its tools do not work there.",
        ("c01",),
    ),
    "silent_turns": Meaning(
        "Turns of an agent were completed with neither a word nor an act.",
        "Look at the provider's answers in the trial's trajectory; many of them are a fault of the model's way.",
        ("c13",),
    ),
    "goal_before_task": Meaning(
        "A goal ran before its agent knew the task, for the daemon or its connection ended just then; told afterwards.",
        "Look at the trial's first turns: where the model did anything in them, void the trial.",
    ),
    "gateway_crowded": Meaning(
        "An agent filled its own listener with open connections until its model failed; its own end, no void.",
        "Nothing to repair; see its log if you wonder what it ran.",
    ),
    "wake_replayed": Meaning(
        "LoopX had seen the id of a wake before its agent asked with it: that wake was no fresh one.",
        "Look at the trial's receipt; if it comes often, LoopX's clock or ids are broken.",
        ("a13",),
    ),
    "loopx_refused": Meaning(
        "LoopX gave no answer any more after the agent had acted; the run went on or ended without it.",
        "Look whether the agent killed it (the trial's log); the score stands, and tells less of the treatment.",
        ("a13",),
    ),
    "reached_into": Meaning(
        "A person ran a command in the container of a trial: what it did there is part of the trial and of its score.",
        "See `marathonctl history TRIAL` for who ran what; if it was more than a look, void the trial, with its block.",
    ),
    "pids_limit_hit": Meaning(
        "An agent wanted more processes than limits.pids allows and met errors.",
        "If tasks really need more, raise limits.pids in a new campaign, for all arms.",
    ),
    "treatment_not_delivered": Meaning(
        "The agent was not given all of its arm's treatment, so that its score is no result of that arm.",
        "Look what is missing, repair it, and void the trial with its block.",
        ("a13", "c16"),
    ),
    "treatment_unused": Meaning(
        "The agent was given its arm's treatment and never used it.",
        "Nothing to repair: report it beside the score (`marathonctl sql` over v_treatment).",
        ("a13",),
    ),
    "config_changed": Meaning(
        "The agent's codex configuration was another one after the run than before.",
        "Look who wrote it (the trial's log); void the trial if model or sandbox changed with it.",
        ("a11",),
    ),
    "usage_differs": Meaning(
        "The gateway and codex counted different tokens, and nothing that was cut explains it.",
        "Use the gateway's count; look for a way to the model beside the gateway.",
        ("a03",),
    ),
    "receipt_incomplete": Meaning(
        "Parts of what an agent left could not be kept or read; its receipt says which.",
        "Nothing to repair; read its counts as lower bounds.",
        ("e07",),
    ),
    "receipt_invalid": Meaning(
        "What an agent left does not fit the receipt's schema and was not stored.",
        "Check the codex version against the one that this marathond knows; the score stands.",
        ("e03",),
    ),
    "not_collected": Meaning(
        "What an agent left could not be collected: the trial has a score and no receipt.",
        "Read the error; its run directory is still below state_dir/r until it is exported.",
        ("f07",),
    ),
    # ── the house ──
    "invariant_broken": Meaning(
        "marathond met something that must not happen and closed admission; running trials finish.",
        "Keep the log, report the bug, then `marathonctl resume` once you know that the trial named is harmless.",
        ("f03", "f09"),
    ),
    "breaker": Meaning(
        "The same infrastructure failure came again and again, so that admission pauses for all arms and then tries again.",
        "Repair the infrastructure first: the words name the failure; voids of that time use up no passes.",
        ("f12",),
    ),
    "lease_leaked": Meaning(
        "A trial's network cannot be removed; its lease stays held and counts.",
        "See `docker network inspect`: disconnect what still hangs on it; removal is retried.",
        ("b03", "b04"),
    ),
    "container_undeletable": Meaning(
        "The engine does not remove a trial's container.",
        "Look at the engine's log; a hung mount or a process in D state is the usual reason; removal is retried.",
        ("b04",),
    ),
    "orphan_container": Meaning(
        "A container with our label and no live claim was found and removed.",
        "Nothing if it was once; if it comes again, look who starts containers with copied labels.",
        ("b05", "b06"),
    ),
    "label_forged": Meaning(
        "Something at the engine carries this ledger's label and is not marathond's: it is never touched.",
        "See `docker inspect`: somebody copied labels, or an image carries them; take the label off or remove it yourself.",
        ("b05", "b06"),
    ),
    "orphan_network": Meaning(
        "A network with our label and no lease was found and removed.",
        "Nothing if it was once; if it comes again, look who makes networks with copied labels.",
        ("b03", "b05"),
    ),
    "config_left_out": Meaning(
        "The configuration names a task, or a rule for one, that there is not; the campaign goes on without it.",
        "Mount the disk or correct the name, then `marathonctl submit`: it refuses what still fits nothing.",
        ("e01",),
    ),
    "host_unknown": Meaning(
        "Routes or interfaces of the host cannot be read, so that no network is given out.",
        "Read the words; marathond needs `ip` and /proc of the host it runs on.",
        ("b02", "e04"),
    ),
    "subnets_exhausted": Meaning(
        "No free subnet is left in network.range.",
        "Widen network.range or remove what occupies it (`marathonctl pool --foreign`).",
        ("b01", "b02"),
    ),
    "network_range_conflict": Meaning(
        "network.range overlaps a route, an interface or a network of the host; those subnets are passed over.",
        "Choose a range that nobody uses if too few are left (`marathonctl pool`).",
        ("b02",),
    ),
    "disk_low": Meaning(
        "A file system is below its floor or cannot be seen; nothing is admitted until it is.",
        "Make room on the path named (`docker system df`, old artifacts); admission goes on by itself.",
        ("b12",),
    ),
    "engine_blind": Meaning(
        "The engine does not see the files that marathond writes: containers would mount something else.",
        "Run marathond on the engine's own host, or mount state_dir at the same path there.",
        ("b05",),
    ),
    "engine_proxy_dead": Meaning(
        "The engine is configured with a proxy that does not answer: pulls and builds fail with other words.",
        "Repair or remove the engine's proxy setting, then restart it.",
        ("b13",),
    ),
    "export_failed": Meaning(
        "Artifacts of trials could not be copied to out_dir, or the folder is another ledger's; they wait and are tried again.",
        "Make out_dir writable and give it room, or name another out_dir where a copied ledger runs; nothing is lost meanwhile.",
        ("e07", "f07"),
    ),
    "clock_offset": Meaning(
        "The clock of a file system differs from this host's.",
        "Compare times by the ledger's order, never by files' times; set the storage's clock.",
        ("e05",),
    ),
    "audit_failed": Meaning(
        "A rule of the audit broke: what it watches is unknown, not well, while this lasts.",
        "Keep the log and report the bug; `marathonctl doctor` says which rules can see.",
        ("e04",),
    ),
    "notify_failed": Meaning(
        "A message about the campaign could not be sent over a channel.",
        "Try `marathonctl notify --test`; repair the command or the webhook.",
        ("f15",),
    ),
    "notices_failed": Meaning(
        "The part that tells people of trouble fails itself: nobody is told while this lasts.",
        "Read the error; look at `marathonctl status` yourself until it is over.",
        ("f15", "e04"),
    ),
    "page_down": Meaning(
        "The live page is not served; trials and everything else go on without it.",
        "Read the error: a port in use, or a socket's folder that is missing, is the usual reason; it is tried again every minute.",
        ("e04",),
    ),
    "page_broken": Meaning(
        "One of the live page's own pages breaks whenever it is asked for; trials and the other pages go on without it.",
        "Keep the log, which has the error, and report the bug; `marathonctl status` and `show` say the same as the page. It is over once "
        "that address is answered again, or when the page begins anew.",
        ("e04",),
    ),
}


def meaning_of(code: str) -> Meaning | None:
    """Of any finding, the audit's included; None: this version knows no such code (one of an older or newer one)."""
    return RAISED.get(code) or of_rules().get(code)


def of_rules() -> dict[str, Meaning]:
    """The audit's own, by code."""
    from marathond.core.audit.rules import RULES  # here: the rules bring exact tests along that a plain look does not need

    return {rule.code: Meaning(rule.means, rule.todo, rule.faults) for rule in RULES}
