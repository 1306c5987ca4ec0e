"""What must hold before a codex arm may spend its first token; each check has a void code, and all of them are infrastructure.

Owns the checks and what each of them says.  Must not know turns of the real run, nor scores.

1. ``place``: the agent's user, its working directory, and what of the image codex might read there (AGENTS.md, ``.codex``): listed;
2. ``sidecar``: ``codex-code-mode-host --help`` exits 0 as the agent's user (``sidecar_failed``, fault c01);
3. ``config``: written whole, hashed;
4. ``read back``: what is in effect, as a server of the gate's own says it (``config_mismatch``, faults a10 a11 a14 a15 c02 c03), and which
   skills it finds (c04);
5. ``model``: one scripted turn on the configured model leaves a proof file (``model_unreachable``); then the gate's server is dead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from marathond.agents.codex import config as files
from marathond.agents.codex.client import CodexClient, Sink, connect
from marathond.agents.codex.errors import CodexError, ConnectionLost, ReachError
from marathond.agents.codex.messages import ConfigRead, FeaturesList, SkillsList, TextInput, ThreadReady, ThreadStart, TurnStart
from marathond.agents.codex.notices import OnTurnCompleted
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.shapes import Turn
from marathond.agents.loopx import profile
from marathond.agents.pinned import open_regular
from marathond.core.death import Proc, judge
from marathond.core.detached import detached_argv
from marathond.core.errors import EngineTimeout, GateFailed
from marathond.core.model import CodexArm
from marathond.core.names import AfterAgent
from marathond.ports.agent import Environment, GatePassed, ModelAccess
from marathond.ports.engine import ExecSpec
from marathond.ports.leaving import last_act

TREE = "/opt/codex"
CODEX, SIDECAR = f"{TREE}/bin/codex", f"{TREE}/bin/codex-code-mode-host"
CTL = "/marathond/ctl"
HOME = "/marathond/codex"
"""CODEX_HOME of the agent."""
GATE = f"{CTL}/gate"
"""CODEX_HOME of the gate; its folder is gone before the agent starts."""
SOCKET = f"{CTL}/app/app.sock"
"""What ``--listen`` is given; codex puts the socket elsewhere and makes this a link to it."""
SOCKET_NAME = files.sha256(SOCKET)
"""The socket's real name, which codex takes from the path: known beforehand, so that no other one is spoken to (fault c18)."""
GATE_OUTPUT = "/logs/agent/codex-gate.txt"
GATE_WORD = "marathond-gate"
"""As in practice/gate.py; the rooms do not know each other, a test compares."""

RPC_S = 30.0
POLL_S = 0.05
NOT_YET = frozenset({"tmp_missing", "folder_missing", "socket_missing", "socket_refused"})
"""Why a socket cannot be reached that may be there in a moment."""
CONFIG_BYTES_AT_MOST = 1 << 20
KILL_ROUNDS = 100
SANDBOX = "dangerFullAccess"
BROUGHT = (f"{profile.SKILLS}/", f"{profile.AGENT_SKILLS}/")
"""Where the skills of a LoopX arm lie: codex names those of the gate, whose folder is a link, by the link's target."""

# Pure shell: an image need not have `id` or `git`.
SURVEY = r"""
while read -r key real uid rest; do [ "$key" = Uid: ] && echo "uid $uid" && break; done </proc/self/status
cd "$PWD" || exit 1
echo "logical $PWD"
up=$(pwd -P) || exit 1
echo "cwd $up"
while :; do
    [ -e "${up%/}/.git" ] && echo "root $up" && break
    [ "$up" = / ] && break
    up=${up%/*}
    up=${up:-/}
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and as whom codex runs.

    :param cwd: the working directory, links resolved.
    :param untrusted: folders that must not be trusted: it, as it was named, and its repository's root.
    """

    uid: int
    cwd: str
    untrusted: tuple[str, ...]


def codex_of(env: Environment) -> CodexArm:
    assert env.arm.codex is not None, f"arm {env.arm.name} is no codex arm"
    return env.arm.codex


