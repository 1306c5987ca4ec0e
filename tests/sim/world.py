"""What a seed's campaign is: arms, tasks, knobs, network mode; and the host below it.

Owns the choice by seed, the task folders (made once for a process) and what the flow is told of it all.  Must not know lives or faults.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from marathond.core.arms import arm_to_data
from marathond.core.model import Arm, Task
from marathond.core.names import AfterAgent, AgentKind
from marathond.core.order import Order
from marathond.core.subnets import Occupied
from marathond.flow.world import Fixed
from marathond.ledger.verbs.campaigns import ArmRow, Submission
from marathond.ports.host import Disk, HostUnknown
from marathond.service.knobs import KNOBS, KnobValue
from marathond.service.submission import task_row
from marathond.service.treatment import treatment_hash
from marathond.tasks.harbor import read_task
from tests.sim.faults import FaultModel
from tests.sim.programs import AGENT_LIMIT_S, INSTALL_CHECK, VERIFIER_LIMIT_S
from tests.support.rig import make_task

ENGINE, LEDGER_ID, CAMPAIGN = "main", "0123456789ab", "sim"
CELLS_AT_LEAST, CELLS_AT_MOST = 8, 10
IMAGE, BASE = "sim:base", "sim:built-from"

ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("plain", AgentKind.COMMAND, argv=("agent",)),
        Arm("strict", AgentKind.COMMAND, argv=("agent", "--strict"), after_agent=AfterAgent.KILL_ALL),
        Arm("checked", AgentKind.COMMAND, argv=("agent",), install_check=(INSTALL_CHECK,)),
        Arm("nothing", AgentKind.NOP),
        Arm("solution", AgentKind.ORACLE),
        Arm("driven", AgentKind.CODEX),
    )
}
"""``driven`` is the fake agent's, which stands where codex does."""

HEALTH = '\n[environment.healthcheck]\ncommand = "is-up"\ninterval_sec = 2.0\ntimeout_sec = 5.0\nretries = 3\n'
TASK_NAMES = ("net", "offline", "healthy", "built", "uploads", "proxied")


