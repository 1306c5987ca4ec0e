"""Contracts of the five arms, captured through the whole way: real codex, real LoopX, gateway process, practice provider, daemon.

:func:`captured` reads them from a campaign that came to its end.  ``python -m tests.support.contracts`` writes the records that ship with
the package anew (DOCKER_HOST names the engine): read the difference before it is committed, for that is what a review of them is.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marathond.agents.codex import config, contract
from marathond.agents.loopx import profile
from marathond.agents.loopx.goal import Goal
from marathond.agents.loopx.left_record import Left
from marathond.core.arms import arm_from_data
from marathond.core.model import Arm
from marathond.core.names import trial_label
from marathond.practice.firsts import first_requests
from tests.support.loopx_env import loopx_tree, loopx_wanted
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

MODELS: Mapping[contract.Surface, str] = {"direct": "gpt-5.5", "code": "gpt-6.2-sol"}
INSTRUCTION = "TASK-contract: do it.\n"
LEFT = "loopx-state"
SCRIPT = f"""[[script]]
text = "TASK-contract"
[[script.step]]
run = "echo one >/made; [ ! -d {profile.STATE} ] || cp -a {profile.STATE} /logs/agent/{LEFT}"
"""
"""The agent's first act keeps what it found of LoopX's state."""
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "codex", "drive": "turn"},
    "goal": {"kind": "codex", "drive": "goal"},
    "ssh-goal": {"kind": "codex", "drive": "goal", "loopx": "codex_app_ssh_goal"},
    "codex-cli": {"kind": "codex", "drive": "goal", "loopx": "codex_cli"},
    # The first wake is all that is looked at.
    "heartbeat": {"kind": "codex", "drive": "wake", "loopx": "generic_cli", "turns_at_most": 1},
}


@contextmanager
def contract_campaign(
    docker_host: str, folder: Path, surface: contract.Surface, arms: Mapping[str, Mapping[str, Any]] = ARMS
) -> Iterator[tuple[ModelRan, dict[str, dict[str, Any]]]]:
    """One task, run by all arms; the campaign at its end, and the contracts by arm."""
    task = make_task(folder, "contract", instruction=INSTRUCTION, environment='workdir = "/app"', agent_s=600.0)
    record = folder / "record"
    loopx_tree()
    overrides = {"codex.model": MODELS[surface], "loopx.python": str(loopx_wanted().python)}
    with model_campaign(docker_host, [task], arms, SCRIPT, record=record, overrides=overrides, patience_s=600.0) as ran:
        yield ran, captured(ran, record)


def rows(ran: ModelRan) -> dict[str, Arm]:
    """The arms as the ledger holds them."""
    return {name: arm_from_data(json.loads(data)) for name, data in ran.rig.sql("SELECT name, data_json FROM arm")}


def captured(ran: ModelRan, record: Path) -> dict[str, dict[str, Any]]:
    """The contract of each arm's trial of the task ``contract``."""
    (file,) = record.glob("*.jsonl")
    asked = first_requests(file)
    found = {}
    for name, arm in rows(ran).items():
        log = _log(ran, name)
        first = asked[log["thread"]["thread_id"]]
        request = {"path": first.path, "headers": first.headers, "body": first.body}
        loopx = None
        if "loopx" in log["prepared"]:
            loopx = Left(Goal.read(log["prepared"]["loopx"]), _files(ran, name))
        found[name] = contract.record(request, _config(arm, log), instruction=INSTRUCTION, loopx=loopx)
    return found


def _files(ran: ModelRan, arm: str) -> dict[str, bytes]:
    """Of LoopX's state as the agent found it."""
    (root,) = (ran.rig.root / "out").glob(f"*/{trial_label(ran.trial('contract', arm))}__*/agent/{LEFT}")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _log(ran: ModelRan, arm: str) -> dict[str, dict[str, Any]]:
    """The last entry of each kind."""
    sql = "SELECT kind, detail_json FROM agent_event WHERE trial_id = ? ORDER BY seq"
    return {kind: json.loads(detail) for kind, detail in ran.rig.sql(sql, ran.trial("contract", arm))}


def _config(arm: Arm, log: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The values of the trial's config.toml: made once more, the same bytes by the hash that was taken in the trial's folder at its end."""
    assert arm.codex is not None
    text = config.to_toml(config.config(arm.codex, log["prepared"]["base_url"], log["prepared"]["untrusted"]))
    assert log["config"] == {"sha256": config.sha256(text), "same": True}
    return tomllib.loads(text)


def write(docker_host: str) -> None:
    contract.FOLDER.mkdir(exist_ok=True)
    for surface in contract.SURFACES:
        with tempfile.TemporaryDirectory() as folder, contract_campaign(docker_host, Path(folder), surface) as (_, found):
            for name in contract.ARMS:
                contract.file_of(name, surface).write_text(contract.to_text(found[name]), "utf-8")
                print(contract.file_of(name, surface))


if __name__ == "__main__":
    write(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