def user_of(env: Environment) -> str | None:
    return env.arm.user or env.task.agent_user


def read_survey(text: str) -> Place:
    """What :data:`SURVEY` printed.  Raises ValueError when a line is missing."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    uid = found.get("uid", [""])[0]
    if not (uid.isascii() and uid.isdigit() and len(uid) <= 10) or not found.get("cwd", [""])[0]:
        raise ValueError(f"expected lines `uid N` and `cwd PATH`: {text[:500]!r}")
    paths = [*found["cwd"], *found.get("logical", []), *found.get("root", [])]
    return Place(
        uid=int(uid),
        cwd=found["cwd"][0],
        untrusted=tuple(sorted({path for path in paths if path.startswith("/")})),
    )


async def survey(env: Environment) -> Place:
    """Raises GateFailed("agent_not_started") when the agent's user cannot even do that."""
    spec = ExecSpec(("sh", "-c", SURVEY), user=user_of(env), cwd=env.arm.cwd)
    result = await _run(env, spec, "agent_not_started", "a look at the working directory")
    try:
        return read_survey(result)
    except ValueError as error:
        raise GateFailed("agent_not_started", f"a look at the working directory: {error}") from error


async def sidecar(env: Environment) -> GatePassed:
    """Missing, truncated, empty or not executable, it would fail every tool call without an error (fault c01)."""
    said = await _run(env, ExecSpec((SIDECAR, "--help"), user=user_of(env), cwd=env.arm.cwd), "sidecar_failed", SIDECAR)
    if not said.strip():
        # An empty file that is executable is a script of no lines to some shells: it exits 0 and says nothing.
        raise GateFailed("sidecar_failed", f"{SIDECAR} --help exited 0 and said nothing")
    return GatePassed("sidecar", "codex-code-mode-host answers")


async def install_check(env: Environment) -> list[GatePassed]:
    """The arm's own, as for every kind of arm (``install_check_failed``)."""
    argv = env.arm.install_check
    if not argv:
        return []
    spec = ExecSpec(argv, env=dict(env.arm.env), user=user_of(env), cwd=env.arm.cwd)
    await _run(env, spec, "install_check_failed", f"install check {list(argv)}")
    return [GatePassed("install_check", "exit 0")]


async def _run(env: Environment, spec: ExecSpec, code: str, name: str) -> str:
    try:
        result = await env.engine.run_exec(env.container_id, spec, timeout_s=env.gate_timeout_s, max_output=65536)
    except EngineTimeout as error:
        raise GateFailed(code, f"{name} did not end within {env.gate_timeout_s:g} s") from error
    if result.exit_code != 0:
        raise GateFailed(code, f"{name} exited {result.exit_code}: {result.output.strip()[-1000:] or 'no output'}")
    return result.output


