"""Kaplan–Meier curves, the two-sample test and the loss band: exact where they can be, calibrated where they are random."""

import itertools

import numpy as np
import pytest
from scipy import stats

import sgd_check.verdicts.time_tests
from sgd_check.verdicts.path_tests import against_curve, against_sample, critical_score
from sgd_check.verdicts.time_tests import (
    assess_samples,
    cut_at,
    expected_survival,
    kaplan_meier,
    log_rank,
    log_rank_powers,
    log_rank_scores,
    permutation_test,
)
from sgd_check.verdicts.verdict import POWER

NAN = np.nan


@pytest.fixture
def few_permutations(monkeypatch):
    """Enough for a level of 5 %, and a tenth of the time."""
    monkeypatch.setattr(sgd_check.verdicts.time_tests, "PERMUTATIONS", 999)


def times_at(rng, shape, scatter=0.15, shift=1.0):
    return shift * np.exp(scatter * rng.standard_normal(shape))


def together(first, second, horizon):
    """The global p-value of two samples, shape (runs, directions)."""
    both = cut_at(np.concatenate([first, second]), horizon)
    scores = np.array([log_rank_scores(column, horizon) for column in both.T]).T
    return permutation_test(scores, np.arange(both.shape[0]) >= first.shape[0])[1].min()


def test_survival_is_the_product_over_emergences_by_hand():
    """Six runs, two censored at 5: S = 5/6, 4/6, 4/6·…, by the product of (1 − 1/at risk)."""
    sample = np.array([1.0, 2.0, 3.0, 4.0, NAN, NAN])
    at = np.array([0.5, 1.0, 2.5, 3.5, 4.5, 5.5])
    share, low, high = kaplan_meier(sample, 5.0, at)
    np.testing.assert_allclose(share[:5], [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6], rtol=1e-14)
    assert np.isnan(share[5]), "nothing is known beyond the horizon"
    s, variance = 4 / 6, 1 / (6 * 5) + 1 / (5 * 4)  # Greenwood's sum for two emergences
    width = stats.norm.ppf(0.975) * np.sqrt(variance) / abs(np.log(s))
    assert low[2] == pytest.approx(s ** np.exp(width), rel=1e-12)
    assert high[2] == pytest.approx(s ** np.exp(-width), rel=1e-12)
    exact = stats.binomtest(6, 6).proportion_ci(0.95, method="exact")
    assert low[0] == pytest.approx(exact.low, rel=1e-12)
    assert high[0] == 1.0


@pytest.mark.statistical
def test_expected_survival_is_that_of_lognormal_draws():
    """Mean time 2 (1 + 0.1), scatter 0.2: the share of 10^6 draws beyond t, to 4 standard errors."""
    rng = np.random.default_rng(5)
    draws = 2.2 * np.exp(0.2 * rng.standard_normal(1_000_000) - 0.02)
    assert draws.mean() == pytest.approx(2.2, rel=1e-3)
    at = np.array([1.5, 2.0, 2.2, 2.6])
    share = [(draws > t).mean() for t in at]
    np.testing.assert_allclose(expected_survival(2.0, 0.1, 0.2, at), share, atol=4 * 0.5e-3)
    assert expected_survival(2.0, 0.0, 0.0, np.array([0.0, 1.9, 2.1])).tolist() == [1.0, 1.0, 0.0]
    assert np.isnan(expected_survival(2.0, np.inf, 0.2, at)).all()


def test_scores_sum_to_observed_minus_expected_and_agree_with_scipy():
    """The sum over the second sample over the statistic is the hypergeometric standard deviation, by hand."""
    first, second = np.array([1.0, 3.0, NAN]), np.array([2.0, 4.0, 5.0, NAN])
    scores = log_rank_scores(np.concatenate([first, second]), 6.0)
    assert scores.sum() == pytest.approx(0.0, abs=1e-14)
    expected = 4 / 7 + 4 / 6 + 3 / 5 + 3 / 4 + 2 / 3
    variance = sum(a * b / (a + b) ** 2 for a, b in [(3, 4), (2, 4), (2, 3), (1, 3), (1, 2)])
    assert scores[3:].sum() == pytest.approx(3 - expected, rel=1e-12)
    assert log_rank(first, second, 6.0) == pytest.approx(-(3 - expected) / np.sqrt(variance), rel=1e-12)
    assert log_rank(first, 10 * first, 60.0) > 0, "positive where the second sample is late"
    assert log_rank(np.full(3, NAN), np.full(3, NAN), 1.0) == 0.0


