"""sd_notify(3) without a library: readiness, the status line, the watchdog.

Owns the datagram and the variables of the protocol.  Must not know what is healthy: who pings the watchdog decides that, and it must
depend on the event loop and the ledger only, never on Docker.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

STATUS_MAX = 200
"""Characters of the status line; ``systemctl status`` shows one line."""


class Notifier:
    """Tells systemd; does nothing when systemd did not ask.

    :param environ: read once.  ``NOTIFY_SOCKET`` may be a path or an abstract socket (``@name``).
    """

    def __init__(self, environ: Mapping[str, str], pid: int | None = None) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog_s(environ, os.getpid() if pid is None else pid)
        self.failure = ""

    @property
    def asked(self) -> bool:
        return self._address is not None

    def ready(self, status: str) -> bool:
        return self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, status: str) -> bool:
        return self._send(f"STATUS={_one_line(status)}")

    def watchdog(self) -> bool:
        """To be called at less than half of :attr:`watchdog_s`."""
        return self._send("WATCHDOG=1")

    def stopping(self, status: str) -> bool:
        return self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def extend(self, seconds: float, status: str) -> bool:
        """Ask for more time during a long start or stop."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}\nSTATUS={_one_line(status)}")

    def _send(self, text: str) -> bool:
        """True when systemd took it.  A failure is kept in :attr:`failure`: telling systemd is never worth the daemon's life."""
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(1.0)
                sender.connect(self._address)
                sender.sendall(text.encode())
        except OSError as error:
            self.failure = f"NOTIFY_SOCKET: {error.strerror or error}"
            return False
        self.failure = ""
        return True


def _address(name: str) -> str | None:
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds between pings that systemd waits for, or None: no watchdog, or one meant for another process (sd_watchdog_enabled(3))."""
    text = environ.get("WATCHDOG_USEC", "")
    if not text.isdigit() or int(text) == 0 or environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    return int(text) / 1_000_000


def _one_line(text: str) -> str:
    return " ".join(text.split())[:STATUS_MAX]