def write_home(folder: Path, text: str, skills: str = "") -> None:
    """A CODEX_HOME that holds nothing but ``text``; the agent's user may write there.  ``skills``: what its link of that name points to."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    if skills:
        (folder / "skills").symlink_to(skills)
    path = folder / "config.toml"
    with path.open("x", encoding="utf-8") as stream:
        stream.write(text)
    path.chmod(0o644)


def socket_folder(ctl: Path) -> None:
    """Codex refuses a folder where others could replace its link; ours is open to any uid, and sticky like /tmp."""
    folder = ctl / Path(SOCKET).parent.name
    folder.mkdir(exist_ok=True)
    folder.chmod(0o1777)


def config_hash(folder: Path) -> str:
    """sha256 of the config.toml in ``folder``, which the container could have replaced; a word when it is no readable regular file."""
    try:
        stream = open_regular(folder / "config.toml")
    except OSError as error:
        return f"unreadable ({error.strerror})"
    if stream is None:
        return "no regular file"
    with stream:
        text = stream.read(CONFIG_BYTES_AT_MOST + 1)
    return files.sha256(text) if len(text) <= CONFIG_BYTES_AT_MOST else "too large"


def server_argv(name: str, *, timer_s: int | None, output: str, status: str) -> tuple[str, ...]:
    """The app-server, detached: gate and agent run the very same command."""
    argv = (CODEX, "app-server", "--listen", f"unix://{SOCKET}", "--strict-config")
    return detached_argv(name, argv, timer_s=timer_s, output=output, status=status, tool_sessions=True)


def server_env(env: Environment, home: str, model: ModelAccess) -> dict[str, str]:
    return {**env.arm.env, "CODEX_HOME": home, files.KEY_VARIABLE: model.key}


async def reached(env: Environment, exec_id: str, uid: int, sink: Sink, *, until: float, output: Path) -> CodexClient:
    """Connect to a server that was just started; ``until`` by ``time.monotonic``.

    :raises GateFailed: ``config_mismatch`` where codex says that it does not like its config, else ``driver_failed``.
    """
    reach = Reach(env.pid, env.start_ticks, uid, SOCKET_NAME)
    while True:
        try:
            return await connect(reach, sink=sink, timeout_s=RPC_S)
        except (ReachError, ConnectionLost) as error:
            if isinstance(error, ReachError) and error.code not in NOT_YET:
                raise GateFailed("driver_failed", f"codex's socket: {error}") from error
            seen = await env.engine.inspect_exec(exec_id)
            if seen is not None and not seen.running and seen.exit_code is not None:
                said = await to_thread.run_sync(tail, output)
                code = "config_mismatch" if "config" in said.lower() else "driver_failed"
                raise GateFailed(code, f"codex app-server exited {seen.exit_code}: {said or 'no output'}") from error
            if time.monotonic() > until:
                raise GateFailed("driver_failed", f"codex app-server opened no socket in time: {error}") from error
        except CodexError as error:
            raise GateFailed("driver_failed", str(error)) from error
        await anyio.sleep(POLL_S)


def tail(path: Path, at_most: int = 2000) -> str:
    """The last bytes of a file that the container could have replaced."""
    try:
        stream = open_regular(path)
    except OSError:
        return ""
    if stream is None:
        return ""
    with stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - at_most))
        return stream.read(at_most).decode("utf-8", errors="replace").strip()


async def read_back(
    client: CodexClient, codex: CodexArm, values: Mapping[str, Any], cwd: str, skills_wanted: Sequence[str] = ()
) -> tuple[ThreadReady, list[GatePassed]]:
    """Start a thread and compare what is in effect with what the arm declares.

    :param values: what config.toml was made from.
    :param skills_wanted: names of those that the arm's harness brings; codex must find exactly them there.
    :raises GateFailed: ``config_mismatch`` with every difference; ``loopx_skills``, ``loopx_copies``.
    :raises CodexError: as for every request.
    """
    read = await client.request(ConfigRead(cwd=cwd), RPC_S)
    wrong = files.differences({key: values[key] for key in files.EFFECTIVE}, read.config)
    foreign = sorted({f"{key} from {_layer(origin)}" for key, origin in read.origins.items() if _layer(origin) != "user"})
    wrong += foreign[:20]

    page = await client.request(SkillsList(cwds=[cwd]), RPC_S)
    skills = [skill for entry in page.data for skill in entry.skills]
    errors = [error for entry in page.data for error in entry.errors]
    brought = [s for s in skills if skills_wanted and s.path.startswith(BROUGHT)]
    compare_skills([s.name for s in brought if s.enabled], [s.name for s in skills if s not in brought], skills_wanted)
    wrong += [f"skill {s.name} of scope {s.scope} at {s.path}" for s in skills if s not in brought and not _of_the_task(s.scope, s.path)]
    wrong += [f"skills: {e.path}: {e.message}" for e in errors if e.path.startswith((HOME, GATE, TREE, *BROUGHT))]

    ready = await client.request(ThreadStart(cwd=cwd), RPC_S)
    wrong += files.differences(
        {
            "model": codex.model,
            "model_provider": files.PROVIDER,
            "reasoning_effort": codex.effort,
            "approval_policy": "never",
            "sandbox": {"type": SANDBOX},
            "cwd": cwd,
            "instruction_sources": [],
            "thread": {"cli_version": codex.version},
        },
        ready.model_dump(by_alias=False),
        "thread: ",
    )
    enabled = await _features(client, ready.thread.id)
    wrong += files.differences(files.features(codex), enabled, "features: ")
    if wrong:
        raise GateFailed("config_mismatch", "; ".join(wrong)[:4000])
    on = sorted(name for name, is_on in enabled.items() if is_on)
    others = [name for name in on if name not in files.features(codex)]
    return ready, [
        GatePassed(
            "effective",
            f"codex {ready.thread.cli_version}, model {ready.model}, effort {ready.reasoning_effort}, sandbox {SANDBOX}, approval never,"
            f" web search {files.WEB_SEARCH}, cwd {cwd}",
        ),
        GatePassed(
            "features",
            f"goals {'on' if enabled.get('goals') else 'off'}; {len(others)} others on, sha256 {files.sha256(' '.join(others))}",
        ),
        GatePassed(
            "skills",
            ", ".join(f"{s.name} ({s.path})" for s in skills)[:1000]
            + ("" if not errors else f" unreadable: {', '.join(e.path for e in errors)[:500]}")
            or "none",
        ),
    ]


def compare_skills(brought: Sequence[str], others: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises GateFailed: what the harness brings is not what codex finds of it, or the task's image brings one of the same name."""
    if sorted(brought) != sorted(wanted):
        raise GateFailed("loopx_skills", f"codex finds {', '.join(sorted(brought)) or 'none'}, expected {', '.join(sorted(wanted))}"[:2000])
    if twice := sorted(set(others) & set(wanted)):
        raise GateFailed("loopx_copies", f"the task's image has skills of the same names: {', '.join(twice)}"[:2000])


