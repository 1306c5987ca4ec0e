"""What an agent or another ledger can do to the export of a trial's artifacts."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path

import pytest

from marathond.flow.exporter import distinct, written_by
from marathond.ledger.adopt import How, adopt
from marathond.ledger.verbs.artifacts import ArtifactRecord
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
NOP = {"kind": "nop"}


async def test_f06_two_names_that_look_alike_end_no_daemon(docker_host: str, tmp_path: Path) -> None:
    """One is not UTF-8, and the other is what we show of it; the ledger wants each path once."""
    alike = {"kind": "command", "argv": ["sh", "-c", "cd /logs/agent; touch \"$(printf '\\377')\"; echo mine >'\\xff'"]}
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"alike": alike}) as rig:
        await rig.until_done()
        rows = rig.sql("SELECT path, sha256 <> '', why FROM artifact WHERE path GLOB 'agent/\\*'")
        assert rows == [("agent/\\xff", 1, ""), ("agent/\\xff (2)", 0, "its name is not UTF-8")]
        assert (rig.root / "out" / rig.one("SELECT folder FROM artifact_export") / "agent" / "\\xff").read_text() == "mine\n"


async def test_a_path_that_was_copied_keeps_its_name() -> None:
    left, copied = ArtifactRecord("a", "", 1, "why"), ArtifactRecord("a", "0" * 64, 1)
    taken = ArtifactRecord("a (2)", "1" * 64, 1)
    assert [one.path for one in distinct([left, left, copied, taken])] == ["a (3)", "a (4)", "a", "a (2)"]


async def test_f14_a_copy_leaves_the_documents_of_its_original_alone(docker_host: str, tmp_path: Path) -> None:
    """Its campaigns' folders are the original's: rows are copied, files are not."""
    wait = {"kind": "command", "argv": ["sh", "-c", "while [ ! -e /logs/artifacts/go ]; do sleep 0.1; done"]}
    tasks = [make_task(tmp_path, name, agent_s=1000) for name in ("one", "other")]  # either may be the first trial's
    async with Rig(docker_host, tasks=tasks, arms={"wait": wait}, overrides={"admission.concurrency": 2}) as rig:
        for number in (1, 2):
            await rig.agent_runs(number)
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until("SELECT count(*) FROM artifact_export")
        await rig.kill()
        out = rig.root / "out" / "test"
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        works = rig.root / "state" / "r" / "t0002"
        copy = Rig(docker_host, tasks=[make_task(tmp_path, "copied")], arms={"nop": NOP})
        copy.config.write_text(copy.config.read_text().replace('name = "test"', 'name = "next"'))
        shutil.copyfile(rig.ledger_path, copy.ledger_path)
        now_ms = time.time_ns() // 1_000_000
        done = adopt(copy.ledger_path, How.COPY, host=socket.gethostname(), filesystem_type="ext4", author="ana", now_ms=now_ms)
        assert done.voided == (2,)
        copy.ledger_id = done.ledger_id
        async with copy:
            await copy.until("SELECT count(*) FROM artifact_export JOIN trial USING (trial_id) WHERE trial_id > 2")
            assert copy.sql("SELECT trial_id FROM artifact_export ORDER BY trial_id") == [(1,), (3,)]
            assert copy.sql("SELECT count(*) FROM finding WHERE code = 'export_failed'") == [(0,)]
            assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
            assert written_by(out) == done.old_ledger_id and written_by(copy.root / "out" / "next") == done.ledger_id
        assert works.is_dir()
        (works / "logs" / "artifacts" / "go").touch()
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT trial, state FROM v_trial ORDER BY trial") == [("t0001", "scored"), ("t0002", "scored")]


async def test_f14_what_waits_for_a_folder_that_another_ledger_took_is_named_and_holds_up_nobody(docker_host: str, tmp_path: Path) -> None:
    wait = {"kind": "command", "argv": ["sh", "-c", "while [ ! -e /logs/artifacts/go ]; do sleep 0.1; done"]}
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=1000)], arms={"old": wait}) as rig:
        await rig.agent_runs()
        await rig.kill()
        config = rig.root / "out" / "test" / "config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('{"marathond": {"ledger": "0123456789ab"}}')
        rig.config.write_text(rig.config.read_text().replace('name = "test"', 'name = "next"').replace("[arms.old]", "[arms.new]"))
        await rig.start()
        for number in (1, 2):
            await rig.until("SELECT count(*) FROM trial WHERE trial_id = ? AND state = 'running'", number)
            (rig.root / "state" / "r" / f"t{number:04d}" / "logs" / "artifacts" / "go").touch()
        await rig.until("SELECT count(*) FROM artifact_export WHERE trial_id = 2")
        await rig.until("SELECT count(*) FROM finding WHERE code = 'export_failed' AND closed_at_ms IS NULL")
        detail = rig.one("SELECT detail FROM finding WHERE code = 'export_failed'")
        assert "holds artifacts of ledger 0123456789ab" in detail and "1 trial of this one must wait" in detail
        assert [path.name for path in config.parent.iterdir()] == ["config.json"]
        assert (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").exists()
        config.unlink()
        rig.daemon.world.export_wake.ring()  # type: ignore[union-attr]
        await rig.until_done()
        await rig.until("SELECT count(*) FROM finding WHERE code = 'export_failed' AND closed_at_ms IS NOT NULL")
