"""The demo's practice script: the steps of practice.toml, and around each task's what an agent owes LoopX where LoopX drives it.

Owns that all arms play the same steps: no script names an arm.  What to ask LoopX is taken from the goal's objective or the wake's message;
where neither holds a quota call, asking and settling do nothing.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import tomli_w

HERE = Path(__file__).resolve().parent
SCRIPT = HERE / "practice.toml"
QUOTA = r"(?P<quota>(?:LOOPX_TURN=\S+\n)?/opt/lxprofile/bin/loopx [^`\n]*quota should-run[^`\n]*)"
SMALL = {"input": 10_500, "cached": 9_900, "output": 140, "reasoning": 40}


def rehearsals() -> str:
    """As TOML, for ``marathond practice --script``."""
    data = tomllib.loads(SCRIPT.read_text(encoding="utf-8"))
    ask, settle = ((HERE / "agents" / f"{name}.sh").read_text(encoding="utf-8") for name in ("ask", "settle"))
    for script in data["script"]:
        script["latest"] = QUOTA
        script["step"] = [{"run": ask, "usage": SMALL}, *script["step"], {"run": settle, "usage": SMALL}]
    return tomli_w.dumps(data)
