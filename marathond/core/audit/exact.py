"""Tests that compare one arm with the others, without any library: exact where that is cheap, by ranks where it is not.

Owns the arithmetic and nothing of what it is about.  All of them are one-sided (is this arm *above* the others?), cost microseconds to
milliseconds whatever the size of the campaign, and never say 0: a probability that small is the smallest float.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, lgamma, log, sqrt
from sys import float_info


def log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


@lru_cache(maxsize=4096)
def fisher_above(hit: int, of: int, others_hit: int, others: int) -> float:
    """Fisher's exact test, one-sided: how likely ``hit`` or more of ``of`` are, if it is chance who is hit.

    The tail of the hypergeometric distribution with both margins given; each term follows from the one before, and those that no longer
    change the sum are left out.
    """
    total, marked = of + others, hit + others_hit
    term = exp(log_choose(marked, hit) + log_choose(total - marked, of - hit) - log_choose(total, of))
    tail = term
    for k in range(hit, min(of, marked)):
        term *= (marked - k) * (of - k) / ((k + 1) * (total - marked - of + k + 1))
        tail += term
        if term < tail * 1e-17:
            break
    return min(1.0, max(tail, float_info.min))


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjusted for their number (Holm 1979): no smaller than that of any that is less likely.  [.01 .04 .03 .005] → [.03 .06 .06 .02]."""
    adjusted: dict[str, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p, key=lambda each: (p[each], each))):
        least = max(least, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = least
    return adjusted


@dataclass(frozen=True, slots=True)
class Ranked:
    """``p``: one-sided.  ``ours``, ``theirs``: numbers of values that were compared, in strata that hold both."""

    p: float
    ours: int
    theirs: int


def ranks_above(values: Iterable[tuple[str, bool, float]]) -> Ranked:
    """Van Elteren's test: Wilcoxon's rank sums within strata, added up with weights 1/(N+1), so that tasks that differ do not matter.

    :param values: (stratum, is it ours, value).
    :returns: by the normal approximation of the permutation distribution, ties in its variance.  Rank sums are bounded, their tails are
        lighter than the normal one's, so that far out it errs towards saying nothing (van Elteren 1960; Lehmann, *Nonparametrics*, 3.3).
    """
    strata: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for stratum, ours, value in values:
        strata[stratum].append((value, ours))
    above = variance = 0.0
    mine = theirs = 0
    for rows in strata.values():
        n, size = sum(ours for _, ours in rows), len(rows)
        if not 0 < n < size:
            continue
        rows.sort()
        ranks, ties = _midranks(rows)
        weight = 1 / (size + 1)
        above += weight * (ranks - n * (size + 1) / 2)
        variance += weight**2 * n * (size - n) / 12 * (size + 1 - ties / (size * (size - 1)))
        mine, theirs = mine + n, theirs + size - n
    if variance <= 0:
        return Ranked(1.0, mine, theirs)
    return Ranked(max(float_info.min, erfc(above / sqrt(2 * variance)) / 2), mine, theirs)


def _midranks(rows: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Sum of ours' ranks, and the sum of t³-t over groups of t equal values."""
    total = ties = 0.0
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and rows[end][0] == rows[start][0]:
            end += 1
        equal = end - start
        total += (start + end + 1) / 2 * sum(ours for _, ours in rows[start:end])
        ties += equal**3 - equal
        start = end
    return total, ties


def median(values: Sequence[float]) -> float:
    """:raises IndexError: of none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def minus_log(p: float) -> float:
    return -log(max(p, float_info.min))
