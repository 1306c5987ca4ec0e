"""What a person decides, from the command line through the real socket and handlers into a real ledger."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from marathond.cli import mutate
from marathond.cli.client import call
from marathond.ledger.verbs import admission, findings, parks
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.service import commands
from marathond.service.args import Args
from marathond.service.exits import CallFailed
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, make_ledger, now_ms

ME = pwd.getpwuid(os.geteuid()).pw_name
WHY = ("--reason", "provider outage 02:10-02:40")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """t0001 zstd/plain scored, t0002 zstd/goal running, c0003 rust/plain parked, c0004 rust/goal open; a server that answers."""
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
    monkeypatch.chdir(folder)
    rig = Rig(folder, capsys)
    make_ledger(rig.ledger)
    with rig.sql() as c:
        have.fill(c)
        have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "plain"), "scored"))
        have.bring_to(c, have.cell(c, "zstd", "goal"), "running", now_ms=now_ms())
        parks.park_cell(c, have.cell(c, "rust", "plain"), code="passes_exhausted", detail="3 of 3", author="daemon", now_ms=now_ms())
        rig.begin_life(c)
    with rig.serving():
        yield rig
    shutil.rmtree(folder)


def one(rig: Rig, sql: str) -> Any:
    with rig.sql() as c:
        return c.execute(sql).fetchone()[0]


def test_void_and_again(rig: Rig) -> None:
    said = rig.ask("void", "t0001", *WHY, "--code", "provider")
    assert said.splitlines() == [
        "voided t0001 (plain, score was known: reward 1)",
        "  its score was known when it was withdrawn: counted as a post-score void of plain in every report",
        "  1 trial of the same block still stands; to withdraw both sides: marathonctl void t0001 --pair --reason …",
        "  1 cell open again · undo (until the cell runs again; pause first): marathonctl unvoid t0001 --reason …",
    ]
    with rig.sql() as c:
        row = c.execute("SELECT author, reason, code, decided_by, score_was_known FROM void").fetchone()
        assert tuple(row) == (ME, "provider outage 02:10-02:40", "provider", "operator", 1)
    again = rig.ask("void", "t0001", "--reason", "another reason")
    assert again.startswith(f"t0001 already voided by {ME} at ") and again.endswith("Z: provider outage 02:10-02:40\n")
    assert one(rig, "SELECT count(*) FROM void") == 1
    assert rig.control.said("trial_voided") == []


def test_a08_pair_voids_both_sides_and_the_running_one_is_torn_down(rig: Rig) -> None:
    said = rig.ask("void", "t0001", "--pair", *WHY)
    assert said.splitlines()[:2] == [
        "voided t0001 (plain, score was known: reward 1) and its block: t0002 goal",
        "  1 of them had a score: counted as post-score voids: t0001 plain reward 1",
    ]
    assert said.splitlines()[-1] == (
        "  1 cell open again, 1 more as soon as its container is gone · undo (until the cell runs again; pause first): "
        "marathonctl unvoid --block b0001 --reason …"
    )
    assert rig.control.said("trial_voided") == [(2,)] and rig.control.said("wake")
    undone = rig.run("unvoid", "--block", "b0001", "--reason", "wrong block")
    assert undone.code == 1  # one comes back, the one that was running cannot
    assert undone.out.splitlines() == [
        "t0001 (plain) is scored again",
        "t0002 left as it is: it was running when it was voided: there is no result to come back to",
    ]


def test_void_by_filters_and_first_without_doing_it(rig: Rig) -> None:
    said = rig.ask("void", "--arm", "goal", "--dry-run", *WHY)
    assert said.splitlines() == ["would void 1 trial; nothing was changed", "  t0002  goal  zstd  replicate 1  running"]
    assert one(rig, "SELECT count(*) FROM void") == 0
    assert rig.ask("void", "--task", "rust", *WHY) == "no trial meets these filters; nothing was changed\n"
    assert "voided t0002 (goal, score unknown)" in rig.ask("void", "--since", "1h", *WHY)
    batch = one(rig, "SELECT batch FROM void")
    assert rig.run("unvoid", "--batch", batch, "--reason", "no").code == 1


def test_a08_a_whole_block_and_what_is_known_of_it_before_anything_is_done(rig: Rig) -> None:
    said = rig.ask("void", "--block", "b0001", "--dry-run", *WHY)
    assert said.splitlines() == [
        "would void 2 trials; nothing was changed",
        "  t0001  plain  zstd  replicate 1  scored, reward 1 is known",
        "  t0002  goal  zstd  replicate 1  running",
        "  1 post-score void among them; counted as such in every report",
    ]
    done = rig.ask("void", "--block", "b0001", *WHY).splitlines()
    assert done[:2] == [
        "voided 2 trials: t0001 plain, t0002 goal",
        "  1 of them had a score: counted as post-score voids: t0001 plain reward 1",
    ]
    assert "still stand" not in done[2] and one(rig, "SELECT count(*) FROM void WHERE score_was_known") == 1


def test_a_dry_run_says_what_the_real_one_does(rig: Rig) -> None:
    """Of a void: what is voided already is not voided again.  Of its undoing: what comes back, what does not, and nothing is changed."""
    rig.ask("void", "t0001", *WHY)
    assert rig.ask("void", "t0001", "--dry-run", *WHY).splitlines() == [
        "t0001 (plain) is voided already",
        "would void 0 trials; nothing was changed",
    ]
    wanted = ("unvoid", "--block", "b0001", "--reason", "wrong block")
    would = rig.run(*wanted, "--dry-run")
    assert would.out.splitlines() == [
        "t0001 (plain) would be scored again",
        "t0002 would be left as it is: it is not voided",
        "nothing was changed",
    ]
    assert one(rig, "SELECT state FROM trial WHERE trial_id = 1") == "voided"
    done = rig.run(*wanted)
    assert done.code == would.code == 0
    assert done.out.splitlines() == ["t0001 (plain) is scored again", "t0002 left as it is: it is not voided"]


def test_a08_a_pair_over_a_parked_block_says_that_its_cells_stay_parked(rig: Rig) -> None:
    rig.ask("void", "t0001", *WHY)
    with rig.sql() as c:
        parks.park_cell(c, have.cell(c, "zstd", "plain"), code="task_changed", detail="d", author="daemon", now_ms=now_ms())
    assert rig.ask("unvoid", "t0001", *WHY) == "t0001 (plain) is scored again\n"
    with rig.sql() as c:
        assert c.execute("SELECT state FROM v_cell WHERE trial = 't0001'").fetchone()[0] == "done", "a park takes no result away"
    said = rig.ask("void", "t0001", "--pair", *WHY).splitlines()
    assert said[-1].startswith("  0 cells open again, 1 more as soon as its container is gone, 1 parked (marathonctl unpark) · undo")


def test_a08_a_pair_named_by_a_trial_that_was_voided_before_takes_what_stands_in_its_cell_too(rig: Rig) -> None:
    rig.ask("void", "t0001", *WHY)
    with rig.sql() as c:
        again = have.bring_to(c, have.cell(c, "zstd", "plain"), "scored")
        have.let_go(c, again)
    assert again.trial_id == 3
    would = rig.ask("void", "t0001", "--pair", "--dry-run", *WHY).splitlines()
    assert would[:2] == ["t0001 (plain) is voided already", "would void 2 trials; nothing was changed"]
    done = rig.ask("void", "t0001", "--pair", *WHY).splitlines()
    assert done[0].startswith(f"t0001 already voided by {ME} at ") and done[1] == "voided 2 trials: t0002 goal, t0003 plain"
    assert not [line for line in done if "still stand" in line]
    with rig.sql() as c:
        assert not c.execute("SELECT 1 FROM cell_state WHERE block_id = 1 AND trial_id IS NOT NULL").fetchall()


def test_undoing_what_was_never_run_says_so(rig: Rig) -> None:
    assert rig.ask("unvoid", "--block", "b0002", *WHY) == "no trial there was ever run; nothing was changed\n"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["void", "t0001", *WHY, "--code", "bad_luck", "--dry-run"], 1, "--code bad_luck: unknown; known are"),
        (["review", "t0001", "--code", "provider"], 2, "review: give --accept"),
        (["review", "--reward", "1"], 2, "review: name the trial to decide"),
        (["review", *WHY], 2, "review: name the trial to decide"),
        (["void", "--block", "b0099", *WHY], 1, "no block b0099 in this ledger"),
        (["void", "t0009", *WHY], 1, "no trial t0009 in this ledger (last is t0002)"),
        (["void", "t0001", *WHY, "--code", "bad_luck"], 1, "--code bad_luck: unknown; known are"),
        (["void", *WHY], 2, "void: name trials, or give filters (--arm, --task, --replicate, --since, --block)\n"),
        (
            ["void", "t0001", "--arm", "goal", *WHY],
            2,
            "void: name trials, or give filters (--arm, --task, --replicate, --since, --block), not both",
        ),
        (["void", "--arm", "gaol", *WHY], 2, "no arm gaol in this campaign; there are: plain, goal"),
        (["void", "--task", "ruts", *WHY], 2, "no task ruts in this campaign; there are: "),
        (["void", "--arm", "gaol", "--dry-run", *WHY], 2, "no arm gaol in this campaign; there are: plain, goal"),
        (["void", "--arm", "goal", "--campaign", "y", *WHY], 2, "no campaign y in this ledger"),
        (["void", "--since", "yesterday", *WHY], 2, "--since 'yesterday': must be such as 90m"),
        (["void", "--since", "999999d", *WHY], 2, "--since '999999d': is before 1970"),
        (["void", "--since", "0001-01-01", *WHY], 2, "--since '0001-01-01': is before 1970"),
        (["void", "t0001", "--reason", " \x1b[2J "], 2, "reason: is needed"),
        (["unvoid", "t0001", "t0002"], 2, ""),
        (["unvoid", *WHY], 2, "unvoid: give one of"),
        (["unvoid", "--block", "b0099", *WHY], 1, "no block b0099 in this ledger"),
        (["unvoid", "--batch", "zzz", *WHY], 1, "no batch zzz of voids in this ledger"),
        (["retry", "t0001", *WHY], 1, "t0001 counts for this cell: void it first"),
        (["retry", "c0099", *WHY], 1, "no cell c0099 in this ledger"),
        (["unpark", *WHY], 2, "unpark: give one of CELL, --task, --arm, --all"),
        (["unpark", "--all", "--arm", "goal", *WHY], 2, "unpark: give one of CELL, --task, --arm, --all"),
        (["void", "t0001"], 2, 'marathonctl: void: --reason "…" is needed: say why'),
        (["pause"], 2, 'marathonctl: pause: --reason "…" is needed: say why'),
        (["retry", "t0001", "--reason", " "], 2, 'marathonctl: retry: --reason "…" is needed: say why'),
        (["unpark", "--task", "no", *WHY], 2, "no task no in this campaign; there are: "),
        (["review", "t0001", "--accept", "--reward", "1", *WHY], 1, "t0001 is not in review but scored"),
        (["review", "t0001", "--accept", "--reward", "0", *WHY], 1, "t0001 is not in review but scored"),
        (["review", "t0001", "--accept", *WHY], 1, "t0001 is not in review but scored"),
        (["review", "t0001", "--accept", "--void", *WHY], 2, "review: give --accept"),
        (["review", "t0001", "--accept", "--reward", "2", *WHY], 2, ""),
        (["ack", "7", *WHY], 1, "no open finding 7; open are: none"),
        (["set", "concurrency", *WHY], 2, "must be KEY=VALUE"),
        (["set", "concurency=8", *WHY], 2, "did you mean concurrency?"),
        (["set", "concurrency=0", *WHY], 2, "must be at least 1"),
        (["set", "order=alphabetical", *WHY], 2, "must be one of replicate-major"),
        (["stop", "--now"], 2, "stop: --now needs --reason"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(rig: Rig, argv: list[str], code: int, words: str) -> None:
    with rig.sql() as c:
        before = c.execute(
            "SELECT (SELECT count(*) FROM void), (SELECT count(*) FROM setting_change), (SELECT count(*) FROM score)"
        ).fetchone()
        answer = rig.run(*argv)
        after = c.execute(
            "SELECT (SELECT count(*) FROM void), (SELECT count(*) FROM setting_change), (SELECT count(*) FROM score)"
        ).fetchone()
    assert (answer.code, answer.out) == (code, "") and words in answer.err
    assert "Traceback" not in answer.err and (not words or answer.err.count("\n") == 1)
    assert tuple(before) == tuple(after) and rig.control.acts == []


def test_review_is_listed_and_decided(rig: Rig) -> None:
    assert rig.ask("review") == "nothing to review\n"
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "rust", "goal"), "review"))
    listed = rig.ask("review", "list").splitlines()
    assert listed[1].split()[:4] == ["t0003", "rust", "goal", "unreadable"]
    no_reward = rig.run("review", "t0003", "--accept", *WHY)
    assert no_reward.code == 1 and "needs --reward" in no_reward.err
    assert rig.ask("review", "t0003", "--accept", "--reward", "0.5", *WHY) == "t0003 accepted with reward 0.5\n"
    assert rig.ask("review", "t0003", "--accept", "--reward", "0.5", *WHY).startswith(f"t0003 already accepted by {ME} at ")
    assert one(rig, "SELECT count(*) FROM score WHERE trial_id = 3") == 1
    other = rig.run("review", "t0003", "--accept", "--reward", "1", *WHY)
    assert other.code == 1 and "not in review but scored" in other.err


@pytest.mark.parametrize("zero", ["0", "0.0"])
def test_a_reward_of_zero_is_a_reward(rig: Rig, zero: str) -> None:
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "rust", "goal"), "review"))
    assert rig.ask("review", "t0003", "--accept", "--reward", zero, *WHY) == "t0003 accepted with reward 0\n"
    assert one(rig, "SELECT reward FROM score WHERE trial_id = 3") == 0
    assert rig.ask("review", "t0003", "--accept", "--reward", zero, *WHY).startswith("t0003 already accepted by ")


def test_a_doubtful_trial_may_be_voided(rig: Rig) -> None:
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "rust", "goal"), "review"))
    assert rig.ask("review", "t0003", "--void", *WHY) == "t0003 voided\n"
    assert rig.ask("review", "t0003", "--void", *WHY).startswith("t0003 already voided by ")
    assert one(rig, "SELECT state FROM cell_state WHERE cell_id = (SELECT cell_id FROM trial WHERE trial_id = 3)") == "open"


def test_parked_cells_are_opened_again(rig: Rig) -> None:
    with rig.sql() as c:
        cell = have.cell(c, "rust", "plain")
    assert rig.ask("retry", f"c{cell:04d}", *WHY) == f"c{cell:04d} is open again\n"
    assert rig.ask("retry", f"c{cell:04d}", *WHY) == f"c{cell:04d} is open already\n"
    assert rig.ask("retry", "t0002", *WHY).endswith("is being run already\n")
    assert rig.ask("unpark", "--all", *WHY) == "nothing was parked there\n"
    with rig.sql() as c:
        parks.park_cell(c, cell, code="passes_exhausted", detail="3 of 3", author="daemon", now_ms=now_ms())
    assert rig.ask("unpark", "--task", "rust", *WHY) == "1 park ended\n"


def test_f03_resume_after_a_broken_invariant_ends_its_finding_too_and_no_other(rig: Rig) -> None:
    """Nothing else ever would, and the campaign's report would be withheld for ever."""
    at = now_ms()
    with rig.sql() as c:
        for code, subject in (("invariant_broken", "t0001"), ("infra_disparity", "goal")):
            findings.raise_finding(c, code=code, severity="stop_loss", subject=subject, detail="d", campaign_id=1, now_ms=at)
    assert rig.ask("resume") == "admission is open already\n"
    assert one(rig, "SELECT count(*) FROM finding WHERE closed_at_ms IS NULL") == 2
    with rig.sql() as c:
        admission.open_stop(c, "invariant", detail="t0001: d", author="marathond", until_ms=None, now_ms=at)
    rig.ask("resume")
    assert one(rig, "SELECT group_concat(code) FROM finding WHERE closed_at_ms IS NULL") == "infra_disparity"


