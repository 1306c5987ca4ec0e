"""Rules over scores: what says that a task, a verifier or a person's hand, and not the arms, made the numbers what they are.

Pure.  Nothing here voids or changes a score.  Reference arms (oracle, nop) are alike by design and are judged apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import comb

from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import by_task, compared_arms, labels, of_compared, of_kind, per_arm, plural, scored, some
from marathond.core.names import AgentKind, trial_label
from marathond.core.ourside import LOG

UNLIKELY = 0.01
"""That so many of them, or more, end by their budget if half of all such cells did: less likely than this is "most", no chance."""
ENDINGS_AT_LEAST = 7
"""Done cells of one arm or task, before even all of them could be unlikely."""
ALIKE_AT_LEAST = 3
"""Done cells of one task, before it is strange that all of them are alike."""
ENOUGH = f"tasks with {ALIKE_AT_LEAST} done cells of two arms"
BYTES_AT_LEAST = 1024
"""Shorter outputs may be equal by chance: a list of verdicts without times."""
FAILURES = frozenset({"build_failed", "setup_error", "malformed_early_exit", "no_tests"})
EARLY_EXIT = "early_exit:"
LACKING_TASKS = 3
"""Tasks in which one arm alone must lack a column, where there are too few replicates to tell within one task."""
LACKING_BLOCKS = 3


def failure(trial: TrialFact) -> tuple[str, ...]:
    """Flags that say that the verifier did not come to its tests, in a fixed order; empty: it did."""
    return tuple(sorted(flag for flag in trial.flags if flag in FAILURES or flag.startswith(EARLY_EXIT)))


def signature(trial: TrialFact) -> frozenset[str]:
    """By what two failures may be alike: :func:`failure`, and the words in the verifier's log that may be the infrastructure's (d06).

    Those words are weighed where a trial is graded, against the trials that had ended by then; the first ones of a task had none beside
    them.
    """
    return frozenset(failure(trial)) | frozenset(flag for flag in trial.flags if flag.startswith(LOG))


def budget_binding(facts: Facts) -> Look:
    done = scored(facts, compared_arms(facts))
    told = [trial for trial in done if trial.budget_ended is not None]
    found, doubtful = [], False
    for what, groups in (("arm", {arm: [t for t in done if t.arm == arm] for arm in compared_arms(facts)}), ("task", by_task(done))):
        # A source that names budgets alone (an import) would show all by them: an end that is not known is none by a budget, or may be one.
        bound = [(name, sum(t.budget_ended is True for t in group), len(group)) for name, group in groups.items() if _bound(group)]
        doubtful = doubtful or any(_bound(group, unknown=True) for group in groups.values())
        if bound:
            listed = some([f"{name} {ended} of {of}" for name, ended, of in bound])
            judged = sum(len(group) >= ENDINGS_AT_LEAST for group in groups.values())
            words = f"most done cells end by their budget in {len(bound)} of {plural(judged, what)} with enough of them: {listed}"
            found.append(Found("budget_binding", "warning", f"{what}s", words))
    unseen = "of no done cell is it known how its agent ended" if done and not told else ""
    if told and doubtful and not found:
        unseen = (
            f"of {len(done) - len(told)} of {plural(len(done), 'done cell')} it is not known whether a budget ended them: most may have"
        )
    return Look(len(told), len(done), of_compared(facts, "done cells"), tuple(found), unseen)


def _bound(group: Sequence[TrialFact], *, unknown: bool = False) -> bool:
    """:param unknown: what an end counts of which nobody knows whether it was by a budget."""
    ended = sum(unknown if trial.budget_ended is None else trial.budget_ended for trial in group)
    ways = sum(comb(len(group), k) for k in range(ended, len(group) + 1))
    return bool(ways / 2 ** len(group) < UNLIKELY)


def same_failure_everywhere(facts: Facts) -> Look:
    tasks = by_task(scored(facts, compared_arms(facts)))
    found, judged = [], 0
    for task, done in tasks.items():
        if not _enough(done):
            continue
        judged += 1
        if sign := _same_failure(done):
            arms = {trial.arm for trial in done}
            words = f"all {len(done)} done cells of {len(arms)} of {len(compared_arms(facts))} arms: reward 0, {sign}{_oracle(facts, task)}"
            found.append(Found("same_failure_everywhere", "warning", task, words))
    return Look(judged, len(facts.tasks), ENOUGH, tuple(found))


def _enough(done: Sequence[TrialFact]) -> bool:
    return len(done) >= ALIKE_AT_LEAST and len({trial.arm for trial in done}) >= 2


def _same_failure(done: Sequence[TrialFact]) -> str:
    """What all of them failed by, in words; empty: they did not, or not alike."""
    if any(trial.reward != 0 for trial in done):
        return ""
    sign = frozenset[str].intersection(*map(signature, done))
    outputs = {trial.outputs for trial in done}
    same_output = len(outputs) == 1 and None not in outputs
    if sign:
        return ", ".join(sorted(sign)) + ("; the verifier wrote the same bytes each time" if same_output else "")
    if any(map(failure, done)):
        return ""
    long = all((trial.outputs_bytes or 0) > 0 for trial in done)
    return "and the verifier wrote the same bytes each time" if same_output and long and all(map(worked, done)) else ""


def _oracle(facts: Facts, task: str) -> str:
    oracle = [trial for trial in scored(facts, of_kind(facts, AgentKind.ORACLE)) if trial.task == task]
    return f"; the reference solution passed {sum(t.reward == 1 for t in oracle)} of {len(oracle)}" if oracle else ""


def worked(trial: TrialFact) -> bool:
    """False: its agent is known to have done nothing.  Of arms that ask no model nothing is counted."""
    return not trial.asks_model or bool(trial.commands or trial.requests)


def identical_outputs(facts: Facts) -> Look:
    done = scored(facts, compared_arms(facts))
    seen = [trial for trial in done if trial.outputs is not None]
    written: dict[object, list[TrialFact]] = defaultdict(list)
    left: dict[object, list[TrialFact]] = defaultdict(list)
    for trial in filter(worked, seen):
        if trial.parts is not None and (trial.outputs_bytes or 0) >= BYTES_AT_LEAST:
            written[trial.outputs, trial.parts].append(trial)
        if trial.left is not None and (trial.left_bytes or 0) >= BYTES_AT_LEAST and trial.reward != 1:
            left[trial.task, trial.left].append(trial)
    found = [
        *(_identical("the verifier's output and the parts of the score", same) for same in written.values() if _strange(same)),
        *(_identical("artifacts that their agents left, without solving the task,", same) for same in left.values() if len(same) > 1),
    ]
    unseen = "no verifier output is recorded" if done and not seen else ""
    return Look(len(seen), len(done), of_compared(facts, "done cells"), _one_each(found), unseen)


def _strange(same: Sequence[TrialFact]) -> bool:
    """Two solutions, or two that fail everything, may well be told of in the same words; halves of two different works may not."""
    if len(same) < 2:
        return False
    return len({trial.task for trial in same}) > 1 or any(
        0 < rate < 1 for t in same for rate in (t.partial, t.test_rate) if rate is not None
    )


def _identical(what: str, same: Sequence[TrialFact]) -> Found:
    tasks = sorted({trial.task for trial in same})
    words = f"{what} are the same to the byte in {len(same)} trials of {some(tasks)}: {labels(same)}"
    return Found("identical_outputs", "warning", trial_label(min(trial.trial_id for trial in same)), words)


def _one_each(found: Sequence[Found]) -> tuple[Found, ...]:
    """A subject has one open finding: the first says it, and takes the words of the others along."""
    kept: dict[str, Found] = {}
    for each in found:
        before = kept.get(each.subject)
        words = each.detail if before is None else f"{before.detail}; {each.detail}"
        kept[each.subject] = Found(each.code, each.severity, each.subject, words)
    return tuple(kept.values())


def zero_everywhere(facts: Facts) -> Look:
    return _everywhere(facts, "zero_everywhere", 0)


def one_everywhere(facts: Facts) -> Look:
    return _everywhere(facts, "one_everywhere", 1)


def _everywhere(facts: Facts, code: str, reward: int) -> Look:
    arms = set(compared_arms(facts))
    judged, alike = 0, []
    for task, done in by_task(scored(facts, arms)).items():
        if not _enough(done) or {trial.arm for trial in done} != arms:
            continue
        judged += 1
        if all(trial.reward == reward for trial in done) and not (reward == 0 and _same_failure(done)):
            alike.append(f"{task} ({plural(len(done), 'cell')})")
    found: tuple[Found, ...] = ()
    if alike:
        words = f"every done cell of every arm scored {reward} in {len(alike)} of {plural(judged, 'task')}: {some(alike)}"
        found = (Found(code, "info", facts.campaign, words),)
    return Look(judged, len(facts.tasks), f"{ENOUGH}, and one of every arm", found)


COLUMNS: dict[str, Callable[[TrialFact], float | None]] = {"partial": lambda t: t.partial, "test_rate": lambda t: t.test_rate}


def score_columns(facts: Facts) -> Look:
    """Only cells whose verifier came to its tests, read by the same rules: an early end has fewer columns, whoever's it is."""
    done = scored(facts, compared_arms(facts))
    whole = [trial for trial in done if not failure(trial) and not trial.by_person]
    found = [each for column in COLUMNS for each in _columns(facts, whole, column)]
    return Look(len(whole), len(done), of_compared(facts, "done cells"), tuple(found))


