"""What every coroutine of the flow shares: ports, settings, the wake-up, the trials that are being driven.

Owns no decision and no state that is not rebuilt from the ledger at start.  Must not know aiodocker, aiosqlite or the config file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
import structlog

from marathond.core.belongings import is_ours
from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, failed_itself
from marathond.core.money import Rules
from marathond.core.names import NetworkPolicy, trial_label
from marathond.core.order import Expected
from marathond.core.plan import Limits
from marathond.core.score import Overrides
from marathond.ports.agent import RunDir
from marathond.ports.clock import Clock
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerInfo, Engine, ImageInfo, NetworkInfo
from marathond.ports.host import Host
from marathond.ports.ledger import Ledger
from marathond.staging.mounted import Mounted

T = TypeVar("T")
log = structlog.get_logger("marathond.flow")

PATIENCE_S = 600.0
"""How long a trial waits for an engine that is away before the attempt is void; its agent goes on meanwhile."""

OWN_ERRORS_S = 20.0
"""How long a question is repeated that the engine answers with an error of its own."""


@dataclass(frozen=True, slots=True)
class Ways:
    """How trials reach their model: the gateway's folder, and what a listener of ours says.

    ``port``: on loopback inside the container's network namespace; the gate's and the verifier's listeners take the next two.
    ``held_at_most_ms``: most held time that is not charged to one trial's deadline; 0: all of it is charged.
    """

    folder: Path
    port: int
    route: str
    gate_route: str
    verifier_route: str | None
    verifier_env: Mapping[str, str]
    strip: tuple[str, ...]
    held_at_most_ms: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """What stays the same for one daemon life.  Paths are absolute; ``own_limit_s`` and the multipliers are part of the treatment."""

    ledger_id: str
    engine_name: str
    campaign_id: int
    campaign: str
    run_root: Path
    out_dir: Path
    network_mode: str
    network_range: str
    network_prefix: int
    own_limit_s: float | None
    agent_multiplier: float
    gate_timeout_s: float
    environ: Mapping[str, str]
    build_args: Mapping[str, str]
    build_network: str | None
    build_concurrency: int
    build_retries: int
    pull_timeout_s: float
    max_artifact_bytes: int
    max_artifact_files: int
    staged: Mapping[str, Path] = field(default_factory=dict)
    """Package id to its tree on this host (``marathonctl stage``)."""
    gateway: Ways | None = None
    """None: no arm needs a model."""
    trial_cap_nusd: int | None = None
    undeclared_network: NetworkPolicy = NetworkPolicy.PUBLIC
    """Of tasks that declare none.  Part of the treatment."""
    build_multiplier: float = 1.0
    """Times a task's limit of an image build."""
    pids: int | None = None
    """Most processes and threads in a trial's container; None: no limit.  Part of the treatment."""
    money: Rules = field(default_factory=Rules)
    gates_only: bool = False
    """Every trial ends, void, once its gates have passed (``marathonctl verify-envs``); not a token is spent."""
    runtime_proxy: Mapping[str, str] = field(default_factory=dict)
    """As configured; for containers of tasks with a network alone."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may change while the daemon runs (`marathonctl set`)."""

    limits: Limits
    network_cap: int
    network_margin: int
    passes: int
    breaker_after: int
    breaker_pause_s: float
    disk_floor_percent: float
    disk_floor_bytes: int
    expected: Expected = Expected.LEARNED


class Wake:
    """A bell: many may ring, one waits.  Ringing before the wait is not lost."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await self._event.wait()
        self._event = anyio.Event()


class Gong:
    """Many wait, each stroke wakes all of them."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        event, self._event = self._event, anyio.Event()
        event.set()

    async def wait(self, at_most_s: float) -> None:
        with anyio.move_on_after(at_most_s):
            await self._event.wait()


@dataclass(slots=True)
class Handle:
    """A trial that is being driven by this daemon.  ``withdrawn``: an operator voided it; its coroutine only tears down."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    withdrawn: bool = False


@dataclass(slots=True)
class World:
    fixed: Fixed
    knobs: Knobs
    ledger: Ledger
    engine: Engine
    host: Host
    clock: Clock
    wake: Wake = field(default_factory=Wake)
    export_wake: Wake = field(default_factory=Wake)
    turned: Gong = field(default_factory=Gong)
    """Strikes when a verifier's turn may have come: flow/turns.py."""
    building: int = 0
    """Images that are being made."""
    driven: dict[int, Handle] = field(default_factory=dict)
    recovered: bool = False
    """What ran before this life is driven by now, or void."""
    scores: Mapping[str, Overrides] = field(default_factory=dict)
    """The configuration's rules by task; a reload exchanges them whole."""
    images: dict[int, ImageInfo] = field(default_factory=dict)
    mounted: Mounted = field(default_factory=Mounted)
    """Reads what arms mount."""
    caught_up: Callable[[], Awaitable[None]] | None = None
    """Takes in all that the gateway has told by now; None: there is no gateway."""
    engine_breaks: int = 0
    """How often the engine was seen away or its event stream was cut; a trial compares it with its own start."""

    def labels(self, trial_id: int, token: str) -> dict[str, str]:
        return {LABEL_LEDGER: self.fixed.ledger_id, LABEL_TRIAL: trial_label(trial_id), LABEL_CLAIM: token}

    def owns(self, thing: ContainerInfo | NetworkInfo) -> bool:
        """It carries this ledger's label and a name of ours; labels alone are easily copied, and nothing else is ever touched."""
        labels, ledger_id = thing.labels, self.fixed.ledger_id
        trial, claim = labels.get(LABEL_TRIAL), labels.get(LABEL_CLAIM)
        return labels.get(LABEL_LEDGER) == ledger_id and is_ours(thing.name, ledger_id=ledger_id, trial=trial, claim=claim)

    def run_dir(self, trial_id: int) -> RunDir:
        return RunDir(self.fixed.run_root / trial_label(trial_id))

    def withdraw(self, trial_id: int) -> None:
        """An operator voided a live trial: its coroutine goes straight to the teardown."""
        handle = self.driven.get(trial_id)
        if handle is not None:
            handle.withdrawn = True
            handle.scope.cancel()
        self.wake.ring()

    async def look(self, call: Callable[[], Awaitable[T]]) -> T:
        """For questions and for calls that may be repeated: ask again while the engine is away or slow, for at most PATIENCE_S.

        A question that it answers with an error of its own (5xx) is asked again, too, for at most OWN_ERRORS_S: one bad answer must not
        cost a trial of ten hours.  Raises the last EngineUnreachable, EngineTimeout or EngineError then.
        """
        began_ms = self.clock.mono_ms()
        give_up_ms = began_ms + int(PATIENCE_S * 1000)
        pause_s = 0.1
        while True:
            try:
                return await call()
            except (EngineUnreachable, EngineTimeout) as error:
                if isinstance(error, EngineUnreachable):
                    self.engine_breaks += 1
                if self.clock.mono_ms() >= give_up_ms:
                    raise
                log.warning("engine_away", error=str(error), again_in_s=pause_s)
            except EngineError as error:
                if not failed_itself(error) or self.clock.mono_ms() >= began_ms + int(OWN_ERRORS_S * 1000):
                    raise
                log.warning("engine_failed_itself", error=str(error), again_in_s=pause_s)
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, 10.0)
