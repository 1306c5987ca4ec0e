"""The count at the end of a soak: what must be so whatever was killed, each as a line that is ok or not.

Reads the ledger, the exported artifacts and the provider's own list of answers; nothing lives any more.  What a cell must come to was known
before (cells.py).  Must not be lenient: an outcome that nobody foresaw is a failure until it is understood.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.cells import COMMANDS, Cells
from tests.soak.chaos import DAEMON, DOCKERD, GATEWAY, Kill, met
from tests.soak.provider import Answered, Tokens
from tests.support.rig import Rig

SHARE_BAR = 0.95
SHOWN = 12
"""So many single cases are told of a line that failed."""


@dataclass(frozen=True)
class Line:
    """``ok`` None: told, not judged."""

    name: str
    ok: bool | None
    text: str
    cases: Sequence[str] = ()


@dataclass
class Trial:
    """One attempt, as ledger and export have it."""

    trial_id: int
    task: str
    arm: str
    state: str
    reward: float | None
    ended_by: str | None
    begun_ms: int | None
    ended_ms: int | None
    ran: list[str] | None = None
    """Lines that its agent left; None: nothing was exported, or it had not begun."""
    starts: int = 0
    threads: set[str] = field(default_factory=set)
    commands: int | None = None
    turns: int | None = None
    """Completed ones."""
    untold: int = 0
    """Turns of its goal before codex had the task: the daemon was killed between the two, and codex dropped the message.  The next life
    says it again and names it (``goal_before_task``)."""
    retries: int = 0
    reattached: int = 0
    known: Counter[Tokens] = field(default_factory=Counter)
    unknown: int = 0

    @property
    def name(self) -> str:
        return f"t{self.trial_id:04d} {self.task} x {self.arm}"


def table(lines: Iterable[Line]) -> str:
    shown = []
    for line in lines:
        word = {True: "ok", False: "FAIL", None: ""}[line.ok]
        shown.append(f"{word:<5}{line.name:<28} {line.text}")
        shown += [f"       - {case}" for case in line.cases[:SHOWN]]
        if len(line.cases) > SHOWN:
            shown.append(f"       - and {len(line.cases) - SHOWN} more")
    return "\n".join(shown)


def count(rig: Rig, cells: Cells, replicates: int, kills: Sequence[Kill], answers: Sequence[Answered]) -> list[Line]:
    """Everything that ledger, artifacts and provider tell."""
    trials = _trials(rig)
    _without_task(trials, answers)
    lines = [
        _cells(rig, cells, replicates),
        _twice(rig),
        _outcomes(cells, trials.values()),
        _starts(trials.values(), answers),
        _asked_once(trials.values(), answers),
        _tokens(rig, trials.values(), answers),
        _released(rig),
        _sound(rig),
        *_passed_over(DAEMON, cells, trials, kills, rig),
        *_passed_over(DOCKERD, cells, trials, kills, rig),
        _goals_before_tasks(rig, trials.values()),
        _voids(rig),
    ]
    for victim, number, phases in met(list(kills)):
        text = ", ".join(f"{phase} {times}" for phase, times in phases.most_common()) or "no live trial"
        if victim == DAEMON:
            text += f"; {sum(not kill.ready for kill in kills if kill.victim == victim)} before the life's first admission"
        lines.append(Line(f"kill -9 of {victim}: {number}", None, f"met {text}"))
    found = rig.sql("SELECT code || ' (' || severity || ')', count(*) FROM finding GROUP BY code, severity ORDER BY 1")
    lines.append(Line("findings", None, ", ".join(f"{code} {times}" for code, times in found) or "none"))
    reviews = rig.sql("SELECT code, count(*) FROM review GROUP BY code")
    lines.append(Line("reviews", None, ", ".join(f"{code} {times}" for code, times in reviews) or "none"))
    return lines


def _trials(rig: Rig) -> dict[int, Trial]:
    rows = rig.sql(
        """SELECT t.trial_id, task.name, arm.name, t.state,
               (SELECT reward FROM score s WHERE s.trial_id = t.trial_id ORDER BY score_id DESC LIMIT 1),
               a.ended_by, a.started_at_ms, a.ended_at_ms
           FROM trial t JOIN cell USING (cell_id) JOIN task USING (task_id) JOIN arm ON arm.arm_id = cell.arm_id
           LEFT JOIN trial_agent a ON a.trial_id = t.trial_id"""
    )
    trials = {row[0]: Trial(*row) for row in rows}
    for trial_id, folder in rig.sql("SELECT trial_id, folder FROM artifact_export"):
        artifacts = rig.root / "out" / folder / "artifacts"
        trials[trial_id].ran = _lines(artifacts / "ran")
        threads = _lines(artifacts / "threads") or []
        trials[trial_id].starts = len(threads)
        trials[trial_id].threads |= set(threads)
    threads_sql = "SELECT trial_id, json_extract(detail_json, '$.thread_id') FROM agent_event WHERE kind = 'thread'"
    for trial_id, thread in rig.sql(threads_sql):
        trials[trial_id].threads.add(thread)
        trials[trial_id].starts += 1
    told = ", ".join(f"json_extract(receipt_json, '$.turns.{name}')" for name in ("commands", "by_status.completed", "retries"))
    for trial_id, commands, turns, retries in rig.sql(f"SELECT trial_id, {told} FROM receipt"):
        trials[trial_id].commands, trials[trial_id].turns, trials[trial_id].retries = commands, turns, retries or 0
    for trial_id, times in rig.sql("SELECT trial_id, count(*) FROM trial_event WHERE event = 'reattached' GROUP BY trial_id"):
        trials[trial_id].reattached = times
    requests = "SELECT trial_id, usage, input_tokens, cached_tokens, output_tokens, reasoning_tokens FROM model_request"
    for trial_id, usage, *tokens in rig.sql(f"{requests} WHERE account = 'agent'"):
        if usage == "known":
            trials[trial_id].known[_four(tokens)] += 1
        elif usage != "none":
            trials[trial_id].unknown += 1
    return trials


def _without_task(trials: Mapping[int, Trial], answers: Iterable[Answered]) -> None:
    """Turns in which nothing of the script was played: where the task comes in time it is played in the same turn that asked too early."""
    by_thread = _by_thread(trials.values())
    untold: defaultdict[int, set[str]] = defaultdict(set)
    played: defaultdict[int, set[str]] = defaultdict(set)
    for answer in answers:
        if (trial := _thread(answer, by_thread)) is not None and answer.outcome == "completed":
            (untold if answer.untold else played)[trial.trial_id].add(answer.turn)
    for trial_id, turns in untold.items():
        if trials[trial_id].reattached:
            trials[trial_id].untold = len(turns - played[trial_id])


def _goals_before_tasks(rig: Rig, trials: Iterable[Trial]) -> Line:
    """Told of each that had whole turns without its task."""
    named = {row[0] for row in rig.sql("SELECT subject FROM finding WHERE code = 'goal_before_task'")}
    late = [trial for trial in trials if trial.untold and trial.state == "scored"]
    unnamed = [trial.name for trial in late if f"t{trial.trial_id:04d}" not in named]
    return Line("goals before their task", not unnamed, f"{len(late)}, each named by the product" if late else "none", unnamed)


def _four(tokens: Sequence[int]) -> Tokens:
    given, cached, output, reasoning = tokens
    return given, cached or 0, output, reasoning or 0


def _lines(path: Path) -> list[str] | None:
    try:
        return path.read_text().split()
    except FileNotFoundError:
        return None


def _cells(rig: Rig, cells: Cells, replicates: int) -> Line:
    states = dict(rig.sql("SELECT state, count(*) FROM cell_state GROUP BY state"))
    planned, there = 2 * len(cells.arms()) * replicates, sum(states.values())
    at_rest = sum(states.get(state, 0) for state in ("done", "parked", "review"))
    text = f"{planned} planned, {at_rest} at rest: " + ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return Line("cells", planned == there == at_rest, text)


def _twice(rig: Rig) -> Line:
    doubled = rig.sql("SELECT 'cell ' || cell_id FROM trial WHERE state <> 'voided' GROUP BY cell_id HAVING count(*) > 1")
    doubled += rig.sql("SELECT 'trial ' || trial_id FROM score GROUP BY trial_id HAVING count(*) > 1")
    doubled += rig.sql("SELECT 'trial ' || trial_id FROM trial t WHERE (state = 'scored') <> EXISTS (SELECT 1 FROM score s "
                       "WHERE s.trial_id = t.trial_id) AND state <> 'voided'")  # fmt: skip
    scored = rig.one("SELECT count(*) FROM trial WHERE state = 'scored'")
    return Line("none scored twice", not doubled, f"{scored} scores, one for each scored trial", [row[0] for row in doubled])


def _outcomes(cells: Cells, trials: Iterable[Trial]) -> Line:
    """A score that is not the one foreseen is a score that a kill has changed."""
    scored = [trial for trial in trials if trial.state == "scored"]
    wrong = [f"{trial.name}: {why}" for trial in scored if (why := _unlike(cells, trial))]
    return Line("scores as foreseen", not wrong, f"{len(scored) - len(wrong)} of {len(scored)}", wrong)


def _unlike(cells: Cells, trial: Trial) -> str:
    """How a scored trial differs from an undisturbed one; empty: in nothing."""
    expected = list(cells.ran(trial.task, trial.arm))
    if trial.reward is None or abs(trial.reward - cells.reward(trial.task, trial.arm)) > 1e-6:
        return f"reward {trial.reward}, foreseen {cells.reward(trial.task, trial.arm)}"
    if trial.ran != expected:
        return f"it did {trial.ran}, foreseen {expected}"
    if trial.commands != cells.commands(trial.task, trial.arm):
        return f"{trial.commands} commands, foreseen {cells.commands(trial.task, trial.arm)}"
    foreseen = cells.turns(trial.task, trial.arm)
    turns = None if foreseen is None else foreseen + trial.untold
    if trial.turns != turns:
        return f"{trial.turns} turns completed, foreseen {turns}"
    return "" if trial.ended_by == "agent" else f"ended by {trial.ended_by}"


def _starts(trials: Iterable[Trial], answers: Iterable[Answered]) -> Line:
    """An agent begins once: one conversation that asks, and no step of its work twice, also where it came to nothing.

    A thread that was opened and never asked anything is no beginning: codex forgets it when it loses the client that opened it, and
    the next life opens another.
    """
    asking = {answer.conversation for answer in answers} | {answer.conversation.rpartition("-")[0] for answer in answers}
    wrong, begun = [], 0
    for trial in trials:
        begun += trial.starts > 0
        spoke = trial.threads & asking
        if len(spoke) > 1 or (trial.arm in COMMANDS and trial.starts > 1):
            wrong.append(f"{trial.name}: began {max(len(spoke), trial.starts)} times")
        if trial.ran and len(set(trial.ran)) != len(trial.ran):
            wrong.append(f"{trial.name}: did {' '.join(trial.ran)}")
    return Line("every agent began once", not wrong, f"{begun} agents", wrong)


def _thread(answer: Answered, arms: Mapping[str, Trial]) -> Trial | None:
    """Whose conversation it is; a command has one for each step, ``THREAD-STEP``."""
    return arms.get(answer.conversation) or arms.get(answer.conversation.rpartition("-")[0])


def _by_thread(trials: Iterable[Trial]) -> dict[str, Trial]:
    return {thread: trial for trial in trials for thread in trial.threads}


def _asked_once(trials: Iterable[Trial], answers: Sequence[Answered]) -> Line:
    """At the provider: every conversation is one trial's, and a step was answered twice only where an answer was lost on its way."""
    by_thread = _by_thread(trials)
    times: Counter[tuple[str, int, int]] = Counter()
    strange = set()
    for answer in answers:
        if answer.outcome != "completed" or answer.step is None:  # None: a goal's own turn before its task has come, answered by nothing
            continue
        if _thread(answer, by_thread) is None:
            strange.add(answer.conversation)
        times[answer.conversation, answer.step, answer.poll] += 1
    again: Counter[int] = Counter()
    for (conversation, *_), number in times.items():
        owner = by_thread.get(conversation) or by_thread.get(conversation.rpartition("-")[0])
        if owner is not None:
            again[owner.trial_id] += number - 1
    unknown = {trial.trial_id: trial.unknown for trial in by_thread.values()}
    wrong = [f"conversation {each} is no trial's" for each in sorted(strange)]
    wrong += [f"t{which:04d}: {number} answers again, {unknown[which]} lost" for which, number in again.items() if number > unknown[which]]
    text = f"{len({_owner(each) for each in times})} conversations; {again.total()} answers asked for again, each lost on its way before"
    return Line("asked once at the provider", not wrong, text, wrong)


