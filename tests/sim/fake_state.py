"""What a simulated Docker engine knows, and what each request does to it, in no time.

Owns the rules of networks, containers, processes, execs and images as measured on 20.10.24 and 28.5.2: statuses, texts, what stays behind.
Must not know calls, deadlines or clients (fake_engine.py), nor which program a command line is.

Facts modelled: a created container does not show in its network; a network with a running container is not removed; names of networks are
not unique on 20.10 when they are asked for at once; the container's end leaves the network; a stopped container's execs end with 137; a
finished exec is forgotten after 5 to 10 minutes (measured on 20.10.24: known at 540 s, unknown at 560 s; one that was never started stays;
moby, daemon/exec.go, execCommandGC); a missing binary shows on the exec alone, 126 on 20.10 and 127 on 28.5.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Network
from pathlib import Path

import trio

from marathond.core.errors import EngineError, NotFound, PoolExhausted, SubnetTaken
from marathond.core.model import Mount
from marathond.ports.clock import Clock
from marathond.ports.engine import LABEL_TRIAL, ContainerSpec, EngineInfo, ExecSpec, ImageInfo, Process
from tests.sim.fake_box import (
    KILLED,
    Box,
    CannotStart,
    ContainerRecord,
    ExecRecord,
    NetworkRecord,
    ProcessRecord,
    Program,
    Resolve,
)
from tests.sim.faults import FaultModel

POOLS = tuple(f"172.{n}.0.0/16" for n in range(17, 32)) + tuple(f"192.168.{n}.0/20" for n in range(0, 256, 16))
"""Built-in pools; the first is docker0's."""
GC_AFTER_S = (300.0, 600.0)
"""A finished exec is forgotten after this long."""
RACE_S = 0.04
"""20.10 looks for the name before it makes the network: two that are asked for at once are both made."""
SHIM_PID = 2
"""Parent of whatever an exec starts: outside of the container."""


@lru_cache(maxsize=4096)
def _net(cidr: str) -> IPv4Network:
    return IPv4Network(cidr)


