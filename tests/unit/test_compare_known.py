"""Every method of the comparison against an answer that is known beforehand, to the printed digit, and against scipy's own."""

from __future__ import annotations

import math

import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats.contingency import odds_ratio as scipy_odds_ratio

from marathond.core.compare import paired, rates, within
from marathond.core.compare.within import Stratum

A, B = (1, 0.8, 0.6, 0.2, 0), (0.8, 0.4, 0.6, 0, 0)
D = [a - b for a, b in zip(A, B, strict=True)]
CLUSTERS = {"one": [1, 1], "two": [1, 0], "three": [0, 0]}
FLAT = [1, 1, 1, 0, 0, 0]

unequal = st.lists(st.integers(-40, 40).map(lambda n: n / 40), min_size=2, max_size=11)
few = settings(max_examples=40, deadline=None)


def printed(value: float | None, digits: str) -> None:
    """``value`` rounds to ``digits`` as they are printed."""
    assert value is not None
    places = len(digits.partition(".")[2])
    assert f"{value:.{places}f}" == (digits if not digits.startswith(".") else f"0{digits}")


def test_standard_error_of_the_mean() -> None:
    printed(paired.standard_error(FLAT), ".223607")
    assert paired.standard_error([1.0]) is None


def test_clustered_standard_error_in_its_sum_form_and_corrected() -> None:
    printed(rates.clustered_error(CLUSTERS, corrected=False), ".235702")
    printed(rates.clustered_error(CLUSTERS), ".288675")
    assert rates.clustered_error({"one": [1, 0], "none": []}) is None


def test_paired_t_by_task() -> None:
    found = paired.paired_t(D)
    printed(paired.mean(D), ".16")
    printed(found.se, ".074833")
    printed(found.t, "2.13809")
    printed(found.p, ".099301")
    assert found.interval is not None
    assert f"[{found.interval.low:.5f},{found.interval.high:.5f}]" == "[-0.04777,0.36777]"


@few
@given(unequal)
def test_paired_t_is_scipys(differences: list[float]) -> None:
    found = paired.paired_t(differences)
    if found.t is None:
        assert max(differences) == pytest.approx(min(differences)) and found.p is None and found.interval is None
        return
    theirs = scipy.stats.ttest_rel(differences, [0.0] * len(differences))
    interval = theirs.confidence_interval()
    assert (found.t, found.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high))


def test_exact_sign_flip() -> None:
    assert paired.sign_flip(D) == (0.25, True)


@few
@given(unequal)
def test_exact_sign_flip_is_scipys_permutation_test(differences: list[float]) -> None:
    p, exact = paired.sign_flip(differences)
    theirs = scipy.stats.permutation_test(
        (differences, [0.0] * len(differences)),
        lambda x, y, axis: (x - y).sum(axis=axis),
        permutation_type="samples",
        n_resamples=math.inf,
        vectorized=True,
    )
    assert exact
    assert p == pytest.approx(theirs.pvalue)


def test_sign_flips_of_many_tasks_are_drawn_with_a_fixed_seed_and_near_the_exact_p() -> None:
    """Thirty are counted; with one more, too small to matter, they are drawn."""
    thirty = [0.1 * (-1) ** (n % 3) * (1 + n % 7) for n in range(30)]
    exact, counted = paired.sign_flip(thirty)
    drawn, drawn_exact = paired.sign_flip([*thirty, 1e-9])
    assert (counted, drawn_exact) == (True, False)
    assert drawn == paired.sign_flip([*thirty, 1e-9])[0]
    assert drawn == pytest.approx(exact, abs=5 * math.sqrt(exact * (1 - exact) / paired.DRAWS))
    assert paired.sign_flip([1.0] * 60)[0] == pytest.approx(1 / (paired.DRAWS + 1)), "never 0"


def test_exact_mcnemar_and_mid_p() -> None:
    found = within.discordance([(True, False)] * 6 + [(False, True)] + [(True, True)] * 2 + [(False, False)] * 3)
    assert (found.only_a, found.only_b, found.both, found.neither) == (6, 1, 2, 3)
    assert (found.p_exact, found.p_mid) == (0.125, 0.0703125)


@few
@given(st.integers(0, 40), st.integers(0, 40))
def test_the_sign_test_is_scipys_binomial_test(first: int, second: int) -> None:
    theirs = scipy.stats.binomtest(first, first + second).pvalue if first + second else 1.0
    assert paired.sign_test(first, second) == pytest.approx(theirs)


def test_exact_wilcoxon() -> None:
    assert paired.wilcoxon([0.1, 0.2, 0.3, 0.4, -0.05]) == 0.125
    assert paired.wilcoxon([0.0, 0.0]) is None


@few
@given(st.lists(st.integers(-60, 60).filter(bool), min_size=1, max_size=12, unique_by=abs))
def test_exact_wilcoxon_is_scipys_where_no_two_sizes_are_equal(differences: list[int]) -> None:
    theirs = scipy.stats.wilcoxon(differences, method="exact").pvalue
    assert paired.wilcoxon([each / 60 for each in differences]) == pytest.approx(theirs)


