"""Grading again: the newest extractor over the artifacts that were exported, their hashes checked against the ledger's.

Owns which trials can be read again, and why the others cannot.  Nothing is guessed: a file that is missing or differs from what was
exported refuses its trial by name, and a person's word is never overwritten.  The caller opens the ledger and writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from marathond.core.regrade import Change, Graded, carried, differences
from marathond.core.score import EXTRACTOR, FIXED, Overrides, Refusal, ScoreReading, files_of, gate_file, read_score, rules_from_data
from marathond.flow.score_row import score_row
from marathond.ledger.verbs.regrade import FOLDER, Gradable
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.picture.kept_words import pruned_words
from marathond.tasks.scorefiles import collect


class Outcome(StrEnum):
    ALIKE = "alike"
    DIFFERS = "differs"
    KEPT = "kept"
    """Left as it is, and rightly so: a person's word, an import without files, a review."""
    READABLE = "readable"
    """In review for want of a reward, and this extractor reads one: a person decides."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Regraded:
    """One trial.  ``why``: of one that is kept, readable or refused.  ``row``: the newer score, of one that differs."""

    trial_id: int
    task: str
    arm: str
    outcome: Outcome
    why: str = ""
    changes: tuple[Change, ...] = ()
    row: ScoreRow | None = None
    extractor: int | None = None


def grade_again(trial: Gradable, configured: Mapping[str, Overrides] | None) -> Regraded:
    """Read one trial's stored files.  Blocks; reads nothing but files of that trial.

    :param configured: rules of the present configuration by task; None: it is of another campaign, and the campaign's own count.
    """

    def said(outcome: Outcome, why: str) -> Regraded:
        extractor = None if trial.score is None else trial.score.extractor
        return Regraded(trial.trial_id, trial.task, trial.arm, outcome, why, extractor=extractor)

    if trial.by_person:
        return said(Outcome.KEPT, "its reward is a person's word")
    if trial.imported and trial.folder is None:
        return said(Outcome.KEPT, "imported, and none of its files are here")
    if trial.state not in ("scored", "review"):
        return said(Outcome.REFUSED, f"it is {trial.state}: only a score that counts is read again")
    if trial.score is not None and trial.score.extractor > EXTRACTOR:
        return said(Outcome.REFUSED, f"its score is by extractor {trial.score.extractor}, which is newer than this one ({EXTRACTOR})")
    if trial.folder is None:
        return said(Outcome.REFUSED, "its artifacts are not exported yet: let marathond do that first")
    if trial.pruned is not None and not (Path(trial.out_dir) / trial.folder).is_dir():  # unpacked again, it is read, by its hashes
        words = pruned_words(trial.pruned, trial.archive)
        return said(Outcome.REFUSED, f"{words}{'; unpack it to read it again' if trial.archive else ''}")
    if trial.state == "review" and not trial.exited:
        return said(Outcome.KEPT, f"in review ({trial.review}), and its verifier did not come to its end")
    try:
        own = rules_from_data(json.loads(trial.scores)) if configured is None else configured
    except ValueError as error:
        return said(Outcome.REFUSED, f"the campaign's stored [scores]: {error}")
    reading, problems = _read(trial, Path(trial.out_dir) / trial.folder, own.get(trial.task, {}))
    if problems:
        return said(Outcome.REFUSED, "; ".join(problems))
    if reading.reward is None:
        refusals = "; ".join(": ".join(filter(None, (r.source, r.key, r.why))) for r in reading.refusals)
        if trial.score is None:
            return said(Outcome.KEPT, f"in review ({trial.review}), and still not readable: {refusals}")
        return said(Outcome.REFUSED, f"extractor {EXTRACTOR} reads no reward: {refusals}")
    if trial.score is None:
        words = f"in review ({trial.review}); extractor {EXTRACTOR} reads reward {reading.reward.value:g} from {reading.reward.source}"
        return said(Outcome.READABLE, words)
    old = graded(trial.score)
    row = score_row(reading, reading.reward, carried(old))
    changes = differences(old, graded(row))
    if not changes:
        return said(Outcome.ALIKE, "")
    return Regraded(trial.trial_id, trial.task, trial.arm, Outcome.DIFFERS, "", changes, row, trial.score.extractor)


def graded(row: ScoreRow) -> Graded:
    """A score as it is compared."""
    parts = {name: (value, source.removesuffix(":")) for name, value, source in row.parts}
    columns: dict[str, float | int | None] = {
        "reward": row.reward,
        "partial": row.partial,
        "test_rate": row.test_rate,
        "tests_passed": row.tests_passed,
        "tests_total": row.tests_total,
    }
    sources = {name: parts[name][1] for name in columns if name in parts} | {"reward": row.reward_source.removesuffix(":")}
    return Graded(row.extractor, columns, sources, row.flags, parts)


def _read(trial: Gradable, folder: Path, rules: Overrides) -> tuple[ScoreReading, list[str]]:
    """The reading, and what keeps it from being one of the very files that were exported."""
    wanted = {*FIXED, *files_of(rules)}
    known = {record.path.removeprefix(f"{FOLDER}/"): record for record in trial.artifacts if record.path.startswith(f"{FOLDER}/")}
    if whole := [record.why for record in trial.artifacts if record.path in (FOLDER, f"{FOLDER}/") and record.why]:
        return ScoreReading(), [f"the verifier's folder was not exported whole: {'; '.join(whole)}"]
    files, unread = collect(folder, FOLDER, files_of(rules))
    problems = [f"{folder / FOLDER / refusal.source}: {refusal.why}" for refusal in unread]
    for name, data in files.items():
        record = known.get(name)
        if record is None or not record.sha256:
            problems.append(f"{folder / FOLDER / name}: was not exported by marathond")
        elif hashlib.sha256(data).hexdigest() != record.sha256:
            problems.append(f"{folder / FOLDER / name}: is not what was exported (sha256 {record.sha256[:12]}…)")
    left_out = []
    for name, record in known.items():
        if name not in wanted and not gate_file(name):
            continue
        if not record.sha256:
            # Not copied then, for a reason that refused it to the reading, too: a link, say.  It must not look absent now.
            left_out.append(Refusal(name, "", record.why))
        elif name not in files and not any(refusal.source == name for refusal in unread):
            problems.append(f"{folder / FOLDER / name}: is missing")
    if problems:
        return ScoreReading(), problems
    return read_score(files, verifier_exited=True, overrides=rules, unread=left_out), []
