"""Runs the verifier in the trial's container and reads what it wrote.

Owns the upload after the agent's death, the deadline and the reading.  Must not decide what a reading means (core/classify.py).
Facts (Harbor 0.26): old reward files are removed, tests/ is uploaded, `(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1`, the exit
code is ignored.
"""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import from_thread, to_thread

from marathond.core.classify import VerifierEnd
from marathond.core.detached import detached_argv
from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, EngineUnreachable, GateFailed
from marathond.core.judge import asks_judge, filled
from marathond.core.limits import effective_verifier_limit
from marathond.core.model import Task
from marathond.core.names import AfterAgent, trial_label
from marathond.core.score import Overrides, ScoreReading, files_of, read_score
from marathond.core.text import printable
from marathond.flow import ways
from marathond.flow.ending import prove_death
from marathond.flow.settled import alone, settled
from marathond.flow.world import World, log
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.context import TrialContext, cell_context
from marathond.ports.agent import RunDir
from marathond.ports.engine import ExecSpec
from marathond.tasks.removal import empty_folder
from marathond.tasks.scorefiles import collect

STDOUT = "test-stdout.txt"
STATUS = "/marathond/ctl/verifier-status"
TIMER_GRACE_S = 30
KILLED = 137
"""What the engine says of a verifier that its own timer ended."""
WITH_CONTAINER = (126, KILLED)
"""What it says of one that died with its container: in the midst of its work, or before it had begun."""

VERIFIER = "verifier"
"""Purpose of the listener through which a verifier asks its judge."""
GATEWAY_S, GATEWAY_PAUSE_S = 600.0, 2.0
"""How long a verifier that needs a judge waits for a gateway that is away."""

UPLOADS = 5
"""Times that tests are brought into place when the engine goes away in between."""

NAMES_SHOWN, NAME_MAX = 20, 200

_ONE_READING = threading.Lock()

# $1: where the tests were uploaded.  The final place is cleared first: the agent may have left something there (fault c11).  Something of
# the agent's that still lives may put it back at once; then mv would move the tests INTO it, and the agent's own would be run.
# What an earlier life uploaded goes: Docker may still carry out that life's order to put it in place, after its death, while the verifier
# of this one runs; it then finds nothing, and touches nothing.
PREPARE = """
if [ ! -d "$1" ]; then echo "$1 is gone: another upload took its place"; exit 1; fi
for old in /.marathond-tests-*; do [ "$old" = "$1" ] || rm -rf "$old"; done
rm -rf /tests && mv "$1" /tests && chmod +x /tests/test.sh || exit 1
if [ -e "/tests/${1##*/}" ]; then echo "/tests came back while it was replaced"; exit 1; fi
"""


@dataclass(frozen=True, slots=True)
class Started:
    """A verifier that runs; enough to find it again after a restart."""

    exec_id: str
    round: int
    deadline_mono_ms: int
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """The container did not let the verifier begin, and the engine answered all the while: not our side's doing."""

    why: str


def clear_logs(run: RunDir) -> tuple[str, ...]:
    """Remove what lies in /logs/verifier before the verifier starts.  The folder itself is mounted and stays.  In a worker thread.

    :return: the first names of what was there, made harmless: the agent chose them.
    :raises OSError: something puts new entries there as fast as they are removed.
    """
    found = empty_folder(run.logs / "verifier", from_thread.check_cancelled)
    shown = tuple(printable(name, NAME_MAX) or "(unprintable)" for name in found.names[:NAMES_SHOWN])
    return shown if found.count <= NAMES_SHOWN else (*shown, f"and {found.count - NAMES_SHOWN} more")


