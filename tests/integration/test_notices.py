"""Somebody is told, by a real command and a real HTTP server (fault f15): once each, across lives, and no failure holds anything up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from marathond.ledger.verbs import admission, campaigns, findings, networks, notices, runs, trials
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service.channels import Answer, Channel, Command, Webhook
from marathond.service.notices import About, Herald
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig
from tests.support.hook import SECRET, Hook, hook_server
from tests.support.published import printed

pytestmark = pytest.mark.anyio
ABOUT = About(1, "x", "0123456789ab")
FAST = (0.0, 0.0, 0.0)
MESSAGE = {"kind": "test", "title": "t", "text": "hällo"}


@pytest.fixture
def hook() -> Iterator[Hook]:
    with hook_server() as hook:
        yield hook


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook goes out by the host's proxy; this one is here."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


# ── one try over a channel ──


def keeper(tmp_path: Path, then: str = "") -> list[str]:
    """A command that keeps each message as a line of ``told``."""
    return ["sh", "-c", f"cat >>{tmp_path}/told; {then}"]


def kept(tmp_path: Path) -> list[dict[str, str]]:
    path = tmp_path / "told"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_command_gets_the_message_on_its_standard_input(tmp_path: Path) -> None:
    answer = await Command(keeper(tmp_path, "echo thanks")).tell(MESSAGE)
    assert (answer.ok, answer.words) == (True, "exit status 0: thanks")
    assert kept(tmp_path) == [MESSAGE]


async def test_a_command_that_fails_or_cannot_be_run_is_an_answer(tmp_path: Path) -> None:
    failed = await Command(["sh", "-c", "printf '\\033[31mno mail\\n' >&2; exit 3"]).tell(MESSAGE)
    assert (failed.ok, failed.words) == (False, "exit status 3: no mail")
    missing = await Command([f"{tmp_path}/none"]).tell(MESSAGE)
    assert not missing.ok and missing.words.endswith("/none cannot be run: No such file or directory")
    deaf = await Command(["true"]).tell({"text": "x" * 500_000})  # it reads nothing of what fills the pipe
    assert deaf.ok


async def test_a_command_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    answer = await Command(["sh", "-c", f"sleep 1000 & echo $! >{tmp_path}/pid; wait"], within_s=3).tell(MESSAGE)
    assert (answer.ok, answer.words) == (False, "no end within 3 s, killed")
    # On a loaded machine it may be killed before it started anything.
    await until(lambda: not any(map(runs_still, pids(tmp_path))), "its child's end")


async def test_what_a_command_leaves_running_holds_nothing_up(tmp_path: Path) -> None:
    """It keeps standard output open for long after the command itself has ended."""
    with anyio.fail_after(60):
        answer = await Command(["sh", "-c", f"sleep 1000 & echo $! >{tmp_path}/pid"]).tell(MESSAGE)
    assert answer.ok
    for pid in pids(tmp_path):
        os.kill(pid, signal.SIGKILL)


def pids(folder: Path) -> list[int]:
    path = folder / "pid"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def runs_still(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second where it ends between our opening the file and reading it
        return False


async def test_a_command_does_not_get_what_systemd_meant_for_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/none")
    answer = await Command(["sh", "-c", "echo ${NOTIFY_SOCKET:-nothing}"]).tell(MESSAGE)
    assert answer.words == "exit status 0: nothing"


async def test_a_webhook_gets_a_post_and_its_address_is_not_in_the_answer(hook: Hook) -> None:
    answer = await Webhook(hook.url).tell(MESSAGE)
    assert (answer.ok, answer.words) == (True, "http://127.0.0.1/…: HTTP 200")
    assert hook.messages == [MESSAGE] and SECRET in hook.paths[0]


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_any_other_answer_is_a_failure_and_no_redirection_is_followed(hook: Hook, status: int) -> None:
    hook.answers = [status]
    answer = await Webhook(hook.url).tell(MESSAGE)
    assert (answer.ok, answer.words) == (False, f"http://127.0.0.1/…: HTTP {status}")
    assert len(hook.messages) == 1


async def test_a_webhook_that_is_silent_away_or_no_address_is_an_answer(hook: Hook) -> None:
    hook.silent.set()
    answer = await Webhook(hook.url, within_s=1).tell(MESSAGE)
    assert (answer.ok, answer.words) == (False, "http://127.0.0.1/…: no answer within 1 s")
    for url in (f"http://127.0.0.1:1/{SECRET}", f"https://127.0.0.1:{hook.port}/{SECRET}", f"http://no.such.invalid/{SECRET}", "http://:x"):
        answer = await Webhook(url, within_s=5).tell(MESSAGE)
        assert not answer.ok and SECRET not in answer.words, answer


# ── what the herald tells, from a ledger ──


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    have.file_ledger(path, host="test", now_ms=have.T0)
    return path


@asynccontextmanager
async def life(path: Path) -> AsyncIterator[SqliteLedger]:
    """One daemon life on the ledger."""
    async with await SqliteLedger.open(path) as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="h", boot_id="b", version="0", now_ms=have.T0)
        yield ledger


async def campaign(ledger: SqliteLedger) -> None:
    await ledger.write(networks.set_pool, have.ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
    await ledger.write(campaigns.submit, have.submission(), now_ms=have.T0)


class Clock(SystemClock):
    """One whose monotonic hand a test moves."""

    at_ms = 0

    def mono_ms(self) -> int:
        return self.at_ms


def herald(ledger: SqliteLedger, *channels: Channel, clock: SystemClock | None = None) -> Herald:
    return Herald(ledger, clock or SystemClock(), ABOUT, channels, no_score_hours=6, look_s=0.05, pauses_s=FAST)


async def until(ready: Callable[[], object], what: str) -> None:
    with anyio.move_on_after(90):
        while True:
            if ready():
                return
            await anyio.sleep(0.05)
    raise AssertionError(f"not within 90 s: {what}")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return [tuple(row) for row in conn.execute(query).fetchall()]
    finally:
        conn.close()


async def marked(path: Path, number: int) -> None:
    """So many sendings are marked as told: who ends before the mark tells again in the next life, and rightly so."""
    await until(lambda: rows(path, "SELECT count(told_at_ms) FROM notice_sending") == [(number,)], f"{number} marks")


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("ledger.db*"))


@asynccontextmanager
async def telling(made: Herald) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(made.run)
        yield
        group.cancel_scope.cancel()


async def open_breaker(ledger: SqliteLedger, number: int) -> None:
    detail = f"{number} x install_check_failed"
    await ledger.write(admission.open_stop, "breaker", detail=detail, author="marathond", until_ms=None, now_ms=have.T0)


async def test_f15_each_event_is_told_once_over_both_channels_and_across_lives(tmp_path: Path, ledger_path: Path, hook: Hook) -> None:
    channels = (Command(keeper(tmp_path)), Webhook(hook.url))
    async with life(ledger_path) as ledger:
        await campaign(ledger)
        async with telling(herald(ledger, *channels)):
            await open_breaker(ledger, 5)
            await until(lambda: hook.messages and kept(tmp_path), "the breaker")
            # One that comes and goes between two looks is told, too.
            await ledger.write(
                findings.raise_finding, code="money_80", severity="warning", subject="s", detail="81 %", campaign_id=1, now_ms=1
            )
            await ledger.write(findings.close_finding, code="money_80", subject="s", now_ms=2)
            await marked(ledger_path, 4)
    async with life(ledger_path) as ledger:
        made = herald(ledger, *channels)
        assert await made.look() == []
        async with telling(made):
            await ledger.write(admission.end_stop, "breaker", author="marathond", now_ms=have.T0)
            await open_breaker(ledger, 6)
            await marked(ledger_path, 6)
    assert hook.messages == kept(tmp_path)
    assert [(m["kind"], m["detail"]) for m in hook.messages] == [
        ("breaker", "5 x install_check_failed"),
        ("money", "81 %"),
        ("breaker", "6 x install_check_failed"),
    ]
    assert {m["campaign"] for m in hook.messages} == {"x"} and {m["ledger"] for m in hook.messages} == {"0123456789ab"}
    assert rows(ledger_path, "SELECT count(*), count(told_at_ms), sum(tries) FROM notice_sending") == [(6, 6, 6)]


async def test_f15_what_was_written_down_and_not_sent_is_sent_by_the_next_life(tmp_path: Path, ledger_path: Path) -> None:
    """Killed between the two: it is told then, and not lost."""
    channel = Command(keeper(tmp_path))
    async with life(ledger_path) as ledger:
        await campaign(ledger)
        await open_breaker(ledger, 5)
        assert [notice.kind for notice in await herald(ledger, channel).look()] == ["breaker"]
    assert kept(tmp_path) == []
    async with life(ledger_path) as ledger, telling(herald(ledger, channel)):
        await until(lambda: kept(tmp_path), "the breaker of the earlier life")
        await until(lambda: rows(ledger_path, "SELECT 1 FROM notice_sending WHERE told_at_ms IS NOT NULL"), "its mark")
    assert [message["kind"] for message in kept(tmp_path)] == ["breaker"]


async def test_f15_a_channel_that_fails_is_a_finding_and_holds_nothing_up(tmp_path: Path, ledger_path: Path, hook: Hook) -> None:
    hook.answers = [500] * 4
    with capture_logs() as logs:
        async with life(ledger_path) as ledger:
            await campaign(ledger)
            async with telling(herald(ledger, Webhook(hook.url), Command(keeper(tmp_path)))):
                await open_breaker(ledger, 5)
                await until(lambda: rows(ledger_path, "SELECT 1 FROM notice_sending WHERE gave_up_at_ms IS NOT NULL"), "giving up")
                await until(lambda: len(kept(tmp_path)) == 1, "the other channel")
                named = "SELECT severity, subject, detail FROM finding WHERE code = 'notify_failed' AND closed_at_ms IS NULL"
                words = "http://127.0.0.1/…: HTTP 500; given up for this message"
                await until(lambda: rows(ledger_path, named) == [("error", "webhook", words)], "its finding")
                await ledger.write(admission.end_stop, "breaker", author="marathond", now_ms=have.T0)
                await open_breaker(ledger, 6)
                await until(
                    lambda: rows(ledger_path, "SELECT 1 FROM finding WHERE code = 'notify_failed' AND closed_at_ms > 0"), "it works again"
                )
    assert len(hook.messages) == 5, "four tries of the first message, one of the second"
    assert SECRET not in json.dumps(logs)
    assert SECRET.encode() not in everything(tmp_path)


async def test_f15_hours_without_a_score_are_counted_on_across_lives(ledger_path: Path) -> None:
    """Three hours in one life and three in the next; the time between them does not count."""
    clock = Clock()
    hour_ms = 3_600_000
    async with life(ledger_path) as ledger:
        await campaign(ledger)

        def start(c: sqlite3.Connection) -> None:
            for arm in ("plain", "goal"):
                have.bring_to(c, have.cell(c, "zstd", arm), "running")

        await ledger.write(start)
        made = herald(ledger, clock=clock)
        for _ in range(4):
            assert await made.look() == []
            clock.at_ms += hour_ms
    async with life(ledger_path) as ledger:
        clock.at_ms += 100 * hour_ms
        made = herald(ledger, clock=clock)
        assert await made.look() == []

        def score(c: sqlite3.Connection) -> None:
            trial_id = c.execute("SELECT trial_id FROM trial JOIN arm USING (arm_id) WHERE arm.name = 'plain'").fetchone()[0]
            have.end_agent(c, trial_id)
            have.start_verifier(c, trial_id)
            trials.verification_ended(c, trial_id, 1, outcome="exited", exit_code=0, now_ms=have.T0)
            trials.scored(c, trial_id, have.good_score(), now_ms=have.T0)

        await ledger.write(score)
        told = []
        for _ in range(4):
            told += await made.look()
            clock.at_ms += hour_ms
    assert [notice.title for notice in told] == ["no score of arm goal for 6h00m while its trials run"]


async def test_f15_the_end_of_a_campaign_is_told_once(ledger_path: Path) -> None:
    async with life(ledger_path) as ledger:
        await campaign(ledger)

        def finish(c: sqlite3.Connection) -> None:
            for task, arm in (("zstd", "plain"), ("zstd", "goal"), ("rust", "plain")):
                have.let_go(c, have.bring_to(c, have.cell(c, task, arm), "scored"))

        await ledger.write(finish)
        made = herald(ledger)
        assert await made.look() == []
        await ledger.write(admission.park_cell, 4, code="task_changed", detail="d", author="a", now_ms=have.T0)
        assert [notice.title for notice in await made.look()] == ["campaign x is done: 3 of 4 cells scored, 1 parked"]
        assert await made.look() == []
        assert await herald(ledger).look() == []


async def test_a_finding_that_a_person_knows_is_not_told(ledger_path: Path) -> None:
    async with life(ledger_path) as ledger:
        await campaign(ledger)
        await ledger.write(findings.raise_finding, code="money_80", severity="warning", subject="s", detail="d", campaign_id=1, now_ms=1)
        await ledger.write(findings.ack, 1, author="ana", reason="known", now_ms=2)
        assert await herald(ledger).look() == []


async def test_e04_a_bug_in_telling_does_not_end_the_daemon_and_is_a_finding_while_it_lasts(ledger_path: Path) -> None:
    class Broken:
        name = "broken"
        tries = 0
        works = False

        async def tell(self, message: object) -> Answer:
            self.tries += 1
            if self.works:
                return Answer(True, "told")
            raise RuntimeError("a bug")

    def named() -> list[tuple[str, str]]:
        conn = sqlite3.connect(f"file:{ledger_path}?mode=ro", uri=True)
        sql = "SELECT subject, detail FROM finding WHERE code = 'notices_failed' AND closed_at_ms IS NULL"
        try:
            return [(row[0], row[1]) for row in conn.execute(sql)]
        finally:
            conn.close()

    channel = Broken()
    with capture_logs() as logs:
        async with life(ledger_path) as ledger:
            await campaign(ledger)
            async with telling(herald(ledger, channel)):  # type: ignore[arg-type]
                await open_breaker(ledger, 5)
                await until(lambda: channel.tries, "a try")
                await until(named, "its finding")
                assert named() == [("broken", "nobody is told while this lasts: RuntimeError: a bug")]
                assert (await ledger.read(runs.last_run)) is not None
            channel.works = True
            async with telling(herald(ledger, channel)):  # type: ignore[arg-type]
                await until(lambda: not named(), "its end")
    assert any(entry["event"] == "notices_failed" for entry in logs)


def test_notices_are_cheap_to_look_for() -> None:
    c = have.memory_ledger()
    have.fill(c)
    assert notices.newest(c) == notices.Marks(0, 0, 0)
    c.close()


# ── marathonctl notify ──


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


def configured(lines: str) -> None:
    head = '[campaign]\nname = "x"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n[notify]\n'
    Path("marathond.toml").write_text(head + lines)


def test_notify_test_prints_what_each_channel_answered(rig: Rig, hook: Hook) -> None:
    rig.ledger.unlink()  # neither ledger nor daemon is needed
    configured(f'command = ["{sys.executable}", "-c", "import sys; sys.stdin.read(); print(5)"]\nwebhook = "{hook.url}"\n')
    assert rig.ask("notify", "--test").splitlines() == ["command: told: exit status 0: 5", "webhook: told: http://127.0.0.1/…: HTTP 200"]
    (message,) = hook.messages
    assert (message["kind"], message["title"], message["campaign"]) == ("test", "this is a test", "x")
    hook.answers = [404]
    failed = rig.run("notify", "--test", "--json")
    assert failed.code == 1 and [row["ok"] for row in printed("notify", failed.out)] == [True, False]
    assert SECRET not in failed.out + failed.err


def test_notify_test_without_a_channel_is_exit_1(rig: Rig) -> None:
    configured("")
    answer = rig.run("notify", "--test")
    assert (answer.code, answer.err) == (1, "notify: nobody is told: set command or webhook in [notify]\n")


def test_notify_lists_what_was_told(rig: Rig) -> None:
    assert rig.ask("notify").startswith("nothing was told yet")
    with rig.sql() as c:
        for number, ok in enumerate((True, False)):
            notice = notices.Notice(f"finding:{number}", "money", "81 % are spent", "")
            notice_id = notices.intend(c, notice, {"title": notice.title}, channels=["webhook"], now_ms=have.T0)
            assert notice_id is not None
            notices.tried(c, notice_id, "webhook", ok=ok, last=True, answer="HTTP 500", now_ms=have.T0)
    answer = rig.run("notify")
    assert answer.code == 1 and answer.out.splitlines() == [
        "2026-09-21T14:13:20Z  81 % are spent",
        "    webhook given up at 2026-09-21T14:13:20Z, tried 1x: HTTP 500",
        "2026-09-21T14:13:20Z  81 % are spent",
        "    webhook told at 2026-09-21T14:13:20Z: HTTP 500",
    ]
    assert printed("notify", rig.run("notify", "--json").out)[1]["sendings"][0]["told_at_ms"] == have.T0
