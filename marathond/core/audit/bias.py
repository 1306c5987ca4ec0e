"""Infrastructure failures that hit one arm more than the others (fault a06): looked at after every trial that comes to rest.

Pure.  Owns which trials count and when the difference is called bias.

**Statistic.**  Each trial that came to rest either failed by infrastructure or got through to a score or a review.  For each arm: Fisher's
exact test, one-sided, of its share against all other arms together, every attempt a trial; Holm over the arms.

**Why not .01.**  It is asked again after every trial, so that chance has many tries: at a fixed level of 1 % a clean campaign of 500 cells
with 10 % failures is accused in more than one of ten cases.  For continuous looks from n0 to n1 trials the chance that a standardised
difference ever exceeds c is about phi(c) * [(c - 1/c) * ln(n1/n0) / 2 + 2/c], one-sided (Miller and Siegmund, *Maximally selected chi
square statistics*, Biometrics 38, 1982): it grows with the logarithm of the number of looks, times the number of arms.  Error is therefore
spent over the looks (Lan and DeMets, *Discrete sequential boundaries for clinical trials*, Biometrika 70, 1983), by the number n of the
arm's trials, where it buys most:

* at n = DECISIVE (40), where the rule must decide, the level is LEVEL = .0045 after Holm: five arms give c = 3.1, and one look there costs
  at most .0045;
* before, it shrinks as exp(-6 * (40/n - 1)), the shape of O'Brien and Fleming's boundary: what is there early, with few numbers, is paid
  for dearly;
* behind, as (40/n)^4: a difference that was not to be seen by then is small, and looks there are many;
* never below FLOOR = .0001: each further doubling of the campaign costs some .0006 by the formula above, and an arm of which every
  trial fails is named by its sixth (6 of 6 against 0 of 24: p = 1.7e-6).

By simulation (``tests/unit/test_audit_bias.py``; 5 arms, 20 tasks x 5 replicates in blocks, 12 at a time, retries at once, a look after
every trial), false alarms in 0, 0.2 and 0.6 % of campaigns whose failure rate is 0, 3 and 10 %; an arm at 30 % against 3 % is named within
40 of its trials in 92 to 93 of 100.  Of two arms alone it is so in half of the campaigns only: there are fewer others to compare with.

**Below the level.**  Of two arms a dead one reaches it by its ninth trial only (8 of 8 against 0 of 8: p = 1.6e-4 after Holm), and a
breaker may stand long before.  An arm of which every trial fails, ALL_FAIL of them at least, while as many of the others all got through,
is a warning, which stops nothing.  What is neither, but at a single look would be called unlikely (DOUBT), or has nothing to be compared
with, is undecided: said with its counts, and never "ok".

**What is no bias.**  One cause that strikes whoever runs just then: an unbroken row of trials at rest, each within a minute of the one
before, all begun before the first of them ended, all void by one code, over more than one arm.  It counts once per arm and not once per
trial, for an engine that dies strikes more trials of the arm that runs longest.  Whole blocks that fail make arms more alike, not less.
Ends that a restart of ours caused do not count, nor what a person withdrew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from marathond.core.audit.exact import fisher_above, holm
from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import compared_arms, of_compared, per_arm, run_here

LEVEL, DECISIVE, FLOOR = 0.0045, 40, 0.0001
BURST_MS = 60_000
OWN_ENDS = frozenset({"daemon_lost", "host_rebooted", "ledger_copied"})
"""A restart of ours ends whatever is being prepared just then; it says nothing of an arm."""
CODES_SHOWN = 3
ALL_FAIL = 4
DOUBT, DOUBT_FROM = 0.01, 3
"""Adjusted probability, and failures of an arm, from which on "nothing found" would say too much."""


def level(trials: int) -> float:
    """What a probability, adjusted over arms, must not exceed for an arm of so many trials to be named."""
    early, late = max(0.0, DECISIVE / max(trials, 1) - 1), max(1.0, trials / DECISIVE)
    return max(FLOOR, LEVEL * exp(-6 * early) / late**4)


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one arm: trials that came to rest, and how many of them failed by infrastructure."""

    of: int = 0
    failed: int = 0


def out_of_line(arms: dict[str, Tally]) -> dict[str, float]:
    """Arms whose share of failures is above the others' by more than chance allows at this look: name to its adjusted probability."""
    of, failed = sum(each.of for each in arms.values()), sum(each.failed for each in arms.values())
    p = {arm: _chance(each, failed, of) for arm, each in arms.items() if each.of}
    if len(p) < 2 or min(p.values()) > LEVEL:
        return {}
    return {arm: adjusted for arm, adjusted in holm(p).items() if adjusted <= level(arms[arm].of)}


def _chance(arm: Tally, failed: int, of: int) -> float:
    """One-sided; 1 of an arm that cannot be out of line: one that fails no more often than all together, or so seldom that even without a
    single failure elsewhere it were no wonder."""
    if arm.failed * of <= failed * arm.of:
        return 1.0
    least = 1.0
    for n in range(arm.failed):
        least *= (arm.of - n) / (of - n)
        if least <= LEVEL:
            return fisher_above(arm.failed, arm.of, failed - arm.failed, of - arm.of)
    return 1.0


