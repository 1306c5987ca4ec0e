"""What a container really reaches, tried from inside its own network.

Owns the targets and the tries.  Nothing is needed in the image: a thread of ours enters the container's network namespace, as the gateway
does for its listeners, and connects from there.  To reach this host something must listen: a port of ours that answers with a nonce, so
that neither "refused" nor somebody else's answer is mistaken for a proof.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from marathond.core.errors import EngineError
from marathond.core.preflight.engine import Reached
from marathond.engine.cgroups import belongs
from marathond.gateway import netns
from marathond.ports.engine import ContainerInfo
from marathond.service.preflight.run import Unseen

TRY_S = 3.0
"""For each target; all are tried side by side."""

INTERNET = (("1.1.1.1", 443), ("8.8.8.8", 443), ("9.9.9.9", 443))
"""Three who answer everybody, by address: whether names resolve is another matter."""
TLS_PORT = 443

Target = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bell:
    """A port of ours on all addresses of this host that says its nonce to whoever comes."""

    port: int
    nonce: bytes


@contextlib.contextmanager
def bell() -> Iterator[Bell]:
    """Open for as long as the context lasts; says nothing but a nonce, and reads nothing."""
    nonce = secrets.token_hex(16).encode()
    with socket.create_server(("0.0.0.0", 0), backlog=64) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:  # closed: the probe is over
                    return
                with contextlib.suppress(OSError), connection:
                    connection.sendall(nonce)

        threading.Thread(target=answer, name="bell", daemon=True).start()
        try:
            yield Bell(server.getsockname()[1], nonce)
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a mere close would leave in accept


def connect(target: Target, nonce: bytes | None = None) -> str:
    """Empty when ``target`` was reached, else why not.

    With a nonce only who says it counts; at the port of https only who shows a certificate for that address: a host on the way may take
    every connection, and lead nowhere.
    """
    try:
        with socket.create_connection(target, timeout=TRY_S) as connection:
            if nonce is not None:
                return "" if connection.recv(len(nonce), socket.MSG_WAITALL) == nonce else "somebody else answers there"
            if target[1] == TLS_PORT:
                with ssl.create_default_context().wrap_socket(connection, server_hostname=target[0]):
                    pass
            return ""
    except TimeoutError:
        return "no answer"
    except ssl.SSLCertVerificationError:
        return "somebody else answers: the certificate is not theirs"
    except ssl.SSLError:
        return "connected, and no TLS"
    except OSError as error:
        return (error.strerror or str(error)).lower()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to try.  ``host``: addresses of this host where the bell rings; ``gateway_port``: on loopback inside."""

    host: Sequence[str]
    gateway_port: int
    internet: Sequence[Target] = INTERNET
    proxies: Mapping[str, Target] | None = None
    names: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """``names``: why names are not resolved; empty when they are, or when nobody asked."""

    reached: Reached
    proxies: Mapping[str, str]
    names: str = ""


def look(info: ContainerInfo, plan: Plan) -> Seen:
    """Blocks for at most a few :data:`TRY_S`.

    :raises Unseen: the container's network cannot be entered from here.
    """
    ticks = netns.start_ticks(info.pid)
    try:
        if ticks is None or not belongs(info.pid, info.id):
            raise Unseen("the container's processes are not seen on this host: does the engine run elsewhere?")
    except EngineError as error:
        raise Unseen(error.detail) from error
    with bell() as ringing:
        control = connect((plan.host[0], ringing.port), ringing.nonce) if plan.host else "this host has no address but loopback"
        try:
            return netns.inside(info.pid, ticks, lambda: _tries(plan, ringing, control))
        except netns.NamespaceError as error:
            if error.code == "not_permitted":
                raise Unseen(f"{error.detail}: only root can enter a container's network; the daemon runs as root, too") from error
            raise Unseen(str(error)) from error


def _tries(plan: Plan, ringing: Bell, control: str) -> Seen:
    """Sockets belong to the network of the thread that opens them, and so do its children's."""
    host = {f"this host ({address})": ((address, ringing.port), ringing.nonce) for address in plan.host}
    host["this host (its loopback)"] = (("127.0.0.1", ringing.port), ringing.nonce)
    port = {f"port {plan.gateway_port} on loopback": (("127.0.0.1", plan.gateway_port), None)}
    internet = {f"{address}:{number}": ((address, number), None) for address, number in plan.internet}
    proxies = {f"the proxy {words}": (target, None) for words, target in (plan.proxies or {}).items()}
    found = side_by_side({**host, **port, **internet, **proxies})

    def of(group: Iterable[str]) -> dict[str, str]:
        return {name: found[name] for name in group}

    return Seen(Reached(of(host), of(port), of(internet), control), of(proxies), resolve() if plan.names else "")


def side_by_side(tries: Mapping[str, tuple[Target, bytes | None]]) -> dict[str, str]:
    found = dict.fromkeys(tries, "no answer")

    def one(name: str, target: Target, nonce: bytes | None) -> None:
        found[name] = connect(target, nonce)

    threads = [threading.Thread(target=one, args=(name, *what), daemon=True) for name, what in tries.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 2 * TRY_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(found)


def resolve(server: Target = ("127.0.0.11", 53), name: str = "example.com") -> str:
    """Empty when ``name`` has an address by that resolver (Docker's own, in every network but the default one), else why not."""
    number = secrets.token_bytes(2)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    # RFC 1035, 4.1: one question, recursion desired; type A, class IN
    question = number + bytes([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + labels + bytes([0, 0, 1, 0, 1])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(TRY_S)
            asking.connect(server)
            asking.send(question)
            answer = asking.recv(4096)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if len(answer) < len(question) or answer[:2] != number or not answer[2] & 0x80:
        return "what answers is no resolver"
    if code := answer[3] & 0x0F:
        return {2: "the resolver fails (SERVFAIL)", 3: f"it knows no {name}", 5: "it refuses"}.get(code, f"it answers with code {code}")
    return "" if answer[6:8] != b"\0\0" else f"it knows no address of {name}"


def target_of(url: str) -> Target | None:
    """Host and port of a proxy's or a hook's URL, with or without a scheme; None: there is none in it."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.hostname, port or {"https": 443, "http": 80, "socks5": 1080, "socks5h": 1080}.get(parts.scheme, 80)
