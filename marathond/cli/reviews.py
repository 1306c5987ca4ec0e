"""``marathonctl review``: doubtful trials, as a list and one by one with the evidence of both sides.

Owns the layout: what the verifier said beside what our own side saw, and what each decision would do.  Must not decide, and must not
judge: evidence is shown as it was kept, and what the ledger has learnt since stands beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from marathond.cli.output import Column, Screen, display_width, flat, print_json, say, table, wrapped
from marathond.core import ourside
from marathond.core.classify import times
from marathond.core.errors import ArtifactError
from marathond.core.names import AgentKind, trial_label
from marathond.core.ourside import Alike
from marathond.core.text import clean, number, plural, span, text_of
from marathond.ledger.verbs import evidence as ledger_evidence
from marathond.ledger.verbs.as_read import row_as_read
from marathond.ledger.verbs.context import VerificationRow
from marathond.ledger.verbs.findings import FindingRow
from marathond.ledger.verbs.show import ReviewRow, TrialShown, show
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.exits import CallFailed
from marathond.service.picture.reader import check_trial

DETAIL_MAX, LINE_MAX = 300, 160
TAIL_BYTES, TAIL_LINES = 16 << 10, 12
OUTPUT = "verifier/test-stdout.txt"
BESIDE = 130
"""Columns from which on the two sides stand beside each other."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """An open review.  ``reward``: as it was read; None: nobody could."""

    trial_id: int
    campaign: str
    task: str
    arm: str
    replicate: int
    code: str
    detail: str
    opened_at_ms: int
    reward: float | None


def doubts(c: sqlite3.Connection, campaign_id: int | None) -> list[Doubt]:
    """Open reviews, oldest first."""
    rows = c.execute(
        """SELECT review.trial_id, campaign.name, task.name, arm.name, cell.replicate, review.code, review.detail, opened_at_ms,
               known.reward
           FROM review JOIN trial ON trial.trial_id = review.trial_id AND trial.state = 'review' JOIN cell ON cell.cell_id = trial.cell_id
               JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
               JOIN campaign ON campaign.campaign_id = cell.campaign_id JOIN known_reward AS known ON known.trial_id = trial.trial_id
           WHERE decided_at_ms IS NULL AND (?1 IS NULL OR cell.campaign_id = ?1) ORDER BY review_id""",
        (campaign_id,),
    )
    return [Doubt(*row) for row in rows.fetchall()]


@dataclass(frozen=True, slots=True)
class Age:
    """:param age_ms: since the review was opened."""

    age_ms: int


def show_doubts(rows: Sequence[Doubt], where: Screen, now_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json([flat(row, Age(now_ms - row.opened_at_ms)) for row in rows])
        return
    if not rows:
        say("nothing to review")
        return
    columns = [
        Column("trial"),
        Column("task", least=12),
        Column("arm", least=8),
        Column("why"),
        Column("for", right=True),
        Column("reward", right=True),
    ]
    body = [
        (
            trial_label(row.trial_id),
            clean(row.task),
            clean(row.arm),
            clean(row.code),
            span(now_ms - row.opened_at_ms),
            number(row.reward),
            clean(row.detail, DETAIL_MAX),
        )
        for row in rows
    ]
    if where.width is None:
        for line in table([*columns, Column("detail")], body, where):
            say(line)
    else:  # beside all that there is no room for what a person must read
        head, *lines = table(columns, [row[:-1] for row in body], where)
        say(head)
        for line, row in zip(lines, body, strict=True):
            say(line)
            for part in wrapped(f"    {row[-1]}", where):
                say(part)
    say("evidence: marathonctl review TRIAL")
    say("decide:   the same with --accept [--reward R] or --void, and --reason …")


# ── one of them ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Case:
    """A review with everything that bears on it.  ``alike``: how other trials of the task stand by now.  ``mates``: standing trials of the
    same block as (trial, arm, state).  ``output``: last lines of the verifier's; ``output_from``: where they lie, or why they are not to
    be had."""

    trial: TrialShown
    review: ReviewRow
    read: ScoreRow | None
    alike: Alike
    mates: tuple[tuple[int, str, str], ...]
    disks: tuple[str, ...]
    output: tuple[str, ...]
    output_from: str
    oracle: bool = False
    """It is a trial of the task's own solution."""

    @property
    def known_reward(self) -> float | None:
        if self.read is not None:
            return self.read.reward
        told = self.review.evidence.get("reward")
        return float(told) if isinstance(told, int | float) and not isinstance(told, bool) else None