def _layer(origin: Any) -> str:
    name = origin.get("name") if isinstance(origin, dict) else None
    return str(name.get("type")) if isinstance(name, dict) else str(name)


def _of_the_task(scope: str, path: str) -> bool:
    """Skills that lie in the task's image belong to the task, alike for all arms; what codex or we brought is nobody's declaration."""
    return scope in ("repo", "user") and not path.startswith((HOME, GATE, TREE))


async def _features(client: CodexClient, thread_id: str) -> dict[str, bool]:
    enabled: dict[str, bool] = {}
    cursor: str | None = None
    while True:
        page = await client.request(FeaturesList(thread_id=thread_id, cursor=cursor), RPC_S)
        enabled.update((feature.name, feature.enabled) for feature in page.data)
        if (cursor := page.next_cursor) is None:
            return enabled


async def scripted_turn(env: Environment, place: Place, skills_wanted: Sequence[str] = ()) -> list[GatePassed]:
    """The gate's own server, with its own CODEX_HOME and way to a model that answers by a script.  Nothing of it is left afterwards.

    :param skills_wanted: as for :func:`read_back`.
    """
    assert env.gate_model is not None, "a codex arm's gates need the gate's way to a model"
    codex = codex_of(env)
    values = files.config(codex, env.gate_model.base_url, place.untrusted)
    text = files.to_toml(values)
    home = env.run_dir.ctl / "gate"
    try:
        await to_thread.run_sync(write_home, home, text, profile.SKILLS if skills_wanted else "")
        await to_thread.run_sync(socket_folder, env.run_dir.ctl)
    except OSError as error:
        raise GateFailed("run_dir_lost", str(error)) from error
    until = time.monotonic() + env.gate_timeout_s
    async with _server(env, home) as exec_id:
        client = await reached(
            env, exec_id, place.uid, lambda _: None, until=until, output=env.run_dir.logs / "agent" / Path(GATE_OUTPUT).name
        )
        try:
            ready, passed = await read_back(client, codex, values, place.cwd, skills_wanted)
            with anyio.fail_after(max(1.0, until - time.monotonic())):
                await _proof(client, ready.thread.id, home)
        except TimeoutError as error:
            raise GateFailed("model_unreachable", f"the scripted turn did not end within {env.gate_timeout_s:g} s") from error
        except CodexError as error:
            raise GateFailed("driver_failed", str(error)) from error
        finally:
            await client.aclose()
    after = await to_thread.run_sync(config_hash, home)
    if after != files.sha256(text):
        raise GateFailed("config_mismatch", f"codex changed its config.toml during the gate: sha256 {after}")
    await to_thread.run_sync(shutil.rmtree, home)
    return [*passed, GatePassed("model", f"a scripted turn on {codex.model} ran a command")]


