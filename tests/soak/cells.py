"""The soak's campaign: what its agents do, and what each cell must come to when nobody disturbs it.

Owns tasks, arms, the provider's script and the outcome of every (task, arm), known before anything runs.  Agents mostly sleep, so that
eight of them live for tens of seconds on two cores.  Each step of work leaves one line in ``artifacts/ran``: a step done twice, or an agent
started twice, shows there and at the provider.  Must not know what is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.demo import rehearsals
from marathond.practice.script import Practice
from tests.support.model_agent import asking
from tests.support.rig import make_task

AGENT_S = 600.0
"""The tasks' own deadline.  Nobody is meant to reach it."""
STALL: dict[str, Any] = {"kind": "stall", "for_s": 1.5}
"""In the middle of every second answer: without it no kill of the gateway would ever cut a stream at the provider."""
HALF = 2
"""Steps of work before the first turn of task ``two`` ends: where a plain conversation is over."""
ONE, TWO = "one", "two"
TASKS = (ONE, TWO)
COMMANDS = ("sh", "sh-2", "sh-3", "sh-4")
"""Alike but for a variable: enough cells that cost little."""
CODEX: dict[str, dict[str, Any]] = {
    "plain": {"kind": "codex", "drive": "turn"},
    "goal": {"kind": "codex", "drive": "goal"},
}
LOOPX: dict[str, dict[str, Any]] = {
    "ssh-goal": {"kind": "codex", "drive": "goal", "loopx": "codex_app_ssh_goal"},
    "heartbeat": {"kind": "codex", "drive": "wake", "loopx": "generic_cli"},
}
_SH = """
mkdir -p /logs/artifacts; base=$THREAD; echo $base >>/logs/artifacts/threads
say() { THREAD=$base-$1; until ask "SOAK-sh-$1;" && [ "$status" = 200 ] && grep -q response.completed /tmp/answer; do sleep 0.5; done; }
for step in STEPS; do say $step; echo $step >>/logs/artifacts/ran; sleep PAUSE; done
"""


@dataclass(frozen=True)
class Cells:
    """``steps`` of work with ``pause_s`` of sleep in each; ``loopx``: LoopX's two arms as well."""

    steps: int = 5
    pause_s: float = 5.0
    loopx: bool = True

    def arms(self) -> dict[str, dict[str, Any]]:
        """As in the configuration."""
        work = _SH.replace("STEPS", " ".join(map(str, range(1, self.steps + 1)))).replace("PAUSE", str(self.pause_s))
        commands = {name: {**asking(work), "env": {"SOAK_ARM": name}} for name in COMMANDS}
        return {**commands, **CODEX, **(LOOPX if self.loopx else {})}

    def tasks(self, root: Path) -> list[Path]:
        """``one`` without a network, ``two`` with one."""
        count = f'n=$(sort -u /logs/artifacts/ran | wc -l); awk "BEGIN {{ print $n / {self.steps} }}" >/logs/verifier/reward.txt; sleep 1\n'
        return [
            make_task(root, name, instruction=f"SOAK-{name};\n", test=count, agent_s=AGENT_S, network=network)
            for name, network in ((ONE, "no-network"), (TWO, "public"))
        ]

    def script(self) -> Practice:
        """Every answer of a conversation costs a number of tokens of its own, so that accounts can be compared answer by answer."""
        ask, settle = ((rehearsals.HERE / "agents" / f"{name}.sh").read_text("utf-8") for name in ("ask", "settle"))

        def work(step: int) -> dict[str, Any]:
            run = f"mkdir -p /logs/artifacts; echo {step} >>/logs/artifacts/ran; sleep {self.pause_s}"
            return {"run": run, "fault": [STALL] if step % 2 == 0 else []}

        scripts: list[dict[str, Any]] = []
        for number, name in enumerate(TASKS, 1):
            steps: list[dict[str, Any]] = [{"run": ask}, *(work(step) for step in range(1, self.steps + 1)), {"run": settle}]
            if name == TWO:
                steps.insert(HALF + 1, {"say": "There is more to do."})
            steps = [{**step, "usage": _usage(10 * number + at)} for at, step in enumerate(steps)]
            scripts.append({"text": f"SOAK-{name};", "latest": rehearsals.QUOTA, "step": steps, "usage": _usage(10 * number + 9)})
        for step in range(1, self.steps + 1):
            said = {"say": "Go on.", "usage": _usage(100 + step), "fault": [STALL] if step % 2 == 0 else []}
            scripts.append({"text": f"SOAK-sh-{step};", "step": [said], "then": "repeat"})
        return Practice.model_validate({"script": scripts})

    def ran(self, task: str, arm: str) -> Sequence[str]:
        """The lines of ``artifacts/ran`` of an agent that came to its own end."""
        steps = HALF if (task, arm) == (TWO, "plain") else self.steps
        return [str(step) for step in range(1, steps + 1)]

    def reward(self, task: str, arm: str) -> float:
        return len(self.ran(task, arm)) / self.steps

    def commands(self, task: str, arm: str) -> int | None:
        """How many commands codex ran: asking, the work, settling.  None: an arm without codex."""
        if arm in COMMANDS:
            return None
        return len(self.ran(task, arm)) + (1 if (task, arm) == (TWO, "plain") else 2)

    def turns(self, task: str, arm: str) -> int | None:
        """How many of its turns completed.  None: an arm without codex."""
        if arm in COMMANDS:
            return None
        return 2 if task == TWO and arm != "plain" else 1


def _usage(number: int) -> dict[str, int]:
    return {"input": 10_000 + number, "cached": 9_000, "output": 100 + number, "reasoning": 50}
