"""``marathonctl show TRIAL``: everything the ledger knows about one trial, and where each thing came from.

Owns the layout of one trial.  Must not judge: flags, reviews and voids are shown as they were recorded.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.cli import show_import, show_loopx, show_model, show_scores
from marathond.cli.output import Column, Screen, flat, say, screen, table
from marathond.core.detached import WRAPPER
from marathond.core.endtime import WORDS
from marathond.core.names import REACHED_INTO, Origin, block_label, cell_label, trial_label
from marathond.core.text import clean, fields, plural, span, text_of, when
from marathond.ledger.verbs.context import AgentRow
from marathond.ledger.verbs.ordering import BlockBasis
from marathond.ledger.verbs.show import TrialShown, show
from marathond.ledger.verbs.turns import TurnRow
from marathond.service.exits import CallFailed
from marathond.service.picture.kept_words import archive_words, pruned_words, standing

ARTIFACTS_SHOWN = 40
VALUE_MAX = 400

OUR_WRAPPER = clean(f"sh -c {WRAPPER}")[:40]
"""How the command line begins that agents are started with; its script says nothing to a person."""
EXIT_SOURCES = {"exec": "the engine's word", "file": "from a file the container could write"}
"""Who says with which code an agent ended."""


def find(connection: sqlite3.Connection, trial_id: int) -> TrialShown:
    """:raises CallFailed: there is no such trial; with the last one there is."""
    if connection.execute("SELECT 1 FROM trial WHERE trial_id = ?", (trial_id,)).fetchone() is None:
        last = connection.execute("SELECT max(trial_id) FROM trial").fetchone()[0]
        hint = f"last is {trial_label(last)}" if last else "it has none yet"
        raise CallFailed(f"no trial {trial_label(trial_id)} in this ledger ({hint})")
    return show(connection, trial_id, now_mono_ms=time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000)


@dataclass(frozen=True, slots=True)
class Now:
    """:param loopx_now: LoopX's todos as they are now, of a live trial with LoopX; else null."""

    loopx_now: show_loopx.LiveTodos | None


def as_json(trial: TrialShown, state_dir: Path) -> dict[str, Any]:
    """The trial's fields and :class:`Now`'s."""
    return flat(trial, Now(show_loopx.live_todos(trial, state_dir)))


def print_trial(trial: TrialShown, state_dir: Path, now_ms: int) -> None:
    for line in lines(trial, state_dir, screen(), now_ms):
        say(line)


def lines(trial: TrialShown, state_dir: Path, where: Screen, now_ms: int) -> Iterator[str]:
    """The whole text, line by line."""
    sections = (
        *(_identity(trial), _timeline(trial, where, now_ms), _agent(trial), _facts(trial, where), _network(trial)),
        *(*show_model.sections(trial, where), show_loopx.section(trial, state_dir, where)),
        *(show_scores.section(trial.scores, trial.columns, where), _decisions(trial), _attempts(trial, where)),
        _files(trial, where, state_dir),
    )
    for section in sections:
        for line in section:
            yield where.fit(line)


def _identity(trial: TrialShown) -> Iterator[str]:
    x = trial.context
    yield f"{trial_label(x.trial_id)}  {x.state}   attempt {x.attempt} of {len(trial.attempts)}"
    yield f"  campaign {clean(x.campaign)}   task {clean(x.task)}   arm {clean(x.arm)}   replicate {x.replicate}"
    yield f"  cell {cell_label(x.cell_id)} ({trial.cell_state})   block {block_label(x.block_id)}"
    if trial.placed is not None:
        yield f"  {placed_words(trial.placed)}"
    if trial.imported is not None:
        yield from show_import.section(trial.imported)
        return
    yield f"  task digest {text_of(x.task_digest)}"
    if x.container is not None:
        gone = f", gone {when(x.container.gone_at_ms)}" if x.container.gone_at_ms else ""
        yield f"  image {clean(x.container.image_id)}"
        yield f"  container {clean(x.container.name)} {text_of(x.container.docker_id)} on {clean(x.container.engine)}{gone}"