def test_pause_resume_drain(rig: Rig) -> None:
    assert rig.ask("resume") == "admission is open already\n"
    assert rig.ask("pause", "--reason", "lunch").startswith("paused: nothing new starts")
    again = rig.ask("pause", "--reason", "other")
    assert again.startswith(f"already paused by {ME} at ") and again.endswith(": lunch\n")
    assert rig.ask("drain", "--reason", "upgrade").startswith("draining: ")
    assert rig.control.said("request_stop") == [("drain", ME, "upgrade")]
    ended = rig.ask("resume", "--reason", "back").splitlines()
    assert [line.split()[:2] for line in ended] == [["ended", "pause"], ["ended", "drain"]]
    assert one(rig, "SELECT count(*) FROM admission_stop WHERE ended_at_ms IS NULL") == 0


def test_stop_and_submit_reach_the_daemon(rig: Rig) -> None:
    assert f"stopping pid {os.getpid()}: running agents go on" in rig.ask("stop")
    assert "running trials are voided" in rig.ask("stop", "--now", "--reason", "power cut")
    assert rig.control.said("request_stop") == [("term", ME, "marathonctl stop"), ("now", ME, "power cut")]
    submitted = rig.run("submit")
    assert submitted.code == 0 and submitted.out == "submitted: 1 arm added, 4 cells added, 2 cells parked\n" and "v_cell" in submitted.err
    assert rig.control.said("submit") == [(ME,)]
    rig.control.result = SubmitResult(1, False, 0, 0, 0, 0, 2)
    assert rig.ask("submit") == "submitted: 2 parked cells open again, to be tried\n"
    rig.control.result = SubmitResult(1, False, 0, 0, 0, 0, 0, ("daemon.out_dir", "network.range"))
    later = rig.run("submit")
    assert (later.code, later.out) == (0, "submitted: nothing new\n")
    assert later.err == "counts from marathond's next start: daemon.out_dir, network.range\n"


