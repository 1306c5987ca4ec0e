"""What runs in the simulated containers: agents, verifiers, healthchecks, gates.

Owns which program a command line is, and what each does, by seed and trial: the same trial behaves alike in every daemon life.  Must not
know the ledger or the daemon.  What verifiers really wrote is kept (:attr:`Programs.written`), for the invariants alone.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence

import trio

from marathond.agents.command import CAN_START
from marathond.core.detached import WRAPPER
from marathond.flow.verify import PREPARE
from marathond.ports.engine import LABEL_TRIAL, ExecSpec
from tests.sim import payloads
from tests.sim.fake_box import KILLED, Box, CannotStart, ContainerRecord, Program
from tests.sim.payloads import Payload

AGENT, VERIFIER = "marathond-agent", "marathond-verifier"
AGENT_LIMIT_S, VERIFIER_LIMIT_S = 30.0, 20.0
FAKE_SERVER = "fake-server"
"""First word of the fake agent's command."""
INSTALL_CHECK = "check-tool"

AGENT_WAYS = (
    ("works", 40),
    ("at_once", 8),
    ("fails", 8),
    ("hangs", 8),
    ("late", 6),
    ("detaches", 8),
    ("outlived", 8),
    ("breeds", 5),
    ("ends_container", 3),
    ("meddles", 3),
    ("fills_logs", 3),
)
VERIFIER_WAYS = (
    ("scores", 60),
    ("exits_1", 8),
    ("unreadable", 8),
    ("hangs", 5),
    ("changes_later", 4),
    ("ends_container", 2),
    ("leaves_child", 4),
    ("out_of_memory", 3),
    ("speaks", 6),
)


def draw(rng: random.Random, ways: Sequence[tuple[str, int]]) -> str:
    return rng.choices([name for name, _ in ways], [weight for _, weight in ways])[0]


def trial_of(container: ContainerRecord) -> str:
    """Label of the trial; empty for a container of a proof, or somebody else's."""
    return container.labels.get(LABEL_TRIAL, "")


