"""What is copied for one trial: bytes through the engine's socket, and bytes that our processes write.

``python -m tests.bench.bytes_run``: needs DOCKER_HOST (a unix socket), the base image and, unless ``--no-harbor``, Harbor.  The same trial
three ways: tests of 1 MB go in; the solution leaves 4 MB of artifacts, the verifier 256 KB and a reward; all of that is kept on the host.
*Bare* is `docker cp` in and out of a container without mounts.  Each way is a process of its own behind a relay that counts what passes
in either direction; what it and all its children wrote is the kernel's ``wchar`` of ``/proc/PID/io`` (files and pipes; sockets are the
relay's), which is exact and knows nothing of load.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import structlog

from marathond.demo.host import SetupError
from marathond.service.logs import configure
from tests.bench import harbor_run
from tests.bench.rows import Row, table
from tests.support.relay import Relay
from tests.support.rig import Rig, make_task

TRIALS = 2
TESTS, ARTIFACTS, REPORT = 1 << 20, 4 << 20, 256 << 10
SOLVE = f"mkdir -p /logs/artifacts && head -c {ARTIFACTS} /dev/urandom >/logs/artifacts/out.bin\n"
TEST = f"head -c {REPORT} /dev/urandom >/logs/verifier/report.bin && echo 1 >/logs/verifier/reward.txt\n"
CALL_S = 120.0
WAYS = ("bare", "marathond", "harbor")


@dataclass(frozen=True, slots=True)
class Copied:
    """MB for one trial."""

    socket_mb: float
    written_mb: float


def _task(folder: Path) -> Path:
    task = make_task(folder, "copies", network="public", test=TEST, solve=SOLVE)
    (task / "tests" / "data.bin").write_bytes(os.urandom(TESTS))
    (task / "tests" / "test.sh").chmod(0o755)
    return task


def _docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=CALL_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"docker {' '.join(words)}: exit {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def bare(folder: Path, image: str) -> None:
    """By the docker command alone."""
    task = _task(folder)
    for number in range(TRIALS):
        made = _docker("run", "--detach", "--label", "marathond.bench=bytes", image, "sh", "-c", "mkdir -p /logs/verifier; sleep 600")
        try:
            for name in ("solution", "tests"):
                _docker("cp", str(task / name), f"{made}:/{name}")
            _docker("exec", made, "sh", "/solution/solve.sh")
            _docker("exec", made, "sh", "/tests/test.sh")
            _docker("cp", f"{made}:/logs", str(folder / f"kept-{number}"))
        finally:
            _docker("rm", "--force", made)
        _see(folder / f"kept-{number}")


async def marathond(host: str, folder: Path) -> None:
    """A whole daemon in this process; until everything is exported."""
    overrides = {"admission.concurrency": 1, "daemon.log_level": "error"}
    async with Rig(host, tasks=[_task(folder)], arms={"oracle": {"kind": "oracle"}}, replicates=TRIALS, overrides=overrides) as rig:
        await rig.until_done()
        if rig.one("SELECT count(*) FROM v_cell WHERE state = 'done' AND reward = 1") != TRIALS:
            raise RuntimeError(f"marathond did not score {TRIALS}\n{rig.story()}")
        for (kept,) in rig.sql("SELECT folder FROM artifact_export"):
            _see(rig.root / "out" / kept)


def harbor(folder: Path) -> None:
    harbor_run.run(_task(folder), folder, "oracle", TRIALS, 1)
    for kept in (folder / "jobs" / "bench").glob("*/verifier"):
        _see(kept.parent)


def _see(kept: Path) -> None:
    """All three must have kept the same.  Raises RuntimeError."""
    sizes = {path.name: path.stat().st_size for path in kept.rglob("*.bin")}
    if sizes != {"out.bin": ARTIFACTS, "report.bin": REPORT}:
        raise RuntimeError(f"{kept.name} keeps {sizes}, expected {ARTIFACTS} and {REPORT} bytes")


def _child(way: str, image: str) -> None:
    """One way, in this process; prints what it wrote."""
    before = _written()
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as name:
        match way:
            case "bare":
                bare(Path(name), image)
            case "harbor":
                harbor(Path(name))
            case _:
                configure("error", "json")
                anyio.run(marathond, os.environ["DOCKER_HOST"], Path(name))
                structlog.reset_defaults()
    # Its own task folder is no copy of the trial's.
    print(json.dumps({"written": _written() - before - TESTS}), flush=True)


def _written() -> int:
    """By this process and all children that it has waited for (proc(5), io)."""
    return int(next(line.split()[1] for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar")))


async def _behind_relay(way: str, host: str, image: str) -> Copied:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp")))
        async with Relay(folder / "d.sock", Path(host.removeprefix("unix://"))) as relay:
            argv = [sys.executable, "-m", "tests.bench.bytes_run", "--way", way, "--image", image]
            variables = os.environ | {"DOCKER_HOST": relay.url}
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=variables)
            out, errors = await child.communicate()
            if child.returncode:
                raise RuntimeError(f"bytes, {way}: exit {child.returncode}: {errors.decode(errors='replace').strip()[-1500:]}")
            written = json.loads(out.decode().splitlines()[-1])["written"]
            return Copied(relay.carried / TRIALS / 1e6, written / TRIALS / 1e6)


def measure(host: str, image: str, *, with_harbor: bool) -> dict[str, Copied]:
    """By way.  :raises RuntimeError: one of them did not keep what it should, or the engine is not on a unix socket."""
    if not host.startswith("unix://"):
        raise RuntimeError(f"bytes: DOCKER_HOST is {host}; the relay needs a unix socket")
    return {way: asyncio.run(_behind_relay(way, host, image)) for way in WAYS if with_harbor or way != "harbor"}


def rows(found: dict[str, Copied]) -> list[Row]:
    names = {"bare": "docker cp in and out", "marathond": "marathond", "harbor": "Harbor 0.26"}
    floor, made = found["bare"], []
    for way, copied in found.items():
        ours = way == "marathond"
        for what, text in (("socket", "through the engine's socket"), ("written", "written by our processes")):
            value = getattr(copied, f"{what}_mb")
            ratio = None if way == "bare" else value / getattr(floor, f"{what}_mb")
            made.append(Row(f"{what}-{way}", f"one trial, {names[way]}: {text}", value, "MB", ratio, "docker cp" if ratio else "", ours))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bytes_run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--no-harbor", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--image", default=os.environ.get("MARATHOND_BASE_IMAGE", ""))
    options = parser.parse_args()
    try:
        if options.way:
            _child(options.way, options.image)
        else:
            print("\n".join(table(rows(measure(os.environ["DOCKER_HOST"], options.image, with_harbor=not options.no_harbor)))))
    except (SetupError, RuntimeError) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