def test_a_submission_of_another_file_than_the_daemons_is_refused_with_both_names(rig: Rig) -> None:
    """The "nothing new" of the daemon's own file would pass for an answer about the other one."""
    own, other, link = (rig.state_dir / name for name in ("own.toml", "other.toml", "link.toml"))
    for file in (own, other):
        file.write_text("")
    link.symlink_to(own)
    rig.config = link  # of `restart with a version`: the daemon reads whatever it points to
    refused = rig.run("-c", "other.toml", "submit")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"marathonctl: submit: the running marathond uses {link}, not {other}: change that file, or name it "
        f"(marathonctl -c {link} submit); to run {other}, restart marathond with it\n"
    )
    assert rig.control.said("submit") == [] and rig.control.said("wake") == []
    assert json.loads(rig.run("-c", "other.toml", "submit", "--json").err)["exit"] == 1
    for same in (own, link, Path("own.toml")):
        assert rig.run("-c", str(same), "submit").code == 0
    (rig.state_dir / "marathond.toml").write_text("")
    assert f"not {rig.state_dir / 'marathond.toml'}: " in rig.run("submit").err, "found is as good as named"
    (rig.state_dir / "marathond.toml").unlink()
    assert rig.run("submit").code == 0, "who has no configuration means the daemon's"
    assert len(rig.control.said("submit")) == 4
    (rig.state_dir / "mounted.toml").hardlink_to(own)
    assert rig.run("-c", "mounted.toml", "submit").code == 0, "one file under two names, as through a bind mount"
    with pytest.raises(CallFailed, match="config: must be an absolute path"):
        call(rig.socket, "submit", {"config": "other.toml"})


