"""The engine's JSON into the port's values.  Pure; must not call anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from marathond.ports.engine import ContainerInfo, EngineEvent, EngineInfo, ExecInfo, ImageInfo, NetworkInfo

_EXITED = re.compile(r"Exited \((\d+)\)")
_FRACTION = re.compile(r"\.(\d+)")


def time_ms(text: str) -> int:
    """RFC 3339 with nanoseconds, as Docker writes it, in milliseconds since the epoch; 0 for Docker's "never" (year 1)."""
    if not text or text.startswith("0001-"):
        return 0
    micro = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), text, count=1)
    return round(datetime.fromisoformat(micro.replace("Z", "+00:00")).timestamp() * 1000)


def engine_info(raw: Mapping[str, Any], api_version: str) -> EngineInfo:
    """``GET /info``."""
    pools = tuple((str(pool["Base"]), int(pool["Size"])) for pool in raw.get("DefaultAddressPools") or ())
    return EngineInfo(
        server_version=str(raw.get("ServerVersion", "")),
        api_version=api_version,
        ncpu=int(raw.get("NCPU", 0)),
        memory_bytes=int(raw.get("MemTotal", 0)),
        data_root=str(raw.get("DockerRootDir", "")),
        http_proxy=str(raw.get("HttpProxy") or ""),
        https_proxy=str(raw.get("HttpsProxy") or ""),
        live_restore=bool(raw.get("LiveRestoreEnabled", False)),
        address_pools=pools,
        limits_pids=bool(raw.get("PidsLimit", False)),
    )


def network(raw: Mapping[str, Any]) -> NetworkInfo:
    """``GET /networks`` or ``/networks/{id}``."""
    configs = (raw.get("IPAM") or {}).get("Config") or ()
    return NetworkInfo(
        id=str(raw["Id"]),
        name=str(raw["Name"]),
        driver=str(raw.get("Driver", "")),
        internal=bool(raw.get("Internal", False)),
        labels=dict(raw.get("Labels") or {}),
        subnets=tuple(str(config["Subnet"]) for config in configs if config.get("Subnet")),
        created_ms=time_ms(str(raw.get("Created", ""))),
    )


def _network_ids(raw: Mapping[str, Any]) -> tuple[str, ...]:
    networks = (raw.get("NetworkSettings") or {}).get("Networks") or {}
    return tuple(str(net["NetworkID"]) for net in networks.values() if net.get("NetworkID"))


def container(raw: Mapping[str, Any]) -> ContainerInfo:
    """``GET /containers/{id}/json``."""
    state, config, host = raw["State"], raw["Config"], raw["HostConfig"]
    status = str(state["Status"])
    running = bool(state["Running"])
    return ContainerInfo(
        id=str(raw["Id"]),
        name=str(raw["Name"]).lstrip("/"),
        labels=dict(config.get("Labels") or {}),
        image_id=str(raw["Image"]),
        running=running,
        paused=bool(state.get("Paused", False)),
        status=status,
        pid=int(state.get("Pid", 0)),
        started_at=str(state.get("StartedAt", "")),
        exit_code=None if running or status == "created" else int(state["ExitCode"]),
        oom_killed=bool(state.get("OOMKilled", False)),
        network_mode=str(host.get("NetworkMode", "")),
        network_ids=_network_ids(raw),
        env=tuple(config.get("Env") or ()),
        created_ms=time_ms(str(raw.get("Created", ""))),
        cpus=int(host.get("NanoCpus") or 0) / 1e9 or None,
        memory_mb=int(host.get("Memory") or 0) // (1 << 20) or None,
        pids=max(0, int(host.get("PidsLimit") or 0)) or None,
    )


def listed_container(raw: Mapping[str, Any]) -> ContainerInfo:
    """One row of ``GET /containers/json``: what it does not carry stays empty, as the port says."""
    status = str(raw["State"])
    exited = _EXITED.match(str(raw.get("Status", "")))
    return ContainerInfo(
        id=str(raw["Id"]),
        name=str((raw.get("Names") or [""])[0]).lstrip("/"),
        labels=dict(raw.get("Labels") or {}),
        image_id=str(raw["ImageID"]),
        running=status in ("running", "paused", "restarting"),
        paused=status == "paused",
        status=status,
        pid=0,
        started_at="",
        exit_code=int(exited[1]) if exited and status in ("exited", "dead") else None,
        oom_killed=False,
        network_mode=str((raw.get("HostConfig") or {}).get("NetworkMode", "")),
        network_ids=_network_ids(raw),
        created_ms=int(raw.get("Created", 0)) * 1000,
    )


def exec_info(raw: Mapping[str, Any]) -> ExecInfo:
    """``GET /exec/{id}/json``.  One that was never started is not running and has no exit code."""
    running = bool(raw["Running"])
    code = raw.get("ExitCode")
    return ExecInfo(
        id=str(raw["ID"]), running=running, exit_code=None if running or code is None else int(code), pid=int(raw.get("Pid") or 0)
    )


def image(raw: Mapping[str, Any]) -> ImageInfo:
    """``GET /images/{ref}/json``."""
    config = raw.get("Config") or {}
    return ImageInfo(
        id=str(raw["Id"]),
        tags=tuple(raw.get("RepoTags") or ()),
        labels=dict(config.get("Labels") or {}),
        env=tuple(config.get("Env") or ()),
        workdir=str(config.get("WorkingDir") or ""),
        size_bytes=int(raw.get("Size") or 0),
    )


def event(raw: Mapping[str, Any]) -> EngineEvent | None:
    """One line of ``GET /events``; None when it names no object (a keep-alive)."""
    actor = raw.get("Actor") or {}
    if not raw.get("Type") or not actor.get("ID"):
        return None
    attributes = {str(key): str(value) for key, value in (actor.get("Attributes") or {}).items()}
    return EngineEvent(type=str(raw["Type"]), action=str(raw.get("Action", "")), id=str(actor["ID"]), attributes=attributes)
