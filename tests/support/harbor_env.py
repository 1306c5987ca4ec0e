"""A Python that has Harbor, for checking what we write against Harbor's own code, wherever the tests run.

Harbor needs Python >= 3.12 and about 120 packages, so it never enters the project's own environment.  Where a new enough interpreter
runs on this machine, it gets a virtual environment below ``.cache/harbor``; otherwise, as root on Debian, a Debian 13 is unpacked there
and entered by chroot in a mount namespace of its own, so that no mount can be left behind.

Profiles: ``view`` holds what Harbor's models and its viewer import (20 s, 80 MB); ``full`` is an ordinary ``pip install`` (a minute
and a half, 470 MB).  ``python -m tests.support.harbor_env`` makes the ``view`` profile ahead of the tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from marathond.demo.base_image import debootstrap
from marathond.demo.host import SetupError, can_install, run_logged, say, tail, widen_path

VERSION = "0.26.0"
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "harbor"
PIP_S = 900.0
# What `import harbor.viewer.server` and the models import, found by importing them; litellm and fastmcp (300 MB) come in on demand only.
VIEW_PACKAGES = (
    *("pydantic", "toml", "shortuuid", "pyyaml", "packaging", "filelock", "platformdirs", "pathspec", "tenacity", "rich"),
    *(
        "fastapi",
        "uvicorn",
        "httpx",
        "jinja2",
        "python-multipart",
        "email-validator",
        "supabase",
        "pyjwt",
        "cryptography",
        "opentelemetry-api",
    ),
)
Profile = Literal["view", "full"]

# $1 the Debian, $2 the folder to be in, $3 paths to show inside at the same place, one a line; the rest is the command.
_ENTER = """
root=$1 cwd=$2 paths=$3
shift 3
mount --bind "$root" "$root"
show() {
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$(dirname "$root$1")"; [ -e "$root$1" ] || : > "$root$1"; fi
    mount --rbind "$1" "$root$1"
}
for path in /dev /sys /etc/resolv.conf /etc/ssl/certs; do if [ -e "$path" ]; then show "$path"; fi; done
mount -t proc proc "$root/proc"
printf '%s\\n' "$paths" | while IFS= read -r path; do if [ -n "$path" ]; then show "$path"; fi; done
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$cwd" "$@"
"""


_VIEWER = """
import pathlib, socket, sys, uvicorn
from harbor.viewer import create_app
app = create_app(pathlib.Path(sys.argv[1]), mode="jobs")
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(64)  # before the port is told, so that a first request waits for the server instead of being refused
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
"""


@dataclass(frozen=True, slots=True)
class HarborEnv:
    """A Python with Harbor.  ``debian``: the unpacked Debian 13 to run it in, or None when this machine's own interpreter will do."""

    venv: Path
    debian: Path | None

    def command(self, argv: Sequence[str], paths: Sequence[Path] = (), cwd: Path | None = None) -> list[str]:
        """The command line for ``argv`` (its first word is looked for in the environment's bin first).

        ``paths`` are the files and folders, outside the clone, that the command must see; in the chroot they lie at the same place.
        Ending the process that this starts ends everything inside.
        """
        inner = self.venv / "bin" / argv[0]
        # In the chroot the interpreter's link may point to nothing out here, hence lexists.
        line = [str(inner) if os.path.lexists(inner) else argv[0], *argv[1:]]
        if self.debian is None:
            return line
        shown = "\n".join(dict.fromkeys(str(path.resolve()) for path in (ROOT, *paths)))
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "slave", "--"]
        return [*apart, "sh", "-euc", _ENTER, "sh", str(self.debian), str((cwd or ROOT).resolve()), shown, *line]

    def environment(self) -> dict[str, str]:
        """The environment variables for a Harbor process: no telemetry, nothing of the project's own Python."""
        drop = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        return {k: v for k, v in os.environ.items() if k not in drop} | {"HARBOR_TELEMETRY": "0", "PYTHONDONTWRITEBYTECODE": "1"}


