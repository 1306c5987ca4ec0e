"""LoopX as a wheel: from the package index that pip is configured with, from a local file, or built from a commit.

Owns the calls of pip and git, and the check that it is the wheel that was asked for.  Building runs the commit's own build on this host.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from installer.exceptions import InstallerError
from installer.sources import WheelFile

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging import children
from marathond.staging.pins_loopx import WantedLoopX
from marathond.staging.progress import Meter, Progress, Say
from marathond.staging.tree import digest_of, io_error, make_folder

FETCH_S = 1800.0
BUILD_S = 1800.0


@dataclass(frozen=True, slots=True)
class Wheel:
    """``sha256`` hex, of the file's bytes."""

    path: Path
    sha256: str


def wheel(wanted: WantedLoopX, folder: Path, say: Say) -> Wheel:
    """The wheel that is asked for, in the new folder ``folder`` unless it is a local file.

    :raises StageError: it cannot be had, or is another one: by hash, by name or by version.
    """
    make_folder(folder)
    if wanted.commit is not None:
        path = _built(wanted.commit, folder, say)
    elif wanted.wheel is not None:
        path = wanted.wheel
    else:
        path = _downloaded(f"loopx=={wanted.version}", folder, say)
    if not path.is_file():
        raise StageError("wheel", f"{path}: no such file")
    held = digest_of(path, "sha256", Meter(say, "checking", path.name, path.stat().st_size)).hex()
    if wanted.sha256 not in {None, held}:
        raise StageError("integrity", f"{path.name}: has sha256 {held}, the configuration pins {wanted.sha256}")
    _is_loopx(path, wanted)
    return Wheel(path, held)


def _is_loopx(path: Path, wanted: WantedLoopX) -> None:
    try:
        with WheelFile.open(path) as source:
            name, version = source.distribution, source.version
            source.validate_record()
    except OSError as error:
        raise io_error(path, error) from error
    except (InstallerError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise StageError("wheel", f"{path}: is no wheel: {printable(str(error), 300) or type(error).__name__}") from error
    if name != "loopx":
        raise StageError("wheel", f"{path}: is {printable(name, 60)}, not loopx")
    if version != wanted.version:
        raise StageError("version", f"{wanted.source}: is loopx {printable(version, 60)}, the configuration asks for {wanted.version}")


def _pip(what: str) -> list[str]:
    """Our own interpreter's, else the one on PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise StageError(
        "pip", f"pip is not here, it gets {what}: install it (Debian: apt-get install python3-pip), or set loopx.wheel to a local file"
    )


def _downloaded(spec: str, folder: Path, say: Say) -> Path:
    pip = _pip(spec)
    target, scratch = folder / "wheel", folder / "tmp"
    for each in (target, scratch):
        make_folder(each)
    argv = [*pip, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    argv += ["--progress-bar=off", "--dest", str(target), spec]
    meter = Meter(say, "fetching", spec)
    environ = {**os.environ, "TMPDIR": str(scratch)}
    ended = children.run(
        argv, folder, folder / "pip.log", FETCH_S, environ=environ, look=lambda: meter.reached(children.arrived(target, scratch))
    )
    found = sorted(target.glob("*.whl"))
    if ended.status != 0 or len(found) != 1:
        raise children.failed(f"pip could not fetch {spec}", "pip", ended, folder, FETCH_S, _reason)
    return found[0]


def _built(commit: str, folder: Path, say: Say) -> Path:
    """The commit's own build, which may fetch what it needs as pip is configured."""
    pip = _pip(f"what builds {commit}")
    if shutil.which("git") is None:
        raise StageError("git", f"git is not on PATH, it fetches {commit}: install it (Debian: apt-get install git)")
    url, _, sha = commit.rpartition("@")
    source, target, scratch = folder / "source", folder / "wheel", folder / "tmp"
    for each in (source, target, scratch):
        make_folder(each)
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "TMPDIR": str(scratch), "LC_ALL": "C"}
    meter = Meter(say, "fetching", commit)

    def git(*arguments: str) -> children.Ended:
        argv = ["git", "-c", "advice.detachedHead=false", *arguments]
        return children.run(
            argv, source, folder / "git.log", FETCH_S, environ=environ, look=lambda: meter.reached(children.arrived(source))
        )

    for step in (("init", "--quiet"), ("fetch", "--quiet", "--depth=1", url, sha), ("checkout", "--quiet", "--detach", sha)):
        ended = git(*step)
        if ended.status != 0 and step[0] == "fetch":  # a server may refuse single commits: then all branches and tags
            ended = git("fetch", "--quiet", "--tags", url, "+refs/heads/*:refs/remotes/origin/*")
        if ended.status != 0:
            raise children.failed(f"git could not fetch {commit}", "git", ended, folder, FETCH_S)
    written_at = git("log", "-1", "--format=%ct").out.strip()
    say(Progress("building", commit))
    argv = [*pip, "wheel", "--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    argv += ["--wheel-dir", str(target), str(source)]
    # Archives that the build writes carry this time, not the clock's: what is built again is the same again.
    environ = {**environ, "SOURCE_DATE_EPOCH": written_at if written_at.isdigit() else "0"}
    ended = children.run(argv, folder, folder / "pip.log", BUILD_S, environ=environ)
    found = sorted(target.glob("*.whl"))
    if ended.status != 0 or len(found) != 1:
        raise children.failed(f"pip could not build {commit}", "build", ended, folder, BUILD_S, _reason)
    return found[0]


def _reason(output: str) -> str:
    """pip's own last word, which it marks."""
    errors = [line.removeprefix("ERROR:") for line in output.splitlines() if line.startswith("ERROR:")]
    return children.last_line("\n".join(errors) or output)