def test_pass_at_k_and_pass_hat_k() -> None:
    assert [rates.at_least_one(5, 2, k) for k in range(1, 6)] == pytest.approx([0.4, 0.7, 0.9, 1, 1])
    assert [rates.all_of(5, 2, k) for k in range(1, 4)] == pytest.approx([0.4, 0.1, 0])
    assert rates.at_least_one(5, 2, 6) is None and rates.all_of(5, 2, 6) is None, "k > n is undefined, not 1"
    assert rates.at_least_one(0, 0, 1) is None and rates.at_least_one(5, 2, 0) is None


def test_wilson() -> None:
    none, some = rates.wilson(0, 5), rates.wilson(26, 100)
    assert none is not None and some is not None
    assert none.low == 0
    printed(none.high, ".4345")
    printed(some.high, ".3537")
    printed(some.low, ".1840")
    assert rates.wilson(0, 0) is None
    whole = rates.wilson(5, 5)
    assert whole is not None and whole.high == 1


@few
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(case: tuple[int, int]) -> None:
    solved, tried = case
    theirs = scipy.stats.binomtest(solved, tried).proportion_ci(method="wilson")
    ours = rates.wilson(solved, tried)
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_holm() -> None:
    assert rates.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert rates.holm([]) == []
    assert rates.holm([0.9, 0.8]) == [1.0, 1.0]


def test_one_stratum_is_fishers_exact_test() -> None:
    printed(within.stratified_exact([Stratum(4, 5, 1, 5)]), ".206349")


@few
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_one_stratum_is_scipys_fisher(tried_a: int, tried_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, tried_a)), data.draw(st.integers(0, tried_b))
    theirs = scipy.stats.fisher_exact([[a, tried_a - a], [b, tried_b - b]]).pvalue
    assert within.stratified_exact([Stratum(a, tried_a, b, tried_b)]) == pytest.approx(theirs)


def test_strata_of_one_pair_each_are_mcnemars_test() -> None:
    """Conditional on its margins a stratum of one trial per arm is a fair coin when they differ, and nothing when they agree."""
    strata = [Stratum(1, 1, 0, 1)] * 6 + [Stratum(0, 1, 1, 1)] + [Stratum(1, 1, 1, 1)] * 3
    assert within.stratified_exact(strata) == pytest.approx(0.125)


def test_the_common_odds_ratio_of_one_stratum_is_the_sample_one() -> None:
    theirs = scipy_odds_ratio([[4, 1], [1, 4]], kind="sample").statistic
    assert within.odds_ratio([Stratum(4, 5, 1, 5)]) == pytest.approx(theirs)
    assert within.odds_ratio([Stratum(4, 5, 0, 5)]) is None, "infinite"
    assert within.odds_ratio([Stratum(0, 0, 0, 0)]) is None


def test_cmh_of_one_stratum_is_the_score_test_with_n_less_one() -> None:
    """For one table it is Pearson's chi-squared times (n - 1)/n."""
    pearson = scipy.stats.chi2_contingency([[4, 1], [1, 4]], correction=False).statistic
    assert within.cochran_mantel_haenszel([Stratum(4, 5, 1, 5)]) == pytest.approx(scipy.stats.chi2.sf(pearson * 9 / 10, 1))
    assert within.cochran_mantel_haenszel([Stratum(5, 5, 5, 5)]) is None


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20, 34, 100])
def test_the_detectable_difference_is_found_with_eighty_per_cent(n: int) -> None:
    noncentrality, critical = paired.detectable(n), scipy.stats.t.ppf(0.975, n - 1)
    assert scipy.stats.nct.sf(critical, n - 1, noncentrality) == pytest.approx(0.80, abs=1e-6)


def test_the_detectable_difference_of_twenty_pairs_is_the_textbooks() -> None:
    """dz = .6604 standard deviations for n = 20, two-sided 5 %, power .80."""
    printed(paired.detectable(20) / math.sqrt(20), ".6604")


# Methods that the report does not use: the same library's answers, so that a reader may check a table by hand.


def test_clopper_pearson() -> None:
    interval = scipy.stats.binomtest(0, 5).proportion_ci(method="exact")
    assert interval.low == 0
    printed(interval.high, ".5218")


def test_boschloo() -> None:
    printed(scipy.stats.boschloo_exact([[4, 1], [1, 4]]).pvalue, ".109375")


def test_beta_binomial_with_jeffreys_prior() -> None:
    """P(pA > pB) for Beta(4.5, 1.5) and Beta(1.5, 4.5): the integral of A's density times B's distribution."""
    a, b = scipy.stats.beta(4.5, 1.5), scipy.stats.beta(1.5, 4.5)
    printed(a.expect(b.cdf, lb=0, ub=1, epsabs=1e-10), ".97322")