@functools.cache
def root() -> Path:
    """A folder of this process in memory, gone with it."""
    memory = Path("/dev/shm")
    pid, parent = os.getpid(), memory if memory.is_dir() else Path(tempfile.gettempdir())
    for left in parent.glob("mt-sim-*"):  # by a process that was killed
        if not Path(f"/proc/{left.name.split('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"mt-sim-{pid}-", dir=parent))
    made.chmod(0o711)
    atexit.register(lambda: shutil.rmtree(made, ignore_errors=True) if os.getpid() == pid else None)
    return made


@functools.cache
def tasks() -> Mapping[str, Task]:
    """Task folders as the product reads them, by name."""
    folder = root() / "tasks"
    for name in TASK_NAMES:
        more = {"healthy": HEALTH, "proxied": '[environment.env]\nHTTP_PROXY = "http://proxy:3128"\n'}.get(name, "")
        network = "no-network" if name in ("offline", "proxied") else "public"
        path = make_task(folder, name, network=network, toml=more, agent_s=AGENT_LIMIT_S, verifier_s=VERIFIER_LIMIT_S)
        text = (path / "task.toml").read_text()
        text = text.replace(next(line for line in text.splitlines() if line.startswith("docker_image")), f'docker_image = "{IMAGE}"')
        if name == "built":
            text = text.replace(f'docker_image = "{IMAGE}"\n', "")
        if name in ("built", "uploads"):
            (path / "environment").mkdir()
            (path / "environment" / ("Dockerfile" if name == "built" else "data.txt")).write_text(f"FROM {BASE}\n")
        (path / "task.toml").write_text(text)
    read = {name: read_task(folder / name) for name in TASK_NAMES}
    return {name: task for name, task in read.items() if isinstance(task, Task)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the seed chose.  ``horizon_s``: of the phase with faults; ``unkind``: how often gates and their like say no."""

    arms: tuple[str, ...]
    tasks: tuple[str, ...]
    replicates: int
    mode: str
    range: str
    knobs: Mapping[str, KnobValue]
    horizon_s: float
    unkind: float
    audited: bool
    gates_only: bool = False
    agent_unkind: float | None = None
    """Of the fake agent's own gates and driver; None: as ``unkind``."""
    alone: tuple[str, ...] = ()
    """Tasks whose verifier runs alone."""
    alone_from: str = "verifiers"

    @property
    def cells(self) -> int:
        return len(self.arms) * len(self.tasks) * self.replicates

    @property
    def mix(self) -> str:
        return f"{len(self.arms)} arms x {len(self.tasks)} tasks x {self.replicates}, {self.mode}"


def shape(seed: int) -> Shape:
    rng = random.Random(f"{seed}:shape")
    while True:
        arms = tuple(rng.sample(sorted(ARMS), rng.randint(2, 5)))
        names = tuple(rng.sample(TASK_NAMES[:-1] if rng.random() < 0.7 else TASK_NAMES, rng.randint(2, 4)))
        replicates = rng.randint(1, 2)
        if CELLS_AT_LEAST <= len(arms) * len(names) * replicates <= CELLS_AT_MOST:
            break
    knobs: dict[str, KnobValue] = {key: knob.default for key, knob in KNOBS.items()}
    knobs |= {
        "network.cap": rng.randint(2, 6),
        "network.margin": rng.randint(0, 3),
        "admission.concurrency": rng.randint(3, 6),
        "admission.passes": rng.randint(1, 3),
        "admission.breaker_after": rng.randint(3, 6),
        "admission.breaker_pause_s": float(rng.choice((10, 20, 40))),
        "admission.order": rng.choice(list(Order)).value,
        "admission.seed": seed,
    }
    mode = rng.choice(("explicit", "explicit", "auto"))
    apart = random.Random(f"{seed}:alone")
    return Shape(
        arms=arms,
        tasks=names,
        replicates=replicates,
        mode=mode,
        range=rng.choice(("198.19.0.0/24", "198.19.0.0/25")),
        knobs=knobs,
        horizon_s=rng.choice((40.0, 60.0, 80.0)),
        unkind=rng.choice((0.0, 0.03, 0.1)),
        audited=rng.random() < 0.2,
        alone=tuple(apart.sample(names, apart.randint(1, 2))) if apart.random() < 0.4 else (),
        alone_from=apart.choice(("verifiers", "everything")),
    )


def submission(wanted: Shape, out_dir: Path) -> Submission:
    treatment: dict[str, object] = {"verifier_timeout_multiplier": 1.0}
    if wanted.alone:
        treatment["exclusive_verifier"] = {"tasks": sorted(wanted.alone), "from": wanted.alone_from}
    rows = []
    for name in wanted.arms:
        data = arm_to_data(ARMS[name])
        rows.append(ArmRow(name, data["kind"], treatment_hash(data), json.dumps(data, sort_keys=True)))
    return Submission(
        name=CAMPAIGN,
        author="marathond",
        treatment_hash=treatment_hash(treatment),
        treatment_json=json.dumps(treatment),
        config_json="{}",
        out_dir=str(out_dir),
        seed=int(wanted.knobs["admission.seed"]),
        order=str(wanted.knobs["admission.order"]),
        replicates=wanted.replicates,
        arms=tuple(rows),
        tasks=tuple(_task_row(name) for name in wanted.tasks),
    )


_task_row = functools.cache(lambda name: task_row(tasks()[name]))


def fixed(wanted: Shape, folder: Path, campaign_id: int) -> Fixed:
    return Fixed(
        ledger_id=LEDGER_ID,
        engine_name=ENGINE,
        campaign_id=campaign_id,
        campaign=CAMPAIGN,
        run_root=folder / "r",
        out_dir=folder / "out",
        network_mode=wanted.mode,
        network_range=wanted.range,
        network_prefix=28,
        own_limit_s=None,
        agent_multiplier=1.0,
        gate_timeout_s=10.0,
        environ={},
        build_args={},
        build_network=None,
        build_concurrency=2,
        build_retries=1,
        pull_timeout_s=60.0,
        max_artifact_bytes=1 << 20,
        max_artifact_files=100,
        gates_only=wanted.gates_only,
    )


class SimHost:
    """See :class:`marathond.ports.host.Host`."""

    def __init__(self, faults: FaultModel) -> None:
        self._faults = faults

    async def occupied(self) -> Sequence[Occupied]:
        if self._faults.stands("routes_unknown"):
            raise HostUnknown("routes", "ip: Resource temporarily unavailable")
        return (Occupied("192.168.1.0/24", "route via eth0"), Occupied("198.19.0.16/28", "interface tun0"))

    async def disk(self, path: Path) -> Disk:
        low = self._faults.stands("disk_low")
        return Disk(str(path), (1 if low else 100) << 30, 200 << 30)
