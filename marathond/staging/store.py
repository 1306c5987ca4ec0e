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
import errno
import fcntl
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from marathond.core.errors import StageError as StageError
from marathond.core.text import printable
from marathond.staging import manifest as manifests
from marathond.staging import npm, pins, tree
from marathond.staging.manifest import Manifest, Origin
from marathond.staging.manifest import StagedTree as StagedTree
from marathond.staging.pins import Wanted as Wanted
from marathond.staging.progress import Meter, Say
from marathond.staging.progress import Progress as Progress

PACKAGES = {"codex": npm.Package("@openai/codex@{version}-linux-x64", "vendor/x86_64-unknown-linux-musl")}
PROGRAM = "bin/codex"

LOCK_WAIT_S = 3600.0
"""As long as the other one may fetch."""

_LOCK_LOOK_S = 0.2
_VERSION_S = 60.0
_BUSY_TRIES, _BUSY_PAUSE_S = 50, 0.1
_REMOVE_ROUNDS = 5
_ASIDE = "aside-"
_ALTERED = "altered-"
_SAID = re.compile(r"\d+\.\d+\.\d+\S*")


@dataclass(frozen=True, slots=True)
class Look:
    """``tree``, or in one line ``why`` there is none: nothing staged, or which file of it is not as it was."""

    tree: StagedTree | None
    why: str = ""


def find(state_dir: Path, wanted: Wanted) -> StagedTree | None:
    """What is staged and matches, by its manifest and a look at sizes, modes and times; no contents are read, no network is used."""
    return look(state_dir, wanted).tree


def look(state_dir: Path, wanted: Wanted) -> Look:
    """As :func:`find`, with the reason.  A source folder that was written to since it was staged does not match; one that is gone does."""
    staged = state_dir.absolute() / "staged"
    why = f"{wanted.name} {wanted.version} is not staged in {staged}"
    try:
        seen = _seen(wanted)
    except StageError as error:
        return Look(None, str(error))
    for package in _packages(staged, wanted):
        try:
            manifest = manifests.read(package)
            origin = manifests.matching(manifest, wanted, seen)
            if origin is None:
                continue
            manifests.check(package, manifest)
        except StageError as error:
            why = str(error)
        else:
            return Look(manifests.staged_tree(package, manifest, origin))
    return Look(None, why)


def _packages(staged: Path, wanted: Wanted) -> list[Path]:
    """Folders of that name and version, the newest first."""
    dated = []
    for package in staged.glob(f"{wanted.name}-{wanted.version}-*"):
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


def stage(state_dir: Path, wanted: Wanted, say: Say, *, patience_s: float = LOCK_WAIT_S) -> StagedTree:
    """Make sure that it is staged: what is there is verified byte by byte, what is missing or altered is fetched or copied (again).

    Safe beside another one, which is waited for, and after one that was killed.

    :param say: told what happens; a ``note`` names what was found broken.
    :raises StageError: one clear line; ``busy`` when another one was at work for longer than ``patience_s``.
    """
    if problem := _problem(wanted):
        raise problem
    staged = state_dir.absolute() / "staged"
    try:
        staged.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise tree.io_error(staged, error) from error
    with _alone(staged, patience_s, say):
        _sweep(staged, say)
        if (there := _intact(staged, wanted, say)) is not None:
            return there
        aside = staged / f"{_ASIDE}{secrets.token_hex(6)}"
        tree.make_folder(aside)
        try:
            return _made(staged, aside, wanted, say)
        finally:
            _remove(aside)


def _problem(wanted: Wanted) -> StageError | None:
    if wanted.name not in PACKAGES:
        return StageError("package", f"{wanted.name}: no such package; known: {', '.join(PACKAGES)}")
    if words := pins.version_problem(wanted.version):
        return StageError("version", f"{wanted.name} {wanted.version}: {words}")
    if wanted.integrity is None:
        return None if wanted.folder is not None else StageError("integrity", f"{wanted.name} {wanted.version}: no integrity hash is given")
    if words := pins.integrity_problem(wanted.integrity, from_folder=wanted.folder is not None):
        return StageError("integrity", f"{wanted.name} {wanted.version}: integrity {words}")
    return None


def _intact(staged: Path, wanted: Wanted, say: Say) -> StagedTree | None:
    """What is there and passes the full check; what does not is named."""
    seen = _seen(wanted)
    for package in _packages(staged, wanted):
        try:
            manifest = manifests.read(package)
            origin = manifests.matching(manifest, wanted, seen)
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


def _seen(wanted: Wanted) -> str:
    return manifests.fingerprint(wanted.folder) if wanted.folder is not None and wanted.integrity is None else ""


