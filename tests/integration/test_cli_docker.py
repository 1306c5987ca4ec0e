"""`exec` and `clean` against a real engine."""

from __future__ import annotations

import json
import os
import pty
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from marathond.cli.clean import LEFT_ALONE, check_id, clean
from marathond.core.arms import arm_to_data
from marathond.core.model import Arm
from marathond.core.names import AgentKind
from marathond.engine.docker import DockerEngine
from marathond.ledger.verbs import trials
from marathond.ledger.verbs.campaigns import ArmRow, TaskRow
from marathond.ports.engine import LABEL_LEDGER, LABEL_TRIAL, ContainerSpec
from marathond.service.exits import CallFailed
from marathond.service.offline import offline_writer
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, make_ledger, now_ms, subprocess_run
from tests.support.published import printed
from tests.support.rig import BASE_IMAGE, CALL_TIMEOUT_S, make_task

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

ENV = {"PATH": "/opt/arm/bin:/usr/bin:/bin", "HOME": "/tmp", "ARM_SAYS": "hello world"}


@dataclass
class Trial:
    rig: Rig
    container_id: str
    engine: DockerEngine


def engine_section(engine: DockerEngine) -> str:
    return f'[engine]\nurl = "{engine.url}"\ncall_timeout_s = {CALL_TIMEOUT_S}\n'


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def trial(folder: Path, engine: DockerEngine, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Trial]:
    """t0001, running in a real container, of an arm with variables, a folder and a task with a user."""
    task = make_task(folder / "tasks", "zstd", toml="[agent.extra]\n")
    text = (task / "task.toml").read_text().replace("[agent]\n", '[agent]\nuser = "nobody"\n')
    (task / "task.toml").write_text(text)
    (folder / "marathond.toml").write_text(
        f'[daemon]\nstate_dir = "{folder}"\n{engine_section(engine)}[campaign]\nname = "x"\ntasks = ["tasks/zstd"]\n'
        '[arms.plain]\nkind = "nop"\n'
    )
    rig = Rig(folder, capsys)
    make_ledger(rig.ledger)
    image = await engine.inspect_image(BASE_IMAGE)
    assert image is not None
    name = f"mt-clitest-{secrets.token_hex(4)}"
    container_id = await engine.create_container(ContainerSpec(name, image.id, {LABEL_TRIAL: "t0001"}, None, env={"FROM_TASK": "yes"}))
    try:
        await engine.start_container(container_id)
        arm = Arm("plain", AgentKind.COMMAND, ("true",), ENV, None, "/var")
        with rig.sql() as c:
            row = TaskRow("zstd", str(task), "d1", "c-d1", 600_000, 1.0, 512, False, "{}")
            have.fill(c, have.submission(arms=[ArmRow("plain", "command", "h1", json.dumps(arm_to_data(arm)))], tasks=[row]))
            admitted = have.admit(c, have.cell(c))
            have.intend(c, admitted)
            trials.container_created(c, admitted.trial_id, docker_id=container_id)
            trials.environment_up(c, admitted.trial_id, started_at="2026-09-21T14:13:21.5Z", detail={}, now_ms=now_ms())
        yield Trial(rig, container_id, engine)
    finally:
        await engine.remove_container(container_id)


async def run(*argv: str, **options: object) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(lambda: subprocess_run(list(argv), dict(os.environ), **options))


async def test_exec_runs_as_the_arm_does_and_returns_its_exit_code(trial: Trial) -> None:
    script = 'echo "$PATH|$HOME|$ARM_SAYS|$FROM_TASK|$(id -un)|$(pwd)|$0|$1"; echo oops >&2; exit 7'
    answer = await run("exec", "t0001", "--", "sh", "-c", script, "--flag", "a b")
    assert answer.stdout == "/opt/arm/bin:/usr/bin:/bin|/tmp|hello world|yes|nobody|/var|--flag|a b\n"
    assert (answer.returncode, answer.stderr) == (7, "oops\n")
    assert (await run("exec", "--user", "root", "t0001", "id", "-un")).stdout == "root\n"


