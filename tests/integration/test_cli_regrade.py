"""``marathonctl regrade``: the very files that were exported, under the newest extractor; nothing guessed, nothing lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.core.score import EXTRACTOR
from marathond.ledger.open import open_for_daemon
from marathond.ledger.verbs import artifacts, campaigns, operator, regrade, trials
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.results import read_results
from marathond.ledger.verbs.trials import ScoreRow
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig, now_ms
from tests.support.published import printed

METRICS = json.dumps({"partial_score": 0.674, "total_passed": 3, "total_tests": 4})
OLD = ScoreRow(1, 0.0, "reward.txt:", None, None, None, ("verified_again", "log:dns", "no_tests"), [])
"""As extractor 1 may have written it: it knew nothing of these metrics."""


class Case:
    """Campaign y, its artifacts below ``out``."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.out = rig, rig.state_dir / "out"
        with rig.sql() as c:
            wanted = have.submission(name="y", out_dir=str(self.out), replicates=3)
            self.campaign_id = campaigns.submit(c, wanted, now_ms=have.T0).campaign_id

    def cell(self, c: sqlite3.Connection, task: str, arm: str, replicate: int) -> int:
        sql = """SELECT cell_id FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id)
                 WHERE task.name = ? AND arm.name = ? AND replicate = ? AND cell.campaign_id = ?"""
        return int(c.execute(sql, (task, arm, replicate, self.campaign_id)).fetchone()[0])

    def trial(
        self,
        replicate: int = 1,
        arm: str = "plain",
        *,
        score: ScoreRow | None = OLD,
        files: dict[str, str] | None = None,
        left_out: dict[str, str] | None = None,
        exported: bool = True,
    ) -> int:
        """A trial at rest.  ``score`` None: in review, unreadable.  ``files``: what its verifier wrote."""
        files = {"reward.txt": "0\n", "metrics.json": METRICS} if files is None else files
        with self.rig.sql() as c:
            admitted = have.bring_to(c, self.cell(c, "zstd", arm, replicate), "verifying")
            trial_id = admitted.trial_id
            trials.verification_ended(c, trial_id, 1, outcome="exited", exit_code=0, now_ms=have.T0)
            if score is None:
                trials.doubted(c, trial_id, code="score_unreadable", detail="d", evidence={}, now_ms=have.T0)
            else:
                trials.scored(c, trial_id, score, now_ms=have.T0)
            have.let_go(c, admitted)
            folder = f"y/zstd__{trial_id}"
            records = []
            for name, text in files.items():
                path = self.out / folder / "verifier" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                records.append(ArtifactRecord(f"verifier/{name}", hashlib.sha256(text.encode()).hexdigest(), len(text)))
            records += [ArtifactRecord(f"verifier/{name}", "", 0, why) for name, why in (left_out or {}).items()]
            if exported:
                artifacts.exported(c, trial_id, folder=folder, records=records, now_ms=have.T0)
        return trial_id

    def file(self, trial_id: int, name: str) -> Path:
        return self.out / f"y/zstd__{trial_id}/verifier" / name

    def scores(self, trial_id: int) -> list[tuple[int, float, float | None, int | None, str]]:
        with self.rig.sql() as c:
            sql = "SELECT extractor, reward, partial, tests_passed, flags_json FROM score WHERE trial_id = ? ORDER BY score_id"
            return [tuple(row) for row in c.execute(sql, (trial_id,)).fetchall()]


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Case]:
    with living_rig(monkeypatch, capsys) as rig:
        yield Case(rig)