async def start(world: World, trial_id: int, container_id: str, task: Task, round: int, multiplier: float) -> Started | Blocked:
    """Upload and start.  Raises GateFailed("verifier_not_started") when the engine was away, or our own files are to blame."""
    run, breaks = world.run_dir(trial_id), world.engine_breaks
    try:
        removed = await to_thread.run_sync(clear_logs, run)
    except OSError as error:
        return Blocked(f"/logs/verifier could not be emptied: {error.strerror or error}")
    recorded = False
    limit = effective_verifier_limit(task.verifier_timeout_s, multiplier, declared=task.verifier_timeout_declared)
    assert limit.limit_s is not None
    try:
        exec_id = await _created(world, trial_id, container_id, task, limit.limit_s)
        if isinstance(exec_id, Blocked):
            return await _ended(world, container_id, breaks, exec_id.why) or exec_id
        now_mono_ms = world.clock.mono_ms()
        await world.ledger.write(
            trials.verification_started,
            trial_id,
            round=round,
            exec_id=exec_id,
            started_mono_ms=now_mono_ms,
            boot_id=world.clock.boot_id,
            limit_ms=int(limit.limit_s * 1000),
            limit_origin=limit.origin,
            now_ms=world.clock.wall_ms(),
        )
        recorded = True
        await begin(world, exec_id)
    except EngineError as error:
        if recorded:
            # A row without an end would be shown as a verifier that still runs.
            now_ms = world.clock.wall_ms()
            await world.ledger.write(trials.verification_ended, trial_id, round, outcome="lost", exit_code=None, now_ms=now_ms)
        if (blocked := await _ended(world, container_id, breaks, str(error))) is not None:
            return blocked
        # An engine that answers all the while, and not for this container, says what the agent made of it: a user that it removed, a
        # folder, a passwd that is a pipe.  A void for that would be a second try.
        said_no = bool(error.status) or isinstance(error, EngineTimeout)
        if said_no and not isinstance(error, EngineUnreachable | ConnectionBroke) and await alone(world, breaks):
            return Blocked(f"the engine could not start the verifier in this container: {error}")
        raise GateFailed("verifier_not_started", str(error)) from error
    except OSError as error:
        raise GateFailed("verifier_not_started", f"{task.path}/tests: {error}") from error
    return Started(exec_id, round, now_mono_ms + int(limit.limit_s * 1000), removed)


async def _created(world: World, trial_id: int, container_id: str, task: Task, limit_s: float) -> str | Blocked:
    """The id of the verifier's exec, its tests in place; begun anew when the engine goes away meanwhile, for nothing has run yet and hours
    of the agent's work must not be void for an engine's restart."""
    engine = world.engine
    for attempt in range(1, UPLOADS + 1):
        try:
            folder = f"/.marathond-tests-{secrets.token_hex(8)}"
            await engine.put_tree(container_id, Path(task.path) / "tests", folder)
            if (blocked := await _put_in_place(world, container_id, folder)) is not None:
                return blocked
            env = await _environment(world, trial_id, container_id, task, limit_s)
            if isinstance(env, Blocked):
                return env
            return await engine.create_exec(container_id, ExecSpec(_command(math.ceil(limit_s)), env=env, user=task.verifier_user))
        except (EngineUnreachable, ConnectionBroke) as error:
            world.engine_breaks += 1
            log.warning("verifier_upload_broken", trial=trial_label(trial_id), attempt=attempt, error=str(error))
            info = await world.look(lambda: engine.inspect_container(container_id))
            if attempt == UPLOADS or info is None or not info.running:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _environment(world: World, trial_id: int, container_id: str, task: Task, limit_s: float) -> dict[str, str] | Blocked:
    """The task's own variables; for a verifier that asks a judge, its way there is open by now.

    Waits for a gateway that is away: hours of the agent's work must not be void for its restart.
    :raises GateFailed: ``gateway_failed``, after GATEWAY_S.
    """
    gateway = world.fixed.gateway
    if not asks_judge(task.verifier_env):
        return dict(task.verifier_env)
    if gateway is None or gateway.verifier_route is None:
        raise GateFailed("gateway_failed", "the verifier asks a judge model, and the configuration has no gateway.verifier_route")
    info = await world.look(lambda: world.engine.inspect_container(container_id))
    if info is None or not info.running:
        return Blocked("the container ended before the verifier could start")
    give_up_ms = world.clock.mono_ms() + int(GATEWAY_S * 1000)
    while True:
        try:
            access = await ways.open_way(world, trial_id, info, task, gateway.verifier_route, VERIFIER)
            await ways.set_deadline(world, trial_id, world.clock.mono_ms() + int(limit_s * 1000), VERIFIER)
            return filled(task.verifier_env, gateway.verifier_env, base_url=access.base_url, key=access.key)
        except ways.CannotListen as error:
            if error.why == "port_taken":
                return Blocked(f"something that the agent left runs on the port of the verifier's way to its judge: {error.detail}")
            if world.clock.mono_ms() >= give_up_ms:
                raise
        except GateFailed:
            if world.clock.mono_ms() >= give_up_ms:
                raise
        await anyio.sleep(GATEWAY_PAUSE_S)


async def _ended(world: World, container_id: str, breaks: int, said: str) -> Blocked | None:
    """What the engine said of a container that is just ending means nothing: that it ended is the reason.  None: it still runs.

    :raises GateFailed: it ended, and its engine was away since ``breaks`` was read.
    """
    info = await settled(world, container_id)
    if info is not None and info.running:
        return None
    shown = "gone" if info is None else f"{info.status}, exit {info.exit_code}, OOMKilled {info.oom_killed}"
    if info is None or not await alone(world, breaks):
        raise GateFailed("verifier_not_started", f"the container ended, and its engine was away: {shown}; {said}")
    return Blocked(f"the container ended before the verifier could start, the engine did not: {shown}")


