"""Rules over verifiers, images and mounts: does the same work get the same number, from the same image, by the same files?

Pure.  The rules about what the numbers themselves show are :mod:`marathond.core.audit.results`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.results import failure
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import by_task, labels, of_kind, plural, scored, some
from marathond.core.mounts import APART, UNREAD, by_mount, mixed, story, sure
from marathond.core.names import AgentKind
from marathond.core.score import FILE, RefusedValue, example

AGAIN_AT_LEAST, AGAIN_SHARE = 3, 0.2
"""Trials of a task whose verifier had to run twice, and their share, before it is called flaky: one or two are accidents."""
INTERRUPTED = "interrupted"
"""Cause of a further round that is ours: the engine was started anew."""
UNREADABLE, NO_REWARD = "unreadable", "score_unreadable"
"""Cause of a further round, and the review after the last, of a verifier that left no reward that can be read."""
CHANGED = "changed_after_exit"
DIGEST_SHOWN = 12
_CALLED = {"partial": "partial", "test_rate": "test rate"}


def no_reward_written(facts: Facts) -> Look:
    """Always, and so no accident of a run: not :func:`verifier_flaky`'s."""
    graded = [trial for trial in facts.trials if trial.state in ("scored", "review")]
    oracles = of_kind(facts, AgentKind.ORACLE)
    found = []
    for task, group in by_task(graded).items():
        if _never_read(group, oracles):
            own = sum(trial.arm in oracles for trial in group)
            solution = f", {own} of them of the reference solution" if own else ""
            words = f"no reward that can be read in {len(group)} of {plural(len(group), 'graded trial')}{solution}: {labels(group)}"
            found.append(Found("no_reward_written", "warning", task, words))
    return Look(len(graded), len(graded), "graded trials", tuple(found))


def _never_read(group: Sequence[TrialFact], oracles: frozenset[str]) -> bool:
    """Of none of a task's trials has there been a reward but by a person's word; one of the reference solution is enough of them."""
    told = len(group) >= AGAIN_AT_LEAST or any(trial.arm in oracles for trial in group)
    return told and all(trial.review_code == NO_REWARD or (trial.by_person and UNREADABLE in trial.verify_agains) for trial in group)


def verifier_flaky(facts: Facts) -> Look:
    graded = [trial for trial in facts.trials if trial.state in ("scored", "review")]
    oracles = of_kind(facts, AgentKind.ORACLE)
    found = []
    for task, group in by_task(graded).items():
        again = [trial for trial in group if any(cause != INTERRUPTED for cause in trial.verify_agains)]
        changed = [trial for trial in group if CHANGED in trial.flags]
        oracle = [trial for trial in group if trial.arm in oracles and trial.state == "scored"]
        passed = sum(trial.reward == 1 for trial in oracle)
        words = []
        if len(again) >= AGAIN_AT_LEAST and len(again) >= AGAIN_SHARE * len(group) and not _never_read(group, oracles):
            causes = Counter(cause for trial in again for cause in trial.verify_agains if cause != INTERRUPTED)
            why = ", ".join(f"{cause} {count}" for cause, count in sorted(causes.items()))
            words.append(f"ran a second time for {len(again)} of {plural(len(group), 'trial')} ({why}): {labels(again)}")
        if changed:
            words.append(f"what it wrote changed after its exit in {len(changed)} of {plural(len(group), 'trial')}: {labels(changed)}")
        if 0 < passed < len(oracle):
            words.append(f"the reference solution passed {passed} of {len(oracle)} times")
        if words:
            found.append(Found("verifier_flaky", "warning", task, "; ".join(words)))
    return Look(len(graded), len(graded), "graded trials", tuple(found))


def oracle_fails(facts: Facts) -> Look:
    """Never passed.  Sometimes passed is :func:`verifier_flaky`'s."""
    tasks = by_task(scored(facts, of_kind(facts, AgentKind.ORACLE)))
    found = [
        Found("oracle_fails", "warning", task, f"the reference solution passed 0 of {plural(len(done), 'done cell')}")
        for task, done in tasks.items()
        if all(trial.reward != 1 for trial in done)
    ]
    return Look(len(tasks), len(facts.tasks) if of_kind(facts, AgentKind.ORACLE) else 0, "tasks that an oracle arm has done", tuple(found))