def find(c: sqlite3.Connection, trial_id: int, state_dir: Path) -> Case:
    """:raises CallFailed: no such trial, or nothing of it was ever in review."""
    check_trial(c, trial_id)
    trial = show(c, trial_id)
    if not trial.reviews:
        raise CallFailed(f"{trial_label(trial_id)} is {trial.context.state}, and was never in review")
    mates = c.execute(
        """SELECT trial.trial_id, arm.name, trial.state FROM cell JOIN trial USING (cell_id) JOIN arm ON arm.arm_id = trial.arm_id
           WHERE block_id = ? AND trial.trial_id <> ? AND trial.state <> 'voided' ORDER BY arm.position""",
        (trial.context.block_id, trial_id),
    ).fetchall()
    runs = trial.context.verifications
    disks = ledger_evidence.disks_low(c, since_ms=runs[-1].started_at_ms) if runs else ()
    output, place = _output(trial, state_dir)
    others = ourside.alike(ledger_evidence.other_trials(c, trial_id))
    review = trial.reviews[-1]
    kind = c.execute("SELECT kind FROM arm WHERE arm_id = ?", (trial.context.arm_id,)).fetchone()[0]
    beside = tuple((r[0], r[1], r[2]) for r in mates)
    return Case(trial, review, row_as_read(review.evidence), others, beside, disks, output, place, kind == AgentKind.ORACLE.value)


def _output(trial: TrialShown, state_dir: Path) -> tuple[tuple[str, ...], str]:
    from marathond.tasks.artifacts import read_ends

    label = trial_label(trial.context.trial_id)
    if trial.folder is not None:
        root, relative = Path(trial.context.out_dir) / trial.folder, OUTPUT
    else:
        root, relative = state_dir / "r" / label / "logs", OUTPUT
    try:
        data = read_ends(root, relative, head=0, tail=TAIL_BYTES)
    except ArtifactError as error:
        return (), f"cannot be read: {error}"
    if data is None:
        return (), f"there is no {clean(root / relative)}"
    lines = [clean(line, LINE_MAX) for line in data.decode("utf-8", "replace").splitlines()]
    return tuple([line for line in lines if line][-TAIL_LINES:]), str(root / relative)


@dataclass(frozen=True, slots=True)
class Mate:
    """Another trial of the same block, that stands."""

    trial: str
    arm: str
    state: str


@dataclass(frozen=True, slots=True)
class CaseShown:
    """A review with its evidence, without the trial's whole story, which ``show --json`` has.

    :param age_ms: since the review was opened.
    :param read: the score as it was read; null: nobody could read one.
    :param known_reward: what is known of its reward; null: nothing.
    :param others_now: how other trials of the task stand by now.
    :param disks_low: filesystems below their floor while the verifier ran.
    :param output: the last lines of the verifier's output.
    :param output_from: where they lie, or why they are not to be had.
    """

    trial: str
    task: str
    arm: str
    replicate: int
    state: str
    review: ReviewRow
    age_ms: int
    read: ScoreRow | None
    known_reward: float | None
    verifications: Sequence[VerificationRow]
    others_now: Alike
    block: Sequence[Mate]
    disks_low: Sequence[str]
    findings: Sequence[FindingRow]
    output: Sequence[str]
    output_from: str


def as_json(case: Case, now_ms: int) -> CaseShown:
    """The case as it is printed for a program."""
    x = case.trial.context
    return CaseShown(
        trial=trial_label(x.trial_id),
        task=x.task,
        arm=x.arm,
        replicate=x.replicate,
        state=x.state,
        review=case.review,
        age_ms=now_ms - case.review.opened_at_ms,
        read=case.read,
        known_reward=case.known_reward,
        verifications=x.verifications,
        others_now=case.alike,
        block=[Mate(trial_label(trial), arm, state) for trial, arm, state in case.mates],
        disks_low=case.disks,
        findings=case.trial.findings,
        output=case.output,
        output_from=case.output_from,
    )


