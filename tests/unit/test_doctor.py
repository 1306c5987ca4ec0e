"""The doctor: each rule and each look is tried with a planted fault, each source is looked at, and the doctor itself can fail."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.cli import ctl, doctor, doctor_status
from marathond.cli.doctor import Looked, Report
from marathond.cli.doctor_status import ILLNESSES, Illness, prove_status, status_of
from marathond.cli.output import Screen
from marathond.core.audit import rules
from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Found, Look, Rule
from marathond.ledger.verbs import findings, runs
from marathond.service.doctor import run, sources
from marathond.service.doctor.ground import PREFIX, remove_leftovers
from marathond.service.doctor.planted import ARMS, TASKS
from marathond.service.doctor.plants import PLANTS
from marathond.service.doctor.run import Proof, loud, prove_rules, unproven
from marathond.service.doctor.scratch import Scratch
from marathond.service.doctor.source import DEAD, HOUSE, NOTHING, OK, UNKNOWN, Daemon, Place, Source
from marathond.service.exits import Exit
from marathond.service.picture.reader import daemon_life
from tests.support import well as house
from tests.support.published import printed

# ── it can see ──


@pytest.fixture(scope="module")
def clean() -> Facts:
    with Scratch() as scratch:
        scratch.clean()
        return run.facts_of(scratch)


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.code)
def test_e01_every_rule_is_silent_on_a_clean_campaign_and_sees_its_planted_fault(rule: Rule, clean: Facts) -> None:
    assert loud(rule, clean) == ""
    assert unproven(rule, PLANTS.get(rule.code)) == ""


@pytest.mark.parametrize("illness", ILLNESSES, ids=lambda illness: illness.name.replace(" ", "-"))
def test_e01_status_shows_each_planted_illness_and_no_other_time(illness: Illness) -> None:
    with Scratch() as scratch:
        scratch.clean(replicates=[1], voids=False)
        assert not illness.seen(status_of(scratch))
    with Scratch() as scratch:
        illness.plant(scratch)
        assert illness.seen(status_of(scratch))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scratch folders of this test lie, and nobody else's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_proof_takes_less_than_ten_seconds_and_leaves_nothing_behind(temporary: Path) -> None:
    began = time.process_time()
    proofs = [*prove_rules(), *prove_status()]
    assert time.process_time() - began < 10
    assert [proof for proof in proofs if not proof.ok] == [] and len(proofs) == len(rules.RULES) + len(ILLNESSES) + 1
    assert list(temporary.iterdir()) == []


def test_a_scratch_that_ends_in_the_middle_is_removed(temporary: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Scratch() as scratch:
        assert [path.name.startswith(PREFIX) for path in temporary.iterdir()] == [True]
        scratch.trial()
        raise KeyboardInterrupt
    assert list(temporary.iterdir()) == []


def test_what_a_killed_doctor_left_is_removed_by_the_next_and_nothing_else(temporary: Path) -> None:
    dead, living, foreign = (temporary / f"{PREFIX}{name}" for name in (f"{doctor_status.NO_PID}-x", f"{os.getpid()}-x", "notes"))
    for folder in (dead, living, foreign):
        (folder / "out").mkdir(parents=True)
    assert remove_leftovers() == [dead]
    assert sorted(temporary.iterdir()) == sorted([living, foreign])


# ── the doctor can fail ──


def blind(_: Facts) -> Look:
    return Look(3, 3, "trials")


def broken(_: Facts) -> Look:
    raise KeyError("reward")


ONE, OTHER = (next(rule for rule in rules.RULES if rule.code == code) for code in ("leases_leaked", "review_backlog"))


def loud_look(_: Facts) -> Look:
    return Look(3, 3, "trials", (Found(ONE.code, "error", "plain", "always"),))


def unseeing(_: Facts) -> Look:
    return Look(0, 3, "trials", unseen="its source is dead")


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (blind, "its fault is planted, and it found nothing among 3 of 3 trials"),
        (broken, "on a clean campaign it breaks: KeyError: 'reward'"),
        (loud_look, "on a clean campaign it speaks"),
        (unseeing, "on a clean campaign it cannot see: its source is dead"),
    ],
)
def test_e01_a_rule_that_cannot_see_any_more_fails_the_doctor_by_name(
    look: Callable[[Facts], Look], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES", (replace(ONE, look=look), OTHER))
    monkeypatch.setattr("marathond.service.doctor.plants.PLANTS", {rule.code: PLANTS[rule.code] for rule in (ONE, OTHER)})
    failed = [proof for proof in prove_rules() if not proof.ok]
    assert [proof.name for proof in failed] == [ONE.code] and failed[0].why.startswith(words)
    assert report(failed).exit_code == Exit.FAILED
    assert any(f"FAILED {ONE.code}: {words}" in line for line in doctor.lines(report(failed), Screen()))


def test_e01_a_rule_without_a_planted_fault_and_a_fault_without_a_rule_fail_the_doctor() -> None:
    failed = {proof.name: proof.why for proof in prove_rules([ONE], {OTHER.code: PLANTS[OTHER.code]})}
    assert failed[ONE.code] == "no fault is planted for it: nobody knows whether it can see"
    assert failed[OTHER.code] == "a fault is planted for it, and there is no such rule"


def test_e03_a_plant_that_no_longer_fits_the_schema_fails_the_doctor_and_leaves_nothing(temporary: Path) -> None:
    def stale(scratch: Scratch) -> None:
        scratch.c.execute("UPDATE trial SET renamed = 1")

    assert unproven(ONE, stale).startswith("its fault cannot be planted: OperationalError: no such column: renamed")
    assert list(temporary.iterdir()) == []


def test_e01_a_status_that_shows_nothing_fails_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    with Scratch() as scratch:
        scratch.clean(voids=False)
        healthy = status_of(scratch)
    monkeypatch.setattr(doctor_status, "gather", lambda *_: healthy)
    failed = {proof.name for proof in prove_status() if not proof.ok}
    assert failed == {illness.name for illness in ILLNESSES}


# ── what it counts by ──


def looked(scratch: Scratch, campaign: str | None = None) -> dict[str, Source]:
    """By name."""
    with_life = scratch.reader()
    try:
        life = daemon_life(runs.last_run(with_life), scratch.control_socket, scratch.now_ms)
        row = with_life.execute("SELECT campaign_id, name FROM campaign WHERE name = ?", (campaign or scratch.campaign,)).fetchone()
        place = Place(with_life, (row[0], row[1]), scratch.folder, scratch.now_ms, Daemon(life.alive, life.why))
        return {row.name: row for row in sources.look(place)}
    finally:
        with_life.close()


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with house.well() as made:
        yield made


def report(proofs: list[Proof] | None = None, rows: list[Source] | None = None, **over: str) -> Report:
    known = Looked("/srv/m/ledger.db", "5c7a7c4e0000", "build7", "build7", "0.1.0", "x", 1, 48, "running, pid 7", **over)
    return Report(known, [Proof("rule", "some")] if proofs is None else proofs, rows or [])


def test_e01_where_every_source_is_alive_each_says_of_how_much(scratch: Scratch) -> None:
    rows = looked(scratch)
    assert {name: row.why for name, row in rows.items() if row.verdict != OK} == {}
    assert (rows["requests"].seen, rows["requests"].total) == (18, 18) and rows["receipts"].total == 18
    assert (rows["gateway acks"].seen, rows["gateway acks"].total) == (2, 2)
    assert rows["out_dir"].seen == rows["out_dir"].total and (rows["out_dir"].total or 0) >= 12
    assert report(rows=list(rows.values())).exit_code == Exit.OK


def killed(scratch: Scratch) -> None:
    scratch.begin_run(now_ms=scratch.now_ms - 60_000, pid=doctor_status.NO_PID)


def silent(scratch: Scratch) -> None:
    scratch.all_is_well(ago_ms=600_000)
    runs.mark_seen(scratch.c, now_ms=scratch.now_ms)


def no_disk(scratch: Scratch) -> None:
    scratch.c.execute("DELETE FROM observation WHERE key = 'disk'")


def nobody_asks(scratch: Scratch) -> None:
    scratch.c.execute("DELETE FROM observation WHERE key = 'audit_look'")


def all_blind(scratch: Scratch) -> None:
    scratch.observe("audit_look", {"campaign": "scratch", "rules": 2, "blind": ["one", "other"]})


def shut(scratch: Scratch) -> None:
    house.open_way(scratch, running(scratch), state="failed", code="port_taken")


def forgotten(scratch: Scratch) -> None:
    scratch.trial(arm="plain", usage=None, receipt=None)


def wrong_folder(scratch: Scratch) -> None:
    shutil.move(scratch.out_dir, scratch.folder / "elsewhere")


def changed_file(scratch: Scratch) -> None:
    for path in scratch.out_dir.rglob("reward.txt"):
        path.write_text("0\n")


def not_exported(scratch: Scratch) -> None:
    scratch.trial(export=None, rested_at_ms=scratch.now_ms - 3_600_000)


def in_the_future(scratch: Scratch) -> None:
    scratch.finding("clock_offset", "warning", ago_ms=-3_600_000)


def running(scratch: Scratch) -> int:
    return int(scratch.c.execute("SELECT min(trial_id) FROM trial WHERE state = 'running'").fetchone()[0])


@pytest.mark.parametrize(
    ("ill", "source", "words"),
    [
        (killed, "daemon", "not running (pid 4194304 gone), last seen"),
        (silent, "observation engine", "last said 10m00s ago, must be within 1m00s"),
        (silent, "networks main", "listed 10m00s ago"),
        (silent, "audit", "the rules were asked: last said 10m00s ago, must be within 3m00s"),
        (nobody_asks, "audit", "the rules were asked: never said"),
        (all_blind, "audit", "and no rule could see; could not see: one, other"),
        (no_disk, "observation disk", "free space: never said"),
        (lambda s: house.alive(s, ago_ms=300_000), "gateway", "no sign of life for 300 s"),
        (shut, "gateway acks", "failed port_taken"),
        (lambda s: house.journal(s, more=900, old_s=660), "gateway journal", "its last line is 1"),
        (lambda s: house.journal(s, more=-900), "gateway journal", "it is another journal"),
        (lambda s: shutil.rmtree(s.gateway / "journal"), "gateway journal", "holds no segment"),
        (forgotten, "receipts", "1 are missing and nothing says why"),
        (wrong_folder, "out_dir", "no folder"),
        (changed_file, "out_dir", "reward.txt is not what was exported"),
        (not_exported, "exports", "1 have been at rest for more than half an hour"),
        (lambda s: house.told(s, ok=False), "notices", "the newest one failed after 1 tries: exit 7"),
        (in_the_future, "findings", "1 have times in the future"),
    ],
)
def test_e01_a_dead_source_is_dead_by_name_and_exit_1(ill: Callable[[Scratch], object], source: str, words: str, scratch: Scratch) -> None:
    ill(scratch)
    rows = looked(scratch)
    assert rows[source].verdict == DEAD and words in rows[source].why, rows[source]
    assert report(rows=list(rows.values())).exit_code == Exit.FAILED
    assert any(source in line and "dead" in line for line in doctor.lines(report(rows=list(rows.values())), Screen()))


def test_e01_requests_that_nobody_counts_are_a_dead_source() -> None:
    with Scratch(replicates=1) as scratch:
        scratch.trial(arm="plain", usage=None)
        row = looked(scratch)["requests"]
        assert row.verdict == DEAD and (row.seen, row.total) == (0, 1) and "tokens and money are not counted" in row.why


def test_e04_what_was_not_looked_at_is_unknown_and_exit_4(scratch: Scratch) -> None:
    """The daemon's process is on a host that cannot be seen from here: nobody can tell whether anything is looked at."""
    runs.begin_run(scratch.c, pid=7, pid_start_ticks=7, host="elsewhere", boot_id="b", version="0.1.0", now_ms=scratch.now_ms)
    rows = looked(scratch)
    unknown = {name for name, row in rows.items() if row.verdict == UNKNOWN}
    assert {"daemon", "observation engine", "observation disk", "observation waiting", "findings"} <= unknown
    assert not {name for name, row in rows.items() if row.verdict == DEAD}
    assert rows["daemon"].seen is None
    assert report(rows=list(rows.values())).exit_code == Exit.BLIND
    assert "ok" not in doctor.lines(report(rows=[rows["daemon"]]), Screen())[-1].split()


