"""Harbor's own digest of a task, and the ``dataset.toml`` that pins it.

Owns that algorithm and that file's format (Harbor 0.26.0, ``publisher/packager.py`` and ``models/dataset/manifest.py``).  Must not know
what a task's files mean.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from marathond.core.errors import ConfigError
from marathond.tasks.digest import Kind, Tree

MAX_MANIFEST_BYTES = 16 << 20
_DEFAULT_IGNORED_NAMES = frozenset({".DS_Store"})
_DEFAULT_IGNORED_SUFFIXES = (".pyc", ".swp", ".swo", "~")
_HARBOR_FILES = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_HARBOR_FOLDERS = ("environment", "tests", "solution", "steps")


def harbor_digest(tree: Tree) -> str:
    """Harbor's content hash of a task, hex sha256: over ``path NUL sha256 NEWLINE`` of the files that it publishes.

    :raises ConfigError: the task carries ignore rules, which this reader does not evaluate, or a name that is not UTF-8.
    """
    if rules := tree.get(".gitignore"):
        expected = "no .gitignore in a task that dataset.toml pins: its digest cannot be checked"
        raise ConfigError(str(tree.root / rules.relative), "ignore rules", expected)
    outer = hashlib.sha256()
    for relative, sha256 in sorted(_published(tree)):
        try:
            outer.update(f"{relative}\0{sha256}\n".encode())
        except UnicodeEncodeError as error:
            raise ConfigError(str(tree.root), f"the file name {relative!r}", "file names in UTF-8") from error
    return outer.hexdigest()


def _published(tree: Tree) -> Iterator[tuple[str, str]]:
    for entry in tree.entries:
        top, _, rest = entry.relative.partition("/")
        if (rest and top not in _HARBOR_FOLDERS) or (not rest and top not in _HARBOR_FILES):
            continue
        # Harbor hashes a link to a file as that file, and leaves out a link to a folder.
        found = tree.resolve(entry.relative) if entry.kind is Kind.LINK else entry
        if found is None or found.kind is not Kind.FILE or _ignored(entry.relative) or _ignore_file(found.relative, entry.relative):
            continue
        yield entry.relative, found.sha256


def _ignored(relative: str) -> bool:
    *folders, name = relative.split("/")
    names = [*folders, name]
    return "__pycache__" in folders or any(part in _DEFAULT_IGNORED_NAMES or part.endswith(_DEFAULT_IGNORED_SUFFIXES) for part in names)


def _ignore_file(*paths: str) -> bool:
    return any(path.rsplit("/", 1)[-1] == ".harborignore" for path in paths)


def pinned_digest(path: Path, declared_name: str | None) -> tuple[Path, str] | None:
    """The digest that a ``dataset.toml`` above the task pins for it: (manifest, hex sha256), or None when nothing pins it.

    The manifest is looked for in the task's parent directory, then in its grand-parent.  An entry is the task's when its name is
    ``declared_name`` (``[task].name``), or, for a task that declares none, when its part after the slash is the directory's name.

    :raises ConfigError: the manifest is broken.
    """
    root = Path(os.path.realpath(path))
    for folder in (root.parent, root.parent.parent):
        manifest = folder / "dataset.toml"
        if manifest.is_file():
            digests = {
                digest
                for name, digest in _manifest_tasks(manifest)
                if (name == declared_name if declared_name is not None else name.rsplit("/", 1)[-1] == root.name)
            }
            if len(digests) > 1:
                raise ConfigError(str(manifest), f"{len(digests)} different digests for {declared_name or root.name}", "one per task")
            return (manifest, digests.pop()) if digests else None
    return None


def _manifest_tasks(manifest: Path) -> Iterator[tuple[str, str]]:
    try:
        with manifest.open("rb") as stream:
            text = stream.read(MAX_MANIFEST_BYTES + 1)
        if len(text) > MAX_MANIFEST_BYTES:
            raise ConfigError(str(manifest), f"more than {MAX_MANIFEST_BYTES} bytes", "a dataset manifest")
        table = tomllib.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(manifest), str(error) or type(error).__name__, "TOML that can be read") from error
    tasks = table.get("tasks", [])
    if not isinstance(tasks, list):
        raise ConfigError(f"{manifest}: tasks", repr(tasks)[:80], "[[tasks]] tables")
    for number, task in enumerate(tasks):
        name, digest = (task.get("name"), task.get("digest")) if isinstance(task, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(digest, str):
            raise ConfigError(f"{manifest}: tasks[{number}]", repr(task)[:80], "name and digest as text")
        scheme, _, value = digest.partition(":")
        if scheme != "sha256" or len(value) != 64 or not set(value) <= set("0123456789abcdef"):
            raise ConfigError(f"{manifest}: tasks[{number}].digest", digest[:80], "sha256: and 64 hex digits")
        yield name, value


def manifest_error(tree: Tree, path: Path, declared_name: str | None) -> str | None:
    """One line when a ``dataset.toml`` pins the task to another content than it has (or cannot be checked), else None."""
    try:
        pinned = pinned_digest(path, declared_name)
        if pinned is None:
            return None
        manifest, expected = pinned
        actual = harbor_digest(tree)
    except ConfigError as error:
        return str(error)
    if actual == expected:
        return None
    return f"{manifest}: pins sha256:{expected[:12]}… for this task: its files have sha256:{actual[:12]}…"
