"""``marathonctl audit``: what it says of how much it saw, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from marathond.cli import audit as view
from marathond.cli.output import Screen, display_width, json_text
from marathond.core.audit import rules
from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Look, Rule
from marathond.core.paths import DaemonPaths, daemon_paths
from marathond.ledger.verbs import findings
from marathond.service.doctor import plants_bias
from marathond.service.doctor.scratch import Scratch
from marathond.service.exits import CallFailed, Exit


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch() as made:
        yield made


def paths(scratch: Scratch) -> DaemonPaths:
    return daemon_paths({"state_dir": scratch.folder, "ledger": scratch.path}, 0, {})


def report(scratch: Scratch) -> view.Report:
    scratch.commit()
    return view.gather(paths(scratch), None, scratch.now_ms)


def text(report: view.Report, width: int | None = None) -> str:
    return "\n".join(view.lines(report, Screen(width)))


def test_e02_a_clean_campaign_is_silent_and_every_count_has_its_total(scratch: Scratch) -> None:
    scratch.clean()
    said = report(scratch)
    assert said.exit_code == Exit.OK
    lines = text(said).splitlines()
    assert lines[0].startswith("audit of campaign scratch: 124 trials (120 scored, 4 void), of 120 cells; ledger ")
    (bias,) = [line.split() for line in lines if line.startswith("infra_disparity")]
    assert bias == ["infra_disparity", "ok", "93", "of", "93", "trials", "at", "rest"]  # the reference arm is not compared
    assert "campaign scratch: " in lines[-1] and f"of {len(rules.RULES)} rules looked and found nothing" in lines[-1]


def test_nothing_yet_is_not_ok(scratch: Scratch) -> None:
    said = report(scratch)
    verdicts = {each.rule.code: each.verdict for each in said.asked}
    assert verdicts["infra_disparity"] == view.NOTHING and said.exit_code == Exit.OK
    assert "have nothing to look at yet" in text(said)


def test_a06_a_stop_loss_is_exit_1_with_its_words_and_what_to_do(scratch: Scratch) -> None:
    plants_bias.infra_disparity(scratch)
    said = report(scratch)
    assert said.exit_code == Exit.FAILED
    shown = text(said)
    assert "STOP-LOSS infra_disparity heartbeat\n  infrastructure first: 6 of 6 trials of heartbeat" in shown
    assert "do: Repair what the codes name" in shown
    data = json.loads(json_text(view.as_json(said)))
    (rule,) = [each for each in data["rules"] if each["code"] == "infra_disparity"]
    assert (data["exit"], rule["verdict"], rule["looked_at"], rule["of"]) == (1, "found", 30, 30)
    assert data["looked_at"]["campaign"] == "scratch"


def blind(facts: Facts) -> Look:
    return Look(0, 7, "things", unseen="its source is dead")


def broken(facts: Facts) -> Look:
    raise KeyError("x")


@pytest.mark.parametrize(("look", "why"), [(blind, "its source is dead"), (broken, "the rule broke: KeyError: 'x'")])
def test_e04_what_cannot_be_seen_is_unknown_and_exit_4(scratch: Scratch, monkeypatch: pytest.MonkeyPatch, look: object, why: str) -> None:
    rule = Rule("made_up", "warning", "it", "do", look)  # type: ignore[arg-type]
    monkeypatch.setattr(rules, "RULES", (rule,))
    monkeypatch.setattr(view, "looks", lambda facts: rules.looks(facts, rules.RULES))
    said = report(scratch)
    assert said.exit_code == Exit.BLIND
    assert f"unknown: made_up: {why}" in text(said)


def test_what_others_found_is_listed_and_counts_until_somebody_acknowledges_it(scratch: Scratch) -> None:
    for subject in ("t0001", "t0002"):
        scratch.finding("no_commands", "warning", subject)
    assert report(scratch).exit_code == Exit.OK
    scratch.finding("gateway_stale", "error", "gateway")
    said = report(scratch)
    assert said.exit_code == Exit.FAILED
    assert "open besides, found where it happens: 1 x gateway_stale (error), 2 x no_commands (warning); see" in text(said)
    findings.ack(scratch.c, "gateway_stale", author="ana", reason="known", now_ms=scratch.now_ms)
    said = report(scratch)
    assert said.exit_code == Exit.OK and "1 x gateway_stale (error, acknowledged)" in text(said)


@pytest.mark.parametrize("width", [80, 140])
def test_it_fits_a_terminal(scratch: Scratch, width: int) -> None:
    plants_bias.infra_disparity(scratch)
    assert max(map(display_width, text(report(scratch), width).splitlines())) <= width


def test_an_unknown_campaign_is_named(scratch: Scratch) -> None:
    scratch.commit()
    with pytest.raises(CallFailed, match="no campaign y; there are: scratch"):
        view.gather(paths(scratch), "y", scratch.now_ms)
