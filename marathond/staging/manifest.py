"""What is staged, as a file beside each tree: ``staged/PACKAGE_ID/{manifest.json,tree/}``.

Owns the format and its checks.  A manifest vouches for itself (the digest of its entries is in the package's name), so that reading it
and looking at sizes and times is enough to trust a tree; reading every byte of the tree is another, slower call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from marathond.core.errors import StageError
from marathond.staging.pins import sri
from marathond.staging.tree import Entry, Tick, difference, digest, hashed, io_error, survey, sync_folder

FORMAT = 1
NAME = "manifest.json"
TREE = "tree"
MANIFEST_MAX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tree came from; the same tree may have come from several places.

    :param source: ``npm @openai/codex@0.171.0-linux-x64``, ``folder /opt/codex``, or the several parts of LoopX's.
    :param integrity: SRI of the package's tarball; of a folder ``sha256-`` and the tree's digest; of several parts each.
    :param dropped: paths of the package that are not staged; a folder's ends with a slash.
    :param seen: fingerprint of a folder's names, sizes and times when it was read, empty for a package.
    """

    source: str
    integrity: str
    dropped: tuple[str, ...] = ()
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One staged tree.  ``entries`` hold every file with its hash and the time at which it was written."""

    name: str
    version: str
    entries: tuple[Entry, ...]
    origins: tuple[Origin, ...]

    @property
    def tree_sha256(self) -> str:
        return digest(self.entries)

    @property
    def package_id(self) -> str:
        return f"{self.name}-{self.version}-{self.tree_sha256[:12]}"


@dataclass(frozen=True, slots=True)
class StagedTree:
    """A tree that lies ready to be mounted read-only.

    :param package_id: ``codex-0.171.0-`` and the first 12 hex digits of ``tree_sha256``: another byte, another id.
    :param root: the folder with ``bin/codex``, absolute if ``state_dir`` was.
    :param source: ``npm @openai/codex@0.171.0-linux-x64`` or ``folder /opt/codex``.
    :param integrity: SRI of the package's tarball; of a folder ``sha256-…``, the tree's digest.
    :param tree_sha256: hex, over paths, kinds, permission bits and contents.
    :param dropped: paths of the package that are not staged.
    """

    package_id: str
    root: Path
    version: str
    source: str
    integrity: str
    tree_sha256: str
    bytes: int
    files: int
    dropped: tuple[str, ...]


def staged_tree(package: Path, manifest: Manifest, origin: Origin) -> StagedTree:
    """``package``: the folder that holds the manifest and the tree."""
    files = [entry for entry in manifest.entries if entry.kind == "file"]
    return StagedTree(
        package_id=manifest.package_id,
        root=package / TREE,
        version=manifest.version,
        source=origin.source,
        integrity=origin.integrity,
        tree_sha256=manifest.tree_sha256,
        bytes=sum(entry.size for entry in files),
        files=len(files),
        dropped=origin.dropped,
    )


def tree_integrity(tree_sha256: str) -> str:
    """The digest as SRI, which is how a folder's tree is pinned in the configuration."""
    return sri("sha256", bytes.fromhex(tree_sha256))


def fingerprint(folder: Path, skip: Callable[[str], bool] | None = None) -> str:
    """Changes when a file of ``folder`` is written, added or removed; empty when there is no such folder.  Raises as ``survey``.

    :param skip: as ``survey`` takes it.
    """
    if not folder.is_dir():
        return ""
    return digest(Entry(e.path, e.kind, e.mode, sha256=f"{e.size}:{e.mtime_ns}", target=e.target) for e in survey(folder, skip))


def write(package: Path, manifest: Manifest) -> None:
    """Replace the manifest in ``package``; whole and on the disk, or the old one stays."""
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n"
    aside = package / f".{NAME}.new"
    try:
        with aside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(package / NAME)
    except OSError as error:
        raise io_error(package / NAME, error) from error
    sync_folder(package)


def read(package: Path) -> Manifest:
    """The manifest in ``package``, checked against the folder's own name.

    :raises StageError: ``altered``: missing, unreadable, or not the one that was written.
    """
    where = package / NAME
    try:
        with where.open("rb") as stream:
            raw = json.loads(stream.read(MANIFEST_MAX_BYTES))
        manifest = _decoded(raw)
        package_id = manifest.package_id
    except FileNotFoundError as error:
        raise StageError("altered", f"{package}: {NAME} is missing") from error
    except OSError as error:
        raise io_error(where, error) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StageError("altered", f"{where}: is damaged") from error
    if package_id != package.name:
        raise StageError("altered", f"{where}: describes {package_id}, the folder is {package.name}")
    return manifest


def _decoded(raw: dict[str, Any]) -> Manifest:
    if raw["format"] != FORMAT:
        raise ValueError(f"format {raw['format']}")
    entries = tuple(Entry(**entry) for entry in raw["entries"])
    origins = tuple(Origin(**{**origin, "dropped": tuple(origin["dropped"])}) for origin in raw["origins"])
    return Manifest(str(raw["name"]), str(raw["version"]), entries, origins)


def check(package: Path, manifest: Manifest, tick: Tick | None = None) -> Manifest:
    """Compare the tree with its manifest: names, kinds, modes, sizes and times; with ``tick`` every byte instead of the times.

    :returns: the manifest with the times that were found.
    :raises StageError: ``altered``, with the file's name.
    """
    root = package / TREE
    found = survey(root)
    if tick is not None:
        found = tuple(hashed(root, entry, tick) for entry in found)
    if problem := difference(manifest.entries, found):
        raise StageError("altered", f"{root}/{problem}")
    return replace(manifest, entries=found) if tick is not None else manifest
