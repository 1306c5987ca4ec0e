"""The package ``codex``: npm's package for this platform unpacked whole, or a copy of a local folder.

Owns its pins' meaning and the proof that the program is the version that was asked for.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import StageError
from marathond.staging import children, npm, pins, tree
from marathond.staging import manifest as manifests
from marathond.staging.making import Ground, Made
from marathond.staging.manifest import Manifest, Origin, StagedTree
from marathond.staging.pins import Wanted
from marathond.staging.progress import Meter, Say

PROGRAM = "bin/codex"
PACKAGE = npm.Package("@openai/codex@{version}-linux-x64", "vendor/x86_64-unknown-linux-musl", PROGRAM, "codex.folder")

_SAID = re.compile(r"\d+\.\d+\.\d+\S*")


@dataclass(frozen=True, slots=True)
class CodexMaker:
    """See :class:`marathond.staging.making.Maker`."""

    wanted: Wanted

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def version(self) -> str:
        return self.wanted.version

    def problem(self) -> StageError | None:
        wanted = self.wanted
        if wanted.name != "codex":
            return StageError("package", f"{wanted.name}: no such package; known: codex, loopx")
        if words := pins.version_problem(wanted.version):
            return StageError("version", f"{wanted.name} {wanted.version}: {words}")
        if wanted.integrity is None:
            return (
                None
                if wanted.folder is not None
                else StageError("integrity", f"{wanted.name} {wanted.version}: no integrity hash is given")
            )
        if words := pins.integrity_problem(wanted.integrity, from_folder=wanted.folder is not None):
            return StageError("integrity", f"{wanted.name} {wanted.version}: integrity {words}")
        return None

    def seen(self) -> str:
        """Of a folder that is not pinned by its content."""
        wanted = self.wanted
        return manifests.fingerprint(wanted.folder) if wanted.folder is not None and wanted.integrity is None else ""

    def matching(self, manifest: Manifest, seen: str) -> Origin | None:
        """A folder that is gone counts as it was staged."""
        wanted = self.wanted
        if (manifest.name, manifest.version) != (wanted.name, wanted.version):
            return None
        for origin in manifest.origins:
            if wanted.folder is None:
                if origin.integrity == wanted.integrity:
                    return origin
            elif wanted.integrity is not None:  # pinned by its content: whence it came does not matter
                if manifests.tree_integrity(manifest.tree_sha256) == wanted.integrity:
                    return origin
            elif origin.source == f"folder {wanted.folder}" and seen in {origin.seen, ""}:
                return origin
        return None

    def make(self, ground: Ground) -> Made | StagedTree:
        wanted, target = self.wanted, ground.target
        if wanted.folder is not None:
            source = f"folder {wanted.folder}"
            entries, seen = _read_folder(wanted.folder, wanted, ground.say)
            manifest = Manifest(wanted.name, wanted.version, entries, ())
            origin = Origin(source, manifests.tree_integrity(manifest.tree_sha256), seen=seen)
            if (there := ground.there(manifest, origin)) is not None:
                return there
            total = sum(entry.size for entry in entries)
            tree.copy(wanted.folder, entries, target, Meter(ground.say, "copying", str(wanted.folder), total))
            hashes = {entry.path: entry.sha256 for entry in entries}
        else:
            source = f"npm {PACKAGE.spec.format(version=wanted.version)}"
            unpacked = npm.fetched(PACKAGE, wanted.version, wanted.integrity, ground.aside / "npm", target, ground.say)
            hashes, origin = unpacked.hashes, Origin(source, wanted.integrity or "", unpacked.dropped)
        _says_version(target / PROGRAM, source, wanted.version, ground.aside)
        return Made(origin, hashes)


def _read_folder(folder: Path, wanted: Wanted, say: Say) -> tuple[tuple[tree.Entry, ...], str]:
    """Its entries with hashes, and its fingerprint from before they were read: what is written meanwhile shows later."""
    if not (folder / PROGRAM).is_file():
        raise StageError("folder", f"{folder}: has no {PROGRAM}; expected the content of {PACKAGE.inside}")
    seen = manifests.fingerprint(folder)
    found = tuple(map(tree.settled, tree.survey(folder)))
    meter = Meter(say, "reading", str(folder), sum(entry.size for entry in found))
    entries = tuple(tree.hashed(folder, entry, meter) for entry in found)
    held = manifests.tree_integrity(tree.digest(entries))
    if wanted.integrity not in {None, held}:
        raise StageError("integrity", f"{folder}: has integrity {held}, the configuration pins {wanted.integrity}")
    return entries, seen


def _says_version(program: Path, source: str, version: str, aside: Path) -> None:
    """Run it, here where it will lie: a file system without exec or a foreign architecture shows now, and not in every trial."""
    home = aside / "home"
    tree.make_folder(home)
    environ = {"PATH": os.defpath, "HOME": str(home), "CODEX_HOME": str(home)}
    tried = children.tried([str(program), "--version"], home, environ, f"{source}: {PROGRAM}", "version")
    found = _SAID.search(tried.said)
    if tried.status != 0 or found is None:
        raise StageError("version", f"{source}: {PROGRAM} --version exits {tried.status} and says {tried.said}")
    if found[0] != version:
        raise StageError("version", f"{source}: is {found[0]}, the configuration asks for {version}")
