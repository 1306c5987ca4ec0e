"""``marathonctl top``: the real application over a real ledger and the real control server, driven by its keys."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from fcntl import ioctl
from pathlib import Path

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Input, RichLog, Static, TabbedContent
from textual.widgets._footer import FooterKey

from marathond.cli.top.app import Top
from marathond.cli.top.look import PIECE_BYTES, TAIL_BYTES, Log, Place
from marathond.cli.top.trial import TrialScreen
from marathond.core.paths import DaemonPaths
from marathond.ledger.verbs import findings
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, mixed, now_ms

PATIENCE_S = 240


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        mixed(rig)
        yield rig


def test_the_footer_names_the_keys_that_choose_open_and_void_a_trial(rig: Rig) -> None:
    shown: list[tuple[str, str]] = []

    async def keys(_: Pilot[int], app: Top) -> None:
        def there() -> bool:
            shown[:] = [(each.key_display, each.description) for each in app.query_one(Footer).query(FooterKey)]
            return {("↑↓", "choose a trial"), ("⏎", "open it"), ("v", "void the trial")} <= set(shown)

        await until(there)

    driven(rig, keys)


def place(rig: Rig) -> Place:
    return Place(DaemonPaths(state_dir=rig.state_dir, ledger=rig.ledger, out_dir=rig.state_dir / "out", control_socket=rig.socket), None)


def live_trial(rig: Rig) -> int:
    with rig.sql() as c:
        return int(c.execute("SELECT trial_id FROM trial WHERE state = 'running'").fetchone()[0])


def driven(rig: Rig, keys: Callable[[Pilot[int], Top], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> Top:
    """``keys`` in the running application; what it was at its end."""
    app = Top(place(rig), every_s=0.2)

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await until(lambda: app.seen is not None)
            await keys(pilot, app)

    asyncio.run(main())
    return app


async def until(true: Callable[[], bool]) -> None:
    """Also for what a key does: a pilot waits until the process seems to rest, and on a busy machine that is before the key is heard."""
    for _ in range(PATIENCE_S * 50):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


async def leave(pilot: Pilot[int], app: Top) -> None:
    await pilot.press("q")
    await until(lambda: app.return_value is not None)


def asks_why(app: Top) -> bool:
    """The dialog is there, and keys reach it."""
    return app.focused is not None and app.focused.id == "reason"


def shown(widget: object) -> str:
    assert isinstance(widget, Static)
    return str(widget.render())


def cells(table: DataTable[Text]) -> list[list[str]]:
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def test_the_first_screen_says_what_status_says(rig: Rig) -> None:
    async def look(pilot: Pilot[int], app: Top) -> None:
        head = shown(app.query_one("#head"))
        for word in ("cells 4: 1 done · 1 running · 1 open · 1 review", "foreign 15", "71 % free", "healthy"):
            assert word in head
        assert [row[0] for row in cells(app.query_one("#arms", DataTable))] == ["plain", "goal"]
        (row,) = cells(app.query_one("#trials", DataTable))
        assert row[1:4] == ["rust", "plain", "running"] and row[4].startswith(("2m", "3m", "4m"))
        await leave(pilot, app)

    assert driven(rig, look).return_value == 0


def test_e01_a_daemon_that_died_and_a_ledger_that_went_are_said_and_the_screen_stays(rig: Rig) -> None:
    async def look(pilot: Pilot[int], app: Top) -> None:
        with rig.sql() as c:
            c.execute("UPDATE run SET stopped_at_ms = ?, stop_reason = 'SIGTERM'", (now_ms(),))
        await until(lambda: "marathond is not running" in shown(app.query_one("#head")))
        rig.ledger.rename(rig.state_dir / "elsewhere")
        await until(lambda: "cannot see" in shown(app.query_one("#head")))
        (rig.state_dir / "elsewhere").rename(rig.ledger)
        await until(lambda: "cannot see" not in shown(app.query_one("#head")))
        await leave(pilot, app)

    assert driven(rig, look).return_value == 3


def test_the_cursor_stays_on_its_trial_when_others_come_and_go(rig: Rig) -> None:
    async def look(pilot: Pilot[int], app: Top) -> None:
        table = app.query_one("#trials", DataTable)
        with rig.sql() as c:
            have.bring_to(c, have.cell(c, "rust", "goal"), "running")
        await until(lambda: table.row_count == 2)
        above = app._chosen()
        await pilot.press("down")
        await until(lambda: app._chosen() != above)
        chosen = app._chosen()
        with rig.sql() as c:
            first = min(row[0] for row in c.execute("SELECT trial_id FROM trial WHERE state = 'running'"))
            have.daemon_void(c, first)
        await until(lambda: table.row_count == 1)
        assert app._chosen() == chosen != first

    driven(rig, look)


def test_foreign_words_are_text_and_never_markup_or_escapes(rig: Rig) -> None:
    with rig.sql() as c:
        detail = f"[bold red]{NASTY}[/bold] [link=file:///etc]x"
        findings.raise_finding(c, code="host_unknown", severity="error", subject="[x", detail=detail, campaign_id=None, now_ms=now_ms())

    async def look(pilot: Pilot[int], app: Top) -> None:
        await pilot.press("4")
        (row,) = cells(app.query_one("#findings-table", DataTable))
        assert row[3] == "[x" and row[6] == "[bold red]redevil second[/bold] [link=file:///etc]x"
        assert "[bold red]" in shown(app.query_one("#head"))
        await leave(pilot, app)

    assert driven(rig, look).return_value == 1


def test_the_grid_has_a_letter_for_every_cell_and_events_are_those_of_tail(rig: Rig) -> None:
    told = rig.ask("tail", "-n", "200").splitlines()

    async def look(pilot: Pilot[int], app: Top) -> None:
        await pilot.press("2")
        found = {row[0]: row[1:] for row in cells(app.query_one("#grid-table", DataTable))}
        assert found == {"zstd": ["S  1.00", "?"], "rust": ["R", "·"]}
        assert "? in review" in shown(app.query_one("#legend"))
        await pilot.press("3")
        lines = shown(app.query_one("#events-text")).splitlines()
        assert lines == told
        assert any("t0003" in line and "agent_started" in line for line in lines)
        await leave(pilot, app)

    driven(rig, look, (200, 50))


def test_a_trial_is_opened_and_its_log_followed(rig: Rig) -> None:
    trial = live_trial(rig)
    log = rig.state_dir / "r" / f"t{trial:04d}" / "logs" / "agent" / "output.txt"

    async def look(pilot: Pilot[int], app: Top) -> None:
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, TrialScreen))
        await until(lambda: "campaign" in shown(app.screen.query_one("#facts-text")))
        await pilot.press("2")
        await until(lambda: app.screen.query_one(TabbedContent).active == "agent")
        lines = app.screen.query_one("#agent-log", RichLog)
        await until(lambda: any("no output of" in line.text for line in lines.lines))
        log.parent.mkdir(parents=True)
        log.write_text("first \x1b[31mred\n")
        await until(lambda: any(line.text.startswith("first red") for line in lines.lines))
        with log.open("a") as file:
            file.write("half")
        await asyncio.sleep(0.5)
        assert not any(line.text.startswith("half") for line in lines.lines)
        with log.open("a") as file:
            file.write(" and whole\n")
        await until(lambda: any(line.text.startswith("half and whole") for line in lines.lines))
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, TrialScreen))

    driven(rig, look)


def test_a_log_is_read_on_from_where_it_was_and_what_is_passed_over_is_said(rig: Rig) -> None:
    trial = live_trial(rig)
    path = rig.state_dir / "r" / f"t{trial:04d}" / "logs" / "agent" / "output.txt"
    path.parent.mkdir(parents=True)
    line = b"x" * 99 + b"\n"
    path.write_bytes(line * 2000)
    log = Log(place(rig), trial, verifier=False)
    first = log.more()
    assert first[0] == f"({200_000 - TAIL_BYTES} bytes before this: marathonctl logs)" and len(first) in range(650, 660)
    assert log.more() == []
    with path.open("ab") as file:
        file.write(line * (PIECE_BYTES // 50))
    assert log.more()[0].endswith("bytes passed over: marathonctl logs)")
    path.write_bytes(b"again\n")
    assert log.more() == ["(the file was cut short; from its beginning)", "again"]
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert log.more() == []  # refused, as by logs


def test_void_asks_for_a_reason_and_the_daemon_carries_it_out(rig: Rig) -> None:
    trial = live_trial(rig)

    async def look(pilot: Pilot[int], app: Top) -> None:
        await pilot.press("v")
        await until(lambda: asks_why(app))
        await pilot.press("enter")
        await until(lambda: "a reason is needed" in shown(app.screen.query_one("#lacks")))
        app.screen.query_one("#reason", Input).value = "provider outage"
        await pilot.press("enter")
        await until(lambda: bool(app._notifications))
        (said,) = list(app._notifications)
        assert said.message.startswith(f"voided t{trial:04d} (plain, score unknown)") and "undo" in said.message

    with rig.serving():
        driven(rig, look)
    with rig.sql() as c:
        assert c.execute("SELECT code, reason, decided_by FROM void WHERE trial_id = ?", (trial,)).fetchone()[:] == (
            "operator",
            "provider outage",
            "operator",
        )
    assert rig.control.said("trial_voided") == [(trial,)]


def test_without_a_daemon_a_void_says_so_and_changes_nothing(rig: Rig) -> None:
    async def look(pilot: Pilot[int], app: Top) -> None:
        await pilot.press("v")
        await until(lambda: asks_why(app))
        app.screen.query_one("#reason", Input).value = "x"
        await pilot.press("enter")
        await until(lambda: bool(app._notifications))
        (said,) = list(app._notifications)
        assert said.severity == "error" and "marathond is not running" in said.message

    driven(rig, look)
    with rig.sql() as c:
        assert c.execute("SELECT count(*) FROM void").fetchone()[0] == 0


@pytest.mark.parametrize("size", [(80, 24), (40, 15), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_it_fits(rig: Rig, size: tuple[int, int]) -> None:
    async def look(pilot: Pilot[int], app: Top) -> None:
        table = app.query_one("#trials", DataTable)
        await pilot.pause()
        await until(lambda: table.row_count == 1 and table.size.height >= 2)
        await leave(pilot, app)

    assert driven(rig, look, size).return_value == 0


def test_in_a_real_terminal_it_starts_draws_and_ends(rig: Rig) -> None:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "marathond.cli.ctl", "top"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(slave)
    try:
        got = _read(master, lambda text: b"rust" in text)
        os.write(master, b"q")
        got += _read(master, lambda _: False)  # to its end: what it wrote last may be read after its death
        assert child.wait(PATIENCE_S) == 0, got
        assert b"\x1b[?1049h" in got and b"\x1b[?1049l" in got  # the screen that was there comes back
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        os.close(master)


def _read(fd: int, enough: Callable[[bytes], bool]) -> bytes:
    got, until_s = b"", time.monotonic() + PATIENCE_S
    while not enough(got):
        assert time.monotonic() < until_s, got[-2000:]
        if select.select([fd], [], [], 0.1)[0]:
            try:
                got += os.read(fd, 65536)
            except OSError:
                return got
    return got


def test_without_a_terminal_it_says_what_to_use_instead(rig: Rig) -> None:
    answer = rig.run("top")
    assert answer.code == 2 and answer.err == "marathonctl: top: needs a terminal; in a pipe: marathonctl status --watch, or tail -f\n"


def test_nothing_else_pays_for_it() -> None:
    code = "import sys, marathond.cli.grammar, marathond.cli.commands_top\nprint('textual' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
