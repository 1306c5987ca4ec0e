"""The simulated engine's records in the JSON of Docker's API, and its requests back into the port's values.

Owns field names alone; marathond/engine/decode.py and docker.py are the other side.  Answers are as long as a real engine's (20.10.24 and
five bind mounts: a listed container 1.7 KB, an inspected one 5.5 KB, a network 0.7 KB), for reading them is much of what an adapter costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from marathond.core.errors import EngineError, NotFound
from marathond.core.model import Mount
from marathond.ports.engine import ContainerInfo, ContainerSpec, EngineEvent, ExecInfo, ExecSpec, ImageInfo, NetworkInfo
from tests.sim.fake_box import ContainerRecord, ExecRecord

NANO = 1_000_000_000
_UNSET_HOST: Mapping[str, Any] = {
    **dict.fromkeys(("ContainerIDFile", "VolumeDriver", "Cgroup", "PidMode", "UTSMode", "UsernsMode", "Isolation", "CgroupParent"), ""),
    **dict.fromkeys(("VolumesFrom", "CapAdd", "CapDrop", "ExtraHosts", "GroupAdd", "Links", "SecurityOpt", "DeviceCgroupRules")),
    **dict.fromkeys(("AutoRemove", "Privileged", "PublishAllPorts", "ReadonlyRootfs", "OomKillDisable"), False),
    **{name: [] for name in ("Dns", "DnsOptions", "DnsSearch", "Devices", "Ulimits", "BlkioWeightDevice", "BlkioDeviceReadBps")},
    **{name: [] for name in ("BlkioDeviceWriteBps", "BlkioDeviceReadIOps", "BlkioDeviceWriteIOps")},
    **dict.fromkeys(("OomScoreAdj", "CpuShares", "BlkioWeight", "CpuPeriod", "CpuQuota", "CpuRealtimePeriod", "CpuRealtimeRuntime"), 0),
    **dict.fromkeys(("KernelMemory", "KernelMemoryTCP", "MemoryReservation", "CpuCount", "CpuPercent", "IOMaximumIOps"), 0),
    "LogConfig": {"Type": "json-file", "Config": {}},
    "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    "PortBindings": {},
    "CgroupnsMode": "host",
    "IpcMode": "private",
    "ShmSize": 67108864,
    "Runtime": "runc",
    "ConsoleSize": [0, 0],
    "MaskedPaths": [f"/proc/{name}" for name in ("asound", "acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi")],
    "ReadonlyPaths": [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")],
}
"""What a real inspect carries besides, for a container that asked for none of it."""


def rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}000000Z"


# ── answers ──


def _networks(info: ContainerInfo) -> dict[str, Any]:
    none = {"IPAMConfig": None, "Links": None, "Aliases": None, "IPv6Gateway": "", "GlobalIPv6Address": "", "DriverOpts": None}
    some = {"Gateway": "198.19.254.1", "IPAddress": "198.19.254.2", "IPPrefixLen": 28, "MacAddress": "02:42:c6:13:fe:02"}
    found = {name: {**none, **some, "NetworkID": name, "EndpointID": info.id[::-1], "GlobalIPv6PrefixLen": 0} for name in info.network_ids}
    return {"Networks": found}


def _mounts(record: ContainerRecord) -> list[dict[str, Any]]:
    return [
        {"Type": "bind", "Source": m.source, "Destination": m.target, "Mode": "", "RW": not m.read_only, "Propagation": "rprivate"}
        for m in record.spec.mounts
    ]


def listed(info: ContainerInfo, record: ContainerRecord) -> dict[str, Any]:
    """One row of ``GET /containers/json``."""
    words = {"running": "Up 2 minutes", "paused": "Up 2 minutes (Paused)", "created": "Created"}
    return {
        "Id": info.id,
        "Names": [f"/{info.name}"],
        "Image": info.image_id,
        "ImageID": info.image_id,
        "Command": "sh -c 'while :; do sleep 86400 & wait $! || [ $? -gt 128 ] || exit 1; done'",
        "Created": info.created_ms // 1000,
        "Ports": [],
        "Labels": dict(info.labels),
        "State": info.status,
        "Status": words.get(info.status, f"Exited ({info.exit_code}) 1 second ago"),
        "HostConfig": {"NetworkMode": info.network_mode},
        "NetworkSettings": _networks(info),
        "Mounts": _mounts(record),
    }


def inspected(info: ContainerInfo, record: ContainerRecord, argv: list[str]) -> dict[str, Any]:
    """``GET /containers/{id}/json``; ``argv``: of its main process."""
    layers = f"/var/lib/docker/overlay2/{info.id}"
    return {
        "Id": info.id,
        "Created": rfc3339(info.created_ms),
        "Path": argv[0],
        "Args": argv[1:],
        "State": {
            "Status": info.status,
            "Running": info.running,
            "Paused": info.paused,
            "Restarting": False,
            "OOMKilled": info.oom_killed,
            "Dead": False,
            "Pid": info.pid,
            "ExitCode": info.exit_code or 0,
            "Error": "",
            "StartedAt": info.started_at or "0001-01-01T00:00:00Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
        },
        "Image": info.image_id,
        **{name: f"/var/lib/docker/containers/{info.id}/{name}" for name in ("ResolvConfPath", "HostnamePath", "HostsPath", "LogPath")},
        "Name": f"/{info.name}",
        "RestartCount": 0,
        "Driver": "overlay2",
        "Platform": "linux",
        "ExecIDs": None,
        "HostConfig": {
            **_UNSET_HOST,
            "NetworkMode": info.network_mode,
            "NanoCpus": round((info.cpus or 0) * NANO),
            "Memory": (info.memory_mb or 0) << 20,
            "PidsLimit": info.pids,
            "Mounts": [{"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only} for m in record.spec.mounts],
        },
        "GraphDriver": {
            "Data": {"LowerDir": f"{layers}-init/diff:{layers}/diff", "MergedDir": f"{layers}/merged", "UpperDir": f"{layers}/diff"},
            "Name": "overlay2",
        },
        "Mounts": _mounts(record),
        "Config": {"Hostname": info.id[:12], "Env": list(info.env), "Cmd": argv, "Image": info.image_id, "Labels": dict(info.labels)},
        "NetworkSettings": {"Bridge": "", "SandboxID": info.id, "Ports": {}, **_networks(info)},
    }


def network(info: NetworkInfo) -> dict[str, Any]:
    return {
        "Name": info.name,
        "Id": info.id,
        "Created": rfc3339(info.created_ms),
        "Scope": "local",
        "Driver": info.driver,
        "EnableIPv6": False,
        "IPAM": {"Driver": "default", "Options": {}, "Config": [{"Subnet": subnet} for subnet in info.subnets]},
        "Internal": info.internal,
        "Attachable": False,
        "Ingress": False,
        "ConfigFrom": {"Network": ""},
        "ConfigOnly": False,
        "Containers": {},
        "Options": {},
        "Labels": dict(info.labels),
    }


def exec_told(info: ExecInfo, made: ExecRecord) -> dict[str, Any]:
    argv = list(made.spec.argv)
    return {
        "ID": info.id,
        "Running": info.running,
        "ExitCode": info.exit_code,
        "ProcessConfig": {"tty": False, "entrypoint": argv[0], "arguments": argv[1:], "privileged": False},
        "OpenStdin": False,
        "OpenStderr": False,
        "OpenStdout": False,
        "CanRemove": False,
        "ContainerID": made.container.id,
        "DetachKeys": "",
        "Pid": info.pid,
    }


def image(info: ImageInfo) -> dict[str, Any]:
    config = {"Env": list(info.env), "WorkingDir": info.workdir, "Labels": dict(info.labels)}
    return {"Id": info.id, "RepoTags": list(info.tags), "Size": info.size_bytes, "Config": config}


def event(told: EngineEvent) -> dict[str, Any]:
    return {"Type": told.type, "Action": told.action, "Actor": {"ID": told.id, "Attributes": dict(told.attributes)}}


def refusal(error: EngineError) -> tuple[int, dict[str, str]]:
    """HTTP status and body."""
    return error.status or (404 if isinstance(error, NotFound) else 500), {"message": error.detail}


# ── requests ──


def container_spec(name: str, body: Mapping[str, Any]) -> ContainerSpec:
    host = body["HostConfig"]
    cpus, memory, pids = host.get("NanoCpus"), host.get("Memory"), host.get("PidsLimit")
    return ContainerSpec(
        name=name,
        image_id=body["Image"],
        labels=body["Labels"],
        network=None if host["NetworkMode"] == "none" else host["NetworkMode"],
        env=dict(item.split("=", 1) for item in body["Env"]),
        mounts=tuple(Mount(m["Source"], m["Target"], m["ReadOnly"]) for m in host["Mounts"]),
        workdir=body.get("WorkingDir"),
        cpus=None if cpus is None else cpus / NANO,
        memory_mb=None if memory is None else memory >> 20,
        pids=pids,
    )


def exec_spec(body: Mapping[str, Any]) -> ExecSpec:
    return ExecSpec(tuple(body["Cmd"]), dict(item.split("=", 1) for item in body["Env"]), body.get("User"), body.get("WorkingDir"))
