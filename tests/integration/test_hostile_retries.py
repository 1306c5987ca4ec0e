"""Agents that try to buy another attempt: each leaves its container so that the engine itself refuses, or hangs, when the verifier starts.

The engine's words are then about what the agent left behind, and a void for them would be a second try that the other arms do not get.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from marathond.core.errors import EngineError, EngineTimeout
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import ExecSpec
from tests.support.hostile import Ran, campaign
from tests.support.rig import CALL_TIMEOUT_S, PATIENCE_S, Rig, make_task

pytestmark = pytest.mark.docker

VERIFIER = "echo 1 >/logs/verifier/reward.txt\n"
GATE_S = 20.0
WHEN_THERE = "setsid sh -c 'while [ ! -e /tests/test.sh ]; do :; done; %s' >/dev/null 2>&1 & exit 0"
MEMORY_MB = 64

AGENTS = {
    "removes-its-folder": "cd /; rm -rf /some/where; exit 0",
    "folder-becomes-a-file": "cd /; rm -rf /some/where; echo >/some/where; exit 0",
    "removes-the-user": "sed -i /^nobody/d /etc/passwd; exit 0",
    "removes-all-users": "rm -rf /etc/passwd /etc/group; mkdir /etc/passwd /etc/group; exit 0",
    "users-are-a-pipe": "rm -f /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group; exit 0",
    "removes-the-shell": "rm -f $(command -v sh); exit 0",
    "removes-the-shell-later": WHEN_THERE % "rm -f $(command -v sh)",
    "shuts-the-root": "chmod 000 /; exit 0",
    "fills-its-memory": f"dd if=/dev/zero of=/dev/shm/full bs=1M count={MEMORY_MB} 2>/dev/null; exit 0",
}


class Refusing(DockerEngine):
    """Answers as an engine of another version does to what the first two agents left: a user that is gone is refused when the exec is
    created, and one that would be looked up in a pipe is waited for without end."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.silent = set[str]()

    async def create_exec(self, container_id: str, spec: ExecSpec) -> str:
        if "marathond-verifier" not in spec.argv:
            return await super().create_exec(container_id, spec)
        left = await self.run_exec(container_id, ExecSpec(("cat", "/left"), user="0"), timeout_s=CALL_TIMEOUT_S)
        if "user" in left.output:
            raise EngineError("exec.create", 400, "unable to find user nobody: no matching entries in passwd file")
        made = await super().create_exec(container_id, spec)
        if "pipe" in left.output:
            self.silent.add(made)
        return made

    async def start_created_exec(self, exec_id: str) -> None:
        if exec_id in self.silent:
            raise EngineTimeout("exec.start", 0, "no answer within 20 s")
        await super().start_created_exec(exec_id)


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("retries")
    tasks = []
    for name, script in AGENTS.items():
        room = f"memory_mb = {MEMORY_MB}\n" if name == "fills-its-memory" else ""
        folder = make_task(root, name, instruction=script, test=VERIFIER, environment=f'workdir = "/some/where"\n{room}', agent_s=200)
        file = folder / "task.toml"
        file.write_text(file.read_text().replace("[verifier]\n", '[verifier]\nuser = "nobody"\n'))
        tasks.append(folder)
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    overrides = {"admission.passes": 2, "limits.gate_timeout_s": GATE_S, "engine.call_timeout_s": CALL_TIMEOUT_S}
    with campaign(docker_host, tasks, arms, overrides) as ran:
        yield ran


@pytest.mark.parametrize("task", sorted(AGENTS))
def test_what_an_agent_left_of_its_container_earns_no_further_attempt(ran: Ran, task: str) -> None:
    assert ran.voids(task) == [], ran.rig.story()
    assert ran.state(task) in ("scored", "review")
    if ran.state(task) == "review":
        assert ran.review(task)[0] in ("verifier_not_started", "score_unreadable")


def test_an_engine_that_refuses_for_this_container_alone_is_no_reason_for_another_attempt(
    docker_host: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("refusals")
    tasks = [make_task(root, name, instruction=f"echo {name} >/left", test=VERIFIER) for name in ("user", "pipe", "nothing")]
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    with campaign(docker_host, tasks, arms, {"admission.passes": 2}, engine=Refusing(docker_host)) as ran:
        assert ran.reward("nothing") == 1.0
        for task, words in (("user", "unable to find user nobody"), ("pipe", "no answer within 20 s")):
            assert ran.voids(task) == [], ran.rig.story()
            code, detail = ran.review(task)
            assert code == "verifier_not_started" and words in detail and "the engine could not start the verifier" in detail
        assert ran.rounds("pipe") == [("lost", None)]


GO = "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"
END_CONTAINER = "rm -f $(command -v sleep); kill -9 $(cat /proc/1/task/1/children); while :; do :; done"


@pytest.mark.anyio
async def test_c19_an_agent_that_ends_its_container_while_no_daemon_looks_earns_no_further_attempt(
    docker_host: str, tmp_path: Path
) -> None:
    """The other trial's container has run all the while, so the engine did, too."""
    tasks = [make_task(tmp_path, name, instruction=f"{GO}; {rest}") for name, rest in (("ends", END_CONTAINER), ("lives", "exit 0"))]
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    async with Rig(docker_host, tasks=tasks, arms=arms, overrides={"admission.concurrency": 2, "limits.agent_timeout_s": 600}) as rig:
        trials = {}
        for name in ("ends", "lives"):
            sql = "SELECT trial_id FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE task.name = ?"
            trials[name] = await rig.until(sql, name)
            await rig.agent_runs(trials[name])
        docker_id = rig.one("SELECT docker_id FROM container WHERE trial_id = ?", trials["ends"])
        await rig.kill()
        (rig.root / "state" / "r" / f"t{trials['ends']:04d}" / "logs" / "artifacts" / "go").touch()
        engine = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
        try:
            with anyio.fail_after(PATIENCE_S):
                while (info := await engine.inspect_container(docker_id)) is not None and info.running:  # noqa: ASYNC110 - an engine's word
                    await anyio.sleep(0.1)
        finally:
            await engine.aclose()
        await rig.start()
        (rig.root / "state" / "r" / f"t{trials['lives']:04d}" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT code, reason FROM void") == [], rig.story()
        assert dict(rig.sql("SELECT trial_id, state FROM trial")) == {trials["ends"]: "review", trials["lives"]: "scored"}
        assert rig.one("SELECT code FROM review") == "container_ended"
