"""The engine's JSON into the port's values.  Pure; must not call anything.

What is decided on (ids, states, exit codes, labels, what the host has) must be there and of its kind: an answer that lacks it is refused
by name, for an engine that says nothing has not said 0.  What Docker leaves out where it is empty may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from marathond.core.errors import EngineError
from marathond.ports.engine import ContainerInfo, EngineEvent, EngineInfo, ExecInfo, ImageInfo, NetworkInfo

_EXITED = re.compile(r"Exited \((\d{1,10})\)", re.ASCII)
_FRACTION = re.compile(r"\.(\d+)", re.ASCII)
_MISSING: Any = object()
_LARGEST = 2**63


class _Answer:
    """One object of an answer, and the call that it answers.  Every getter raises EngineError naming the field."""

    def __init__(self, call: str, raw: object, at: str = "") -> None:
        self.call, self.at = call, at
        if not isinstance(raw, Mapping):
            raise self.wrong("", raw, "an object")
        self.raw: Mapping[str, Any] = raw

    def wrong(self, key: str, value: object, expected: str) -> EngineError:
        shown = "nothing" if value is _MISSING else f"a {type(value).__name__}" if isinstance(value, list | Mapping) else f"{value!r:.60}"
        return EngineError(self.call, 0, f"an answer that is not Docker's: {self.at}{key} is {shown}, expected {expected}")

    def text(self, key: str, default: str = _MISSING) -> str:
        """null, as Go writes an empty one, is the default, too."""
        value = self.raw.get(key)
        if value is None and default is not _MISSING:
            return default
        if not _is_text(value):
            raise self.wrong(key, self.raw.get(key, _MISSING), "a text")
        return str(value)

    def some_text(self, key: str) -> str:
        return self.text(key) or self._empty(key)

    def _empty(self, key: str) -> str:
        raise self.wrong(key, "", "a text that is not empty")

    def flag(self, key: str, default: bool = _MISSING) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def number(self, key: str, default: int = _MISSING) -> int:
        """A whole one that 64 bits hold; null is the default."""
        value = self.raw.get(key)
        if value is None and default is not _MISSING:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not -_LARGEST <= value < _LARGEST:
            raise self.wrong(key, self.raw.get(key, _MISSING) if _prints(value) else "a number beyond 64 bits", "a whole number")
        return value

    def below(self, key: str, *, required: bool = False) -> _Answer:
        value = self.raw.get(key)
        if value is None and not required:
            value = {}
        return _Answer(self.call, value, f"{self.at}{key}.")

    def rows(self, key: str) -> list[_Answer]:
        return [_Answer(self.call, each, f"{self.at}{key}: ") for each in self._list(key)]

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._list(key)
        if not all(_is_text(each) for each in found):
            raise self.wrong(key, found, "a list of texts")
        return tuple(found)

    def _list(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, value, "a list")
        return value or []

    def labels(self, key: str = "Labels") -> dict[str, str]:
        table = self.below(key).raw
        if not all(_is_text(text) for pair in table.items() for text in pair):
            raise self.wrong(key, table, "texts")
        return dict(table)

    def time_ms(self, key: str) -> int:
        text = self.text(key, "")
        try:
            return time_ms(text)
        except (ValueError, OverflowError) as error:
            raise self.wrong(key, text, "a time") from error


def _is_text(value: object) -> bool:
    """Half a character is no text: no ledger takes it."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _prints(value: object) -> bool:
    """Python refuses to write out an integer of thousands of digits."""
    return not isinstance(value, int) or value.bit_length() < 1000


def time_ms(text: str) -> int:
    """RFC 3339 with nanoseconds, as Docker writes it, in milliseconds since the epoch; 0 for Docker's "never" (year 1).

    :raises ValueError: no time.  :raises OverflowError: none that can be counted.
    """
    if not text or text.startswith("0001-"):
        return 0
    micro = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text, count=1)
    return round(datetime.fromisoformat(micro.replace("Z", "+00:00")).timestamp() * 1000)


def rows(call: str, raw: object) -> list[Any]:
    """The rows of an answer that is a list.  :raises EngineError: it is none."""
    if not isinstance(raw, list):
        raise EngineError(call, 0, f"an answer that is not Docker's: a {type(raw).__name__}, expected a list")
    return raw


def made_id(call: str, raw: object) -> str:
    """The id of what a ``create`` made.  :raises EngineError: it names none: what was made has to be looked for by its label."""
    return _Answer(call, raw).some_text("Id")