def _command(limit_s: int) -> tuple[str, ...]:
    """Harbor's `(/tests/test.sh) > test-stdout.txt 2>&1`, with a timer for a daemon that is away past the deadline."""
    return detached_argv(
        "marathond-verifier", ["/tests/test.sh"], timer_s=limit_s + TIMER_GRACE_S, output=f"/logs/verifier/{STDOUT}", status=STATUS
    )


async def _put_in_place(world: World, container_id: str, folder: str) -> Blocked | None:
    """With the container's own tools, which the agent may have taken away or replaced."""
    spec, limit_s = ExecSpec(("sh", "-c", PREPARE, "marathond-tests", folder), user="0", cwd="/"), world.fixed.gate_timeout_s
    try:
        prepared = await world.engine.run_exec(container_id, spec, timeout_s=limit_s, max_output=2048)
    except (EngineUnreachable, ConnectionBroke):
        raise
    except EngineTimeout:
        # Slow engine or hanging tool?  An engine that answers at once is not slow.
        await world.engine.inspect_container(container_id)
        return Blocked(f"tests could not be put in place within {limit_s:g} s")
    if prepared.exit_code != 0:
        return Blocked(f"tests could not be put in place: exit {prepared.exit_code}: {prepared.output.strip() or 'no output'}")
    return None


async def begin(world: World, exec_id: str) -> None:
    """Start a created exec; a start without an answer is looked up, for it may have begun.

    An engine that went away and knows the exec no more has begun it or not: whoever waits for it finds it lost, and it runs again in place.
    """
    try:
        await world.engine.start_created_exec(exec_id)
    except (EngineTimeout, EngineUnreachable) as error:
        away = isinstance(error, EngineUnreachable | ConnectionBroke)
        world.engine_breaks += away
        info = await world.look(lambda: world.engine.inspect_exec(exec_id))
        if info is None:
            if not away:
                raise
        elif not (info.running or info.exit_code is not None):
            if not away:
                raise
            await world.engine.start_created_exec(exec_id)


async def finish(world: World, trial_id: int, container_id: str, started: Started) -> VerifierEnd:
    """Wait for the verifier's end or its deadline; past the deadline it is killed, proven, before anybody reads."""
    left_s = (started.deadline_mono_ms - world.clock.mono_ms()) / 1000
    outcome, exit_code = "deadline", None
    if left_s > 0:  # else an engine that answers at once would tell the end by the container's own timer as one in time
        with anyio.move_on_after(left_s):
            info = await world.engine.wait_exec(started.exec_id)
            outcome, exit_code = ("lost", None) if info is None else ("exited", info.exit_code)
    if outcome == "deadline":
        info = await world.look(lambda: world.engine.inspect_exec(started.exec_id))
        if info is None:
            outcome = "lost"  # forgotten by its engine, and perhaps alive: nothing may start beside it before its death is proven
        elif not info.running and info.exit_code not in (None, KILLED):
            outcome, exit_code = "exited", info.exit_code  # in time, while no daemon was there to see it
        else:
            await prove_death(world, container_id, [info.pid], AfterAgent.KEEP_DETACHED)
    if outcome == "exited" and exit_code in WITH_CONTAINER:
        # Looked at before its end is written down: a life that is killed in between must not leave a row that passes for an end of its own.
        seen = await settled(world, container_id)
        if seen is None or not seen.running:
            outcome, exit_code = "lost", None
    await ways.close_ways(world, trial_id, VERIFIER)
    await world.ledger.write(
        trials.verification_ended, trial_id, started.round, outcome=outcome, exit_code=exit_code, now_ms=world.clock.wall_ms()
    )
    return VerifierEnd(outcome, exit_code, started.round)


def is_final(context: TrialContext) -> bool:
    """Whether the last verifier was seen to end by itself: its payload lies on our disk, whatever has died since."""
    return bool(context.verifications) and context.verifications[-1].outcome == "exited"


async def read(world: World, trial_id: int, *, verifier_exited: bool) -> ScoreReading:
    """Read the score files from the run directory, by the configuration's rules of now for its task.

    Unsafe or oversized ones become refusals, never an exception, never 0.
    """
    rules: Overrides = {}
    if world.scores:
        rules = world.scores.get((await world.ledger.read(cell_context, trial_id)).task, {})
    return await to_thread.run_sync(_read, world.run_dir(trial_id), rules, verifier_exited)


def _read(run: RunDir, rules: Overrides, verifier_exited: bool) -> ScoreReading:
    # One at a time: hostile files may take some hundred megabytes for a moment, and many trials may end together.
    with _ONE_READING:
        files, unread = collect(run.logs, more=files_of(rules))
        return read_score(files, verifier_exited=verifier_exited, overrides=rules, unread=unread)