@functools.cache
def harbor_env(profile: Profile = "view") -> HarborEnv:
    """The environment, made when it is not there yet.  Raises SetupError with one clear line."""
    widen_path()
    CACHE.mkdir(parents=True, exist_ok=True)
    log = CACHE / "setup.log"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = new_python()
        env = HarborEnv(CACHE / (profile if python else f"{profile}-debian"), None if python else CACHE / "debian")
        if env.debian is not None and not (env.debian / "usr/bin/python3").exists():
            _make_debian(env.debian, log)
        stamp = env.venv / "installed"
        wanted = f"harbor {VERSION} {profile} {' '.join(VIEW_PACKAGES)}\n"
        if stamp.exists() and stamp.read_text() == wanted:
            return env
        say(f"making a Python with Harbor {VERSION} ({profile})")
        shutil.rmtree(env.venv, ignore_errors=True)
        pip = ["python", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-compile"]
        _run(env.command([python or "/usr/bin/python3", "-m", "venv", str(env.venv)]), env, log)
        pinned = f"harbor=={VERSION}"
        for wish in [[pinned]] if profile == "full" else [["--no-deps", pinned], list(VIEW_PACKAGES)]:
            _run(env.command([*pip, *wish]), env, log)
        stamp.write_text(wanted)
    return env


def _run(argv: list[str], env: HarborEnv, log: Path) -> None:
    status = run_logged(argv, log, PIP_S, env.environment())
    if status != 0:
        raise SetupError(f"making a Python with Harbor failed (exit {status}); whole output: {log}", tail(log))


def new_python() -> str | None:
    """An interpreter >= 3.12 with venv that really runs here (a version manager's shim may not), or None."""
    names = ["python3.12", "python3.13", "python3.14", "python3", sys.executable]
    shim = shutil.which("python3.12")
    if shim is not None and Path(shim).parent.name == "shims":
        names += sorted(str(p) for p in Path(shim).parents[1].glob("versions/3.1[2-4].*/bin/python3"))
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"
    for name in names:
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", check], capture_output=True, timeout=120, check=False).returncode == 0:
            return found
    return None


def _make_debian(root: Path, log: Path) -> None:
    if not can_install():
        raise SetupError("Harbor needs Python 3.12 or newer: install one (as root on Debian, set-up unpacks a Debian 13 for it)")
    if " " in str(root):
        raise SetupError(f"debootstrap cannot work below a folder with a space in its name: {root}; install Python 3.12 or newer")
    say("unpacking a Debian 13 for its newer Python (one to two minutes, once)")
    part = root.with_suffix(".part")
    debootstrap("trixie", part, log, ["python3", "python3-venv", "ca-certificates"])
    shutil.rmtree(root, ignore_errors=True)
    part.rename(root)


def run_harbor_python(
    script: str, *arguments: str, paths: Sequence[Path] = (), profile: Profile = "view", timeout_s: float = 480.0
) -> subprocess.CompletedProcess[str]:
    """Run Python source with Harbor importable; ``arguments`` are its ``sys.argv[1:]``.  Raises SetupError, TimeoutExpired."""
    env = harbor_env(profile)
    argv = env.command(["python", "-c", script, *arguments], paths)
    return subprocess.run(
        argv, env=env.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@contextlib.contextmanager
def harbor_view(folder: Path, timeout_s: float = 240.0) -> Iterator[str]:
    """Harbor's viewer over a folder of jobs, on a free port of the loopback: its base URL.  What ``harbor view`` runs, without the CLI.

    The viewer keeps an index in a temporary folder and is killed before it can remove it: it gets one of its own, which goes with it.
    """
    env = harbor_env("view")
    with tempfile.TemporaryFile("w+") as errors, tempfile.TemporaryDirectory(prefix="mt-view-") as scratch:
        argv = env.command(["python", "-c", _VIEWER, str(folder)], [folder, Path(scratch)])
        environment = env.environment() | {"TMPDIR": scratch}
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
        )
        assert process.stdout is not None
        try:
            ready = select.select([process.stdout], [], [], timeout_s)[0]
            port = process.stdout.readline().strip() if ready else ""
            if not port.isdigit():
                errors.seek(0)
                raise RuntimeError(f"Harbor's viewer did not start: {errors.read()[-2000:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def main() -> int:
    """Make the ``view`` profile.  A failure is said but is no failure here: the tests that need it say so themselves."""
    try:
        env = harbor_env("view")
    except SetupError as err:
        for line in err.log_tail:
            print(f"  | {line}", file=sys.stderr)
        say(str(err))
        return 0
    if "-v" in sys.argv[1:]:
        print(shlex.join(env.command(["python"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