def placed_words(placed: BlockBasis) -> str:
    """Why the block is where it is in its replicate."""
    limit = "no limit" if placed.limit_s is None else f"limit {span(round(placed.limit_s * 1000))}"
    took = "no trial of the task before" if placed.mean_s is None else f"{plural(placed.trials, 'trial')} before"
    took += f" ({placed.elsewhere} in other campaigns)" if placed.elsewhere else ""
    took += "" if placed.mean_s is None else f" took {span(round(placed.mean_s * 1000))} on the mean"
    half = ", shorter half first" if placed.short_first else ""
    return f"place {placed.place} of {placed.blocks} in replicate {placed.replicate}: {limit}; {took}{half}"


def _timeline(trial: TrialShown, where: Screen, now_ms: int) -> Iterator[str]:
    """When each phase began and how long it took; the last one of a live trial is still counting."""
    yield ""
    own = [(one.at_ms, (when(one.at_ms), REACHED_INTO, "", "", "", f"by {clean(one.author)}, {clean(one.said)}")) for one in trial.reached]
    rows = []
    for event, after in zip(trial.events, [*trial.events[1:], None], strict=True):
        resting = event.to_state in ("scored", "voided", "review")
        end_ms = after.at_ms if after is not None else None if resting else now_ms
        took = "" if end_ms is None or (resting and after is None) else span(end_ms - event.at_ms)
        row = (when(event.at_ms), event.event, event.to_state, took, f"run {event.run_id}", fields(event.detail))
        rows.append((event.at_ms, row))
    merged = [row for _, row in heapq.merge(rows, own, key=lambda row: row[0])]  # each in the ledger's own order, whatever the clock said
    columns = (Column("at"), Column("event"), Column("state"), Column("for", right=True), Column("daemon"), Column("detail", least=10))
    yield from table(columns, merged, where, indent="  ")


def _agent(trial: TrialShown) -> Iterator[str]:
    agent = trial.context.agent
    if agent is None:
        return
    yield ""
    yield f"  agent {_agent_limit(agent)}"
    if agent.ended_by is not None:
        took = span(agent.ended_mono_ms - agent.started_mono_ms) if agent.ended_mono_ms is not None else "a time that is not known"
        if words := WORDS[trial.time_source]:
            took = f"{took} ({words})"
        oom = ", out of memory" if agent.oom_killed else ""
        overrun = f", overran by {span(agent.overrun_ms)}" if agent.overrun_ms else ""
        yield f"  ended by {clean(agent.ended_by)} after {took}, {_exit_words(agent)}{oom}{overrun}"
        if agent.processes:
            yield "  processes alive at its end:"
            for process in agent.processes:
                fate, pid, argv = (process.get(key, "") for key in ("fate", "pid", "argv"))
                words = clean(argv, 200)
                yield f"    {clean(fate or 'unknown'):<7} {clean(pid)} {'sh (our own wrapper)' if words.startswith(OUR_WRAPPER) else words}"
    for run in trial.context.verifications:
        outcome = "running" if run.ended_at_ms is None else f"{clean(run.outcome)}, exit code {text_of(run.exit_code)}"
        took = f" after {span(run.ended_at_ms - run.started_at_ms)}" if run.ended_at_ms is not None else ""
        yield f"  verifier round {run.round}: {outcome}{took}; deadline {run.limit_ms / 1000:g} s: {clean(run.limit_origin)}"
    for turn in trial.turns:
        yield f"  verifier round {turn.round}: {_turn_words(turn, trial.context.state == 'verifying')}"


def _turn_words(turn: TurnRow, verifying: bool) -> str:
    """How long it waited, and what ran beside it."""
    if turn.granted_at_ms is None or turn.waited_ms is None:
        return f"waits for the verifier slot since {when(turn.asked_at_ms)}" if verifying and turn.ended_at_ms is None else "had no turn"
    beside = plural(turn.agents_beside or 0, "agent")
    alone = {"verifiers": f"alone among verifiers, {beside} running when it began", "everything": "alone, no agent running"}
    return f"waited {span(turn.waited_ms)} for its turn; {alone.get(turn.alone, 'beside others')}"


def _exit_words(agent: AgentRow) -> str:
    """A driven agent's end is its driver's word; the server that was stopped then has no exit code of any meaning."""
    if agent.exit_code is None:
        return "by its driver's word" if agent.exit_source == "driver" else "exit code unknown"
    return f"exit code {agent.exit_code} ({EXIT_SOURCES.get(agent.exit_source or '', 'source unknown')})"


