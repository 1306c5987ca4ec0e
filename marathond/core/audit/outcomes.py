"""What a void, a review and a park mean, and what to do: beside :mod:`.catalogue`, which does the same for findings.

Owns the words for a person at night.  Of a void ``means`` is what the ledger's own table ``void_code`` says (a test compares them).
Every void's cell runs again by itself, up to ``admission.passes``; so ``todo`` speaks of what repeats, not of the single one.
"""

from __future__ import annotations

from collections.abc import Mapping

from marathond.core.audit.catalogue import Meaning

_ONE_IS_NOTHING = "One is nothing to act on: the cell runs again."
_GATE = "`marathonctl show TRIAL` has the gate's words; no token was spent."
_LOOPX = "`marathonctl show TRIAL` has LoopX's own words; no token was spent."
_STAGE = "Stage again (`marathonctl stage`), then `marathonctl verify-envs --arm ARM`."

VOIDS: Mapping[str, Meaning] = {
    "network_failed": Meaning(
        "the network could not be created for a reason other than a full pool",
        f"{_ONE_IS_NOTHING} If it repeats read the engine's words in `show`; `marathonctl pool --foreign` shows who else takes networks.",
        ("b01",),
    ),
    "container_failed": Meaning(
        "the container could not be created or started",
        "Read the engine's words in `show`; a disk, a limit or a device is the usual reason. `marathonctl preflight` looks at the host.",
    ),
    "image_gone": Meaning(
        "the image vanished between the build and the container",
        "Somebody prunes images on this host: stop that, or label them out of it. The image is built or pulled again by itself.",
    ),
    "environment_mismatch": Meaning(
        "what the engine shows is not what was asked for: labels, network mode, limits",
        "Another program changes containers, or the engine ignores a limit: `show` names the value; a campaign must not go on over it.",
    ),
    "environment_dirty": Meaning(
        "the running container carries proxy settings that nobody asked for",
        "Take the proxy out of the engine's client configuration or the image; see `marathonctl preflight`, row proxies.",
        ("a10",),
    ),
    "healthcheck_failed": Meaning(
        "the task's healthcheck did not pass in time",
        "`logs TRIAL` has its output. If it fails for all arms the task or the host is too slow for its own check: repair the task.",
    ),
    "install_check_failed": Meaning("the arm's install check did not exit 0", f"{_GATE} Repair what the arm mounts or its check."),
    "gate_failed": Meaning("a gate before the agent's start said no", f"{_GATE} `marathonctl verify-envs` passes the gates of all arms."),
    "agent_not_started": Meaning(
        "the agent's command could not be executed",
        "The command of the arm is not in the image or not executable there: repair the arm or the image.",
    ),
    "container_lost": Meaning(
        "the container ended or vanished while the trial needed it",
        "Somebody removed it, its PID 1 was killed, or the engine was restarted without live-restore: `show` has exit code and time.",
        ("b07", "b11"),
    ),
    "engine_failed": Meaning(
        "the engine answered with an error that none of the other codes names",
        "Read its words in `show` and the engine's own log. After repeated ones admission closes by itself and one trial probes.",
        ("f12",),
    ),
    "agent_undead": Meaning(
        "the agent's death could not be proven, so the verifier must not start",
        "Look for processes that cannot be killed (state D: a dead NFS server, a broken disk) on the host; then let it run again.",
        ("c08",),
    ),
    "verifier_not_started": Meaning(
        "the verifier could not be uploaded or started",
        "The engine's words are in `show`; a full disk in the container is the usual reason.",
    ),
    "task_vanished": Meaning(
        "the task directory changed or vanished between plan and start",
        "The task is parked for all arms: put its files back, or begin a new campaign. Never edit tasks while one runs.",
        ("f06",),
    ),
    "daemon_lost": Meaning("the daemon ended before the trial's agent had started", f"{_ONE_IS_NOTHING} No pass is used up.", ("f02",)),
    "host_rebooted": Meaning(
        "the host was started anew in the middle of the trial",
        "Nothing can be taken over after a reboot. Find out why it rebooted (unattended upgrades?) before the next night.",
        ("f02",),
    ),
    "ledger_copied": Meaning(
        "the ledger was adopted as a copy; the trial belongs to the original",
        "Nothing: only one of both ledgers may go on with the campaign.",
        ("f14",),
    ),
    "run_dir_lost": Meaning(
        "the trial's run directory cannot be read or written",
        "Look at state_dir: a full or read-only disk, or somebody who cleans up below it.",
        ("f05",),
    ),
    "gateway_failed": Meaning(
        "the gateway did not open the trial's way to the model, or lost it",
        "`systemctl status marathond-gateway`, its journal; while it is away nothing is admitted, for any arm.",
    ),
    "sidecar_failed": Meaning(
        "codex's code-mode host does not run in this container",
        "The image lacks what the host needs (a libc of its age, /proc, memory): `show` has its words; `verify-envs` tries all images.",
        ("c01",),
    ),
    "config_mismatch": Meaning(
        "what codex says it runs with is not what the arm demands",
        "`show` names key, wanted and found. A config.toml in the image or another codex is the usual reason; then a new campaign.",
        ("c02", "a14"),
    ),
    "model_unreachable": Meaning(
        "the scripted command on the configured model did not leave its proof",
        "The way from codex to the gateway is broken in this container (proxy, name, port): `show` has the gate's words.",
    ),
    "model_failed": Meaning(
        "turns failed for reasons of the provider or the gateway, more often than is retried",
        "See `marathonctl status` for the provider, and its status page; `codex.turn_retries` says how often a turn is taken up again.",
        ("a01",),
    ),
    "usage_limit": Meaning(
        "the provider's quota is used up",
        "Admission is closed for all arms: pay or wait, then `marathonctl resume`. The voids of it run again.",
        ("f13",),
    ),
    "driver_failed": Meaning(
        "the agent's server could not be driven: no answer, or an answer of unknown form",
        "Another codex version than the staged one answers, or it hangs: `logs TRIAL`, then `marathonctl canary`.",
        ("e03",),
    ),
    "dead_agent": Meaning(
        "no command was run, and the sidecar or the server's own errors say why",
        "Read those errors in `show`; if they hit one arm only, `findings` says so too.",
        ("c01",),
    ),
    "accepted": Meaning(
        "its gates passed and nothing more was wanted: marathonctl verify-envs", "Nothing: it is how verify-envs says yes."
    ),
    "imported_void": Meaning("withdrawn in the runs that it was imported from", "Nothing: what was withdrawn there is withdrawn here."),
    "operator": Meaning(
        "withdrawn by a person", "Nothing; `marathonctl history TRIAL` has the reason. `unvoid` takes it back until the cell runs again."
    ),
    "provider": Meaning("the model provider failed", "Nothing; whole blocks (`--pair`) keep the comparison fair."),
    "stop_now": Meaning("ended by stop --now", "Nothing; the cells run again at the next start."),
    "loopx_failed": Meaning(
        "LoopX gave the driver no answer before the agent had acted: it could not be run, or came to no end",
        f"{_LOOPX} A host that is too busy makes it slow: lower concurrency.",
        ("c17",),
    ),
    "loopx_python": Meaning(
        "the profile's Python does not run in the container, or has no sqlite3",
        f"{_LOOPX} {_STAGE} An image with another libc cannot run it at all.",
        ("c12",),
    ),
    "loopx_copies": Meaning(
        "another copy of LoopX can be found in the container",
        f"{_LOOPX} Take it out of the image: which one ran would be anybody's guess.",
        ("c04",),
    ),
    "loopx_profile": Meaning("the LoopX in the container is not the arm's", f"{_LOOPX} {_STAGE}", ("c04",)),
    "loopx_command": Meaning(
        "a bare loopx in the agent's shell is not the profile's", f"{_LOOPX} The image's PATH or profile scripts hide it.", ("c05",)
    ),
    "loopx_node": Meaning("LoopX finds no Node, or one that is too old, with its daemon stopped", f"{_LOOPX} {_STAGE}", ("c05",)),
    "loopx_skills": Meaning("the skills that LoopX requires are not there or not whole", f"{_LOOPX} {_STAGE}", ("c12",)),
    "loopx_setup": Meaning(
        "LoopX did not set up the goal and its todo", f"{_LOOPX} The task's tree may hold a .loopx of its own.", ("c16",)
    ),
    "loopx_quota": Meaning("LoopX's quota does not select the task's todo: the goal would be hollow", _LOOPX, ("c16",)),
    "loopx_body": Meaning(
        "the body that LoopX renders holds a placeholder, is too long, or differs where it must not",
        f"{_LOOPX} Another LoopX version than the arm's row says: see `marathonctl arms show ARM`.",
        ("c06",),
    ),
    "loopx_doctor": Meaning("LoopX's doctor does not call the delivery of its skills ready", f"{_LOOPX} {_STAGE}", ("c12",)),
    "loopx_left": Meaning(
        "a process of LoopX is still there after the gates", f"{_LOOPX} It would run beside the agent: look at it with `exec`.", ("c17",)
    ),
}
"""Codes of voids."""

