"""One-sided tests with censored runs: exact by enumeration, calibrated, monotone, with the power that they state."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from sgd_check.verdicts.time_tests import (
    LARGEST_DISTANCE,
    SUM_POINTS,
    assess_direction,
    early_side,
    late_side,
)

NAN = np.nan
LEVEL = 0.05


def all_signs(distances):
    """The share of all choices of signs whose sum is at least that of the distances."""
    sums = np.array(list(product([-1, 1], repeat=distances.size))) @ np.abs(distances)
    return np.mean(sums >= distances.sum() - 1e-9)


@pytest.mark.parametrize("horizon", [0.3, 5.0])
def test_chances_with_censored_runs_are_counted_over_all_signs(rng, horizon):
    """Twelve runs, 4096 signs, on the grid of the sums, so that nothing is rounded; far horizons count as ln 2."""
    reach, points = min(horizon, LARGEST_DISTANCE), SUM_POINTS // 12
    for wrong in (1, 3):
        x = reach * rng.integers(1, points, 12) / points
        x[:wrong] *= -1
        x[11] = NAN
        late = late_side(x, horizon, 0.0, NAN, 0.05)
        assert late.p == pytest.approx(all_signs(np.where(np.isnan(x), reach, x)), rel=1e-12)
        early = early_side(-x, horizon, 0.0, NAN, 0.05)
        assert early.p == pytest.approx(all_signs(np.where(np.isnan(x), -reach, x)), rel=1e-12)


def test_an_early_run_beyond_the_mirror_image_counts_in_full_against_lateness_alone():
    """Both sides by enumeration of all 256 signs."""
    x = np.array([-0.8, 0.2, 0.3, 0.3, 0.2, 0.3, 0.2, NAN])
    y = np.where(np.isnan(x), 0.4, x)
    assert late_side(x, 0.4, 0.0, NAN, 0.05).p == pytest.approx(all_signs(y), abs=2 / 256)
    assert early_side(-np.array([*y[:-1], NAN]), 0.4, 0.0, NAN, 0.05).p == pytest.approx(
        all_signs(np.clip([*y[:-1], -0.4], -0.4, 0.4)), abs=2 / 256
    )


def test_an_edge_beyond_the_horizon_is_tested_by_signs():
    x = np.array([-1.0] * 28 + [NAN] * 4)
    found = early_side(x, -0.5, 0.0, NAN, 0.01)
    assert found.p == pytest.approx(stats.binomtest(4, 32, alternative="less").pvalue, rel=1e-12)
    assert late_side(x, -0.5, 0.0, NAN, 0.01) is None


def test_without_censoring_it_is_students_test_whatever_the_distance():
    x = np.array([-2.0, -1.5, -1.7, -1.0, -1.1])
    assert early_side(x, 3.0, 0.0, NAN, 0.01).p == pytest.approx(stats.ttest_1samp(x, 0, alternative="less").pvalue)
    assert late_side(-x, 3.0, 0.0, NAN, 0.01).p == pytest.approx(stats.ttest_1samp(x, 0, alternative="less").pvalue)


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [8, *(pytest.param(runs, marks=pytest.mark.long) for runs in (4, 24))])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_each_side_alarms_at_most_at_its_rate_whatever_is_censored(runs, share):
    """Normal values at the edge, the horizon at their quantile: at most 2.5 % and 0.5 % a side, + 4 standard errors."""
    rng = np.random.default_rng(runs)
    repeats, horizon = 1_500, 0.2 * stats.norm.isf(share)
    samples = 0.2 * rng.standard_normal((repeats, runs))
    samples[samples > horizon] = NAN
    found = [assess_direction(row, horizon, 0.0, 0.0, LEVEL) for row in samples]
    for rate in (LEVEL, LEVEL / 5):
        for sign in (-1, 1):
            alarms = np.mean([test.p < rate and np.sign(test.z) == sign for test in found])
            assert alarms < rate / 2 + 4 * np.sqrt(rate / 2 / repeats), (rate, sign)


@pytest.mark.statistical
def test_lateness_is_safe_for_skewed_laws_with_most_of_their_late_half_unseen():
    """Left-skewed values of mean 0 (minus gamma numbers), 30 % censored, 128 runs: at most 2.5 % + 4 errors late."""
    rng = np.random.default_rng(5)
    repeats, runs = 500, 128
    samples = 0.1 * (2.0 - rng.gamma(2.0, size=(repeats, runs)))
    samples[samples > np.quantile(samples, 0.7)] = NAN
    horizon = float(np.nanmax(samples))
    alarms = np.mean([test.p < LEVEL / 2 for test in (late_side(row, horizon, 0.0, NAN, LEVEL) for row in samples)])
    assert alarms < LEVEL / 2 + 4 * np.sqrt(LEVEL / 2 / repeats)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("runs", "deviation", "horizon"), [(32, 0.3, 1.0), (16, 0.21, 1.0), (32, 0.2, 0.28), (128, 0.6, 1.0)]
)
def test_the_power_is_that_of_the_test_which_is_made(runs, deviation, horizon):
    """Normal runs moved as far as the stated power assumes: the share seen differs by at most 4 errors and 0.05.

    0.05 is for the normal order that the power takes for the critical value, and for censored runs of the sample,
    which stay censored when it is moved early: there the stated power may be lower, but not higher.
    """
    rng = np.random.default_rng(runs)
    quantiles = deviation * stats.norm.ppf((np.arange(runs) + 0.5) / runs)
    low, high, level, repeats = -0.02, 0.04, 0.01, 300
    stated = assess_direction(np.where(quantiles > horizon, NAN, quantiles), horizon, low, high, level)
    tolerance = 0.05 + 4 * np.sqrt(0.25 / repeats)
    for side, place in ((stated.early, high - np.log(1.3)), (stated.late, low + np.log(1.3))):
        samples = place + deviation * rng.standard_normal((repeats, runs))
        samples[samples > horizon] = NAN
        found = [assess_direction(row, horizon, low, high, level) for row in samples]
        seen = np.mean([test.p < level and (test.z > 0) == (side is stated.late) for test in found])
        assert seen > side.power - tolerance
        assert seen < side.power + tolerance or (side is stated.early and stated.censored > 0)