def test_what_a_newer_extractor_reads_is_shown_and_written_and_the_older_score_is_kept(case: Case) -> None:
    one = case.trial()
    said = case.rig.ask("regrade").splitlines()
    assert said[0].split() == ["trial", "column", "old", "new", "from"]
    rows = [line.split() for line in said[1:-1]]
    assert ["t0001", "partial", "-", "0.674", "metrics.json:partial_score"] in rows
    assert ["tests_passed", "-", "3", "metrics.json:total_passed"] in rows and ["test_rate", "-", "0.75"] in [row[:3] for row in rows]
    assert ["flags", "no_tests", "-"] in rows
    assert said[-1] == (f"1 trial read by extractor {EXTRACTOR}: 0 alike · 1 differ, newer scores written; the older ones are kept")
    older, newer = case.scores(one)
    assert older == (1, 0.0, None, None, '["verified_again","log:dns","no_tests"]')
    assert newer == (EXTRACTOR, 0.0, 0.674, 3, '["verified_again","log:dns"]'), "flags of the verification are carried over"
    with case.rig.sql() as c:
        assert tuple(c.execute("SELECT partial, test_rate FROM v_trial WHERE trial = 't0001'").fetchone()) == (0.674, 0.75)
        assert c.execute("SELECT stop_reason FROM run ORDER BY run_id DESC LIMIT 1").fetchone()[0] == "marathonctl regrade"
    again = case.rig.ask("regrade")
    assert again == f"1 trial read by extractor {EXTRACTOR}: 1 alike · 0 differ\n" and len(case.scores(one)) == 2
    shown = case.rig.ask("show", "t0001")
    assert "score 1 of 2, of " in shown and "score 2 of 2, of " in shown
    assert shown.index("older, kept, counts no more") < shown.index("the newest: it counts")


def test_e07_a_file_that_is_missing_or_another_refuses_its_trial_by_name_and_no_other(case: Case) -> None:
    fine, gone, other, planted = case.trial(1), case.trial(2), case.trial(3), case.trial(1, "goal", files={"reward.txt": "0\n"})
    case.file(gone, "metrics.json").unlink()
    case.file(other, "reward.txt").write_text("1\n")
    case.file(planted, "reward.json").write_text('{"reward": 1}')
    answer = case.rig.run("regrade")
    assert answer.code == 1 and answer.err == ""
    for trial_id, name, why in (
        (gone, "metrics.json", "is missing"),
        (other, "reward.txt", "is not what was exported (sha256 "),
        (planted, "reward.json", "was not exported by marathond"),
    ):
        assert f"t{trial_id:04d} zstd / " in answer.out and f"{case.file(trial_id, name)}: {why}" in answer.out
        assert len(case.scores(trial_id)) == 1
    assert len(case.scores(fine)) == 2 and answer.out.splitlines()[-1].endswith(" · 3 refused")


def test_a_file_that_was_refused_when_it_was_read_does_not_look_absent_now(case: Case) -> None:
    """reward.json was a link then: reward.txt beside it must not become the reward."""
    one = case.trial(files={"reward.txt": "1\n"}, left_out={"reward.json": "symbolic link"})
    answer = case.rig.run("regrade", "t0001")
    assert answer.code == 1 and f"extractor {EXTRACTOR} reads no reward" in answer.out and "symbolic link" in answer.out
    assert len(case.scores(one)) == 1


def test_a_folder_that_became_a_link_is_not_followed(case: Case) -> None:
    one = case.trial()
    folder = case.file(one, "reward.txt").parent
    shutil.move(folder, folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))
    answer = case.rig.run("regrade")
    assert answer.code == 1 and "verifier is a symbolic link" in answer.out and len(case.scores(one)) == 1


def test_a_persons_word_is_never_overwritten(case: Case) -> None:
    one = case.trial(score=None)
    with case.rig.sql() as c:
        operator.decide_review(c, one, accept=True, reward=1.0, reason="by hand", author="ana", now_ms=now_ms())
    assert "kept as it is: its reward is a person's word" in case.rig.ask("regrade")
    assert [row[:2] for row in case.scores(one)] == [(0, 1.0)]


def test_a_review_that_is_readable_now_is_named_and_decided_by_a_person(case: Case) -> None:
    one = case.trial(score=None)
    blind = case.trial(2, score=None, files={"metrics.json": METRICS})
    answer = case.rig.run("regrade")
    assert answer.code == 0 and answer.err == f"decide: marathonctl review t{one:04d}\n"
    assert f"readable now: in review (score_unreadable); extractor {EXTRACTOR} reads reward 0 from reward.txt" in answer.out
    assert f"t{blind:04d} zstd / plain: kept as it is: in review (score_unreadable), and still not readable" in answer.out
    assert case.scores(one) == case.scores(blind) == []