def _columns(facts: Facts, whole: Sequence[TrialFact], column: str) -> list[Found]:
    has = COLUMNS[column]
    lacking: dict[str, list[str]] = defaultdict(list)
    having: Counter[str] = Counter()
    plain: list[tuple[str, str, int, int]] = []
    groups: dict[tuple[str, int | None], list[TrialFact]] = defaultdict(list)
    for trial in whole:
        groups[trial.task, trial.extractor].append(trial)
    for (task, _), group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        for arm in compared_arms(facts):
            mine, others = [t for t in group if t.arm == arm], [t for t in group if t.arm != arm]
            if not mine or not others or any(has(t) is None for t in others):
                continue
            if any(has(t) is not None for t in mine):
                having[arm] += 1
                continue
            lacking[arm].append(task)
            if len(mine) >= 2 and len(others) >= 2:
                plain.append((task, arm, len(mine), len(others)))
    found, told = [], set()
    for arm, tasks in sorted(lacking.items()):
        if len(set(tasks)) >= LACKING_TASKS and not having[arm]:
            told.add(arm)
            words = (
                f"no {column} in any done cell of {arm}, in {len(set(tasks))} tasks where every other arm's cells have one: {some(tasks)}"
            )
            found.append(Found("score_columns", "error", f"{arm}: {column}", words))
    for task, arm, mine_n, others_n in plain:
        if arm not in told:
            words = f"no {column} in {mine_n} of {mine_n} done cells of {arm}, one in {others_n} of {others_n} of the other arms"
            found.append(Found("score_columns", "error", f"{task}, {arm}: {column}", words))
    return found