_DECIDE = "`marathonctl review TRIAL` shows both sides; accept the score, give yours, or void it."

REVIEWS: Mapping[str, Meaning] = {
    "verifier_lost": Meaning(
        "The verifier never came to an end that can be read: its container or its engine went, more than once.", _DECIDE, ("d02",)
    ),
    "verifier_deadline": Meaning(
        "The verifier reached its own deadline twice.",
        f"{_DECIDE} If it does so in every arm give the task's verifier more time, in a new campaign.",
        ("d10",),
    ),
    "score_unreadable": Meaning(
        "No readable reward after a second verification in place.",
        f"{_DECIDE} It is never read as 0. `logs TRIAL --verifier` says what it printed.",
        ("d02", "d07"),
    ),
    "infrastructure_suspected": Meaning(
        "The score was read, and our own side saw something that may have made it: the engine, memory, a disk, or all arms failing alike.",
        f"{_DECIDE} A block is voided whole, or not at all.",
        ("d06",),
    ),
    "judge_failed": Meaning(
        "A judge model was asked by the verifier and did not answer as it should.", f"{_DECIDE} Look at the verifier's route.", ("d06",)
    ),
    "verifier_not_started": Meaning(
        "The verifier could not be started again, after a first run whose result could not be read.",
        f"{_DECIDE} The engine's words are in it.",
        ("d02",),
    ),
    "container_ended": Meaning(
        "The container ended under its agent while the engine was well: the task's own processes, its memory, or somebody on this host.",
        f"{_DECIDE} Who ends containers of one arm only turns a comparison round: look at the others of the block.",
        ("b07",),
    ),
    "score_changed": Meaning("The reward was readable, and no longer is: something wrote after the verifier.", _DECIDE, ("d08",)),
    "overrun": Meaning(
        "The agent ran on beyond its deadline by more than the bound, while no daemon watched.", f"{_DECIDE} `show` has how long.", ("c19",)
    ),
}
"""Codes of reviews."""

