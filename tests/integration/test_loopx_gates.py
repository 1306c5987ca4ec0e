"""What must hold before a LoopX arm's first token, on the real LoopX, Node and Python in real containers; each fault is planted and named.

One container serves all faults of the profile: what is mounted there is a copy of the staged tree, and a fault is planted in the copy, on
the host's side, and taken back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.agents.loopx import gates, goal, profile
from marathond.agents.loopx.commands import Refused, call
from marathond.agents.loopx.goal import Goal
from marathond.core.errors import GateFailed
from marathond.core.model import Arm, LoopXArm, Mount
from marathond.core.names import Drive, LoopXProfile
from marathond.ports.agent import Environment
from marathond.ports.engine import ExecSpec
from marathond.practice.script import Practice
from marathond.staging.manifest import StagedTree
from tests.support.codex_env import VERSION
from tests.support.codex_trial import LOOPX_PACKAGE, Trial, codex_arm, codex_trial
from tests.support.loopx_env import VERSION as LOOPX_VERSION
from tests.support.rig import make_task
from tests.support.yard import yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

IDLE = Practice.model_validate({"script": [{"step": [{"say": "nobody asked"}]}]})
INSTRUCTION = "Make it so.\n" * 500
GATES = ("loopx", "loopx node", "loopx skills", "loopx goal", "loopx quota", "loopx body", "loopx doctor", "loopx left")
LISTING = "find . -printf '%p %y %m %s %U %T@\\n' | sort; find . -type f -exec sha256sum {} + | sort"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target, follow_symlinks=False)


@pytest.fixture(scope="module")
def tree(staged_loopx: StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The staged profile once more.  Its files are those of the one copy of all tests: replaced, never written to."""
    copy = tmp_path_factory.mktemp("loopx") / "tree"
    shutil.copytree(staged_loopx.root, copy, symlinks=True, copy_function=linked)
    return copy


def loopx_arm(of: LoopXProfile, *, user: str | None = None, mounts: tuple[Mount, ...] = (), **loopx: Any) -> Arm:
    drive = Drive.WAKE if of is LoopXProfile.GENERIC_CLI else Drive.GOAL
    row = LoopXArm(**{"package": LOOPX_PACKAGE, "version": LOOPX_VERSION, "source": "a test", "profile": of, **loopx})
    return codex_arm(drive, user=user, mounts=mounts, loopx=row)


@dataclass(frozen=True)
class Bench:
    trial: Trial
    tree: Path

    @property
    def env(self) -> Environment:
        return self.trial.env

    async def check(self, of: LoopXProfile = LoopXProfile.SSH_GOAL, cwd: str = "/srv", **loopx: Any) -> tuple[Goal, dict[str, str]]:
        """As for a trial that begins, but for LoopX's daemon, which goes on where there is one."""
        for folder in (self.env.run_dir.harness / name for name in profile.FOLDERS):
            for at in folder.iterdir():
                if not at.name.startswith("loopx-effect-runtime"):
                    shutil.rmtree(at) if at.is_dir() else at.unlink()
        arm = loopx_arm(of, **loopx)
        assert arm.codex is not None and arm.codex.loopx is not None
        found, passed = await gates.check(replace(self.env, arm=arm), cwd, arm.codex.loopx)
        return found, {gate.name: gate.value for gate in passed}

    async def refused(self, **loopx: Any) -> tuple[str, str]:
        with pytest.raises(GateFailed) as failure:
            await self.check(**loopx)
        assert self.trial.asked() == (0, 0)
        return failure.value.code, failure.value.detail

    async def end(self) -> None:
        """LoopX's daemon, if any is up."""
        engine, container = self.env.engine, self.env.container_id
        with anyio.fail_after(60):
            while mine := [p for p in await engine.processes(container) if f"{profile.ROOT}/" in p.argv]:
                await engine.kill(mine)
                await anyio.sleep(0.05)
        await self.run("rm", "-rf", "/tmp/of-a-call")

    async def run(self, *argv: str) -> str:
        return (await self.env.engine.run_exec(self.env.container_id, ExecSpec(argv), timeout_s=60)).output

    async def running(self) -> list[str]:
        """LoopX's own."""
        return [p.argv for p in await self.env.engine.processes(self.env.container_id) if f"{profile.ROOT}/" in p.argv]