def print_case(case: Case, where: Screen, now_ms: int) -> None:
    x, review = case.trial.context, case.review
    waits = f"   for {span(now_ms - review.opened_at_ms)}"
    decided = f"   {clean(review.decision)} by {clean(review.author)}" if review.decision else waits
    say(where.fit(f"{trial_label(x.trial_id)}  {x.state}   {where.paint(clean(review.code), 'yellow')}{decided}"))
    for text in (
        f"  task {clean(x.task)}   arm {clean(x.arm)}   replicate {x.replicate}   attempt {x.attempt} of {len(case.trial.attempts)}",
        f"  {clean(review.detail, 2 * DETAIL_MAX)}",
    ):
        for line in wrapped(text, where):
            say(line)
    say()
    _sides(list(_verifier(case)), list(_ours(case)), where)
    say()
    if case.output:
        say(where.paint("  last lines of its output", "bold"))
        for line in case.output:
            say(where.fit(f"  | {line}"))
    for line in _entry("from" if case.output else "its output", case.output_from, 14, where):
        say(line)
    say()
    for key, text in _decisions(case):
        for line in _entry(key, text, 22, where):
            say(line)


Entry = tuple[str, str]


def _verifier(case: Case) -> Iterator[Entry]:
    """What the verifier said."""
    told: Mapping[str, Any] = case.review.evidence
    yield "the verifier said", ""
    for run in case.trial.context.verifications:
        took = "" if run.ended_at_ms is None else f" after {span(run.ended_at_ms - run.started_at_ms)}"
        code = "" if run.exit_code is None else f", exit code {run.exit_code}"
        yield f"round {run.round}", f"{clean(run.outcome or 'running')}{code}{took}, of {run.limit_ms / 1000:g} s"
    if not case.trial.context.verifications:
        yield "rounds", "it never ran"
    if (row := case.read) is not None:
        rest = f", tests {row.tests_passed}/{text_of(row.tests_total)}" if row.tests_passed is not None else ""
        partial = f", partial {number(row.partial, 3)}" if row.partial is not None else ""
        yield "read", f"reward {row.reward:g} from {clean(row.reward_source)}{partial}{rest}"
    elif case.known_reward is not None:
        yield "read", f"reward {case.known_reward:g}"
    else:
        yield "read", "no reward that anybody could read"
    for refusal in _list(told, "refusals"):
        yield "refused", clean(refusal, LINE_MAX)
    flags = [clean(flag) for flag in (case.read.flags if case.read is not None else _list(told, "flags"))]
    yield "flags", ", ".join(flag for flag in flags if flag != "accepted_as_read") or "none"
    for word in _list(told, "log"):
        if isinstance(word, Mapping):
            yield f"log: {clean(word.get('code', ''))}", clean(word.get("line", ""), LINE_MAX)
    if "log" in told and not told["log"]:
        yield "log", "nothing that may be the infrastructure's"


def _ours(case: Case) -> Iterator[Entry]:
    """What our own side saw: as it was kept with the review, and what the ledger says now."""
    told: Mapping[str, Any] = case.review.evidence
    yield "our side saw", ""
    judge = told.get("judge")
    if isinstance(judge, Mapping) and judge.get("asked"):
        why = f" ({', '.join(map(clean, judge.get('why', [])))})" if judge.get("why") else ""
        untold = f", {judge['untold']} with an end that nobody told" if judge.get("untold") else ""
        yield (
            "judge",
            f"{plural(judge['asked'], 'request')}: {judge.get('ours', 0)} failed for the provider's or our own reasons{why}, "
            f"{judge.get('own', 0)} for its own{untold}",
        )
    else:
        yield "judge", "asked nothing of a judge model" if isinstance(judge, Mapping) else "not looked at"
    yield "engine", _engine(told)
    yield "memory", _memory(case, told)
    disks = [*map(clean, _list(told, "disks"))] or [*map(clean, case.disks)]
    yield "disk", f"below the floor: {', '.join(disks)}" if disks else "none below its floor"
    yield "other trials", _others(case.alike.others, case.alike.failures, _list_keys(told, "others_alike"), "of this task")
    by_oracle = _others(
        case.alike.oracles, case.alike.oracle_failures, _list_keys(told, "oracles_alike"), "by the oracle", itself=case.oracle
    )
    yield "own solution", f"graded here, and this is how it ended; {by_oracle}" if case.oracle else by_oracle
    for key in ("overrun_ms", "limit_ms"):
        if isinstance(told.get(key), int):
            yield key.removesuffix("_ms"), span(told[key])
    for finding in case.trial.findings:
        yield "finding", f"{clean(finding.code)}: {clean(finding.detail, LINE_MAX)}"


