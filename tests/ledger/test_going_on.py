"""A daemon's start that goes on with a campaign, and a submission, while folders of tasks are away."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import pytest
import structlog

from marathond.core.errors import ConfigError
from marathond.ledger.open import open_for_daemon
from marathond.ledger.verbs.findings import open_findings
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service.daemon import Daemon
from marathond.service.settings import load
from tests.support.ledgers import T0, file_ledger
from tests.support.rig import make_task

pytestmark = pytest.mark.anyio


def write(folder: Path, tasks: str, more: str = "") -> Path:
    config = folder / "marathond.toml"
    text = f'''[campaign]
name = "c"
tasks = [{tasks}]
[daemon]
state_dir = "{folder}/state"
out_dir = "{folder}/out"
[arms.nop]
kind = "nop"
{more}'''
    config.write_text(text)
    return config


async def test_f06_a_start_goes_on_without_a_disk_to_come_and_a_submission_without_one_that_is_away(tmp_path: Path) -> None:
    for name in ("four", "gone"):
        make_task(tmp_path / "tasks", name)
    config = write(tmp_path, '"tasks/four", "tasks/gone"')
    file_ledger(tmp_path / "ledger.db", host=socket.gethostname(), now_ms=T0)
    opened = open_for_daemon(tmp_path / "ledger.db", host=socket.gethostname(), filesystem_type="ext4", now_ms=T0)
    async with await SqliteLedger.open(opened.path) as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=0, host="test", boot_id="b", version="0", now_ms=T0)

        def life() -> Daemon:
            return Daemon(load(config), opened, ledger, cast(Any, None), SystemClock())

        first = life()
        begun = await first._known_tasks()
        assert begun is None
        assert (await first._submit(first.settings, "marathond", begun=begun)).added_cells == 2

        write(tmp_path, '"tasks/four", "tasks/gone", "to-come/five", "more/*"')
        with pytest.raises(ConfigError, match=r"campaign\.tasks\[2\] = .*: no such folder"):
            await first.submit("ana")
        later = life()
        begun = await later._known_tasks()
        assert begun is not None
        again = await later._submit(later.settings, "marathond", begun=begun)
        assert (again.added_tasks, again.added_cells, again.parked) == (0, 0, 0)
        with structlog.testing.capture_logs() as said:
            await later._name_what_is_left_out(again.campaign_id, begun)
        assert [(line["event"], line["log_level"]) for line in said] == [("config_left_out", "warning")] * 2
        assert "campaign.tasks[2] = " in said[0]["why"] and "campaign.tasks[3] = " in said[1]["why"]
        standing = await ledger.read(open_findings)
        assert [(row.code, row.subject.split(" = ")[0]) for row in standing] == [
            ("config_left_out", "campaign.tasks[2]"),
            ("config_left_out", "campaign.tasks[3]"),
        ]
        assert "marathond.toml:3" in standing[0].detail and "no such folder" in standing[0].detail

        write(tmp_path, '"to-come/five"')
        none_left = life()
        assert (await none_left._submit(none_left.settings, "marathond", begun=begun)).added_tasks == 0

        write(tmp_path, '"tasks/four", "tasks/gone"', '[arms.added]\nkind = "nop"\n')
        (tmp_path / "tasks/gone").rename(tmp_path / "unmounted")
        done = await later.submit("ana")
        assert (done.added_arms, done.added_cells, done.parked) == (1, 2, 2), "the folder that is away parks"
        assert await ledger.read(open_findings) == [], "a submission leaves nothing out"

        write(
            tmp_path, '"tasks/four"', '[arms.added]\nkind = "nop"\n[scores.foru]\nreward = "x.json:a"\n[verifier]\nexclusive = ["fuor"]\n'
        )
        last = life()
        await last._name_what_is_left_out(again.campaign_id, begun)
        assert [row.subject for row in await ledger.read(open_findings)] == ["scores.foru", 'verifier.exclusive[0] = "fuor"']
        write(tmp_path, f'"tasks/four", "{"y" * 300}"')
        long = life()
        again = await long._submit(long.settings, "marathond", begun=begun)
        await long._name_what_is_left_out(again.campaign_id, begun)
        (row,) = await ledger.read(open_findings)
        assert "cannot be looked at: File name too long" in row.detail
        with pytest.raises(ConfigError, match="cannot be looked at: File name too long"):
            await long.submit("ana")

        write(tmp_path, f'"tasks/four", "{"y" * 300}"')
        other = tmp_path / "marathond.toml"
        other.write_text(other.read_text().replace('name = "c"', 'name = "other"').replace(f', "{"y" * 300}"', ""))
        fresh = life()
        assert await fresh._known_tasks() is None
        begins = await fresh._submit(fresh.settings, "marathond")
        await fresh._name_what_is_left_out(begins.campaign_id, None)
        assert await ledger.read(open_findings) == [], "another campaign's configuration counts now"
    opened.close()
