"""One arm out of line: in latency, refused requests, dead or silent agents, overruns, endings, and in what its treatment makes it do.

Pure.  What only the infrastructure can cause is a warning or worse; what the treatment itself may cause (tokens, turns, endings) is told as
information, with these words, for it is a result as often as a fault.  Time that arms are held is another rule's (``held_disparity``).

Comparisons are one-sided tests of one arm against all others together, Holm over arms, and asked again and again while trials come in.
Their level is therefore a twentieth of a per mille (UNLIKELY): continuous looks multiply a fixed level by 10 to 20 until a campaign of 500
trials is complete (the formula stands in :mod:`~marathond.core.audit.bias`).  Beside it each difference must be large enough to matter,
and none is looked for among fewer than AT_LEAST trials.  ``tests/unit/test_audit_arms.py`` shows that they are silent on campaigns whose
arms are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil

from marathond.core.audit.exact import fisher_above, holm, median, ranks
from marathond.core.audit.facts import FIRST_REQUESTS, Facts, TrialFact
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import compared_arms, of_compared, per_arm
from marathond.core.names import EndedBy, trial_label

UNLIKELY = 0.00005
AT_LEAST = 8
"""Trials of an arm, and of all others together, before they are compared."""
SLOWER, SLOWER_MS = 1.5, 300.0
MORE = 2.0
"""Times the others' median, before tokens or turns are worth a word."""
OVERRUN_MS = 60_000
ENDINGS_EACH = 5
ENDED, ASKED = "ended trials", "ended trials that ask a model"
ALL_FAIL = 4
"""Of an arm, and of all others together, where every one of the arm's agents failed and none of the others'."""
AT_ONCE_MS, STATUSES_SHOWN = 10_000, 3
TREATMENT = "may be the treatment itself"
INFO = "info"


def ended(facts: Facts) -> list[TrialFact]:
    """Trials of compared arms whose agent has ended, graded or void."""
    compared = frozenset(compared_arms(facts))
    return [trial for trial in facts.trials if trial.ended_by is not None and trial.arm in compared]


def asked(facts: Facts) -> list[TrialFact]:
    return [trial for trial in ended(facts) if trial.asks_model]


def unlikely(hit: Mapping[str, int], of: Mapping[str, int]) -> dict[str, float]:
    """Arms of which more are hit than chance allows: name to its probability, adjusted."""
    all_hit, all_of = sum(hit.values()), sum(of.values())
    there = [arm for arm, count in of.items() if count >= AT_LEAST and all_of - count >= AT_LEAST]
    p = holm({arm: fisher_above(hit[arm], of[arm], all_hit - hit[arm], all_of - of[arm]) for arm in there})
    return {arm: each for arm, each in p.items() if each <= UNLIKELY}


def shares(
    facts: Facts,
    code: str,
    severity: str,
    words: str,
    trials: Sequence[TrialFact],
    hit: Callable[[TrialFact], bool | None],
    unseen: str,
    *,
    things: str,
) -> Look:
    """A finding for each arm of whose trials too many are hit.

    :param things: what ``trials`` are: a rule about agents that ask a model says so, for other agents have ended, too.
    :param hit: None: it is not known of this trial.
    :param unseen: why it is known of none.
    """
    told = [(trial.arm, bool(is_hit)) for trial in trials if (is_hit := hit(trial)) is not None]
    arms = compared_arms(facts)
    of, hits = Counter(arm for arm, _ in told), Counter(arm for arm, is_hit in told if is_hit)
    found = []
    for arm, p in unlikely({arm: hits[arm] for arm in arms}, {arm: of[arm] for arm in arms}).items():
        others = per_arm([other for other in arms if other != arm], hits, of)
        text = f"{hits[arm]} of {of[arm]} trials of {arm} {words}, against {others}; chance alone in {p:.1g} of cases (Fisher, Holm)"
        found.append(Found(code, severity, arm, text))
    return Look(len(told), len(trials), of_compared(facts, things), tuple(found), unseen if trials and not told else "")


def amounts(
    facts: Facts, trials: Sequence[TrialFact], amount: Callable[[TrialFact], float | None], *, below: bool
) -> tuple[list[tuple[str, float, float, float]], int]:
    """Arms whose amount is above (or, with ``below``, beneath, too) the others', task by task: (arm, its median, the others', probability);
    and of how many trials it is known."""
    told = [(trial.task, trial.arm, value) for trial in trials if (value := amount(trial)) is not None]
    p: dict[tuple[str, bool], float] = {}
    for arm, ranked in ranks(told).items():
        if ranked.ours >= AT_LEAST and ranked.theirs >= AT_LEAST:
            for side in (False, True) if below else (False,):
                p[arm, side] = ranked.p(below=side)
    return [(arm, *_medians(told, arm), each) for (arm, _), each in holm(p).items() if each <= UNLIKELY], len(told)


def _medians(told: Sequence[tuple[str, str, float]], arm: str) -> tuple[float, float]:
    return median([value for _, each, value in told if each == arm]), median([value for _, each, value in told if each != arm])


