"""The statistics of the verdict: calibrated under the null, able to see a 30 % error, honest about censoring."""

import numpy as np
import pytest
from scipy import stats

from sgd_check.verdicts.time_tests import assess_direction, combined_p_value
from sgd_check.verdicts.verdict import reach_factor

HORIZON = np.log(2.5)


def assess(log_ratio, log_horizon, delay, scatter, level):
    """The test against the flow: from s²/2 early to twice the delay."""
    return assess_direction(log_ratio, log_horizon, -0.5 * scatter**2, 2 * np.log1p(delay), level)


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [8, *(pytest.param(runs, marks=pytest.mark.long) for runs in (4, 16))])
@pytest.mark.parametrize(
    ("delay", "truth"), [(0.0, 0.0), pytest.param(0.04, 0.0, marks=pytest.mark.long), (0.04, 2 * np.log(1.04))]
)
def test_false_alarm_rate_is_at_most_the_stated_one(runs, delay, truth):
    """6000 synthetic comparisons at level 5 %: at most 5 % + 4 standard errors; 5 % at zero band."""
    rng = np.random.default_rng(runs)
    repeats, level = 6_000, 0.05
    samples = truth + 0.15 * rng.standard_normal((repeats, runs))
    alarms = sum(assess(row, HORIZON, delay, 0.0, level).p < level for row in samples)
    error = np.sqrt(level * (1 - level) / repeats)
    assert alarms / repeats < level + 4 * error
    if delay == 0.0:
        assert abs(alarms / repeats - level) < 4 * error


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [8, pytest.param(16, marks=pytest.mark.long)])
def test_false_alarm_rate_survives_censoring(runs):
    """Horizon at the 80 % quantile of the runs: censored runs enter there, and alarms stay below 5 % + 4 errors."""
    rng = np.random.default_rng(runs)
    repeats, level, horizon = 4_000, 0.05, 0.15 * stats.norm.ppf(0.8)
    samples = 0.15 * rng.standard_normal((repeats, runs))
    samples[samples > horizon] = np.nan
    alarms = sum(assess(row, horizon, 0.0, 0.0, level).p < level for row in samples)
    assert alarms / repeats < level + 4 * np.sqrt(level / repeats)


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [-np.log(1.3), np.log(1.3)])
def test_a_resolved_direction_sees_a_thirty_percent_error_with_the_stated_power(shift):
    """Scatter chosen so that the truth sits at the limit of resolution; power 80 % minus 5 standard errors."""
    rng = np.random.default_rng(3)
    runs, level, delay, repeats = 16, 0.01, 0.04, 2000
    scatter = (np.log(1.3) - 2 * np.log1p(delay)) / reach_factor(runs, level)
    samples = shift + scatter * rng.standard_normal((repeats, runs))
    seen = sum(assess(row, HORIZON, delay, 0.0, level).p < level for row in samples)
    assert seen / repeats > 0.8 - 5 * np.sqrt(0.8 * 0.2 / repeats)


def test_the_mean_of_a_logarithm_may_lie_below_zero_by_half_the_variance():
    values = np.array([-0.019, -0.018, -0.02, -0.019])
    assert assess(values, HORIZON, 0.0, 0.2, 0.01).p == 1.0
    assert assess(values, HORIZON, 0.0, 0.0, 0.01).p < 0.01


def test_runs_without_emergence_count_as_late_and_never_as_early():
    """Eight runs beyond the horizon have one chance in 256 for any scatter about an edge before it."""
    late = assess(np.full(8, np.nan), HORIZON, 0.04, 0.0, 0.01)
    assert (late.censored, late.p) == (8, 2 / 256)
    assert late.z == pytest.approx(stats.norm.isf(1 / 256))
    assert late.early is None
    values = np.array([-0.5, -0.52, -0.48, -0.51, np.nan])
    assert assess(values, -0.4, 0.04, 0.0, 0.01).p == 1.0
    assert assess(values[:4], -0.4, 0.04, 0.0, 0.01).p < 0.01


def test_unknown_delay_makes_lateness_no_evidence_and_earliness_evidence():
    late = assess(np.array([0.5, 0.52, 0.49, 0.51]), HORIZON, np.inf, 0.0, 0.01)
    assert (late.p, late.resolved) == (1.0, False)
    assert assess(-np.array([0.5, 0.52, 0.49, 0.51]), HORIZON, np.inf, 0.0, 0.01).p < 0.01


def test_short_horizon_or_wide_scatter_is_not_resolved():
    tight = 0.01 * np.arange(-4, 4)
    assert assess(tight, HORIZON, 0.02, 0.0, 0.01).resolved
    near = assess(tight, np.log(1.03), 0.02, 0.0, 0.01)
    assert near.late is None, "the band ends beyond the horizon"
    assert not near.resolved
    assert assess(tight, np.log(1.2), 0.02, 0.0, 0.01).resolved, "all runs would be censored, one chance in 256"
    assert not assess(tight, np.log(1.2), 0.02, 0.0, 0.005).resolved
    assert not assess(20 * tight, HORIZON, 0.02, 0.0, 0.01).resolved


def test_fewer_than_four_runs_are_not_tested():
    assert assess(np.array([0.0, 0.1, 0.2]), HORIZON, 0.0, 0.0, 0.01) is None


def test_directions_combine_by_bonferroni():
    half = np.array([0.5, 0.0, 0.5])
    assert combined_p_value(np.array([0.01, np.nan, 0.5]), half) == 0.02
    assert combined_p_value(np.array([0.9, 0.8]), np.array([0.5, 0.5])) == 1.0
    assert combined_p_value(np.array([np.nan]), np.zeros(1)) == 1.0


@pytest.mark.statistical
@pytest.mark.parametrize("horizon", [np.inf, pytest.param(0.25, marks=pytest.mark.long)])
def test_global_false_alarm_rate_of_a_finite_step_prediction(horizon):
    """Three directions that share most of their noise, normal ln T of mean phi - s^2/2, some censored.

    4000 synthetic experiments at level 5 %: at most 5 % + 4 standard errors.
    """
    rng = np.random.default_rng(11)
    repeats, runs, rate, scatter = 4_000, 24, 0.05, np.array([0.1, 0.15, 0.2])
    fluctuation = scatter**2
    alarms = 0
    for _ in range(repeats):
        common = rng.standard_normal((runs, 1))
        noise = np.sqrt(0.7) * common + np.sqrt(0.3) * rng.standard_normal((runs, 3))
        logs = fluctuation - 0.5 * scatter**2 + scatter * noise
        logs[logs > horizon] = np.nan
        found = [
            assess_direction(logs[:, p], min(horizon, 1.0), -(scatter[p] ** 2), 2 * fluctuation[p], rate / 3)
            for p in range(3)
        ]
        alarms += combined_p_value(np.array([test.p for test in found]), np.full(3, 1 / 3)) < rate
    assert alarms / repeats < rate + 4 * np.sqrt(rate * (1 - rate) / repeats)


def test_where_theory_gives_no_scatter_that_of_the_runs_sets_the_band():
    values = np.array([0.02, -0.03, 0.03, -0.02, 0.01, -0.01])
    found = assess_direction(values, HORIZON, np.nan, np.nan, 0.01)
    square = values.var(ddof=1)
    assert (found.low, found.high) == (pytest.approx(-square), pytest.approx(2.5 * square))
    assert found.p == 1.0
    assert assess_direction(values + 0.3, HORIZON, np.nan, np.nan, 0.01).p < 0.01
    values[0] = np.nan
    assert assess_direction(values, HORIZON, np.nan, np.nan, 0.01).high == np.inf
