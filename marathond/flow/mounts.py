"""What an arm's mounts held when a trial was prepared, or a campaign submitted.

Owns how long anybody waits for it.  Must not judge: what differs between trials is a rule of the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio

from marathond.core.model import Arm, Mount
from marathond.core.mounts import AT_END, FACT, UNREAD, WRITABLE, known
from marathond.core.names import trial_label
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.campaigns import Submission
from marathond.ledger.verbs.mounts import noted
from marathond.ledger.verbs.trials import Fact
from marathond.staging.mounted import Look, Mounted

READ_S = 60.0
"""For all mounts of an arm together: what is not read by then is told as unread.  A gigabyte from a slow disk takes a fifth of it."""
POLL_S = 0.01


async def held(mounts: Sequence[Mount], mounted: Mounted) -> dict[str, str]:
    """Target to value (:mod:`marathond.core.mounts`).  Never waits for a file system longer than READ_S, and never raises."""
    found = {mount.target: WRITABLE for mount in mounts if not mount.read_only}
    looks: list[Look] = []
    read_only = [mount for mount in mounts if mount.read_only]
    try:
        with anyio.move_on_after(READ_S):
            for mount in read_only:
                while (look := mounted.begin(mount.source)) is None:  # noqa: ASYNC110 - a thread ends it, and one that hangs must hold no
                    await anyio.sleep(POLL_S)  # worker thread besides, nor the end of the process
                looks.append(look)
                while not look.over.is_set():  # noqa: ASYNC110 - as above
                    await anyio.sleep(POLL_S)
                found[mount.target] = look.value
    finally:
        for look in looks:
            look.give_up.set()  # of one that is over it says nothing
    for mount in read_only:
        if mount.target not in found:
            found[mount.target] = f"{UNREAD}no answer within {READ_S:g} s"
        if found[mount.target].startswith(UNREAD):
            log.warning("mount_not_read", source=mount.source, target=mount.target, said=found[mount.target])
    return {mount.target: found[mount.target] for mount in mounts}


async def with_held(made: Submission, arms: Sequence[Arm], mounted: Mounted) -> Submission:
    """The submission, with what its arms' mounts hold now."""
    found: dict[str, dict[str, str]] = {}

    async def look(arm: Arm) -> None:
        found[arm.name] = await held(arm.mounts, mounted)

    async with anyio.create_task_group() as group:
        for arm in arms:
            group.start_soon(look, arm, name=f"mounts of {arm.name}")
    return replace(made, arms=tuple(replace(row, held=found.get(row.name, {})) for row in made.arms))


async def facts(mounts: Sequence[Mount], mounted: Mounted) -> list[Fact]:
    """For `marathonctl show`, the trial's result, and the audit."""
    return [Fact(f"{FACT}{target}", value, "arm") for target, value in (await held(mounts, mounted)).items()]


async def look_again(world: World, trial_id: int, mounts: Sequence[Mount]) -> None:
    """At the agent's end: what was exchanged while it ran, it may have run, whatever lay there when it began.  Noted where it differs."""
    read_only = [mount for mount in mounts if mount.read_only]
    if not read_only:
        return
    before = await world.ledger.read(noted, trial_id, [mount.target for mount in read_only])
    now = await held(read_only, world.mounted)
    differ = [(target, now[target]) for target, value in before.items() if known(value) and known(now[target]) and now[target] != value]
    if differ:
        log.warning("mount_changed_meanwhile", trial=trial_label(trial_id), targets=[target for target, _ in differ])
        made = [Fact(f"{FACT}{target}{AT_END}", value, "arm") for target, value in differ]
        await world.ledger.write(trials.facts, trial_id, made, now_ms=world.clock.wall_ms())
