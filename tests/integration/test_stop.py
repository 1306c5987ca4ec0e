"""The ends of a daemon process that was asked to end: SIGTERM, stop, stop --now, drain; also while Docker hangs (fault f08).

Each says in its log and in its run's row, by number, what it leaves; what a cut end leaves the next daemon puts right.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_LEDGER
from marathond.service import winding_down
from marathond.service.departure import STOP_S
from tests.support.outcome import assert_nothing_left, runs_of, wait_for
from tests.support.process_rig import ProcessRig
from tests.support.relay import Relay
from tests.support.rig import PATIENCE_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
SOON = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs"]}
GRADES = "until [ -e /logs/artifacts/grade ]; do sleep 0.05; done\necho 1 >/logs/verifier/reward.txt\n"
TASKS = "SELECT trial_id, task.name FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id)"
BUSY_S = 25.0
"""What a busy machine may take on top of the promise: far less than anything that is waited for in vain here."""
# The last words of a life that is cut are a commit, for which a busy disk may take longer than the process waits.
DAEMON = "from marathond.service import departure; departure.WORDS_S = 20.0; from marathond.cli.daemon import main; main()"
NEWER = f"import marathond; marathond.__version__ = '99.0'; {DAEMON}"


class Daemons(ProcessRig):
    """``newer``: the next daemon is of another version; ``relay``: between it and the engine, which must answer when all is swept."""

    newer = False
    relay: Relay | None = None

    async def _sweep_leftovers(self) -> None:
        if self.relay is not None:
            self.relay.deaf = self.relay.mute = False
        await super()._sweep_leftovers()

    def command(self) -> list[str]:
        python, *plain = super().command()
        return [python, "-c", NEWER if self.newer else DAEMON, *plain[2:]]

    async def command_it(self, verb: str, **args: Any) -> Any:
        return await to_thread.run_sync(call, self.root / "state" / "control.sock", verb, args)

    def let_go(self, *words: str) -> None:
        for folder in (self.root / "state" / "r").glob("t*/logs/artifacts"):
            for word in words:
                with contextlib.suppress(FileNotFoundError):  # of a trial at rest, exported and removed a moment ago
                    (folder / word).touch()

    def told(self, *words: str) -> list[str]:
        """Lines of the whole log that hold all of these words: a line that is just being written may be there in part."""
        lines = (self.root / "log").read_text("utf-8", "replace").splitlines()
        return [line for line in lines if all(word in line for word in words)]

    def said(self) -> str:
        """The last word of the newest life."""
        return str(self.one("SELECT coalesce(stop_reason, '(no end)') FROM run ORDER BY run_id DESC LIMIT 1"))


class Submitting(Daemons):
    """Is begun when its life is, however long its submission takes."""

    async def start(self, *words: str) -> None:
        with (self.root / "log").open("ab") as log:
            self.process = self.popen(*words, stdout=log, stderr=log)
        await self.until("SELECT count(*) FROM run")


@pytest.fixture
async def relay(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Relay]:
    if not docker_host.startswith("unix://"):
        pytest.skip("the relay needs the engine's unix socket")
    async with Relay(tmp_path_factory.mktemp("s") / "s", Path(docker_host.removeprefix("unix://"))) as made:
        yield made


async def ends(rig: Daemons, since: float) -> None:
    """With status 0, and not when what hangs has come to its end: within what is promised, as far as a busy machine lets it."""
    assert await rig.ended() == 0, rig.log()
    took_s = time.monotonic() - since
    assert took_s <= STOP_S + BUSY_S, f"{took_s:.1f} s\n{rig.log()}"


async def test_f08_a_hung_docker_holds_no_sigterm_up_and_a_newer_daemon_goes_on(relay: Relay, tmp_path: Path, engine: DockerEngine) -> None:
    """One trial runs, one is verified, one is in the middle of its proof of death, its container frozen; the signal comes four times."""
    tasks = [
        make_task(tmp_path, "runs", agent_s=10_000),
        make_task(tmp_path, "verified", test=GRADES, agent_s=10_000, verifier_s=10_000),
        make_task(tmp_path, "frozen", agent_s=10_000),
    ]
    leaves = {**WAITS, "argv": ["sh", "-c", f"setsid sleep 10000 & {WAITS['argv'][2]}"], "after_agent": "kill-all"}
    async with Daemons(relay.url, tasks=tasks, arms={"w": leaves}) as rig:
        rig.relay = relay
        for trial_id in (1, 2, 3):
            await rig.agent_runs(trial_id)
        numbers = {task: number for number, task in rig.sql(TASKS)}
        folders = {task: rig.root / "state" / "r" / f"t{number:04d}" / "logs" / "artifacts" for task, number in numbers.items()}
        (folders["verified"] / "go").touch()
        await rig.until("SELECT count(*) FROM verification")
        frozen = rig.one("SELECT docker_id FROM container WHERE trial_id = ?", numbers["frozen"])
        relay.deaf_at = f"/containers/{frozen}/pause".encode()
        (folders["frozen"] / "go").touch()
        await wait_for(lambda: relay.deaf)
        with anyio.fail_after(PATIENCE_S):  # the order has reached the engine, which need not have carried it out
            while (seen := await engine.inspect_container(frozen)) is None or not seen.paused:  # noqa: ASYNC110 - the engine tells it
                await anyio.sleep(0.05)
        since = time.monotonic()
        for how in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            rig.strike(how)
            await anyio.sleep(0.2)
            if rig.process is None or rig.process.poll() is not None:
                break
        await ends(rig, since)
        said = rig.said()
        assert said.startswith("SIGTERM: 3 trials left running: t0001 t0002 t0003"), said
        assert f"unpausing container {frozen[:12]}" in said, said
        seen = await engine.inspect_container(frozen)
        assert seen is not None and seen.paused
        relay.deaf = relay.mute = False
        rig.newer = True
        await rig.start()
        await rig.until("SELECT count(DISTINCT trial_id) = 2 FROM trial_event WHERE event = 'reattached'")
        rig.let_go("go", "grade")
        await rig.until_done()
        assert rig.sql("SELECT attempt, state, reward FROM trial") == [(1, "scored", 1.0)] * 3, rig.story()
        assert runs_of(rig) == [1, 1, 1]
        first, second = (row[0] for row in rig.sql("SELECT version FROM run ORDER BY run_id"))
        assert (first != second, second) == (True, "99.0")
        await assert_nothing_left(rig, engine)


async def test_f08_stop_over_the_socket_is_as_quick_and_stop_now_is_cut_by_a_signal(
    relay: Relay, tmp_path: Path, engine: DockerEngine
) -> None:
    async with Daemons(relay.url, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        rig.relay = relay
        await rig.agent_runs()
        relay.deaf = relay.mute = True
        since = time.monotonic()
        answer = await rig.command_it("stop", reason="upgrade")
        assert (answer["mode"], answer["live"]) == ("term", [1])
        await ends(rig, since)
        assert "(upgrade): 1 trial left running: t0001" in rig.said() and rig.said().startswith("stop by ")
        relay.deaf = relay.mute = False
        await rig.start()
        await rig.until("SELECT count(*) FROM trial_event WHERE event = 'reattached'")
        await rig.until("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")
        relay.deaf = relay.mute = True
        assert (await rig.command_it("stop", now=True, reason="power cut"))["live"] == [1]
        await rig.until("SELECT count(*) FROM void WHERE code = 'stop_now'")
        await anyio.sleep(1.0)  # its teardown hangs in Docker, which nothing of ours can show
        assert rig.process is not None and rig.process.poll() is None
        since = time.monotonic()
        rig.strike(signal.SIGTERM)
        await ends(rig, since)
        assert "1 trial not torn down yet, the next daemon sweeps: t0001" in rig.said(), rig.said()
        (left,) = await engine.list_containers({LABEL_LEDGER: rig.ledger_id})
        assert left.running
        relay.deaf = relay.mute = False
        await rig.start()
        await rig.agent_runs(2)
        rig.let_go("go")
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "voided"), (2, "scored")]
        assert rig.sql("SELECT code, reason FROM void") == [("stop_now", "power cut")]
        await assert_nothing_left(rig, engine)


async def test_drain_waits_and_says_for_whom_and_stop_now_tears_down(docker_host: str, tmp_path: Path, engine: DockerEngine) -> None:
    async with Daemons(docker_host, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}, replicates=2) as rig:
        await rig.agent_runs(1)
        await rig.agent_runs(2)
        assert (await rig.command_it("drain", reason="upgrade"))["live"] == [1, 2]
        await wait_for(lambda: rig.told('"event": "draining"', "t0001 t0002"))
        assert rig.process is not None and rig.process.poll() is None
        rig.let_go("go")
        assert await rig.ended() == 0
        assert rig.said().startswith("drain by ") and rig.said().endswith("(upgrade): nothing left running")
        await assert_nothing_left(rig, engine)
        await rig.start()
        # A moment after its life has begun; and by then it knows what SIGTERM means.
        await rig.until("SELECT count(*) = 0 FROM admission_stop WHERE ended_at_ms IS NULL")
        rig.strike(signal.SIGTERM)
        assert await rig.ended() == 0
        assert rig.said() == "SIGTERM: nothing left running"


async def test_stop_now_voids_with_its_reason_and_leaves_nothing(docker_host: str, tmp_path: Path, engine: DockerEngine) -> None:
    tasks = [make_task(tmp_path, "t", agent_s=10_000, network="public")]
    async with Daemons(docker_host, tasks=tasks, arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        await rig.command_it("stop", now=True, reason="wrong tasks")
        assert await rig.ended() == 0
        assert rig.said().startswith("stop --now by ") and rig.said().endswith("(wrong tasks): nothing left running")
        assert rig.sql("SELECT code, reason FROM void") == [("stop_now", "wrong tasks")]
        await assert_nothing_left(rig, engine)


@pytest.mark.parametrize("how", ["stop", "drain"])
async def test_b04_no_end_leaves_a_container_that_docker_did_not_remove_at_once(
    relay: Relay, tmp_path: Path, engine: DockerEngine, how: str
) -> None:
    """As a busy Docker does that has not seen its own kill end; nobody would remove it where no daemon follows."""
    async with Daemons(relay.url, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        rig.relay = relay
        await rig.agent_runs()
        relay.fails_at = (b"DELETE /",)
        await rig.command_it(how, reason="the end", **({"now": True} if how == "stop" else {}))
        rig.let_go("go")
        await wait_for(lambda: relay.failed)
        await rig.until("SELECT count(*) FROM finding WHERE code = 'container_undeletable' AND closed_at_ms IS NULL")
        assert rig.process is not None and rig.process.poll() is None
        relay.fails_at = ()
        assert await rig.ended() == 0, rig.log()
        assert rig.said().endswith("(the end): nothing left running")
        await assert_nothing_left(rig, engine)


async def test_a_drain_is_called_off_also_while_it_waits_for_a_teardown_alone(relay: Relay, tmp_path: Path, engine: DockerEngine) -> None:
    tasks, one = [make_task(tmp_path, "t", agent_s=10_000)], {"admission.concurrency": 1}
    async with Daemons(relay.url, tasks=tasks, arms={"w": WAITS}, replicates=2, overrides=one) as rig:
        rig.relay = relay
        await rig.agent_runs()
        relay.fails_at = (b"DELETE /",)
        await rig.command_it("drain", reason="the end")
        rig.let_go("go")
        await rig.until("SELECT count(*) FROM finding WHERE code = 'container_undeletable' AND closed_at_ms IS NULL")
        assert rig.one("SELECT count(*) FROM trial") == 1
        await rig.command_it("resume")
        relay.fails_at = ()
        await rig.agent_runs(2)
        rig.let_go("go")
        await rig.until_done()
        assert rig.told("drain_called_off") and rig.process is not None and rig.process.poll() is None
        await assert_nothing_left(rig, engine)


async def test_a_drain_waits_for_agents_that_no_daemon_has_taken_over_yet(relay: Relay, tmp_path: Path, engine: DockerEngine) -> None:
    """The engine is away when the daemon starts: what runs in it is driven by nobody, and is no reason to leave."""
    async with Daemons(relay.url, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        rig.relay = relay
        await rig.agent_runs()
        rig.strike(signal.SIGTERM)
        assert await rig.ended() == 0
        await relay.cut()
        await rig.start()
        await wait_for(lambda: rig.told('"event": "degraded"'))  # its control socket is there before
        assert (await rig.command_it("drain", reason="upgrade"))["live"] == [1]
        await wait_for(lambda: rig.told('"event": "draining"', "t0001"))
        await anyio.sleep(1.5)
        assert rig.process is not None and rig.process.poll() is None
        await relay.listen()
        rig.let_go("go")
        assert await rig.ended() == 0
        assert rig.said().endswith("(upgrade): nothing left running")
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")] and runs_of(rig) == [1]
        await assert_nothing_left(rig, engine)


async def test_stop_now_is_carried_out_whatever_is_resumed_or_drained_beside_it(relay: Relay, tmp_path: Path, engine: DockerEngine) -> None:
    """It comes while a drain waits for a teardown alone; then a person resumes: nothing begins that the process would leave alone."""
    tasks, one = [make_task(tmp_path, "t", agent_s=10_000)], {"admission.concurrency": 2}
    async with Daemons(relay.url, tasks=tasks, arms={"w": WAITS}, replicates=3, overrides=one) as rig:
        rig.relay = relay
        await rig.agent_runs(1)
        await rig.agent_runs(2)
        relay.fails_at = (b"DELETE /",)
        await rig.command_it("drain", reason="the evening")
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until("SELECT count(*) FROM finding WHERE code = 'container_undeletable' AND closed_at_ms IS NULL")
        assert (await rig.command_it("stop", now=True, reason="the end"))["live"] == [2]
        await rig.until("SELECT count(*) FROM void WHERE code = 'stop_now'")
        await rig.command_it("resume")
        relay.fails_at = ()
        assert await rig.ended() == 0, rig.log()
        assert rig.said().startswith("stop --now by ") and rig.said().endswith("(the end): nothing left running")
        assert rig.one("SELECT count(*) FROM trial WHERE state NOT IN ('scored', 'voided')") == 0, rig.story()
        await assert_nothing_left(rig, engine)


async def test_stop_now_waits_no_longer_than_its_bound_for_a_docker_that_hangs(
    relay: Relay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winding_down, "TORN_DOWN_S", 0.5)
    async with Rig(relay.url, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        assert rig.daemon is not None and rig.daemon.world is not None
        relay.deaf = relay.mute = True
        driven = rig.daemon.world.driven
        rig.daemon.request_stop("now", "ana", "power cut")
        rig.daemon.request_stop("drain", "ana", "a lesser wish does not count")
        try:
            await wait_for(lambda: not driven)
        finally:
            stop = rig.daemon.stop
            await rig.kill()
            relay.deaf = relay.mute = False
        assert stop is not None and stop.text == "stop --now by ana (power cut)"
        assert rig.sql("SELECT code, reason FROM void") == [("stop_now", "power cut")]
        assert rig.one("SELECT count(*) FROM claim WHERE released_at_ms IS NULL") == 1
        await rig.start()
        await rig.until("SELECT released_at_ms IS NOT NULL FROM claim WHERE claim_id = 1")


async def test_f08_a_sigterm_in_the_middle_of_a_submission(docker_host: str, tmp_path: Path) -> None:
    """What a thread does cannot be cancelled: the process leaves without it, names it, and the next one submits."""
    task = make_task(tmp_path, "t")
    (task / "environment").mkdir()
    (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
    text = (task / "task.toml").read_text().splitlines()
    (task / "task.toml").write_text("\n".join(line for line in text if "docker_image" not in line) + "\n")
    with (task / "environment" / "huge").open("wb") as huge:
        huge.truncate(64 << 30)  # of holes; to read it takes minutes
    async with Submitting(docker_host, tasks=[task], arms={"s": SOON}) as rig:
        await wait_for(lambda: _reads(rig, "huge"))
        since = time.monotonic()
        rig.strike(signal.SIGTERM)
        await ends(rig, since)
        assert "blocking work of task life" in rig.said()
        assert rig.sql("SELECT * FROM campaign") == []


async def test_f08_a_sigterm_in_the_middle_of_a_build(relay: Relay, tmp_path: Path) -> None:
    task = make_task(tmp_path, "t")
    (task / "environment").mkdir()
    text = (task / "task.toml").read_text().splitlines()
    base = next(line for line in text if "docker_image" in line).split('"')[1]
    (task / "task.toml").write_text("\n".join(line for line in text if "docker_image" not in line) + "\n")
    (task / "environment" / "Dockerfile").write_text(f"FROM {base}\nRUN sleep 40; echo {tmp_path} >/mark\n")
    building = relay.sees(b"/build?")
    async with Daemons(relay.url, tasks=[task], arms={"s": SOON}) as rig:
        with anyio.fail_after(PATIENCE_S):
            await building.wait()
        since = time.monotonic()
        rig.strike(signal.SIGTERM)
        await ends(rig, since)
        assert rig.said() == "SIGTERM: nothing left running"


def _reads(rig: ProcessRig, name: str) -> bool:
    assert rig.process is not None
    try:
        return any(name in str(each.readlink()) for each in Path(f"/proc/{rig.process.pid}/fd").iterdir())
    except FileNotFoundError:
        return False
