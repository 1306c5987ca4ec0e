"""What is tried out of a LoopX tree on this host, before it gets its name: its Python, its Node, LoopX itself.

Owns which answers are good enough.  LoopX's own limits are read from LoopX.  Everything runs with folders of our own as its home.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.core.errors import StageError
from marathond.core.text import printable
from marathond.staging import children
from marathond.staging import loopx_tree as layout

RUN_S = 300.0
_AT = "1970-01-01T00:00:00+00:00"
"""Instead of the clock's time, in what LoopX writes beside its skills: a tree that is staged again is the same again."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_OF_ANY_GLIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|pthread|rt|util|resolv))[.-].*")
_MARK = "marathond "

_PYTHON = """
import json, sys
told = {"version": ".".join(map(str, sys.version_info[:3])), "path": sys.path, "sqlite": "", "why": ""}
try:
    import hashlib, ssl, zlib
    import sqlite3
    sqlite3.connect(":memory:").execute("select 1").fetchone()
    told["sqlite"] = sqlite3.sqlite_version
except Exception as error:
    told["why"] = f"{type(error).__name__}: {error}"
with open("/proc/self/maps") as maps:
    told["maps"] = sorted({line.split(None, 5)[5].strip() for line in maps if ".so" in line})
print("marathond " + json.dumps(told))
"""

_LOOPX = """
import importlib.metadata, json
import loopx
from loopx.capabilities.benchmark_toolkit.native_codex_profile import NATIVE_CODEX_PROFILE_REQUIRED_SKILL_IDS
from loopx.control_plane.runtime.node_probe import MINIMUM_NODE_VERSION
print("marathond " + json.dumps({
    "version": importlib.metadata.version("loopx"),
    "at": loopx.__file__,
    "skills": list(NATIVE_CODEX_PROFILE_REQUIRED_SKILL_IDS),
    "node": list(MINIMUM_NODE_VERSION),
}))
"""


@dataclass(frozen=True, slots=True)
class PythonSeen:
    """Versions as the interpreter itself says them."""

    version: str
    sqlite: str


