"""``prebuild``: each failure is told once while it works, and the end counts them by what they died of."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.cli.output import Screen
from marathond.cli.prebuild import READY, Result, Teller, show
from marathond.flow.images import Wish

REFUSED = 'Get "http://localhost:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused'


def wish(task: str) -> Wish:
    return Wish(task, "task", f"localhost:1/{task}:1", Path("/x"), "d", lambda: "d", 60.0)


def missing(task: str, words: str = REFUSED) -> Result:
    return Result(task, "task", "", "", 20.0, 0, "image_missing", f"localhost:1/{task}:1: after 3 tries: {words}", "")


def test_tries_that_fail_alike_are_told_once_and_another_reason_again(capsys: pytest.CaptureFixture[str]) -> None:
    tell = Teller()
    for attempt, words in enumerate((REFUSED, REFUSED, "no space left"), 1):
        tell("pull", wish("a"), "localhost:1/a:1")
        tell("failed", wish("a"), f"try {attempt} of 3: {words}")
    tell("pull", wish("b"), "localhost:1/b:1")
    tell("failed", wish("b"), f"try 1 of 3: {REFUSED}")
    assert capsys.readouterr().err.splitlines() == [
        "a: pull localhost:1/a:1",
        f"a: failed, try 1 of 3: {REFUSED}",
        "a: failed, try 3 of 3: no space left",
        "b: pull localhost:1/b:1",
        f"b: failed, try 1 of 3: {REFUSED}",
    ]


def test_the_end_tells_each_reason_once_with_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    made = Result("z", "task", "sha256:abc", "pulled", 2.0, 9_000_000, READY, "", "")
    broken = Result("c", "task", "", "", 1.0, 0, "image_build_failed", "after 3 tries: exit 1", "/b/c.log")
    show([missing("a"), missing("b"), broken, made], Screen())
    lines = capsys.readouterr().out.splitlines()
    assert lines[5:] == [
        f"2 x image_missing (a, b): after 3 tries: {REFUSED}",
        "c: image_build_failed: after 3 tries: exit 1",
        "4 images: 1 pulled; 3 could not be had: 1 image_build_failed, 2 image_missing",
    ]
    show([missing("a")], Screen())
    assert f"a: image_missing: localhost:1/a:1: after 3 tries: {REFUSED}" in capsys.readouterr().out.splitlines()
