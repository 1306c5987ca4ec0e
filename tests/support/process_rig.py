"""The daemon as a process of its own, which a test may kill at any moment; everything else as in :mod:`tests.support.rig`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

import marathond
from tests.support.rig import Rig

START_S = 180.0
END_S = 120.0


class ProcessRig(Rig):
    """``start`` runs `marathond` on the rig's configuration and waits until its life has begun; ``kill`` is SIGKILL."""

    def __init__(self, docker_host: str, *, prefix: Sequence[str] = (), **options: Any) -> None:
        """``prefix``: command in front of the daemon's, such as ``nsenter --net=…``."""
        super().__init__(docker_host, **options)
        self.prefix = tuple(prefix)
        self.process: subprocess.Popen[bytes] | None = None
        self._write_overrides()

    def _write_overrides(self) -> None:
        sections: dict[str, list[str]] = {}
        for key, value in self.overrides.items():
            section, _, name = key.partition(".")
            shown = f'"{value}"' if isinstance(value, str) else str(value)
            sections.setdefault(section, []).append(f"{name} = {shown}")
        text = "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items() if section != "daemon")
        self.config.write_text(self.config.read_text() + text)

    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "marathond.cli.daemon", "--config", str(self.config)]

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Another daemon on the same configuration.  ``words``: more options."""
        return subprocess.Popen([*self.command(), *words], cwd=Path(marathond.__file__).parents[1], **options)

    async def start(self, *words: str) -> None:
        """``words``: more options of the daemon's.  A process that runs already becomes the caller's to end."""
        lives = self.one("SELECT count(*) FROM run")
        with (self.root / "log").open("ab") as log:
            self.process = self.popen(*words, stdout=log, stderr=log)
        with anyio.fail_after(START_S):
            while self.one("SELECT count(*) FROM run") == lives or not self.sql("SELECT 1 FROM campaign"):
                if self.process.poll() is not None:
                    raise AssertionError(f"marathond ended with {self.process.returncode}:\n{self.log()}")
                await anyio.sleep(0.02)

    def strike(self, how: signal.Signals) -> None:
        """Send a signal to the daemon itself (the prefix has exec'd it)."""
        assert self.process is not None
        self.process.send_signal(how)

    async def ended(self, patience_s: float = END_S) -> int:
        """Exit status; fails when it does not end in time."""
        process, self.process = self.process, None
        assert process is not None
        try:
            return await to_thread.run_sync(process.wait, patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"marathond did not end within {patience_s:g} s:\n{self.log()}") from None

    async def kill(self) -> None:
        if self.process is not None:
            self.strike(signal.SIGKILL)
            await self.ended()

    async def __aexit__(self, *exc: Any) -> None:
        await self.kill()
        await super().__aexit__(*exc)

    def log(self) -> str:
        return (self.root / "log").read_text("utf-8", "replace")[-4000:]

    def story(self) -> str:
        return f"{super().story()}\nlog: {self.log()}"