@dataclass(frozen=True, slots=True)
class LoopXSeen:
    """What LoopX says of itself: its version, the skills that a profile must have, the oldest Node that it takes."""

    version: str
    skills: tuple[str, ...]
    node: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the tree ``root`` is tried out; ``python``: name of the interpreter in it; ``aside``: a folder of ours."""

    root: Path
    python: str
    aside: Path

    @property
    def interpreter(self) -> Path:
        return self.root / layout.PYTHON / "bin" / self.python

    def environ(self) -> dict[str, str]:
        """LoopX's, as its wrapper gives it in a container; a hash seed, for what is compiled must not differ from time to time."""
        home = str(self.aside)
        return {
            "PATH": f"{(self.root / layout.NODE).parent}:{os.defpath}",
            **dict.fromkeys(("HOME", "TMPDIR", "TMP", "TEMP", "CODEX_HOME"), home),
            "LANG": "C.UTF-8",
            "LOOPX_USAGE_PING": "0",
            "PYTHONPATH": str(self.root / layout.site_packages(self.python)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONHASHSEED": "0",
        }


def python(bench: Bench, wanted: str) -> PythonSeen:
    """It runs, is all that it needs, and has sqlite3.

    :raises StageError: ``python``, with what is missing.
    """
    environ = {"PATH": os.defpath, "HOME": str(bench.aside)}
    what = f"loopx.python: {wanted}: {bench.python}"
    tried = children.tried([str(bench.interpreter), "-B", "-I", "-c", "pass"], bench.aside, environ, what, "python")
    if tried.status != 0:
        raise StageError("python", f"{what} does not run on this host, where LoopX writes its skills: {tried.said}")
    told = _told(bench, [str(bench.interpreter), "-B", "-I", "-S", "-c", _PYTHON], environ, what, "python")
    if told["why"]:
        raise StageError("python", f"{what} has no sqlite3 that works, LoopX keeps its state in it: {printable(told['why'], 300)}")
    home = bench.root / layout.PYTHON
    for path in told["path"]:
        if not Path(path).is_relative_to(home) and Path(path).exists():
            raise StageError("python", f"{what} cannot be moved: it looks for modules in {path}")
    for library in told["maps"]:
        if not Path(library).is_relative_to(home) and not _OF_ANY_GLIBC.fullmatch(Path(library).name):
            raise StageError("python", f"{what} cannot be moved: it loads {library} of this host, which an image need not have")
    return PythonSeen(told["version"], told["sqlite"])


def loopx(bench: Bench) -> LoopXSeen:
    """It can be imported, from its one place, by the Python beside it.  Raises StageError ``loopx``."""
    told = _told(bench, [str(bench.interpreter), "-c", _LOOPX], bench.environ(), "loopx", "loopx")
    expected = bench.root / layout.site_packages(bench.python) / "loopx" / "__init__.py"
    if Path(told["at"]) != expected:
        raise StageError("copies", f"loopx is imported from {told['at']}, not from {expected}")
    return LoopXSeen(told["version"], tuple(told["skills"]), tuple(told["node"]))


def node(program: Path, aside: Path, source: str, wanted: str, seen: LoopXSeen) -> str:
    """Its version, new enough for LoopX and the one that was asked for.

    :raises StageError: ``node``.
    """
    tried = children.tried([str(program), "--version"], aside, {"PATH": os.defpath, "HOME": str(aside)}, f"{source}: bin/node", "node")
    found = _VERSION.match(tried.said)
    if tried.status != 0 or found is None:
        raise StageError("node", f"{source}: bin/node --version exits {tried.status} and says {tried.said}")
    version = tuple(map(int, found.groups()))
    least = ".".join(map(str, seen.node))
    if version < seen.node:
        raise StageError("node", f"{source}: is Node {'.'.join(map(str, version))}, LoopX {seen.version} needs at least {least}")
    if (held := tried.said.removeprefix("v")) != wanted:
        raise StageError("node", f"{source}: is Node {held}, the configuration asks for {wanted} (loopx.node_version)")
    return held


def write_skills(bench: Bench, seen: LoopXSeen) -> None:
    """Have LoopX write its skills into the tree, for the CLI at its final path.

    :raises StageError: ``skills``: it fails, or leaves one out that it requires itself.
    """
    target = bench.root / layout.SKILLS
    argv = [str(bench.interpreter), "-m", "loopx.entrypoint", "--format", "json", "workflow-skills", "--install"]
    argv += ["--skills-dir", str(target), "--cli-bin", f"{layout.ROOT}/{layout.CLI}"]
    ended = children.run(argv, bench.aside, bench.aside / "skills.log", RUN_S, environ=bench.environ())
    if ended.status != 0:
        raise children.failed("loopx could not write its skills", "skills", ended, bench.aside, RUN_S)
    there = {found.parent.name for found in target.glob("*/SKILL.md")}
    if missing := sorted(set(seen.skills) - there):
        raise StageError("skills", f"loopx {seen.version} wrote no skill {missing[0]}, which it requires of a profile")
    (target / ".loopx-workflow-skills.lock").unlink(missing_ok=True)  # who held it, and when
    readback = target / ".loopx-skill-install.json"
    try:
        told = json.loads(readback.read_text())
        readback.write_text(json.dumps({**told, "installed_at": _AT}, indent=2, ensure_ascii=False) + "\n")
    except (OSError, ValueError, TypeError) as error:
        raise StageError("skills", f"loopx {seen.version} left no {readback.name} that can be read: {error}") from error


def compile_modules(bench: Bench) -> str:
    """Write the compiled form of every module beside it: nothing can be written there later.  Words of what could not be, or empty.

    Never compared with the source's time: in a container that time may be any.  One process, in one order: else it differs each time.
    """
    folders = [str(bench.root / layout.PYTHON / "lib" / bench.python), str(bench.root / layout.site_packages(bench.python))]
    argv = [str(bench.interpreter), "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    argv += ["-s", str(bench.root), "-p", layout.ROOT, *folders]
    environ = {name: value for name, value in bench.environ().items() if name != "PYTHONPATH"}
    ended = children.run(argv, bench.aside, bench.aside / "compile.log", RUN_S, environ=environ)
    return "" if ended.status == 0 else children.last_line(ended.out)


def _told(bench: Bench, argv: Sequence[str], environ: Mapping[str, str], what: str, code: str) -> dict[str, Any]:
    """The one marked line that our own script prints."""
    ended = children.run(argv, bench.aside, bench.aside / f"{code}.log", RUN_S, environ=environ)
    line = next((line for line in ended.out.splitlines() if line.startswith(_MARK)), None)
    if ended.status != 0 or line is None:
        raise children.failed(f"{what} fails", code, ended, bench.aside, RUN_S)
    told: dict[str, Any] = json.loads(line.removeprefix(_MARK))
    return told