def _owner(time: tuple[str, int, int]) -> str:
    return time[0]


def _tokens(rig: Rig, trials: Iterable[Trial], answers: Sequence[Answered]) -> Line:
    """Answer by answer: what the ledger knows was completed, what it does not know was cut, for each trial."""
    by_thread = _by_thread(trials)
    whole: defaultdict[int, Counter[Tokens]] = defaultdict(Counter)
    broken: Counter[int] = Counter()
    for answer in answers:
        trial = _thread(answer, by_thread)
        if trial is None or answer.tokens is None:
            continue
        if answer.outcome == "completed":
            whole[trial.trial_id][answer.tokens] += 1
        else:
            broken[trial.trial_id] += 1
    wrong, lost = [], Counter[Tokens]()
    known: Counter[Tokens] = Counter()
    for trial in {trial.trial_id: trial for trial in by_thread.values()}.values():  # one may have opened two threads
        invented, missing = trial.known - whole[trial.trial_id], whole[trial.trial_id] - trial.known
        known += trial.known
        lost += missing
        if invented:
            wrong.append(f"{trial.name}: the ledger has {dict(invented)}, which the provider never completed")
        if missing.total() + broken[trial.trial_id] > trial.unknown:
            wrong.append(f"{trial.name}: {missing.total()} lost and {broken[trial.trial_id]} cut, {trial.unknown} unknown in the ledger")
    sums = rig.one(
        "SELECT coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), sum(unknown) FROM model_usage WHERE account = 'agent'"
    )
    if sums[:2] != (_total(known, 0), _total(known, 2)):
        wrong.append(f"the ledger's sums are {sums[:2]}, its requests tell {_total(known, 0)}, {_total(known, 2)}")
    open_ones = rig.one("SELECT count(*) FROM model_request WHERE end IS NULL")
    if open_ones:
        wrong.append(f"{open_ones} requests never ended")
    at_provider = sum((each for each in whole.values()), Counter[Tokens]())
    text = (
        f"ledger {_total(known, 0) + _total(known, 2)} = provider {_total(at_provider, 0) + _total(at_provider, 2)}"
        f" - {_total(lost, 0) + _total(lost, 2)} of {lost.total()} answers lost on their way; unknown: {sums[2] or 0} in the ledger,"
        f" {lost.total()} lost + {broken.total()} cut at the provider"
    )
    return Line("tokens", not wrong, text, wrong)


