"""Three arms are dead in a whole campaign on a real engine, and somebody is told (fault f15): once, also across a kill of the daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.flow import scheduler
from marathond.service import decisions
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

DEAD = {"kind": "command", "argv": ["true"], "install_check": ["false"]}


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_f15_three_dead_arms_are_told(docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "TICK_S", 0.2)
    tasks = [make_task(tmp_path, name) for name in ("one", "two", "three")]
    arms = {"alive": {"kind": "nop"}, **{f"dead-{number}": DEAD for number in range(3)}}
    # All at once: three failures come within the breaker's window on any machine, and one closing is enough.
    overrides: dict[str, object] = {
        "admission.passes": 1,
        "admission.breaker_after": 3,
        "admission.breaker_pause_s": 240.0,  # the window, too; its pause is waited for by nobody
        "admission.concurrency": 12,
        "admission.cpu_overcommit": 16.0,
        "admission.memory_overcommit": 16.0,
        "notify.command": ["sh", "-c", f"cat >>{tmp_path}/told"],
    }
    async with Rig(docker_host, tasks=tasks, arms=arms, overrides=overrides) as rig:
        await rig.until("SELECT count(*) FROM notice_sending JOIN notice USING (notice_id) WHERE kind = 'breaker' AND told_at_ms > 0")
        await rig.kill()
        await rig.start()
        # Whoever was told says that it is not the infrastructure, as often as admission closes again: passes decide then.
        while rig.sql("SELECT 1 FROM cell_state WHERE state IN ('open', 'claimed')"):
            if rig.sql("SELECT 1 FROM admission_stop WHERE ended_at_ms IS NULL") and rig.daemon is not None:
                await rig.daemon.ledger.write(decisions.reopen_admission, author="ana", now_ms=0)
            await anyio.sleep(0.1)
        await rig.until_done()
        await rig.until("SELECT count(*) FROM notice_sending JOIN notice USING (notice_id) WHERE kind = 'done' AND told_at_ms > 0")
        await rig.kill()
        written = {key for (key,) in rig.sql("SELECT key FROM notice")}
        marked = {key for (key,) in rig.sql("SELECT key FROM notice_sending JOIN notice USING (notice_id) WHERE told_at_ms > 0")}
        assert rig.sql("SELECT arm, state, count(*) FROM v_cell GROUP BY arm, state ORDER BY arm") == [
            ("alive", "done", 3),
            *((f"dead-{number}", "parked", 3) for number in range(3)),
        ]
    messages = told(tmp_path / "told")
    done = next(message for message in messages if message["kind"] == "done")
    assert done["title"] == "campaign test is done: 3 of 12 cells scored, 9 parked"
    breakers = [message for message in messages if message["kind"] == "breaker"]
    assert breakers[0]["title"] == "admission is closed for all arms: breaker" and "install_check_failed" in breakers[0]["detail"]
    # Killed between the sending and its mark, a daemon's successor tells that one a second time; there were two kills.
    keys = [message["key"] for message in messages]
    assert marked <= set(keys) <= written and len(keys) - len(set(keys)) <= 2
    assert {message["kind"] for message in messages} == {"breaker", "done"}
