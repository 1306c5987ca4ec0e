"""Looks at folders: can they be written and synced, whose files become, how much room there is, what time they keep.

Owns the probe files; each is removed.  Blocking functions: a network file system may hang, so they are called aside.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import secrets
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from marathond.core.preflight import host as judge
from marathond.core.preflight.host import Offset, Place, Space
from marathond.core.preflight.rows import Row
from marathond.engine.host import disk_free, filesystem_type
from marathond.gateway.files import fsync_folder
from marathond.ledger.place import NETWORK_TYPES
from marathond.ports.host import HostUnknown
from marathond.service.preflight.run import aside, reason
from marathond.service.preflight.scene import Scene
from marathond.service.roots import OFFSET_MAX_MS, offset_ms

AGENT_UID = 1000
"""The uid that images give their first user; which uid exactly does not matter, only that it is not ours."""


def try_place(path: Path, *, agent_uid: int | None = AGENT_UID) -> Place:
    """Write, sync, rename and read back a file in ``path``; then as another uid, in a folder there that is open to everybody.

    :param agent_uid: None leaves the other uid out.
    """
    us = os.geteuid()
    try:
        status = path.stat()
        owner = f"{_user(status.st_uid)}, mode {status.st_mode & 0o7777:o}"
    except OSError as error:
        return Place(str(path), "", problem=_words("look", error), us=us)
    try:
        kind = filesystem_type(path)
    except HostUnknown:
        kind = ""
    network = kind in NETWORK_TYPES or kind.startswith("fuse.")
    probe: Path | None = None
    try:
        probe = Path(tempfile.mkdtemp(prefix=".marathond-preflight-", dir=path))
        seen_uid = _write(probe)
        as_agent = None if agent_uid is None or us != 0 else _as(agent_uid, probe)
        return Place(str(path), owner, "", kind, network, us, seen_uid, as_agent)
    except OSError as error:
        return Place(str(path), owner, _words("write", error), kind, network, us)
    finally:
        if probe is not None:
            _remove(probe)


def _write(probe: Path) -> int:
    """Whose the file became.  Raises OSError, with what was tried as its file name."""
    text = secrets.token_hex(16)
    aside_, final = probe / "aside", probe / "final"
    descriptor = os.open(aside_, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    aside_.rename(final)
    fsync_folder(probe)
    if final.read_text() != text:
        raise OSError(0, "what is read back is not what was written", str(final))
    return final.stat().st_uid


def _as(uid: int, probe: Path) -> str:
    """What a write as ``uid`` meets in a folder that is open to everybody; empty when it went well and the file is that uid's.

    The file system is asked in the name of a thread's own file-system uid (setfsuid(2)); the thread ends with it.  The folder is entered
    by descriptor: folders above that others may not pass (state_dir is ours alone) are no matter of this file system.
    """
    folder = probe / "open"
    folder.mkdir()
    folder.chmod(0o777)
    outcome: Future[str] = Future()
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        threading.Thread(target=lambda: outcome.set_result(_write_as(uid, handle)), name="as another", daemon=True).start()
        said = outcome.result()
    finally:
        os.close(handle)
    owner = uid if said else (folder / "file").stat().st_uid
    return said or ("" if owner == uid else f"its files become uid {owner}'s")


def _write_as(uid: int, folder: int) -> str:
    libc = ctypes.CDLL(None)
    libc.setfsgid(uid)
    libc.setfsuid(uid)
    if libc.setfsuid(-1) != uid:  # it tells the present one, and changes nothing
        return "this process may not act as another uid"
    try:
        descriptor = os.open("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.write(descriptor, b"x")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _remove(probe: Path) -> None:
    for name in ("open/file", "aside", "final"):
        with contextlib.suppress(OSError):
            (probe / name).unlink()
    for folder in (probe / "open", probe):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"uid {uid}"


def _words(what: str, error: OSError) -> str:
    return f"cannot {what}: {(error.strerror or str(error)).lower()}"


def out_dir_of(scene: Scene) -> Path:
    """Where artifacts will lie.  One that the daemon is still to make is looked at as the state directory where it lies in that;
    elsewhere it must be there: a file system that is not mounted would pass for the folder above it."""
    daemon = scene.settings.daemon
    return daemon.state_dir if not daemon.out_dir.exists() and daemon.out_dir.is_relative_to(daemon.state_dir) else daemon.out_dir


async def state_dir(scene: Scene) -> Row:
    return judge.state_dir(await aside(lambda: try_place(scene.settings.daemon.state_dir, agent_uid=None)))


async def out_dir(scene: Scene) -> list[Row]:
    place = await aside(lambda: try_place(out_dir_of(scene)))
    return [judge.out_dir(place), judge.out_dir_owner(place)]


async def disk(scene: Scene) -> list[Row]:
    """Of state_dir, out_dir and the engine's own folder, each file system once.  What trials write fills the engine's."""
    daemon, knobs = scene.settings.daemon, scene.knobs
    sizes, concurrency = scene.sizes({}), knobs.limits.concurrency
    at_once = min(concurrency, sum(size.cells for size in sizes))
    need = int(judge.worst([(float(size.storage_mb), size.cells) for size in sizes], at_once)) << 20
    spaces = await aside(lambda: _spaces({"state_dir": daemon.state_dir, "out_dir": out_dir_of(scene)}))
    try:
        root = Path((await scene.info.get()).data_root)
        spaces += await aside(lambda: _spaces({"engine": root}))
    except Exception as error:  # noqa: BLE001 - the engine's folder alone is then unknown
        spaces.append(Space("engine", why=reason(error)))

    def row(space: Space) -> Row:
        need_bytes = need if space.what == "engine" else 0
        percent, least = knobs.disk_floor_percent, knobs.disk_floor_bytes
        return judge.disk(space, floor_percent=percent, floor_bytes=least, need_bytes=need_bytes, at_once=at_once)

    return [row(space) for space in spaces]


def _spaces(paths: dict[str, Path]) -> list[Space]:
    found = []
    for what, path in paths.items():
        try:
            found.append(Space(what, *disk_free(path)))
        except HostUnknown as error:
            found.append(Space(what, why=error.detail))
    return found


async def clock_offset(scene: Scene) -> Row:
    daemon = scene.settings.daemon
    offsets = [await _offset(what, path) for what, path in (("state_dir", daemon.state_dir), ("out_dir", out_dir_of(scene)))]
    return judge.clock_offset(offsets, OFFSET_MAX_MS)


async def _offset(what: str, path: Path, measure: Callable[..., int] = offset_ms) -> Offset:
    try:
        return Offset(what, await aside(lambda: measure(path, name=".marathond-preflight-clock")))
    except OSError as error:
        return Offset(what, None, reason(error))