def image_stale(facts: Facts) -> Look:
    standing = [trial for trial in facts.trials if trial.state not in ("voided", "reserved", "new")]
    seen = [trial for trial in standing if trial.image_id is not None]
    found = [each for task, group in by_task(seen).items() if (each := _images(facts, task, group)) is not None]
    unseen = "of no trial is the image known" if standing and not seen else ""
    return Look(len(seen), len(standing), "trials that stand", tuple(found), unseen)


def _images(facts: Facts, task: str, group: Sequence[TrialFact]) -> Found | None:
    words = []
    planned = facts.context_digests.get(task)
    other = [trial for trial in group if planned is not None and trial.context_digest not in (None, planned)]
    if other:
        words.append(
            f"{len(other)} of {plural(len(group), 'trial')} ran in an image of another build context than planned: {labels(other)}"
        )
    images = Counter(trial.image_id for trial in group)
    if len(images) > 1:
        listed = []
        for image, count in images.most_common():
            arms = Counter(trial.arm for trial in group if trial.image_id == image)
            of_arms = ", ".join(f"{arm} {arms[arm]}" for arm in facts.arms if arms[arm])
            listed.append(f"{str(image).removeprefix('sha256:')[:DIGEST_SHOWN]} in {count} ({of_arms})")
        words.append(f"{plural(len(group), 'trial')} ran in {len(images)} different images: {some(listed)}")
    return Found("image_stale", "warning", task, "; ".join(words)) if words else None


def mount_changed(facts: Facts) -> Look:
    """Mounts of an arm that did not hold the same in all its trials.  Its name and its row stayed: nothing else would say so.

    A warning where names, sizes and times alone were compared: a copy of the same files has other times.
    """
    found, blind, judged, of = [], [], 0, 0
    for (arm, target), group in by_mount(facts.mounted).items():
        if all(each.value.startswith(APART) for each in group):
            continue  # writable, or a way to something else than files: no part of the harness
        read = sum(each.trials for each in group if not each.value.startswith(UNREAD))
        judged, of = judged + read, of + sum(each.trials for each in group)
        if not read and any(each.trials for each in group):
            blind.append(f"what {arm} mounts at {target} is known of no trial")
        if mixed(group):
            severity, was = ("error", "was") if sure(group) else ("warning", "may have changed: it was")
            found.append(Found("mount_changed", severity, f"{arm} {target}", f"what {arm} mounts at {target} {was} {story(group)}"))
    return Look(judged, of, "mounts of trials", tuple(found), "; ".join(blind) if not judged else "")


def score_rules_differ(facts: Facts) -> Look:
    """Scores of one task that were read from different places: a rule of the configuration came, went or changed in between."""
    done = [trial for trial in scored(facts) if not trial.by_person]
    found = []
    for task, group in by_task(done).items():
        read = Counter(trial.score_rules for trial in group)
        if len(read) > 1:
            listed = []
            for rules, count in sorted(read.items(), key=lambda item: (-item[1], item[0])):
                arms = Counter(trial.arm for trial in group if trial.score_rules == rules)
                of_arms = ", ".join(f"{arm} {arms[arm]}" for arm in facts.arms if arms[arm])
                listed.append(f"{plural(count, 'score')} by {rules or 'no rule'} ({of_arms})")
            found.append(Found("score_rules_differ", "warning", task, "; ".join(listed)))
    return Look(len(done), len(done), "scores", tuple(found))


