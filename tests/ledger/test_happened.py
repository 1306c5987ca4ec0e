"""What happened: in the ledger's order, followed without a gap and without a double, and whose it is."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter

import pytest

from marathond.cli.happened import line, of_filters, of_subject, words
from marathond.cli.history import decided
from marathond.core.classify import of_verification
from marathond.core.errors import MarathonError, Refused
from marathond.core.model_rules import Found
from marathond.ledger.verbs import (
    admission,
    audited,
    campaigns,
    contrasts,
    findings,
    operator,
    parks,
    probing,
    reached,
    regrade,
    runs,
    settings,
    trials,
)
from marathond.ledger.verbs.happened import ALL, Happening, marks, newest, since
from marathond.ledger.verbs.happened_sources import SOURCES, Of
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.decisions import reopen_admission
from marathond.service.exits import CallFailed
from tests.support import ledgers as have

T0 = have.T0


@pytest.fixture
def c() -> sqlite3.Connection:
    return have.memory_ledger()


def all_of(c: sqlite3.Connection, of: Of | None = None) -> list[Happening]:
    return newest(c, of or Of(), ALL)


def said(found: list[Happening]) -> list[str]:
    return [f"{one.kind} {one.name or one.trial_id or ''} {one.what}".replace("  ", " ") for one in found]


def eventful(c: sqlite3.Connection) -> None:
    """Something of every kind."""
    campaign_id = have.fill(c)
    runs.mark_ready(c, now_ms=T0 + 1)
    contrasts.declare(c, campaign_id, [("goal", "plain")], author="ana", now_ms=T0 + 2)
    settings.set_value(c, "admission.concurrency", old=4, new=8, author="ana", reason="the host is free", now_ms=T0 + 3)
    have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "plain"), "scored", now_ms=T0 + 10))
    doubtful = have.bring_to(c, have.cell(c, "zstd", "goal"), "review", now_ms=T0 + 20)
    operator.decide_review(c, doubtful.trial_id, accept=True, reward=0.5, reason="seen it", author="ben", now_ms=T0 + 30)
    have.let_go(c, doubtful)
    operator.void_trials(c, [1], code="provider", reason="outage", author="ana", now_ms=T0 + 40)
    operator.unvoid(c, trial_id=1, author="ana", reason="it was not", now_ms=T0 + 50)
    findings.raise_finding(c, code="disk_low", severity="error", subject="/", detail="1 GB", campaign_id=None, now_ms=T0 + 60)
    findings.raise_finding(c, code="oom", severity="warning", subject="t0002", detail="killed", campaign_id=campaign_id, now_ms=T0 + 61)
    findings.ack(c, "disk_low", author="ana", reason="a larger one comes", now_ms=T0 + 70)
    findings.close_finding(c, code="disk_low", subject="/", now_ms=T0 + 80)
    admission.open_stop(c, "pause", detail="lunch", author="ana", until_ms=None, now_ms=T0 + 90)
    admission.end_stop(c, "pause", author="ben", now_ms=T0 + 100)
    rust = c.execute("SELECT task_id FROM task WHERE name = 'rust'").fetchone()[0]
    parks.park_task(c, rust, code="host_too_small", detail="needs 64 GB", author="marathond", now_ms=T0 + 110)
    operator.unpark(c, campaign_id=campaign_id, arm="goal", author="ana", reason="more memory", now_ms=T0 + 120)
    regrade.write_newer(c, [(1, ScoreRow(9, 0.25, "metrics.json:reward"))], now_ms=T0 + 130)
    runs.end_run(c, reason="SIGTERM", now_ms=T0 + 140)


def test_every_kind_is_told_in_order_once(c: sqlite3.Connection) -> None:
    eventful(c)
    found = all_of(c)
    assert len({one.key for one in found}) == len(found)
    events = [f"trial 1 {event}" for event in ("reserved", "environment_up", "agent_started", "agent_ended", "scored")]
    assert [text for text in said(found) if text.startswith("trial 1 ")] == events
    rest = [text for text in said(found) if not text.startswith(("trial 1 ", "trial 2 ", "score "))]
    assert rest == [
        "daemon started",
        "campaign x submitted",
        "daemon ready",
        "contrasts declared",
        "setting admission.concurrency set",
        "trial unreadable doubted",
        "trial provider voided",
        "trial provider unvoided",
        "finding disk_low opened",
        "finding oom opened",
        "finding disk_low acknowledged",
        "finding disk_low closed",
        "stop pause opened",
        "stop pause ended",
        "park host_too_small parked",
        "park host_too_small unparked",
        "daemon stopped",
    ]
    assert newest(c, Of(), 5) == found[-5:] and newest(c, Of(), 0) == []


def test_the_lines_say_who_what_and_why(c: sqlite3.Connection) -> None:
    eventful(c)
    told = [words(one).split("  ", 1)[1] for one in all_of(c)]
    for expected in (
        "marathond  life 1 started, 0.1.0, pid 4121 on build7",
        "campaign  x submitted by ana",
        "contrasts  declared, version 1, with 0 scores known by ana: goal - plain  (x)",
        "setting  admission.concurrency 4 -> 8 by ana: the host is free",
        "t0001  voided provider by ana: outage; its score was known  (zstd, plain, replicate 1)",
        "t0001  unvoided provider by ana: it was not  (zstd, plain, replicate 1)",
        "t0001  regraded reward 0.25: metrics.json:reward  (zstd, plain, replicate 1)",
        "t0002  accepted reward 0.50 by ben: seen it  (zstd, goal, replicate 1)",
        "finding 1  opened error disk_low /: 1 GB",
        "finding 1  acknowledged error disk_low / by ana: a larger one comes",
        "finding 1  closed error disk_low /",
        "admission  closed, pause by ana: lunch",
        "admission  pause ended by ben",
        "parked  2 cells host_too_small by marathond: needs 64 GB  (rust)",
        "marathond  life 1 stopped: SIGTERM",
    ):
        assert expected in told, told
    assert words(all_of(c)[0]).startswith("2026-09-21T14:13:20Z  ")
    assert any(
        text.startswith("unparked  c000") and text.endswith(" host_too_small by ana: more memory  (rust, goal, replicate 1)")
        for text in told
    )


def test_a_line_for_a_program_has_every_part(c: sqlite3.Connection) -> None:
    eventful(c)
    void = next(line(one) for one in all_of(c) if one.what == "voided")
    assert (void.kind, void.name, void.author, void.text, void.campaign) == ("trial", "provider", "ana", "outage", "x")
    assert (void.trial, void.task, void.arm, void.replicate, void.at) == ("t0001", "zstd", "plain", 1, "2026-09-21T14:13:20Z")
    assert void.detail["score_was_known"] == 1 and void.key.startswith("event:")


def test_whose(c: sqlite3.Connection) -> None:
    eventful(c)
    other = campaigns.submit(c, have.submission(name="y", arms=[have.arm("plain")], tasks=[have.task("zstd")]), now_ms=T0 + 200)
    findings.raise_finding(c, code="oom", severity="warning", subject="plain", detail="", campaign_id=other.campaign_id, now_ms=T0 + 201)
    assert {one.trial_id for one in all_of(c, of_filters(c, None, "goal", None, None)) if one.kind == "trial"} == {2}
    goal = said(all_of(c, of_filters(c, None, "goal", None, None)))
    assert "finding oom opened" in goal and "park host_too_small parked" in goal and "stop pause opened" not in goal
    of_first = all_of(c, of_filters(c, "x", None, None, None))
    assert [one.campaign for one in of_first if one.kind == "finding"].count("y") == 0 and "stop pause opened" in said(of_first)
    second = all_of(c, of_filters(c, "y", None, None, None))
    assert "campaign y submitted" in said(second) and not [one for one in second if one.kind == "trial"]
    one_trial = all_of(c, of_filters(c, None, None, None, "t0002"))
    assert {one.trial_id for one in one_trial if one.kind == "trial"} == {2} and "finding oom opened" in said(one_trial)
    assert not [one for one in one_trial if one.kind == "park"]
    for bad in ({"campaign": "z"}, {"arm": "z"}, {"task": "z"}, {"trial": "t0099"}, {"trial": "zz"}):
        with pytest.raises(CallFailed):
            of_filters(c, **{"campaign": None, "arm": None, "task": None, "trial": None, **bad})


def test_the_subject_of_a_history(c: sqlite3.Connection) -> None:
    eventful(c)
    zstd = have.cell(c, "zstd", "plain")
    for subject, kinds in ((f"c{zstd:04d}", {1}), ("t1", {1}), ("zstd", {1, 2}), ("goal", {2}), ("b0001", None)):
        of, _ = of_subject(c, subject, None)
        seen = {one.trial_id for one in all_of(c, of) if one.kind == "trial"}
        assert kinds is None or seen == kinds, subject
    rust = have.cell(c, "rust", "goal")
    assert said(all_of(c, of_subject(c, f"c{rust:04d}", None)[0])) == ["park host_too_small parked", "park host_too_small unparked"]
    block = c.execute("SELECT block_id FROM cell WHERE cell_id = ?", (rust,)).fetchone()[0]
    parked = [one for one in all_of(c, of_subject(c, f"b{block}", None)[0]) if one.what == "parked"]
    assert [one.cells for one in parked] == [2]
    for bad in ("c9999", "b9999", "t9999", "nobody", "t", "x1"):
        with pytest.raises(CallFailed) as refused:
            of_subject(c, bad, None)
        assert refused.value.exit_code == 2 or "t9999" in str(refused.value)


def test_what_was_decided(c: sqlite3.Connection) -> None:
    eventful(c)
    found = [text for text in said([one for one in all_of(c) if decided(one)]) if not text.startswith("score")]
    assert "finding disk_low opened" not in found and "trial 1 scored" not in found and "daemon ready" not in found
    assert {"trial provider voided", "trial provider unvoided", "trial 2 accepted", "finding disk_low acknowledged"} <= set(found)
    assert {"stop pause opened", "stop pause ended", "contrasts declared", "campaign x submitted", "park host_too_small parked"} <= set(
        found
    )


def test_what_was_put_away_and_removed(c: sqlite3.Connection) -> None:
    eventful(c)
    c.execute("INSERT INTO artifact_export (trial_id, folder, at_ms) VALUES (1, 'x/t0001', ?)", (T0 + 150,))
    before = marks(c)
    c.execute(
        """INSERT INTO archive (trial_id, file, sha256, size_bytes, files, content_bytes, author, at_ms)
           VALUES (1, '/a/t0001.tar', ?, 10, 2, 20, 'ana', ?)""",
        ("0" * 64, T0 + 160),
    )
    c.execute("UPDATE archive SET ended_at_ms = ?, ended_by = 'ben', ended_reason = 'damaged' WHERE archive_id = 1", (T0 + 170,))
    c.execute(
        """INSERT INTO prune (kind, path, trial_id, unarchived, rested_at_ms, files, size_bytes, author, reason, at_ms)
           VALUES ('artifacts', '/out/x/t0001', 1, 1, ?, 2, 20, 'ana', 'room', ?),
                  ('build_log', '/s/b.log', NULL, 0, ?, 1, 5, 'ana', 'room', ?)""",
        (T0 + 150, T0 + 180, T0, T0 + 190),
    )
    told = [words(one).split("  ", 1)[1] for one in since(c, Of(), before)[0]]
    assert told == [
        "t0001  archived /a/t0001.tar (2 files, 10 bytes) by ana",
        "t0001  given up /a/t0001.tar (2 files, 10 bytes) by ben: damaged",
        "t0001  pruned artifacts /out/x/t0001 (2 files) by ana: room",
        "pruned build_log /s/b.log (1 file) by ana: room",
    ]
    assert [one.what for one in all_of(c, of_subject(c, "t0001", None)[0])][-3:] == ["archived", "given_up", "pruned"]
    assert [one.kind for one in all_of(c, of_filters(c, None, "goal", None, None)) if one.kind in ("archive", "prune")] == []
    assert sum(decided(one) for one in all_of(c) if one.kind in ("archive", "prune")) == 4


def test_the_sequence_orders_where_the_clock_was_set_back(c: sqlite3.Connection) -> None:
    """An hour back in the middle, and again by the next daemon."""
    have.fill(c)
    first = have.admit(c, have.cell(c, "zstd", "plain"), now_ms=T0 + 5_000)
    have.prepare(c, first, now_ms=T0 - 3_600_000)
    have.start_agent(c, first.trial_id, now_ms=T0 - 3_599_000)
    runs.begin_run(c, pid=1, pid_start_ticks=1, host="h", boot_id="b", version="0.1.0", now_ms=T0 - 7_200_000)
    have.admit(c, have.cell(c, "rust", "plain"), now_ms=T0 - 7_100_000)
    assert [text for text in said(all_of(c)) if not text.startswith("campaign")] == [
        "daemon started",
        "trial 1 reserved",
        "trial 1 environment_up",
        "trial 1 agent_started",
        "daemon lost",
        "daemon started",
        "trial 2 reserved",
    ]


def test_several_lives_of_one_millisecond_each_stand_in_the_order_of_writing(c: sqlite3.Connection) -> None:
    """Each of them meets the same clock all the time, and its finding closes admission, as rules, breaker and broken invariants do it."""
    campaign_id = have.fill(c, have.submission(tasks=[have.task("zstd")], replicates=3))
    written: list[str] = []
    for life, code in enumerate(("breaker", "invariant_broken", "infra_disparity"), start=1):
        now_ms = T0 + 1_000 * life
        if life > 1:
            have.begin(c, now_ms=now_ms)
        runs.mark_ready(c, now_ms=now_ms)
        settings.set_value(c, "admission.concurrency", old=4, new=8, author="ana", reason="", now_ms=now_ms)
        cell_id = c.execute("SELECT cell_id FROM cell_state WHERE state = 'open' ORDER BY ordinal LIMIT 1").fetchone()[0]
        have.let_go(c, trial := have.bring_to(c, cell_id, "voided", now_ms=now_ms), now_ms=now_ms)
        parks.park_cell(c, cell_id, code="passes_exhausted", detail="", author="marathond", now_ms=now_ms)
        kind = {"invariant_broken": "invariant", "infra_disparity": "stop_loss"}.get(code, code)
        match code:
            case "breaker":
                probing.close(c, detail="again and again", until_ms=now_ms, words="3 of 3", now_ms=now_ms)
                probing.open_again(c, now_ms=now_ms)
            case "invariant_broken":
                told = {"code": code, "severity": "stop_loss", "subject": "t0001", "detail": "x", "campaign_id": campaign_id}
                findings.raise_finding(c, **told, now_ms=now_ms)  # type: ignore[arg-type]
                admission.open_stop(c, kind, detail="x", author="marathond", until_ms=None, now_ms=now_ms)
                reopen_admission(c, author="ana", now_ms=now_ms)
            case _:
                new = Found(code, "stop_loss", "goal", "7 of 9", stops=True, trials=(trial.trial_id,))
                audited.keep(c, [new], [], [new], campaign_id=campaign_id, now_ms=now_ms)
                reopen_admission(c, author="ana", now_ms=now_ms)
                audited.keep(c, [], [(new.code, new.subject)], [], campaign_id=campaign_id, now_ms=now_ms)
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms)
        written += ["daemon started"] if life > 1 else []
        written += ["daemon ready", "setting admission.concurrency set", f"trial {life} reserved", "trial engine_failed voided"]
        written += ["park passes_exhausted parked", f"finding {code} opened", f"stop {kind} opened", f"stop {kind} ended"]
        written += [f"finding {code} closed", "daemon stopped"]
    assert said(all_of(c)) == ["daemon started", "campaign x submitted", *written]


# ── followed ──


class Life:
    """Things happen, one at a time, as chance has it."""

    def __init__(self, c: sqlite3.Connection, dice: random.Random) -> None:
        self.c, self.dice, self.now = c, dice, T0
        arms, tasks = [have.arm(name) for name in ("plain", "goal")], [have.task(f"task-{n}") for n in range(4)]
        self.campaign = have.fill(c, have.submission(arms=arms, tasks=tasks, replicates=3))
        self.codes = 0

    def step(self) -> str:
        self.now += self.dice.randrange(-2_000, 5_000)
        act = self.dice.choice(
            [self.admit, self.finding, self.close, self.ack, self.stop, self.park, self.unpark, self.set, self.restart, self.void]
        )
        act()
        return act.__name__

    def admit(self) -> None:
        row = self.c.execute("SELECT cell_id FROM cell_state WHERE state = 'open' ORDER BY ordinal LIMIT 1").fetchone()
        if row is not None:
            admission.end_stop(self.c, "pause", author="ana", now_ms=self.now)  # what a person closed admits nothing
            have.let_go(self.c, have.bring_to(self.c, row[0], "scored", now_ms=self.now))

    def finding(self) -> None:
        code = f"code_{self.dice.randrange(3)}"
        findings.raise_finding(self.c, code=code, severity="info", subject="s", detail="", campaign_id=self.campaign, now_ms=self.now)

    def close(self) -> None:
        findings.close_finding(self.c, code=f"code_{self.dice.randrange(3)}", subject="s", now_ms=self.now)

    def ack(self) -> None:
        findings.ack(self.c, f"code_{self.dice.randrange(3)}", author="ana", reason="known", now_ms=self.now)

    def stop(self) -> None:
        if not admission.end_stop(self.c, "pause", author="ana", now_ms=self.now):
            admission.open_stop(self.c, "pause", detail="lunch", author="ana", until_ms=None, now_ms=self.now)

    def park(self) -> None:
        row = self.c.execute("SELECT cell_id FROM cell_state WHERE state = 'open' ORDER BY ordinal DESC LIMIT 1").fetchone()
        if row is not None:
            parks.park_cell(self.c, row[0], code="gone", detail="", author="marathond", now_ms=self.now)

    def unpark(self) -> None:
        operator.unpark(self.c, campaign_id=self.campaign, author="ana", reason="again", now_ms=self.now)

    def set(self) -> None:
        settings.set_value(self.c, "admission.concurrency", old=1, new=2, author="ana", reason="why", now_ms=self.now)

    def restart(self) -> None:
        if self.dice.random() < 0.5:
            runs.end_run(self.c, reason="SIGTERM", now_ms=self.now)
        have.begin(self.c, now_ms=self.now)
        runs.mark_ready(self.c, now_ms=self.now)

    def void(self) -> None:
        row = self.c.execute("SELECT trial_id FROM trial WHERE state = 'scored' LIMIT 1").fetchone()
        if row is not None:
            operator.void_trials(self.c, [row[0]], code="operator", reason="why", author="ana", now_ms=self.now)


@pytest.mark.parametrize("seed", range(4))
def test_who_follows_sees_everything_once(c: sqlite3.Connection, seed: int) -> None:
    """However many things happen between two looks: what opens and closes in between, too."""
    dice = random.Random(seed)
    life = Life(c, dice)
    acts: Counter[str] = Counter()
    for _ in range(dice.randrange(8)):
        life.step()
    seen, here = newest(c, Of(), ALL), marks(c)
    for _ in range(40):
        for _ in range(dice.randrange(6)):
            acts[life.step()] += 1
        more, here = since(c, Of(), here)
        seen += more
    keys = [one.key for one in seen]
    assert len(acts) == 10 and len(keys) == len(set(keys)) > 100
    final = all_of(c)
    assert {one.key for one in seen} == {one.key for one in final}
    # Parks that were ended together after they were made apart are told together: their numbers are those of the last of them.
    for kind in {source.name for source in SOURCES} & {"events", "set"}:
        of_kind = [one.key for one in seen if one.kind == ("trial" if kind == "events" else "setting")]
        assert of_kind == [one.key for one in final if one.key in set(of_kind)]
    assert since(c, Of(), here) == ([], here)


def test_nothing_happens_where_there_is_nothing(c: sqlite3.Connection) -> None:
    assert all_of(c) == [] and since(c, Of(), marks(c))[0] == []
    with pytest.raises(MarathonError):
        of_subject(c, "t1", None)


def test_a_command_that_a_person_ran_in_a_trial_is_told_once_and_is_a_decision(c: sqlite3.Connection) -> None:
    have.fill(c)
    admitted = have.bring_to(c, have.cell(c, "zstd", "plain"), "running", now_ms=T0 + 10)
    before = marks(c)
    for n, command in enumerate(("ps axf", "sh -c 'kill -9 1\x1b[2J'"), start=1):
        assert reached.reached_into(c, admitted.trial_id, command=command, user="", author="ana", now_ms=T0 + 100 * n) == n
    new, after = since(c, Of(), before)
    acts = [one for one in new if one.what == "reached_into"]
    assert [words(one).split("  ", 1)[1] for one in acts] == [
        "t0001  reached_into by ana: running: ps axf  (zstd, plain, replicate 1)",
        "t0001  reached_into by ana: running: sh -c 'kill -9 1'  (zstd, plain, replicate 1)",
    ]
    assert all(decided(one) for one in acts) and since(c, Of(), after)[0] == []
    assert [one.what for one in newest(c, Of(trials=(1,)), ALL)].count("reached_into") == 2
    assert not [one for one in newest(c, Of(task="rust"), ALL) if one.what == "reached_into"]
    (finding,) = findings.open_findings(c)
    assert (finding.code, finding.severity, finding.subject, finding.times) == ("reached_into", "warning", "t0001", 2)
    assert finding.detail == "ana ran a command in its container while it was running: sh -c 'kill -9 1' (the last of 2)"
    assert finding.campaign_id is not None


def test_the_score_of_a_trial_that_a_person_reached_into_is_flagged_and_stays_so(c: sqlite3.Connection) -> None:
    have.fill(c)
    untouched = have.bring_to(c, have.cell(c, "zstd", "goal"), "verifying", now_ms=T0 + 5)
    touched = have.bring_to(c, have.cell(c, "zstd", "plain"), "verifying", now_ms=T0 + 10)
    reached.reached_into(c, touched.trial_id, command="true", user="root", author="ana", now_ms=T0 + 20)
    for one in (untouched, touched):
        trials.scored(c, one.trial_id, have.good_score(), now_ms=T0 + 30)
    regrade.write_newer(c, [(touched.trial_id, ScoreRow(9, 0.25, "metrics.json:reward"))], now_ms=T0 + 40)
    flags = c.execute("SELECT trial_id, flags_json FROM score ORDER BY score_id").fetchall()
    assert [(row[0], "reached_into" in row[1]) for row in flags] == [(untouched.trial_id, False), (touched.trial_id, True), (2, True)]
    assert of_verification("reached_into")


def test_of_very_many_commands_the_first_are_kept_and_all_are_counted(c: sqlite3.Connection) -> None:
    have.fill(c)
    trial_id = have.bring_to(c, have.cell(c, "zstd", "plain"), "running", now_ms=T0).trial_id
    for n in range(reached.EACH_MAX + 3):
        assert reached.reached_into(c, trial_id, command="x" * 5_000, user="", author="ana", now_ms=T0 + n) == n + 1
    kept = [one.text for one in newest(c, Of(), ALL) if one.what == "reached_into"]
    assert len(kept) == reached.EACH_MAX and max(map(len, kept)) <= reached.COMMAND_MAX + 20
    assert findings.open_findings(c)[0].times == reached.EACH_MAX + 3


def test_nothing_is_written_of_a_trial_whose_container_is_gone(c: sqlite3.Connection) -> None:
    have.fill(c)
    done = have.bring_to(c, have.cell(c, "zstd", "plain"), "scored", now_ms=T0)
    have.let_go(c, done)
    for trial_id in (done.trial_id, 99):
        with pytest.raises(Refused, match="no container"):
            reached.reached_into(c, trial_id, command="true", user="", author="ana", now_ms=T0 + 1)
    assert findings.open_findings(c) == []
