"""The fixed corpus: a thousand seeds, and a few whose script is written by hand for what dice seldom show.

Owns which seeds CI runs and how they are cut up.  Each is run once in a process, and kept for whoever counts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from tests.sim.chaos import Script, script
from tests.sim.run import Outcome, simulate

CHUNK = 25
"""Seeds of one test, which may take ten minutes: on a machine with much else to do a seed takes seconds."""
FIRST, SECOND, THIRD = range(1, 311), range(311, 661), range(661, 1001)
"""Of three test files, each for a test process of its own: side by side they take a third of the time."""


def chunks(seeds: range) -> list[range]:
    return [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]


@functools.cache
def outcome(seed: int) -> Outcome:
    return simulate(seed)


def problems(seeds: range) -> list[str]:
    """What is wrong with these seeds, each in a line that says how to see it again."""
    found = []
    for seed in seeds:
        seen = outcome(seed)
        found += [f"seed {seed}: {violation}; replay: python -m tests.sim --seed {seed} -v" for violation in seen.violations]
        if not seen.violations and (seen.cells < 8 or seen.faults.total() < 3 or seen.kills < 1):
            found.append(f"seed {seed}: only {seen.cells} cells, {seen.faults.total()} faults, {seen.kills} kills")
    return found


def directed() -> Mapping[str, Script]:
    """By hand: what no seed of the corpus may be relied on to show.  Seeds from 5001 on."""
    calm = {name: replace(script(_seed(name)), host_rates={}, rates={}) for name in NAMED}
    return {
        "accepted": _shaped(calm["accepted"], gates_only=True),
        "codes": _shaped(calm["codes"], arms=("checked", "driven", "solution"), unkind=0.35),
        "gates": _shaped(calm["gates"], **DRIVEN, unkind=0.0, agent_unkind=0.9),
        "drivers": _shaped(calm["drivers"], **DRIVEN, unkind=0.0, agent_unkind=0.5),
        "proxied": _shaped(calm["proxied"], tasks=("proxied", "net"), arms=("plain", "nothing"), replicates=2),
        "host": replace(calm["host"], host_rates={"run_dir_fails": 0.3, "out_dir_fails": 0.3, "limits_ignored": 0.3}),
        "edited": replace(_shaped(calm["edited"], **QUICK), acts=EDITS, person=False, planned=()),
        "images": replace(
            _shaped(calm["images"], **{**QUICK, "tasks": ("built", "net")}),
            rates={"build_failed": 0.9, "pull_failed": 0.4},
            acts=("image_removed", *EDITS),
            person=False,
        ),
        "creates": replace(calm["creates"], rates=dict.fromkeys(CREATES, 0.08), acts=("kill", *("clock",) * 40), person=False),
        "unanswered": replace(
            _shaped(calm["unanswered"], tasks=("net", "healthy"), arms=("plain", "strict", "checked", "nothing")),
            acts=("kill", *("clock",) * 50),
            person=False,
            rates={"network_create_undone": 0.6, "container_create_undone": 0.5},
        ),
        "unmade": replace(
            _shaped(calm["unmade"], **QUICK), acts=("kill", *("clock",) * 80), person=False, rates={"container_create_undone": 0.6}
        ),
        "networks": replace(
            _shaped(calm["networks"], mode="auto", tasks=("net", "healthy"), arms=("plain", "strict", "checked", "nothing")),
            rates={"pool_exhausted": 0.6, "network_undeletable": 0.3},
        ),
        "containers": replace(
            calm["containers"],
            rates={"container_undeletable": 0.3, "container_dies": 0.3, "oom": 0.3, "pid_reused": 0.5, "unpause_refused": 0.2},
        ),
        **{
            name: replace(
                _shaped(calm[name], arms=("plain", "strict", "driven"), unkind=0.0),
                acts=("kill", *("clock",) * 50),
                person=False,
                rates={"pause_refused": 1.0},
            )
            for name in PICKED
        },
        **{
            name: replace(
                _shaped(calm[name], arms=("plain", "strict", "nothing"), tasks=("net", "healthy")),
                acts=("kill", *("clock",) * 50),
                person=False,
                rates={"exec_create_undone": 0.25, "exec_start_undone": 0.15, "engine_restart_live": 6.0, "unpause_refused": 0.7},
            )
            for name in SEARCHED
        },
    }


SEARCHED = {"unverified": 5040, "unverified too": 5054, "unverified again": 5056, "thawed": 5057, "thawed too": 5032}
"""Seeds that were looked for: what they show, dice show once in ten."""


PICKED = {"undead": 5205, "undead too": 5203}
"""Seeds of a script by hand that shows what it is for in three seeds of four; each of these shows it several times."""


def _seed(name: str) -> int:
    return SEARCHED.get(name) or PICKED.get(name) or 5001 + NAMED.index(name)


QUICK = {"arms": ("nothing", "plain"), "tasks": ("offline", "uploads"), "replicates": 2}
DRIVEN = {"arms": ("driven", "nothing"), "tasks": ("offline", "net", "healthy", "uploads"), "replicates": 2}
NAMED = (
    "accepted",
    "undead",
    "codes",
    "gates",
    "drivers",
    "proxied",
    "host",
    "edited",
    "images",
    "creates",
    "unanswered",
    "unmade",
    "networks",
    "containers",
    *SEARCHED,
    "undead too",
)
EDITS = (*("image_removed",) * 8, "task_changed", "task_changed", "kill", "stop_now")
CREATES = tuple(
    f"{call}_{how}"
    for call in ("network_create", "container_create", "container_start", "exec_create", "exec_start")
    for how in ("done", "undone", "late")
)


def _shaped(made: Script, **changes: object) -> Script:
    return replace(made, shape=replace(made.shape, **changes))  # type: ignore[arg-type]


@functools.cache
def by_hand(name: str) -> Outcome:
    return simulate(_seed(name), script=directed()[name])