def _total(counted: Counter[Tokens], which: int) -> int:
    return sum(tokens[which] * number for tokens, number in counted.items())


def _released(rig: Rig) -> Line:
    loose = {
        name: rig.one(f"SELECT count(*) FROM {name} WHERE {column} IS NULL")
        for name, column in (("claim", "released_at_ms"), ("network_lease", "released_at_ms"), ("container", "gone_at_ms"))
    }
    unexported = rig.one("SELECT count(*) FROM trial WHERE trial_id NOT IN (SELECT trial_id FROM artifact_export)")
    text = ", ".join(f"{number} {name}" for name, number in {**loose, "trial not exported": unexported}.items())
    return Line("nothing held in the ledger", not any(loose.values()) and not unexported, text)


def _sound(rig: Rig) -> Line:
    damage = [str(row[0]) for row in rig.sql("PRAGMA integrity_check") if row != ("ok",)]
    damage += [f"foreign key: {row}" for row in rig.sql("PRAGMA foreign_key_check")]
    return Line("ledger is sound", not damage, "integrity_check and foreign_key_check", damage)


def _passed_over(victim: str, cells: Cells, trials: Mapping[int, Trial], kills: Sequence[Kill], rig: Rig) -> list[Line]:
    """What became of the agents that ran while a daemon, or a dockerd, was killed.  Of the latter's there is no bar for the share."""
    codes = {row[0]: row[1:] for row in rig.sql("SELECT trial_id, code, reason, evidence_json FROM void WHERE undone_at_ms IS NULL")}
    over = Counter(trial_id for kill in kills if kill.victim == victim for trial_id in kill.running)
    # Of those that were just beginning, the ones of which the next daemon did not find that they never had.
    beginning = Counter(trial_id for kill in kills if kill.victim == victim for trial_id in kill.starting)
    over += Counter({which: times for which, times in beginning.items() if codes.get(which, ("",))[0] != "daemon_lost"})
    gateway_ms = [kill.at_ms for kill in kills if kill.victim == GATEWAY]
    good, wrong, lost = 0, [], []
    for trial_id in sorted(over):
        trial = trials[trial_id]
        if trial.state == "voided" and trial_id in codes:
            code, reason, evidence = codes[trial_id]
            lost.append(f"{trial.name}: {code}: {reason[:160]}")
            if not reason or not json.loads(evidence):
                wrong.append(f"{trial.name}: void {code} without evidence")
            continue
        why = _unlike(cells, trial) if trial.state == "scored" else f"state {trial.state}"
        why = why or ("" if trial.reattached or victim != DAEMON else "no reattached in its history")
        disturbed = any((trial.begun_ms or 0) <= at_ms <= (trial.ended_ms or at_ms) for at_ms in gateway_ms)
        why = why or (f"{trial.retries} turns taken up again and no gateway killed in its life" if trial.retries and not disturbed else "")
        good += not why
        wrong += [f"{trial.name}: {why}"] if why else []
    share = good / len(over) if over else 0.0
    done = "re-attached and scored as foreseen" if victim == DAEMON else "scored as foreseen"
    bar = f", bar {SHARE_BAR:.0%}" if victim == DAEMON else ""
    text = f"{good} of {len(over)} agents ({share:.1%}{bar}) {done}; passed over {over.total()} times"
    enough = bool(over) and share >= SHARE_BAR if victim == DAEMON else True
    return [
        Line(f"{victim} killed over agents", enough and not wrong, text, wrong),
        Line("    voided", None, f"{len(lost)}, each with evidence" if lost else "none", lost),
    ]


def _voids(rig: Rig) -> Line:
    rows: list[tuple[Any, ...]] = rig.sql("SELECT trial_id, code, reason, evidence_json FROM void")
    bare = [f"t{row[0]:04d}: {row[1]}" for row in rows if not row[2] or not json.loads(row[3])]
    text = ", ".join(f"{code} {number}" for code, number in Counter(row[1] for row in rows).most_common())
    return Line("voids with evidence", not bare, text or "none", bare)
