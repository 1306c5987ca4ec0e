"""Infrastructure failures that differ over arms (fault a06): both bars of the rule by simulation, what it must see and what is no bias."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count, product
from math import comb

import pytest

from marathond.core.audit import bias
from marathond.core.audit.bias import Tally, infra_disparity, level, out_of_line
from marathond.core.audit.exact import fisher_above, holm
from marathond.core.audit.facts import TrialFact
from tests.support.audit_facts import ARMS, NOW, facts, trial
from tests.support.interleaved import campaign

CAMPAIGNS = 1_000
WITHIN = 40


def first_alarm(seed: int, rates: list[float], *, passes: int = 3, of_arm: int | None = None) -> tuple[str, int] | None:
    """The arm that is named first, and how many of its trials were at rest by then; it is asked after every trial.

    :param of_arm: give up once more than WITHIN of this arm's trials are at rest.
    """
    names = [str(arm) for arm in range(len(rates))]
    tally = dict.fromkeys(names, Tally())
    for rest in campaign(random.Random(seed), rates, passes=passes):
        name = names[rest.arm]
        tally[name] = Tally(tally[name].of + 1, tally[name].failed + rest.failed)
        if rest.arm == of_arm and tally[name].of > WITHIN:
            return None
        if named := out_of_line(tally):
            arm = min(named, key=lambda each: named[each])
            return arm, tally[arm].of
    return None


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.1])
def test_a06_arms_that_are_alike_are_accused_in_at_most_1_percent_of_campaigns(rate: float) -> None:
    accused = sum(first_alarm(seed, [rate] * 5) is not None for seed in range(CAMPAIGNS))
    print(f"base rate {rate:.0%}: {accused} of {CAMPAIGNS} clean campaigns accused")
    assert accused <= CAMPAIGNS // 100
    assert (accused > 0) == (rate == 0.1) or accused <= CAMPAIGNS // 200  # the simulation can accuse at all


@pytest.mark.parametrize("passes", [1, 3])
def test_a06_an_arm_at_30_percent_is_named_within_40_of_its_trials(passes: int) -> None:
    """With retries (3 passes) the others have had fewer trials by then, which makes it harder."""
    alarms = [first_alarm(seed, [0.3, 0.03, 0.03, 0.03, 0.03], passes=passes, of_arm=0) for seed in range(CAMPAIGNS)]
    named = sum(alarm is not None and alarm[0] == "0" for alarm in alarms)
    print(f"30 % against 3 %, {passes} passes: named within {WITHIN} trials in {named} of {CAMPAIGNS} campaigns")
    assert named >= CAMPAIGNS * 9 // 10


def test_a06_a_dead_arm_is_named_by_its_sixth_trial() -> None:
    assert first_alarm(1, [1.0, 0.0, 0.0, 0.0, 0.0], of_arm=0) is not None
    assert out_of_line({"bad": Tally(6, 6), **{str(n): Tally(6, 0) for n in range(4)}}).keys() == {"bad"}
    assert out_of_line({"bad": Tally(3, 3), **{str(n): Tally(3, 0) for n in range(4)}}) == {}


def test_the_level_is_spent_where_it_decides() -> None:
    levels = [level(n) for n in range(1, 200)]
    assert max(levels) == level(bias.DECISIVE) == bias.LEVEL
    assert min(levels) == bias.FLOOR
    assert level(0) == bias.FLOOR


def test_fisher_s_test_is_exact() -> None:
    for of, others in product(range(1, 9), range(1, 13)):
        for hit, others_hit in product(range(of + 1), range(others + 1)):
            marked, total = hit + others_hit, of + others
            ways = sum(comb(marked, k) * comb(total - marked, of - k) for k in range(hit, min(of, marked) + 1))
            assert fisher_above(hit, of, others_hit, others) == pytest.approx(ways / comb(total, of), rel=1e-9)
    assert fisher_above(4, 5, 1, 5) * 2 == pytest.approx(0.206349, abs=1e-6)  # two-sided, where both tails are alike
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert 0 < fisher_above(50_000, 50_000, 0, 50_000) < 1e-300


# ── over facts ──

_ids = count(1)


def rows(arm: str, failed: int, through: int, *, code: str = "gate_failed", apart_ms: int = 120_000, from_ms: int = NOW) -> list[TrialFact]:
    """Trials of one arm, one after another; those that fail first."""
    made = []
    for place in range(failed + through):
        bad = place < failed
        values = {"state": "voided", "infra": True, "void_code": code, "void_side": "infrastructure", "void_by": "daemon"} if bad else {}
        rested = {"rested_at_ms": from_ms + place * apart_ms, "replicate": place + 1}
        made.append(trial(next(_ids), arm, **(rested | values)))
    return made


def alike(but: str, through: int = 20) -> list[TrialFact]:
    return [row for arm in ARMS if arm != but for row in rows(arm, 1, through, code=f"{arm}_failed")]


def test_a06_the_finding_says_infrastructure_first_and_stops_all_arms() -> None:
    look = infra_disparity(facts([*rows("goal", 12, 28), *alike("goal", 39)], ARMS))
    (found,) = look.found
    assert (found.code, found.severity, found.subject, found.stops) == ("infra_disparity", "stop_loss", "goal", True)
    assert found.detail.startswith("infrastructure first: 12 of 40 trials of goal failed by infrastructure (12 x gate_failed)")
    assert "plain 1 of 40" in found.detail
    assert len(found.trials) == 12
    assert (look.looked_at, look.of) == (200, 200)


def test_a06_every_attempt_counts_and_only_what_is_at_rest() -> None:
    again = [replace(row, replicate=1, attempt=place + 1) for place, row in enumerate(rows("goal", 6, 0))]
    live = [trial(900 + n, "goal", state="running", infra=None, rested_at_ms=None) for n in range(50)]
    assert infra_disparity(facts([*again, *live, *alike("goal")], ARMS)).found[0].subject == "goal"


@pytest.mark.parametrize(
    ("mine", "other", "said"),
    [
        ((7, 0), (0, 4), "warning"),
        ((4, 0), (0, 4), "warning"),
        ((7, 0), (0, 2), "undecided"),
        ((7, 0), (0, 0), "undecided"),
        ((3, 0), (0, 0), "undecided"),
        ((7, 1), (0, 10), "undecided"),
        ((7, 1), (1, 12), "undecided"),
        ((2, 0), (0, 20), "ok"),
        ((3, 12), (1, 14), "ok"),
        ((7, 0), (7, 0), "ok"),
        ((12, 0), (0, 12), "stop_loss"),
    ],
)
def test_a06_an_arm_that_fails_beside_few_others_is_never_called_in_order(mine: tuple[int, int], other: tuple[int, int], said: str) -> None:
    """A mistyped program: every start of one arm is void, and the breaker stands before many of the other arm are at rest."""
    seen = facts([*rows("goal", *mine, code="agent_not_started"), *rows("plain", *other)], ("plain", "goal"))
    look = infra_disparity(seen)
    if said in ("warning", "stop_loss"):
        (found,) = look.found
        assert (found.severity, found.subject, found.stops, look.unseen) == (said, "goal", said == "stop_loss", "")
        assert f"{mine[0]} x agent_not_started" in found.detail and f"plain 0 of {other[1]}" in found.detail
    elif said == "undecided":
        assert look.found == () and look.unseen.startswith("undecided, too few")
        assert f"{mine[0]} of {sum(mine)} trials of goal failed by infrastructure ({mine[0]} x agent_not_started)" in look.unseen
        assert ("no trial of another arm" in look.unseen) == (sum(other) == 0)
    else:
        assert (look.found, look.unseen) == ((), "")


@pytest.mark.parametrize("rate", [0.03, 0.1])
def test_a06_arms_that_are_alike_are_seldom_undecided_and_hardly_ever_warned_of(rate: float) -> None:
    warned = doubted = looks = 0
    for seed in range(200):
        made: list[TrialFact] = []
        for n, rest in enumerate(campaign(random.Random(seed), [rate] * 5)):
            made += rows(ARMS[rest.arm], int(rest.failed), int(not rest.failed), from_ms=NOW + n * 120_000)
            if n in (20, 60, 150, 300):
                look, looks = infra_disparity(facts(made, ARMS)), looks + 1
                warned += any(found.severity == "warning" for found in look.found)
                doubted += bool(look.unseen)
    print(f"base rate {rate:.0%}: {warned} of {looks} looks warn, {doubted} are undecided")
    assert warned == 0 and doubted <= looks * 3 // 100


def test_one_cause_that_strikes_all_arms_at_once_is_no_bias() -> None:
    """The engine dies while eleven trials of the arm that runs longest and one of another run."""
    burst = rows("heartbeat", 11, 0, code="engine_failed", apart_ms=1_000)
    burst += rows("plain", 1, 0, code="engine_failed", from_ms=NOW + 11_000)
    others = [row for arm in ARMS for row in rows(arm, 0, 8, from_ms=NOW + 3_600_000)]
    look = infra_disparity(facts([*burst, *others], ARMS))
    assert look.found == ()
    assert (look.looked_at, look.of) == (42, 52)
    # Over hours the same failures are the arm's own.
    spread = [replace(row, rested_at_ms=NOW + n * 120_000) for n, row in enumerate(burst)]
    assert [each.subject for each in infra_disparity(facts([*spread, *others], ARMS)).found] == ["heartbeat"]


def test_failures_of_one_arm_alone_at_one_moment_are_no_common_cause() -> None:
    """A gate that says no to whatever of the arm is admitted: all of it at once, and nothing of the others."""
    burst = rows("heartbeat", 9, 0, apart_ms=1_000)
    assert infra_disparity(facts([*burst, *alike("heartbeat")], ARMS)).found[0].subject == "heartbeat"


def test_what_begins_again_and_fails_again_is_no_burst() -> None:
    """Attempts that last a second each, of one arm, and a single one of another arm among them."""
    again = [replace(row, created_at_ms=(row.rested_at_ms or 0) - 900) for row in rows("goal", 12, 0, apart_ms=1_000)]
    other = rows("plain", 1, 0, from_ms=NOW + 5_500)
    assert [each.subject for each in infra_disparity(facts([*again, *other, *alike("goal")], ARMS)).found] == ["goal"]


def test_whole_blocks_that_fail_are_no_bias() -> None:
    every = [row for arm in ARMS for row in rows(arm, 15, 15, code="image_gone")]
    assert infra_disparity(facts(every, ARMS)).found == ()


@pytest.mark.parametrize("code", ["daemon_lost", "host_rebooted", "ledger_copied"])
def test_what_a_restart_of_ours_ended_does_not_count(code: str) -> None:
    assert infra_disparity(facts([*rows("goal", 15, 0, code=code), *alike("goal")], ARMS)).found == ()


def test_what_a_person_withdrew_is_no_failure_of_infrastructure() -> None:
    by_person = {"infra": False, "void_by": "operator", "void_code": "operator", "void_side": "operator"}
    withdrawn = [replace(row, **by_person) for row in rows("goal", 15, 0)]
    look = infra_disparity(facts([*withdrawn, *alike("goal")], ARMS))
    assert look.found == () and look.looked_at == look.of - 15


def test_reference_arms_and_imported_campaigns_are_not_compared() -> None:
    trials = [*rows("oracle", 0, 30), *rows("goal", 9, 0), *rows("plain", 0, 30)]
    kinds = {"oracle": "oracle", "goal": "codex", "plain": "codex"}
    look = infra_disparity(facts(trials, ("oracle", "goal", "plain"), kinds=kinds))
    assert look.of == 39 and "oracle" not in look.found[0].detail
    assert infra_disparity(facts(trials, ("goal", "plain"), origin="import")).of == 0