def _made(staged: Path, aside: Path, wanted: Wanted, say: Say) -> StagedTree:
    """Fetch or copy, check against the pins, publish."""
    package = aside / "package"
    tree.make_folder(package)
    if wanted.folder is not None:
        source = f"folder {wanted.folder}"
        entries, seen = _read_folder(wanted.folder, wanted, say)
        manifest = Manifest(wanted.name, wanted.version, entries, ())
        origin = Origin(source, manifests.tree_integrity(manifest.tree_sha256), seen=seen)
        if (there := _published(staged, manifest, origin)) is not None:
            return there
        total = sum(entry.size for entry in entries)
        tree.copy(wanted.folder, entries, package / manifests.TREE, Meter(say, "copying", str(wanted.folder), total))
        hashes = {entry.path: entry.sha256 for entry in entries}
    else:
        spec = PACKAGES[wanted.name].spec.format(version=wanted.version)
        source = f"npm {spec}"
        unpacked = _fetched(aside, spec, package / manifests.TREE, wanted, say)
        hashes, origin = unpacked.hashes, Origin(source, wanted.integrity or "", unpacked.dropped)
    _says_version(package / manifests.TREE / PROGRAM, source, wanted.version, aside / "home")
    # Surveyed, not remembered: the times at which the files were written are what a cheap look compares.
    found = tree.survey(package / manifests.TREE)
    entries = tuple(replace(entry, sha256=hashes.get(entry.path, "")) for entry in found)
    manifest = Manifest(wanted.name, wanted.version, entries, (origin,))
    if (there := _published(staged, manifest, origin)) is not None:
        return there
    manifests.write(package, manifest)
    return _publish(staged, package, manifest, say)


def _read_folder(folder: Path, wanted: Wanted, say: Say) -> tuple[tuple[tree.Entry, ...], str]:
    """Its entries with hashes, and its fingerprint from before they were read: what is written meanwhile shows later."""
    if not (folder / PROGRAM).is_file():
        raise StageError("folder", f"{folder}: has no {PROGRAM}; expected the content of {PACKAGES[wanted.name].inside}")
    seen = manifests.fingerprint(folder)
    found = tuple(map(tree.settled, tree.survey(folder)))
    meter = Meter(say, "reading", str(folder), sum(entry.size for entry in found))
    entries = tuple(tree.hashed(folder, entry, meter) for entry in found)
    held = manifests.tree_integrity(tree.digest(entries))
    if wanted.integrity not in {None, held}:
        raise StageError("integrity", f"{folder}: has integrity {held}, the configuration pins {wanted.integrity}")
    return entries, seen


def _fetched(aside: Path, spec: str, target: Path, wanted: Wanted, say: Say) -> npm.Unpacked:
    npm.npm_program(spec)  # before anybody is told that it is being fetched
    tarball = npm.fetch(spec, aside / "npm", Meter(say, "fetching", spec).reached)
    size = tarball.stat().st_size
    held = npm.tarball_integrity(tarball, Meter(say, "checking", spec, size))
    if held != wanted.integrity:
        raise StageError("integrity", f"{spec}: has integrity {held}, the configuration pins {wanted.integrity}")
    inside = PACKAGES[wanted.name].inside
    unpacked = npm.unpack(tarball, inside, target, Meter(say, "unpacking", spec, npm.unpacked_bytes(tarball)))
    if unpacked.label != spec:
        raise StageError("package", f"{spec}: calls itself {printable(unpacked.label, 100) or 'nothing'}")
    if PROGRAM not in unpacked.hashes:
        raise StageError("package", f"{spec}: has no {inside}/{PROGRAM}")
    return unpacked


def _says_version(program: Path, source: str, version: str, home: Path) -> None:
    """Run it, here where it will lie: a file system without exec or a foreign architecture shows now, and not in every trial."""
    tree.make_folder(home)
    environ = {"PATH": os.defpath, "HOME": str(home), "CODEX_HOME": str(home)}
    for _ in range(_BUSY_TRIES):
        try:
            done = subprocess.run(
                [program, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environ,
                cwd=home,
                timeout=_VERSION_S,
                check=False,
            )
            break
        except subprocess.TimeoutExpired as error:
            raise StageError("version", f"{source}: {PROGRAM} --version does not end") from error
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise StageError("version", f"{source}: {PROGRAM} cannot be run: {(error.strerror or str(error)).lower()}") from error
            time.sleep(_BUSY_PAUSE_S)  # a process that another thread is just starting holds our closed descriptor for a moment
    else:
        raise StageError("version", f"{source}: {PROGRAM} cannot be run: another process has it open for writing")
    said = printable(done.stdout.decode(errors="replace"), 100)
    found = _SAID.search(said)
    if done.returncode != 0 or found is None:
        words = said or printable(done.stderr.decode(errors="replace"), 200) or "nothing"
        raise StageError("version", f"{source}: {PROGRAM} --version exits {done.returncode} and says {words}")
    if found[0] != version:
        raise StageError("version", f"{source}: is {found[0]}, the configuration asks for {version}")


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
    """Several rounds: where setpriv is missing, an npm may outlive us and still be writing there.  What stays, the next staging removes."""
    for _ in range(_REMOVE_ROUNDS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