_UNPARK = "then `marathonctl submit` looks again, or `marathonctl unpark --task TASK --reason …`."

PARKS: Mapping[str, Meaning] = {
    "passes_exhausted": Meaning(
        "Infrastructure voided the cell as often as `admission.passes` allows; the last code is in the detail.",
        "Repair what that code says, then `marathonctl retry CELL --reason …`. All arms of a task: the task; one arm: the arm.",
        ("f12",),
    ),
    "task_missing": Meaning("The task directory is not there.", f"Put it back, {_UNPARK}", ("f06",)),
    "task_broken": Meaning(
        "The task's files cannot be read as a Harbor task; the detail names file and line.", f"Repair it, {_UNPARK}", ("f06",)
    ),
    "task_unsupported": Meaning(
        "The task asks for something that marathond does not do; the detail names it.", "Leave it out, or wait for a version that does."
    ),
    "task_changed": Meaning(
        "The task's files are not those that the campaign was submitted with.",
        f"Put the old files back, {_UNPARK} Or begin a new campaign.",
        ("f06",),
    ),
    "host_too_small": Meaning(
        "The task asks for more CPUs, memory or processes than this host has.", "Run it on a larger host; waiting does not help."
    ),
    "engine_without_pids": Meaning(
        "The engine cannot limit processes, and the configuration demands a limit.", "Mount the pids cgroup, or set limits.pids = 0."
    ),
    "image_missing": Meaning(
        "The image is not here and could not be pulled.", f"Pull or load it by hand (`marathonctl prebuild` shows the words), {_UNPARK}"
    ),
    "image_build_failed": Meaning(
        "The image could not be built; the build's log is named in the detail.", f"Repair Dockerfile or network, {_UNPARK}"
    ),
    "image_needs_buildkit": Meaning("The Dockerfile needs BuildKit, and there is no `docker buildx`.", f"Install docker-buildx, {_UNPARK}"),
    "runtime_unfit": Meaning(
        "What an arm mounts (codex, LoopX's Node or Python) cannot run in the image, so no arm runs the task.",
        "Use an image with glibc of its age.",
        ("a13",),
    ),
}
"""Codes of parks."""
