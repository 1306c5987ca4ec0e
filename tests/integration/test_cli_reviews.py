"""``marathonctl review`` from the command line: both sides of the evidence, what each decision does, and nothing else held up."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from marathond.core import ourside
from marathond.core.classify import Evidence, Review, VerifierEnd, classify
from marathond.core.logwords import said
from marathond.core.ourside import Alike, JudgeRequest, OurSide
from marathond.core.score import Number, ScoreReading
from marathond.flow.score_row import score_row
from marathond.ledger.verbs import admission, campaigns, trials
from marathond.ledger.verbs.as_read import READ, as_read
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, now_ms

WHY = ("--reason", "the agent's own server was down")
OUTPUT = f"collecting tests\n{NASTY}\ncurl: (6) Could not resolve host: pypi.org\nFAILED 1 of 4\n"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """t0001 zstd/plain in review for suspected infrastructure; t0002 zstd/goal scored beside it; the rest open."""
    with living_rig(monkeypatch, capsys) as rig:
        with rig.sql() as c:
            suspected(rig, c)
            have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "goal"), "scored"))
        yield rig


def suspected(rig: Rig, c: sqlite3.Connection) -> None:
    admitted = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying")
    trials.verification_ended(c, admitted.trial_id, 1, outcome="exited", exit_code=1, now_ms=have.T0 + 12_000)
    reading = ScoreReading(reward=Number(0.0, "reward.txt", ""), partial=Number(0.25, "metrics.json", "partial_score"))
    judge = ourside.judge([JudgeRequest("gave_up", 429, "held_http", held=True), JudgeRequest("complete", 200, None)], {})
    ours = OurSide(judge, engine_breaks=1, alike=Alike(3, {"log:dns": 2}, 1, {}))
    seen = Evidence(VerifierEnd("exited", 1, 1), reading, True, False, False, said(OUTPUT), ours)
    decided = classify(seen)
    assert isinstance(decided, Review) and reading.reward is not None
    kept = {READ: as_read(score_row(reading, reading.reward, decided.flags))}
    shown = {**decided.evidence, **kept}
    trials.doubted(c, admitted.trial_id, code=decided.code, detail=decided.detail, evidence=shown, now_ms=now_ms() - 8_040_000)
    have.let_go(c, admitted)
    folder = rig.state_dir / "r" / "t0001" / "logs" / "verifier"
    folder.mkdir(parents=True)
    (folder / "test-stdout.txt").write_text(OUTPUT)


def test_d06_a_review_shows_what_the_verifier_said_and_what_our_side_saw(rig: Rig) -> None:
    text = rig.ask("review", "t0001")
    assert "\x1b" not in text and "\u202e" not in text
    for words in (
        "t0001  review   infrastructure_suspected   for 2h14m",
        "round 1        exited, exit code 1 after 12s, of 60 s",
        "read           reward 0 from reward.txt, partial 0.250",
        "log: dns       curl: (6) Could not resolve host: pypi.org",
        "judge          2 requests: 1 failed for the provider's or our own reasons (1 x gave_up HTTP 429 held_http), 0 for its own",
        "engine         it was away once while the verifier ran",
        "memory         no process was killed for want of it",
        "disk           none below its floor",
        "other trials   1 of this task; ended alike: log:dns in 0",
        "own solution   none by the oracle has come to an end",
        "  | FAILED 1 of 4",
        "--accept               counts as it was read: reward 0, all its columns; the cell is done",
        "a post-score void, for reward 0 is known",
        "these stand in the same block: t0002 goal scored; marathonctl void t0001 --pair withdraws them, too",
        "it waits, blocks no other cell",
    ):
        assert words in text, f"{words!r} is not in\n{text}"


def test_d02_a_review_of_the_oracles_own_trial_says_that_it_is_the_solution(rig: Rig) -> None:
    evidence = {"oracles_alike": {"score_unreadable": 0}, "others_alike": {}}
    with rig.sql() as c:
        arms = (have.arm("nothing"), replace(have.arm("solution"), kind="oracle"))
        campaigns.submit(c, have.submission(name="y", arms=arms, replicates=2), now_ms=have.T0)
        told = []
        for replicate in (1, 2):
            admitted = have.bring_to(c, have.cell(c, "zstd", "solution", replicate), "verifying")
            trials.doubted(c, admitted.trial_id, code="score_unreadable", detail="d", evidence=evidence, now_ms=now_ms())
            told.append(" ".join(rig.ask("review", f"t{admitted.trial_id:04d}").split()))
    assert "own solution graded here, and this is how it ended; no other by the oracle has come to an end" in told[0]
    assert "graded here, and this is how it ended; 1 more by the oracle; ended alike: score_unreadable in 1" in told[1]


def test_it_fits_80_columns_and_cuts_no_evidence(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from marathond.cli.output import Screen, display_width

    for width in (80, 160):
        monkeypatch.setattr("marathond.cli.commands_decide.screen", lambda width=width: Screen(width, False))
        shown = rig.ask("review", "t0001")
        assert all(display_width(line) <= width for line in shown.splitlines())
        whole = " ".join(shown.replace("│", " ").split())
        assert "Could not resolve host: pypi.org" in whole
        listed = rig.ask("review").splitlines()
        assert all(display_width(line) <= width for line in listed)
        assert listed[1].split() == ["t0001", "zstd", "plain", "infrastructure_suspected", "2h14m", "0.00"]
        assert "our side saw" in " ".join(listed), "the reason stands below, not cut at the edge"


def test_json_has_the_whole_case(rig: Rig) -> None:
    case = json.loads(rig.ask("review", "t0001", "--json"))
    assert case["read"]["partial"] == 0.25 and case["known_reward"] == 0
    assert case["review"]["evidence"]["judge"]["ours"] == 1 and case["others_now"]["others"] == 1
    assert case["block"] == [{"trial": "t0002", "arm": "goal", "state": "scored"}] and case["age_ms"] >= 8_040_000
    listed = json.loads(rig.ask("review", "--json"))
    assert (listed[0]["reward"], listed[0]["code"]) == (0, "infrastructure_suspected")


def test_a_review_blocks_no_other_cell(rig: Rig) -> None:
    with rig.sql() as c:
        states = [row[0] for row in c.execute("SELECT state FROM cell_state ORDER BY ordinal").fetchall()]
        assert sorted(states) == ["done", "open", "open", "review"]
        seen = admission.snapshot(c, 1, engine=have.ENGINE, limit=10)
        assert len(seen.open_cells) == seen.open_total == 2, "the planner is offered every other cell"
        for task, arm in (("rust", "plain"), ("rust", "goal")):  # same arm, same campaign, all at once
            have.let_go(c, have.bring_to(c, have.cell(c, task, arm), "scored"))
        assert c.execute("SELECT count(*) FROM cell_state WHERE state = 'done'").fetchone()[0] == 3
    shown = rig.ask("status")
    assert "1 in review, the oldest for 2h14m: marathonctl review" in shown
    assert json.loads(rig.ask("status", "--json"))["oldest_review_ms"] <= time.time_ns() // 1_000_000 - 8_040_000


def test_d06_accepted_as_it_was_read_or_by_a_persons_word_or_voided_aloud(rig: Rig) -> None:
    with rig.serving():
        assert rig.run("review", "t0001", "--accept", "--code", "provider", *WHY).err == "marathonctl: review: code: belongs to a void\n"
        assert rig.ask("review", "t0001", "--accept", *WHY) == "t0001 accepted with reward 0, as it was read\n"
    with rig.sql() as c:
        row = c.execute("SELECT reward, partial, flags_json FROM score WHERE trial_id = 1").fetchone()
    assert tuple(row) == (0.0, 0.25, '["log:dns","engine_away","accepted_as_read"]')
    assert "accepted by" in rig.ask("review", "t0001") and "it is scored now" in rig.ask("review", "t0001")


def test_accepting_again_is_answered_only_for_the_same_word(rig: Rig) -> None:
    """As it was read, with all its columns, and one's own reward, without any, are two decisions also where both are 0."""
    with rig.serving():
        rig.ask("review", "t0001", "--accept", *WHY)
        assert rig.ask("review", "t0001", "--accept", *WHY).startswith("t0001 already accepted by ")
        for reward in ("0", "1"):
            other = rig.run("review", "t0001", "--accept", "--reward", reward, *WHY)
            assert (other.code, other.err) == (1, "marathonctl: t0001 is not in review but scored\n")
        assert rig.run("review", "t0001", "--void", *WHY).code == 1
    with rig.sql() as c:
        assert c.execute("SELECT count(*) FROM score WHERE trial_id = 1").fetchone()[0] == 1


