"""What can go wrong between the host and a codex app-server.

::

    MarathonError
    └── CodexError
        ├── ReachError       the socket must not or cannot be spoken to (before the first byte)
        ├── ConnectionLost   the connection ended; the server and its turn may well go on: reach it again and re-attach
        ├── RequestTimeout   no answer in time: the request may have been carried out, look before you repeat it
        ├── RpcError         the server answered a request with an error
        └── ProtocolDrift    the server speaks another protocol than the one these messages were written for

Every one holds fields, never only prose.
"""

from __future__ import annotations

from typing import Any

from marathond.core.errors import MarathonError


class CodexError(MarathonError):
    """Base of everything raised by the codex client."""


class ReachError(CodexError):
    """The control socket of a container cannot be reached, or must not be.

    :param code: ``container_gone`` (no such process, or another one with that pid), ``not_permitted``, ``tmp_missing``, ``tmp_symlink``,
        ``tmp_not_folder``, ``folder_missing`` (never made, or removed by the agent), ``folder_symlink``, ``folder_not_folder``,
        ``folder_owner``, ``socket_missing``, ``sockets_several``, ``socket_symlink``, ``socket_not_socket``, ``socket_owner``,
        ``socket_refused`` (nobody listens), ``peer_elsewhere`` (the listener is no process of the container), ``peer_other`` (not the one
        expected), ``io``.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{detail} ({code})")


class ConnectionLost(CodexError):
    """The connection ended.

    :param code: ``closed`` (by the server's side), ``broken`` (in the middle of something), ``handshake`` (no WebSocket came about),
        ``overflow`` (more was heard than the consumer took), ``too_large`` (a frame beyond the bound), ``here`` (closed on this side),
        ``contested`` (another client of this host is still connected).
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"codex app-server: {detail} ({code})")


class RequestTimeout(CodexError):
    """No answer within ``timeout_s``.  What happened is UNKNOWN."""

    def __init__(self, method: str, timeout_s: float) -> None:
        self.method, self.timeout_s = method, timeout_s
        super().__init__(f"codex app-server: no answer to {method} within {timeout_s:g} s")


class RpcError(CodexError):
    """The server's error to one request.  ``number``: the JSON-RPC error code; ``message``: the server's words, bounded."""

    def __init__(self, method: str, number: int, message: str, data: Any = None) -> None:
        self.method, self.number, self.message, self.data = method, number, message[:2000], data
        super().__init__(f"codex app-server: {method}: {self.message} ({number})")


class ProtocolDrift(CodexError):
    """A message that this client cannot read.

    :param method: whose answer or notification it was; ``frame`` for something that is no message at all.
    :param field: dotted path of the first field that is wrong, ``-`` for the whole.
    """

    def __init__(self, method: str, field: str, problem: str) -> None:
        self.method, self.field, self.problem = method, field, problem
        super().__init__(f"codex app-server: {method}: field {field}: {problem} (protocol drift)")
