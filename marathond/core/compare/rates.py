"""Shares of solved trials: intervals, pass@k, and errors of a mean over trials that share a task.

Owns these formulas.  Pure; must not know cells.  Nothing here returns NaN or an infinity: what is undefined is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy.special import ndtri

from marathond.core.compare.paired import mean
from marathond.core.compare.result import Interval


def wilson(solved: int, tried: int, level: float = 0.95) -> Interval | None:
    """Wilson's score interval (1927) of a share, over trials taken to be independent; None: nothing was tried."""
    if tried < 1:
        return None
    z2 = float(ndtri(0.5 + level / 2)) ** 2
    share = solved / tried
    centre = (share + z2 / (2 * tried)) / (1 + z2 / tried)
    half = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * tried)) / tried) / (1 + z2 / tried)
    low = 0.0 if solved == 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if solved == tried else min(1.0, centre + half), level)


def at_least_one(tried: int, solved: int, k: int) -> float | None:
    """pass@k = 1 - C(n-c, k)/C(n, k) (Chen et al. 2021): at least one of k trials drawn from n solves.  None: k > n, undefined."""
    return None if not 1 <= k <= tried else 1 - math.comb(tried - solved, k) / math.comb(tried, k)


def all_of(tried: int, solved: int, k: int) -> float | None:
    """pass^k = C(c, k)/C(n, k) (Yao et al. 2024): all of k trials drawn from n solve.  None: k > n, undefined."""
    return None if not 1 <= k <= tried else math.comb(solved, k) / math.comb(tried, k)


def clustered_error(clusters: Mapping[str, Sequence[float]], *, corrected: bool = True) -> float | None:
    """Standard error of the mean of all values when those of one cluster go together (Liang and Zeger 1986).

    sqrt(sum over clusters of (sum of (value - mean))^2) / n; ``corrected`` times sqrt(G/(G-1)) for G clusters.  None: fewer than two.
    """
    filled = {name: values for name, values in clusters.items() if values}
    if len(filled) < 2:
        return None
    values = [value for each in filled.values() for value in each]
    centre = mean(values)
    squares = math.fsum(math.fsum(value - centre for value in each) ** 2 for each in filled.values())
    error = math.sqrt(squares) / len(values)
    return error * math.sqrt(len(filled) / (len(filled) - 1)) if corrected else error


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979): adjusted p values in the order given, as statsmodels' multipletests(method='holm')."""
    adjusted, most, left = [1.0] * len(ps), 0.0, len(ps)
    for place in sorted(range(len(ps)), key=lambda index: ps[index]):
        most = max(most, min(1.0, ps[place] * left))
        adjusted[place], left = most, left - 1
    return adjusted
