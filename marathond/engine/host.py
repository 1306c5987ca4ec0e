"""What this machine says of itself: addresses in use, disk, boot, file systems.

Owns ``ip``, ``/proc`` and ``/etc/resolv.conf``.  Must not know the engine's networks or the ledger.  What cannot be read is a named error,
never an empty answer (fault f11).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from marathond.core.subnets import Occupied
from marathond.ports.host import HostUnknown

IP_TIMEOUT_S = 10.0


def occupied(ip: Sequence[str] = ("ip",), resolv_conf: Path = Path("/etc/resolv.conf")) -> list[Occupied]:
    """IPv4 addresses in use here: routes of all tables, interfaces, resolvers.  Blocking, some milliseconds.

    Docker's own bridges are among them.  Routes that exist for an interface's address come twice, once as either.

    :param ip: command that runs iproute2; a prefix such as ``nsenter --net=…`` looks into another network namespace.
    :raises HostUnknown: without ``ip`` (``partial`` then holds the main table and resolvers: policy routing of VPNs stays invisible), or
        when it fails or answers nonsense, or when resolv.conf cannot be read.
    """
    resolvers = read_resolvers(resolv_conf)
    try:
        routes, addresses = _ip_json(ip, "-4", "route", "show", "table", "all"), _ip_json(ip, "-4", "addr")
    except FileNotFoundError:
        partial = [*main_table(Path("/proc/net/route")), *resolvers]
        detail = f"{ip[0]!r} is not installed (package iproute2); only the main routing table could be read"
        raise HostUnknown("routes", detail, partial) from None
    found = [*route_addresses(routes), *interface_addresses(addresses), *resolvers]
    if not any(item.what.startswith("interface") for item in found):
        raise HostUnknown("interfaces", f"{' '.join(ip)} lists no address at all, not even of lo", found)
    return found


def _ip_json(ip: Sequence[str], *args: str) -> list[Mapping[str, Any]]:
    command = [*ip, "-j", *args]
    try:
        done = subprocess.run(command, capture_output=True, timeout=IP_TIMEOUT_S, check=False)
    except (subprocess.TimeoutExpired, PermissionError) as exc:
        raise HostUnknown("routes", f"{' '.join(command)}: {exc}") from exc
    if done.returncode:
        raise HostUnknown("routes", f"{' '.join(command)}: exit {done.returncode}: {done.stderr.decode('utf-8', 'replace').strip()[:300]}")
    return ip_rows(" ".join(command), done.stdout)


def ip_rows(command: str, data: bytes) -> list[Mapping[str, Any]]:
    """What ``ip -j`` printed.  Raises HostUnknown: no list of objects."""
    try:
        rows = json.loads(data or b"[]")
    except (ValueError, RecursionError) as exc:
        raise HostUnknown("routes", f"{command}: no JSON: {exc}") from exc
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise HostUnknown("routes", f"{command}: no list of objects")
    return [row for row in rows if row]


def route_addresses(rows: Iterable[Mapping[str, Any]]) -> list[Occupied]:
    """Rows of ``ip -j -4 route show table all``; multicast is left out, a default route is ``0.0.0.0/0``.

    :raises HostUnknown: a row without an IPv4 destination: what it covers would be handed out.
    """
    found = []
    for row in rows:
        if row.get("type") == "multicast":
            continue
        dst = "0.0.0.0/0" if row.get("dst") == "default" else _cidr("routes", row.get("dst"), row)
        words = ["route", str(row["dst"])]
        words += [f"{key} {row[name]}" for key, name in (("via", "gateway"), ("dev", "dev"), ("table", "table")) if row.get(name)]
        found.append(Occupied(dst, " ".join(words)))
    return found


def interface_addresses(rows: Iterable[Mapping[str, Any]]) -> list[Occupied]:
    """Rows of ``ip -j -4 addr``.

    :raises HostUnknown: an address that is none: what it covers would be handed out.
    """
    found = []
    for row in rows:
        listed = row.get("addr_info", [])
        if not isinstance(listed, list) or not all(isinstance(info, dict) for info in listed):
            raise HostUnknown("interfaces", f"{str(row)[:200]}: no list of addresses")
        for info in listed:
            if info.get("family") == "inet" and "local" in info:
                cidr = _cidr("interfaces", f"{info['local']}/{info.get('prefixlen')}", row)
                found.append(Occupied(cidr, f"interface {row.get('ifname', '?')} {cidr}"))
    return found


def _cidr(what: str, text: object, row: Mapping[str, Any]) -> str:
    try:
        IPv4Network(str(text), strict=False)
    except ValueError as exc:
        raise HostUnknown(what, f"{str(row)[:200]}: no IPv4 address: {exc}") from exc
    return str(text)


def read_resolvers(path: Path) -> list[Occupied]:
    """IPv4 name servers of a resolv.conf; a file that does not exist names none.  Raises HostUnknown when it cannot be read."""
    try:
        text = path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise HostUnknown("resolvers", f"{path}: {exc.strerror}") from exc
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver" and ":" not in words[1]:
            try:
                found.append(Occupied(str(IPv4Address(words[1])), f"resolver {words[1]}"))
            except ValueError as exc:
                raise HostUnknown("resolvers", f"{path}: nameserver {words[1]!r} is no address") from exc
    return found


def main_table(path: Path) -> list[Occupied]:
    """``/proc/net/route``: little-endian hexadecimal, main table only.  Raises HostUnknown when it cannot be read."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()[1:]
        rows = [line.split() for line in lines if line.strip()]
        return [Occupied(str(IPv4Network(f"{_hex_address(row[1])}/{_hex_address(row[7])}")), f"route dev {row[0]}") for row in rows]
    except (OSError, ValueError, IndexError, struct.error) as exc:
        raise HostUnknown("routes", f"{path}: {exc}") from exc


