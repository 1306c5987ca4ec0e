"""A campaign with a way to a model: a provider, a gateway process and a daemon, in folders of their own.

    with model_campaign(docker_host, tasks, {"plain": {"kind": "codex", "drive": "turn"}}, script) as ran:
        assert ran.reward("task", "plain") == 1.0

The provider is the practice provider in this process, with ``script`` (:class:`~marathond.practice.script.Practice`, or its TOML text);
the gateway is the product's own process on the rig's folder; the daemon is :class:`tests.support.rig.Rig`'s, in this process too, so that a
test may replace an agent (tests/support/model_agent.py).  The daemon as a process that can be killed: :class:`ModelProcessRig`.

The real key is made anew for each rig and lies in ``rig.key_file``; only the gateway may read it.  The provider's url stands in the
gateway's route ``main``.  All trials come to the provider with one key: its script tells them apart by what they say, not by trial or arm.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anyio
from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

import marathond
from marathond.gateway import journal_read
from marathond.practice.script import Practice, parse
from marathond.practice.server import PracticeServer, practising
from tests.support.codex_env import CACHE, codex_tree, codex_wanted
from tests.support.hostile import MANY, Ran
from tests.support.model_agent import commands_that_ask
from tests.support.process_rig import ProcessRig
from tests.support.rig import PATIENCE_S, Rig

UP_S = 180.0
MODEL = "gpt-5.5"


def files_with(key: str, folder: Path) -> list[Path]:
    """Plain files below it that hold the key.  What a living daemon or gateway takes away while we look (a file that is written aside, the
    run directory of an exported trial) holds nothing."""
    found = []
    for path in (Path(where, name) for where, _, names in os.walk(folder) for name in names):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink() and key.encode() in path.read_bytes():
                found.append(path)
    return found


class GatewayProcess:
    """`marathond gateway` on ``folder``; waits for the daemon's settings by itself."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log_path = folder, log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        argv = [sys.executable, "-m", "marathond.cli.daemon", "gateway", "--wait", str(self.folder)]
        environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(argv, cwd=Path(marathond.__file__).parents[1], stdout=log, stderr=log, env=environ)

    async def serving(self) -> None:
        """Until a life of this very process has said that it lives."""
        with anyio.fail_after(UP_S):
            while self.alive().get("pid") != self.pid:
                if self._process is None or self._process.poll() is not None:
                    raise AssertionError(f"the gateway ended:\n{self.log()}")
                await anyio.sleep(0.05)

    def alive(self) -> dict[str, Any]:
        """The content of alive.json; empty while there is none."""
        try:
            return dict(json.loads((self.folder / "alive.json").read_bytes()))
        except FileNotFoundError:
            return {}

    async def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send ``how`` and wait; its exit status."""
        process, self._process = self._process, None
        assert process is not None
        if process.poll() is None:
            process.send_signal(how)
        return await to_thread.run_sync(process.wait)

    async def kill(self) -> None:
        """As kill -9 does."""
        await self.end(signal.SIGKILL)

    async def close(self) -> None:
        if self._process is not None:
            await self.kill()

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")[-4000:] if self.log_path.exists() else "(no log)"

    def records(self, event: str = "request") -> list[dict[str, Any]]:
        """Journal records of that kind, in order."""
        folder, found = self.folder / "journal", []
        position = journal_read.START
        while folder.is_dir():
            entries, after = journal_read.read_from(folder, position)
            found += [entry.fields for entry in entries if isinstance(entry, journal_read.Record) and entry.fields["event"] == event]
            if after == position or not entries:
                break
            position = after
        return found


class _WithModel(Rig):
    """What both rigs share: the gateway beside the daemon, the key, the provider's url in the configuration."""

    provider: PracticeServer
    gateway: GatewayProcess
    key: str
    key_file: Path
    judge_key: str
    """Of the route ``judge``, which verifiers take where ``gateway.verifier_route`` says so."""

    def _prepare(self, arms: Mapping[str, Mapping[str, Any]]) -> None:
        self.key, self.key_file = f"sk-real-{secrets.token_hex(16)}", self.root / "provider.key"
        self.key_file.touch(mode=0o600)
        self.key_file.write_text(self.key + "\n")
        self.judge_key = f"sk-judge-{secrets.token_hex(16)}"
        judge_file = self.key_file.with_name("judge.key")
        judge_file.touch(mode=0o600)
        judge_file.write_text(self.judge_key + "\n")
        self.gateway = GatewayProcess(self.root / "state" / "gateway", self.root / "gateway.log")
        if any(arm.get("kind") == "codex" for arm in arms.values()):
            codex_tree()
            if not os.environ.get("MARATHOND_CODEX"):
                (self.root / "state" / "staged").symlink_to(CACHE / "staged")

    async def __aenter__(self) -> Self:
        try:
            self.gateway.start()
            await super().__aenter__()
            await self.gateway.serving()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.gateway.close()
            raise
        return self

    async def __aexit__(self, *exc: Any) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self.gateway.close()
        finally:
            (self.root / "state" / "staged").unlink(missing_ok=True)
            await super().__aexit__(*exc)

    def story(self) -> str:
        asked = [(r["trial"], r["account"], r["end"], r["status"], r["error_type"], r.get("held_ms")) for r in self.gateway.records()]
        return f"{super().story()}\nusage: {self.sql('SELECT * FROM model_usage')}\nrequests: {asked[-60:]}\ngateway: {self.gateway.log()}"


