"""The border: foreign errors in, the house's own out, and a deadline around every call.

Owns what an engine's status and text mean.  Must not know which method asked, beyond its name.

Facts (measured): a used-up address pool answers 404 on Docker 20.10 and 400 on 28.5, so the text decides before the status does;
aiodocker raises DockerError(900) for anything that went wrong with the connection, and keeps the cause as ``__context__``;
a stream cut by a dying dockerd raises aiohttp's ClientPayloadError instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import anyio
from aiodocker.exceptions import DockerError

from marathond.core.errors import ConnectionBroke, EngineError, EngineTimeout, EngineUnreachable, NotFound, PoolExhausted, SubnetTaken

NO_CONNECTION = 900
"""aiodocker's own status for "no connection"; never an HTTP status."""

DETAIL_MAX = 2000
"""An engine's words are kept up to this many characters."""

_POOL_TEXTS = (
    "could not find an available, non-overlapping ipv4 address pool",  # 20.10, HTTP 404
    "all predefined address pools have been fully subnetted",  # 28.5, HTTP 400
)
_TAKEN_TEXTS = (
    "pool overlaps with other one on this address space",
    # The bridge driver's own word, HTTP 403 on 20.10: of a network that no list shows, left by a dockerd that was killed in mid-create.
    "networks have overlapping ipv4",
)


def answer_error(call: str, status: int, text: str) -> EngineError:
    """What an HTTP error answer means.  Pure; the text wins over the status where the status misleads."""
    detail = " ".join(text.split())[:DETAIL_MAX] or "no reason given"
    low = detail.lower()
    if any(known in low for known in _POOL_TEXTS):
        return PoolExhausted(call, status, detail)
    if any(known in low for known in _TAKEN_TEXTS):
        return SubnetTaken(call, status, detail)
    if status == 404:
        return NotFound(call, status, detail)
    return EngineError(call, status, detail)


def connection_error(call: str, url: str, cause: BaseException | None, *, reads_only: bool) -> EngineError:
    """What a broken connection means.

    A connection that was never made changed nothing: EngineUnreachable.  One that broke after the request was sent leaves the outcome
    of a changing call unknown, which is what ConnectionBroke says; a reading call can simply be asked again.
    """
    if isinstance(cause, aiohttp.ClientConnectorError):
        reason = _reason(cause.os_error)
        return EngineUnreachable(call, 0, f"cannot reach Docker at {url}: {reason}")
    words = str(cause) or type(cause).__name__
    if reads_only:
        return EngineUnreachable(call, 0, f"the connection to Docker at {url} broke: {words}")
    return ConnectionBroke(call, 0, f"the connection to Docker at {url} broke before it answered ({words}); the outcome is unknown")


def _reason(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "permission denied (are you in group docker?)"
    if isinstance(error, FileNotFoundError):
        return "no such socket (is dockerd running?)"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused (is dockerd running?)"
    return error.strerror or str(error)


@contextmanager
def border(call: str, url: str, deadline_s: float, *, reads_only: bool) -> Iterator[anyio.CancelScope]:
    """Run one engine call under a deadline and translate what it raises; cancellation from outside passes through.

    Yields the scope, so that a transfer that makes progress can move its deadline.
    """
    try:
        with anyio.fail_after(deadline_s) as scope:
            yield scope
    except DockerError as exc:
        if exc.status == NO_CONNECTION:
            raise connection_error(call, url, exc.__context__, reads_only=reads_only) from exc
        raise answer_error(call, exc.status, str(exc.message)) from exc
    except TimeoutError as exc:
        raise EngineTimeout(call, 0, f"no answer from Docker at {url} in time; the outcome is unknown") from exc
    except (aiohttp.ClientError, ConnectionError) as exc:
        raise connection_error(call, url, exc, reads_only=reads_only) from exc