def _agent_limit(agent: AgentRow) -> str:
    """Which deadline applied, and which one did not."""
    if agent.limit_ms is None:
        return "no deadline"
    own = f" {agent.limit_ms / 1000:g} s" if agent.limit_origin == Origin.OWN else ""
    loser = f"; {clean(agent.limit_loser)} did not apply" if agent.limit_loser else ""
    return f"deadline {agent.limit_ms / 1000:g} s: {clean(agent.limit_origin)}{own}{loser}"


def _facts(trial: TrialShown, where: Screen) -> Iterator[str]:
    """What really applied: network policy per phase, limits, gates passed."""
    if trial.facts:
        yield ""
        rows = [(clean(fact.name), clean(fact.value, VALUE_MAX), clean(fact.origin)) for fact in trial.facts]
        yield from table((Column("in effect"), Column("value", least=12, wrap=True), Column("from", least=10)), rows, where, indent="  ")


def _network(trial: TrialShown) -> Iterator[str]:
    if (lease := trial.context.lease) is not None:
        yield f"  network {clean(lease.network_name)} {text_of(lease.subnet)} {text_of(lease.network_id)}"


def _decisions(trial: TrialShown) -> Iterator[str]:
    for review in trial.reviews:
        yield ""
        yield f"  review {clean(review.code)}: {clean(review.detail, VALUE_MAX)} (since {when(review.opened_at_ms)})"
        if review.decision:
            yield f"    {clean(review.decision)} by {clean(review.author)} at {when(review.decided_at_ms)}: {text_of(review.reason)}"
        else:
            yield f"    both sides of the evidence: marathonctl review {trial_label(trial.context.trial_id)}"
    for void in trial.voids:
        known = "score was known" if void.score_was_known else "score unknown"
        yield ""
        yield f"  void {clean(void.code)} by {clean(void.author)} at {when(void.at_ms)}: {clean(void.reason, VALUE_MAX)}"
        yield f"    was {clean(void.from_state)}, {known}, batch {clean(void.batch)}"
        for key, value in void.evidence.items():
            yield f"    {clean(key)}: {clean(value, VALUE_MAX)}"
        if void.undone_by:
            yield f"    undone by {clean(void.undone_by)} at {when(void.undone_at_ms)}: {text_of(void.undone_reason)}"
    for finding in trial.findings:
        yield ""
        closed = f", closed {when(finding.closed_at_ms)}" if finding.closed_at_ms else ""
        yield f"  finding {clean(finding.code)} ({finding.severity}): {clean(finding.detail, VALUE_MAX)}{closed}"


def _attempts(trial: TrialShown, where: Screen) -> Iterator[str]:
    if len(trial.attempts) > 1:
        yield ""
        rows = [
            (str(one.attempt), trial_label(one.trial_id), one.state, text_of(one.void_code), text_of(one.reward), when(one.created_at_ms))
            for one in trial.attempts
        ]
        columns = (
            Column("attempt", right=True),
            Column("trial"),
            Column("state"),
            Column("void"),
            Column("reward", right=True),
            Column("at"),
        )
        yield from table(columns, rows, where, indent="  ")


def _files(trial: TrialShown, where: Screen, state_dir: Path) -> Iterator[str]:
    yield ""
    if trial.imported is not None:
        yield "  its files stay where they were read from; nothing of them was copied"
        return
    if trial.folder is None:
        yield f"  artifacts not exported yet; run directory {state_dir / 'r' / trial_label(trial.context.trial_id)}"
        return
    archive, pruned = standing(trial.archives), next((row for row in trial.prunes if row.kind == "artifacts"), None)
    if pruned is not None:
        yield f"  {pruned_words(pruned, archive)}"
    else:
        yield f"  artifacts in {clean(Path(trial.context.out_dir) / trial.folder)} ({plural(len(trial.artifacts), 'file')})"
    if archive is not None:
        yield f"  {archive_words(archive)}"
    rows = [
        (clean(one.path), str(one.size_bytes), clean(one.sha256)[:16] if one.sha256 else f"left out: {clean(one.why)}")
        for one in trial.artifacts[:ARTIFACTS_SHOWN]
    ]
    if rows:
        yield from table((Column("file", least=16), Column("bytes", right=True), Column("sha256", least=16)), rows, where, indent="  ")
    if len(trial.artifacts) > ARTIFACTS_SHOWN:
        yield f"  … {len(trial.artifacts) - ARTIFACTS_SHOWN} more (--json shows all)"
