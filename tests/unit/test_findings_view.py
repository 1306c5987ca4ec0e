"""What ``marathonctl findings`` shows: what it means, what to do, stop-loss first, acknowledged last, closed ones on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.cli import findings as view
from marathond.cli.output import Screen
from marathond.core.audit.catalogue import RAISED
from marathond.core.notices import FindingSeen, Notice
from marathond.ledger.verbs import campaigns, findings, notices
from marathond.service.doctor.scratch import Scratch
from tests.support import ledgers as have

NASTY = "red\x1b[31mdevil\nsecond"


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """Numbers 1 to 5: a warning, an error that a person knows, a stop-loss, one of the house that is over, and that one again."""
    with Scratch(replicates=1) as made:
        made.finding("silent_turns", "warning", "t0011", NASTY, ago_ms=300_000)
        made.finding("export_failed", "error", "/out", "no room", ago_ms=600_000)
        made.finding("usage_limit", "stop_loss", "main", "the account is used up", ago_ms=7_200_000, times=3)
        for ago_ms, over in ((9_000_000, True), (60_000, False)):
            now_ms = made.now_ms - ago_ms
            findings.raise_finding(
                made.c, code="breaker", severity="warning", subject="admission", detail="closed", campaign_id=None, now_ms=now_ms
            )
            if over:
                findings.close_finding(made.c, code="breaker", subject="admission", now_ms=now_ms + 1_000_000)
        findings.ack(made.c, 2, author="ana", reason="a bigger disk comes on Monday", now_ms=made.now_ms)
        yield made


def shown(scratch: Scratch, width: int | None = None, *, everything: bool = False) -> list[str]:
    return list(view.lines(view.listed(scratch.c, everything=everything), Screen(width=width), scratch.now_ms))


def numbers(lines: list[str]) -> list[int]:
    return [int(line[:4]) for line in lines if line[:4].strip().isdigit()]


def test_stop_loss_comes_first_and_what_somebody_knows_last(scratch: Scratch) -> None:
    lines = shown(scratch)
    assert numbers(lines) == [3, 1, 5, 2]
    assert lines[2] == "   3 STOP-LOSS usage_limit main (for 2h00m, seen 3 times, campaign scratch)"
    assert lines[3:6] == [
        "     the account is used up",
        f"     means: {RAISED['usage_limit'].means}",
        f"     do: {RAISED['usage_limit'].todo}",
    ]
    known = lines.index("     known by ana: a bigger disk comes on Monday")
    assert lines[known - 2].startswith("   2 error export_failed /out (for 10m00s")


def test_the_campaign_that_runs_now_comes_first_and_an_older_one_s_alarms_after_it(scratch: Scratch) -> None:
    """A newer campaign with a note of its own: whatever was wrong with the older one, it does not stand above that."""
    campaigns.submit(scratch.c, have.submission(name="newer", tasks=[have.task("zip")]), now_ms=scratch.now_ms)
    newer = scratch.c.execute("SELECT campaign_id FROM campaign WHERE name = 'newer'").fetchone()[0]
    told = [("silent_turns", "warning"), ("usage_limit", "stop_loss")]
    for code, severity in told:
        findings.raise_finding(scratch.c, code=code, severity=severity, subject="n", detail="x", campaign_id=newer, now_ms=scratch.now_ms)
    assert numbers(shown(scratch)) == [7, 5, 6, 3, 1, 2]  # newer and the house, worst first; then the older one's
    assert numbers(shown(scratch, everything=True)) == [7, 5, 6, 3, 1, 2, 4]
    lines = shown(scratch)
    assert lines.count(f"     means: {RAISED['usage_limit'].means}") == 2


def test_e02_the_counts_name_their_campaign_and_their_total(scratch: Scratch) -> None:
    assert shown(scratch)[0] == "open findings: campaign scratch 3 of 3 · house 1 of 2 (1 stop-loss, 1 acknowledged)"
    with Scratch(replicates=1) as empty:
        assert shown(empty) == ["no findings, and there never was one"]


def test_closed_ones_are_shown_on_demand_with_how_long_they_lasted(scratch: Scratch) -> None:
    assert not any("over since" in line for line in shown(scratch))
    lines = shown(scratch, everything=True)
    assert numbers(lines) == [3, 1, 5, 2, 4]
    line = next(line for line in lines if line.startswith("   4 "))
    assert line.startswith("   4 warning breaker admission (for 16m40s, over since ") and "campaign" not in line


@pytest.mark.parametrize("width", [40, 80, 140])
def test_nothing_is_cut_and_nothing_foreign_steers_a_terminal(scratch: Scratch, width: int) -> None:
    lines = shown(scratch, width)
    assert all(len(line) <= width for line in lines), lines
    text = " ".join(" ".join(line.split()) for line in lines)
    assert RAISED["usage_limit"].todo in text and "\x1b" not in text and "devil second" in text


def test_one_finding_is_shown_whole_with_those_before_it_and_who_was_told(scratch: Scratch) -> None:
    seen = FindingSeen(5, "breaker", "warning", "admission", "closed")
    number = notices.intend(
        scratch.c, Notice(f"finding:{seen.finding_id}", "breaker", "t", ""), {"title": "t"}, channels=["webhook"], now_ms=scratch.now_ms
    )
    assert number is not None
    notices.tried(scratch.c, number, "webhook", ok=False, last=False, answer="HTTP 502", now_ms=scratch.now_ms)
    text = "\n".join(view._whole_lines(view.find(scratch.c, 5), Screen(), scratch.now_ms))
    assert text.splitlines()[0] == "finding 5: warning breaker admission"
    for words in (
        "  of:        the house: all campaigns of this ledger",
        f"  means:     {RAISED['breaker'].means}",
        f"  do:        {RAISED['breaker'].todo}",
        "  known by:  nobody yet",
        "  told:      webhook: not yet after 1 tries: HTTP 502",
        "  before: 1 time for admission",
    ):
        assert words in text, text
    assert "f12" not in text, "an id that is explained nowhere a person is sent; --json has it"
    assert "\n       4 " in text and " for 16m40s: closed" in text
    assert "campaign scratch" in "\n".join(view._whole_lines(view.find(scratch.c, 3), Screen(), scratch.now_ms))


def test_a_code_that_this_version_does_not_know_says_so(scratch: Scratch) -> None:
    scratch.finding("from_tomorrow", "warning")
    assert f"     means: {view.NO_WORDS.means}" in shown(scratch)


def typed(scratch: Scratch, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(scratch.folder))
    monkeypatch.chdir(scratch.folder)
    scratch.commit()
    return ctl.run(["findings", *words])


def test_the_command_and_its_exit_status(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert typed(scratch, monkeypatch) == 1, "a stop-loss is not acknowledged"
    capsys.readouterr()
    assert typed(scratch, monkeypatch, "--all", "--json") == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["finding_id"] for row in rows] == [3, 1, 5, 2, 4]
    assert rows[0]["means"] == RAISED["usage_limit"].means and rows[0]["campaign"] == "scratch" and rows[2]["campaign"] is None
    assert typed(scratch, monkeypatch, "5", "--json") == 0
    one = json.loads(capsys.readouterr().out)
    assert one["todo"] == RAISED["breaker"].todo and [each["finding_id"] for each in one["earlier"]] == [4] and one["told"] == []
    assert typed(scratch, monkeypatch, "9") == 1
    assert "no finding 9 in this ledger (last is 5)" in capsys.readouterr().err
    findings.ack(scratch.c, "usage_limit", author="ana", reason="paid", now_ms=scratch.now_ms)
    assert typed(scratch, monkeypatch) == 0
