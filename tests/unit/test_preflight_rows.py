"""Every row of the preflight, judged from what a probe could have seen: once as bad as it gets, once good; and the runner."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from marathond.cli import ctl
from marathond.cli import preflight as screen
from marathond.core.dockerfile import base_images
from marathond.core.errors import EngineTimeout
from marathond.core.preflight import engine, host, model
from marathond.core.preflight.engine import Libc, ProxySeen, Reached
from marathond.core.preflight.host import Offset, Place, Size, Space
from marathond.core.preflight.model import Asked, ChannelSeen, Variable
from marathond.core.preflight.rows import Row, State, conclusion, ok, red, said_once, unknown, warn
from marathond.engine.docker import DockerEngine
from marathond.engine.processes import read_stat
from marathond.ports.clock import SystemClock
from marathond.ports.engine import NetworkInfo
from marathond.service.preflight import egress, provider
from marathond.service.preflight.box import LABEL_PREFLIGHT, OLD_MS, Yard
from marathond.service.preflight.checks import checks
from marathond.service.preflight.run import Check, Fact, Unseen, aside, carry_out
from marathond.service.preflight.scene import Scene
from marathond.service.sections_model import RouteSection
from marathond.service.settings import load
from marathond.tasks.asks import verifier_variables
from tests.support.rig import make_task

NOTHING = Reached({"this host (192.0.2.2)": "network is unreachable"}, {"port 8790": "connection refused"}, {"1.1.1.1:443": "no answer"})
DEBIAN = Libc("glibc", (2, 36), True)
SIZES = [Size("small", 1, 1024, 0, 10), Size("large", 4, 16384, 20480, 2)]


def asked(status: int | None, models: frozenset[str] | None = None, why: str = "") -> Asked:
    return Asked("https://api.example.org", "", status, why, 120, models)


def variable(state: str, *, default: bool = False, gateway: bool = False) -> Variable:
    return Variable("OPENAI_API_KEY", frozenset({"slack-clone"}), state, default, gateway)


def disk(free: int, need: int = 0, why: str = "") -> Row:
    return host.disk(Space("out_dir", free, 100 << 30, why), floor_percent=5, floor_bytes=2 << 30, need_bytes=need, at_once=4)


def out(**over: object) -> Place:
    return Place("/srv/out", "root (0), mode 755", **{"kind": "ext4", "seen_uid": 0, "as_agent": "", **over})  # type: ignore[arg-type]


def test_an_engine_that_is_away_is_said_once() -> None:
    away = "cannot reach Docker at unix:///x: no such socket (is dockerd running?)"
    rows = [
        engine.engine_away(away),
        unknown("gpus", away, "look"),
        unknown("image_libc", f"glibc; whether the arms' programs run: {away}", subject="zstd"),
        unknown("disk", "cannot look"),
    ]
    said = said_once(rows)
    assert [row.seen for row in said] == [
        away,
        "not looked at: no engine",
        "glibc; whether the arms' programs run: not looked at: no engine",
        "cannot look",
    ]
    assert [(row.code, row.state, row.subject) for row in said] == [(row.code, row.state, row.subject) for row in rows]
    well = [engine.engine("28", "1.5", "unix:///x"), unknown("gpus", away)]
    assert said_once(well) == well, "an engine that went away in between is said where it was missed"


CASES: list[tuple[State, Row | list[Row], str]] = [
    (State.OK, engine.engine("28.5.2", "1.51", "unix:///run/docker.sock"), "28.5.2, API 1.51"),
    (State.RED, engine.engine_away("cannot reach Docker at unix:///x: connection refused"), "connection refused"),
    (State.OK, engine.engine_proxy([ProxySeen("engine", "http://***@proxy:3128")]), "http://***@proxy:3128 answers"),
    (State.RED, engine.engine_proxy([ProxySeen("engine", "http://proxy:3128", "connection refused")]), "connection refused"),
    (State.UNKNOWN, engine.engine_proxy([ProxySeen("engine", "http://127.0.0.1:1", "elsewhere", sees=False)]), "elsewhere"),
    (State.NOT_NEEDED, engine.engine_proxy([]), "neither"),
    (State.OK, engine.bind_mounts("/var/lib/marathond", []), "arrive in a container"),
    (State.RED, engine.bind_mounts("/var/lib/marathond", ["the engine does not see it"]), "does not see it"),
    (State.OK, engine.base_images({"debian:12": {"a"}}, (), {}), "debian:12"),
    (State.RED, engine.base_images({"debian:12": {"a", "b"}, "x:1": {"c"}}, ["debian:12"], {}), "debian:12 (a, b)"),
    (State.UNKNOWN, engine.base_images({}, (), {"a": "FROM $BASE"}), "a: FROM $BASE"),
    (State.NOT_NEEDED, engine.base_images({}, (), {}), "there already"),
    (State.OK, engine.images_built(20, {}), "all 20"),
    (State.RED, engine.images_built(20, {"zstd-decoder": "marathond/zstd:1"}), "1 of 20 missing: zstd-decoder"),
    (State.OK, engine.image_libc(["a", "b"], DEBIAN, {}, ["LoopX 1's Python and Node"]), "glibc 2.36, bash and sh; LoopX 1's Python"),
    (State.RED, engine.image_libc(["a"], DEBIAN, {"Node": "exit 1: GLIBC_2.38 missing"}, ["Node"]), "Node cannot run: exit 1: GLIBC"),
    (State.RED, engine.image_libc(["a"], Libc("musl", None, False), {"Node": "exit 127"}, ["Node"]), "musl, sh; Node cannot run"),
    (State.WARN, engine.image_libc(["a"], Libc("musl", None, False), {}, []), "musl, sh"),
    (State.UNKNOWN, engine.image_libc(["a"], Libc("", None, False), {}, []), "no C library known"),
    (State.RED, engine.image_dead(["a"], 'exec: "sh": executable file not found'), "no shell starts"),
    (State.UNKNOWN, engine.image_absent(["a"]), "not there yet"),
    (State.OK, engine.egress_none(NOTHING), "neither this host nor the gateway's port nor the Internet (3 tried)"),
    (State.RED, engine.egress_none(Reached({"this host (192.0.2.2)": ""}, {}, {})), "reaches this host (192.0.2.2)"),
    (State.RED, engine.egress_none(Reached({}, {"port 8790": ""}, {})), "reaches port 8790"),
    (State.RED, engine.egress_none(Reached({}, {}, {"1.1.1.1:443": ""}, control="firewall")), "reaches 1.1.1.1:443"),
    (State.UNKNOWN, engine.egress_none(Reached({"h": "no answer"}, {}, {}, control="no answer")), "the probe itself does not work"),
    (State.OK, engine.egress_public(Reached({"this host": ""}, {}, {"1.1.1.1:443": ""}), {}), "Internet: yes (1.1.1.1:443); names: yes"),
    (State.OK, engine.egress_public(NOTHING, {"the proxy http://p:1": ""}), "only through the proxy http://p:1"),
    (State.WARN, engine.egress_public(NOTHING, {}), "Internet: no (1.1.1.1:443: no answer)"),
    (State.WARN, engine.egress_public(Reached({}, {}, {"1.1.1.1:443": ""}), {}, "it refuses"), "names: it refuses"),
    (State.RED, engine.network_refused("pool overlaps"), "no network can be made: pool overlaps"),
    (State.NOT_NEEDED, engine.gpus((), (), ()), "no task asks"),
    (State.OK, engine.gpus({"embedding-eval"}, (), ["runtime nvidia"]), "runtime nvidia"),
    (State.RED, engine.gpus({"embedding-eval"}, (), ()), "embedding-eval; the engine offers none"),
    (State.WARN, engine.gpus({"embedding-eval"}, {"embedding-eval"}, ()), "which park"),
    (State.OK, model.provider("main", asked(401)), "answers (HTTP 401, 120 ms)"),
    (State.RED, model.provider("main", asked(None, why="DNS: the name cannot be resolved")), "DNS: the name cannot be resolved"),
    (State.RED, model.provider("main", asked(407)), "wants a login"),
    (State.WARN, model.provider("main", asked(503)), "HTTP 503"),
    (State.OK, model.provider_key("main", "", asked(200, frozenset({"gpt-x"})), "gpt-x"), "accepted (1 model listed)"),
    (State.RED, model.provider_key("main", "", asked(401), "gpt-x"), "refused: HTTP 401"),
    (State.RED, model.provider_key("main", "", asked(403), "gpt-x"), "refused: HTTP 403"),
    (State.RED, model.provider_key("main", "/etc/key: No such file", asked(401), None), "/etc/key: No such file"),
    (State.UNKNOWN, model.provider_key("main", "", asked(404), None), "cannot tell without a billed request"),
    (State.UNKNOWN, model.provider_key("main", "", asked(405), None), "cannot tell without a billed request"),
    (State.UNKNOWN, model.provider_key("main", "", asked(429), None), "asked too often"),
    (State.UNKNOWN, model.provider_key("main", "", asked(302), None), "HTTP 302"),
    (State.UNKNOWN, model.provider_key("main", "", asked(200), None), "no list of models"),
    (State.UNKNOWN, model.provider_key("main", "", asked(None, why="x"), None), "not reached"),
    (State.WARN, model.provider_key("main", "", asked(200, frozenset({"gpt-y"})), "gpt-x"), "gpt-x is not among its 1 models"),
    (State.UNKNOWN, model.key_elsewhere("main", "provider", "the gateway is away"), "the gateway is away"),
    (State.OK, model.judge_key([variable("set")]), "set here"),
    (State.OK, model.judge_key([variable("unset", gateway=True)]), "gateway.verifier_env"),
    (State.OK, model.judge_key([variable("unset", default=True)]), "default holds"),
    (State.RED, model.judge_key([variable("unset")]), "for slack-clone: not set"),
    (State.RED, model.judge_key([variable("empty")]), "set, but empty"),
    (State.NOT_NEEDED, model.judge_key([]), "no verifier asks"),
    (State.OK, model.prices({"gpt-x"}, ()), "gpt-x"),
    (State.RED, model.prices({"gpt-x"}, {"gpt-x"}), "no price for gpt-x"),
    (State.NOT_NEEDED, model.prices((), ()), "no arm asks"),
    (State.OK, model.notify([ChannelSeen("command", True, "/usr/bin/mail is there", sent=False)]), "nothing was sent"),
    (State.OK, model.notify([ChannelSeen("webhook", True, "HTTP 204", sent=True)]), "a message was sent: HTTP 204"),
    (State.RED, model.notify([ChannelSeen("command", False, "mail: no such program", sent=False)]), "no such program"),
    (State.UNKNOWN, model.notify([ChannelSeen("webhook", None, "behind a proxy", sent=False)]), "behind a proxy"),
    (State.WARN, model.notify([]), "nobody is told"),
    (State.OK, model.gateway(True, "", ()), "runs for this state_dir"),
    (State.WARN, model.gateway(True, "no sign of life for 99 s", ()), "away: no sign of life for 99 s"),
    (State.RED, model.gateway(True, "", ["route main: /k: No such file"]), "route main"),
    (State.NOT_NEEDED, model.gateway(False, "", ()), "no route"),
    (State.OK, model.staged("codex", "/s/codex/tree", ""), "/s/codex/tree"),
    (State.RED, model.staged("loopx", "", "loopx 1 is not staged"), "not staged"),
    (State.NOT_NEEDED, model.nothing_staged(), "no arm"),
    (State.OK, host.tasks(20, {}), "all 20"),
    (State.WARN, host.tasks(20, {"gpu": "task_unsupported"}), "1 of 20 park: gpu (task_unsupported)"),
    (State.RED, host.tasks(1, {"gpu": "task_unsupported"}), "none can run"),
    (State.UNKNOWN, host.tasks(2, {"gpu": "task_unsupported"}, "no answer"), "1 of 2 park anyway"),
    (State.OK, host.ledger("/s/ledger.db", "5dbcd2714d5c", False, ""), "5dbcd2714d5c"),
    (State.RED, host.ledger("/s/ledger.db", "", True, "no ledger"), "none at"),
    (State.UNKNOWN, host.ledger("/s/ledger.db", "", False, "it is corrupt"), "it is corrupt"),
    (State.OK, host.state_dir(out()), "written and synced"),
    (State.RED, host.state_dir(out(kind="nfs4", network=True)), "network file system"),
    (State.RED, host.state_dir(out(problem="cannot write: no space left on device")), "no space left"),
    (State.UNKNOWN, host.state_dir(out(kind="")), "kind of file system is not known"),
    (State.UNKNOWN, host.out_dir(out(kind="")), "kind of file system is not known"),
    (State.OK, host.out_dir(out(kind="nfs4", network=True)), "nfs4 (on another machine)"),
    (State.RED, host.out_dir(out(problem="cannot write: stale file handle")), "stale file handle"),
    (State.OK, host.out_dir_owner(out()), "uid 0, and an agent's"),
    (State.WARN, host.out_dir_owner(out(seen_uid=65534)), "root_squash: files that uid 0 writes become uid 65534's"),
    (State.WARN, host.out_dir_owner(out(as_agent="permission denied")), "an agent's uid cannot write: permission denied"),
    (State.UNKNOWN, host.out_dir_owner(out(as_agent=None)), "only root can try"),
    (State.UNKNOWN, host.out_dir_owner(out(problem="x")), "nothing could be written"),
    (State.OK, host.clock_offset([Offset("state_dir", 3), Offset("out_dir", -40)], 5000), "state_dir +0.0 s, out_dir +0.0 s"),
    (State.UNKNOWN, host.clock_offset([Offset("state_dir", 0), Offset("out_dir", None, "no answer")], 5000), "out_dir: no answer"),
    (State.OK, disk(50 << 30), "50.0 GiB free of 100.0 GiB, floor 5.0 GiB"),
    (State.RED, disk(4 << 30), "4.0 GiB free"),
    (State.WARN, disk(50 << 30, need=60 << 30), "4 trials at once may fill 60.0 GiB"),
    (State.UNKNOWN, disk(0, why="/srv: no such file"), "no such file"),
    (State.OK, host.cores(SIZES, 2, 8), "2 at once need up to 8 of 8 cores"),
    (State.WARN, host.cores(SIZES, 4, 8), "4 at once need up to 10 of 8 cores: 2 of the largest fit"),
    (State.WARN, host.cores(SIZES, 4, 2), "the largest task alone needs 4"),
    (State.NOT_NEEDED, host.cores([], 4, 2), "no task can run"),
    (State.OK, host.memory(SIZES, 2, 40_000), "2 at once need up to 32.0 GiB of 39.1 GiB"),
    (State.WARN, host.memory(SIZES, 12, 40_000), "12 at once need up to 42.0 GiB"),
    (State.OK, host.open_files(65536, 65536, 12, "of this shell"), "12 trials need 448 to 1792"),
    (State.WARN, host.open_files(1024, 4096, 12, "of this shell"), "1024"),
    (State.RED, host.open_files(256, 1024, 12, "of this shell"), "256"),
]  # fmt: skip
"""What the row must be, the row, and words of it."""


@pytest.mark.parametrize(("state", "rows", "words"), CASES)
def test_row(state: State, rows: Row | list[Row], words: str) -> None:
    (row,) = [rows] if isinstance(rows, Row) else rows
    assert row.state is state and words in row.seen, row
    assert bool(row.todo) is (state not in (State.OK, State.NOT_NEEDED)), row
    assert "\n" not in row.seen + row.todo


def test_e05_clocks_apart_are_named_even_where_each_is_nearly_right() -> None:
    behind = host.clock_offset([Offset("state_dir", 0), Offset("out_dir", -120_000)], 5000)
    assert behind.state is State.WARN and "out_dir -120.0 s; 120.0 s apart" in behind.seen
    apart = host.clock_offset([Offset("state_dir", 3000), Offset("out_dir", -3000)], 5000)
    assert apart.state is State.WARN and "6.0 s apart" in apart.seen


def config(folder: Path, task: Path) -> Path:
    path = folder / "marathond.toml"
    (folder / "key").write_text("sk-x\n")
    path.write_text(
        f'[daemon]\nstate_dir = "state"\n[campaign]\nname = "pf"\ntasks = ["{task}"]\n[engine]\nurl = "unix://{folder}/nobody.sock"\n'
        '[arms.nop]\nkind = "nop"\n[gateway.routes.main]\nbase_url = "http://127.0.0.1:9/v1"\nkey_file = "key"\n'
    )
    return path


NEVER_RED = {"clock_offset", "cores", "memory", "out_dir_owner"}
"""Of these ``warn`` or ``unknown`` is the worst that a judge may say; the runner says ``unknown`` of every one (below)."""


@pytest.mark.anyio
async def test_every_check_of_the_table_was_judged_bad_and_good(tmp_path: Path) -> None:
    scene = Scene(load(config(tmp_path, make_task(tmp_path, "t")), environ={}, cwd=tmp_path), {})
    codes = {code for check in checks(scene, send=False) for code in check.codes}
    judged = {(row.code, state) for state, rows, _ in CASES for row in ([rows] if isinstance(rows, Row) else rows)}
    assert codes == {code for code, _ in judged}
    assert codes == {code for code, state in judged if state is State.OK}
    bad = {code for code, state in judged if state is State.RED} | NEVER_RED
    assert codes == bad


def test_the_conclusion_is_the_worst_and_an_empty_table_is_blind() -> None:
    good, odd = ok("a", ""), warn("b", "", "x")
    assert (conclusion([good, odd]), screen.exit_code([good, odd])) == (State.OK, 0)
    assert (conclusion([good, unknown("c", "")]), screen.exit_code([good, unknown("c", "")])) == (State.UNKNOWN, 4)
    assert screen.exit_code([unknown("c", ""), red("d", "", "x")]) == 1
    assert screen.exit_code([]) == 4


@pytest.mark.parametrize(
    ("said", "libc"),
    [
        ("shell\nbash\nglibc 2.36\n", DEBIAN),
        ("shell\nGNU C Library (Ubuntu GLIBC 2.31-0ubuntu9.16) stable release version 2.31.\n", Libc("glibc", (2, 31), False)),
        ("shell\nmusl ld-musl-x86_64.so.1\nglibc 2.35\n", Libc("musl", None, False)),
        ("shell\n", Libc("", None, False)),
    ],
)
def test_what_an_image_says_of_its_library(said: str, libc: Libc) -> None:
    assert engine.read_survey(said) == libc


@pytest.mark.parametrize(
    ("dockerfile", "images"),
    [
        ("ARG V=12\nFROM debian:${V} AS one\nFROM one\nCOPY --from=one /a /b\n", ("debian:12",)),
        ("FROM --platform=linux/amd64 x@sha256:1 as Two\nCOPY --from=two a b\nCOPY --from=0 a b\n", ("x@sha256:1",)),
        ("FROM scratch\nCOPY --from=busybox:1 a b\n", ("busybox:1",)),
        ("ARG BASE\nFROM $BASE\n", ("$BASE",)),
        ("ARG BASE\nFROM ${BASE:-alpine:3}\n", ("alpine:3",)),
        ("FROM \\\n  a:1\n# FROM b\nFROM scratch\n", ("a:1",)),
    ],
)  # fmt: skip
def test_images_that_a_dockerfile_builds_upon(dockerfile: str, images: tuple[str, ...]) -> None:
    assert base_images(dockerfile, {}) == images
    assert base_images("ARG BASE=a\nFROM $BASE", {"BASE": "b"}) == ("b",)


def test_variables_of_a_verifier_are_seen_in_a_task_that_parks_for_want_of_them(tmp_path: Path) -> None:
    task = make_task(tmp_path, "judged")
    toml = task / "task.toml"
    env = 'env = { A = "${KEY_A}", B = "${KEY_B:-x}", C = "plain" }'
    toml.write_text(toml.read_text().replace("[verifier]\n", f"[verifier]\n{env}\n"))
    assert [(one.name, one.has_default) for one in verifier_variables(task)] == [("KEY_A", False), ("KEY_B", True)]
    toml.write_text("no toml")
    assert verifier_variables(task) == ()


@pytest.mark.parametrize(
    ("flags", "answers", "words"),
    [
        (b"\x81\x80", 1, ""),
        (b"\x81\x83", 0, "it knows no a.example"),
        (b"\x81\x82", 0, "the resolver fails (SERVFAIL)"),
        (b"\x81\x80", 0, "it knows no address of a.example"),
        (b"\x01\x00", 0, "what answers is no resolver"),
    ],
)
def test_what_a_resolver_says(flags: bytes, answers: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "TRY_S", 120.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            question, asker = server.recvfrom(512)
            server.sendto(question[:2] + flags + question[4:6] + bytes([0, answers]) + question[8:], asker)

        thread = threading.Thread(target=answer)
        thread.start()
        assert egress.resolve(server.getsockname(), "a.example") == words
        thread.join()
        gone = server.getsockname()
    assert egress.resolve(gone, "a.example") == "connection refused"


def test_who_takes_a_connection_and_says_nothing_is_not_the_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "TRY_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(egress, "TLS_PORT", server.getsockname()[1])
        assert egress.connect(server.getsockname()) == "no answer"
        monkeypatch.setattr(egress, "TRY_S", 120.0)  # all others answer, when their thread comes to it
        with egress.bell() as ringing:
            assert egress.connect(("127.0.0.1", ringing.port), ringing.nonce) == ""
            assert egress.connect(("127.0.0.1", ringing.port), b"x" * 32) == "somebody else answers there"
            monkeypatch.setattr(egress, "TLS_PORT", ringing.port)
            assert egress.connect(("127.0.0.1", ringing.port)) == "connected, and no TLS"
    assert egress.connect(("127.0.0.1", ringing.port), ringing.nonce) == "connection refused"


# ── the runner ──


async def rows_of(*made: Check, facts: Sequence[Fact[object]] = ()) -> list[tuple[str, State, str]]:
    return [(row.code, row.state, row.seen) for row in await carry_out(made, facts)]


@pytest.mark.anyio
async def test_e04_a_check_that_hangs_breaks_or_says_nothing_is_unknown_and_hides_no_other() -> None:
    never = anyio.Event()

    async def hangs() -> Row:
        await never.wait()
        raise AssertionError

    async def breaks() -> Row:
        raise KeyError("planted")

    async def times_out() -> Row:
        raise EngineTimeout("info", 0, "no answer from Docker")

    async def disk_says_no() -> Row:
        raise OSError(28, "No space left on device", "/srv/x")

    async def says_nothing() -> list[Row]:
        return []

    async def good() -> Row:
        return ok("good", "seen")

    checked = [Check((work.__name__, "second"), work, 0.2) for work in (hangs, breaks, times_out, disk_says_no, says_nothing)]
    rows = await rows_of(*checked, Check(("good",), good, 5))
    assert rows[-1] == ("good", State.OK, "seen") and len(rows) == 11
    assert {state for _, state, _ in rows[:-1]} == {State.UNKNOWN}
    said = {code: words for code, _, words in rows}
    assert said["hangs"] == "no answer within 0.2 s" and said["breaks"] == "the check itself broke: KeyError: 'planted'"
    assert "no answer from Docker" in said["times_out"] and said["disk_says_no"] == "/srv/x: No space left on device"


@pytest.mark.anyio
async def test_e04_a_thread_that_hangs_on_a_disk_holds_nobody_up() -> None:
    let_go = threading.Event()
    try:
        rows = await rows_of(Check(("disk",), lambda: aside(lambda: ok("disk", str(let_go.wait()))), 0.2))
        assert rows == [("disk", State.UNKNOWN, "no answer within 0.2 s")]
    finally:
        let_go.set()


@pytest.mark.anyio
async def test_a_fact_is_looked_up_once_and_its_failure_is_everybodys_reason() -> None:
    looks = []

    async def fails() -> object:
        looks.append(1)
        raise Unseen("the engine is away")

    fact = Fact(fails, 5)

    async def needs() -> Row:
        return ok("a", str(await fact.get()))

    rows = await rows_of(Check(("a",), needs, 5), Check(("b",), needs, 5), facts=[fact])
    assert rows == [("a", State.UNKNOWN, "the engine is away"), ("b", State.UNKNOWN, "the engine is away")] and looks == [1]


def thing(owner: str, age_ms: int, name: str = "marathond-preflight-0123456789ab") -> NetworkInfo:
    return NetworkInfo("n", name, "bridge", False, {LABEL_PREFLIGHT: owner} if owner else {}, (), SystemClock().wall_ms() - age_ms)


def test_b05_of_others_it_takes_only_what_a_dead_preflight_left(tmp_path: Path) -> None:
    yard = Yard(DockerEngine("e", f"unix://{tmp_path}/nobody.sock"), SystemClock(), None)
    own = yard.labels[LABEL_PREFLIGHT]
    place, pid, ticks = own.rsplit(".", 2)
    taken = {
        "own": yard._ours(thing(own, 0)),
        "dead": yard._ours(thing(f"{place}.{pid}.{int(ticks) + 1}", 0)),
        "old, of another boot": yard._ours(thing(f"elsewhere.1.{pid}.{ticks}", 2 * OLD_MS)),
        "alive": yard._ours(thing(f"{place}.1.{read_ticks(1)}", 2 * OLD_MS)),
        "young, of another host": yard._ours(thing(f"elsewhere.1.{pid}.{ticks}", 0)),
        "nonsense": yard._ours(thing("x", 0)),
        "a copy of the label": yard._ours(thing(own, 2 * OLD_MS, "db-1")),
        "somebody else's": yard._ours(thing("", 2 * OLD_MS)),
    }
    assert [name for name, theirs in taken.items() if theirs] == ["own", "dead", "old, of another boot"]


def read_ticks(pid: int) -> int:
    stat = read_stat(pid)
    assert stat is not None
    return stat.start_ticks


@pytest.mark.anyio
async def test_a_key_that_only_the_gateways_unit_sees_is_unknown_and_one_that_is_missing_there_is_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    section = RouteSection(base_url="http://127.0.0.1:9/v1", key_credential="provider")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    for state in (State.UNKNOWN, State.RED):
        problem, asked_now = await provider.ask("main", section, SystemClock())
        row = provider.key_row("main", section, problem, asked_now, model=None, gateway="the gateway is away")
        assert row.state is state, row
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/nowhere")


# ── the screen ──


def test_many_good_rows_are_one_line_and_every_bad_one_stays(capsys: pytest.CaptureFixture[str]) -> None:
    good = [ok("image_libc", "glibc 2.36, sh", f"t{number}") for number in range(5)]
    screen.show([*good, red("image_libc", "no shell \x1b[2Jstarts", "rebuild it", "t9"), unknown("disk", "blind", "df")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[1].split("  ")[-1].strip().endswith("5 rows: glibc 2.36, sh (5)")
    assert "t9: no shell starts → rebuild it" in lines[2] and "\x1b" not in "".join(lines)
    assert lines[-1] == "1 red, 1 unknown, 5 ok: not ready" and not any(line.endswith(" ") for line in lines)


def test_a_campaign_that_could_not_be_submitted_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["--config", str(config(tmp_path, tmp_path / "no-such-task*")), "preflight"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and "matches no folder" in said.err, said


def test_an_engine_that_is_away_is_a_table_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = load(config(tmp_path, make_task(tmp_path, "t")), environ={}, cwd=tmp_path)
    assert screen.run(settings, {}, send=False, as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    states = {row["code"]: row["state"] for row in told["rows"]}
    assert told["conclusion"] == "red" and states["engine"] == "red" and states["ledger"] == "red" and states["state_dir"] == "red"
    blind = ("engine_proxy", "bind_mounts", "egress_none", "tasks", "base_images", "images_built", "image_libc", "cores", "memory")
    assert {states[code] for code in blind} == {"unknown"}, states
    assert states["clock_offset"] == "unknown" and states["disk"] == "unknown" and states["open_files"] in ("ok", "warn")
