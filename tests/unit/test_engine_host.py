"""What the host says of itself, and that it never says nothing when it could not be asked."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from marathond.core.subnets import Occupied
from marathond.engine import host


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_this_host_has_at_least_its_loopback() -> None:
    found = host.occupied()
    assert Occupied("127.0.0.1/8", "interface lo 127.0.0.1/8") in found


def test_f11_without_ip_the_answer_is_unknown_never_empty(tmp_path: Path) -> None:
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 192.168.1.53\nnameserver fd00::1\nsearch example\n")
    with pytest.raises(host.HostUnknown, match="iproute2") as caught:
        host.occupied(("no-such-ip-tool",), resolv)
    assert Occupied("192.168.1.53", "resolver 192.168.1.53") in caught.value.partial


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 3", "exit 3"), ("echo '[{]'", "no JSON"), ("echo '[]'", "no address at all"), ("echo cannot >&2; exit 1", "cannot")],
)
def test_f11_an_ip_that_fails_is_named(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(host.HostUnknown, match=words):
        host.occupied((_script(tmp_path / "ip", script),))


def test_f11_unreadable_resolvers_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(host.HostUnknown, match="resolvers"):
        host.read_resolvers(tmp_path)  # a folder
    (tmp_path / "r").write_text("nameserver 1.2.3\n")
    with pytest.raises(host.HostUnknown, match=r"1\.2\.3"):
        host.read_resolvers(tmp_path / "r")
    assert host.read_resolvers(tmp_path / "none") == []


def test_routes_are_read_with_their_words() -> None:
    rows = [
        {"dst": "default", "gateway": "10.0.0.1", "dev": "eth0"},
        {"dst": "172.16.0.0/12", "dev": "wg0", "table": "51820"},
        {"type": "multicast", "dst": "224.0.0.0/4", "dev": "eth0"},
        {"type": "blackhole", "dst": "10.9.0.0/16"},
    ]
    assert host.route_addresses(rows) == [
        Occupied("0.0.0.0/0", "route default via 10.0.0.1 dev eth0"),
        Occupied("172.16.0.0/12", "route 172.16.0.0/12 dev wg0 table 51820"),
        Occupied("10.9.0.0/16", "route 10.9.0.0/16"),
    ]


def test_the_kernels_own_table_is_little_endian(tmp_path: Path) -> None:
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    table = tmp_path / "route"
    table.write_text(head + "eth0\t0064A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
    assert host.main_table(table) == [Occupied("192.168.100.0/24", "route dev eth0")]
    table.write_text(head + "eth0\tzz\n")
    with pytest.raises(host.HostUnknown):
        host.main_table(table)


def test_b12_disk_boot_and_filesystem_answer_or_are_unknown(tmp_path: Path) -> None:
    free, total = host.disk_free(tmp_path)
    assert 0 < free <= total
    assert len(host.boot_id()) == 36
    assert host.filesystem_type(Path("/proc/self")) == "proc"
    (tmp_path / "link").symlink_to("/proc")
    assert host.filesystem_type(tmp_path / "link") == "proc"
    assert host.filesystem(tmp_path / "link") == ("proc", "/proc")
    for call in (host.disk_free, host.filesystem_type):
        with pytest.raises(host.HostUnknown):
            call(tmp_path / "none")