def replicate_imbalance(facts: Facts) -> Look:
    """Blocks that other arms have done, and one arm has neither done nor in work.  The first few belong to blocks that are just begun."""
    arms = compared_arms(facts)
    done: dict[int, set[str]] = defaultdict(set)
    present: dict[int, set[str]] = defaultdict(set)
    for trial in facts.trials:
        if trial.state != "voided":
            present[trial.block_id].add(trial.arm)
        if trial.state == "scored" and trial.arm in arms:
            done[trial.block_id].add(trial.arm)
    live = any(trial.state not in ("scored", "voided", "review") for trial in facts.trials)
    begun = [block for block, by in done.items() if by]
    missing = {arm: sum(arm not in present[block] for block in begun) for arm in arms}
    worst = max(missing.values(), default=0)
    found: tuple[Found, ...] = ()
    if worst >= (LACKING_BLOCKS if live else 1):
        counts = Counter(trial.arm for trial in facts.trials if trial.state == "scored")
        listed = ", ".join(f"{arm} {counts[arm]} done, {missing[arm]} missing" for arm in arms)
        words = f"of {plural(len(begun), 'block')} with a done cell: {listed}; only common cells are paired"
        found = (Found("replicate_imbalance", "info", facts.campaign, words),)
    return Look(len(begun), len({trial.block_id for trial in facts.trials}), "blocks", found)


def scores_by_person(facts: Facts) -> Look:
    done = scored(facts)
    counts = Counter(trial.arm for trial in done if trial.by_person)
    found: tuple[Found, ...] = ()
    if counts:
        totals = Counter(trial.arm for trial in done)
        words = (
            f"{counts.total()} of {plural(len(done), 'done cell')} have a reward that a person gave: {per_arm(facts.arms, counts, totals)}"
        )
        found = (Found("scores_by_person", "info", facts.campaign, words),)
    return Look(len(done), len(done), "done cells", found)


def post_score_voids(facts: Facts) -> Look:
    voided = [trial for trial in facts.trials if trial.state == "voided"]
    told = [trial for trial in voided if trial.score_known is not None]
    counts = Counter(trial.arm for trial in told if trial.score_known)
    found: tuple[Found, ...] = ()
    if counts:
        totals = Counter(trial.arm for trial in facts.trials)
        by_arm = per_arm(facts.arms, counts, totals)
        words = f"{counts.total()} of {plural(len(voided), 'void')} withdrew a score that was known; of all trials {by_arm}"
        found = (Found("post_score_voids", "info", facts.campaign, words),)
    return Look(len(told), len(voided), "voids", found, _voids_unseen(voided, told))


