"""Contrasts that are chosen when a report is made: what they count as, and what must be said of those that were declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marathond.cli.report import two_arms
from marathond.core.compare import compare
from marathond.core.compare.rates import holm
from marathond.core.errors import Refused
from marathond.core.results import Contrast
from marathond.service.exits import CallFailed, Exit
from tests.support.some_results import T0, a_campaign

RESULTS = replace(a_campaign(tasks=8, replicates=3), contrasts=(Contrast("goal", "plain", T0, 0), Contrast("ssh-goal", "plain", T0, 0)))


def test_chosen_contrasts_count_as_not_declared_and_holm_runs_over_them_alone() -> None:
    found = compare(RESULTS, pairs=[("goal", "plain"), ("codex-cli", "heartbeat"), ("heartbeat", "goal")])
    assert [(each.a, each.b, each.declared_at_ms) for each in found.contrasts] == [
        ("goal", "plain", None), ("codex-cli", "heartbeat", None), ("heartbeat", "goal", None)
    ]  # fmt: skip
    assert found.chosen and not compare(RESULTS).chosen
    tests = [each.metrics[0].tasks for each in found.contrasts]
    ps = [each.p_sign_flip for each in tests if each is not None and each.p_sign_flip is not None]
    assert [each.p_holm for each in tests if each is not None] == pytest.approx(holm(ps))
    assert found.family.startswith("3 of the 10 pairs of 5 arms, chosen when this report was made and counted as not declared")


def test_the_difference_is_the_declared_one_s() -> None:
    """Only the correction and what is said of it change."""
    declared, chosen = compare(RESULTS).contrasts[0], compare(RESULTS, pairs=[("goal", "plain")]).contrasts[0]
    assert [replace(each.tasks, p_holm=None) for each in declared.metrics if each.tasks] == [
        replace(each.tasks, p_holm=None) for each in chosen.metrics if each.tasks
    ]


def test_a08_what_was_declared_and_is_not_shown_is_named() -> None:
    notes = compare(RESULTS, pairs=[("plain", "goal")]).notes
    assert "the configuration declares 2 contrasts; not shown here: ssh-goal against plain" in notes
    scores = sum(cell.state == "done" for cell in RESULTS.cells)
    assert f"which arms are compared was chosen when this report was made, and {scores} scores were known by then" in notes
    both = compare(RESULTS, pairs=[("plain", "goal"), ("ssh-goal", "plain")]).notes
    assert "the configuration declares 2 contrasts, which are among them" in both
    assert not any("declares" in note for note in compare(replace(RESULTS, contrasts=()), pairs=[("goal", "plain")]).notes)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("gaol", "plain")], "no arm gaol in campaign"),
        ([("goal", "goal")], "goal cannot be compared with itself"),
        ([("goal", "plain"), ("plain", "goal")], "plain against goal is named twice"),
    ],
)
def test_what_is_no_contrast_is_refused_by_name(pairs: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(Refused, match=words):
        compare(RESULTS, pairs=pairs)


ARMS = ("plain", "goal", "Claude Code / Opus 4.8", "a", "a,b", "b", "b,c", "c", " led", "x, y")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("goal,plain", ("goal", "plain")),
        ("Claude Code / Opus 4.8, plain", ("Claude Code / Opus 4.8", "plain")),
        (" led,plain", (" led", "plain")),
        ("x, y,plain", ("x, y", "plain")),
        ("plain,x, y", ("plain", "x, y")),
        ("a,goal", ("a", "goal")),
    ],
)
def test_two_arms_with_a_comma_between(text: str, pair: tuple[str, str]) -> None:
    assert two_arms(text, ARMS, "some") == pair


@pytest.mark.parametrize("text", ["", ",", "goal", "goal,", ",goal", "goal,plain,a", "goal;plain", "goal\x1b[2J,plain"])
def test_what_is_not_two_arms_is_a_usage_error_that_names_the_arms(text: str) -> None:
    with pytest.raises(CallFailed, match="must be two arms with a comma between") as error:
        two_arms(text, ARMS, "some")
    assert error.value.exit_code is Exit.USAGE and "\x1b" not in str(error.value) and "Claude Code / Opus 4.8" in str(error.value)


def test_a_text_that_can_be_read_in_two_ways_is_not_guessed() -> None:
    with pytest.raises(CallFailed, match="in more than one way"):
        two_arms("a,b,c", ARMS, "some")
