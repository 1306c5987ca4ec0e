"""Proxies that come from the engine itself: its own, and those that a runtime adds behind its back (fault b13)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.private_engine import PrivateEngine
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

CLEAN = "env | grep -qi proxy && r=0 || r=1\necho $r >/logs/verifier/reward.txt\n"
RUNTIME = """#!{python}
import json, os, pathlib, sys
if "create" in sys.argv and "--bundle" in sys.argv:
    config = pathlib.Path(sys.argv[sys.argv.index("--bundle") + 1]) / "config.json"
    made = json.loads(config.read_text())
    made["process"]["env"].append("HTTPS_PROXY=http://planted.invalid:9")
    config.write_text(json.dumps(made))
os.execvp("runc", ["runc", *sys.argv[1:]])
"""
NOP = {"n": {"kind": "nop"}}
"""An OCI runtime that adds a variable to every container, as those for special hardware do."""


async def test_b13_the_engine_s_own_proxy_stays_with_it_and_one_that_its_runtime_adds_is_seen(
    own_engine: PrivateEngine, tmp_path: Path
) -> None:
    own_engine.stop()
    own_engine.environ |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"), "http://127.0.0.1:9")
    own_engine.start()
    task = make_task(tmp_path, "clean", test=CLEAN)
    async with Rig(own_engine.url, tasks=[task], arms=NOP) as rig:
        await rig.until_done()
        assert rig.sql("SELECT state, reward FROM v_trial") == [("scored", 1.0)], rig.story()
    runtime = tmp_path / "runtime"
    runtime.write_text(RUNTIME.format(python=sys.executable))
    runtime.chmod(0o755)
    own_engine.stop()
    own_engine.arguments += ["--add-runtime", f"planted={runtime}", "--default-runtime", "planted"]
    own_engine.start()
    async with Rig(own_engine.url, tasks=[task], arms=NOP, overrides={"admission.passes": 1}) as rig:
        await rig.until_done()
        ((code, reason),) = rig.sql("SELECT code, reason FROM void")
        assert code == "environment_dirty" and "HTTPS_PROXY" in reason, rig.story()
        assert rig.sql("SELECT * FROM trial_agent") == []