def _hex_address(text: str) -> str:
    return socket.inet_ntoa(struct.pack("<I", int(text, 16)))


def disk_free(path: Path) -> tuple[int, int]:
    """(bytes free to unprivileged users, bytes in all) of the filesystem of ``path``.  Raises HostUnknown."""
    try:
        stats = os.statvfs(path)
    except OSError as exc:
        raise HostUnknown("disk space", f"{path}: {exc.strerror}") from exc
    return stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize


def boot_id() -> str:
    """Changes with every boot; monotonic times of another boot mean nothing.  Raises HostUnknown."""
    return _read_proc("boot id", Path("/proc/sys/kernel/random/boot_id")).strip()


def _read_proc(what: str, path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")  # names of mounts are bytes
    except OSError as exc:
        raise HostUnknown(what, f"{path}: {exc.strerror}") from exc


def filesystem_type(path: Path) -> str:
    """The type of the filesystem that holds ``path`` as mountinfo names it (``ext4``, ``nfs4``, ``fuse.sshfs``).  Raises HostUnknown."""
    return filesystem(path)[0]


def filesystem(path: Path) -> tuple[str, str]:
    """Type and mount point of the filesystem that holds ``path``.  Raises HostUnknown."""
    try:
        real = path.resolve(strict=True)
    except OSError as exc:
        raise HostUnknown("filesystem", f"{path}: {exc.strerror}") from exc
    best, kind, at = -1, "", ""
    for line in filter(None, _read_proc("filesystem", Path("/proc/self/mountinfo")).split("\n")):  # other line ends may be part of a name
        left, _, right = line.partition(" - ")
        words, types = left.split(" "), right.split(" ")
        if len(words) < 5 or not types[0]:
            raise HostUnknown("filesystem", f"/proc/self/mountinfo holds {line[:200]!r}")
        point = _unescape(words[4])
        if (real == Path(point) or Path(point) in real.parents) and len(point) >= best:  # the later of two on one point lies on top
            best, kind, at = len(point), types[0], point
    if not kind:
        raise HostUnknown("filesystem", f"{path} is on no mount of /proc/self/mountinfo")
    return kind, at


def _unescape(text: str) -> str:
    """mountinfo writes blank, tab, newline and backslash as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
