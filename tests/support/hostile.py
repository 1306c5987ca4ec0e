"""One campaign of many hostile cells for a whole test module, and questions about single trials.

    @pytest.fixture(scope="module")
    def ran(docker_host, tmp_path_factory):
        with campaign(docker_host, tasks, arms) as ran:
            yield ran

The campaign has come to its end when the tests begin; each test asks the ledger for its own cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from marathond.engine.docker import DockerEngine
from tests.support.rig import Rig

MANY = {"admission.concurrency": 8, "admission.cpu_overcommit": 8.0, "admission.memory_overcommit": 8.0, "admission.breaker_after": 1000}
"""Eight mostly sleeping trials at a time; the breaker would rightly stop a campaign of nothing but hostile cells."""


@dataclass(frozen=True)
class Ran:
    """A campaign that came to its end; the daemon still lives."""

    rig: Rig

    def trials(self, task: str, arm: str = "sh") -> list[int]:
        rows = self.rig.sql(
            "SELECT trial_id FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) JOIN arm ON arm.arm_id = cell.arm_id"
            " WHERE task.name = ? AND arm.name = ? ORDER BY attempt",
            task,
            arm,
        )
        return [row[0] for row in rows]

    def trial(self, task: str, arm: str = "sh") -> int:
        found = self.trials(task, arm)
        assert len(found) == 1, f"{task} x {arm}: {len(found)} attempts\n{self.rig.story()}"
        return found[0]

    def state(self, task: str, arm: str = "sh") -> str:
        return str(self.rig.one("SELECT state FROM trial WHERE trial_id = ?", self.trial(task, arm)))

    def reward(self, task: str, arm: str = "sh") -> float:
        """Of a trial that was scored once."""
        assert self.state(task, arm) == "scored", self.rig.story()
        return float(self.rig.one("SELECT reward FROM score WHERE trial_id = ?", self.trial(task, arm)))

    def flags(self, task: str, arm: str = "sh") -> list[str]:
        return list(json.loads(self.rig.one("SELECT flags_json FROM score WHERE trial_id = ?", self.trial(task, arm))))

    def agent(self, task: str, column: str, arm: str = "sh") -> Any:
        return self.rig.one(f"SELECT {column} FROM trial_agent WHERE trial_id = ?", self.trial(task, arm))

    def review(self, task: str, arm: str = "sh") -> tuple[str, str]:
        """Code and detail.  The trial has no score: a doubt is never a 0."""
        trial_id = self.trial(task, arm)
        assert self.rig.one("SELECT count(*) FROM score WHERE trial_id = ?", trial_id) == 0
        assert self.state(task, arm) == "review", self.rig.story()
        code, detail = self.rig.one("SELECT code, detail FROM review WHERE trial_id = ?", trial_id)
        return str(code), str(detail)

    def rounds(self, task: str, arm: str = "sh") -> list[tuple[str, int | None]]:
        """Outcome and exit code of each run of the verifier."""
        rows = self.rig.sql("SELECT outcome, exit_code FROM verification WHERE trial_id = ? ORDER BY round", self.trial(task, arm))
        return [(row[0], row[1]) for row in rows]

    def voids(self, task: str, arm: str = "sh") -> list[tuple[str, str]]:
        """Code and reason, one for each attempt."""
        sql = "SELECT code, reason FROM void WHERE trial_id = ?"
        rows = [row for trial_id in self.trials(task, arm) for row in self.rig.sql(sql, trial_id)]
        return [(row[0], row[1]) for row in rows]

    def park(self, task: str, arm: str = "sh") -> tuple[str, str]:
        code, detail = self.rig.one(
            "SELECT code, detail FROM park JOIN cell USING (cell_id) JOIN task USING (task_id) JOIN arm ON arm.arm_id = cell.arm_id"
            " WHERE task.name = ? AND arm.name = ? AND ended_at_ms IS NULL",
            task,
            arm,
        )
        return str(code), str(detail)

    def facts(self, task: str, arm: str = "sh") -> dict[str, tuple[str, str]]:
        """Name to (value, origin)."""
        rows = self.rig.sql("SELECT name, value, origin FROM trial_fact WHERE trial_id = ?", self.trial(task, arm))
        return {row[0]: (row[1], row[2]) for row in rows}

    def parts(self, task: str, arm: str = "sh") -> dict[str, str]:
        """Numbers that the verifier wrote, by their key in metrics.json."""
        sql = "SELECT name, value FROM score_part JOIN score USING (score_id) WHERE trial_id = ?"
        return {row[0].partition(":")[2] or row[0]: row[1] for row in self.rig.sql(sql, self.trial(task, arm))}

    def processes(self, task: str, arm: str = "sh") -> list[tuple[str, str]]:
        """What the agent left running: (fate, command line)."""
        return [(p["fate"], p["argv"]) for p in json.loads(self.agent(task, "processes_json", arm))]

    def folder(self, task: str, arm: str = "sh") -> Path:
        """The exported artifacts."""
        relative = self.rig.one("SELECT folder FROM artifact_export WHERE trial_id = ?", self.trial(task, arm))
        return self.rig.root / "out" / str(relative)

    def stop_losses(self) -> list[tuple[Any, ...]]:
        return self.rig.sql("SELECT code, subject, detail FROM finding WHERE severity = 'stop_loss'")


@contextmanager
def campaign(
    docker_host: str,
    tasks: Sequence[Path],
    arms: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, object] | None = None,
    patience_s: float = 400.0,
    engine: DockerEngine | None = None,
) -> Iterator[Ran]:
    """Run it to its end in a thread of its own, so that synchronous tests can share it."""
    with start_blocking_portal("asyncio") as portal:
        rig = Rig(docker_host, tasks=tasks, arms=arms, overrides={**MANY, **(overrides or {})}, engine=engine)
        try:
            with portal.wrap_async_context_manager(rig):
                portal.call(rig.until_done, patience_s)
                yield Ran(rig)
        finally:
            if engine is not None:
                portal.call(engine.aclose)