def engine_info(raw: object, api_version: str) -> EngineInfo:
    """``GET /info``.  :raises EngineError: as all of these, for another shape."""
    info = _Answer("info", raw)
    ncpu, memory_bytes = info.number("NCPU"), info.number("MemTotal")
    if ncpu <= 0 or memory_bytes <= 0:
        raise info.wrong("NCPU, MemTotal", f"{ncpu}, {memory_bytes}", "what the host has")
    return EngineInfo(
        server_version=info.text("ServerVersion", ""),
        api_version=api_version,
        ncpu=ncpu,
        memory_bytes=memory_bytes,
        data_root=info.text("DockerRootDir", ""),
        http_proxy=info.text("HttpProxy", ""),
        https_proxy=info.text("HttpsProxy", ""),
        live_restore=info.flag("LiveRestoreEnabled", False),
        address_pools=tuple((pool.text("Base"), pool.number("Size")) for pool in info.rows("DefaultAddressPools")),
        limits_pids=info.flag("PidsLimit", False),
    )


def network(raw: object) -> NetworkInfo:
    """``GET /networks`` or ``/networks/{id}``."""
    answer = _Answer("network", raw)
    return NetworkInfo(
        id=answer.some_text("Id"),
        name=answer.text("Name"),
        driver=answer.text("Driver", ""),
        internal=answer.flag("Internal", False),
        labels=answer.labels(),
        subnets=tuple(subnet for config in answer.below("IPAM").rows("Config") if (subnet := config.text("Subnet", ""))),
        created_ms=answer.time_ms("Created"),
    )


def _network_ids(answer: _Answer) -> tuple[str, ...]:
    networks = answer.below("NetworkSettings").below("Networks")
    return tuple(found for name in networks.raw if (found := networks.below(name).text("NetworkID", "")))


def container(raw: object) -> ContainerInfo:
    """``GET /containers/{id}/json``."""
    answer = _Answer("container.inspect", raw)
    state, config, host = (answer.below(key, required=True) for key in ("State", "Config", "HostConfig"))
    status, running = state.text("Status"), state.flag("Running")
    return ContainerInfo(
        id=answer.some_text("Id"),
        name=answer.text("Name").lstrip("/"),
        labels=config.labels(),
        image_id=answer.text("Image"),
        running=running,
        paused=state.flag("Paused", False),
        status=status,
        pid=max(0, state.number("Pid", 0)),
        started_at=state.text("StartedAt", ""),
        exit_code=None if running or status == "created" else state.number("ExitCode"),
        oom_killed=state.flag("OOMKilled", False),
        network_mode=host.text("NetworkMode", ""),
        network_ids=_network_ids(answer),
        env=config.texts("Env"),
        created_ms=answer.time_ms("Created"),
        cpus=max(0, host.number("NanoCpus", 0)) / 1e9 or None,
        memory_mb=max(0, host.number("Memory", 0)) // (1 << 20) or None,
        pids=max(0, host.number("PidsLimit", 0)) or None,
    )


def listed_container(raw: object) -> ContainerInfo:
    """One row of ``GET /containers/json``: what it does not carry stays empty, as the port says."""
    answer = _Answer("container.list", raw)
    status = answer.text("State")
    exited = _EXITED.match(answer.text("Status", ""))
    return ContainerInfo(
        id=answer.some_text("Id"),
        name=next(iter(answer.texts("Names")), "").lstrip("/"),
        labels=answer.labels(),
        image_id=answer.text("ImageID"),
        running=status in ("running", "paused", "restarting"),
        paused=status == "paused",
        status=status,
        pid=0,
        started_at="",
        exit_code=int(exited[1]) if exited and status in ("exited", "dead") else None,
        oom_killed=False,
        network_mode=answer.below("HostConfig").text("NetworkMode", ""),
        network_ids=_network_ids(answer),
        created_ms=answer.number("Created", 0) * 1000,
    )


def exec_info(raw: object) -> ExecInfo:
    """``GET /exec/{id}/json``.  One that was never started is not running and has no exit code."""
    answer = _Answer("exec.inspect", raw)
    running = answer.flag("Running")
    ended = not running and answer.raw.get("ExitCode") is not None
    exit_code = answer.number("ExitCode") if ended else None
    return ExecInfo(id=answer.some_text("ID"), running=running, exit_code=exit_code, pid=max(0, answer.number("Pid", 0)))


def image(raw: object) -> ImageInfo:
    """``GET /images/{ref}/json``."""
    answer = _Answer("image.inspect", raw)
    config = answer.below("Config")
    return ImageInfo(
        id=answer.some_text("Id"),
        tags=answer.texts("RepoTags"),
        labels=config.labels(),
        env=config.texts("Env"),
        workdir=config.text("WorkingDir", ""),
        size_bytes=max(0, answer.number("Size", 0)),
    )


def event(raw: object) -> EngineEvent | None:
    """One line of ``GET /events``; None when it names no object (a keep-alive), or is none: events are hints, never evidence."""
    actor = raw.get("Actor") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(actor, Mapping):
        return None
    kind, action, found, attributes = raw.get("Type"), raw.get("Action", ""), actor.get("ID"), actor.get("Attributes") or {}
    if not all(isinstance(text, str) for text in (kind, action, found)) or not isinstance(attributes, Mapping) or not kind or not found:
        return None
    return EngineEvent(kind, action, found, {key: value for key, value in attributes.items() if isinstance(value, str)})