async def test_exec_is_written_down_before_it_runs_or_does_not_run(trial: Trial) -> None:
    """No daemon lives here: the command takes the ledger for a moment; while somebody else has it, it is refused in one line."""
    with trial.rig.sql() as c:
        have.start_agent(c, 1, now_ms=now_ms())
    answer = await run("exec", "t0001", "--", "sh", "-c", "exit 7")
    assert answer.returncode == 7 and "t0001 is running: what this command changes becomes part of the trial" in answer.stderr
    told = (await run("history", "t0001")).stdout
    assert "reached_into by " in told and "running: sh -c 'exit 7'" in told and "reached_into" in (await run("findings")).stdout
    assert "reached_into" in (await run("show", "t0001")).stdout
    with offline_writer(trial.rig.ledger, "marathonctl import"):
        refused = await run("exec", "t0001", "--", "touch", "/tmp/ran")
    assert refused.returncode != 0 and refused.stdout == "" and len(refused.stderr.splitlines()) == 1
    assert (await run("exec", "t0001", "--", "test", "-e", "/tmp/ran")).returncode == 1


async def test_exec_passes_stdin_on_and_its_end(trial: Trial) -> None:
    command = [sys.executable, "-m", "marathond.cli.ctl", "exec", "t0001", "--", "sh", "-c", "cat; echo end"]

    def piped() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, input=b"line\n" * 50_000, capture_output=True, timeout=240, check=False)

    answer = await anyio.to_thread.run_sync(piped)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == b"line\n" * 50_000 + b"end\n"


def _read_until(terminal: int, words: bytes | None) -> bytes:
    """What comes from the terminal up to ``words``, or to its end; at most four minutes of silence."""
    said = b""
    while words is None or words not in said:
        if not select.select([terminal], [], [], 240)[0]:
            break
        try:
            said += os.read(terminal, 4096)
        except OSError:  # EIO: the last one has closed it
            break
    return said


async def test_exec_brings_a_terminal_when_it_has_one(trial: Trial) -> None:
    script = 'test -t 0 && test -t 1 && echo "tty $TERM"; read -r word; echo "got $word"; exit 5'
    command = [sys.executable, "-m", "marathond.cli.ctl", "exec", "t0001", "--", "sh", "-c", script]

    def on_a_terminal() -> tuple[int, str]:
        ours, theirs = pty.openpty()
        environ = {**os.environ, "TERM": "xterm"}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True) as process:
            os.close(theirs)
            said = _read_until(ours, b"tty xterm")
            os.write(ours, b"marathon\r")
            said += _read_until(ours, None)
            code = process.wait(timeout=240)
            os.close(ours)
            return code, said.decode()

    code, said = await anyio.to_thread.run_sync(on_a_terminal)
    assert code == 5 and "got marathon" in said


async def test_exec_that_cannot_be_is_one_line(trial: Trial) -> None:
    missing = await run("exec", "t0001", "--", "no-such-command")
    assert missing.returncode in (126, 127) and "no-such-command" in missing.stdout + missing.stderr
    with trial.rig.sql() as c:
        have.daemon_void(c, 1)
        trials.container_gone(c, 1, now_ms=now_ms())
    gone = await run("exec", "t0001", "--", "true")
    assert gone.returncode == 1 and gone.stdout == ""
    assert gone.stderr == "marathonctl: t0001 is voided: its container is gone; its files: marathonctl show t0001\n"


async def test_exec_with_an_engine_that_is_away(trial: Trial) -> None:
    config = trial.rig.state_dir / "marathond.toml"
    config.write_text(config.read_text().replace(trial.engine.url, f"unix://{trial.rig.state_dir}/none.sock"))
    answer = await run("exec", "t0001", "--", "true")
    assert answer.returncode == 1 and "cannot reach Docker at" in answer.stderr and answer.stderr.count("\n") == 1