class EngineState:
    """One engine's things.  Dictionaries keep their order, so that a seed replays.

    :param changed: called with (verb, id) after each change, for whoever checks invariants.
    """

    def __init__(
        self, nursery: trio.Nursery, rng: random.Random, clock: Clock, faults: FaultModel, resolve: Resolve, *, version: str | None
    ) -> None:
        self.nursery, self.rng, self.clock, self.faults, self.resolve = nursery, rng, clock, faults, resolve
        self.version = version or rng.choice(("20.10", "28.5"))
        self.containers: dict[str, ContainerRecord] = {}
        self.networks: dict[str, NetworkRecord] = {}
        self.execs: dict[str, ExecRecord] = {}
        self.images: dict[str, ImageInfo] = {}
        self.registry: dict[str, ImageInfo] = {}
        self.foreign: set[str] = set()
        self.touched: list[str] = []
        self.changed: Callable[[str, str], None] = lambda verb, thing: None
        self.live_restore, self.up = False, True
        self._serial, self._pid = 0, 1000
        self._dead_pids: list[int] = []
        self._missing_binary = False

    def _id(self) -> str:
        self._serial += 1
        return hashlib.sha256(f"{self._serial} {self.rng.getrandbits(64)}".encode()).hexdigest()

    @property
    def old(self) -> bool:
        return self.version == "20.10"

    def engine_info(self) -> EngineInfo:
        """What the engine says of itself."""
        server, api = ("20.10.24+dfsg1", "1.41") if self.old else ("28.5.2", "1.51")
        return EngineInfo(server, api, 16, 64 << 30, "/var/lib/docker", "", "", self.live_restore)

    def publish(self, kind: str, action: str, thing: str, attributes: Mapping[str, str]) -> None:
        """An event, for whoever is subscribed."""
        raise NotImplementedError

    # images

    def add_image(self, ref: str, *, env: tuple[str, ...] = (), workdir: str = "", labels: Mapping[str, str] | None = None) -> ImageInfo:
        """One that is there from the beginning."""
        image = ImageInfo(f"sha256:{hashlib.sha256(ref.encode()).hexdigest()}", (ref,), dict(labels or {}), env, workdir, 1 << 20)
        self.images[ref] = self.images[image.id] = image
        return image

    # networks

    def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool) -> str:
        """As ``POST /networks/create``."""
        racing_s = trio.current_time() - RACE_S if self.old else trio.current_time()
        if any(record.name == name and record.born_s <= racing_s for record in self.networks.values()):
            raise EngineError("network.create", 409, f"network with name {name} already exists")
        taken = [record.subnet for record in self.networks.values()]
        if subnet is None:
            free = next((pool for pool in POOLS[1:] if not any(_net(pool).overlaps(_net(other)) for other in taken)), None)
            if free is None:
                raise self.exhausted()
            subnet = free
        elif any(_net(subnet).overlaps(_net(other)) for other in taken):
            raise SubnetTaken("network.create", 403, "Pool overlaps with other one on this address space")
        record = NetworkRecord(self._id(), name, dict(labels), subnet, internal, self.clock.wall_ms(), trio.current_time())
        self.networks[record.id] = record
        self.publish("network", "create", record.id, {"name": name})
        self.changed("network.create", record.id)
        return record.id

    def exhausted(self) -> PoolExhausted:
        if self.old:
            text = "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network"
            return PoolExhausted("network.create", 404, text)
        return PoolExhausted("network.create", 400, "all predefined address pools have been fully subnetted")

    def remove_network(self, network_id: str) -> bool:
        record = self.networks.get(network_id)
        if record is None:
            return True
        self._touch(network_id)
        if record.undeletable or any(c.running and c.attached_network == network_id for c in self.containers.values()):
            return False
        del self.networks[network_id]
        self.publish("network", "destroy", network_id, {"name": record.name})
        self.changed("network.remove", network_id)
        return True

    def _touch(self, thing: str) -> None:
        if thing in self.foreign:
            self.touched.append(thing)

    # containers

    def container(self, call: str, container_id: str) -> ContainerRecord:
        """:raises NotFound: unknown."""
        record = self.containers.get(container_id)
        if record is None:
            raise NotFound(call, 404, f"No such container: {container_id}")
        return record

    def create_container(self, spec: ContainerSpec, *, foreign: bool = False) -> str:
        """As ``POST /containers/create``; ``foreign``: somebody else's."""
        image = self.images.get(spec.image_id)
        if image is None:
            raise NotFound("container.create", 404, f"No such image: {spec.image_id}")
        for mount in spec.mounts:
            if not Path(mount.source).exists():
                text = f'invalid mount config for type "bind": bind source path does not exist: {mount.source}'
                raise EngineError("container.create", 400, text)
        for other in self.containers.values():
            if other.name == spec.name:
                text = f'Conflict. The container name "/{spec.name}" is already in use by container "{other.id}".'
                raise EngineError("container.create", 409, text)
        record = ContainerRecord(self._id(), spec, self.clock.wall_ms(), image.env, foreign=foreign)
        self.containers[record.id] = record
        if foreign:
            self.foreign.add(record.id)
        self.publish("container", "create", record.id, spec.labels)
        self.changed("container.create", record.id)
        return record.id

    def start_container(self, container_id: str) -> None:
        """As ``POST /containers/{id}/start``; started already is success.  An exited one gets a second life."""
        record = self.container("container.start", container_id)
        if record.running:
            return
        if record.spec.network is not None:
            if record.spec.network not in self.networks:
                raise NotFound("container.start", 404, f"network {record.spec.network} not found")
            record.attached_network = record.spec.network
        self._serial += 1
        began = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        record.started_at = f"{began:%Y-%m-%dT%H:%M:%S}.{self._serial % 10**9:09d}Z"
        record.status, record.exit_code, record.oom_killed, record.thawed = "running", None, False, trio.Event()
        main = self._process(record, ppid=SHIM_PID, session=None, argv=("sh", "-c", "while :; do sleep 86400 & wait $!; done"))
        record.pid = main.pid
        self._process(record, ppid=main.pid, session=main.session, argv=("sleep", "86400"))
        self.publish("container", "start", record.id, record.labels)
        self.on_started(record)
        self.changed("container.start", record.id)

    def on_started(self, record: ContainerRecord) -> None:
        """What may befall a container that has just been started."""

    def remove_container(self, container_id: str) -> bool:
        """As ``DELETE /containers/{id}?force=1``: killed in any case, removed unless something holds it."""
        record = self.containers.get(container_id)
        if record is None:
            return True
        self._touch(container_id)
        if record.running:
            self.end_container(record, KILLED)
        if record.undeletable:
            return False
        del self.containers[container_id]
        for gone in [e for e in self.execs.values() if e.container is record]:
            self.forget_exec(gone)
        self.publish("container", "destroy", record.id, record.labels)
        self.changed("container.remove", record.id)
        return True

    def end_container(self, record: ContainerRecord, status: int) -> None:
        """Its main process ended: everything in it is killed, and the network stays."""
        if not record.running:
            return
        record.status, record.exit_code, record.pid = "exited", status, 0
        record.ended_unseen = not self.up
        for process in list(record.processes.values()):
            self._end_process(process, KILLED)
        record.thawed.set()
        self.publish("container", "die", record.id, {**record.labels, "exitCode": str(status)})
        self.changed("container.die", record.id)

    def pause(self, container_id: str, *, paused: bool) -> None:
        """Freeze or thaw; already so is success."""
        call = "container.pause" if paused else "container.unpause"
        record = self.container(call, container_id)
        if not record.running:
            raise EngineError(call, 409 if paused else 500, f"Container {container_id} is not running")
        if record.paused is paused:
            return
        self._touch(container_id)
        record.status = "paused" if paused else "running"
        if not paused:
            record.thawed.set()
            record.thawed = trio.Event()
        self.publish("container", "pause" if paused else "unpause", record.id, record.labels)
        self.changed(call, record.id)

    def oom(self, record: ContainerRecord) -> None:
        """The kernel ended one of its processes for want of memory; the container may go on."""
        record.oom_killed = True
        self.publish("container", "oom", record.id, record.labels)
        self.changed("container.oom", record.id)

    # processes

    def _process(self, record: ContainerRecord, *, ppid: int, session: int | None, argv: tuple[str, ...]) -> ProcessRecord:
        pid = self._next_pid()
        self._serial += 1
        ticks = int(trio.current_time() * 100) * 1000 + self._serial % 1000
        process = ProcessRecord(pid, ppid, pid if session is None else session, ticks, argv, record)
        record.processes[pid] = process
        return process

    def _next_pid(self) -> int:
        if self._dead_pids and self.faults.hits("pid_reused"):
            used = {p.session for c in self.containers.values() for p in c.processes.values()}
            pid = self._dead_pids.pop(0)
            if pid not in used:
                return pid
        self._pid += 1
        return self._pid

    def processes(self, container_id: str) -> list[Process]:
        """As ``top``; works on a paused container, a stopped one has none."""
        record = self.container("container.top", container_id)
        return [Process(p.pid, p.ppid, p.session, p.start_ticks, " ".join(p.argv)) for p in record.processes.values()]

    def kill(self, process: Process) -> None:
        """The host's kernel: exactly this process, by pid and start time."""
        for record in self.containers.values():
            found = record.processes.get(process.pid)
            if found is not None and found.start_ticks == process.start_ticks:
                self._touch(record.id)
                self.kill_process(found)

    def kill_process(self, process: ProcessRecord) -> None:
        """SIGKILL; of the main process it is the container's end."""
        if not process.alive:
            return
        if process.pid == process.container.pid:
            self.end_container(process.container, KILLED)
            return
        self._end_process(process, KILLED)
        self.changed("process.kill", process.container.id)

    def _end_process(self, process: ProcessRecord, status: int) -> None:
        """Dead at once, frozen or not; its children go to the container's main process."""
        if not process.alive:
            return
        process.alive = False
        container = process.container
        container.processes.pop(process.pid, None)
        self._dead_pids.append(process.pid)
        for child in container.processes.values():
            if child.ppid == process.pid:
                child.ppid = container.pid
        process.scope.cancel()
        if process.exec is not None:
            self._end_exec(process.exec, status)

    def spawn(self, parent: ProcessRecord, program: Program, spec: ExecSpec, argv: tuple[str, ...], *, detached: bool) -> int:
        """A child of a process of a container."""
        child = self._process(parent.container, ppid=parent.pid, session=None if detached else parent.session, argv=argv)
        self._begin(child, program, spec)
        return child.pid

    def _begin(self, process: ProcessRecord, program: Program, spec: ExecSpec) -> None:
        box = Box(self, process, spec, random.Random(self.rng.getrandbits(64)))
        self.nursery.start_soon(self._run, process, program, box)

    async def _run(self, process: ProcessRecord, program: Program, box: Box) -> None:
        if not process.alive:  # killed before it ran at all
            return
        with process.scope:
            status = await program(box)
            await box.sleep(0)  # frozen right now: it ends when it is thawed
            self._end_process(process, status)
            self.changed("process.end", process.container.id)

    # execs

    def create_exec(self, container_id: str, spec: ExecSpec) -> ExecRecord:
        """As ``POST /containers/{id}/exec``."""
        record = self.container("exec.create", container_id)
        self._ready(record, "exec.create")
        self._touch(container_id)
        made = ExecRecord(self._id(), record, spec)
        if not self.old:
            try:
                self.resolve(record, spec)
            except CannotStart as error:
                if error.what == "user":
                    raise EngineError("exec.create", 400, error.words) from error
        self.execs[made.id] = made
        self.changed("exec.create", made.id)
        return made

    def _ready(self, record: ContainerRecord, call: str) -> None:
        if not record.running:
            raise EngineError(call, 409, f"Container {record.id} is not running")
        if record.paused:
            raise EngineError(call, 409, f"Container {record.id} is paused, unpause the container before exec")

    def start_exec(self, made: ExecRecord, *, attached: bool = False) -> None:
        """As ``POST /exec/{id}/start``; started already is success, refused by the runtime shows on the exec."""
        if made.started:
            return
        self._ready(made.container, "exec.start")
        made.started = True
        missing, self._missing_binary = self._missing_binary, False
        try:
            if missing:
                raise CannotStart("binary", f'exec: "{made.spec.argv[0]}": executable file not found in $PATH')
            program = self.resolve(made.container, made.spec)
        except CannotStart as error:
            made.output += f"OCI runtime exec failed: exec failed: {error.words}: unknown\r\n".encode()
            self._end_exec(made, 126 if self.old else 127)
            return
        process = self._process(made.container, ppid=SHIM_PID, session=None, argv=tuple(made.spec.argv))
        process.exec, process.attached, made.process, made.pid = made, attached, process, process.pid
        self._begin(process, program, made.spec)
        self.changed("exec.start", made.id)

    def _end_exec(self, made: ExecRecord, status: int) -> None:
        made.exit_code, made.ended_s = status, trio.current_time()
        made.ended.set()
        self.publish("container", "exec_die", made.container.id, {"execID": made.id, "exitCode": str(status)})

    def find_exec(self, exec_id: str) -> ExecRecord | None:
        """None: never known, or forgotten."""
        made = self.execs.get(exec_id)
        if made is not None and made.exit_code is not None and trio.current_time() - made.ended_s > self.rng.uniform(*GC_AFTER_S):
            self.forget_exec(made)
            return None
        return made

    def collect_execs(self, ended_before_s: float) -> None:
        """Those that ended so long ago are forgotten."""
        for made in [e for e in self.execs.values() if e.exit_code is not None and e.ended_s <= trio.current_time() - ended_before_s]:
            self.forget_exec(made)

    def forget_exec(self, made: ExecRecord) -> None:
        self.execs.pop(made.id, None)
        made.known = False
        made.ended.set()

    # other people

    def add_foreign_network(self, subnet: str | None = None) -> str | None:
        """Somebody else's; None: no room for it.  Never to be touched."""
        try:
            made = self.create_network(f"other_{self._serial}", {"com.docker.compose.project": "other"}, subnet, internal=False)
        except EngineError:
            return None
        self.foreign.add(made)
        return made

    def add_foreign_container(self, labels: Mapping[str, str], mounts: tuple[Mount, ...] = ()) -> str:
        """Somebody else's, running.  Never to be touched."""
        image = next(iter(self.images.values()))
        made = self.create_container(ContainerSpec(f"other-{self._serial}", image.id, labels, None, mounts=mounts), foreign=True)
        self.start_container(made)
        return made

    def forge(self) -> None:
        """Somebody else's container with the labels of one of ours, as tools that start a container anew copy them."""
        ours = [record for record in self.containers.values() if LABEL_TRIAL in record.labels and record.id not in self.foreign]
        if ours:
            self.add_foreign_container(self.rng.choice(ours).labels)
