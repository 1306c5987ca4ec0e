"""Processes of a container that its engine has forgotten, as a dockerd killed in mid-start leaves them (b11, f02; f10: whom not to end).

Which moment of a start that needs is the runtime's, and rare: nine of 160 starts around kills on a busy machine.  Here the process is put
where such a one is found, into a control group named after a container that the engine does not know.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator

import anyio
import pytest

from marathond.core.errors import EngineError
from marathond.engine import cgroups, processes
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import Process
from tests.support.rig import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


@contextlib.contextmanager
def running_in(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours in a control group of that name, below the root of a hierarchy that is there."""
    if os.geteuid() != 0:
        pytest.skip("making a control group needs root")
    mount = cgroups._mount("cgroup", "pids") or cgroups._mount("cgroup2", "")
    assert mount is not None
    group = mount / name
    group.mkdir()
    try:
        # It reads its input: it ends with the test whatever happens.
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            try:
                (group / "cgroup.procs").write_text(str(process.pid))
                yield process
            finally:
                process.kill()
    finally:
        group.rmdir()


async def test_b11_f02_what_an_engine_forgot_ends_with_its_container(engine: DockerEngine) -> None:
    forgotten, other = secrets.token_hex(32), secrets.token_hex(32)
    with running_in(f"docker-{forgotten}.scope") as stray, running_in(f"docker-{other}.scope") as stranger:
        (seen,) = processes.of_container(forgotten)
        assert (seen.pid, seen.argv) == (stray.pid, "cat")
        assert await engine.remove_container(forgotten) is True
        with anyio.fail_after(PATIENCE_S):
            await anyio.to_thread.run_sync(stray.wait)
        assert stray.returncode == -9 and processes.of_container(forgotten) == []
        assert stranger.poll() is None


async def test_f10_part_of_an_id_ends_nobody(engine: DockerEngine) -> None:
    whole = secrets.token_hex(32)
    with running_in(f"docker-{whole}.scope") as process:
        for part in ("", "a", "docker", whole[:12], whole[:63]):
            assert processes.of_container(part) == []
        assert await engine.remove_container(whole[:63]) is True
        assert process.poll() is None


async def test_b11_one_that_cannot_be_ended_is_not_gone(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: Process) -> None:
        raise EngineError("process.kill", 0, f"pid {process.pid}: Operation not permitted")

    forgotten = secrets.token_hex(32)
    with running_in(f"docker-{forgotten}.scope") as stray:
        with monkeypatch.context() as patch:
            patch.setattr(processes, "kill_process", refused)
            with pytest.raises(EngineError, match=rf"it is gone, but its process {stray.pid} cat cannot be ended: .* not permitted"):
                await engine.remove_container(forgotten)
        with monkeypatch.context() as patch:
            patch.setattr(processes, "kill_process", lambda process: None)
            assert await engine.remove_container(forgotten) is False
        assert stray.poll() is None
