"""The private engine of `make demo` and `make test`: beside another engine, its command's fate told truly, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marathond.demo import engine, host, private_engine
from marathond.demo.docker_http import Docker, why_silent
from marathond.demo.private_engine import PrivateEngine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not host.can_install(), reason="a private engine needs root on Debian or Ubuntu"),
]

ANSWERS_S = 60.0
"""An engine on a busy machine may be silent for a while."""


def _traces(private: PrivateEngine) -> list[str]:
    """Everything of an engine that outlives its namespaces: run directory, control groups, processes that name it."""
    left = [str(private.run)] if private.run.exists() else []
    # os.walk, for a glob breaks on a group that vanishes while it looks: other engines' containers come and go.
    left += [path for path, _, _ in os.walk("/sys/fs/cgroup") if path.endswith(f"/marathond-demo-{private.id}")]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if private.id.encode() in words and int(entry.name) != os.getpid():
                left.append(words.replace(b"\0", b" ").decode())
    return left


def traces(private: PrivateEngine, patience_s: float = 60.0) -> list[str]:
    """What is left of it for good: a process that was killed may take a moment to end."""
    give_up = time.monotonic() + patience_s
    while (left := _traces(private)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return left


def test_engine_has_its_own_networks_and_leaves_nothing(docker_host: str, tmp_path: Path) -> None:
    with PrivateEngine(tmp_path / "clone", tmp_path / "cache") as private:
        assert why_silent(private.host, ANSWERS_S) is None
        docker = Docker(private.host)
        assert engine.leftovers(docker) == ([], [])
        assert docker.call("GET", "/info")[1]["CgroupDriver"] == "cgroupfs"
        mine = Path("/proc/self/ns/net").stat().st_ino
        theirs = subprocess.run(private.inside(["readlink", "/proc/self/ns/net"]), capture_output=True, text=True, check=True).stdout
        assert str(mine) not in theirs
        with pytest.raises(host.SetupError, match=f"in use by process {os.getpid()}"):
            PrivateEngine(tmp_path / "clone", tmp_path / "cache").lock()
    assert traces(private) == []
    assert why_silent(private.host) is not None
    assert why_silent(docker_host, ANSWERS_S) is None


def test_stray_of_the_command_is_ended(docker_host: str, tmp_path: Path) -> None:
    with PrivateEngine(tmp_path / "clone", tmp_path / "cache") as private:
        # One that is on its way into the namespaces only would be ended by nobody, or find them gone and end by itself.
        words = private.inside(["sh", "-c", "echo in; exec sleep 86399"])
        stray = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
        assert stray.stdout is not None
        with stray.stdout:
            assert stray.stdout.readline() == b"in\n"
    assert stray.wait(timeout=240) != 0
    assert traces(private) == []


def test_dockerd_that_cannot_start_shows_its_last_words(docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = PrivateEngine(tmp_path / "clone", tmp_path / "cache")
    monkeypatch.setattr(private, "_storage", lambda: (tmp_path / "data", "no-such-driver"))
    with pytest.raises(host.SetupError, match=r"^the private dockerd ended with status 1; whole log: ") as caught, private:
        pass
    assert "failed to start daemon" in caught.value.log_tail[-1]
    assert traces(private) == []


def test_what_a_killed_run_left_is_swept_by_the_next(docker_host: str, tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from marathond.demo.private_engine import PrivateEngine\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "with PrivateEngine(here / 'clone', here / 'cache'):\n    print('up', flush=True); sys.stdin.read()"
    )
    killed = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None and killed.stdin is not None
    assert killed.stdout.readline() == "up\n"
    killed.kill()
    killed.wait()
    killed.stdout.close()
    killed.stdin.close()
    private = PrivateEngine(tmp_path / "clone", tmp_path / "cache")
    assert private.run.exists()
    with private:
        assert why_silent(private.host, ANSWERS_S) is None
    assert traces(private) == []


@pytest.mark.parametrize(("script", "status"), [("exit 5", 5), ("kill -9 $$", 137), ('test "$DOCKER_HOST" = "$0"', 0)])
def test_exit_status_of_the_command_is_ours(docker_host: str, script: str, status: int) -> None:
    assert engine.run_with(engine.Engine(docker_host), ["sh", "-c", script, docker_host]) == status


def test_sigterm_reaches_the_command(docker_host: str) -> None:
    script = f"kill -TERM {os.getpid()}; exec sleep 86398"
    before = signal.getsignal(signal.SIGTERM)
    assert engine.run_with(engine.Engine(docker_host), ["sh", "-c", script]) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_overlay_probe_tells_a_file_system_that_can_from_none(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    assert private_engine.overlay_works(blocker) is False
    assert not (tmp_path / "probe").exists()