def latency_disparity(facts: Facts) -> Look:
    """The first requests alone: there what arms send is still alike (fault a03)."""
    trials = asked(facts)
    out, told = amounts(facts, trials, lambda trial: trial.first_byte_ms, below=False)
    found = [
        Found(
            "latency_disparity",
            "warning",
            arm,
            f"the first byte of the first {FIRST_REQUESTS} requests comes after {mine / 1000:.1f} s in {arm}, after "
            f"{theirs / 1000:.1f} s in the other arms (medians); chance alone in {p:.1g} of cases (van Elteren over tasks, Holm)",
        )
        for arm, mine, theirs, p in out
        if mine >= SLOWER * theirs and mine - theirs >= SLOWER_MS
    ]
    unseen = "of no trial is the time to the first byte recorded" if trials and not told else ""
    return Look(told, len(trials), ASKED, tuple(found), unseen)


def _differ(facts: Facts, code: str, noun: str, amount: Callable[[TrialFact], float | None]) -> Look:
    trials = asked(facts)
    out, told = amounts(facts, trials, amount, below=True)
    found = [
        Found(
            code,
            INFO,
            arm,
            f"{noun} of a trial: {mine:,.0f} in {arm}, {theirs:,.0f} in the other arms (medians), {TREATMENT}; "
            f"chance alone in {p:.1g} of cases (van Elteren over tasks, Holm)",
        )
        for arm, mine, theirs, p in out
        if mine >= MORE * theirs or theirs >= MORE * mine
    ]
    unseen = f"of no trial are its {noun} known" if trials and not told else ""
    return Look(told, len(trials), ASKED, tuple(found), unseen)


def _tokens(trial: TrialFact) -> float | None:
    return None if trial.input_tokens is None or trial.output_tokens is None else trial.input_tokens + trial.output_tokens


def tokens_differ(facts: Facts) -> Look:
    return _differ(facts, "tokens_differ", "tokens", _tokens)


def turns_differ(facts: Facts) -> Look:
    return _differ(facts, "turns_differ", "turns", lambda trial: trial.turns)


def bad_request_disparity(facts: Facts) -> Look:
    """More general than ``bad_request_one_arm``: other arms are hit, too, but less often (fault a02)."""
    words = "met HTTP 4xx (429 and what the agent's own words earned left out)"
    unseen = "no request of any agent is recorded"
    return shares(facts, "bad_request_disparity", "error", words, asked(facts), _met_bad, unseen, things=ASKED)


def _met_bad(trial: TrialFact) -> bool | None:
    return None if trial.bad_requests is None else trial.bad_requests > 0


def overrun_disparity(facts: Facts) -> Look:
    """How long an agent went on behind its deadline; None in the ledger is none (fault c19)."""
    words = f"ran on for more than {OVERRUN_MS // 1000} s behind their deadline"
    return shares(
        facts, "overrun_disparity", "warning", words, ended(facts), lambda trial: (trial.overrun_ms or 0) > OVERRUN_MS, "", things=ENDED
    )


def reattached_differ(facts: Facts) -> Look:
    words = "were taken over by another life of the daemon"
    return shares(facts, "reattached_differ", INFO, words, ended(facts), lambda trial: trial.reattached > 0, "", things=ENDED)


def endings_differ(facts: Facts) -> Look:
    """One row of counts per way to end; Holm over arms within each, and over the ways that there are."""
    trials = ended(facts)
    arms = compared_arms(facts)
    of = Counter(trial.arm for trial in trials)
    ways = sorted({str(trial.ended_by) for trial in trials})
    found = []
    for way in ways:
        hits = Counter(trial.arm for trial in trials if trial.ended_by == way)
        for arm, p in unlikely({arm: hits[arm] for arm in arms}, {arm: of[arm] for arm in arms}).items():
            if p * len(ways) <= UNLIKELY:
                others = per_arm([other for other in arms if other != arm], hits, of)
                text = f"ended by {way}: {hits[arm]} of {of[arm]} trials of {arm}, against {others}; {TREATMENT} (Fisher, Holm: {p:.1g})"
                found.append(Found("endings_differ", INFO, f"{arm} {way}", text))
    return Look(len(trials), len(trials), of_compared(facts, ENDED), tuple(found))


def exits_differ(facts: Facts) -> Look:
    """Of agents that ended by themselves and left an exit status: an app-server that was told to end has none, and what we killed ours."""
    trials = [trial for trial in ended(facts) if trial.ended_by == EndedBy.AGENT and trial.exit_code is not None]
    words = "ended by themselves with another exit status than 0"
    things = "agents that ended by themselves with an exit status"
    look = shares(facts, "exits_differ", INFO, words, trials, lambda trial: trial.exit_code != 0, "", things=things)
    whole = {found.subject: found for arm in compared_arms(facts) if (found := _all_fail(facts, arm, trials)) is not None}
    return replace(look, found=(*whole.values(), *(found for found in look.found if found.subject not in whole)))


