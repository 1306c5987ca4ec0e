"""Tests within tasks, for rewards of 0 and 1: "these tasks", and pairs of single replicates.

Owns strata of two by two counts.  Pure; must not know cells.  Nothing here returns NaN or an infinity: what is undefined is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from marathond.core.compare.paired import sign_test
from marathond.core.compare.result import Discordance

SAME = 1e-7
"""Relative: probabilities this near to each other are equal, as scipy.stats.fisher_exact has it."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One task: solved and tried by each arm."""

    solved_a: int
    tried_a: int
    solved_b: int
    tried_b: int

    @property
    def solved(self) -> int:
        return self.solved_a + self.solved_b

    @property
    def tried(self) -> int:
        return self.tried_a + self.tried_b

    @property
    def informative(self) -> bool:
        """Both outcomes occur, and both arms tried: another stratum has one possible table only."""
        return 0 < self.solved < self.tried and self.tried_a > 0 and self.tried_b > 0


def stratified_exact(strata: Sequence[Stratum]) -> float:
    """Exact conditional test that in no stratum the arms differ, two-sided; with one stratum it is Fisher's.

    Given every stratum's margins, a's solved trials are hypergeometric in each, and their sum's distribution is the convolution (Cox 1958;
    Agresti, Categorical Data Analysis, 6.4.6 and 7.3.5).  p: the sums that are at most as probable as the observed one.
    """
    whole, observed = np.ones(1), 0
    for each in strata:
        least, most = max(0, each.solved - each.tried_b), min(each.tried_a, each.solved)
        ways = math.comb(each.tried, each.solved)
        weights = [math.comb(each.tried_a, k) * math.comb(each.tried_b, each.solved - k) / ways for k in range(least, most + 1)]
        whole = np.convolve(whole, np.array(weights))
        observed += each.solved_a - least
    limit = whole[observed] * (1 + SAME)
    return min(1.0, float(whole[whole <= limit].sum()))


def cochran_mantel_haenszel(strata: Sequence[Stratum]) -> float | None:
    """Two-sided p of the Cochran-Mantel-Haenszel test (Mantel and Haenszel 1959), without a correction for continuity: chi-squared of
    (sum of a - E a)^2 / sum of Var a with one degree of freedom.  None: no stratum is informative."""
    away = variance = 0.0
    for each in strata:
        if each.informative:
            n = each.tried
            away += each.solved_a - each.tried_a * each.solved / n
            variance += each.tried_a * each.tried_b * each.solved * (n - each.solved) / (n * n * (n - 1))
    return None if variance <= 0 else float(chdtrc(1, away * away / variance))


def odds_ratio(strata: Sequence[Stratum]) -> float | None:
    """Mantel and Haenszel's common odds ratio, of a over b: sum of (a solved x b failed)/n over sum of (a failed x b solved)/n.

    None: no task speaks for b (it would be infinite), or none speaks at all."""
    told = [each for each in strata if each.tried]
    above = math.fsum(each.solved_a * (each.tried_b - each.solved_b) / each.tried for each in told)
    below = math.fsum((each.tried_a - each.solved_a) * each.solved_b / each.tried for each in told)
    return above / below if below > 0 else None


def discordance(pairs: Sequence[tuple[bool, bool]]) -> Discordance:
    """McNemar's exact test over pairs (a solved, b solved): binomial at 1/2 over those solved by one alone.

    Mid-p (Fagerland, Lydersen and Laake 2013) counts half of the observed table's probability.  No such pair: p is 1.
    """
    only_a, only_b = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    n, least = only_a + only_b, min(only_a, only_b)
    below = sum(math.comb(n, k) for k in range(least))
    p_mid = min(1.0, (2 * below + math.comb(n, least)) / (1 << n))
    both, neither = sum(a and b for a, b in pairs), sum(not a and not b for a, b in pairs)
    return Discordance(only_a, only_b, both, neither, sign_test(only_a, only_b), p_mid)