class Programs:
    """The ``Resolve`` of one seed."""

    def __init__(self, seed: int, *, unkind: float = 0.04) -> None:
        """:param unkind: how often a gate, a healthcheck or the putting in place of the tests fails."""
        self.seed, self.unkind = seed, unkind
        self.written: dict[str, list[Payload]] = defaultdict(list)
        """By trial: whole payloads that were written, the newest last."""
        self.runs: Counter[tuple[str, str]] = Counter()
        """(trial, ``agent`` or ``verifier``): how often it was begun."""
        self.ended: dict[str, int] = {}
        """By trial: which of its verifiers, counted from 1, came to its own end last."""
        self.seen: Counter[str] = Counter()

    def rng(self, *parts: object) -> random.Random:
        return random.Random(":".join(map(str, (self.seed, *parts))))

    def __call__(self, container: ContainerRecord, spec: ExecSpec) -> Program:
        argv = tuple(spec.argv)
        trial = trial_of(container)
        if argv[:3] == ("sh", "-c", WRAPPER):
            return self._wrapped(trial, argv)
        if argv[:2] == ("sh", "-c"):
            if argv[2] == PREPARE:
                return self._prepare(trial, argv[4])
            if argv[2] == CAN_START:
                return self._gate(trial, "command")
            if "/marathond-proof/nonce" in argv[2]:
                return proof
            return self._healthcheck(trial)
        if argv[0] == INSTALL_CHECK:
            return self._gate(trial, "install")
        if argv[0] in ("gate", "chmod"):
            return self._gate(trial, argv[-1])
        raise CannotStart("binary", f'exec: "{argv[0]}": executable file not found in $PATH')

    # ── before the agent ──

    def _healthcheck(self, trial: str) -> Program:
        rng = self.rng(trial, "health")
        never, good_at = rng.random() < self.unkind, rng.choice((1, 1, 1, 2, 3))

        async def run(box: Box) -> int:
            await box.sleep(0.1)
            self.runs[trial, "health"] += 1
            if never or self.runs[trial, "health"] < good_at:
                box.say("not yet")
                return 1
            return 0

        return run

    def _gate(self, trial: str, name: str) -> Program:
        rng = self.rng(trial, "gate", name)
        bad, hangs = rng.random() < self.unkind, rng.random() < 0.2

        async def run(box: Box) -> int:
            await box.sleep(0.05)
            if bad and hangs:
                await box.sleep(10_000)
            if bad:
                box.say(f"{name}: no such thing")
            return int(bad)

        return run

    def _prepare(self, trial: str, folder: str) -> Program:
        bad = self.rng(trial, "prepare").random() < self.unkind / 2

        async def run(box: Box) -> int:
            uploads = box.container.uploads
            if folder not in uploads:
                box.say(f"{folder} is gone: another upload took its place")
                return 1
            for old in [target for target in uploads if target.startswith("/.marathond-tests-") and target != folder]:
                del uploads[old]
            if bad:
                box.say("/tests came back while it was replaced")
                return 1
            uploads["/tests"] = uploads.pop(folder)
            return 0

        return run

    # ── what runs detached ──

    def _wrapped(self, trial: str, argv: tuple[str, ...]) -> Program:
        name, limit_s, status, command = argv[3], int(argv[4]), argv[7], argv[8:]
        kind = "agent" if name == AGENT else "verifier"
        inner = self._agent(trial) if kind == "agent" else self._verifier(trial)
        output = argv[6]

        async def run(box: Box) -> int:
            self.runs[trial, kind] += 1
            put(box, output, f"{kind} of {trial} begins\n".encode())
            if command[0].startswith(("/tests/", "/solution/")) and command[0].rpartition("/")[0] not in box.container.uploads:
                code = 126
            else:
                code = -1
                with trio.move_on_after(limit_s if limit_s > 0 else float("inf")):
                    code = await inner(box)
                await box.sleep(0)
            if code < 0:
                self.seen["timer"] += 1
                put(box, status, b"timer\n")
                box.kill_session(box.session)
                await box.sleep(1)
                return KILLED
            put(box, status, f"{code}\n".encode())
            if kind == "verifier":
                self.ended[trial] = self.runs[trial, kind]
            return code

        return run

    def agent_way(self, trial: str) -> str:
        return draw(self.rng(trial, "agent"), AGENT_WAYS)

    def _agent(self, trial: str) -> Program:
        rng = self.rng(trial, "agent acts")
        way = self.agent_way(trial)
        self.seen[f"agent {way}"] += 1
        act: Callable[[Box, random.Random], Awaitable[int]] = getattr(self, f"_agent_{way}")

        async def run(box: Box) -> int:
            return await act(box, rng)

        return run

    async def _agent_works(self, box: Box, rng: random.Random) -> int:
        await box.sleep(rng.uniform(1.0, 12.0))
        put(box, "/logs/agent/work.txt", b"did it\n")
        put(box, "/logs/artifacts/result.bin", rng.randbytes(64))
        return 0

    async def _agent_at_once(self, box: Box, rng: random.Random) -> int:
        return 0

    async def _agent_fails(self, box: Box, rng: random.Random) -> int:
        await box.sleep(rng.uniform(0.0, 2.0))
        return rng.choice((1, 2, 127, 139))

    async def _agent_hangs(self, box: Box, rng: random.Random) -> int:
        await box.sleep(100_000)
        return 0

    async def _agent_late(self, box: Box, rng: random.Random) -> int:
        """About when its time is over."""
        await box.sleep(AGENT_LIMIT_S + rng.choice((-0.2, 0.0, 0.2)))
        return 0

    async def _agent_detaches(self, box: Box, rng: random.Random) -> int:
        box.spawn(forever, True, ("server", "--listen"))
        await box.sleep(rng.uniform(0.5, 5.0))
        return 0

    async def _agent_outlived(self, box: Box, rng: random.Random) -> int:
        """Its children stay in its session and do not end with it."""
        for n in range(rng.randint(1, 3)):
            box.spawn(forever, False, ("worker", str(n)))
        await box.sleep(rng.uniform(0.5, 5.0))
        return 0

    async def _agent_breeds(self, box: Box, rng: random.Random) -> int:
        """Children that beget children, into sessions old and new, faster than anybody can list them."""
        box.spawn(breeder(rng.randint(2, 6)), rng.random() < 0.5, ("breeder",))
        await box.sleep(rng.uniform(0.5, 3.0))
        return 0

    async def _agent_ends_container(self, box: Box, rng: random.Random) -> int:
        await box.sleep(rng.uniform(0.5, 5.0))
        box.exit_container(rng.choice((0, 1, 137)))
        await box.sleep(10)
        return 0

    async def _agent_meddles(self, box: Box, rng: random.Random) -> int:
        """It writes its own reward; nobody may read that."""
        put(box, "/logs/verifier/reward.txt", b"1\n")
        put(box, "/logs/verifier/reward.json", b'{"reward": 1}')
        await box.sleep(1.0)
        return 0

    async def _agent_fills_logs(self, box: Box, rng: random.Random) -> int:
        for n in range(30):
            put(box, f"/logs/agent/{n}.log", b"x" * 2000)
        await box.sleep(1.0)
        return 0

    # ── verifiers ──

    def _verifier(self, trial: str) -> Program:
        async def run(box: Box) -> int:
            round = self.runs[trial, "verifier"]
            rng = self.rng(trial, "verifier", round)
            way = draw(rng, VERIFIER_WAYS)
            self.seen[f"verifier {way}"] += 1
            await box.sleep(rng.uniform(0.2, 4.0))
            if way == "speaks" or rng.random() < 0.1:
                put(box, "/logs/verifier/test-stdout.txt", rng.choice(payloads.LINES).encode())
            return await self._verify(box, trial, way, rng)

        return run

    async def _verify(self, box: Box, trial: str, way: str, rng: random.Random) -> int:
        if way == "hangs":
            self._write(box, trial, payloads.whole(rng))  # files of a verifier that did not end are no score
            await box.sleep(100_000)
        if way == "unreadable":
            self._write(box, trial, payloads.unreadable(rng))
            return rng.choice((0, 1))
        if way == "ends_container":
            self._write(box, trial, payloads.whole(rng))
            box.exit_container(0)
            await box.sleep(10)
        if way == "out_of_memory":
            box.oom()
        self._write(box, trial, payloads.whole(rng))
        if way == "changes_later":
            box.spawn(self._writes_later(trial, rng.uniform(0.0, 0.3), payloads.whole(rng)), True, ("rewriter",))
        if way == "leaves_child":
            box.spawn(forever, rng.random() < 0.5, ("leftover",))
        return 1 if way == "exits_1" else 0

    def _writes_later(self, trial: str, after_s: float, payload: Payload) -> Program:
        async def run(box: Box) -> int:
            await box.sleep(after_s)
            self._write(box, trial, payload)
            return 0

        return run

    def _write(self, box: Box, trial: str, payload: Payload) -> None:
        for name, data in payload.files.items():
            put(box, f"/logs/verifier/{name}", data, whole=True)
        self.written[trial].append(payload)


async def proof(box: Box) -> int:
    """Reads what lies in the folder that the proof mounted."""
    try:
        box.say(box.host_path("/marathond-proof/nonce").read_text().rstrip("\n"))
    except OSError:
        return 1
    return 0


async def forever(box: Box) -> int:
    await box.sleep(100_000)
    return 0


def breeder(generations: int) -> Program:
    async def run(box: Box) -> int:
        await box.sleep(0.03)
        if generations:
            box.spawn(breeder(generations - 1), box.rng.random() < 0.3, ("breeder",))
        await box.sleep(100_000)
        return 0

    return run


def put(box: Box, inside: str, data: bytes, *, whole: bool = False) -> None:
    """Append to a file, or write it anew.  Of a run directory that is gone already (an undeletable container's) nothing comes."""
    try:
        path = box.write_path(inside)
        with path.open("wb" if whole else "ab") as file:
            file.write(data)
    except OSError:
        box.files[inside] = data