def _engine(told: Mapping[str, Any]) -> str:
    if "container_alive" not in told:
        return "not looked at"
    parts = [] if told["container_alive"] else ["the container ended under the verifier"]
    parts += ["with its engine"] if told.get("engine_restarted") else []
    parts += [f"it was away {times(told['engine_breaks'])} while the verifier ran"] if told.get("engine_breaks") else []
    parts += [f"it ended the verifier {times(told['interrupted'])} before"] if told.get("interrupted") else []
    return ", ".join(parts) or "went on all the while, and so did the container"


def _memory(case: Case, told: Mapping[str, Any]) -> str:
    agent = case.trial.context.agent
    before = "; while the agent ran, too" if agent is not None and agent.oom_killed else ""
    if "oom_killed" not in told:
        return "not looked at"
    return (
        f"the engine killed a process of the container{before}" if told["oom_killed"] else f"no process was killed for want of it{before}"
    )


def _others(total: int, failures: Mapping[str, int], own: Sequence[str], what: str, *, itself: bool = False) -> str:
    """:param itself: the trial that is shown is one of them, and is not counted."""
    if not total:
        return f"no other {what} has come to an end" if itself else f"none {what} has come to an end"
    alike = [f"{clean(code)} in {failures.get(code, 0)}" for code in own]
    met = f"ended alike: {', '.join(alike)}" if alike else "nothing by which this one's ending could be compared"
    return f"{total} {'more ' if itself else ''}{what}; {met}"


def _decisions(case: Case) -> Iterator[Entry]:
    """What each word of a person would do."""
    label, reward = trial_label(case.trial.context.trial_id), case.known_reward
    if case.trial.context.state != "review":
        yield "decided", f"it is {case.trial.context.state} now; marathonctl show {label} has the whole story"
        return
    yield "what each decision does", ""
    if (row := case.read) is not None:
        rest = "all its columns" if row.partial is not None or row.tests_passed is not None else "nothing beside it"
        yield "--accept", f"counts as it was read: reward {row.reward:g}, {rest}; the cell is done"
    yield "--accept --reward R", "counts with your reward alone, without partial and tests: a person's word, never graded again"
    known = f"a post-score void, for reward {reward:g} is known, and reported as one" if reward is not None else "no score was known"
    yield "--void", f"the trial does not count and its cell runs again; {known}"
    standing = ", ".join(f"{trial_label(trial)} {clean(arm)} {state}" for trial, arm, state in case.mates)
    if standing:
        words = f"these stand in the same block: {standing}; marathonctl void {label} --pair withdraws them, too"
        yield "", words
    yield "nothing", "it waits, blocks no other cell, and is left out of comparisons"


def _list(told: Mapping[str, Any], key: str) -> list[Any]:
    value = told.get(key)
    return list(value) if isinstance(value, list) else []


def _list_keys(told: Mapping[str, Any], key: str) -> list[str]:
    value = told.get(key)
    return sorted(map(str, value)) if isinstance(value, Mapping) else []


# ── two sides ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sides(left: Sequence[Entry], right: Sequence[Entry], where: Screen) -> None:
    if where.width is None or where.width < BESIDE:
        for side in (left, right):
            for key, text in side:
                for line in _entry(key, text, 14, where):
                    say(line)
        return
    half = Screen((where.width - 3) // 2, where.colour)
    columns = [[line for key, text in side for line in _entry(key, text, 14, half)] for side in (left, right)]
    assert half.width is not None
    for one, other in zip_longest(*columns, fillvalue=""):
        say(where.fit(one + " " * (half.width - display_width(one)) + " │ " + other.removeprefix("  ")))


def _entry(key: str, text: str, room: int, where: Screen) -> list[str]:
    """A heading, or ``key  text`` with the text going on below itself."""
    if not text:
        return [where.fit(where.paint(f"  {key}", "bold"))]
    first = f"    {key:<{room}} "
    if where.width is None:
        return [first + text]
    import textwrap

    pieces = textwrap.wrap(text, max(20, where.width - len(first)), break_on_hyphens=False) or [""]
    return [first + pieces[0], *(" " * len(first) + piece for piece in pieces[1:])]