def test_a_submission_beside_a_daemon_that_does_not_know_its_argument_is_asked_without_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = rig.state_dir / "own.toml"
    own.write_text("")

    class Older(Args):
        def __init__(self, verb: str, given: Mapping[str, Any], known: Collection[str]) -> None:
            super().__init__(verb, given, () if verb == "submit" else known)

    monkeypatch.setattr(commands, "Args", Older)
    done = rig.run("-c", "own.toml", "submit")
    assert done.code == 0 and len(rig.control.said("submit")) == 1
    assert done.err.startswith("note: marathond runs an older version, which reads its own configuration, whichever file is meant here\n")
    with pytest.raises(CallFailed, match=r"^submit: other: unknown argument$"):
        mutate.submit(rig.socket, {"other": "x"})
    assert len(rig.control.said("submit")) == 1, "any other refusal is one"


def test_knobs_are_set_once_with_author(rig: Rig) -> None:
    assert rig.ask("set", "concurrency=8", "--reason", "night") == (
        "admission.concurrency = 8 (was 4)\n"
        "  holds for this ledger, over restarts and in further campaigns, too, whatever the configuration says, until marathonctl set "
        "concurrency=default --reason …\n"
    )
    with rig.sql() as c:
        row = c.execute("SELECT key, old_json, new_json, author, reason FROM setting_change").fetchone()
    assert tuple(row) == ("admission.concurrency", "4", "8", ME, "night")
    assert len(rig.control.said("apply_settings")) == 1
    (told,) = [line for line in rig.run("status").out.splitlines() if "concurrency" in line]
    assert told.startswith(f"admission.concurrency = 8: set by {ME} at ") and "(night), until marathonctl set concurrency=default" in told
    rig.control.values["admission.concurrency"] = 8
    assert rig.ask("set", "admission.concurrency=8", "--reason", "night") == "admission.concurrency is 8 already\n"
    assert rig.ask("set", "concurrency=default", "--reason", "morning") == (
        "admission.concurrency = 4 (was 8)\n  as the configuration has it, now and after each change of it\n"
    )
    assert one(rig, "SELECT new_json FROM setting_change ORDER BY change_id DESC LIMIT 1") == "null"
    assert "concurrency" not in rig.run("status").out
    assert rig.ask("set", "passes=default", "--reason", "morning") == "admission.passes is 3 already\n"
    assert one(rig, "SELECT count(*) FROM setting_change") == 2