def test_e04_an_out_dir_that_cannot_be_read_is_unknown(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("marathond.service.doctor.sources_files.read_bounded", refused)
    row = looked(scratch)["out_dir"]
    assert row.verdict == UNKNOWN and "Permission denied" in row.why


def test_e04_a_campaign_that_has_shown_nothing_yet_is_not_called_ok() -> None:
    with Scratch(replicates=1) as scratch:
        rows = looked(scratch)
    assert {rows[name].verdict for name in ("requests", "receipts", "exports", "out_dir", "notices")} == {NOTHING}
    shown = "\n".join(doctor.lines(report(rows=list(rows.values())), Screen()))
    assert "  nothing yet  requests: ended agents that may ask a model (campaign scratch)" in shown


def test_e02_exports_count_every_trial_at_rest_however_short_it_has_been() -> None:
    """The first half hour, in which a trial may still be on its way, is no reason to say that there is nothing."""
    with Scratch(replicates=1) as scratch:
        scratch.trial(rested_at_ms=scratch.now_ms - 60_000)
        assert (row := looked(scratch)["exports"]).verdict == OK and (row.seen, row.total, row.why) == (1, 1, "")
        scratch.trial(rested_at_ms=scratch.now_ms - 60_000, export=None)
        row = looked(scratch)["exports"]
        assert (row.verdict, row.seen, row.total) == (OK, 1, 2) and "1 on its way" in row.why
        not_exported(scratch)
        row = looked(scratch)["exports"]
        assert (row.verdict, row.seen, row.total) == (DEAD, 1, 3) and "1 have been at rest for more than half an hour" in row.why


def test_e04_trials_whose_exports_are_all_on_their_way_are_not_called_ok() -> None:
    with Scratch(replicates=1) as scratch:
        for _ in range(2):
            scratch.trial(rested_at_ms=scratch.now_ms - 60_000, export=None)
        row = looked(scratch)["exports"]
    assert (row.verdict, row.seen, row.total) == (NOTHING, 0, 2) and "2 on their way" in row.why


@pytest.mark.parametrize(("verdicts", "code"), [((OK,), 0), ((OK, NOTHING), 0), ((OK, UNKNOWN), 4), ((UNKNOWN, DEAD), 1)])
def test_the_exit_status_is_the_worst_that_is_known(verdicts: tuple[str, ...], code: int) -> None:
    rows = [Source(f"s{n}", "x", verdict, 1, 1, "things") for n, verdict in enumerate(verdicts)]
    assert report(rows=rows).exit_code == code


# ── the command ──


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof is tried above; here it would only take time."""
    monkeypatch.setattr(run, "prove_rules", lambda: [Proof("rule", "some")])
    monkeypatch.setattr(doctor, "prove_status", lambda: [Proof("status", "some")])


def typed(scratch: Scratch, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(scratch.folder))
    monkeypatch.chdir(scratch.folder)
    scratch.commit()
    return ctl.run(list(words))


def test_e01_the_first_line_says_what_was_looked_at(
    scratch: Scratch, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(scratch, monkeypatch, "doctor") == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"ledger {scratch.path} on host {socket.gethostname()}, campaign scratch (48 cells)"
    assert scratch.ledger_id in second and f"running, pid {os.getpid()}" in second
    assert typed(scratch, monkeypatch, "status") == 0
    assert f"ledger {scratch.path}" in (said := capsys.readouterr().out) and "campaign scratch" in said.splitlines()[0]
    assert typed(scratch, monkeypatch, "doctor", "--json") == 0
    told = printed("doctor", capsys.readouterr().out)
    assert told["looked_at"]["ledger"] == str(scratch.path) and told["looked_at"]["campaign"] == "scratch" and told["exit"] == 0
    assert {row["verdict"] for row in told["sources"]} == {"ok"} and all(proof["ok"] for proof in told["proofs"])


def test_e01_a_ledger_that_is_not_there_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ctl.run(["doctor"]) == Exit.BLIND
    answer = capsys.readouterr()
    assert f"no ledger at {tmp_path}/ledger.db" in answer.err and answer.out == ""


def test_e01_a_ledger_of_another_host_is_refused_by_name(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch.c.execute("UPDATE ledger_identity SET host = 'build9'")
    assert typed(scratch, monkeypatch, "doctor") == Exit.BLIND
    said = capsys.readouterr().out
    assert f"not looked at: it was put on host build9, this is {socket.gethostname()}" in said and "can it see" not in said
    assert " ok " not in said


def test_e02_every_count_names_its_campaign_and_its_total(
    scratch: Scratch, quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "37/90" of a run of 10: another campaign of the same ledger has counts of its own."""
    other = scratch.submit("second", 1, now_ms=scratch.now_ms)
    rows = looked(scratch, "second")
    assert all(row.campaign in ("second", HOUSE) for name, row in rows.items() if name != "audit")
    assert rows["audit"].campaign == "scratch", "the rules are asked about the campaign that runs"
    assert (rows["requests"].seen, rows["requests"].total) == (0, 0), "none of the first campaign's"
    findings.raise_finding(
        scratch.c, code="breaker", severity="warning", subject="admission", detail="d", campaign_id=other, now_ms=scratch.now_ms
    )
    scratch.finding("lease_leaked", "warning", "t0001")
    findings.close_finding(scratch.c, code="lease_leaked", subject="t0001", now_ms=scratch.now_ms)
    scratch.finding("lease_leaked", "warning", "t0002")
    assert typed(scratch, monkeypatch, "status", "--campaign", "scratch") == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert head.endswith("campaign scratch   healthy · 1 finding (0 stop-loss) · 1 finding of other campaigns: marathonctl findings")
    assert typed(scratch, monkeypatch, "findings") == 0
    assert capsys.readouterr().out.splitlines()[0] == "open findings: campaign scratch 1 of 2 · campaign second 1 of 1 (0 stop-loss)"
    assert typed(scratch, monkeypatch, "doctor", "--campaign", "scratch") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("campaign scratch (48 cells), 1 of 2 campaigns")
    table = [line for line in lines if line.split()[1:2] in (["requests:"], ["receipts:"], ["exports:"])]
    assert len(table) == 3 and all(" of " in line and "campaign scratch" in line for line in table)


def finished(scratch: Scratch) -> None:
    """Every cell is done; the daemon was stopped in order."""
    scratch.clean()
    runs.end_run(scratch.c, reason="SIGTERM", now_ms=scratch.now_ms)
    scratch.commit()


def test_e04_after_the_end_a_daemon_that_was_stopped_in_order_leaves_nothing_dead_and_nothing_unknown() -> None:
    with Scratch(replicates=5) as scratch:
        finished(scratch)
        rows = looked(scratch)
        told = ("daemon", "observation engine", "observation disk", "observation waiting", "observation clock_offset", "audit", "findings")
        assert {name: rows[name].verdict for name in told} == dict.fromkeys(told, NOTHING)
        assert {row.verdict for name, row in rows.items() if name.startswith("networks")} == {NOTHING}
        assert "nothing is left to run" in rows["daemon"].why and "nothing is left to run" in rows["observation disk"].why


def test_e01_a_daemon_that_was_stopped_with_cells_left_is_dead() -> None:
    with Scratch(replicates=2) as scratch:
        scratch.clean(replicates=[1])
        runs.end_run(scratch.c, reason="SIGTERM", now_ms=scratch.now_ms)
        rows = looked(scratch)
    assert rows["daemon"].verdict == DEAD and rows["observation disk"].verdict == UNKNOWN


def test_e04_a_network_that_is_still_leased_is_unknown_also_after_the_end() -> None:
    with Scratch(replicates=5) as scratch:
        scratch.clean(replicates=range(1, 5))
        scratch.clean(replicates=[5], arms=ARMS[1:])
        for task in TASKS[1:]:
            scratch.trial(task=task, arm=ARMS[0], replicate=5)
        scratch.trial(task=TASKS[0], arm=ARMS[0], replicate=5, leaked=True)
        runs.end_run(scratch.c, reason="SIGTERM", now_ms=scratch.now_ms)
        assert {row.verdict for name, row in looked(scratch).items() if name.startswith("networks")} == {UNKNOWN}