def post_score_voids_uneven(facts: Facts) -> Look:
    """One side of a block was withdrawn after its score was known, and another side's score stands that was never asked again."""
    arms = compared_arms(facts)
    voided = [trial for trial in facts.trials if trial.state == "voided"]
    told = [trial for trial in voided if trial.score_known is not None]
    withdrawn: dict[int, list[TrialFact]] = defaultdict(list)
    standing: dict[int, set[str]] = defaultdict(set)
    for trial in told:
        if trial.score_known and trial.arm in arms:
            withdrawn[trial.block_id].append(trial)
    for trial in scored(facts, arms):
        standing[trial.block_id].add(trial.arm)
    uneven = [t for block, group in withdrawn.items() if standing[block] - {each.arm for each in group} for t in group]
    found: tuple[Found, ...] = ()
    if uneven:
        counts, totals = Counter(t.arm for t in uneven), Counter(t.arm for t in facts.trials)
        known = sum(len(group) for group in withdrawn.values())
        words = (
            f"{len(uneven)} of {plural(known, 'post-score void')} left another arm's score of the same block standing; "
            f"of all trials {per_arm(arms, counts, totals)}: {labels(uneven)}; {_taken_back(facts, uneven)}"
        )
        found = (Found("post_score_voids_uneven", "warning", facts.campaign, words),)
    return Look(len(told), len(voided), "voids", found, _voids_unseen(voided, told))


def _taken_back(facts: Facts, voided: Sequence[TrialFact]) -> str:
    """Which of these voids can still be undone: a cell that has a later trial keeps that one (the ledger refuses the other)."""
    newest: dict[tuple[int, str], int] = {}
    for trial in facts.trials:
        cell = trial.block_id, trial.arm
        newest[cell] = max(newest.get(cell, 0), trial.attempt)
    free = [trial for trial in voided if newest[trial.block_id, trial.arm] == trial.attempt]
    if not free and len(voided) == 1:
        return "unvoid cannot take it back: its cell has a later trial"
    if not free:
        return "unvoid can take back none of them: their cells have a later trial"
    return f"unvoid can take back {labels(free)}" + ("" if len(free) == len(voided) else "; the cells of the others have a later trial")


def _voids_unseen(voided: Sequence[TrialFact], told: Sequence[TrialFact]) -> str:
    return "of no void is it known whether there was a score" if voided and not told else ""


RULES: tuple[Rule, ...] = (
    Rule(
        "budget_binding",
        "warning",
        "Most cells of an arm or a task end because their time, turns or tokens are spent: the limit decides what is measured.",
        "Read the scores as scores under this limit and say so; a campaign with a longer limit is another campaign.",
        budget_binding,
    ),
    Rule(
        "same_failure_everywhere",
        "warning",
        "Every arm fails a task in the same way: more likely the task, its image or its verifier is broken than all agents alike.",
        "Read the verifier's output of two arms (`marathonctl logs`) and run an oracle arm; a broken task is left out for all arms.",
        same_failure_everywhere,
        ("d13",),
    ),
    Rule(
        "identical_outputs",
        "warning",
        "Trials of different cells gave the same bytes where two separate works hardly can: one saw the other's, or neither did anything.",
        "Compare artifacts and trajectories of the trials; look for a shared cache or volume, or an answer in the image.",
        identical_outputs,
    ),
    Rule(
        "zero_everywhere",
        "info",
        "No arm that is compared (the oracle apart) ever solves these tasks, so they do not tell the arms apart by reward.",
        "Compare them by partial score or test rate, where the benchmark has one.",
        zero_everywhere,
    ),
    Rule(
        "one_everywhere",
        "info",
        "Every arm always solves these tasks, so they do not tell the arms apart by reward.",
        "Compare them by time and cost; for a harder comparison choose other tasks.",
        one_everywhere,
    ),
    Rule(
        "score_columns",
        "error",
        "One arm's cells lack a number that the others' have, so another verifier, or a broken one, graded them.",
        "Compare the parts of two scores (`marathonctl show`) and the verifiers' output; do not compare that column until it is clear.",
        score_columns,
    ),
    Rule(
        "replicate_imbalance",
        "info",
        "Arms have different numbers of done cells; cells that one of them lacks are left out where arms are paired.",
        "See `marathonctl status` for what of that arm is parked, in review or open.",
        replicate_imbalance,
    ),
    Rule(
        "scores_by_person",
        "info",
        "Some rewards were given by a person who decided a review, not by the verifier.",
        "Read the reasons (`marathonctl show`) and name them beside the result.",
        scores_by_person,
    ),
    Rule(
        "post_score_voids",
        "info",
        "Trials were withdrawn when their score was known; every report counts them.",
        'Read the reasons: marathonctl sql "select * from v_void where score_was_known".',
        post_score_voids,
        ("a08",),
    ),
    Rule(
        "post_score_voids_uneven",
        "warning",
        "A score was withdrawn although it was known, and the other arms' scores of the same block stand: that choice can turn a result.",
        "`marathonctl unvoid TRIAL --reason …` while its cell has no later trial; afterwards `marathonctl void TRIAL --pair --reason …` "
        "takes what stands of the block, too. Else state the reason beside the result.",
        post_score_voids_uneven,
        ("a08",),
    ),
)
