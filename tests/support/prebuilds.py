"""`marathonctl prebuild` as a program of its own, tasks with images to build, and builds that wait until a test lets them go on.

A waiting build runs ``sleep`` with a duration of its own: the test finds it among the host's processes, which proves that the build runs,
and ends it, with which the build goes on.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

import marathond
from marathond.core.errors import BuilderMissing
from marathond.demo.docker_http import Docker
from marathond.engine.buildkit import environment, find_builder, plugin_folders
from marathond.flow.images import image_tag
from marathond.tasks.digest import context_digest
from tests.support.buildx_env import buildx
from tests.support.published import printed
from tests.support.rig import BASE_IMAGE, CALL_TIMEOUT_S, make_task

PATIENCE_S = 180.0
MOUNT = "--mount=type=tmpfs,target=/t "
"""In front of a RUN's command: the build needs BuildKit."""


def until(there: Callable[[], Any], what: str) -> Any:
    """Wait for a condition; its value."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := there():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


def built_task(root: Path, name: str, dockerfile: str, **options: Any) -> Path:
    """A task whose image is built from ``dockerfile`` upon the base image; its context is unlike any other."""
    folder = make_task(root, name, **options)
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace(f'docker_image = "{BASE_IMAGE}"\n', ""))
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nLABEL marathond.test={secrets.token_hex(8)}\n{dockerfile}\n")
    return folder


def tag_of(task: Path) -> str:
    """The name of its built image, where no build arguments are given but proxies."""
    return image_tag(task.name, context_digest(task))


def image_of(docker_host: str, ref: str) -> dict[str, Any] | None:
    """``GET /images/{ref}/json``."""
    status, answer = Docker(docker_host).call("GET", f"/images/{ref}/json", CALL_TIMEOUT_S)
    assert status in (200, 404), answer
    return dict(answer) if status == 200 else None


def history_of(docker_host: str, ref: str) -> str:
    status, answer = Docker(docker_host).call("GET", f"/images/{ref}/history", CALL_TIMEOUT_S)
    assert status == 200, answer
    return json.dumps(answer)


def remove_images(docker_host: str, refs: Sequence[str]) -> None:
    for ref in refs:
        Docker(docker_host).call("DELETE", f"/images/{ref}?force=1", CALL_TIMEOUT_S)


class Nap:
    """A build's sleep."""

    def __init__(self) -> None:
        self.seconds = f"600.{secrets.randbelow(10**12):012d}"
        self.command = f"sleep {self.seconds}; true"

    def running(self) -> int | None:
        """The host's pid of the sleep, None while there is none."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == f"sleep\0{self.seconds}\0".encode():
                    return int(path.parent.name)
            except OSError:
                continue  # it ended while we looked
        return None

    def begun(self) -> None:
        until(self.running, f"the build sleeps {self.seconds}")

    def ended(self) -> None:
        until(lambda: self.running() is None, "the build has stopped")

    def end(self) -> None:
        pid = self.running()
        assert pid is not None, "the build no longer sleeps"
        handle = os.pidfd_open(pid)
        try:
            if self.running() == pid:  # looked at again after the handle exists
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], 10.0)
        finally:
            os.close(handle)


def write_config(root: Path, docker_host: str, tasks: Sequence[Path], *, engine: str = "", more: str = "") -> Path:
    """A configuration whose state lies below ``root``."""
    path = root / "marathond.toml"
    path.write_text(
        f'[daemon]\nstate_dir = "state"\n[campaign]\nname = "test"\ntasks = {json.dumps([str(task) for task in tasks])}\n'
        f'[engine]\nurl = "{docker_host}"\nbuild_retries = 0\n{engine}\n[arms.nop]\nkind = "nop"\n{more}\n'
    )
    return path


def able_home(home: Path) -> dict[str, str]:
    """The environment of a person who has some BuildKit: this machine's own, or else a plugin of theirs."""
    environ = {"HOME": str(home), "DOCKER_CONFIG": str(home / ".docker")}
    try:
        anyio.run(find_builder, environment("unix:///x", home, {}), plugin_folders(environ))
    except BuilderMissing:
        (home / ".docker/cli-plugins").mkdir(parents=True, exist_ok=True)
        (home / ".docker/cli-plugins/docker-buildx").symlink_to(buildx())
    return environ


class Prebuild:
    """One run of the command; read :attr:`code`, :attr:`out`, :attr:`err` after :meth:`finish`."""

    def __init__(self, config: Path, *options: str, environ: dict[str, str] | None = None) -> None:
        argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "prebuild", *options]
        self.process = subprocess.Popen(
            argv,
            cwd=Path(marathond.__file__).parents[1],
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.code, self.out, self.err = -1, "", ""

    def finish(self) -> dict[str, dict[str, Any]]:
        """Wait for its end; the results by task when ``--json`` was asked for."""
        self.out, self.err = self.process.communicate(timeout=PATIENCE_S)
        self.code = self.process.returncode
        if not self.out.startswith("{"):
            return {}
        found: dict[str, dict[str, Any]] = {row["task"]: row for row in printed("prebuild", self.out)["images"]}
        return found

    def waits_for_a_lock(self) -> bool:
        """It has opened the lock of an image that somebody else is making."""
        for path in Path(f"/proc/{self.process.pid}/fd").glob("*"):
            try:
                if "/builds/locks/" in str(path.readlink()):
                    return True
            except OSError:
                continue  # closed while we looked
        return False

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@contextmanager
def prebuild(config: Path, *options: str, environ: dict[str, str] | None = None) -> Iterator[Prebuild]:
    """Nothing of it is left when the test ends."""
    run = Prebuild(config, *options, environ=environ)
    try:
        yield run
    finally:
        run.kill()
