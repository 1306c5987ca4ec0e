"""The files between daemon and gateway: the only way in which the two speak, besides the journal.

Owns their names, their form and how they are written (aside, synced, renamed: a reader sees the old one or the new one).  The daemon writes
``listeners/<name>.json``, the gateway ``acks/<name>.json`` and ``alive.json``; nobody writes the other's files.  Holds no secret: of a
trial's dummy key only the hash is written.

A listener is keyed by container id and ``started_at``: a restarted container has a new network namespace.  ``<name>`` is the trial's name,
or ``<trial>.<purpose>`` for a second listener of the same trial (its verifier's, with a route and accounts of its own).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from marathond.core.errors import ArtifactError, ConfigError
from marathond.gateway.body import STRIP_PATH

FORMAT = 1
FILE_BYTES_AT_MOST = 64 * 1024
LISTENERS_AT_MOST = 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[a-z]{1,16})?\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
AckState = Literal["listening", "failed", "refused", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What the daemon wants listened to.

    :param version: counts up with every change of this file; the ack names the version it answers.
    :param pid: a process of the container (its PID 1) as the host numbers it, with ``start_ticks`` of ``/proc/<pid>/stat`` field 22.
    :param boot_id: of the boot in which ``pid`` and ``deadline_mono_ms`` mean something.
    :param deadline_mono_ms: CLOCK_MONOTONIC; requests after it are refused (fault c19); None before the agent's clock starts.
    :param account: whom the tokens are counted for (``agent``, ``verifier``, ``gate``).
    :param models: the only models that may be asked for; empty: any.
    :param strip: paths of :func:`marathond.gateway.body.strip`.
    """

    name: str
    version: int
    trial: str
    account: str
    container_id: str
    started_at: str
    pid: int
    start_ticks: int
    boot_id: str
    port: int
    key_sha256: str
    route: str
    network: Literal["none", "public"]
    deadline_mono_ms: int | None = None
    strip: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[object, ...]:
        """What must be the same for an open socket to be the right one."""
        return (self.container_id, self.started_at, self.pid, self.start_ticks, self.boot_id, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The gateway's answer to one version of a listener file.

    :param code: empty while listening; else ``port_taken``, ``container_gone``, ``host_namespace``, ``not_permitted``, ``no_route``,
        ``bad_file``, ``io``.
    :param life: which life of the gateway says so (``alive.json`` names the present one).
    """

    name: str
    version: int
    state: AckState
    code: str
    detail: str
    container_id: str
    started_at: str
    port: int
    life: str
    mono_ms: int


def key_hash(key: str) -> str:
    """What stands in the listener file in place of a trial's dummy key."""
    return hashlib.sha256(key.encode()).hexdigest()


def listener_path(folder: Path, name: str) -> Path:
    return folder / "listeners" / f"{name}.json"


def ack_path(folder: Path, name: str) -> Path:
    return folder / "acks" / f"{name}.json"


def write_listener(folder: Path, listener: Listener) -> None:
    """Daemon's side.  :raises ConfigError: a field no gateway would take.  :raises ArtifactError: the disk says no."""
    parse_listener(listener.name, listener_json(listener))
    write_json(listener_path(folder, listener.name), listener_json(listener))


def remove_listener(folder: Path, name: str) -> None:
    """Daemon's side: the gateway closes the listener; its ack says ``closed`` (a second call does nothing)."""
    listener_path(folder, name).unlink(missing_ok=True)


def listener_json(listener: Listener) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(listener)}


def read_ack(folder: Path, name: str) -> Ack | None:
    """Daemon's side: the newest ack, or None when there is none (yet).

    :raises ArtifactError: it cannot be read, or is no ack.
    """
    path = ack_path(folder, name)
    told = read_json(path)
    if told is None:
        return None
    for field in fields(Ack):
        value = told.get(field.name)
        if not (_is_count(value) if field.type == "int" else isinstance(value, str)):
            raise ArtifactError("io", str(path), f"{field.name} is {value!r:.80}")
    if told["state"] not in get_args(AckState):
        raise ArtifactError("io", str(path), f"state is {told['state']!r:.80}")
    return Ack(**{field.name: told[field.name] for field in fields(Ack)})


def parse_listener(name: str, told: Any) -> Listener:
    """:raises ConfigError: names the field, what stands there and what was expected."""
    where = f"listeners/{name}.json"

    def need(ok: bool, what: str, expected: str) -> None:
        if not ok:
            raise ConfigError(where, what, expected)

    need(isinstance(told, dict), "content", "must be a JSON object")
    known = {field.name for field in fields(Listener)}
    need(told.get("format") == FORMAT, f"format = {told.get('format')!r}", f"this gateway reads format {FORMAT}")
    unknown = sorted(set(told) - known - {"format"})
    need(not unknown, f"field {unknown[0] if unknown else ''}", "no such field")
    for key in ("version", "pid", "start_ticks", "port"):
        need(_is_count(told.get(key)), f"{key} = {told.get(key)!r}", "must be a whole number, 0 or more")
    need(1024 <= told["port"] <= 65535, f"port = {told['port']}", "must lie in 1024-65535")
    for key in ("name", "trial", "account", "container_id", "started_at", "boot_id", "key_sha256", "route"):
        value = told.get(key)
        need(isinstance(value, str) and 0 < len(value) <= 256, f"{key} = {value!r}"[:200], "must be a text of 1-256 characters")
    need(NAME.match(told["name"]) is not None and told["name"] == name, f"name = {told['name']!r}", "must be the file's own name")
    need(_HASH.match(told["key_sha256"]) is not None, "key_sha256", "must be 64 hexadecimal digits")
    need(told.get("network") in ("none", "public"), f"network = {told.get('network')!r}", "must be none or public")
    deadline = told.get("deadline_mono_ms")
    need(deadline is None or _is_count(deadline), f"deadline_mono_ms = {deadline!r}", "must be milliseconds or null")
    for key in ("strip", "models"):
        value = told.get(key, [])
        need(
            isinstance(value, list | tuple) and len(value) <= 64 and all(isinstance(item, str) for item in value),
            key,
            "must be a list of at most 64 texts",
        )
    wrong = next((path for path in told.get("strip", ()) if not STRIP_PATH.match(path)), None)
    need(wrong is None, f"strip: {wrong!r}", "must look like a.b or input[].c")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items() if key != "format"}
    return Listener(**values)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a small file; None when the file is not there.

    :raises ArtifactError: ``too_large``, ``io`` (unreadable, or not a JSON object).
    """
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_AT_MOST + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ArtifactError("io", str(path), str(err)) from err
    if len(raw) > FILE_BYTES_AT_MOST:
        raise ArtifactError("too_large", str(path), f"more than {FILE_BYTES_AT_MOST} bytes")
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise ArtifactError("io", str(path), f"not JSON: {err}") from err
    if not isinstance(told, dict):
        raise ArtifactError("io", str(path), "must be a JSON object")
    return told


def write_json(path: Path, told: dict[str, Any], *, durable: bool = True) -> None:
    """Written aside, synced and renamed.  :raises ArtifactError: ``no_space`` or ``io``."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        with aside.open("wb") as file:
            file.write(json.dumps(told, separators=(",", ":")).encode() + b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(path)
        if durable:
            fsync_folder(path.parent)
    except OSError as err:
        aside.unlink(missing_ok=True)
        raise ArtifactError("no_space" if err.errno == errno.ENOSPC else "io", str(path), str(err)) from err


def fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
