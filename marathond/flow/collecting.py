"""What is kept of an agent's run: copies of what it left, its receipt, its trajectory.

Owns when that happens and that it holds nobody up: right after the agent's death, and once more before the export where that failed or
never came (a void, a daemon that was killed).  What cannot be kept is named.  Must not know what a session or a database is.

What the agent left is copied first, to a folder that no container reaches, by the rules for hostile folders (tasks/artifacts.py); only the
copies are read.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from anyio import from_thread, to_thread

from marathond.agents.registry import AGENTS
from marathond.core.arms import arm_from_data
from marathond.core.errors import StageError
from marathond.core.model import Arm
from marathond.core.names import EndedBy, trial_label
from marathond.flow import ways
from marathond.flow.agentlog import LedgerLog
from marathond.flow.world import World, log
from marathond.ledger.verbs import agentlog, findings, show, spent, usage
from marathond.ledger.verbs.show import TrialShown
from marathond.ledger.verbs.spent import AgentSpent
from marathond.ports.agent import Finished, Keep, Kept, Receipt, ReceiptInvalid, Remark, RunDir
from marathond.staging import manifest
from marathond.tasks.artifacts import export_tree, read_bounded
from marathond.tasks.removal import remove_tree

COLLECT_S = 300.0
SETTLE_S, SETTLE_POLL_S = 10.0, 0.2
"""For the gateway to tell the ends of requests that the agent's death or a closed listener cut."""
INSTRUCTION_BYTES_AT_MOST = 16 << 20
RECEIPT = "receipt.json"


async def collect(world: World, trial_id: int) -> None:
    """Once the agent is dead or its container gone; again is fine, and the last receipt counts.  Raises nothing but cancellation."""
    subject, began_ms = trial_label(trial_id), world.clock.mono_ms()
    try:
        with anyio.fail_after(COLLECT_S):
            receipt = await _collected(world, trial_id)
    except Exception as error:  # noqa: BLE001 - whatever an agent left, and whatever we make of it: the trial's score does not wait for it
        code = "receipt_invalid" if isinstance(error, ReceiptInvalid) else "not_collected"
        log.error(code, trial=subject, error=str(error), exc_info=error)
        await _tell(world, trial_id, Remark(code, f"{type(error).__name__}: {error}"[:2000], "error"))
        return
    if receipt is None:
        return
    log.info("collected", trial=subject, ms=world.clock.mono_ms() - began_ms)
    for remark in receipt.remarks:
        await _tell(world, trial_id, remark)
    for code in ("receipt_invalid", "not_collected"):  # of an earlier try
        await world.ledger.write(findings.close_finding, code=code, subject=subject, now_ms=world.clock.wall_ms())


async def collect_if_missing(world: World, trial_id: int) -> None:
    """Before the export: for trials that came to rest without (voided, or their daemon was killed)."""
    shown = await world.ledger.read(show.show, trial_id)
    agent = AGENTS[arm_from_data(shown.context.arm_data).kind]
    if agent.keeps and shown.context.agent is not None and await world.ledger.read(agentlog.receipt, trial_id) is None:
        await collect(world, trial_id)


async def _collected(world: World, trial_id: int) -> Receipt | None:
    shown = await world.ledger.read(show.show, trial_id)
    arm = arm_from_data(shown.context.arm_data)
    agent, run = AGENTS[arm.kind], world.run_dir(trial_id)
    if not agent.keeps or shown.context.agent is None:
        return None
    fixed = world.fixed
    kept = await to_thread.run_sync(
        functools.partial(
            copy_kept,
            run,
            agent.keeps,
            max_bytes=fixed.max_artifact_bytes,
            max_files=fixed.max_artifact_files,
            checkpoint=from_thread.check_cancelled,
        )
    )
    sums = await _settled(world, trial_id) if fixed.gateway is not None else None
    held = await world.ledger.read(usage.held_ms, trial_id, now_mono_ms=world.clock.mono_ms())
    text = await to_thread.run_sync(_instruction, run)
    tree = await to_thread.run_sync(_tree_sha256, world, arm)
    finished = _finished(world, shown, arm, kept, sums, held, text, tree)
    receipt = await agent.collect(finished)
    if receipt is not None:
        now_ms = world.clock.wall_ms()
        await world.ledger.write(agentlog.keep_receipt, trial_id, schema=receipt.schema, data=receipt.data, now_ms=now_ms)
    return receipt


