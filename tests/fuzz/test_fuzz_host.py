"""What the kernel and iproute2 print: processes under any name, cgroups, mounts, routes.  Unknown where it cannot be read, never empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.agents.codex import reach
from marathond.core.subnets import canonical
from marathond.engine import cgroups, host
from marathond.engine.processes import read_stat
from marathond.gateway import netns
from marathond.ports.host import HostUnknown
from tests.support.fuzzing import count_or_none, files_of_json, fuzz, refused_by, torn

ROUTES = [
    {"dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "flags": []},
    {"type": "multicast", "dst": "224.0.0.0/4", "dev": "eth0"},
    {"type": "local", "dst": "127.0.0.1", "dev": "lo", "table": "local", "prefsrc": "127.0.0.1"},
    {"dst": "172.16.0.0/12", "dev": "wg0", "table": "51820"},
]
ADDRESSES = [
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "eth0", "addr_info": [{"family": "inet", "local": "10.0.0.2", "prefixlen": 24}, {"family": "inet6", "local": "::1"}]},
]
ID = "c" * 64
MOUNTS = b"""24 1 0:22 / /sys rw - sysfs sysfs rw
31 24 0:27 / FOLDER ro - cgroup cgroup rw,memory
32 24 0:28 / FOLDER rw - cgroup cgroup rw,pids
30 24 0:26 / FOLDER rw - cgroup2 cgroup2 rw
"""
CGROUPS = {
    "version 1": b"5:memory:/docker/%b\n4:cpu,pids:/docker/%b\n0::/docker/%b\n" % ((ID.encode(),) * 3),
    "version 2": b"0::/docker/%b\n" % ID.encode(),
}
EVENTS = b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\nmax 5\n"


@pytest.fixture
def own_name() -> Iterator[None]:
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    yield
    comm.write_bytes(before.rstrip(b"\n"))


@pytest.mark.usefixtures("own_name")
def test_c18_a_process_is_the_same_whatever_it_calls_itself() -> None:
    """A name is fifteen bytes of any kind, the process's own to choose, and it stands in the middle of the line."""
    known, pid = read_stat(os.getpid()), os.getpid()
    assert known is not None

    @fuzz
    @given(st.sampled_from([b"\xff\xfe", b") Z 1 1 1 (", b"a\nb", b"(", "²".encode()[:1], b"\xed\xa0\x80"]) | st.binary(max_size=15))
    def named(name: bytes) -> None:
        Path("/proc/self/comm").write_bytes(name or b"x")
        seen = read_stat(pid)
        assert seen is not None and (seen.ppid, seen.session, seen.start_ticks) == (known.ppid, known.session, known.start_ticks)
        assert netns.start_ticks(pid) == reach.start_ticks(pid) == known.start_ticks
        assert cgroups.started_with(pid, "no such container", ["x"]) == {}
        assert cgroups.belongs(pid, "no such container") is False

    named()


@pytest.mark.parametrize("version", sorted(CGROUPS))
def test_b09_a_counter_of_the_kernels_is_read_or_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    for folder in (tmp_path / "1", tmp_path / "self", tmp_path / "cg" / "docker" / ID):
        folder.mkdir(parents=True)
    monkeypatch.setattr(cgroups, "PROC", tmp_path)
    mounts = MOUNTS.replace(b"FOLDER", os.fsencode(tmp_path / "cg"))
    files = {
        "self/mountinfo": mounts,
        "1/cgroup": CGROUPS[version],
        "1/comm": b"sh\n",
        "1/cmdline": b"sh\0",
        "1/environ": b"A=b\0\xff=\xfe\0=\0",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for name in ("memory.oom_control", "memory.events", "pids.events"):
        (tmp_path / "cg" / "docker" / ID / name).write_bytes(EVENTS)
    assert (cgroups.oom_kills(1, ID), cgroups.pids_refused(1, ID)) == (3, 5)

    @fuzz
    @given(torn(CGROUPS[version], (b"::", ID.encode())), torn(mounts, (b" - ", b"cgroup")), torn(EVENTS, (b"oom_kill ", b"max -1")))
    def read(lines: bytes, mountinfo: bytes, events: bytes) -> None:
        (tmp_path / "1" / "cgroup").write_bytes(lines)
        (tmp_path / "self" / "mountinfo").write_bytes(mountinfo)
        for name in ("memory.oom_control", "memory.events", "pids.events"):
            (tmp_path / "cg" / "docker" / ID / name).write_bytes(events)
        assert count_or_none(cgroups.oom_kills(1, ID)) and count_or_none(cgroups.pids_refused(1, ID))
        assert cgroups.belongs(1, ID) is (ID.encode() in lines)
        assert cgroups.started_with(1, ID, ["sh"]) in ({}, {"A": "b", "�": "�", "": ""})

    read()


@fuzz
@given(files_of_json(ROUTES), files_of_json(ADDRESSES))
def test_f11_routes_and_addresses_are_networks_or_unknown(routes: bytes, addresses: bytes) -> None:
    for data, read in ((routes, host.route_addresses), (addresses, host.interface_addresses)):
        found = refused_by(lambda data=data, read=read: read(host.ip_rows("ip", data)), HostUnknown)  # type: ignore[misc]
        if not isinstance(found, HostUnknown):
            assert all(canonical(each.cidr) and each.what for each in found)


@fuzz
@given(torn(b"nameserver 192.168.1.53\nnameserver fd00::1\noptions x\n", (b"nameserver", b"1.2.3", b"/8")))
def test_f11_resolvers_are_addresses_or_unknown(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "resolv.conf"
    path.write_bytes(data)
    found = refused_by(lambda: host.read_resolvers(path), HostUnknown)
    assert isinstance(found, HostUnknown) or all(canonical(each.cidr) for each in found)


@settings(fuzz, max_examples=20)
@given(torn(b"Iface\tDestination\n" + b"eth0\t0064A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" * 2, (b"\t", b"-1", b"0x")))
def test_f11_the_kernels_table_is_networks_or_unknown(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "route"
    path.write_bytes(data)
    found = refused_by(lambda: host.main_table(path), HostUnknown)
    assert isinstance(found, HostUnknown) or all(canonical(each.cidr) for each in found)


def test_f05_a_mount_of_any_bytes_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"24 1 0:22 / / rw - ext4 /dev/x rw\n25 24 0:23 / /mnt/\xff\\040b rw - nfs4 x rw\n"

    @fuzz
    @given(torn(data, (b" - ", b"nfs4")))
    def read(mountinfo: bytes) -> None:
        monkeypatch.setattr(host, "_read_proc", lambda what, path: mountinfo.decode("utf-8", "surrogateescape"))
        kind = refused_by(lambda: host.filesystem_type(tmp_path), HostUnknown)
        assert isinstance(kind, HostUnknown) or kind

    read()