async def _proof(client: CodexClient, thread_id: str, home: Path) -> None:
    nonce = secrets.token_hex(16)
    name = f"proof-{nonce[:8]}"
    message = f"{GATE_WORD} {nonce} {GATE}/{name}"
    begun = await client.request(TurnStart(thread_id=thread_id, input=[TextInput(text=message)], client_user_message_id=nonce), RPC_S)
    turn = await _turn_end(client, begun.turn.id)
    if turn.status != "completed":
        said = "no error" if turn.error is None else f"{turn.error.message} ({turn.error.codex_error_info})"
        raise GateFailed("model_unreachable", f"the scripted turn {turn.status}: {said}"[:2000])
    if await to_thread.run_sync(tail, home / name) != nonce:
        warnings = "; ".join(client.counts.warnings)[:1000]
        raise GateFailed("model_unreachable", f"the scripted turn completed and left no proof; warnings: {warnings or 'none'}")


async def _turn_end(client: CodexClient, turn_id: str) -> Turn:
    async for event in client.events():
        if isinstance(event.body, OnTurnCompleted) and event.body.turn.id == turn_id:
            return event.body.turn
    raise AssertionError("events end by raising")


@asynccontextmanager
async def _server(env: Environment, home: Path) -> AsyncIterator[str]:
    """A server that is killed at the end, and seen dead."""
    assert env.gate_model is not None
    status = f"{GATE}/exit-status"
    argv = server_argv("marathond-gate", timer_s=int(env.gate_timeout_s) + 60, output=GATE_OUTPUT, status=status)
    spec = ExecSpec(argv, env=server_env(env, GATE, env.gate_model), user=user_of(env), cwd=env.arm.cwd)
    exec_id = await env.engine.create_exec(env.container_id, spec)
    await env.engine.start_created_exec(exec_id)
    try:
        yield exec_id
    finally:
        with last_act(f"ending the gate's codex in container {env.container_id[:12]}", env.gate_timeout_s):
            await _end(env, exec_id)
    # Looked at outside: a failure above must not be hidden behind a slow death, whose container is removed anyway.
    if left := await _end(env, exec_id):
        raise GateFailed("agent_undead", f"the gate's codex is still alive: {', '.join(p.argv[:60] for p in left)}")


async def _end(env: Environment, exec_id: str) -> Sequence[Proc]:
    """Kill everything of that exec; what is left of it after all rounds."""
    seen = await env.engine.inspect_exec(exec_id)
    if seen is None or not seen.pid:
        return ()
    sessions: set[int] = {seen.pid}
    left: Sequence[Proc] = ()
    for _ in range(KILL_ROUNDS):
        processes = await env.engine.processes(env.container_id)
        procs = [Proc(p.pid, p.ppid, p.session, p.start_ticks, p.argv) for p in processes]
        verdict = judge(procs, main_pid=env.pid, agent_pids=sessions, policy=AfterAgent.KEEP_DETACHED, tool_sessions=True)
        left = verdict.kill
        if not left:
            return ()
        # Once its parent is dead nothing tells whose a session was: remembered.
        sessions |= {p.session for p in left}
        doomed = {p.pid for p in left}
        with contextlib.suppress(ProcessLookupError):
            await env.engine.kill([p for p in processes if p.pid in doomed])
        await anyio.sleep(POLL_S)
    return left
