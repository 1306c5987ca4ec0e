"""What marathonctl does when its output cannot be written: one line on stderr, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from marathond.service.exits import Exit


@pytest.mark.parametrize("argv", [["report", "--columns"], ["plan", "--help"], ["--version"]])
def test_a_full_disk_behind_stdout_is_one_line(argv: list[str], tmp_path: Path) -> None:
    """``marathonctl report --csv > /full/disk/file``: the shell opened the file, and only the write fails."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "marathond.cli.ctl", *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={"MARATHOND_DAEMON__STATE_DIR": str(tmp_path / "s"), "HOME": str(tmp_path)},
            timeout=120,
            check=False,
        )
    lines = done.stderr.splitlines()
    assert done.returncode == Exit.FAILED, lines
    assert lines == ["marathonctl: what is printed cannot be written: no space left on device"]