def test_permutations_agree_with_all_of_them():
    """Four against four runs, all 70 relabellings, to 5 standard errors of 9999 draws."""
    scores = np.column_stack(
        [[0.9, 0.8, 0.3, 0.5, -0.2, -0.9, -1.0, -0.4], [1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 0.1, -0.1]]
    )
    second = np.array([False] * 4 + [True] * 4)
    sums = np.abs([scores[list(rows)].sum(axis=0) for rows in itertools.combinations(range(8), 4)])
    each, among = permutation_test(scores, second)
    exact = (sums >= np.abs(scores[4:].sum(axis=0)) - 1e-12).mean(axis=0)
    np.testing.assert_allclose(each, exact, atol=5 * np.sqrt(0.25 / 9999))
    scaled = sums / np.sqrt(np.mean(scores**2, axis=0))
    observed = np.abs(scores[4:].sum(axis=0)) / np.sqrt(np.mean(scores**2, axis=0))
    jointly = [(scaled.max(axis=1) >= one - 1e-12).mean() for one in observed]
    np.testing.assert_allclose(among, jointly, atol=5 * np.sqrt(0.25 / 9999))
    assert permutation_test(np.zeros((8, 1)), second)[1].tolist() == [1.0]


def test_labels_of_another_number_of_permutations_are_not_taken(monkeypatch):
    """Samples that do not differ have the p-value 1, also where the same sizes had another number of permutations."""
    scores, second = np.tile([[-1.0], [1.0]], (32, 1)), np.arange(64) >= 32
    for permutations in (9_999, 999):
        monkeypatch.setattr(sgd_check.verdicts.time_tests, "PERMUTATIONS", permutations)
        assert permutation_test(scores, second)[1].tolist() == [1.0]


@pytest.mark.statistical
@pytest.mark.parametrize(("sizes", "horizon"), [((16, 16), 9.0), ((8, 24), 9.0), ((16, 16), 1.0)])
def test_global_false_alarm_rate_of_two_samples(few_permutations, sizes, horizon):
    """1200 pairs of samples of one law, three dependent directions: 5 % to 4 standard errors, also half censored."""
    rng = np.random.default_rng(17)
    repeats, rate = 1_200, 0.05
    alarms = 0
    for _ in range(repeats):
        samples = [times_at(rng, (n, 3), 0.12) * np.exp(0.1 * rng.standard_normal((n, 1))) for n in sizes]
        alarms += together(*samples, horizon) <= rate
    assert abs(alarms / repeats - rate) < 4 * np.sqrt(rate * (1 - rate) / repeats)


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [1.3, 1 / 1.3])
@pytest.mark.parametrize("sizes", [pytest.param((16, 16), marks=pytest.mark.long), (8, 32)])
def test_a_shift_called_visible_is_seen_with_the_stated_power(few_permutations, sizes, shift):
    """Scatter at the limit of what is called visible at level 5 %: power 80 % minus 4 standard errors of 300."""
    level, repeats = 0.05, 300
    low, high = 0.01, 1.0
    for _ in range(12):
        middle = 0.5 * (low + high)
        quantiles = [np.exp(middle * stats.norm.ppf((np.arange(n) + 0.5) / n)) for n in sizes]
        low, high = (middle, high) if min(log_rank_powers(*quantiles, 9.0, level)) >= POWER else (low, middle)
    assert 0.05 < low < 0.5
    rng = np.random.default_rng(23)
    seen = 0
    for _ in range(repeats):
        first, second = times_at(rng, (sizes[0], 1), low), times_at(rng, (sizes[1], 1), low, shift)
        seen += together(first, second, 9.0) <= level
    assert seen / repeats > 0.8 - 4 * np.sqrt(0.16 / repeats)