def counted(facts: Facts) -> tuple[list[TrialFact], int]:
    """Trials that say something of their arm's infrastructure, and how many at rest there are."""
    compared = frozenset(compared_arms(facts))
    resting = [t for t in facts.trials if t.infra is not None and t.arm in compared]
    told = [t for t in resting if t.void_by != "operator" and t.void_code not in OWN_ENDS]
    return _bursts_once(sorted(told, key=lambda t: (t.rested_at_ms or 0, t.trial_id))), len(resting)


def _bursts_once(trials: Sequence[TrialFact]) -> list[TrialFact]:
    """Of each row of failures by one cause over several arms, the first of each arm alone."""
    kept: list[TrialFact] = []
    start = 0
    while start < len(trials):
        end = start + 1
        while end < len(trials) and _goes_on(trials[start], trials[end - 1], trials[end]):
            end += 1
        row = trials[start:end]
        firsts = {trial.arm: trial for trial in reversed(row)}
        kept += row if len(firsts) < 2 else sorted(firsts.values(), key=lambda trial: trial.trial_id)
        start = end
    return kept


def _goes_on(first: TrialFact, last: TrialFact, this: TrialFact) -> bool:
    if not (first.infra and this.infra and this.void_code == first.void_code):
        return False
    if first.rested_at_ms is None or last.rested_at_ms is None or this.rested_at_ms is None:
        return False
    return this.rested_at_ms - last.rested_at_ms <= BURST_MS and this.created_at_ms <= first.rested_at_ms


def tallies(arms: Iterable[str], trials: Iterable[TrialFact]) -> dict[str, Tally]:
    of: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for trial in trials:
        of[trial.arm] += 1
        failed[trial.arm] += bool(trial.infra)
    return {arm: Tally(of[arm], failed[arm]) for arm in arms}


def infra_disparity(facts: Facts) -> Look:
    """Subject: the arm."""
    if facts.origin != "run":
        return Look(0, 0, run_here(facts, "trials at rest"))
    trials, resting = counted(facts)
    arms = tallies(compared_arms(facts), trials)
    found, named = [], out_of_line(arms)
    failed, of = {arm: each.failed for arm, each in arms.items()}, {arm: each.of for arm, each in arms.items()}
    undecided = []
    for arm in arms:
        codes = Counter(str(trial.void_code) for trial in trials if trial.arm == arm and trial.infra)
        listed = ", ".join(f"{count} x {code}" for code, count in codes.most_common(CODES_SHOWN))
        others = per_arm([other for other in facts.arms if other != arm and other in of], failed, of) or "no trial of another arm at rest"
        words = f"infrastructure first: {failed[arm]} of {of[arm]} trials of {arm} failed by infrastructure ({listed}), against {others}"
        if arm not in named:
            if _all_fail(arms, arm):
                found.append(Found("infra_disparity", "warning", arm, f"{words}: all of its, and none of theirs; too few yet to stop for"))
            elif _doubtful(arms, arm):
                undecided.append(f"{failed[arm]} of {of[arm]} trials of {arm} failed by infrastructure ({listed}), against {others}")
            continue
        words = f"{words}; chance alone in {named[arm]:.1g} of cases (Fisher, Holm)"
        failing = tuple(trial.trial_id for trial in trials if trial.arm == arm and trial.infra)
        found.append(Found("infra_disparity", "stop_loss", arm, words, stops=True, trials=failing))
    unseen = f"undecided, too few trials at rest to tell it from chance: {'; '.join(undecided)}" if undecided else ""
    return Look(len(trials), resting, of_compared(facts, "trials at rest"), tuple(found), unseen)


def _rest(arms: Mapping[str, Tally], arm: str) -> Tally:
    others = [each for name, each in arms.items() if name != arm]
    return Tally(sum(each.of for each in others), sum(each.failed for each in others))


def _all_fail(arms: Mapping[str, Tally], arm: str) -> bool:
    mine, rest = arms[arm], _rest(arms, arm)
    return mine.of >= ALL_FAIL and mine.failed == mine.of and rest.of >= ALL_FAIL and not rest.failed


def _doubtful(arms: Mapping[str, Tally], arm: str) -> bool:
    """Of an arm that is not named: whether that says little."""
    mine, rest = arms[arm], _rest(arms, arm)
    if len(arms) < 2 or mine.failed < DOUBT_FROM:
        return False
    if rest.of < ALL_FAIL:
        return mine.failed == mine.of and not rest.failed
    return fisher_above(mine.failed, mine.of, rest.failed, rest.of) * len(arms) <= DOUBT


RULES: tuple[Rule, ...] = (
    Rule(
        "infra_disparity",
        "stop_loss",
        "Infrastructure first: it fails one arm's trials far more often than the others', so every further comparison is skewed.",
        "Repair what the codes name for that arm, then `marathonctl resume`; admission is closed for all arms until then, but after a "
        "warning (all of a few trials of the arm, none of the others').",
        infra_disparity,
        ("a06", "a01", "f15"),
    ),
)