def test_a_persons_own_reward_is_not_said_to_be_what_was_read(rig: Rig) -> None:
    with rig.serving():
        rig.ask("review", "t0001", "--accept", "--reward", "1", *WHY)
        assert rig.ask("review", "t0001", "--accept", "--reward", "1", *WHY).startswith("t0001 already accepted by ")
        assert rig.run("review", "t0001", "--accept", *WHY).code == 1


def test_a_void_of_a_waiting_trial_and_its_undoing_ask_the_same_question_again(rig: Rig) -> None:
    with rig.serving():
        rig.ask("void", "t0001", "--pair", *WHY)
        assert rig.run("review", "t0001", "--accept", *WHY).err == "marathonctl: t0001 is not in review but voided\n"
        assert rig.ask("unvoid", "--block", "b0001", *WHY).splitlines() == [
            "t0001 (plain) is review again",
            "t0002 (goal) is scored again",
        ]
        assert rig.ask("review", "t0001", "--accept", *WHY) == "t0001 accepted with reward 0, as it was read\n"
        assert rig.ask("void", "t0001", *WHY).startswith("voided t0001")
        assert rig.ask("unvoid", "t0001", *WHY) == "t0001 (plain) is scored again\n"


def test_a08_voiding_a_review_whose_reward_was_read_says_so(rig: Rig) -> None:
    with rig.serving():
        told = rig.ask("review", "t0001", "--void", "--code", "provider", *WHY).splitlines()
        assert told == [
            "t0001 voided (score was known: reward 0)",
            "  counted as a post-score void; to withdraw its whole block: marathonctl void t0001 --pair --reason …",
        ]
        rest = rig.ask("void", "t0001", "--pair", *WHY).splitlines()
    assert rest[0].startswith("t0001 already voided by ") and rest[1] == "voided t0002 (goal, score was known: reward 1)"
    with rig.sql() as c:
        rows = c.execute("SELECT trial, arm, code, score_was_known FROM v_void ORDER BY trial").fetchall()
    assert [tuple(row) for row in rows] == [("t0001", "plain", "provider", 1), ("t0002", "goal", "operator", 1)]


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["review", "t0002"], 1, "t0002 is scored, and was never in review"),
        (["review", "t0009"], 1, "no trial t0009 in this ledger (last is t0002)"),
        (["review", "t0001", "--reason", "x"], 2, "review: give --accept [--reward R] or --void, and --reason"),
        (["review", "t0001", "--accept"], 2, "review: give --accept [--reward R] or --void, and --reason"),
        (["review", "--void"], 2, "review: name the trial to decide"),
    ],
)
def test_what_cannot_be_shown_or_decided_is_one_line(rig: Rig, argv: list[str], code: int, words: str) -> None:
    answer = rig.run(*argv)
    assert (answer.code, answer.out, answer.err) == (code, "", f"marathonctl: {words}\n")