def test_a_dry_run_writes_nothing_and_needs_no_lock(case: Case) -> None:
    one = case.trial()
    daemon = open_for_daemon(case.rig.ledger, host=socket.gethostname(), filesystem_type="ext4", now_ms=now_ms(), pid=4121)
    try:
        said = case.rig.ask("regrade", "--dry-run")
        assert said.splitlines()[-1].endswith(": 0 alike · 1 would differ, nothing was written") and len(case.scores(one)) == 1
        refused = case.rig.run("regrade")
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.startswith("marathonctl: marathonctl regrade needs the ledger for itself: ledger ")
        assert "is in use by pid 4121 on host" in refused.err and refused.err.endswith("; stop it first\n")
    finally:
        daemon.close()


def test_what_cannot_be_read_again_is_refused_by_name(case: Case) -> None:
    waiting = case.trial(exported=False)
    void = case.trial(2)
    later = case.trial(3, score=ScoreRow(EXTRACTOR + 1, 0.0, "reward.txt"))
    with case.rig.sql() as c:
        operator.void_trials(c, [void], code="operator", reason="r", author="ana", now_ms=now_ms())
        running = have.bring_to(c, case.cell(c, "rust", "plain", 1), "running").trial_id
    answer = case.rig.run("regrade", *(f"t{trial:04d}" for trial in (waiting, void, later, running)))
    assert answer.code == 1
    for words in (
        "its artifacts are not exported yet",
        "it is voided: only a score that counts is read again",
        f"its score is by extractor {EXTRACTOR + 1}, which is newer than this one ({EXTRACTOR})",
        "it is running: only a score that counts is read again",
    ):
        assert words in answer.out
    assert case.rig.run("regrade", "--task", "zstd").out.count("refused") == 3, "of a whole campaign the voided and the live are passed by"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["regrade", "t0099"], "no trial t0099 in this ledger"),
        (["regrade", "--campaign", "z"], "no campaign z; there are: y, x"),
        (["regrade", "--task", "no"], "no task no in campaign y; there are: zstd, rust"),
        (["regrade", "t0001", "--task", "zstd"], "regrade: name trials, or give --campaign and --task, not both"),
        (["regrade", "one"], "must be a trial such as t0871"),
    ],
)
def test_what_is_not_there_is_one_line(case: Case, argv: list[str], words: str) -> None:
    answer = case.rig.run(*argv)
    assert answer.out == "" and answer.code in (1, 2) and words in answer.err and answer.err.count("\n") == 1


def test_a_campaign_without_a_graded_trial_says_so(case: Case) -> None:
    assert case.rig.ask("regrade") == "nothing to read again: no trial there was graded\n"


def test_json_names_every_trial(case: Case) -> None:
    case.trial()
    told = printed("regrade", case.rig.ask("regrade", "--dry-run", "--json"))
    assert (told["extractor"], told["dry_run"]) == (EXTRACTOR, True)
    (one,) = told["trials"]
    assert (
        one["outcome"] == "differs"
        and {"column": "partial", "old": "-", "new": "0.674", "source": "metrics.json:partial_score"} in one["changes"]
    )


def test_the_campaigns_stored_rules_count_without_a_configuration(case: Case) -> None:
    """``[scores.TASK]`` of the configuration that began it."""
    with case.rig.sql() as c:
        config = json.dumps({"scores": {"zstd": {"partial": "metrics.json:total_passed"}}})
        c.execute("UPDATE campaign SET config_json = ? WHERE campaign_id = ?", (config, case.campaign_id))
    case.trial()
    answer = case.rig.run("regrade", "--dry-run", "--json")
    changes = printed("regrade", answer.out)["trials"][0]["changes"]
    assert not [change for change in changes if change["column"] == "partial"], "3 is no partial score: refused, never guessed"
    assert [change for change in changes if change["column"] == "parts"]