def score_refused(facts: Facts) -> Look:
    """Numbers that a verifier wrote and that are none.  An error where others of the task were kept: what is left is no fair sample.

    A place that a rule of the configuration names may well be empty where the verifier did not come to its tests.
    """
    done = scored(facts)
    found = []
    for task, group in by_task(done).items():
        of: dict[tuple[str, str], list[tuple[TrialFact, RefusedValue]]] = {}
        for trial in group:
            for each in trial.refused:
                if not (each.absent and failure(trial)):
                    of.setdefault((each.what, each.place if each.what == FILE else ""), []).append((trial, each))
        if of:
            partly = any(what != FILE and _kept(group, what) and any(each.columns for _, each in met) for (what, _), met in of.items())
            order = sorted(of, key=lambda key: (key[0] == FILE, key))
            words = "; ".join(_refused(group, *key, of[key]) for key in order)
            found.append(Found("score_refused", "error" if partly else "warning", task, words))
    return Look(len(done), len(done), "scores", tuple(found))


def _kept(group: Sequence[TrialFact], column: str) -> int:
    return sum((trial.partial if column == "partial" else trial.test_rate) is not None for trial in group)


def _refused(group: Sequence[TrialFact], what: str, place: str, met: Sequence[tuple[TrialFact, RefusedValue]]) -> str:
    of = f"{len(met)} of {plural(len(group), 'scored trial')}"
    why = example(each.why for _, each in met)
    if what == FILE:
        return f"{place} not taken in {of} ({why}): {labels(trial for trial, _ in met)}"
    places = some(sorted({each.place for _, each in met}))
    lost = sum(bool(each.columns) for _, each in met)
    kept = f", and kept in {_kept(group, what)}" if lost else ", and counted from what else there was"
    return f"{_CALLED[what]} refused in {of} ({why}, at {places}){kept}: {labels(trial for trial, _ in met)}"


RULES: tuple[Rule, ...] = (
    Rule(
        "score_refused",
        "error",
        "Numbers that a verifier wrote are no shares, or its JSON is broken: they are refused, and a mean is over what was left. An error "
        "where others of the task were kept (of scores in percent the zeros stay).",
        'Name the right place in `[scores."TASK"]`, then `marathonctl regrade --campaign NAME`, which reads the stored files again. Or '
        "mend the verifier, and void the task's whole blocks (`marathonctl void --pair`): stored files stay as they are. Until then do not "
        "read this column of the task.",
        score_refused,
        ("d09",),
    ),
    Rule(
        "mount_changed",
        "error",
        "Files that an arm mounts were changed while its campaign ran: trials before and after it are of two arms under one name.",
        "Put the old files back and void what ran with the new ones, with the whole blocks (`marathonctl void --pair`; `arms show` and "
        "`show` say which trials had what); or begin a new campaign. A warning compared names, sizes and times alone: a copy has other "
        "times.",
        mount_changed,
        ("a18",),
    ),
    Rule(
        "score_rules_differ",
        "warning",
        "Scores of one task were read from different places in the verifier's files, for [scores] changed between: they do not compare.",
        "`marathonctl regrade --campaign NAME` reads all of them by the rules of now; what it refuses is named there.",
        score_rules_differ,
    ),
    Rule(
        "no_reward_written",
        "warning",
        "The verifier of a task never writes a reward that can be read, whatever work it grades: a fault of the task or its verifier.",
        "Read its output (`marathonctl review TRIAL`) and mend the task; or, where the reward stands elsewhere, name the place in "
        '`[scores."TASK"]`. `marathonctl review TRIAL --void` then runs a cell again. Or leave the task out, for all arms.',
        no_reward_written,
        ("d02",),
    ),
    Rule(
        "verifier_flaky",
        "warning",
        "The verifier of a task does not always read the same: part of the difference between cells is its own.",
        "Read both verifier outputs (`marathonctl logs`); run an oracle arm over several replicates; or leave the task out, for all arms.",
        verifier_flaky,
    ),
    Rule(
        "oracle_fails",
        "warning",
        "The task's own reference solution never passes, so what a score of this task means is not known.",
        "Read the oracle's verifier output; mend or leave out the task for all arms.",
        oracle_fails,
    ),
    Rule(
        "image_stale",
        "warning",
        "Trials of one task ran in different images, so they did not begin from the same place.",
        "If the images differ between arms, void the whole blocks of one image (`marathonctl void --pair`) and build once.",
        image_stale,
        ("b14",),
    ),
)
