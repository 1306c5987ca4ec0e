"""A disk that fills, and proxies that reach where they should not (faults b12, b13)."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from pathlib import Path

import anyio
import pytest

from marathond.flow import scheduler
from marathond.ledger.verbs import settings
from tests.support.outcome import wait_for
from tests.support.private_engine import PrivateEngine, missing, private_dockerd
from tests.support.rig import BASE_IMAGE, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

NOP = {"kind": "nop"}
WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
FILLS = {
    "kind": "command",
    "argv": [
        "sh",
        "-c",
        "cat /dev/zero >/logs/artifacts/big; until [ -e /logs/artifacts/go ]; do sleep 0.05; done; rm /logs/artifacts/big",
    ],
}
SEEN = "until [ -e /seen-filler ]; do sleep 0.1; done"
WAITING = "SELECT value_json LIKE '%' || ? || '%' FROM observation WHERE key = 'waiting'"


def let_go(rig: Rig, trial_id: int = 1) -> None:
    (rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts" / "go").touch()


def tell_the_build() -> bool:
    """Ends :data:`SEEN`, in whatever container the engine builds; false while no process waits so."""
    told = False
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # no process, or one that ended just now
            if SEEN.encode() in (entry / "cmdline").read_bytes():
                (entry / "root" / "seen-filler").touch()
                told = True
    return told


async def test_b12_a_trial_that_fills_the_disk_stops_admission_and_nothing_is_void(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the artifacts before anything began, then that of the run directories, by a running agent; each is named, and opens again."""
    monkeypatch.setattr(scheduler, "TICK_S", 0.2)
    overrides = {"admission.disk_floor_percent": 5.0, "admission.disk_floor_gb": 0.0, "admission.concurrency": 1}
    rig = Rig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=600.0)], arms={"f": FILLS}, replicates=2, overrides=overrides)
    out, runs = rig.root / "out", rig.root / "state" / "r"
    for folder in (out, runs):
        folder.mkdir(mode=0o711)
    try:
        for folder in (out, runs):
            await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=8m,mode=711", "tmpfs", str(folder)])
        (out / "ballast").write_bytes(b"\0" * ((8 << 20) * 97 // 100))
        async with rig:
            named = "SELECT detail LIKE ? FROM finding WHERE code = 'disk_low' AND subject = ? AND closed_at_ms IS NULL"
            await rig.until(named, f"below the floor: 0 MB free (%) of tmpfs at {out}", str(out))
            await rig.until(WAITING, f"DISK {out}: 0 MB free")
            assert rig.one("SELECT count(*) FROM trial") == 0
            (out / "ballast").unlink()
            await rig.agent_runs()
            await rig.until(named, f"below the floor: 0 MB free (%) of tmpfs at {runs}", str(runs))
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'disk_low' AND subject = ? AND closed_at_ms IS NULL", str(out))
            await _places(rig, 4)  # there would be a place for the other cell
            await rig.until(WAITING, f"DISK {runs}: 0 MB free")
            looked = rig.one("SELECT times FROM finding WHERE code = 'disk_low' AND closed_at_ms IS NULL")
            await rig.until("SELECT times > ? FROM finding WHERE code = 'disk_low' AND closed_at_ms IS NULL", looked + 5)
            assert rig.sql("SELECT state FROM trial") == [("running",)], "what runs goes on, and nothing joins it"
            # One at a time again: the next one would fill the disk under this one's verifier.
            await _places(rig, 1)
            let_go(rig)  # the agent clears up before it ends
            await rig.agent_runs(2)
            let_go(rig, 2)
            await rig.until_done()
            assert rig.sql("SELECT state, reward FROM trial") == [("scored", 1.0)] * 2
            assert rig.sql("SELECT code FROM void") == []
            await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")
    finally:
        for folder in (out, runs):
            await anyio.run_process(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(rig.root, ignore_errors=True)


async def test_b12_a_build_that_fills_the_engine_s_disk_is_named_and_the_others_go_on(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial runs meanwhile and loses nothing; below the floor nothing is admitted and no other build begins."""
    if reason := missing():
        pytest.skip(reason)
    monkeypatch.setattr(scheduler, "TICK_S", 0.2)
    with private_dockerd() as engine:
        engine.stop()
        data = engine.root / "d"
        await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", str(data)])
        engine.start()
        engine.load(docker_host, BASE_IMAGE)
        tasks = [make_task(tmp_path, "plain", agent_s=600.0), make_task(tmp_path, "filler"), make_task(tmp_path, "later", agent_s=600.0)]
        # It fills the disk, waits until that was seen, and fails as any build does that finds none left.
        steps = {"filler": f"cat /dev/zero >/big; {SEEN}; exit 1", "later": "touch /made"}
        for task in tasks[1:]:
            toml = (task / "task.toml").read_text().replace(f'docker_image = "{BASE_IMAGE}"\n', "")
            (task / "task.toml").write_text(toml)
            (task / "environment").mkdir()
            (task / "environment" / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN {steps[task.name]}\n")
        overrides = {"admission.disk_floor_percent": 3.0, "admission.disk_floor_gb": 0.0, "engine.build_retries": 0}
        overrides |= {"engine.build_concurrency": 1, "admission.concurrency": 4, "admission.cpu_overcommit": 8.0}
        async with Rig(engine.url, tasks=tasks[:1], arms={"w": WAITS}, overrides=overrides) as rig:
            await rig.agent_runs()
            await rig.kill()
            rig.config.write_text(rig.config.read_text().replace(str(tasks[0]), '", "'.join(map(str, tasks))))
            await rig.start()
            named = "SELECT detail LIKE ? FROM finding WHERE code = 'disk_low' AND subject = ?"
            await rig.until(named, f"below the floor: %MB free (%) of tmpfs at {data}", str(data))
            await wait_for(tell_the_build)
            await rig.until(
                "SELECT code = 'image_build_failed' FROM park JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE name = 'filler'"
            )
            assert "No space left on device" in (rig.root / "state" / "builds" / "filler.log").read_text()
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'disk_low' AND closed_at_ms IS NULL")
            await rig.agent_runs(2)  # of the task whose image was built once there was room again
            let_go(rig)
            let_go(rig, 2)
            await rig.until_done()
            assert rig.sql("SELECT task, state, attempt FROM v_trial ORDER BY trial") == [("plain", "scored", 1), ("later", "scored", 1)]
            assert rig.sql("SELECT code FROM void") == []


async def _places(rig: Rig, number: int) -> None:
    """As `set admission.concurrency` does; the daemon goes by it when this returns."""
    daemon = rig.daemon
    assert daemon is not None and daemon.world is not None
    world, change = daemon.world, {"old": None, "new": number, "author": "test", "reason": "b12", "now_ms": 0}
    await daemon.ledger.write(settings.set_value, "admission.concurrency", **change)
    daemon.apply_settings()
    await wait_for(lambda: world.knobs.limits.concurrency == number)


async def test_b13_a_build_s_proxy_reaches_the_build_and_nothing_else(docker_host: str, tmp_path: Path) -> None:
    looks = "grep -q '^http_proxy=http://127.0.0.1:9$' /build-env && ! env | grep -qi proxy"
    check = f"{looks} && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n"
    built = make_task(tmp_path, "built", test=check)
    toml = (built / "task.toml").read_text()
    (built / "task.toml").write_text("".join(line for line in toml.splitlines(True) if "docker_image" not in line))
    (built / "environment").mkdir()
    (built / "environment" / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN env >/build-env # {built}\n")
    overrides = {"engine.build_args": {"http_proxy": "http://127.0.0.1:9"}}
    tag = ""
    try:
        async with Rig(docker_host, tasks=[built], arms={"n": NOP}, overrides=overrides) as rig:
            await rig.until_done()
            tag = rig.one("SELECT image_id FROM container")
            assert rig.sql("SELECT state, reward FROM trial") == [("scored", 1.0)], rig.story()
    finally:
        if tag:
            await anyio.run_process(["docker", "-H", docker_host, "rmi", "-f", tag])


async def test_b13_an_image_that_carries_a_proxy_is_a_dirty_environment(docker_host: str, tmp_path: Path) -> None:
    tag = f"marathond-test-dirty:{secrets.token_hex(6)}"
    dockerfile = f"FROM {BASE_IMAGE}\nENV HTTPS_PROXY=http://127.0.0.1:9\n".encode()
    await anyio.run_process(["docker", "-H", docker_host, "build", "-q", "-t", tag, "-"], input=dockerfile)
    try:
        task = make_task(tmp_path, "dirty")
        (task / "task.toml").write_text((task / "task.toml").read_text().replace(BASE_IMAGE, tag))
        async with Rig(docker_host, tasks=[task], arms={"n": NOP}, overrides={"admission.passes": 1}) as rig:
            await rig.until_done()
            ((code, reason),) = rig.sql("SELECT code, reason FROM void")
            assert code == "environment_dirty"
            assert "HTTPS_PROXY" in reason
            assert rig.sql("SELECT code FROM park") == [("passes_exhausted",)]
            assert rig.sql("SELECT * FROM trial_agent") == []  # the agent was never started in it
    finally:
        await anyio.run_process(["docker", "-H", docker_host, "rmi", "-f", tag])


async def test_b13_an_engine_s_own_dead_proxy_is_named(own_engine: PrivateEngine, tmp_path: Path) -> None:
    own_engine.stop()
    own_engine.environ |= {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    own_engine.start()
    task = make_task(tmp_path, "t")
    (task / "task.toml").write_text((task / "task.toml").read_text().replace(BASE_IMAGE, "marathond-test/not-here:1"))
    async with Rig(own_engine.url, tasks=[task], arms={"n": NOP}, overrides={"engine.build_retries": 0}) as rig:
        await rig.until("SELECT count(*) FROM finding WHERE code = 'engine_proxy_dead' AND closed_at_ms IS NULL")
        assert rig.one("SELECT subject FROM finding WHERE code = 'engine_proxy_dead'").startswith("http://127.0.0.1:9")
        await rig.until("SELECT count(*) FROM park WHERE code = 'image_missing'")
        assert rig.sql("SELECT * FROM trial") == []
