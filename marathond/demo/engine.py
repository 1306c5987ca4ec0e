"""Which Docker engine the demo and the tests use, and the wrapper that runs a command beside it.

An answering DOCKER_HOST or default socket is used as it is; otherwise a private engine is started and stopped afterwards.
Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from marathond.demo.base_image import BASE_IMAGE, ensure_base_image
from marathond.demo.docker_http import DEFAULT_SOCKET, Docker, DockerHttpError, why_silent
from marathond.demo.host import SetupError, can_install, end_process, say, start_ticks
from marathond.demo.private_engine import DIE_WITH_PARENT, PrivateEngine

END_PATIENCE_S = 60.0
"""How long the wrapped command may take to end after SIGTERM or SIGHUP before it is killed."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine ready for use: its DOCKER_HOST, and the private one behind it if it is ours."""

    host: str
    private: PrivateEngine | None = None


def answering_host() -> str | None:
    """The DOCKER_HOST of an engine that is already there, or None.  A configured one that is silent is named, not used."""
    configured = os.environ.get("DOCKER_HOST", "")
    if configured:
        reason = why_silent(configured)
        if reason is None:
            return configured
        say(f"DOCKER_HOST={configured} does not answer ({reason})")
    return DEFAULT_SOCKET if why_silent(DEFAULT_SOCKET) is None else None


@contextlib.contextmanager
def engine(clone: Path, cache: Path) -> Iterator[Engine]:
    """An engine that has the base image, for the length of the ``with`` block.  Raises SetupError with one clear line."""
    host = answering_host()
    if host is not None:
        say(f"using the Docker engine at {host}")
        ensure_base_image(Docker(host), cache)
        yield Engine(host)
        return
    if not can_install():
        reason = why_silent(DEFAULT_SOCKET)
        raise SetupError(
            f"no Docker engine: {reason}; start Docker or set DOCKER_HOST (as root on Debian or Ubuntu, set-up brings its own engine)"
        )
    with PrivateEngine(clone, cache) as private:
        ensure_base_image(Docker(private.host), cache)
        yield Engine(private.host, private)


def run_with(chosen: Engine | None, argv: list[str]) -> int:
    """Run a command with DOCKER_HOST and MARATHOND_BASE_IMAGE set; its exit status (128 + signal when one ended it).

    A Ctrl-C reaches the command by itself (same terminal): we wait for it.  SIGTERM and SIGHUP are passed on, with a bound.
    """
    env = {k: v for k, v in os.environ.items() if chosen is None or chosen.private is None or not k.startswith("DOCKER_")}
    full = [*DIE_WITH_PARENT, *argv]
    if chosen is not None:
        env |= {"DOCKER_HOST": chosen.host, "MARATHOND_BASE_IMAGE": BASE_IMAGE}
        full = chosen.private.inside(argv) if chosen.private else full
    sys.stdout.flush()
    stopped_by: list[int] = []
    old = {sig: signal.signal(sig, lambda number, _frame: stopped_by.append(number)) for sig in _SIGNALS}
    try:
        child = subprocess.Popen(full, env=env)
        ticks = start_ticks(child.pid)
        forwarded = False
        while True:
            try:
                status = child.wait(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if not stopped_by or forwarded:
                    continue
                forwarded = True
                if stopped_by[0] == signal.SIGINT:
                    if not _at_terminal():
                        child.send_signal(signal.SIGINT)
                elif end_process(child.pid, ticks, END_PATIENCE_S):
                    say(f"the command did not end within {END_PATIENCE_S:.0f} s of the signal and was killed")
    except FileNotFoundError as err:
        raise SetupError(f"cannot run {full[0]}: {err.strerror}") from err
    finally:
        for sig, handler in old.items():
            signal.signal(sig, handler)
    if stopped_by and status == 0:
        return 128 + stopped_by[0]
    return status if status >= 0 else 128 - status


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _at_terminal() -> bool:
    """True when we are in the foreground of a terminal: its Ctrl-C went to the command as well as to us."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _interrupt(number: int, _frame: FrameType | None) -> Any:
    raise SystemExit(128 + number)


def leftovers(docker: Docker) -> tuple[list[str], list[str]]:
    """Ids of all containers and of all networks that an engine does not have by itself.  Raises DockerHttpError."""
    _, containers = docker.call("GET", "/containers/json?all=1")
    _, networks = docker.call("GET", "/networks")
    return [c["Id"] for c in containers], [n["Id"] for n in networks if n["Name"] not in ("bridge", "host", "none")]


def settle(private: PrivateEngine, *, sweep: bool) -> None:
    """At the end of a run on the private engine: remove what is left there (``sweep``), or name it for the next run."""
    docker = Docker(private.host)
    try:
        containers, networks = leftovers(docker)
        if sweep:
            for one in containers:
                docker.call("DELETE", f"/containers/{one}?force=1&v=1", timeout_s=30)
            for one in networks:
                docker.call("DELETE", f"/networks/{one}", timeout_s=30)
        elif containers or networks:
            say(f"kept on the private engine: {len(containers)} containers, {len(networks)} networks; `make clean` removes them")
    except DockerHttpError as err:
        say(f"unknown what is left on the private engine: {err}")


def with_engine(clone: Path, cache: Path, argv: list[str], *, optional: bool = False, sweep: bool = False) -> int:
    """``with-engine -- COMMAND``: exit status of the command.

    ``optional``: without an engine the command runs all the same.  ``sweep``: a private engine is emptied afterwards (images stay).
    """
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, _interrupt)  # so that set-up itself unwinds, and stops what it started
    try:
        with engine(clone, cache) as chosen:
            try:
                return run_with(chosen, argv)
            finally:
                if chosen.private is not None:
                    settle(chosen.private, sweep=sweep)
    except SetupError as err:
        if not optional or can_install():
            raise
        say(f"{err}; going on without an engine, tests that need one are skipped")
        return run_with(None, argv)