def test_findings_are_acknowledged_by_number_or_code(rig: Rig) -> None:
    with rig.sql() as c:
        for subject in ("n1", "n2"):
            findings.raise_finding(c, code="leak", severity="error", subject=subject, detail="d", campaign_id=None, now_ms=now_ms())
    assert rig.ask("ack", "1", *WHY) == "1 of 2 open findings acknowledged; 1 alarm left\n"
    both = rig.ask("ack", "leak", *WHY).splitlines()
    assert both[0].startswith(f"finding 1 leak already acknowledged by {ME} at ") and both[1] == "1 of 2 open findings acknowledged"
    assert "healthy" not in rig.run("findings").out and rig.run("findings").code == 0


def test_without_a_daemon_changes_are_exit_3_and_stop_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder))
    monkeypatch.chdir(folder)
    rig = Rig(folder, capsys)
    for argv in (
        ["void", "t1"],
        ["unvoid", "t1"],
        ["retry", "t1"],
        ["unpark", "--all"],
        ["pause"],
        ["drain"],
        ["ack", "1"],
        ["set", "cap=8"],
    ):
        answer = rig.run(*argv, *WHY)
        assert answer.code == 3 and answer.out == "" and answer.err.startswith("marathonctl: marathond is not running (")
    assert rig.run("submit").code == 3 and rig.run("resume").code == 3
    assert rig.ask("stop") == "marathond is not running; nothing to stop\n"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("verb", "args", "words"),
    [
        ("explode", {}, "must be one of ping, void"),
        ("ping", {"x": 1}, "ping: x: unknown argument"),
        ("void", {"trials": "all", "reason": "x"}, "must be a list"),
        ("void", {"trials": [True], "reason": "x"}, "must be a list of whole numbers"),
        ("void", {"trials": [1], "reason": "x" * 1001}, "must be a text of 1 to 1000"),
        ("void", {"trials": [2**70], "reason": "x"}, "must be a list of whole numbers"),
        ("void", {"trials": [1], "arm": "plain", "reason": "x"}, "give one or the other"),
        ("void", {"trials": [1], "pair": "yes", "reason": "x"}, "must be true or false"),
        ("review", {"trial": 1, "accept": True, "reward": "1", "reason": "x"}, "must be a number"),
        ("review", {"accept": True, "reason": "x"}, "trial: is needed"),
        ("review", {"trial": 1, "reward": 1, "reason": "x"}, "belongs to accept"),
        ("retry", {"trial": 1, "cell": 1, "reason": "x"}, "exactly one"),
        ("set", {"key": "concurrency", "reason": "x"}, "value: is needed"),
        ("set", {"key": "cap", "value": "many", "reason": "x"}, "must be a whole number"),
        ("ack", {"reason": "x"}, "exactly one"),
    ],
)
def test_what_another_program_sends_is_checked_before_a_verb_sees_it(rig: Rig, verb: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(CallFailed) as caught:
        call(rig.socket, verb, args, timeout_s=120)
    assert words in str(caught.value) and caught.value.exit_code == 2


def test_ping_tells_who_answers(rig: Rig) -> None:
    assert call(rig.socket, "ping", {}, timeout_s=120) == {"version": "0.1.0", "pid": os.getpid(), "health": {"degraded": ""}}