@pytest.fixture(scope="module")
async def shared(docker_host: str, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    python = folder / "python"
    shutil.copytree(tree / "python", python, symlinks=True, copy_function=linked)
    arm = loopx_arm(LoopXProfile.SSH_GOAL, mounts=(Mount(str(python), "/opt/another"),))
    task = make_task(folder, "task", instruction=INSTRUCTION)
    async with yard(docker_host) as ground, codex_trial(ground, task, arm, IDLE, loopx=tree) as trial:
        yield Bench(trial, tree)


@pytest.fixture
async def bench(shared: Bench) -> AsyncIterator[Bench]:
    yield shared
    await shared.end()


@contextmanager
def away(path: Path) -> Iterator[None]:
    """Not there for a while."""
    hidden = path.with_name(f"{path.name}.away")
    path.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(path)


@contextmanager
def instead(path: Path, text: str, mode: int = 0o644) -> Iterator[None]:
    with away(path):
        path.write_text(text)
        path.chmod(mode)
        try:
            yield
        finally:
            path.unlink()


def packages(tree: Path) -> Path:
    (found,) = tree.glob("releases/*/lib/python3.*/site-packages")
    return found


async def test_c04_c05_c11_c12_c16_all_gates_pass_and_leave_nothing(docker_host: str, tree: Path, tmp_path: Path) -> None:
    """Of a goal arm, as another user, in a folder of the image that stays as it was, byte for byte; what the image sets for its own Python,
    Node and loader reaches none of LoopX's."""
    foreign = 'LD_LIBRARY_PATH = "/srv/lib"\nNODE_OPTIONS = "--require /none.js"\nPYTHONHOME = "/none"\nPYTHONPATH = "/srv/app"\n'
    environment = f'workdir = "/srv/app"\n[environment.env]\n{foreign}'
    task = make_task(tmp_path, "task", environment=environment, instruction=INSTRUCTION)
    files = tmp_path / "files"
    (files / "srv/lib").mkdir(parents=True)
    for library in ("libz.so.1", "libsqlite3.so.0", "libexpat.so.1"):
        (files / "srv/lib" / library).write_text("of another libc")
    (files / "srv/app/.agents/skills/brew").mkdir(parents=True)
    (files / "srv/app/.agents/skills/brew/SKILL.md").write_text("---\nname: brew\ndescription: how to brew\n---\nBrew.\n")
    (files / "srv/app/loopx").mkdir()
    (files / "srv/app/loopx/__init__.py").write_text("raise SystemExit('of the task, not of LoopX')\n")
    arm = loopx_arm(LoopXProfile.CODEX_CLI, user="nobody")
    async with yard(docker_host) as ground, codex_trial(ground, task, arm, IDLE, files=files, loopx=tree) as trial:
        env = trial.env
        look = ExecSpec(("sh", "-c", LISTING), cwd="/srv/app")
        before = await env.engine.run_exec(env.container_id, look, timeout_s=60)
        values = {gate.name: gate.value for gate in await trial.agent.gates(env)}
        after = await env.engine.run_exec(env.container_id, look, timeout_s=60)
        assert before.exit_code == 0 and "SKILL.md" in before.output and after.output == before.output
        assert [p.argv for p in await env.engine.processes(env.container_id) if p.session != env.pid] == []
        assert trial.asked()[0] == 0 and {path.name for path in env.run_dir.home.iterdir()} == {"config.toml", "skills"}

        assert set(GATES) < set(values)
        required = values["loopx skills"].partition(": ")[2].split(", ")
        assert len(required) > 1 and f"{len(required)}: " in values["loopx skills"]
        found = dict(part.split(" (", 1) for part in values["skills"].split(", "))
        assert found.pop("brew") == "/srv/app/.agents/skills/brew/SKILL.md)"
        assert sorted(found) == sorted(required) and all(at.startswith(f"{profile.SKILLS}/") for at in found.values())
        assert values["effective"].startswith(f"codex {VERSION}, ")
        assert values["loopx"] == f"{LOOPX_VERSION}, the only one; {profile.COMMAND} in sh -c, sh -lc, bash -c, bash -lc"

        (prepared,) = await env.log.entries()
        made = Goal.read(prepared.detail["loopx"])
        assert made.todo_id in values["loopx quota"] and "outside the task's tree" in values["loopx goal"]
        assert sorted(made.hashes) == ["codex_app_ssh_goal", "codex_cli"] and made.hashes["codex_cli"] == made.body_sha256
        assert goal.sha256(made.body) == made.body_sha256 and "differ in line" in values["loopx body"]
        assert made.skills == tuple(required) and "registry.global.json" not in made.body
        document = env.run_dir.harness / Path(made.state.document).relative_to(profile.ROOT)
        assert document.read_text() == INSTRUCTION
        assert made.state.document in (env.run_dir.harness / Path(made.state.state_file).relative_to(profile.ROOT)).read_text()

        # c11: what the agent's codex reads of LoopX cannot be changed from inside, not even by root.
        places = f"{profile.AGENT_SKILLS} {profile.SKILLS} {profile.ROOT}"
        spoil = f"for at in {places}; do touch $at/x && echo written; done; rm -rf {profile.AGENT_SKILLS}/*"
        spoiled = await env.engine.run_exec(env.container_id, ExecSpec(("sh", "-c", spoil), user="0"), timeout_s=60)
        assert "written" not in spoiled.output and (tree / "codex-home/skills/loopx/SKILL.md").is_file()


async def daemon_up(bench: Bench) -> None:
    """Some call has begun LoopX's daemon, and it goes on."""
    await call(bench.env, "/srv", *common(OF_A_CALL), "bootstrap", "--goal-id", "g", "--objective", "Go on.", "--no-global-sync")
    # Not counted: what of the call itself ends a moment after it answered may still be seen beside the daemon.
    assert await bench.running(), "LoopX's daemon does not outlive its call any more: these tests have lost their reason"


def common(state: goal.Paths) -> tuple[str, ...]:
    return ("--registry", state.registry, "--runtime-root", state.runtime, "--format", "json")


OF_A_CALL = goal.Paths("/tmp/of-a-call/registry.json", "/tmp/of-a-call/runtime", "", "")


async def test_c16_a_goal_is_asked_cleared_and_rendered_anew(bench: Bench) -> None:
    """Of the arm that is woken; its state lies in the task's tree.  The same turn id twice is replayed."""
    of, env = LoopXProfile.GENERIC_CLI, bench.env
    await daemon_up(bench)
    made, values = await bench.check(of, state_inside=True)
    assert await bench.running() == [], "a daemon from before is ended, and so is the gates' own"
    assert "state in the task's tree: /srv/.loopx/registry.json" in values["loopx goal"]
    assert (await bench.run("cat", made.state.document)) == INSTRUCTION
    first, again = [await goal.ask(env, made, of, "turn-1") for _ in range(2)]
    assert (first.receipt, again.receipt, first.todo_id) == ("committed", "replayed", made.todo_id)
    assert "turn-2" in await goal.body(env, made, of, "turn-2")
    with pytest.raises(Refused) as refused:
        await goal.body(env, made, LoopXProfile.SSH_GOAL, "turn-2")
    assert refused.value.code == "refused"

    stop = ("todo", "add", "--goal-id", made.goal_id, "--project", "/srv", "--role", "user", "--text", "Shall I go on?")
    whom = ("--priority", "P0", "--task-class", "user_gate", "--blocks-agent", goal.AGENT_ID)
    await call(env, "/srv", *common(made.state), *stop, *whom)
    waiting = await goal.ask(env, made, of)
    assert (waiting.should_run, waiting.requires_user, waiting.action, waiting.receipt) == (False, True, "backoff_waiting_for_user", "")
    (cleared,) = await goal.clear(env, made)
    free = await goal.ask(env, made, of)
    assert (free.should_run, free.requires_user, free.todo_id) == (True, False, made.todo_id)
    told = {todo.todo_id: (todo.role, todo.is_gate) for todo in await goal.todos(env, made)}
    assert told == {made.todo_id: ("agent", False), cleared: ("user", False)}
    await bench.run("rm", "-rf", "/srv/.loopx")


async def test_no_node_although_loopxs_daemon_is_still_up(bench: Bench) -> None:
    await daemon_up(bench)
    with away(bench.tree / "node/bin/node"):
        again = ("configure-goal", "--goal-id", "g", "--registered-agent", "somebody", "--execute")
        assert (await call(bench.env, "/srv", *common(OF_A_CALL), *again))["ok"] is True, "the daemon answers without a node"
        code, detail = await bench.refused()
    assert code == "loopx_node" and "node is missing: none found" in detail


async def test_a_node_that_is_too_old(bench: Bench) -> None:
    with instead(bench.tree / "node/bin/node", "#!/bin/sh\necho v20.19.5\n", 0o755):
        code, detail = await bench.refused()
    assert code == "loopx_node" and f"node is unsupported: {profile.NODE} 20.19.5, expected" in detail


async def test_c04_a_required_skill_that_is_missing_or_altered(bench: Bench) -> None:
    skills = bench.tree / "codex-home/skills"
    with away(skills / "loopx-project"):
        code, detail = await bench.refused()
    assert code == "loopx_skills" and "'missing_skill_ids': ['loopx-project']" in detail
    with instead(skills / "loopx-project/SKILL.md", "---\nname: loopx-project\ndescription: another\n---\n"):
        code, detail = await bench.refused()
    assert code == "loopx_skills" and "'digest_mismatches': ['loopx-project']" in detail


async def test_c12_a_python_without_sqlite(bench: Bench) -> None:
    """LoopX's doctor is content with it."""
    with contextlib.ExitStack() as stack:
        for library in list(bench.tree.glob("python/**/libsqlite3.so*")) or list(bench.tree.glob("python/**/_sqlite3*.so")):
            stack.enter_context(away(library))
        code, detail = await bench.refused()
    assert code == "loopx_python" and "has no sqlite3: " in detail


async def test_a_profile_that_cannot_run(bench: Bench) -> None:
    with away(bench.tree / "python"):
        code, detail = await bench.refused()
    assert code == "loopx_python" and "broken: a look around" in detail


async def test_another_version_than_the_arms(bench: Bench) -> None:
    code, detail = await bench.refused(version="2.1.0")
    assert code == "loopx_profile" and f"holds LoopX {LOOPX_VERSION}" in detail and detail.endswith("expected 2.1.0")


async def test_a_wrapper_that_does_not_run(bench: Bench) -> None:
    wrapper = (bench.tree / "bin/loopx").resolve()
    with instead(wrapper, "#!/bin/sh\necho nothing here >&2; exit 3\n", 0o755):
        code, detail = await bench.refused()
    # It is not the file any more that is mounted as the agent's command.
    assert (code, detail.startswith("another LoopX than")) == ("loopx_copies", True)


async def test_a_second_loopx(bench: Bench) -> None:
    """A program on the agent's PATH, a package of the profile's Python, and one of a Python of the image."""
    script = "printf '#!/bin/sh\\necho loopx 0.5.3\\n' > /usr/local/sbin/loopx; chmod +x /usr/local/sbin/loopx"
    await bench.run("sh", "-c", script)
    code, detail = await bench.refused()
    assert code == "loopx_copies" and "/usr/local/sbin/loopx" in detail
    await bench.run("rm", "/usr/local/sbin/loopx")

    left = packages(bench.tree) / "loopx-0.5.3.dist-info"
    left.mkdir()
    code, detail = await bench.refused()
    assert code == "loopx_copies" and left.name in detail
    left.rmdir()

    (python,) = {at.resolve().name for at in bench.tree.glob("python/bin/python3.*")}
    await bench.run("ln", "-s", f"/opt/another/bin/{python}", "/usr/local/bin/python3")
    (another,) = (Path(mount.source) for mount in bench.env.arm.mounts)
    copy = another / "lib" / python / "loopx.py"
    copy.write_text("")
    code, detail = await bench.refused()
    assert code == "loopx_copies" and f"/usr/local/bin/python3: /opt/another/lib/{python}/loopx.py" in detail
    copy.unlink()
    await bench.run("rm", "/usr/local/bin/python3")


async def test_a_shell_that_does_not_find_the_bare_command(bench: Bench) -> None:
    await bench.run("sh", "-c", "cp /etc/profile /etc/profile.kept; echo 'export PATH=/usr/bin:/bin' >> /etc/profile")
    code, detail = await bench.refused()
    await bench.run("mv", "/etc/profile.kept", "/etc/profile")
    assert code == "loopx_command" and detail == f"a bare loopx is not {profile.COMMAND} in sh -lc, bash -lc"


async def test_c05_a_placeholder_that_is_left(bench: Bench) -> None:
    renderer = packages(bench.tree) / "loopx/control_plane/heartbeat/task_body.py"
    text, known = renderer.read_text(), "Preserve command flags"
    assert text.count(known) == 1
    with contextlib.ExitStack() as stack:
        for compiled in (renderer.parent / "__pycache__").glob("task_body.*"):
            stack.enter_context(away(compiled))
        stack.enter_context(instead(renderer, text.replace(known, f"Read ~/.loopx/registry.global.json. {known}")))
        code, detail = await bench.refused()
    assert code == "loopx_body" and "codex_app_ssh_goal: a placeholder is left: Read ~/.loopx/registry.global.json." in detail


async def test_c16_a_hollow_goal(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up without its todo LoopX answers "run" and "normal_run", and has nothing to do."""
    whole = goal.set_up_argvs

    def hollow(of: Goal) -> tuple[tuple[str, ...], ...]:
        *first, todo = whole(of)
        return (*first, (*todo, "--dry-run"))

    monkeypatch.setattr(goal, "set_up_argvs", hollow)
    code, detail = await bench.refused()
    assert code == "loopx_quota" and "decision run, should_run True, selected no todo, expected todo_" in detail


async def test_a_goal_that_cannot_be_set_up(bench: Bench) -> None:
    code, detail = await bench.refused(cwd="/proc", state_inside=True)
    assert code == "loopx_setup" and "/proc/.loopx" in detail


async def test_a_process_of_loopx_that_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "LEFT_S", 0.2)
    engine, container = bench.env.engine, bench.env.container_id
    spec = ExecSpec((profile.NODE, "-e", "setTimeout(() => {}, 600000)"))
    await engine.start_created_exec(await engine.create_exec(container, spec))
    with anyio.fail_after(60):
        while not await bench.running():  # noqa: ASYNC110 - nobody tells when a process has begun
            await anyio.sleep(0.05)
    with pytest.raises(GateFailed) as failure:
        await gates.nothing_left(bench.env)
    assert failure.value.code == "loopx_left" and profile.NODE in failure.value.detail
    monkeypatch.setattr(gates, "LEFT_S", 60.0)  # who was killed a moment ago may be about to end
    await engine.kill([p for p in await engine.processes(container) if profile.NODE in p.argv])
    await gates.nothing_left(bench.env)
