"""Execs: short ones attached, long ones detached and waited for.

Owns what an exec's life looks like over the API.  Must not know agents or verifiers.

Facts (measured on 20.10.24 and 28.5.2): a missing binary or folder is answered with HTTP 400/500 to a detached start and with exit code
126 (127 on 28.5) on the exec, and the reason comes on stdout of an attached one (fault b08).  An unknown user is the same on
20.10; 28.5 refuses to create the exec at all (HTTP 400).  Exec ids do not
survive a restart of dockerd.  An exec that was created and never started is not running and has no exit code.
An attached stream blocks its process for good after a live-restore restart (b18): whatever lives long is started detached.
"""

from __future__ import annotations

from typing import Any

import anyio
import structlog
from aiodocker.execs import Exec
from aiodocker.stream import Stream

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, NotFound, failed_itself
from marathond.engine.client import EngineClient
from marathond.engine.decode import exec_info, made_id
from marathond.engine.events import EventHub
from marathond.ports.engine import ExecInfo, ExecResult, ExecSpec

FIRST_LOOKS_S = (0.01, 0.02, 0.04)
"""Pauses before the first looks: most gates end within them."""

LOOK_SHARE = 0.25
"""Later pauses are this share of the time waited so far, so that a late look costs at most a quarter more."""

LOOK_MAX_HINTED_S, LOOK_MAX_BLIND_S = 5.0, 2.0
"""Longest pause with and without a live event stream, as long as few are waited for."""

LOOKS_HINTED_PER_S, LOOKS_BLIND_PER_S = 20, 50
"""With and without a live event stream, at most about so many looks in all: each costs a thousandth of a core.  Their ends come as
events; a look finds what an event did not tell, and 400 execs are looked at every 20 s."""

OWN_ERRORS_S = 60.0
"""How long an engine that answers nothing but its own errors (5xx) is asked for an exec's end."""
_START_REFUSED = (126, 127)
_BAD_REQUEST = 400

_log = structlog.get_logger(__name__)


def look_pause_s(looks: int, waited_s: float, *, hinted: bool, waiting: int = 1) -> float:
    """How long to wait before the next look at an exec, in seconds; ``waiting``: how many are waited for."""
    if looks < len(FIRST_LOOKS_S):
        return FIRST_LOOKS_S[looks]
    longest = max(LOOK_MAX_HINTED_S, waiting / LOOKS_HINTED_PER_S) if hinted else max(LOOK_MAX_BLIND_S, waiting / LOOKS_BLIND_PER_S)
    return min(longest, max(FIRST_LOOKS_S[-1], waited_s * LOOK_SHARE))


def exec_body(spec: ExecSpec, *, attach: bool) -> dict[str, Any]:
    """The request of ``POST /containers/{id}/exec``."""
    body: dict[str, Any] = {
        "Cmd": list(spec.argv),
        "Env": [f"{key}={value}" for key, value in spec.env.items()],
        "AttachStdout": attach,
        "AttachStderr": attach,
        "Tty": False,
    }
    if spec.user is not None:
        body["User"] = spec.user
    if spec.cwd is not None:
        body["WorkingDir"] = spec.cwd
    return body