class ModelRig(_WithModel):
    """:class:`Rig` with a gateway; ``provider`` must listen already."""

    async def caught_up(self) -> None:
        """Everything that the gateway has told by now is in the ledger."""
        assert self.daemon is not None and self.daemon.world is not None and self.daemon.world.caught_up is not None
        await self.daemon.world.caught_up()

    async def until_done(self, patience_s: float = PATIENCE_S) -> None:
        await super().until_done(patience_s)
        await self.caught_up()

    def __init__(self, docker_host: str, provider: PracticeServer, *, arms: Mapping[str, Mapping[str, Any]], **options: Any) -> None:
        self.provider = provider
        super().__init__(docker_host, arms=arms, **options)
        self._prepare(arms)
        self.overrides = {**_way(provider, self.key_file), **self.overrides}


class ModelProcessRig(ProcessRig, _WithModel):
    """:class:`ProcessRig` with a gateway.  The daemon is tests/support/model_daemon.py: the product's, with commands that ask."""

    def __init__(self, docker_host: str, provider: PracticeServer, *, arms: Mapping[str, Mapping[str, Any]], **options: Any) -> None:
        self.provider = provider
        super().__init__(docker_host, arms=arms, **options)
        self._prepare(arms)
        way = {key: value for key, value in _way(provider, self.key_file).items() if key not in self.overrides}
        self.overrides = {**way, **self.overrides}
        lines = [f"{key} = {_toml(value)}" for key, value in way.items()]
        self.config.write_text("\n".join(lines) + "\n" + self.config.read_text())

    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "tests.support.model_daemon", "--config", str(self.config)]


def _way(provider: PracticeServer, key_file: Path) -> dict[str, object]:
    way: dict[str, object] = {
        "gateway.routes": {
            "main": {"base_url": f"{provider.url}/v1", "key_file": str(key_file)},
            "judge": {"base_url": f"{provider.url}/v1", "key_file": str(key_file.with_name("judge.key"))},
        },
        "codex.model": MODEL,
    }
    return {**way, "codex.folder": str(codex_wanted().folder)} if os.environ.get("MARATHOND_CODEX") else way


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    return json.dumps(value)


@dataclass(frozen=True)
class ModelRan(Ran):
    """A campaign with a model that came to its end; daemon, gateway and provider still live."""

    rig: ModelRig
    portal: BlockingPortal
    """Runs what must run in the daemon's loop: ``ran.portal.call(async_function, …)``."""

    def usage(self, task: str, arm: str, account: str = "agent") -> dict[str, int]:
        """The sums of one trial's account over all models; empty when it never asked."""
        columns = (
            "requests",
            "failed",
            "unknown",
            "input_tokens",
            "cached_tokens",
            "output_tokens",
            "reasoning_tokens",
            "held_ms",
            "retries",
        )
        sums = ", ".join(f"sum({column})" for column in columns)
        rows = self.rig.sql(f"SELECT {sums} FROM model_usage WHERE trial_id = ? AND account = ?", self.trial(task, arm), account)
        return {} if rows[0][0] is None else dict(zip(columns, rows[0], strict=True))

    def findings(self, code: str) -> list[tuple[str, str, str]]:
        """(severity, subject, detail) of each, also closed ones."""
        rows = self.rig.sql("SELECT severity, subject, detail FROM finding WHERE code = ? ORDER BY finding_id", code)
        return [(row[0], row[1], row[2]) for row in rows]


@asynccontextmanager
async def model_rig(
    docker_host: str,
    tasks: Sequence[Path],
    arms: Mapping[str, Mapping[str, Any]],
    script: Practice | str,
    *,
    overrides: Mapping[str, object] | None = None,
    record: Path | None = None,
    in_process: bool = True,
    **options: Any,
) -> AsyncIterator[Any]:
    """Provider, gateway and daemon, begun.  Yields a :class:`ModelRig`, or a :class:`ModelProcessRig` when not ``in_process``.

    :param record: where the provider writes down what it was asked.
    """
    practice = parse(script) if isinstance(script, str) else script
    kind = ModelRig if in_process else ModelProcessRig
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(practising(practice, record_dir=record))
        rig = kind(docker_host, provider, tasks=tasks, arms=arms, overrides={**MANY, **(overrides or {})}, **options)
        yield await stack.enter_async_context(rig)


@contextmanager
def model_campaign(
    docker_host: str,
    tasks: Sequence[Path],
    arms: Mapping[str, Mapping[str, Any]],
    script: Practice | str,
    *,
    overrides: Mapping[str, object] | None = None,
    record: Path | None = None,
    patience_s: float = PATIENCE_S,
    commands_ask: bool = False,
    until: str | None = None,
    **options: Any,
) -> Iterator[ModelRan]:
    """Run it to its end in a thread of its own, so that synchronous tests can share it.

    :param commands_ask: arms of kind ``command`` get a way to the model too (tests/support/model_agent.py).
    :param until: SQL; yield once its first value is true, instead of at the campaign's end.
    """
    with commands_that_ask() if commands_ask else nullcontext(), start_blocking_portal("asyncio") as portal:
        made = model_rig(docker_host, tasks, arms, script, overrides=overrides, record=record, **options)
        with portal.wrap_async_context_manager(made) as rig:
            if until is None:
                portal.call(rig.until_done, patience_s)
            else:
                portal.call(rig.until, until)
            yield ModelRan(rig, portal)
