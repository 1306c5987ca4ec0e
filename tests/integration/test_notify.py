"""sd_notify against real sockets, those in the file system and abstract ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from marathond.service.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[socket.socket, str]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    request.addfinalizer(listener.close)
    listener.settimeout(120)
    if request.param == "path":
        name = str(tmp_path / "notify")
        listener.bind(name)
        return listener, name
    listener.bind("")  # the kernel picks an abstract name
    return listener, "@" + listener.getsockname().lstrip(b"\0").decode()


def test_every_message_arrives(systemd: tuple[socket.socket, str]) -> None:
    listener, name = systemd
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000"})
    assert notifier.asked and notifier.watchdog_s == 60
    assert notifier.ready("recovered 3 trials\nEXEC=rm") and listener.recv(4096) == b"READY=1\nSTATUS=recovered 3 trials EXEC=rm"
    assert notifier.status("12 running") and listener.recv(4096) == b"STATUS=12 running"
    assert notifier.watchdog() and listener.recv(4096) == b"WATCHDOG=1"
    assert notifier.extend(1.5, "recovering") and listener.recv(4096) == b"EXTEND_TIMEOUT_USEC=1500000\nSTATUS=recovering"
    assert notifier.stopping("bye") and listener.recv(4096) == b"STOPPING=1\nSTATUS=bye"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}])
def test_nobody_asked(environ: dict[str, str]) -> None:
    notifier = Notifier(environ)
    assert not notifier.asked and not notifier.ready("up") and notifier.watchdog_s is None


def test_a_listener_that_went_away_is_told_not_raised(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert not notifier.watchdog()
    assert notifier.failure == "NOTIFY_SOCKET: No such file or directory"


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "77"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "78"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_ours_or_nobodys(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environ, pid=77).watchdog_s == seconds
