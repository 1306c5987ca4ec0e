"""BuildKit builds, through ``docker buildx`` or a docker command line old enough to do it by itself.

Owns which program does it, the environment it runs in and what its output means.  Must not know tasks or their digests.

Why a program: the engine's API takes a BuildKit build without a client's session too, but then fails with ``no active sessions`` as soon
as a registry asks for a token (measured on 20.10).  Two kinds of program do without that:

* docker's plugin buildx (Debian 13's 0.13 drives an engine of 20.10, too).  It is started itself, not through ``docker buildx``: that
  would leave it behind when its parent is killed;
* ``docker`` before 23, which is what Debian 12's docker.io brings: ``DOCKER_BUILDKIT=1 docker build``.

Nothing of the caller's own reaches the program (fault b13): it starts with an environment of our making and a private, empty
configuration folder, because the proxies of a person's ``~/.docker/config.json`` become build arguments of every build.  The price is
that credentials for registries do not reach it either, as in a pull.  Proxies go by its environment, never by its command line, which
everybody on the host can read.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import Process

from marathond.core.errors import BuilderMissing, EngineError, EngineTimeout
from marathond.core.proxies import PROXY_VARIABLES

BUILTIN_BEFORE = 23
"""Clients from this major version on leave BuildKit to the plugin."""
BUILTIN_SINCE = 19
PROBE_S = 20.0
LAST_LINES = 20
LINE_MAX = 1 << 16
WHAT_TO_INSTALL = (
    "install docker with buildx: on Debian 12 docker.io (its docker 20.10 needs no buildx), on Debian 13 docker-cli and docker-buildx, "
    "on Ubuntu docker.io and docker-buildx, from Docker's own packages docker-ce-cli and docker-buildx-plugin"
)
PLUGIN_FOLDERS = tuple(f"{root}/docker/cli-plugins" for root in ("/usr/local/lib", "/usr/local/libexec", "/usr/lib", "/usr/libexec"))
"""Where docker itself looks, after the person's own folder."""
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRESS = re.compile(r"#\d+ (?:sha256:|DONE|CACHED|transferring |\[internal\]|building with |resolve |extracting )|-+$")
"""Lines of the output that never say why a build failed."""
_SCRATCH = "marathond-build-"
_VERSION = re.compile(r"Docker version (\d+)\.")
_OLD_FRONTEND = ("unknown instruction", "unknown flag: link", "unknown flag: parents", "unknown flag: exclude", "unknown flag: checksum")


@dataclass(frozen=True, slots=True)
class Builder:
    """A program that builds with BuildKit: buildx, or a docker that does it by itself."""

    program: str
    buildx: bool

    def argv(self, options: Sequence[str], context: Path) -> list[str]:
        """The kernel ends the program when we are killed, and the engine then stops the build."""
        setpriv = shutil.which("setpriv", path=":".join(_PATH))
        with_us = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        own = ["--builder", "default", "--load"] if self.buildx else []
        return [*with_us, self.program, "build", *own, "--progress", "plain", *options, "--", str(context)]


def environment(url: str, config: Path, build_args: Mapping[str, str]) -> dict[str, str]:
    """The program's whole environment.

    :param config: its private configuration folder, also its home.
    :param build_args: of these only the proxies: the client asks registries for tokens itself, and takes an argument's value from here.
    """
    proxies = {name: value for name, value in build_args.items() if name.lower() in PROXY_VARIABLES}
    if proxies and not url.startswith("unix://"):
        host = urlsplit(url).hostname or ""
        for name in ("NO_PROXY", "no_proxy"):  # the engine itself is not behind the proxy
            proxies[name] = ",".join(part for part in (proxies.get(name, ""), host) if part)
    return {
        **proxies,
        "PATH": ":".join(dict.fromkeys([*os.environ.get("PATH", "").split(":"), *_PATH])).strip(":"),
        "HOME": str(config),
        "DOCKER_CONFIG": str(config),
        "DOCKER_HOST": url.replace("http://", "tcp://", 1),
        "DOCKER_BUILDKIT": "1",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",  # with them the result is an index, and its id no image's
        "LC_ALL": "C.UTF-8",
    }


def options(labels: Mapping[str, str], build_args: Mapping[str, str], network: str | None, iidfile: Path, dockerfile: Path) -> list[str]:
    """Of the build, alike for both kinds of program."""
    found = ["--iidfile", str(iidfile), "--file", str(dockerfile)]
    for name, value in labels.items():
        found += ["--label", f"{name}={value}"]
    for name, value in build_args.items():
        found += ["--build-arg", name if name.lower() in PROXY_VARIABLES else f"{name}={value}"]
    return found if network is None else [*found, "--network", network]


def plugin_folders(caller: Mapping[str, str]) -> list[str]:
    """Where a person with this environment would have buildx."""
    own = [caller[name] + below for name, below in (("DOCKER_CONFIG", ""), ("HOME", "/.docker")) if caller.get(name)]
    return [*(f"{folder}/cli-plugins" for folder in own), *PLUGIN_FOLDERS]


