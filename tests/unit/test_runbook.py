"""Every code that a person can meet is explained: by ``marathonctl explain`` and, in the same words, by docs/runbook.md."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from pathlib import Path

import pytest

import marathond
from marathond.cli import ctl
from marathond.cli.explain import known, sentence
from marathond.core.audit.disclosed import DISCLOSED
from marathond.core.audit.outcomes import PARKS, REVIEWS, VOIDS
from marathond.core.audit.waits import OTHER_WORDS, WAITS
from marathond.core.disclosures import CODES
from marathond.ledger.verbs.parks import PASSES_EXHAUSTED, TASK_CODES
from tests.support import ledgers as have
from tests.support.runbook import PATH, text

ROOT = Path(marathond.__file__).parent
CODE = re.compile(r"[a-z]+(?:_[a-z]+)+|overrun")


def first_literals(*names: str, at: int = 0) -> set[str]:
    """Literal arguments number ``at`` of calls of those names in the whole package that look like a code."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if name in names and len(node.args) > at and isinstance(word := node.args[at], ast.Constant):
                found |= {word.value} if isinstance(word.value, str) and CODE.fullmatch(word.value) else set()
    return found


def void_codes() -> dict[str, str]:
    c: sqlite3.Connection = have.memory_ledger()
    return {row[0]: row[1] for row in c.execute("SELECT code, explanation FROM void_code")}


def test_every_void_code_of_the_ledger_is_explained_in_its_own_words() -> None:
    assert {code: meaning.means for code, meaning in VOIDS.items()} == void_codes()


def test_every_review_that_is_raised_is_explained_and_no_other() -> None:
    raised = first_literals("Review") | first_literals("doubt", at=2)
    assert len(raised) > 5
    assert raised == set(REVIEWS)


def test_every_park_is_explained_and_no_other() -> None:
    assert set(PARKS) == {*TASK_CODES, PASSES_EXHAUSTED, *first_literals("Unrunnable", at=2)} | first_literals("Failed") & set(PARKS)


def plan_codes() -> set[str]:
    """Literals in core/plan.py that are a reason for waiting, and the kinds of stops, which give theirs by being upper case."""
    tree = ast.parse((ROOT / "core/plan.py").read_text())
    literals = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words = {each for each in literals if re.fullmatch(r"[A-Z_]{3,}", each)}
    kinds = re.search(
        r"CHECK \(kind IN \(([^)]*)\)\)", (ROOT.parent / "migrations/0001_ledger.sql").read_text().partition("admission_stop_kind")[2]
    )
    assert kinds is not None
    return words | {kind.upper() for kind in re.findall(r"'([a-z_]+)'", kinds[1])} - {"PAUSE", "DRAIN"}


def test_every_reason_for_waiting_is_explained_and_no_other() -> None:
    assert len(plan_codes()) > 10
    assert set(WAITS) == plan_codes()
    assert set(OTHER_WORDS.values()) <= set(WAITS) and not set(OTHER_WORDS) & set(WAITS)


def test_every_disclosure_is_explained_and_no_other() -> None:
    assert set(DISCLOSED) == CODES


@pytest.mark.parametrize("code", ["CPU", "cpu", "MEMORY", "NETPOOL", "own_surroundings"])
def test_words_of_the_screen_are_explained_as_they_stand_there_and_as_they_are_typed(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["explain", code]) == 0
    said = capsys.readouterr().out
    assert said.startswith(("wait CPU\n", "wait MEM\n", "wait NETPOOL\n", "disclosure own_surroundings\n")) and "  do:    " in said


def test_the_runbook_is_what_the_product_says() -> None:
    """When this fails: python -m tests.support.runbook, and look at what changed."""
    assert PATH.read_text("utf-8") == text()
    assert all(f"### `{each.code}`" in text() for each in known())


@pytest.mark.parametrize("each", known(), ids=lambda each: f"{each.kind} {each.code}")
def test_what_is_to_be_done_is_a_sentence_and_its_commands_exist(each: object) -> None:
    from marathond.cli.explain import Explained
    from marathond.cli.grammar import app

    assert isinstance(each, Explained)
    assert each.means[0].isupper() and each.means.endswith(".")
    assert each.todo.endswith((".", "?")) and len(each.todo) > 15
    names = {command.name or command.callback.__name__.replace("_", "-") for command in app.registered_commands if command.callback}
    names |= {group.name for group in app.registered_groups if group.name}
    assert set(re.findall(r"`marathonctl ([a-z-]+)", each.todo)) <= names


def test_the_commands_speech(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["explain", "image_gone"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "void image_gone" and said[2].startswith("  do:    ")
    assert said[1] == f"  means: {sentence(void_codes()['image_gone'])}"
    assert ctl.run(["explain", "post_score_voids"]) == 0
    assert "a08" not in capsys.readouterr().out, "an id that is explained nowhere a person is sent"
    assert ctl.run(["explain", "post_score_voids", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["faults"] == ["a08"]
    assert ctl.run(["explain", "imag_gone"]) == 2
    assert capsys.readouterr().err.startswith("marathonctl: no code imag_gone in this version; like it are image_gone")
    assert ctl.run(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(known()) + 1
