"""The way to a container's control socket, in real containers whose owner tries everything to lead it elsewhere."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.agents.codex.errors import ReachError
from marathond.agents.codex.reach import Reach, connections_from_here, reached, start_ticks
from marathond.core.model import Mount
from tests.support.app_server import UID, Box, container

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
NAME = "ab" * 32
FOLDER = f"/tmp/codex-daemon-{UID}"
FRESH = f"rm -rf {FOLDER}; mkdir -m 700 {FOLDER}; chown {UID}:{UID} {FOLDER}"
CLOSED = "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 5) or die $!'"
"""Leaves a socket's file behind at which nobody listens."""


@pytest.fixture
def hosts_socket() -> Iterator[tuple[socket.socket, Path]]:
    """A listener of the host's, as docker.sock is one; and its path."""
    with tempfile.TemporaryDirectory(prefix="mdt-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / NAME
        listener.bind(str(path))
        listener.listen(5)
        listener.setblocking(False)
        os.chown(path, UID, UID)
        yield listener, path


def code_of(reach: Reach) -> str:
    try:
        with reached(reach) as way:
            return f"reached process {way.peer_pid}"
    except ReachError as err:
        return err.code


def naively(box: Box) -> str:
    """What somebody reaches who trusts the path."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"/proc/{box.pid}/root{FOLDER}/{NAME}")
        return "reached"


async def test_a_link_to_a_socket_of_the_host_is_refused_by_name(docker_host: str, hosts_socket: tuple[socket.socket, Path]) -> None:
    listener, path = hosts_socket
    async with container(docker_host) as box:
        await box.shell(f"{FRESH}; ln -s {path} {FOLDER}/{NAME}", user="0")
        assert naively(box) == "reached"
        listener.accept()[0].close()
        assert code_of(Reach(box.pid, box.start_ticks, UID, NAME)) == "socket_symlink"
        assert code_of(box.reach) == "socket_symlink"
        await box.shell(f"rm -rf {FOLDER}; ln -s {path.parent} {FOLDER}", user="0")
        assert naively(box) == "reached"
        listener.accept()[0].close()
        assert code_of(Reach(box.pid, box.start_ticks, UID, NAME)) == "folder_symlink"
        await box.shell(f"rm -rf {FOLDER} /tmp && ln -s {path.parent.parent} /tmp", user="0")
        assert code_of(Reach(box.pid, box.start_ticks, UID, NAME)) == "tmp_symlink"
        with pytest.raises(BlockingIOError):  # nobody else has come
            listener.accept()


async def test_a_listener_of_the_host_in_the_containers_own_folder_is_not_spoken_to(
    docker_host: str, hosts_socket: tuple[socket.socket, Path]
) -> None:
    path = hosts_socket[1]
    os.chown(path.parent, UID, UID)
    async with container(docker_host, (Mount(str(path.parent), FOLDER, read_only=False),)) as box:
        assert code_of(box.reach) == "peer_elsewhere"


async def test_everything_else_that_can_lie_there_has_a_code_of_its_own(docker_host: str) -> None:
    other = "cd" * 32
    cases = {
        f"rm -rf {FOLDER}": "folder_missing",
        f"rm -rf {FOLDER}; touch {FOLDER}": "folder_not_folder",
        f"{FRESH}; chown 7 {FOLDER}": "folder_owner",
        f"{FRESH}; touch {FOLDER}/{NAME}.lock {FOLDER}/codex.sock": "socket_missing",
        f"{FRESH}; touch {FOLDER}/{NAME} {FOLDER}/{other}": "sockets_several",
        f"{FRESH}; i=0; while [ $i -lt 70 ]; do i=$((i+1)); touch {FOLDER}/$i; done": "sockets_several",
        f"{FRESH}; touch {FOLDER}/{NAME}": "socket_not_socket",
        f"{FRESH}; mkfifo {FOLDER}/{NAME}": "socket_not_socket",
        f"{FRESH}; {CLOSED} {FOLDER}/{NAME}; chown 7 {FOLDER}/{NAME}": "socket_owner",
        f"{FRESH}; {CLOSED} {FOLDER}/{NAME}; chown {UID} {FOLDER}/{NAME}": "socket_refused",
        "rm -rf /tmp; touch /tmp": "tmp_not_folder",
        "rm -rf /tmp": "tmp_missing",
    }
    async with container(docker_host) as box:
        found = {}
        for script, code in cases.items():
            await box.shell(script, user="0")
            found[script] = (code_of(box.reach), code)
        assert all(seen == expected for seen, expected in found.values()), found
        assert code_of(Reach(box.pid, box.start_ticks, UID, "../../etc/passwd")) == "tmp_missing"


async def test_f10_another_process_with_the_same_number_is_not_the_container(docker_host: str) -> None:
    async with container(docker_host) as box:
        assert code_of(Reach(box.pid, box.start_ticks + 1, UID)) == "container_gone"
        assert code_of(box.reach) == "folder_missing"
    assert start_ticks(box.pid) != box.start_ticks
    assert code_of(box.reach) == "container_gone"
    with pytest.raises(ReachError) as raised:
        connections_from_here(box.pid, NAME)
    assert raised.value.code == "container_gone"
