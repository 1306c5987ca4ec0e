"""Set-up's dealings with the machine: processes ended by id and start time, packages never asked for without need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from marathond.demo import base_image, host
from marathond.demo.docker_http import Docker, DockerHttpError, why_silent

STUBBORN = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


def test_start_ticks_names_one_process() -> None:
    assert host.start_ticks(os.getpid()) == host.start_ticks(os.getpid())
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert host.start_ticks(gone.pid) is None


def test_f10_a_recycled_pid_is_not_ended() -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        ticks = host.start_ticks(other.pid)
        assert ticks is not None
        assert host.end_process(other.pid, ticks - 1, 0.1) is False
        assert other.poll() is None
        assert host.end_process(other.pid, ticks, 120) is False
        assert other.wait(timeout=120) == -15
    finally:
        other.kill()
        other.wait()


def test_a_stubborn_process_is_killed_and_that_is_told() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert host.end_process(child.pid, host.start_ticks(child.pid), 0.1) is True
        assert child.wait(timeout=120) == -9


def test_missing_tools_are_one_line_without_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "can_install", lambda: False)
    with pytest.raises(host.SetupError, match=r"^missing programs; install the packages other some-package \(.*\)$") as caught:
        host.need_tools({"no-such-tool": "some-package", "nor-this": "other", "sh": "dash"}, tmp_path / "log")
    assert "dash" not in str(caught.value)
    host.need_tools({"sh": "dash"}, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_command_over_its_deadline_answers_124(tmp_path: Path) -> None:
    log = tmp_path / "a" / "log"
    assert host.run_logged(["sleep", "600"], log, 0.05) == 124
    assert host.run_logged(["sh", "-c", "echo words; exit 3"], log, 240) == 3
    assert host.tail(log, 1) == ("words",)
    assert host.tail(tmp_path / "none") == ()


@pytest.mark.parametrize("url", ["ssh://someone@somewhere", "docker.sock"])
def test_an_address_that_is_not_understood_is_named(url: str) -> None:
    with pytest.raises(DockerHttpError, match="only unix://"):
        Docker(url)
    reason = why_silent(url)
    assert reason is not None and url in reason


def test_a_silent_engine_has_a_reason(tmp_path: Path) -> None:
    reason = why_silent(f"unix://{tmp_path}/docker.sock")
    assert reason is not None and "No such file" in reason


def test_mirror_is_a_web_address_without_a_final_slash_or_left_to_debootstrap() -> None:
    mirror = base_image.debian_mirror()
    assert mirror is None or (mirror.startswith(("http://", "https://")) and mirror.endswith("/debian"))