def test_f02_killed_between_two_rows_nothing_of_it_stays_and_the_next_one_does_it_all(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child that kills itself; its lock dies with it."""
    trial_ids = [case.trial(n) for n in (1, 2, 3)]
    child = os.fork()
    if child == 0:
        real, written = trials.scored, iter((True, False))

        def mortal(c: sqlite3.Connection, trial_id: int, row: ScoreRow, *, now_ms: int) -> bool:
            if not next(written):
                os.kill(os.getpid(), signal.SIGKILL)
            return bool(real(c, trial_id, row, now_ms=now_ms))

        monkeypatch.setattr(regrade, "scored", mortal)
        try:
            case.rig.run("regrade")
        finally:
            os._exit(3)  # it came to its end: that is no kill
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert [len(case.scores(each)) for each in trial_ids] == [1, 1, 1]
    assert case.rig.ask("regrade").splitlines()[-1].startswith(f"3 trials read by extractor {EXTRACTOR}: 0 alike · 3 differ")
    assert [len(case.scores(each)) for each in trial_ids] == [2, 2, 2]


def test_a_dry_run_says_to_the_letter_what_the_real_one_does_and_results_follow_the_newest_row(case: Case) -> None:
    one, gone, waiting = case.trial(1), case.trial(2), case.trial(3, score=None)
    solved = case.trial(1, "goal", files={"reward.txt": "1\n"})
    case.file(gone, "reward.txt").unlink()

    def told(*argv: str) -> list[Any]:
        return list(printed("regrade", case.rig.run("regrade", "--json", *argv).out)["trials"])

    dry = told("--dry-run")
    assert [len(case.scores(each)) for each in (one, gone, waiting, solved)] == [1, 1, 0, 1]
    assert told() == dry
    assert [len(case.scores(each)) for each in (one, gone, waiting, solved)] == [2, 1, 0, 2]
    with case.rig.sql() as c:
        rows = c.execute("SELECT trial, reward, partial FROM v_cell WHERE campaign = 'y' AND state = 'done' ORDER BY trial").fetchall()
        assert [tuple(row) for row in rows] == [
            (f"t{one:04d}", 0.0, 0.674),
            (f"t{gone:04d}", 0.0, None),
            (f"t{solved:04d}", 1.0, None),
        ]
        done = {(cell.arm, cell.replicate): (cell.reward, cell.partial) for cell in read_results(c, "y").cells if cell.state == "done"}
        assert done == {("plain", 1): (0.0, 0.674), ("plain", 2): (0.0, None), ("goal", 1): (1.0, None)}


def test_a_void_and_its_undoing_bring_back_the_newest_score(case: Case) -> None:
    one = case.trial()
    case.rig.ask("regrade")
    with case.rig.sql() as c:
        operator.void_trials(c, [one], code="operator", reason="r", author="ana", now_ms=now_ms())
        operator.unvoid(c, trial_id=one, author="ana", reason="r", now_ms=now_ms())
        assert tuple(c.execute("SELECT state, partial FROM v_trial WHERE trial = ?", (f"t{one:04d}",)).fetchone()) == ("scored", 0.674)
    assert len(case.scores(one)) == 2


def test_artifacts_that_were_moved_away_refuse_by_path(case: Case) -> None:
    one = case.trial()
    shutil.move(case.out, case.out.with_name("moved"))
    answer = case.rig.run("regrade")
    assert answer.code == 1 and f"{case.file(one, 'reward.txt')}: is missing" in answer.out and len(case.scores(one)) == 1


def test_a_trial_whose_verifier_wrote_nothing_that_scores_is_never_scored_by_a_planted_file(case: Case) -> None:
    """In review for want of a reward: a reward file that appears in the exported folder afterwards is nobody's."""
    one = case.trial(score=None, files={"test-stdout.txt": "no reward\\n"})
    case.file(one, "reward.txt").write_text("1\\n")
    answer = case.rig.run("regrade")
    assert answer.code == 1 and "was not exported by marathond" in answer.out and case.scores(one) == []
