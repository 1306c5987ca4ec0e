"""What an arm's mounts held when a trial was prepared, and when its agent ended; or when a campaign was submitted.

Owns how long anybody waits for it, and that no trial is broken, voided or graded later by it, whatever happens.  Must not judge: what
differs between trials is a rule of the audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio

from marathond.core.model import Arm, Mount
from marathond.core.mounts import AT_END, FACT, UNREAD, WRITABLE, known
from marathond.core.names import trial_label
from marathond.core.text import clean
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.campaigns import Submission
from marathond.ledger.verbs.mounts import noted
from marathond.ledger.verbs.trials import Fact
from marathond.staging.mounted import Look, Mounted

READ_S = 60.0
"""For one look: what is not read by then is told as unread.  A gigabyte from a slow disk takes a fifth of it."""
POLL_S, POLL_MOST_S = 0.01, 0.5
"""The pause doubles: most looks are over at once, and what takes long is not hurried by being asked."""


async def held(mounts: Sequence[Mount], mounted: Mounted) -> dict[str, str]:
    """Target to value (:mod:`marathond.core.mounts`).  Never waits for a file system longer than two looks, and never raises."""
    asked = [(mount, _asked(mount, mounted)) for mount in mounts if mount.read_only]
    found = {mount.target: WRITABLE for mount in mounts if not mount.read_only} | await _values(asked, mounted)
    return {mount.target: found[mount.target] for mount in mounts}


def _asked(mount: Mount, mounted: Mounted) -> Look | str:
    """A look, or why there is none."""
    try:
        return mounted.ask(mount.source)
    except Exception as bug:  # noqa: BLE001 - a look breaks no trial
        return _broken(mount, bug)


async def _values(asked: Sequence[tuple[Mount, Look | str]], mounted: Mounted) -> dict[str, str]:
    found: dict[str, str] = {}

    async def wait(mount: Mount, look: Look | str) -> None:
        try:
            found[mount.target] = look if isinstance(look, str) else await _answer(look, mounted)
        except Exception as bug:  # noqa: BLE001 - as above
            found[mount.target] = _broken(mount, bug)
        if found[mount.target].startswith(UNREAD):
            log.warning("mount_not_read", source=mount.source, target=mount.target, said=found[mount.target])

    try:
        async with anyio.create_task_group() as group:
            for mount, look in asked:
                group.start_soon(wait, mount, look, name=f"mount {mount.target}")
    finally:
        _leave(asked, mounted)
    return found


async def _answer(look: Look, mounted: Mounted) -> str:
    pause_s = POLL_S
    # A thread ends it, and one that hangs must hold no worker thread, nor the end of the process.
    while not look.over.is_set():
        if look.late(READ_S):
            return mounted.put_off(look, f"no answer within {READ_S:g} s")
        await anyio.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_MOST_S)
    return look.value


def _leave(asked: Sequence[tuple[Mount, Look | str]], mounted: Mounted) -> None:
    for _, look in asked:
        if isinstance(look, Look):
            mounted.leave(look)


def _broken(mount: Mount, bug: Exception) -> str:
    log.error("mount_look_broke", source=mount.source, target=mount.target, error=str(bug), exc_info=bug)
    return clean(f"{UNREAD}{type(bug).__name__}: {bug}")


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


@dataclass(slots=True)
class AgentsEnd:
    """What an arm's mounts held at the agent's end: what was exchanged while it ran, it may have run, whatever lay there when it began.

    Read while the trial is graded, and noted afterwards: an arm that mounts much must not be graded later than one that mounts nothing.

    :param before: target to value, as it was known at the start; of what was unknown then, nothing can be said.
    :param late: no daemon was there at the agent's end: what lies there now may have come later.
    """

    world: World
    trial_id: int
    before: Mapping[str, str] = field(default_factory=dict)
    asked: Sequence[tuple[Mount, Look | str]] = ()
    late: bool = False

    async def note(self) -> None:
        """Of what is the same nothing is noted."""
        asked, self.asked = self.asked, ()  # _values leaves them
        found = await _values(asked, self.world.mounted)
        differ = {target: value for target, value in found.items() if value != self.before.get(target)}
        if not differ:
            return
        log.warning("mount_changed_meanwhile", trial=trial_label(self.trial_id), targets=list(differ), late=self.late)
        made = [Fact(f"{FACT}{target}{AT_END}", self._said(value), "arm") for target, value in differ.items()]
        try:
            await self.world.ledger.write(trials.facts, self.trial_id, made, now_ms=self.world.clock.wall_ms())
        except Exception as bug:  # noqa: BLE001 - the trial is at rest; whatever ails the ledger, the next write meets it, too
            log.error("mount_not_noted", trial=trial_label(self.trial_id), error=str(bug), exc_info=bug)

    def _said(self, value: str) -> str:
        return f"{UNREAD}no daemon was there to look; later it was {value}" if self.late and known(value) else value

    def leave(self) -> None:
        """Nobody will note it."""
        _leave(self.asked, self.world.mounted)
        self.asked = ()


async def at_end(world: World, trial_id: int, mounts: Sequence[Mount], *, late: bool) -> AgentsEnd:
    """Begins to look and waits for nothing but the ledger.  Leave it, whatever happens (:meth:`AgentsEnd.leave`)."""
    read_only = [mount for mount in mounts if mount.read_only]
    if not read_only:
        return AgentsEnd(world, trial_id)
    try:
        before = await world.ledger.read(noted, trial_id, [mount.target for mount in read_only])
    except Exception as bug:  # noqa: BLE001 - a look breaks no trial
        return AgentsEnd(world, trial_id, {}, [(mount, _broken(mount, bug)) for mount in read_only])
    asked = [(mount, _asked(mount, world.mounted)) for mount in read_only if known(before.get(mount.target, ""))]
    return AgentsEnd(world, trial_id, before, asked, late)
