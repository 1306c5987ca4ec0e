"""The one image that the sample tasks and the tests build on, made without needing any container registry.

Order: present on the engine; a tarball that an earlier run cached; ``debian:bookworm-slim`` where a registry answers; debootstrap.
Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from marathond.demo.docker_http import Docker, DockerHttpError
from marathond.demo.host import SetupError, apt_install, can_install, need_tools, run_logged, say, tail

BASE_IMAGE = "marathond-sample:bookworm"
_SUITE = "bookworm"
REGISTRY_ANSWERS_S = 10.0
PULL_S = 300.0
DEBOOTSTRAP_S = 900.0
_CHUNK = 1 << 20
_LEFT_OUT = (
    *("./proc/*", "./sys/*", "./dev/*", "./debootstrap"),
    *("./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*", "./var/cache/ldconfig/aux-cache"),
    *("./var/cache/debconf/*-old", "./var/lib/dpkg/*-old", "./etc/resolv.conf", "./etc/hostname", "./etc/machine-id"),
    *("./usr/share/man/*", "./usr/share/locale/*", "./usr/share/info/*"),
)
_EPOCH = "@1700000000"
"""Every file's time in the tarball, so that equal packages make an equal layer."""


def ensure_base_image(docker: Docker, cache: Path) -> None:
    """Make ``marathond-sample:bookworm`` exist on the engine.  Raises SetupError with one clear line."""
    try:
        status, answer = docker.call("GET", f"/images/{BASE_IMAGE}/json")
        if status == 200:
            return
        if status != 404:
            raise SetupError(f"{docker.host} does not say whether it has {BASE_IMAGE}: {status} {answer}")
        tarball = cache / "base" / f"{_SUITE}.tar"
        if not tarball.exists():
            if _pull(docker):
                return
            _make_tarball(tarball)
        _import(docker, tarball)
    except DockerHttpError as err:
        raise SetupError(f"cannot make the base image {BASE_IMAGE}: {err}") from err


def _pull(docker: Docker) -> bool:
    """Pull and tag the official image.  False, with the reason said, when no registry answers in time."""
    source = f"debian:{_SUITE}-slim"
    say(f"base image: looking for a registry that has {source} (at most {REGISTRY_ANSWERS_S:.0f} s)")
    end = time.monotonic() + PULL_S
    try:
        # An engine sends no byte before its registry has answered, so the first wait is the bounded one.
        for _ in docker.progress("POST", f"/images/create?fromImage=debian&tag={_SUITE}-slim", first_s=REGISTRY_ANSWERS_S):
            if time.monotonic() > end:
                raise DockerHttpError(f"the pull of {source} took more than {PULL_S:.0f} s")
    except DockerHttpError as err:
        reason = str(err).strip().rstrip('"}').rpartition(": ")[2]
        say(f"base image: not from a registry ({reason[-120:]})")
        return False
    repo, _, tag = BASE_IMAGE.partition(":")
    status, answer = docker.call("POST", f"/images/{quote(source, safe=':')}/tag?repo={repo}&tag={tag}")
    if status != 201:
        raise DockerHttpError(f"tagging {source} as {BASE_IMAGE}: {status} {answer}")
    say(f"base image: {BASE_IMAGE} is {source}")
    return True


def _make_tarball(tarball: Path) -> None:
    """Make the tarball of a minimal Debian from its packages."""
    folder = tarball.parent
    log = folder / "debootstrap.log"
    folder.mkdir(parents=True, exist_ok=True)
    if not can_install():
        raise SetupError(
            f"no registry gave debian:{_SUITE}-slim, and debootstrap needs root on Debian or Ubuntu; load {BASE_IMAGE} by hand"
        )
    root = folder / "root.part"
    if not re.fullmatch(r"[\w./+-]+", str(root)):  # debootstrap cannot work below a folder with a space in its name
        root = Path(tempfile.mkdtemp(prefix="marathond-demo-", dir="/var/tmp"))
    say("base image: debootstrap of a minimal Debian (one to two minutes, once)")
    try:
        debootstrap(_SUITE, root, log)
        part = tarball.with_suffix(".part")
        excludes = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
        pack = ["tar", "-C", str(root), "--numeric-owner", "--sort=name", f"--mtime={_EPOCH}", *excludes, "-cf", str(part), "."]
        if run_logged(pack, log, 300) != 0:
            raise SetupError(f"packing the base image failed; whole output: {log}", tail(log))
        part.rename(tarball)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def debootstrap(suite: str, root: Path, log: Path, include: Sequence[str] = ()) -> None:
    """A minimal Debian in the folder ``root`` (no space in its path), which is emptied first.  Raises SetupError.

    Its mounts and processes live in namespaces of their own and end with them, also after a Ctrl-C.
    """
    need_tools({"debootstrap": "debootstrap"}, log)
    if not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists():  # Ubuntu
        apt_install(["debian-archive-keyring"], log)
    shutil.rmtree(root, ignore_errors=True)
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "debootstrap", "--variant=minbase"]
    argv += [f"--include={','.join(include)}"] if include else []
    env = apt_proxies() | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    status = run_logged([*argv, suite, str(root), *([mirror] if (mirror := debian_mirror()) else [])], log, DEBOOTSTRAP_S, env)
    if status != 0:
        raise SetupError(f"debootstrap of {suite} failed (exit {status}); whole output: {log}", tail(log))


def _import(docker: Docker, tarball: Path) -> None:
    def pieces() -> Iterator[bytes]:
        with tarball.open("rb") as source:
            while piece := source.read(_CHUNK):
                yield piece

    say(f"base image: importing {tarball.name} ({tarball.stat().st_size >> 20} MB)")
    repo, _, tag = BASE_IMAGE.partition(":")
    changes = quote('CMD ["bash"]')
    for _ in docker.progress("POST", f"/images/create?fromSrc=-&repo={repo}&tag={tag}&changes={changes}", body=pieces(), first_s=300):
        pass


def debian_mirror() -> str | None:
    """The mirror that this machine's own apt uses for Debian; None (also on Ubuntu): debootstrap knows the official one itself."""
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    if not re.search(r"^ID=\"?debian\"?$", release, re.MULTILINE):
        return None
    lines: list[str] = []
    for source in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))):
        if source.is_file() and source.suffix in (".list", ".sources"):
            lines += source.read_text(errors="replace").splitlines()
    for line in lines:
        found = re.match(r"(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(https?://\S+/debian/?)(?:\s|$)", line)
        if found:
            return found.group(1).rstrip("/")
    return None


def apt_proxies() -> dict[str, str]:
    """apt's proxies as the environment variables that debootstrap's downloader reads; what is set already stays."""
    if shutil.which("apt-config") is None:
        return {}
    argv = ["apt-config", "shell", "http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"]
    out = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False).stdout
    return {name: value for name, value in re.findall(r"^(\w+)='([^']+)'$", out, re.MULTILINE) if not os.environ.get(name)}