async def test_f14_clean_removes_what_carries_that_label_and_nothing_else(trial: Trial) -> None:
    engine, lost, alive = trial.engine, secrets.token_hex(6), secrets.token_hex(6)
    image = await engine.inspect_image(BASE_IMAGE)
    assert image is not None
    made: dict[str, tuple[str, str]] = {}
    for ledger_id in (lost, alive):
        labels = {LABEL_LEDGER: ledger_id, LABEL_TRIAL: "t0001"}
        network = await engine.create_network(f"mn-{ledger_id}-t0001", labels, f"198.19.{250 if ledger_id == lost else 251}.0/28")
        container = await engine.create_container(ContainerSpec(f"mt-{ledger_id}-t0001", image.id, labels, network))
        await engine.start_container(container)
        made[ledger_id] = (container, network)
    copied = {LABEL_LEDGER: lost, LABEL_TRIAL: "t0001"}
    theirs = await engine.create_container(ContainerSpec(f"theirs-{lost}", image.id, copied, None))
    try:
        listed = await run("clean")
        assert listed.returncode == 0 and f"{lost}  3 things" in listed.stdout and f"{alive}  2 things" in listed.stdout
        dry = await run("clean", "--ledger", lost)
        assert dry.returncode == 0 and "remove 2 things with --yes" in dry.stdout
        assert await engine.inspect_container(made[lost][0]) is not None
        done = await run("clean", "--ledger", lost, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        outcomes = {(row["name"], row["outcome"]) for row in printed("clean", done.stdout)}
        assert outcomes == {(f"mt-{lost}-t0001", "removed"), (f"mn-{lost}-t0001", "removed"), (f"theirs-{lost}", LEFT_ALONE)}
        assert await engine.inspect_container(theirs) is not None
        assert await engine.inspect_container(made[lost][0]) is None and await engine.inspect_network(made[lost][1]) is None
        assert await engine.inspect_container(made[alive][0]) is not None and await engine.inspect_network(made[alive][1]) is not None
        again = await run("clean", "--ledger", lost, "--yes")
        assert again.returncode == 0 and "left alone" in again.stdout and f"mt-{lost}" not in again.stdout
        await engine.remove_container(theirs)
        again = await run("clean", "--ledger", lost, "--yes")
        assert again.returncode == 0 and again.stdout == "nothing on this engine carries that ledger's label\n"
    finally:
        await engine.remove_container(theirs)
        for ledger_id in (lost, alive):
            await clean(engine, ledger_id, really=True)


async def test_the_ledger_in_use_is_never_cleaned(trial: Trial) -> None:
    with trial.rig.sql() as c:
        own = c.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0]
    answer = await run("clean", "--ledger", own, "--yes")
    assert answer.returncode == 2 and "that is the ledger configured here" in answer.stderr
    with pytest.raises(CallFailed, match="12 hexadecimal digits"):
        check_id("*", own)


async def test_plan_names_images_that_are_not_there_and_pulls_none(folder: Path, engine: DockerEngine) -> None:
    absent = f"marathond-test.invalid/none:{secrets.token_hex(4)}"
    make_task(folder / "tasks", "here")
    for name in ("gone", "lost"):
        path = make_task(folder / "tasks", name) / "task.toml"
        path.write_text(path.read_text().replace(BASE_IMAGE, absent))
    (folder / "marathond.toml").write_text(
        f'{engine_section(engine)}[campaign]\nname = "x"\ntasks = ["tasks/*"]\n[arms.plain]\nkind = "nop"\n'
    )
    answer = await run("plan")
    lines = answer.stdout.splitlines()
    assert answer.returncode == 0, answer
    assert lines[lines.index(f"  {absent}: gone, lost") - 1].startswith("images that are not on the engine; ")
    assert f"  {BASE_IMAGE}: " not in answer.stdout
    assert printed("plan", (await run("plan", "--json")).stdout)["absent_images"] == [absent]
    assert await engine.inspect_image(absent) is None