async def _settled(world: World, trial_id: int) -> AgentSpent:
    """What the gateway counted, once it has told all ends; after SETTLE_S with what is still open."""
    await ways.close_ways(world, trial_id)
    until = world.clock.mono_ms() + int(SETTLE_S * 1000)
    while True:
        if world.caught_up is not None:
            await world.caught_up()
        sums = await world.ledger.read(spent.agent_spent, trial_id)
        if not sums.open or world.clock.mono_ms() >= until:
            return sums
        await anyio.sleep(SETTLE_POLL_S)


def _finished(
    world: World, shown: TrialShown, arm: Arm, kept: list[Kept], sums: AgentSpent | None, held_ms: int, instruction: str, tree: str
) -> Finished:
    context, row = shown.context, shown.context.agent
    assert row is not None
    void = next((v for v in shown.voids if v.undone_at_ms is None), None)
    return Finished(
        run_dir=world.run_dir(context.trial_id),
        arm=arm,
        log=LedgerLog(world, context.trial_id),
        instruction=instruction,
        trial=trial_label(context.trial_id),
        campaign=context.campaign,
        task=context.task,
        replicate=context.replicate,
        attempt=context.attempt,
        gates={
            fact.name.removeprefix("gate "): fact.value for fact in shown.facts if fact.name.startswith("gate ") and fact.origin == "arm"
        },
        kept=kept,
        package_sha256=tree,
        started_at_ms=row.started_at_ms,
        ended_at_ms=None if row.ended_mono_ms is None else row.ended_at_ms,  # else it is only when that was found
        ran_ms=None if row.ended_mono_ms is None else row.ended_mono_ms - row.started_mono_ms,
        limit_ms=row.limit_ms,
        limit_origin=row.limit_origin,
        held_ms=held_ms,
        ended_by=None if row.ended_by is None else EndedBy(row.ended_by),
        exit_code=row.exit_code,
        exit_source=row.exit_source or "",
        void=None if void is None else (void.code, void.reason),
        spent=None if sums is None else sums.models,
        answers=0 if sums is None else sums.answers,
        in_flight=0 if sums is None else sums.open,
    )


def copy_kept(
    run: RunDir, keeps: Sequence[Keep], *, max_bytes: int, max_files: int, checkpoint: Callable[[], None] = lambda: None
) -> list[Kept]:
    """Replace ``run.kept`` with copies of what is worth keeping; each part has bounds of its own.  Blocking.

    What does not fit a pattern is passed over in silence: it is not worth keeping.

    :raises ArtifactError, OSError: our own folder cannot be written.
    """
    if run.kept.exists():
        remove_tree(run.kept)
    run.kept.mkdir(mode=0o700)
    kept: list[Kept] = []
    for keep in keeps:
        found = export_tree(
            run.root / keep.source,
            run.kept / keep.target,
            max_bytes=max_bytes,
            max_files=max_files,
            checkpoint=checkpoint,
            wanted=functools.partial(_wanted, keep),
        )
        kept += [Kept(f"{keep.target}/{each.path}".rstrip("/"), each.size_bytes, each.skipped) for each in found]
    return kept


def _wanted(keep: Keep, parts: tuple[str, ...], kind: str) -> bool:
    if kind == "folder":
        return keep.deep
    return (keep.deep or len(parts) == 1) and any(fnmatch.fnmatchcase(parts[-1], name) for name in keep.names)


def _instruction(run: RunDir) -> str:
    data = read_bounded(run.inputs, "instruction.md", INSTRUCTION_BYTES_AT_MOST)
    return "" if data is None else data.decode("utf-8", "replace")


def _tree_sha256(world: World, arm: Arm) -> str:
    tree: Path | None = None if arm.codex is None else world.fixed.staged.get(arm.codex.package)
    if tree is None:
        return ""
    try:
        return manifest.read(tree.parent).tree_sha256
    except StageError:
        return ""


async def _tell(world: World, trial_id: int, remark: Remark) -> None:
    await world.ledger.write(
        findings.raise_finding,
        code=remark.code,
        severity=remark.severity,
        subject=trial_label(trial_id),
        detail=remark.detail,
        campaign_id=world.fixed.campaign_id,
        now_ms=world.clock.wall_ms(),
    )