def _all_fail(facts: Facts, arm: str, trials: Sequence[TrialFact]) -> Found | None:
    """Every agent of the arm failed and no other arm's did: no test of chance is asked for it, and few of each are enough.

    An agent of a command leaves no receipt that would tell of what it did; one that is gone at once with a failing status did nothing.
    """
    mine, rest = [t for t in trials if t.arm == arm], [t for t in trials if t.arm != arm]
    if len(mine) < ALL_FAIL or len(rest) < ALL_FAIL or not all(t.exit_code for t in mine) or any(t.exit_code for t in rest):
        return None
    statuses = ", ".join(f"{status}" for status, _ in Counter(t.exit_code for t in mine).most_common(STATUSES_SHOWN))
    others = per_arm([other for other in compared_arms(facts) if other != arm], {}, Counter(t.arm for t in rest))
    took = [t.agent_ms for t in mine if t.agent_ms is not None]
    every = sum(t.arm == arm for t in ended(facts))
    if len(took) == every and max(took) <= AT_ONCE_MS:
        took_s = ceil(max(took) / 100) / 10
        words = (
            f"every agent of {arm} was gone at once: all {len(mine)} ended by themselves within {took_s:.1f} s with exit status "
            f"{statuses}, as a command does whose path or arguments are wrong; failed in the other arms: {others}"
        )
        return Found("exits_differ", "error", arm, f"{words}; its last words: marathonctl logs {trial_label(mine[-1].trial_id)}")
    words = f"all {len(mine)} agents of {arm} that ended by themselves left exit status {statuses}, those of the other arms 0"
    return Found("exits_differ", "warning", arm, f"{words}: {others}; see marathonctl logs {trial_label(mine[-1].trial_id)}")


def reward_by_ending(facts: Facts) -> Look:
    """No test: what ends by its budget differs from what ends by itself in more than that."""
    done = [trial for trial in ended(facts) if trial.state == "scored" and trial.reward is not None]
    told = [trial for trial in done if trial.budget_ended is not None]
    found = []
    for arm in compared_arms(facts):
        spent, own = ([t.reward or 0.0 for t in told if t.arm == arm and t.budget_ended is by] for by in (True, False))
        if len(spent) >= ENDINGS_EACH and len(own) >= ENDINGS_EACH:
            text = (
                f"mean reward of {arm}: {sum(spent) / len(spent):.2f} where its budget ended it ({len(spent)} cells), "
                f"{sum(own) / len(own):.2f} where it ended itself ({len(own)} cells)"
            )
            found.append(Found("reward_by_ending", INFO, arm, text))
    unseen = "of no done cell is it known how its agent ended" if done and not told else ""
    return Look(len(told), len(done), of_compared(facts, "done cells"), tuple(found), unseen)


RULES: tuple[Rule, ...] = (
    Rule(
        "latency_disparity",
        "warning",
        "The provider answers one arm later than the others, from the first request on: it loses time that the others have.",
        "Compare routes, models and regions of the arms; if they differ by no one's decision, repair that and void whole blocks.",
        latency_disparity,
        ("a03",),
    ),
    Rule(
        "bad_request_disparity",
        "error",
        "One arm's requests are refused far more often than the others': its client sends something that the provider does not take.",
        "Read the error types (`marathonctl show`), add the field to gateway.strip, in a new campaign; void what it hit, by blocks.",
        bad_request_disparity,
        ("a02",),
    ),
    Rule(
        "overrun_disparity",
        "warning",
        "Agents of one arm ran on behind their deadline more often: they had time that the others had not.",
        "See whether the daemon was away then; void what gained by it, by blocks.",
        overrun_disparity,
        ("c19",),
    ),
    Rule(
        "reattached_differ",
        "info",
        "Restarts of the daemon met one arm's trials more often, as they do those that run longest.",
        "Nothing to repair; if the arm's scores look odd, compare its trials with and without a restart.",
        reattached_differ,
        ("f02",),
    ),
    Rule(
        "tokens_differ",
        "info",
        "One arm uses far more or far fewer tokens than the others on the same tasks; may be the treatment itself.",
        "Report it beside the scores; look at a trajectory if the arm's row does not explain it.",
        tokens_differ,
        ("a01",),
    ),
    Rule(
        "turns_differ",
        "info",
        "One arm takes far more or far fewer turns than the others on the same tasks; may be the treatment itself.",
        "Report it beside the scores; look at a trajectory if the arm's row does not explain it.",
        turns_differ,
    ),
    Rule(
        "endings_differ",
        "info",
        "One arm's trials end another way than the others'; may be the treatment itself.",
        "Report endings beside the scores; a cap that binds one arm only decides its result.",
        endings_differ,
        ("a04", "c15"),
    ),
    Rule(
        "exits_differ",
        "warning",
        "Agents of one arm end by themselves with another exit status than 0, more often than the others' (info), all of them and none of "
        "the others' (warning), or all of them at once (error): they may crash, or never have begun.",
        "Read the last lines of one (`marathonctl logs`); a crash of the arm's own program is its result, one of its set-up is not: repair "
        "it in a new campaign, for what it scored is not the arm's.",
        exits_differ,
        ("f15",),
    ),
    Rule(
        "reward_by_ending",
        "info",
        "What an arm earns where its budget ended it, and where it ended itself.",
        "Read the arm's mean with it: more time might help the first kind and not the second.",
        reward_by_ending,
    ),
)
