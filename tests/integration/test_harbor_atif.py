"""Harbor's own model takes every trajectory that is made of a codex run: of recorded ones, and of events in any order."""

from __future__ import annotations

import json
import random
from pathlib import Path

from marathond.agents.codex.atif import from_items, trajectory
from marathond.agents.codex.rollout import Ran, Returned, Spawned
from tests.support.codex_rollouts import ABOUT, AT, ITEMS, document, events, family, recorded
from tests.support.harbor_env import run_harbor_python

VALIDATE = """
import sys
from pathlib import Path
from harbor.models.trajectories import Trajectory
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    made = Trajectory.model_validate_json(path.read_text())
    print(path.stem, len(made.steps), len(made.subagent_trajectories or []), made.final_metrics.total_prompt_tokens)
"""


def test_harbors_own_model_takes_them_all(harbor: None, tmp_path: Path) -> None:
    singles = {name: trajectory(ABOUT, recorded(name)) for name in ("direct", "goal", "interrupted", "failed", "compacted")}
    families = {name: trajectory(ABOUT, *family(name)) for name in ("sub-agent", "sub-agent-v1")}
    for name, made in {**singles, **families, "items": from_items(ABOUT, "thread", ITEMS)}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document(made)))
    for seed in range(40):  # and of events in any order, with ids that do not fit
        dice = random.Random(seed)
        pool = [*recorded("goal").events, *recorded("sub-agent-0").events, *recorded("interrupted").events]
        pool += [Spawned(AT, "call_practice_0", "nobody"), Returned(AT, "x", "", "y"), Ran(AT, "x", "ls", "completed", 0, 1)]
        made = trajectory(ABOUT, events(*(dice.choice(pool) for _ in range(dice.randint(1, 60)))))
        if made.document is not None:
            (tmp_path / f"mixed-{seed:02d}.json").write_text(json.dumps(made.document))
    done = run_harbor_python(VALIDATE, str(tmp_path), paths=[tmp_path])
    assert done.returncode == 0, done.stderr[-3000:]
    told = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert len(told) >= 40 and told["direct"] == [str(singles["direct"].steps), "0", "5000"]
    assert told["sub-agent"][1] == told["sub-agent-v1"][1] == "1"
