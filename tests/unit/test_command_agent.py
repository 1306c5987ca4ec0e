"""What is believed of a file that the container may have written (fault c18)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from marathond.agents.command import CommandAgent
from marathond.ports.agent import AgentEnd, RunDir


class _Env:
    def __init__(self, root: Path) -> None:
        self.run_dir = RunDir(root)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("0\n", AgentEnd(0, "file")),
        ("timer\n", AgentEnd(137, "file")),
        ("256\n", AgentEnd(None, "file")),
        ("-1\n", AgentEnd(None, "file")),
        ("", AgentEnd(None, "file")),
        ("9" * 400, AgentEnd(None, "file")),
    ],
)
def test_c18_the_status_file_is_read_with_care_and_marked(tmp_path: Path, text: str, end: AgentEnd) -> None:
    (tmp_path / "ctl").mkdir()
    (tmp_path / "ctl" / "exit-status").write_text(text)
    assert CommandAgent()._from_file(_Env(tmp_path)) == end  # type: ignore[arg-type]


def test_c18_links_and_pipes_in_its_place_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "ctl").mkdir()
    status = tmp_path / "ctl" / "exit-status"
    assert CommandAgent()._from_file(_Env(tmp_path)) == AgentEnd(None, "file")  # type: ignore[arg-type]
    (tmp_path / "elsewhere").write_text("0\n")
    status.symlink_to(tmp_path / "elsewhere")
    assert CommandAgent()._from_file(_Env(tmp_path)) == AgentEnd(None, "file")  # type: ignore[arg-type]
    status.unlink()
    os.mkfifo(status)
    assert CommandAgent()._from_file(_Env(tmp_path)) == AgentEnd(None, "file")  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="making a device node needs root")
def test_c18_a_device_in_its_place_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one can act: a watchdog's is armed by it.  This one has no driver, so that opening it would be an error of its own."""
    (tmp_path / "ctl").mkdir()
    os.mknod(tmp_path / "ctl" / "exit-status", 0o600 | stat.S_IFCHR, os.makedev(250, 250))
    real, flags_seen = os.open, list[int]()

    def look(path: str | Path, flags: int, *args: int, **more: int) -> int:
        flags_seen.append(flags)
        return real(path, flags, *args, **more)

    monkeypatch.setattr(os, "open", look)
    assert CommandAgent()._from_file(_Env(tmp_path)) == AgentEnd(None, "file")  # type: ignore[arg-type]
    assert flags_seen and all(flags & os.O_PATH for flags in flags_seen)
