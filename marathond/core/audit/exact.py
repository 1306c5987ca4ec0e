"""Tests that compare one arm with the others, without any library: exact where that is cheap, by ranks where it is not.

Owns the arithmetic and nothing of what it is about.  All of them are one-sided, cost microseconds to
milliseconds whatever the size of the campaign, and never say 0: a probability that small is the smallest float.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, lgamma, sqrt
from sys import float_info
from typing import TypeVar

K = TypeVar("K")


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


def holm(p: Mapping[K, float]) -> dict[K, float]:
    """Adjusted for their number (Holm 1979): no smaller than that of any that is less likely.  [.01 .04 .03 .005] → [.03 .06 .06 .02]."""
    adjusted: dict[K, float] = {}
    least = 0.0
    for rank, name in enumerate(sorted(p, key=lambda each: p[each])):
        least = max(least, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = least
    return adjusted


@dataclass(frozen=True, slots=True)
class Ranked:
    """``z``: above 0 where ours are the larger ones.  ``ours``, ``theirs``: numbers of values that were compared, in strata with both."""

    z: float
    ours: int
    theirs: int

    def p(self, *, below: bool = False) -> float:
        """One-sided: that ours are so much larger, or with ``below`` smaller, by chance."""
        return max(float_info.min, erfc((-self.z if below else self.z) / sqrt(2)) / 2)


def ranks(values: Iterable[tuple[str, str, float]]) -> dict[str, Ranked]:
    """Van Elteren's test of each group against all others together: Wilcoxon's rank sums within strata, added up with weights 1/(N+1), so
    that tasks that differ do not matter.

    :param values: (stratum, group, value).
    :returns: by the normal approximation of the permutation distribution, ties in its variance.  Rank sums are bounded, their tails are
        lighter than the normal one's, so that far out it errs towards saying nothing (van Elteren 1960; Lehmann, *Nonparametrics*, 3.3).
    """
    strata: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for stratum, group, value in values:
        strata[stratum].append((value, group))
    above: dict[str, float] = defaultdict(float)
    variance: dict[str, float] = defaultdict(float)
    mine: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for rows in strata.values():
        rows.sort()
        sizes, size = Counter(group for _, group in rows), len(rows)
        sums, ties = _midranks(rows)
        for group, n in sizes.items():
            if n < size:
                weight = 1 / (size + 1)
                above[group] += weight * (sums[group] - n * (size + 1) / 2)
                variance[group] += weight**2 * n * (size - n) / 12 * (size + 1 - ties / (size * (size - 1)))
                mine[group] += n
                theirs[group] += size - n
    return {
        group: Ranked(above[group] / sqrt(variance[group]) if variance[group] > 0 else 0.0, mine[group], theirs[group]) for group in mine
    }


def _midranks(rows: Sequence[tuple[float, str]]) -> tuple[dict[str, float], float]:
    """Each group's sum of ranks, and the sum of t³-t over runs of t equal values."""
    sums: dict[str, float] = defaultdict(float)
    ties = 0.0
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and rows[end][0] == rows[start][0]:
            end += 1
        for _, group in rows[start:end]:
            sums[group] += (start + end + 1) / 2
        equal = end - start
        ties += equal**3 - equal
        start = end
    return sums, ties


def median(values: Sequence[float]) -> float:
    """:raises IndexError: of none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
