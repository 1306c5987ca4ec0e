"""``history``: what one command did to many things is one line; who wants each asks for it, and JSON has each in any case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import ledgers as have

from marathond.cli import ctl
from marathond.cli.folded import FOLD_FROM, GAP_MS, folded, line_of
from marathond.ledger.verbs import operator, settings
from marathond.ledger.verbs.happened import Happening
from marathond.service.doctor.scratch import Scratch

T0 = have.T0


def archived(number: int, at_ms: int = T0) -> Happening:
    detail = {"file": f"/srv/a/x/t{number:04d}.tar.gz", "files": 3, "size_bytes": 100}
    told = ("archive", "archived", at_ms, "", "ana", str(detail["file"]), "x", number, "zstd", "plain", 1)
    return Happening(f"archive:{number}:archived", *told, detail=detail)


def pruned(number: int, at_ms: int = T0) -> Happening:
    detail = {"path": f"/out/x/{number}", "files": 3, "size_bytes": 100}
    told = ("prune", "pruned", at_ms, "artifacts", "ana", "room", "x", number, "zstd", "plain", 1)
    return Happening(f"prune:{number}", *told, detail=detail)


def voided(number: int, at_ms: int = T0, *, reason: str = "outage", known: int = 0) -> Happening:
    detail = {"score_was_known": known}
    return Happening(
        f"event:{number}", "trial", "voided", at_ms, "provider", "ana", reason, "x", number, "zstd", "plain", 1, life=1, detail=detail
    )


RESUMED = Happening("stop:1:ended", "stop", "ended", T0, "pause", "ben", "go on", detail={"stop_id": 1})


def lines(*found: Happening) -> list[str]:
    return [line_of(group).split("Z  ", 1)[1] for group in folded(found)]


def test_an_archive_of_a_campaign_is_one_line_with_its_count_its_range_and_its_sums() -> None:
    found = [archived(number, T0 + 40_000 * number) for number in range(1, 19)]
    assert lines(RESUMED, *found) == [
        "admission  pause ended by ben: go on",
        "t0001 … t0018  archived 18 trials in /srv/a/x (54 files, 1800 bytes) by ana  (x)",
    ]


def test_what_another_gave_another_time_or_another_reason_is_another_line() -> None:
    few = [archived(number) for number in range(1, FOLD_FROM)]
    assert len(lines(*few)) == FOLD_FROM - 1
    assert len(lines(*few, replace(archived(9), author="ben"))) == FOLD_FROM
    assert len(lines(*few, archived(9, T0 + GAP_MS + 1))) == FOLD_FROM
    assert len(lines(*few, replace(archived(9), campaign="y"))) == FOLD_FROM
    assert len(lines(*[voided(n, reason=f"reason {n}") for n in range(5)])) == 5
    assert len(lines(*few, RESUMED, archived(9))) == FOLD_FROM + 1, "what was decided in between stays in between"


def test_archives_and_removals_of_one_command_alternate_and_are_two_lines() -> None:
    found = [one for number in range(1, 5) for one in (archived(number), pruned(number))]
    assert lines(*found) == [
        "t0001 … t0004  archived 4 trials in /srv/a/x (12 files, 400 bytes) by ana  (x)",
        "t0001 … t0004  pruned 4 x artifacts (12 files) by ana: room  (x)",
    ]


def test_a08_scores_that_were_known_are_counted_in_the_line() -> None:
    found = [voided(number, known=number % 2) for number in range(1, 6)]
    assert lines(*found) == ["t0001 … t0005  voided 5 trials provider by ana: outage; of 3 the score was known  (x)"]


def test_parks_and_acknowledgements_are_summed() -> None:
    parks = [
        Happening(f"park:{n}", "park", "parked", T0, "task_missing", "ana", "gone", "x", None, f"t-{n}", cells=5, detail={"cell_id": n})
        for n in range(3)
    ]
    acks = [
        Happening(f"finding:{n}", "finding", "acknowledged", T0, "no_commands", "ana", "known", "x", detail={"finding_id": n})
        for n in (4, 5, 9)
    ]
    assert lines(*parks, *acks) == [
        "parked  15 cells of 3 tasks task_missing by ana: gone  (x)",
        "findings 4 … 9  acknowledged 3 x no_commands by ana: known  (x)",
    ]


def test_everything_that_is_folded_is_in_one_group_in_its_order() -> None:
    found = [voided(1), RESUMED, *[archived(n) for n in range(2, 7)], pruned(7), voided(8), voided(9), voided(10)]
    groups = list(folded(found))
    assert [one for group in groups for one in group] == found
    assert list(map(len, groups)) == [1, 1, 5, 1, 3]


def test_the_command_counts_lines_and_json_has_each(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Scratch(replicates=2) as scratch:
        numbers = [scratch.trial() for _ in range(6)]
        settings.set_value(
            scratch.c, "admission.concurrency", old=4, new=2, author="ana", reason="quieter", now_ms=scratch.now_ms - 600_000
        )
        operator.void_trials(scratch.c, numbers, code="operator", reason="outage", author="ana", now_ms=scratch.now_ms)
        scratch.commit()
        monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(scratch.folder))
        monkeypatch.chdir(Path(scratch.folder))

        def asked(*words: str) -> list[str]:
            assert ctl.run(["history", "--by", "ana", *words]) == 0
            return capsys.readouterr().out.splitlines()

        folded_up = asked("-n", "2")
        assert len(folded_up) == 2 and "admission.concurrency 4 -> 2" in folded_up[0]
        assert "voided 6 trials operator by ana: outage; of 6 the score was known" in folded_up[1]
        assert len(asked("--each")) == 7
        assert [json.loads(line)["kind"] for line in asked("--json")] == ["setting", *["trial"] * 6]
        assert len([line for line in asked("--json", "-n", "3") if line]) == 3
