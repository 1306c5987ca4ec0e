"""The staged trees below ``state_dir/staged/``: found cheaply, verified byte by byte, staged once.

    staged/lock                       held by whoever stages
    staged/aside-…/                   work in progress; whatever lies there while nobody holds the lock was left by a killed one
    staged/codex-0.171.0-<12 hex>/    manifest.json, and tree/, which containers mount read-only
    staged/altered-…/                 one of those that was found altered and replaced; a person removes it

Owns the order of things: made aside, synced, checked against the pins, renamed.  A tree that has its final name is whole.  Functions
block for as long as the network and the disk take: call them from a worker thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from marathond.core.errors import StageError as StageError
from marathond.staging import children, tree
from marathond.staging import manifest as manifests
from marathond.staging.codex import CodexMaker
from marathond.staging.loopx import LoopXMaker
from marathond.staging.making import Ground, Maker
from marathond.staging.manifest import Manifest, Origin
from marathond.staging.manifest import StagedTree as StagedTree
from marathond.staging.pins import Wanted as Wanted
from marathond.staging.pins_loopx import WantedLoopX as WantedLoopX
from marathond.staging.progress import Meter, Say
from marathond.staging.progress import Progress as Progress

Asked = Wanted | WantedLoopX
"""What the configuration asks for."""

LOCK_WAIT_S = 3600.0
"""As long as the other one may fetch."""

_LOCK_LOOK_S = 0.2
_REMOVE_ROUNDS = 5
_ASIDE = "aside-"
_ALTERED = "altered-"


@dataclass(frozen=True, slots=True)
class Look:
    """``tree``, or in one line ``why`` there is none: nothing staged, or which file of it is not as it was."""

    tree: StagedTree | None
    why: str = ""


def find(state_dir: Path, asked: Asked) -> StagedTree | None:
    """What is staged and matches, by its manifest and a look at sizes, modes and times; no contents are read, no network is used."""
    return look(state_dir, asked).tree


def look(state_dir: Path, asked: Asked) -> Look:
    """As :func:`find`, with the reason.  A source folder that was written to since it was staged does not match; one that is gone does."""
    staged, maker = state_dir.absolute() / "staged", _maker(asked)
    why = f"{maker.name} {maker.version} is not staged in {staged}"
    try:
        seen = maker.seen()
    except StageError as error:
        return Look(None, str(error))
    for package in _packages(staged, maker):
        try:
            manifest = manifests.read(package)
            origin = maker.matching(manifest, seen)
            if origin is None:
                continue
            manifests.check(package, manifest)
        except StageError as error:
            why = str(error)
        else:
            return Look(manifests.staged_tree(package, manifest, origin))
    return Look(None, why)


def _maker(asked: Asked) -> Maker:
    return LoopXMaker(asked) if isinstance(asked, WantedLoopX) else CodexMaker(asked)


def _packages(staged: Path, maker: Maker) -> list[Path]:
    """Folders of that name and version, the newest first."""
    dated = []
    for package in staged.glob(f"{maker.name}-{maker.version}-*"):
        with contextlib.suppress(FileNotFoundError):
            dated.append((-package.stat().st_mtime_ns, package))
    return [package for _, package in sorted(dated)]


def verify(staged: StagedTree, say: Say | None = None) -> None:
    """Read every byte of it.

    :raises StageError: ``altered``, naming the first file that differs from what was staged.
    """
    package = staged.root.parent
    manifest = manifests.read(package)
    if manifest.tree_sha256 != staged.tree_sha256:
        raise StageError("altered", f"{package}: holds another tree by now, {manifest.tree_sha256}")
    manifests.check(package, manifest, Meter(say or _silent, "verifying", staged.package_id, staged.bytes))


def _silent(_: Progress) -> None:
    """For a caller that shows nothing."""


def stage(state_dir: Path, asked: Asked, say: Say, *, patience_s: float = LOCK_WAIT_S) -> StagedTree:
    """Make sure that it is staged: what is there is verified byte by byte, what is missing or altered is fetched or copied (again).

    Safe beside another one, which is waited for, and after one that was killed.

    :param say: told what happens; a ``note`` names what was found broken.
    :raises StageError: one clear line; ``busy`` when another one was at work for longer than ``patience_s``.
    """
    maker = _maker(asked)
    if problem := maker.problem():
        raise problem
    staged = state_dir.absolute() / "staged"
    try:
        staged.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise tree.io_error(staged, error) from error
    with _alone(staged, patience_s, say):
        _sweep(staged, say)
        if (there := _intact(staged, maker, say)) is not None:
            return there
        aside = staged / f"{_ASIDE}{secrets.token_hex(6)}"
        tree.make_folder(aside)
        try:
            return _made(staged, aside, maker, say)
        finally:
            _remove(aside)


def _intact(staged: Path, maker: Maker, say: Say) -> StagedTree | None:
    """What is there and passes the full check; what does not is named."""
    seen = maker.seen()
    for package in _packages(staged, maker):
        try:
            manifest = manifests.read(package)
            origin = maker.matching(manifest, seen)
            if origin is None:
                continue
            size = sum(entry.size for entry in manifest.entries)
            found = manifests.check(package, manifest, Meter(say, "verifying", package.name, size))
        except StageError as error:
            say(Progress("note", str(error)))
            continue
        if found != manifest:  # touched, or restored from a backup: the same bytes at other times
            manifests.write(package, found)
        return manifests.staged_tree(package, found, origin)
    return None


def _made(staged: Path, aside: Path, maker: Maker, say: Say) -> StagedTree:
    """Have it made, publish it."""
    package, work = aside / "package", aside / "work"
    target = package / manifests.TREE
    for folder in (package, work):
        tree.make_folder(folder)
    made = maker.make(Ground(work, target, say, lambda manifest, origin: _published(staged, manifest, origin)))
    if isinstance(made, StagedTree):
        return made
    # Surveyed, not remembered: the times at which the files were written are what a cheap look compares.
    found = tree.survey(target)
    unread = sum(entry.size for entry in found if entry.path not in made.hashes)
    meter = Meter(say, "reading", maker.name, unread) if unread else _count
    entries = tuple(
        replace(entry, sha256=made.hashes[entry.path]) if entry.path in made.hashes else tree.hashed(target, entry, meter)
        for entry in found
    )
    manifest = Manifest(maker.name, maker.version, entries, (made.origin,))
    if (there := _published(staged, manifest, made.origin)) is not None:
        return there
    manifests.write(package, manifest)
    return _publish(staged, package, manifest, say)


def _published(staged: Path, manifest: Manifest, origin: Origin) -> StagedTree | None:
    """The same tree, already staged and whole: it learns one more origin.  None when it is not there, or not whole."""
    final = staged / manifest.package_id
    try:
        there = manifests.check(final, manifests.read(final), _count)
    except StageError:
        return None
    others = tuple(one for one in there.origins if one.source != origin.source)
    there = replace(there, origins=(origin, *others))
    manifests.write(final, there)
    return manifests.staged_tree(final, there, origin)


def _count(_: int) -> None:
    """A full check without a display."""


def _publish(staged: Path, package: Path, manifest: Manifest, say: Say) -> StagedTree:
    final = staged / manifest.package_id
    try:
        if final.exists():
            # Not removed: a container that runs has it mounted, and somebody may want to see what happened to it.
            kept = staged / f"{_ALTERED}{final.name}-{secrets.token_hex(3)}"
            final.rename(kept)
            say(Progress("note", f"{final.name} is staged again; the altered one is kept as {kept.name}, remove it when no trial runs"))
        package.rename(final)
        tree.sync_folder(staged)
    except OSError as error:
        raise tree.io_error(final, error) from error
    return manifests.staged_tree(final, manifest, manifest.origins[0])


@contextlib.contextmanager
def _alone(staged: Path, patience_s: float, say: Say) -> Iterator[None]:
    """Hold the lock; it ends with the process that holds it, however that ends."""
    end = time.monotonic() + patience_s
    try:
        stream = (staged / "lock").open("a+")
    except OSError as error:
        raise tree.io_error(staged / "lock", error) from error
    with stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                stream.seek(0)
                holder = f"pid {stream.read(20).strip() or 'unknown'}"
                if time.monotonic() >= end:
                    raise StageError("busy", f"{staged}: another staging is at work, {holder}") from None
                say(Progress("waiting", f"for another staging, {holder}"))
                time.sleep(_LOCK_LOOK_S)
        with contextlib.suppress(OSError):  # the number is for the reader; on a full disk the lock holds all the same
            stream.truncate(0)
            stream.write(f"{os.getpid()}\n")
            stream.flush()
        yield


def _sweep(staged: Path, say: Say) -> None:
    """Only under the lock: nobody else is at work, so whatever lies aside was left behind."""
    for left in sorted(staged.glob(f"{_ASIDE}*")):
        say(Progress("note", f"{left.name}: left by a staging that was killed; removed"))
        _remove(left)


def _remove(folder: Path) -> None:
    """Several rounds: what was just ended there may have written meanwhile.  What stays, the next staging removes."""
    children.end_left(folder)
    for _ in range(_REMOVE_ROUNDS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
