"""Paired differences with the task as the unit: "tasks like these".

Owns these tests over one difference per task.  Pure; a difference is the first arm less the second.  Must not know cells.
Nothing here returns NaN or an infinity: what is undefined is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import nctdtrinc, stdtr, stdtrit

from marathond.core.compare.result import Interval

SAME = 1e-12
"""Means of rewards this near to each other are equal: they differ by rounding."""
EXACT_AT_MOST = 30
"""Tasks that differ, up to which every one of the 2^m sign flips is counted; beyond it flips are drawn."""
DRAWS, AT_ONCE, SEED = 50_000, 5_000, 20_260_921
ALPHA, POWER = 0.05, 0.80


@dataclass(frozen=True, slots=True)
class PairedT:
    """Student's t over differences; None where one value, or no spread, leaves it undefined.  ``mde``: see :func:`detectable`."""

    se: float | None = None
    t: float | None = None
    p: float | None = None
    interval: Interval | None = None
    mde: float | None = None


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly (math.fsum), so that the order of the values does not matter."""
    return math.fsum(values) / len(values)


def standard_error(values: Sequence[float]) -> float | None:
    """sqrt(s2/n) with n - 1 degrees of freedom; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (n - 1) / n)


def paired_t(differences: Sequence[float]) -> PairedT:
    """Student (1908): t = mean/SE with n - 1 degrees of freedom; as scipy.stats.ttest_rel.

    No spread at all leaves t undefined: then the standard error is 0, and there is neither p nor interval.
    """
    se, n = standard_error(differences), len(differences)
    if se is None:
        return PairedT()
    if se <= SAME:
        return PairedT(se=0.0)
    centre, half = mean(differences), float(stdtrit(n - 1, 1 - ALPHA / 2)) * se
    t = centre / se
    return PairedT(se, t, float(2 * stdtr(n - 1, -abs(t))), Interval(centre - half, centre + half, 1 - ALPHA), detectable(n) * se)


def detectable(n: int) -> float:
    """In standard errors: the least true difference that a two-sided paired t test at 5 % finds with 80 % power, from ``n`` >= 2 pairs.

    The noncentrality at which P(T' > t_crit) = .80, T' noncentral t with n - 1 degrees of freedom (Cohen 1988, ch. 2).  The other tail,
    a significant difference the wrong way round, has less than a millionth there and is left out.
    """
    return float(nctdtrinc(n - 1.0, 1 - POWER, float(stdtrit(n - 1.0, 1 - ALPHA / 2))))


@dataclass(frozen=True, slots=True)
class Signs:
    """How many tasks differ, and which way; ``smallest_p``: the least two-sided exact p that so many can give, 2 (1/2)^m."""

    wins: int
    losses: int

    @property
    def discordant(self) -> int:
        return self.wins + self.losses

    @property
    def smallest_p(self) -> float:
        return min(1.0, 2.0 * 0.5**self.discordant)


def signs(differences: Sequence[float]) -> Signs:
    return Signs(sum(each > SAME for each in differences), sum(each < -SAME for each in differences))


def sign_test(first: int, second: int) -> float:
    """Exact two-sided binomial test of two counts at 1/2 (Arbuthnott 1710; exact McNemar is the same sum); no case at all: 1."""
    n, least = first + second, min(first, second)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(least + 1)) / (1 << n))


def sign_flip(differences: Sequence[float]) -> tuple[float, bool]:
    """Two-sided sign-flip (Fisher-Pitman) permutation test of the mean difference, and whether it is exact.

    The share of the 2^m ways to sign the m differences that are not 0 whose sum is at least as far from 0 as the observed one; as
    scipy.stats.permutation_test with permutation_type='samples'.  All are counted, by halves: each sum of the one half is looked up among
    the sorted sums of the other.  Beyond :data:`EXACT_AT_MOST` flips are drawn with a fixed seed, the observed one counted in.
    """
    moved = [each for each in differences if abs(each) > SAME]
    if not moved:
        return 1.0, True
    observed = abs(math.fsum(moved)) - 1e-9 * math.fsum(map(abs, moved))  # sums in another order differ by rounding
    if len(moved) > EXACT_AT_MOST:
        return _drawn(np.array(moved), observed), False
    ones, others = _sums(moved[::2]), np.sort(_sums(moved[1::2]))
    far = len(others) - np.searchsorted(others, observed - ones, side="left") + np.searchsorted(others, -observed - ones, side="right")
    whole = 2 ** len(moved)
    return min(1.0, int(far.sum()) / whole), True


def _sums(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of all ways to sign the values."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def _drawn(moved: np.ndarray[tuple[int], np.dtype[np.float64]], observed: float) -> float:
    """A sum with signs is twice the sum of those that keep theirs, less the whole.  The raw stream of PCG64 is the same in every numpy."""
    draw, far, whole, words = np.random.PCG64(SEED), 0, float(moved.sum()), -(-len(moved) // 64)
    for _ in range(0, DRAWS, AT_ONCE):
        raw = np.asarray(draw.random_raw(AT_ONCE * words), dtype="<u8").view(np.uint8).reshape(AT_ONCE, -1)
        kept = np.unpackbits(raw, axis=1, count=len(moved)).astype(np.float64)
        far += int((np.abs(2 * (kept @ moved) - whole) >= observed).sum())
    return (far + 1) / (DRAWS + 1)


def wilcoxon(differences: Sequence[float]) -> float | None:
    """Exact two-sided signed-rank test (Wilcoxon 1945): zeros dropped, equal sizes given their mean rank; as
    scipy.stats.wilcoxon(method='exact') where no two sizes are equal.

    With ties the exact distribution is the sign-flip's, of the ranks.  None: all are 0, or so many differ that it would be drawn.
    """
    moved = np.array([each for each in differences if abs(each) > SAME])
    if not len(moved) or len(moved) > EXACT_AT_MOST:
        return None
    sizes = np.round(np.abs(moved), 12)
    _, place, times = np.unique(sizes, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[place]
    return sign_flip([float(each) for each in np.sign(moved) * ranks])[0]