def test_a_direction_that_no_run_has_or_too_few_runs_are_not_tested():
    some = np.array([1.0, 1.1, 0.9, NAN])
    assert assess_samples(np.full(4, NAN), np.full(4, NAN), 2.0, 1.0, 0.01) is None
    assert assess_samples(some[:3], some, 2.0, 1.0, 0.01) is None
    found = assess_samples(some, 1.5 * some, 2.0, 0.04, 0.01)
    assert (found.runs, found.censored, found.p) == (4, 1, 0.04)
    assert found.mean == pytest.approx(0.75 * np.log(1.5), rel=1e-12), "a censored run enters both at the horizon"
    assert found.z > 0
    assert (found.early.p, found.late.p) == (0.98, 0.02)
    assert not found.resolved
    assert log_rank_powers(some, some, 0.5, 0.01) == (0.0, 0.0)


def steps_of_loss(t, delay):
    """Two plateaus, 0.6 and 0.2, after drops at 1 and 20 times the delay of the run."""
    return 1.0 - 0.4 / (1 + (delay / t) ** 12) - 0.4 / (1 + (20 * delay / t) ** 12)


@pytest.mark.statistical
def test_the_loss_is_compared_on_plateaus_and_a_wrong_plateau_is_seen():
    """24 runs early or late by 10 %: no time leaves the band at 1 %, a plateau lowered by 0.02 does, and only it."""
    rng = np.random.default_rng(3)
    times = np.geomspace(0.02, 100.0, 120)
    delays = np.exp(0.1 * rng.standard_normal(24))
    losses = np.array([steps_of_loss(times, delay) for delay in delays]) * (1 + 0.01 * rng.standard_normal((24, 1)))
    ratios = np.minimum(1.0, delays), np.maximum(1.0, delays)
    curve = steps_of_loss(times, 1.0)
    found = against_curve(times, losses, times, curve, *ratios, 1.0)
    assert not found.loss_compared[times < 0.1].any()
    for drop in (1.0, 20.0):
        assert not found.loss_compared[(times > 0.85 * drop) & (times < 1.25 * drop)].any()
    for plateau in (0.3, 5.0, 70.0):
        assert found.loss_compared[np.argmin(np.abs(times - plateau))]
    assert found.loss_z[found.loss_compared].size > 40
    assert np.isnan(found.loss_z[~found.loss_compared]).all()
    critical = critical_score(int(found.loss_compared.sum()), 0.01)
    assert (np.abs(found.loss_z[found.loss_compared]) < critical).all()
    wrong = curve - 0.02 * ((times > 2) & (times < 12))
    worse = against_curve(times, losses, times, wrong, *ratios, 1.0)
    seen = worse.loss_compared & (worse.loss_z > critical)
    assert seen[np.argmin(np.abs(times - 5.0))]
    assert not seen[(times < 1) | (times > 20)].any()
    assert np.isnan(worse.loss_p_value)


@pytest.mark.statistical
def test_loss_of_two_samples_has_the_stated_rate_of_false_alarms(few_permutations):
    """600 pairs of samples of runs early or late by 20 %: alarms at 5 %, to 4 standard errors."""
    rng = np.random.default_rng(29)
    times = np.geomspace(0.1, 100.0, 40)
    repeats, rate, alarms = 600, 0.05, 0
    for _ in range(repeats):
        runs = [np.array([steps_of_loss(times, d) for d in times_at(rng, 12, 0.2)]) for _ in range(2)]
        alarms += against_sample(times, runs[0], times, runs[1], 1.0).loss_p_value <= rate
    assert abs(alarms / repeats - rate) < 4 * np.sqrt(rate * (1 - rate) / repeats)
