"""What is made of what a codex run left: the receipt and the trajectory, from copies that no container reaches.

Owns which files of CODEX_HOME are worth keeping, and the order of the work.  Must not know the ledger, nor what decides a trial.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from marathond.agents.codex import account, atif, databases, gates, rollout, summary, traffic
from marathond.agents.codex import config as files
from marathond.agents.codex.account import Account
from marathond.agents.codex.receipt import SCHEMA, validated
from marathond.agents.codex.rollout import Rollout
from marathond.agents.codex.traffic import Traffic
from marathond.agents.codex.transcript import NAME as MESSAGES
from marathond.agents.codex.treatment import Told
from marathond.agents.loopx import left, profile
from marathond.ports.agent import Finished, Keep, LogEntry, Receipt, RunDir

SESSIONS, HOME, LOOPX = "sessions", "codex-home", "loopx"
KEEPS: Sequence[Keep] = (
    Keep("home/sessions", SESSIONS, ("*.jsonl",), deep=True),
    Keep("home", HOME, ("config.toml", "*.sqlite", "*.sqlite-wal", "*.sqlite-shm")),
    Keep("harness/state", LOOPX, ("*.json", "*.jsonl", "*.md", "*.sqlite", "*.sqlite-wal", "*.sqlite-shm"), deep=True),
)
"""Of LoopX its registry, its runtime and its goal, without its locks, where they lie outside the task's tree.

No ``tmp/`` (it holds links out of the folder), and nothing that could hold a key."""
TRAJECTORY, RECEIPT = "trajectory.json", "receipt.json"
CONFIG_BEFORE = "config.before.toml"
"""Kept where the run changed config.toml."""
SCRATCH = "looked-into"
_LOG_KIND = "config"


@dataclass(frozen=True, slots=True)
class Threads:
    """``main`` None: its rollout was not left, or it never began.  ``passed``: files that were passed over, and why."""

    main: Rollout | None
    others: tuple[Rollout, ...]
    passed: tuple[str, ...]


async def collect(run: Finished) -> Receipt:
    """:raises ReceiptInvalid: what the log holds, or the receipt, has another shape than it must have.  :raises OSError: our own folder."""
    entries = list(await run.log.entries())
    receipt = await to_thread.run_sync(_collected, run, entries)
    before, after = receipt.data["given"]["config_before"], receipt.data["given"]["config_after"]
    if before is not None and not any(entry.kind == _LOG_KIND for entry in entries):
        await run.log.append(_LOG_KIND, {"sha256": after, "same": after == before})
    return receipt


def _collected(run: Finished, entries: Sequence[LogEntry]) -> Receipt:
    added = account.add_up(entries)
    _messages(run.run_dir)
    heard = traffic.count(run.run_dir.root / MESSAGES)
    threads = _threads(run.run_dir.kept / SESSIONS, added.thread_id)
    config_after = gates.config_hash(run.run_dir.home)
    if added.config_sha256 and config_after != added.config_sha256:
        _config_before(run, added)
    looked = databases.look(run.run_dir.kept / HOME, run.run_dir.root / SCRATCH)
    told = _told(run, added, heard)
    made, source = _trajectory(run, added, threads)
    if made.document is not None:
        _write(run.run_dir.kept / TRAJECTORY, made.document)
    main, others, passed = threads.main, threads.others, threads.passed
    data, remarks = summary.receipt(run, added, heard, main, others, passed, config_after, looked, made, source, told)
    data = validated(data).model_dump(mode="json")
    _write(run.run_dir.kept / RECEIPT, data)
    return Receipt(SCHEMA, data, remarks)


def _told(run: Finished, added: Account, heard: Traffic) -> Told:
    """Of an arm with LoopX; of any other nothing is looked for."""
    if run.arm.codex is None or run.arm.codex.loopx is None:
        return summary.NOTHING_TOLD
    path, goal = run.run_dir.root / MESSAGES, added.loopx.set_up
    commands, sent = traffic.commands(path, added.thread_id), traffic.sent(path)
    runtime = None if goal is None else profile.below_state(goal.state.runtime)
    if goal is None or runtime is None:
        return Told(commands, sent, heard.whole)
    kept = run.run_dir.kept / LOOPX
    state_file = profile.below_state(goal.state.state_file)
    return Told(
        commands,
        sent,
        heard.whole,
        left.events(kept / runtime / "goals" / goal.goal_id / left.EVENTS),
        None if state_file is None else left.todos_in(kept / state_file),
        databases.look(kept / runtime / left.DATABASES, run.run_dir.root / SCRATCH),
    )


def _messages(run: RunDir) -> None:
    """The transcript beside the rest: the same bytes, not a copy."""
    with suppress(FileNotFoundError, FileExistsError):
        os.link(run.root / MESSAGES, run.kept / MESSAGES)


def _threads(folder: Path, thread_id: str) -> Threads:
    made, passed = rollout.read_all(folder)
    main = next((each for each in made if each.thread_id == thread_id), None)
    return Threads(main, tuple(each for each in made if each is not main), tuple(passed))


def _config_before(run: Finished, added: Account) -> None:
    """What the run was begun with, made again from what it was made from."""
    assert run.arm.codex is not None
    text = files.to_toml(files.config(run.arm.codex, added.base_url, added.untrusted))
    if files.sha256(text) == added.config_sha256:
        folder = run.run_dir.kept / HOME
        folder.mkdir(exist_ok=True)
        (folder / CONFIG_BEFORE).write_text(text, encoding="utf-8")


def _trajectory(run: Finished, added: Account, threads: Threads) -> tuple[atif.Made, str]:
    """And what it was made from."""
    codex = run.arm.codex
    assert codex is not None
    about = atif.About(
        name=run.arm.name,
        version=codex.version,
        model=added.model or codex.model,
        effort=added.effort or codex.effort,
        session_id=run.trial,
        cost_usd=summary.cost_usd(run.spent) if run.spent else None,
    )
    if threads.main is not None:
        return atif.trajectory(about, threads.main, threads.others), "rollouts"
    if not added.thread_id:
        return atif.Made(None), "rollouts"
    return atif.from_items(about, added.thread_id, traffic.items(run.run_dir.root / MESSAGES, added.thread_id)), "app-server"


def _write(path: Path, document: object) -> None:
    """ASCII only, so that no text from an agent can steer the terminal in which somebody reads the file."""
    aside = path.with_name(f"{path.name}.part")
    with aside.open("w", encoding="ascii") as stream:
        json.dump(document, stream, indent=1, ensure_ascii=True, allow_nan=False)
        stream.write("\n")
    shutil.move(aside, path)
