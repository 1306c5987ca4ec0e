"""marathonctl preflight against the real engine: one table where all is well, one where everything planted shows, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.cli import ctl
from marathond.core.preflight import engine as judge
from marathond.core.preflight.rows import Row, State
from marathond.demo.docker_http import Docker
from marathond.engine.host import occupied
from marathond.flow.sweeper import Sweeper
from marathond.gateway.files import write_json
from marathond.ports.clock import SystemClock
from marathond.ports.engine import ContainerInfo
from marathond.service.preflight import boxes, egress, rest
from marathond.service.preflight.box import LABEL_PREFLIGHT
from marathond.service.preflight.checks import preflight
from marathond.service.preflight.run import Unseen
from marathond.service.preflight.scene import Scene
from marathond.service.settings import load
from tests.support.prebuilds import built_task, prebuild, remove_images, tag_of
from tests.support.published import printed
from tests.support.registry import make_tree
from tests.support.rig import BASE_IMAGE, Rig, make_task

pytestmark = pytest.mark.docker

KEY = "sk-planted-0123456789"
MODEL = "gpt-test"
PATIENCE_S = 240.0


@dataclass
class Somebody:
    """A provider (``/v1``: knows the key; ``/bare``: has no list), a hook and a proxy, on loopback."""

    port: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    told: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def somebody() -> Iterator[Somebody]:
    one = Somebody()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            one.asked.append((self.path, self.headers.get("Authorization", "")))
            if self.path != "/v1/models":
                self._answer(404, {})
            elif self.headers["Authorization"] != f"Bearer {KEY}":
                self._answer(401, {"error": {"message": f"bad key {self.headers['Authorization']}", "code": "invalid_api_key"}})
            else:
                self._answer(200, {"object": "list", "data": [{"id": MODEL}, {"id": "other"}]})

        def do_POST(self) -> None:
            one.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer(200, {})

        def _answer(self, status: int, told: object) -> None:
            raw = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        one.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield one
        server.shutdown()
        thread.join()


@pytest.fixture
def root() -> Iterator[Path]:
    """A short folder for a state directory."""
    path = Path(tempfile.mkdtemp(prefix="mf-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def write_config(root: Path, docker_host: str, tasks: list[Path], more: str) -> Path:
    path = root / "marathond.toml"
    named = json.dumps([str(task) for task in tasks])
    path.write_text(
        f'[daemon]\nstate_dir = "state"\nout_dir = "out"\n[campaign]\nname = "pf"\ntasks = {named}\narms = ["plain"]\n'
        f'[arms.plain]\nkind = "codex"\ndrive = "turn"\n[codex]\nmodel = "{MODEL}"\n[engine]\nurl = "{docker_host}"\n{more}'
    )
    return path


def by_code(rows: list[Row]) -> dict[str, Row]:
    """By code, and by ``code:subject`` where rows share one."""
    return {key: row for row in rows for key in (row.code, f"{row.code}:{row.subject}")}


def words_of(rows: list[Row]) -> str:
    return "\n".join(f"{row.state} {row.code} {row.subject}: {row.seen}" for row in rows)


def test_where_all_is_well_every_row_is_ok(docker_host: str, root: Path, somebody: Somebody, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "key").write_text(KEY + "\n")
    judged = make_task(root, "judged")
    judged.joinpath("task.toml").write_text(
        judged.joinpath("task.toml").read_text().replace("[verifier]\n", '[verifier]\nenv = { K = "${A_HOST_KEY}" }\n')
    )
    here = f"http://127.0.0.1:{somebody.port}"
    more = (
        f'build_args = {{ HTTP_PROXY = "http://user:pass-word@127.0.0.1:{somebody.port}" }}\n'
        f'[gateway.routes.main]\nbase_url = "{here}/v1"\nkey_file = "key"\n[money.prices."{MODEL}"]\ninput = 1.0\noutput = 2.0\n'
        f'[notify]\ncommand = ["true"]\nwebhook = "{here}/hook/secret"\n'
        f"[admission]\nconcurrency = 1\ndisk_floor_percent = 0.0\ndisk_floor_gb = 0.01\n"
    )
    config = write_config(root, docker_host, [judged], more)
    config.write_text(config.read_text().replace("[codex]\n", f'[codex]\nfolder = "{make_tree(root / "codex")}"\n'))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert ctl.run(["--config", str(config), "init"]) == 0 and ctl.run(["--config", str(config), "stage"]) == 0
    settings, clock = load(config), SystemClock()
    write_json(root / "state/gateway/alive.json", {"boot_id": clock.boot_id, "mono_ms": clock.mono_ms() + 3_600_000})
    rows = anyio.run(lambda: preflight(settings, {"A_HOST_KEY": "value-of-it"}))
    told, seen = words_of(rows), by_code(rows)
    bad = {row.code for row in rows if row.state not in (State.OK, State.NOT_NEEDED)}
    assert bad <= {"open_files"}, told  # as this host is set up
    assert {row.code for row in rows if row.state is State.NOT_NEEDED} == {"egress_public", "gpus"}, told
    assert "glibc 2." in seen["image_libc"].seen and "2 models" in seen["provider_key"].seen, told
    assert not any(secret in told for secret in (KEY, "value-of-it", "pass-word", "hook/secret"))
    assert somebody.asked[-1] == ("/v1/models", f"Bearer {KEY}") and somebody.told == []
    assert list((root / "out").iterdir()) == [] and not [path for path in (root / "state").iterdir() if "preflight" in path.name]

    async def send() -> list[Row]:
        async with Scene(settings, {}) as scene:
            return await rest.notify(scene, send=True)

    assert [row.state for row in anyio.run(send)] == [State.OK, State.OK]
    assert [message["kind"] for message in somebody.told] == ["test"]


BLIND_HOST = " && ".join(
    (
        'mount -t tmpfs none "$0/state"',
        'mount -t tmpfs -o size=1m none "$0/out"',
        'mount -o remount,ro "$0/out"',
        "ulimit -n 128",
        'exec "$@"',
    )
)
"""In a mount namespace of its own: what the engine sees of these folders is something else, and one of them is small and read-only."""


def test_b14_b15_what_is_planted_shows_in_a_row_each(docker_host: str, root: Path, somebody: Somebody) -> None:
    tasks = [
        make_task(root, "bare"),
        built_task(root, "scratch", ""),
        built_task(root, "musl", "RUN touch /lib/ld-musl-x86_64.so.1"),
        built_task(root, "unbuilt", ""),
        make_task(root, "judged"),
        make_task(root, "gpu", environment="gpus = 1\n"),
    ]
    scratch, unbuilt, judged = (root / name for name in ("scratch", "unbuilt", "judged"))
    (scratch / "environment/Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    (unbuilt / "environment/Dockerfile").write_text("FROM 127.0.0.1:1/not-here:1\n")
    (judged / "task.toml").write_text(
        (judged / "task.toml").read_text().replace("[verifier]\n", '[verifier]\nenv = { K = "${UNSET_KEY}" }\n')
    )
    (root / "wrong").write_text("sk-wrong-key-0123456789")
    base = f"http://127.0.0.1:{somebody.port}"
    routes = "".join(
        f'[gateway.routes.{name}]\nbase_url = "{url}"\n{key}\n'
        for name, url, key in (
            ("main", f"{base}/v1", 'key_file = "wrong"'),
            ("bare", f"{base}/bare/v1", 'key_file = "wrong"'),
            ("away", "http://127.0.0.1:9/v1", 'key_file = "wrong"'),
            ("nameless", "https://nobody.invalid/v1", 'key_file = "wrong"'),
            ("plain", f"https://127.0.0.1:{somebody.port}/v1", 'key_file = "wrong"'),
            ("sealed", f"{base}/v1", 'key_credential = "provider"'),
            ("keyless", f"{base}/v1", 'key_file = "no-such-file"'),
        )
    )
    more = 'build_args = { HTTPS_PROXY = "http://127.0.0.1:9" }\n[notify]\ncommand = ["no-such-program"]\n[admission]\nconcurrency = 40\n'
    config = write_config(root, docker_host, tasks, more + '[gateway]\nroute = "main"\n' + routes)
    assert ctl.run(["--config", str(config), "init"]) == 0
    try:
        with prebuild(config, "--task", "scratch") as first, prebuild(config, "--task", "musl") as second:
            first.finish(), second.finish()
        argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "preflight", "--json"]
        environ = {name: value for name, value in os.environ.items() if name not in ("UNSET_KEY", "CREDENTIALS_DIRECTORY")}
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", BLIND_HOST, str(root), *argv],
            env=environ,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    finally:
        remove_images(docker_host, [tag_of(root / name) for name in ("scratch", "musl")])
    assert done.returncode == 1 and "sk-wrong" not in done.stdout + done.stderr, done.stderr
    rows = [Row(**{**row, "state": State(row["state"])}) for row in printed("preflight", done.stdout)["rows"]]
    seen, told = by_code(rows), words_of(rows)

    def shows(key: str, state: State, words: str) -> None:
        assert key in seen and seen[key].state is state and words in seen[key].seen, f"{key}: {words}\n{told}"

    shows("bind_mounts", State.RED, "does not see")
    shows("engine_proxy:builds", State.RED, "http://127.0.0.1:9: connection refused")
    shows("base_images", State.RED, "127.0.0.1:1/not-here:1 (unbuilt)")
    shows("images_built", State.RED, "unbuilt")
    shows("image_libc:scratch", State.RED, "no shell starts")
    shows("image_libc:musl", State.WARN, "musl")
    shows("image_libc:unbuilt", State.UNKNOWN, "not there yet")
    shows("image_libc:bare", State.OK, "glibc 2.")
    shows("tasks", State.WARN, "gpu (task_unsupported), judged (task_broken)")
    shows("gpus", State.WARN, "the engine offers none")
    shows("staged:codex", State.RED, "not staged")
    shows("provider:main", State.OK, "HTTP 401")
    shows("provider_key:main", State.RED, "HTTP 401")
    shows("provider_key:bare", State.UNKNOWN, "cannot tell without a billed request")
    shows("provider:away", State.RED, "TCP: connection refused")
    shows("provider_key:away", State.UNKNOWN, "not reached")
    shows("provider:nameless", State.RED, "DNS: the name cannot be resolved")
    shows("provider:plain", State.RED, "TLS")
    shows("provider:sealed", State.OK, "HTTP 401")
    shows("provider_key:sealed", State.UNKNOWN, "the gateway is away")
    shows("provider_key:keyless", State.RED, "no-such-file: No such file")
    shows("gateway", State.WARN, "away")
    shows("judge_key:UNSET_KEY", State.RED, "for judged: not set")
    shows("prices", State.RED, MODEL)
    shows("notify:command", State.RED, "no-such-program")
    shows("out_dir", State.RED, "read-only file system")
    shows("out_dir_owner", State.UNKNOWN, "nothing could be written")
    shows("clock_offset", State.UNKNOWN, "out_dir")
    shows("disk:out_dir", State.RED, "0.0 GiB free")
    shows("open_files", State.RED, "128 (of this shell)")
    shows("egress_none", State.OK, "neither this host")


@pytest.mark.anyio
async def test_b15_the_probe_reaches_what_can_be_reached_and_a_full_range_is_named(docker_host: str, root: Path) -> None:
    task = make_task(root, "online", network="public")
    config = root / "c.toml"
    config.write_text(
        f'[daemon]\nstate_dir = "state"\n[campaign]\nname = "pf"\ntasks = ["{task}"]\n\n'
        f'[engine]\nurl = "{docker_host}"\n[arms.n]\nkind = "nop"\n'
    )
    addresses = [item.cidr.partition("/")[0] for item in occupied() if item.what.startswith("interface")]
    here = next(address for address in addresses if not IPv4Address(address).is_loopback)
    last = "198.19.255.248/29"
    settings = load(config, {"network.range": last, "network.prefix": 29, "network.cap": 1})
    async with Scene(settings, {}) as scene, scene.yard:
        await scene.images.look()
        with egress.bell() as ringing:
            row = await boxes.egress_public(scene, internet=[(here, ringing.port)])
        resolved = "Internet: yes (" if row.state is State.OK else "Internet by address: yes; names: "  # as this host resolves names
        assert row.state in (State.OK, State.WARN) and resolved in row.seen and "this host's ports: yes" in row.seen, row
        async with scene.yard.network(last) as network_id:
            full = await boxes.egress_public(scene)
            assert full.state is State.RED and "no subnet of" in full.seen, full
            image = await scene.engine.inspect_image(BASE_IMAGE)
            assert image is not None
            async with scene.yard.container(image.id, network=network_id) as info:
                plan = egress.Plan([here], settings.gateway.port, [])
                reached = (await anyio.to_thread.run_sync(egress.look, info, plan)).reached
        # What a container with a network reaches is what one without must not: the same probe, the other judgement.
        red = judge.egress_none(reached)
        assert red.state is State.RED and f"this host ({here})" in red.seen and "loopback" not in red.seen, red


def test_b15_a_container_of_another_host_is_not_looked_into() -> None:
    stranger = ContainerInfo("f" * 64, "x", {}, "", True, False, "running", os.getpid(), "", None, False, "none")
    with pytest.raises(Unseen, match="not seen on this host"):
        egress.look(stranger, egress.Plan([], 8790))


@pytest.mark.anyio
async def test_b06_beside_a_daemon_it_is_no_orphan(docker_host: str, tmp_path: Path) -> None:
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"n": {"kind": "nop"}}) as rig:
        await rig.until_done()
        assert rig.daemon is not None and rig.daemon.world is not None
        sweeper, rows = Sweeper(rig.daemon.world), list[Row]()
        async with anyio.create_task_group() as group:

            async def sweep() -> None:
                while True:
                    await sweeper.sweep()
                    await anyio.sleep(0.05)

            group.start_soon(sweep)
            rows += await preflight(load(rig.config, rig.overrides), {})
            group.cancel_scope.cancel()
        seen = by_code(rows)
        assert [seen[code].state for code in ("bind_mounts", "egress_none", "ledger")] == [State.OK] * 3, words_of(rows)
        assert rig.sql("SELECT code, subject, detail FROM finding WHERE code LIKE 'orphan%'") == []


def ours(docker_host: str, kind: str, pid: int) -> list[str]:
    """Ids of what the preflight of that pid has on the engine."""
    status, things = Docker(docker_host).call("GET", "/containers/json?all=1" if kind == "containers" else "/networks", PATIENCE_S)
    assert status == 200, things
    return [thing["Id"] for thing in things if f".{pid}." in (thing["Labels"] or {}).get(LABEL_PREFLIGHT, "")]


@contextmanager
def running(config: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "preflight"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(there: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_f02_interrupted_or_killed_it_leaves_nothing_for_long(docker_host: str, root: Path) -> None:
    tasks = [make_task(root, "a"), make_task(root, "b", network="public")]
    config = write_config(root, docker_host, tasks, "")
    config.write_text(config.read_text().replace('kind = "codex"\ndrive = "turn"', 'kind = "nop"'))
    assert ctl.run(["--config", str(config), "init"]) == 0
    with running(config) as killed:
        until(lambda: ours(docker_host, "containers", killed.pid) and ours(docker_host, "networks", killed.pid), "it makes something")
        killed.kill()
        killed.wait()
    with running(config) as ended:
        until(lambda: ours(docker_host, "containers", ended.pid), "it makes a container")
        ended.send_signal(signal.SIGTERM)
        _, said = ended.communicate(timeout=PATIENCE_S)
    assert (ended.returncode, said) == (143, "marathonctl: preflight: ended by SIGTERM; what it had made is removed\n")
    for kind in ("containers", "networks"):
        assert ours(docker_host, kind, ended.pid) == ours(docker_host, kind, killed.pid) == []
