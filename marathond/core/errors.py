"""The exceptions of the house, one small tree.

Expected endings are values, never exceptions; these are for broken ports, refusals and bugs::

    MarathonError
    ├── ConfigError            a file, key or value the user can mend (where, what, expected)
    ├── Refused                a command that must not be carried out now (shown as one line)
    │   └── LedgerRefused      a ledger that must not be opened or written
    ├── EngineError            Docker answered no, or cannot be reached
    │   ├── EngineUnreachable  nothing answers at the socket
    │   ├── EngineTimeout      no answer in time: the outcome is UNKNOWN, look before you decide
    │   ├── NotFound           the engine does not know that id
    │   ├── BuilderMissing     an image needs a builder that this host does not have
    │   ├── PoolExhausted      no subnet to be had from the engine's own pools
    │   └── SubnetTaken        an explicit subnet overlaps somebody's network
    ├── StageError             a program for containers could not be fetched, copied or verified
    ├── ArtifactError          an artifact could not be written or read safely (ESTALE, no space, a link out)
    └── GateFailed             a check before the agent's start said no: infrastructure, with a void code

Adapters translate foreign errors at the border and keep the foreign text in ``detail``.
"""

from __future__ import annotations

from http import HTTPStatus


class MarathonError(Exception):
    """Base of everything this package raises on purpose; ``str()`` is one line fit to be shown to a person."""


class ConfigError(MarathonError):
    """Something the user wrote is wrong.

    :param where: file, and line or key (``config.toml:31``); empty when there is no file.
    :param what: the key and its value, as the user wrote them.
    :param expected: what would have been right.
    """

    def __init__(self, where: str, what: str, expected: str) -> None:
        self.where, self.what, self.expected = where, what, expected
        super().__init__(": ".join(part for part in (where, what, expected) if part))


class Refused(MarathonError):
    """A command that is understood and must not be carried out in the present state."""


class LedgerRefused(Refused):
    """A ledger that must not be opened or written.

    :param code: stable word for the reason: ``missing``, ``exists``, ``newer``, ``older``, ``corrupt``, ``read_only``, ``copied``,
        ``network_filesystem``, ``in_use``, ``not_a_ledger``, ``old_epoch``, ``replaced``, ``disk_full``, ``busy``, ``io``,
        ``settings``, ``migrations``, ``backup``, ``no_wal``, ``cannot_open``.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


PASSING = frozenset({"disk_full", "busy"})
"""Codes of LedgerRefused that are over when somebody makes room or lets go; all others stay until a person acts."""


class EngineError(MarathonError):
    """The engine said no.

    :param call: which call (``network.create``).
    :param status: HTTP status, 0 when there was none.
    :param detail: the engine's own words.

    The call stands behind the words: ``info:`` or ``version:`` before them reads like a log's level.
    """

    def __init__(self, call: str, status: int, detail: str) -> None:
        self.call, self.status, self.detail = call, status, detail
        super().__init__(self._words())

    def _words(self) -> str:
        return f"{self.detail} ({self.call}{f', HTTP {self.status}' if self.status else ''})"


class EngineUnreachable(EngineError):
    """Nothing answers at the engine's socket, whatever is asked."""

    def _words(self) -> str:
        return self.detail


class EngineTimeout(EngineError):
    """No answer within the call's deadline.  What happened is UNKNOWN: the call may still complete on the server."""


class ConnectionBroke(EngineTimeout):
    """The connection ended before the answer: the engine, or somebody between, went away.  The outcome is as unknown."""


QUESTIONS = frozenset({"info", "container.inspect", "container.list", "container.top", "exec.inspect", "network.inspect", "network.list"})
"""Calls that change nothing."""


def failed_itself(error: EngineError) -> bool:
    """The engine could not answer a mere question (5xx): nothing is known, as if it had not answered at all."""
    return error.call in QUESTIONS and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, NotFound)


class NotFound(EngineError):
    """The engine does not know that id (any more)."""


class BuilderMissing(EngineError):
    """An image needs a builder that this host does not have; ``detail`` says what to install."""


class PoolExhausted(EngineError):
    """The engine's own address pools are used up (20.10 answers 404, 28.5 answers 400; matched by text, facts of 2026)."""


class SubnetTaken(EngineError):
    """An explicit subnet overlaps a network that exists (HTTP 403)."""


class ArtifactError(MarathonError):
    """An artifact could not be written or read safely.

    :param code: ``unsafe_path``, ``not_regular``, ``too_large``, ``io`` (ESTALE, EIO, root_squash), ``no_space``, ``altered`` (not what was
        exported), ``foreign`` (another ledger's).
    """

    def __init__(self, code: str, path: str, detail: str) -> None:
        self.code, self.path, self.detail = code, path, detail
        super().__init__(f"{path}: {detail} ({code})")


class StageError(MarathonError):
    """A program for containers could not be staged, or what is staged is not what it was.

    :param code: ``npm`` (missing, or it failed), ``integrity``, ``package`` (not of the shape expected), ``folder``, ``version``,
        ``altered``, ``absent``, ``no_space``, ``io``, ``busy``.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class GateFailed(MarathonError):
    """A gate before the agent's first step said no.

    :param code: void code recorded in the ledger.
    :param detail: the evidence, bounded by the caller.
    """

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{code}: {detail}")