class Execs:
    """The exec half of :class:`~marathond.engine.docker.DockerEngine`."""

    def __init__(self, client: EngineClient, hub: EventHub) -> None:
        self._client, self._hub = client, hub

    async def create(self, container_id: str, spec: ExecSpec, *, attach: bool = False) -> str:
        """Create only.

        :raises NotFound: unknown container.
        :raises EngineError: status 409 for a stopped or paused container; 400 for an unknown user on 28.5 (see the module's facts).
        """
        raw = await self._client.request("exec.create", "POST", f"containers/{container_id}/exec", body=exec_body(spec, attach=attach))
        return made_id("exec.create", raw)

    async def start(self, exec_id: str) -> None:
        """Start detached.  Started already is success; refused by the runtime shows in :meth:`inspect` (126/127), as the port says."""
        try:
            await self._client.request("exec.start", "POST", f"exec/{exec_id}/start", body={"Detach": True, "Tty": False})
        except (NotFound, EngineUnreachable, EngineTimeout):
            raise
        except EngineError as exc:
            seen = await self.inspect(exec_id)
            if seen is None or not (seen.running or seen.exit_code is not None):
                raise
            if seen.exit_code in _START_REFUSED:
                _log.info("exec refused", exec=exec_id, exit_code=seen.exit_code, reason=exc.detail)

    async def inspect(self, exec_id: str) -> ExecInfo | None:
        """None when the engine does not know it (any more)."""
        try:
            return exec_info(await self._client.request("exec.inspect", "GET", f"exec/{exec_id}/json"))
        except NotFound:
            return None

    async def wait(self, exec_id: str) -> ExecInfo | None:
        """Until it ended; see the port.  One that was never started is waited for as well (a start may still be on its way)."""
        flag = self._hub.watch(exec_id)
        began, looks = anyio.current_time(), 0
        refused_at: float | None = None
        try:
            while True:
                flag.clear()  # before the look: an event that comes during it must wake the next one
                try:
                    seen, refused_at = await self.inspect(exec_id), None
                    if seen is None or (not seen.running and seen.exit_code is not None):
                        return seen
                except (EngineUnreachable, EngineTimeout) as exc:
                    _log.debug("exec not seen", exec=exec_id, error=str(exc))
                except EngineError as exc:
                    # One bad answer must not end an agent of ten hours; one that always comes must not be waited for without end.
                    now = anyio.current_time()
                    refused_at = now if refused_at is None else refused_at
                    if not failed_itself(exc) or now - refused_at > OWN_ERRORS_S:
                        raise
                    _log.warning("exec not seen", exec=exec_id, error=str(exc))
                waited_s, hub = anyio.current_time() - began, self._hub
                with anyio.move_on_after(look_pause_s(looks, waited_s, hinted=hub.connected, waiting=hub.watched)):
                    await flag.wait()
                looks += 1
        finally:
            self._hub.unwatch(exec_id, flag)

    async def run(self, container_id: str, spec: ExecSpec, *, timeout_s: float, max_output: int) -> ExecResult:
        """Attached, to its end.  More output than ``max_output`` bytes is read and dropped.

        :raises EngineTimeout: at the deadline; the process may go on, nothing here can end it.
        """
        with self._client.guard("exec.run", timeout_s, reads_only=False):
            try:
                exec_id = await self.create(container_id, spec, attach=True)
            except EngineError as exc:
                if exc.status != _BAD_REQUEST:
                    raise
                return ExecResult(_START_REFUSED[0], exc.detail, False)  # told at once instead of on the exec: one answer for callers
            output, truncated = await self._attached(exec_id, max_output)
            looks = 0
            began = anyio.current_time()
            while True:  # the stream may end a moment before the engine has noted the exit code; bounded by the deadline above
                seen = await self.inspect(exec_id)
                if seen is None:
                    raise NotFound("exec.run", 404, f"exec {exec_id} vanished with its container")
                if seen.exit_code is not None:
                    return ExecResult(seen.exit_code, output.decode("utf-8", "replace"), truncated)
                await anyio.sleep(look_pause_s(looks, anyio.current_time() - began, hinted=False))
                looks += 1

    async def _attached(self, exec_id: str, max_output: int) -> tuple[bytes, bool]:
        output, truncated = bytearray(), False
        stream = Exec(self._client.streams, exec_id, tty=False).start(detach=False)
        try:
            await stream._init()
            while (message := await stream.read_out()) is not None:
                room = max_output - len(output)
                truncated = truncated or len(message.data) > room
                output += message.data[: max(room, 0)]
        finally:
            await _close(stream)
        return bytes(output), truncated


async def _close(stream: Stream) -> None:
    """aiodocker's close asserts a connection that an ended stream no longer has; its ``async with`` misses a cancelled start."""
    if stream._resp is not None and stream._resp.connection is None:
        stream._closed = True
        stream._resp.close()
        return
    await stream.close()
