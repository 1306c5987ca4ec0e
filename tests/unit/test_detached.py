"""The wrapper of detached commands, run by a real shell in a session of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from marathond.core.detached import detached_argv

LONG_S = 600


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wrapped(folder: Path, script: str, *, timer_s: int, tools: bool = False, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit code of the wrapper and what it wrote down as status."""
    out, status = folder / "out", folder / "status"
    argv = detached_argv("test-wrapper", ["sh", "-c", script], timer_s=timer_s, output=str(out), status=str(status), tool_sessions=tools)
    done = subprocess.run(argv, start_new_session=True, env=env, timeout=120, check=False)
    return done.returncode, status.read_text().strip()


def test_the_commands_own_end_is_the_wrappers(tmp_path: Path) -> None:
    assert wrapped(tmp_path, "exit 7", timer_s=LONG_S) == (7, "7")


def test_a_command_that_ends_at_once_has_its_own_words_alone_in_its_output(tmp_path: Path) -> None:
    """The timer may not have its trap yet: of twenty such commands, nearly all met that."""
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert wrapped(folder, "printf said", timer_s=LONG_S) == (0, "0")
        assert (folder / "out").read_text() == "said"


def test_c19_the_timer_ends_what_outlives_it(tmp_path: Path) -> None:
    assert wrapped(tmp_path, f"sleep {LONG_S}", timer_s=1) == (-9, "timer")


def test_b07_c19_the_timer_ends_the_sessions_of_tools_too(tmp_path: Path) -> None:
    """A tool command in a session of its own with what it started; what that detached once more is not its business."""
    kept = f"setsid sh -c 'echo $$ >{tmp_path}/kept; exec sleep {LONG_S}' &"
    tool = f"echo $$ >{tmp_path}/tool; {kept} sh -c 'echo $$ >{tmp_path}/inner; sleep {LONG_S}' & wait"
    pids: dict[str, int] = {}
    for timer_s in (2, 10, 60):  # a longer one where the machine is so slow that not all of them had begun
        assert wrapped(tmp_path, 'setsid -w sh -c "$TOOL"; true', timer_s=timer_s, tools=True, env={**os.environ, "TOOL": tool}) == (
            -9,
            "timer",
        )
        pids = {
            path.name: int(path.read_text()) for path in tmp_path.iterdir() if path.name in ("tool", "inner", "kept") and path.read_text()
        }
        if len(pids) == 3:
            break
    try:
        until = time.monotonic() + 60
        while (alive(pids["tool"]) or alive(pids["inner"])) and time.monotonic() < until:
            time.sleep(0.05)  # killed, and on a loaded machine not yet gone
        assert {name: alive(pid) for name, pid in pids.items()} == {"tool": False, "inner": False, "kept": True}
    finally:
        os.kill(pids["kept"], signal.SIGKILL)
    assert wrapped(tmp_path, "exit 7", timer_s=LONG_S, tools=True) == (7, "7")


def test_who_kills_the_timers_sleep_is_not_taken_for_late(tmp_path: Path) -> None:
    """`pkill sleep` is an ordinary thing to do in a container of one's own; it is no deadline."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sleep").write_text(f"#!/bin/sh\necho $$ >>{tmp_path}/naps\nexec {shutil.which('sleep')} {LONG_S}\n")
    (tools / "sleep").chmod(0o755)
    wait = f"until [ $(wc -l <{tmp_path}/naps 2>/dev/null || echo 0) -ge %d ]; do :; done; "
    script = wait % 1 + f"kill -9 $(sed -n 1p {tmp_path}/naps); " + wait % 2 + "exit 5"
    assert wrapped(tmp_path, script, timer_s=LONG_S, env={"PATH": f"{tools}:/usr/bin:/bin"}) == (5, "5")


def test_without_any_sleep_there_is_no_timer(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    script = "n=0; while [ $n -lt 200000 ]; do n=$((n + 1)); done; exit 5"
    assert wrapped(tmp_path, script, timer_s=1, env={"PATH": str(tools)}) == (5, "5")