def programs(name: str, folders: Sequence[str]) -> list[str]:
    """Every program of that name, each real file once."""
    found: dict[str, str] = {}
    for program in filter(None, (shutil.which(name, path=folder) for folder in folders)):
        found.setdefault(os.path.realpath(program), program)
    return list(found.values())


async def find_builder(environ: Mapping[str, str], plugins: Sequence[str]) -> Builder:
    """The first program that builds with BuildKit.

    :param environ: what it will run in; its PATH is searched.
    :param plugins: folders of docker's plugins.
    :raises BuilderMissing: with what each found program lacks, and what to install.
    """
    path = environ["PATH"].split(":")
    for program in programs("docker-buildx", [*plugins, *path]):
        if (await _ask(program, ["version"], environ))[0] == 0:
            return Builder(program, buildx=True)
    lacks: list[str] = []
    for program in programs("docker", path):
        _, text = await _ask(program, ["--version"], environ)
        match = _VERSION.search(text)
        if match is not None and BUILTIN_SINCE <= int(match[1]) < BUILTIN_BEFORE:
            return Builder(program, buildx=False)
        lacks.append(f"{program} ({text.strip()[:80] or 'does not run'}) has no buildx")
    raise BuilderMissing("image.build", 0, f"{'; '.join(lacks) or 'no docker on PATH'}; {WHAT_TO_INSTALL}")


async def _ask(program: str, words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Exit status and output of a short command that talks to no engine; 126 when it cannot be run or does not end."""
    try:
        with anyio.fail_after(PROBE_S):
            done = await anyio.run_process([program, *words], check=False, env=environ, stderr=subprocess.STDOUT)
    except (OSError, TimeoutError):
        return 126, ""
    return done.returncode, done.stdout.decode("utf-8", "replace")


async def build(
    url: str,
    context: Path,
    *,
    labels: Mapping[str, str],
    build_args: Mapping[str, str],
    network: str | None,
    timeout_s: float,
    log: Callable[[bytes], Awaitable[None]],
) -> str:
    """Build the context's Dockerfile; returns the image's id.  The image has no name yet.

    A caller that goes away ends the program, and with it the build.
    :raises BuilderMissing: no program for it.  :raises EngineTimeout: not done in time.
    :raises EngineError: the build failed, with its last lines.
    """
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-") as name:
        config, iidfile = Path(name), Path(name) / "image-id"
        (config / "config.json").write_text("{}")
        environ = environment(url, config, build_args)
        builder = await find_builder(environ, plugin_folders(os.environ))
        argv = builder.argv(options(labels, build_args, network, iidfile, context / "Dockerfile"), context)
        await log(f"# by {builder.program}\n".encode())
        try:
            with anyio.fail_after(timeout_s):
                status, last = await _run(argv, environ, log)
        except TimeoutError as exc:
            raise EngineTimeout("image.build", 0, f"not done within {timeout_s:g} s; the build was stopped") from exc
        except OSError as exc:
            raise EngineError("image.build", 0, f"{builder.program}: {exc.strerror or exc}") from exc
        built = iidfile.read_text().strip() if iidfile.exists() else ""
        if status != 0 or not built:
            raise EngineError("image.build", 0, _with_hint("\n".join(last)) or f"{builder.program} ended with status {status}, no image")
        return built


def _sweep() -> None:
    """Remove the configurations of our own processes that were killed in a build."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        pid = folder.name.removeprefix(_SCRATCH).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path(f"/proc/{pid}").exists() and folder.lstat().st_uid == os.geteuid():
                shutil.rmtree(folder)  # refuses a link


def _with_hint(words: str) -> str:
    """What an old engine's own BuildKit says of newer instructions is misleading."""
    if any(text in words.lower() for text in _OLD_FRONTEND):
        return f"{words}\n(an engine before 23 knows no here-documents and no --link without a first line # syntax=docker/dockerfile:1)"
    return words


async def _run(argv: Sequence[str], environ: Mapping[str, str], log: Callable[[bytes], Awaitable[None]]) -> tuple[int, deque[str]]:
    """Exit status and last lines.  The program has a session of its own: a Ctrl-C at our terminal is ours to answer."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    process = await anyio.open_process(
        list(argv), stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=dict(environ), start_new_session=True
    )
    try:
        assert process.stdout is not None
        rest = b""
        async for data in process.stdout:
            await log(data)
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-LINE_MAX:]
            last.extend(text for line in lines if (text := line.decode("utf-8", "replace").strip()) and not _PROGRESS.match(text))
        last.extend(filter(None, [rest.decode("utf-8", "replace").strip()]))
        return await process.wait(), last
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: Process) -> None:
    """Kill what is left of the program's group, and reap it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
    await process.aclose()
