"""LoopX's profile as files: what a venv, an installed wheel and LoopX's own installer would have put at its final path, put together here.

Owns the layout.  Nothing is run at the final path: a venv is a link and a small file, and everything else does not care where it lies.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import installer
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.records import RecordEntry
from installer.sources import WheelFile
from installer.utils import Scheme

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging import tree
from marathond.staging.wheels import Wheel

ROOT = "/opt/lxprofile"
"""Where containers mount it, and what its files say of themselves."""

RELEASE = "releases/native-goal-profile"
"""LoopX's own name for it."""

CLI, NODE, PYTHON = "bin/loopx", "node/bin/node", "python"
SKILLS = "codex-home/skills"
_EMPTY = ("home", "state")
"""Where containers mount what a trial may write."""

_COPY = re.compile(r"(?i)loopx(-[^/]*)?\.(dist-info|egg-info|egg-link)|__editable__.*loopx.*")

_ENTRY = f"""import sys
sys.argv[0] = "{ROOT}/{CLI}"
from loopx.entrypoint import main
sys.exit(main())"""

_WRAPPER = f"""#!/bin/sh
# LoopX in an environment that LoopX alone has: the shell that calls it keeps its own, which is the same in every arm.
R={ROOT}
export PATH="$R/node/bin:$R/bin:${{PATH:-/usr/local/bin:/usr/bin:/bin}}"
export HOME="$R/home" TMPDIR="$R/home" TMP="$R/home" TEMP="$R/home"
export CODEX_HOME="${{CODEX_HOME:-/marathond/codex}}" LOOPX_USAGE_PING=0
unset PYTHONPATH PYTHONHOME LD_LIBRARY_PATH LD_PRELOAD NODE_OPTIONS NODE_PATH
exec "$R/{RELEASE}/bin/python" -P -c '{_ENTRY}' "$@"
"""
"""``-P``: the folder in which the agent calls it is no place for modules."""
WRAPPER_ID = hashlib.sha256(_WRAPPER.encode()).hexdigest()[:8]


def site_packages(python: str) -> str:
    """Below the tree; ``python``: ``python3.12``."""
    return f"{RELEASE}/lib/{python}/site-packages"


def assemble(root: Path, python: str, version: str, wheel: Wheel) -> None:
    """All but Python, Node and the skills, which others put beside it.

    :param root: the tree's folder, which is there.
    :param python: name of the interpreter in ``python/bin``.
    :param version: of that interpreter.
    :raises StageError: the wheel cannot be installed, no space.
    """
    release = root / RELEASE
    try:
        for folder in (root / "bin", release / "bin", root / SKILLS, *(root / name for name in _EMPTY)):
            folder.mkdir(parents=True)
        (release / "bin" / "python").symlink_to(f"../../../{PYTHON}/bin/{python}")
        (root / CLI).symlink_to(f"../{RELEASE}/bin/loopx")
        config = f"home = {ROOT}/{PYTHON}/bin\ninclude-system-site-packages = false\nversion = {version}\n"
        (release / "pyvenv.cfg").write_text(config)
        with WheelFile.open(wheel.path) as source:
            installer.install(source, _Release(release, root / site_packages(python)), {"INSTALLER": b"marathond\n"})
    except OSError as error:
        raise tree.io_error(error.filename or root, error) from error
    except (InstallerError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise StageError("wheel", f"{wheel.path}: cannot be installed: {printable(str(error), 300)}") from error


class _Release(SchemeDictionaryDestination):
    """The venv; its ``loopx`` is our wrapper, other commands of the wheel are as pip would write them."""

    def __init__(self, release: Path, packages: Path) -> None:
        scheme = {"purelib": packages, "platlib": packages, "scripts": release / "bin", "data": release, "headers": release / "include"}
        super().__init__({name: str(path) for name, path in scheme.items()}, f"{ROOT}/{RELEASE}/bin/python", "posix")

    def write_script(self, name: str, module: str, attr: str, section: Literal["console", "gui"]) -> RecordEntry:
        if name != "loopx":
            return super().write_script(name, module, attr, section)
        wrapper: BinaryIO = io.BytesIO(_WRAPPER.encode())
        return self.write_to_fs(Scheme("scripts"), name, wrapper, is_executable=True)


def copies(root: Path) -> Iterator[str]:
    """Where LoopX lies in the tree, as Python finds it: packages, and what installations leave behind; paths below ``root``."""
    for folder, names, files in os.walk(root):
        here = Path(folder).relative_to(root)
        for name in (*names, *files):
            if _COPY.fullmatch(name):
                yield str(here / name)
        if here.name == "loopx" and "__init__.py" in files:
            yield str(here)
            names.clear()  # its own parts may be called as they like


def refuse_second_copy(root: Path, python: str, version: str) -> None:
    """Two LoopX side by side are two unrelated programs with the same names.

    :raises StageError: it lies anywhere but at its one place, or not there.
    """
    packages = site_packages(python)
    own = {f"{packages}/loopx", f"{packages}/loopx-{version}.dist-info"}
    found = set(copies(root))
    if extra := sorted(found - own):
        raise StageError("copies", f"loopx lies a second time in the tree, at {extra[0]}: exactly one copy may be there")
    if missing := sorted(own - found):
        raise StageError("copies", f"loopx is not where it was installed: {missing[0]} is missing")
