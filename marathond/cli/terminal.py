"""One command in a container, with this process's own terminal or pipes.

Owns raw mode, window size and the copying of bytes both ways.  Must not know trials or arms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import anyio
import anyio.lowlevel
from aiodocker.exceptions import DockerError
from aiodocker.stream import Stream

from marathond.core.errors import EngineError
from marathond.engine.client import EngineClient
from marathond.ports.engine import ExecSpec

CHUNK = 65536

RESIZE_TRIES, RESIZE_PAUSE_S = 10, 0.05

Resize = Callable[..., Awaitable[None]]

DETACH_KEYS = "ctrl-^,ctrl-^"
"""Docker's own (ctrl-p) would swallow the shell's "previous command"."""


async def run_in_container(client: EngineClient, container_id: str, spec: ExecSpec, *, interactive: bool) -> int:
    """Run to its end and return its exit code.

    :param interactive: allocate a terminal and put ours (stdin) into raw mode; otherwise stdin, stdout and stderr are plain streams.
    :raises EngineError: the engine does not know the container, or cannot run the command.
    """
    with client.guard("exec.create", reads_only=False):
        container = client.streams.containers.container(container_id)
        made = await container.exec(
            list(spec.argv),
            stdin=True,
            tty=interactive,
            user=spec.user or "",
            environment=dict(spec.env),
            workdir=spec.cwd,
            detach_keys=DETACH_KEYS,
        )
    stream = made.start(detach=False)
    with client.guard("exec.start", reads_only=False):
        await stream._init()
    try:
        with _raw_terminal() if interactive else contextlib.nullcontext():
            async with anyio.create_task_group() as tasks:
                if interactive:
                    tasks.start_soon(_follow_size, made.resize)
                tasks.start_soon(_stdin_to, stream)
                await _output_of(stream)
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from group
    finally:
        await stream.close()
    state = await client.request("exec.inspect", "GET", f"exec/{made.id}/json")
    code = state.get("ExitCode")
    if not isinstance(code, int):
        raise EngineError("exec.inspect", 0, "the connection ended before the command did; it may still run")
    return code


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong, as one error: the engine's in the house's words, our own (a closed pipe) as it is."""
    leaf: BaseException = group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    if isinstance(leaf, DockerError | aiohttp.ClientError):
        return EngineError("exec.attach", 0, f"the connection to the command broke: {leaf}")
    return leaf


async def _stdin_to(stream: Stream) -> None:
    """Until the end of our stdin, which is passed on as the end of the command's.

    Waits in the loop, never in a thread: a thread that sits in a terminal's read would keep this process alive after the command ended.
    """
    fd = sys.stdin.fileno()
    while data := await _read(fd):
        try:
            await stream.write_in(data)
        except ConnectionError:  # the command no longer reads; what it still writes goes on
            return
    response = stream._resp  # aiodocker has no half-close of its own
    transport = response.connection.transport if response is not None and response.connection is not None else None
    if transport is not None and transport.can_write_eof():
        transport.write_eof()


async def _read(fd: int) -> bytes:
    try:
        await anyio.wait_readable(fd)
    except PermissionError:  # a plain file or /dev/null: epoll refuses those, and they never keep a reader waiting
        await anyio.lowlevel.checkpoint()
    return os.read(fd, CHUNK)


async def _output_of(stream: Stream) -> None:
    while (message := await stream.read_out()) is not None:
        _write_all(sys.stderr.fileno() if message.stream == 2 else sys.stdout.fileno(), message.data)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def _follow_size(resize: Resize) -> None:
    """Now, and at every change of our window."""
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        await _resize(resize)
        async for _ in changes:
            await _resize(resize)


async def _resize(resize: Resize) -> None:
    """The engine refuses while the command is only just starting: asked again for half a second.  A wrong size harms nothing further."""
    size = shutil.get_terminal_size()
    for _ in range(RESIZE_TRIES):
        try:
            await resize(h=size.lines, w=size.columns)
        except DockerError:
            await anyio.sleep(RESIZE_PAUSE_S)
        else:
            return


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Keys go to the command as they are; whatever happens, the terminal is put back."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
