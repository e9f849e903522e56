"""The statistics of the verdict: calibrated under the null, able to see a 30 % error, honest about censoring and absence."""

from itertools import product

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import dynamics
import sgd_check
from sgd_check.verdicts.evidence import Row, global_p_value, word_of
from sgd_check.verdicts.expectation import Expectation
from sgd_check.verdicts.time_tests import (
    LARGEST_DISTANCE,
    SUM_POINTS,
    assess_direction,
    one_sided,
)
from sgd_check.verdicts.times import EventTests, TimesTests, count_tests
from sgd_check.verdicts.verdict import EMERGENCE, reach_in_errors

HORIZON = np.log(2.5)


def assess(log_ratio, log_horizon, delay, scatter, level):
    """The test against the flow: from s²/2 early to twice the delay."""
    return assess_direction(log_ratio, log_horizon, -0.5 * scatter**2, 2 * np.log1p(delay), level)


@pytest.mark.thorough
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
@pytest.mark.parametrize("shift", [-np.log(1.3), np.log(1.3)])
def test_a_resolved_direction_sees_a_thirty_percent_error_with_the_stated_power(shift):
    """Scatter chosen so that the truth sits at the limit of resolution; power 80 % minus 5 standard errors."""
    rng = np.random.default_rng(3)
    runs, level, delay, repeats = 16, 0.01, 0.04, 2000
    scatter = (np.log(1.3) - 2 * np.log1p(delay)) * np.sqrt(runs) / reach_in_errors(runs - 1, level)
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
    def together(*p_values):
        return global_p_value(Row(quantity="direction", p_value=p_value / 0.5) for p_value in p_values)

    assert together(0.01, NAN, 0.5) == 0.02
    assert together(0.9, 0.8) == together(NAN) == 1.0


@pytest.mark.thorough
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
        alarms += 3 * min(test.p for test in found) < rate
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
        late = one_sided(x, horizon, 0.0, NAN, 0.05, sign=1.0)
        assert late.p == pytest.approx(all_signs(np.where(np.isnan(x), reach, x)), rel=1e-12)
        early = one_sided(-x, horizon, 0.0, NAN, 0.05, sign=-1.0)
        assert early.p == pytest.approx(all_signs(np.where(np.isnan(x), -reach, x)), rel=1e-12)


def test_an_early_run_beyond_the_mirror_image_counts_in_full_against_lateness_alone():
    """Both sides by enumeration of all 256 signs."""
    x = np.array([-0.8, 0.2, 0.3, 0.3, 0.2, 0.3, 0.2, NAN])
    y = np.where(np.isnan(x), 0.4, x)
    assert one_sided(x, 0.4, 0.0, NAN, 0.05, sign=1.0).p == pytest.approx(all_signs(y), abs=2 / 256)
    assert one_sided(-np.array([*y[:-1], NAN]), 0.4, 0.0, NAN, 0.05, sign=-1.0).p == pytest.approx(
        all_signs(np.clip([*y[:-1], -0.4], -0.4, 0.4)), abs=2 / 256
    )


def test_an_edge_beyond_the_horizon_is_tested_by_signs():
    x = np.array([-1.0] * 28 + [NAN] * 4)
    found = one_sided(x, -0.5, 0.0, NAN, 0.01, sign=-1.0)
    assert found.p == pytest.approx(stats.binomtest(4, 32, alternative="less").pvalue, rel=1e-12)
    assert one_sided(x, -0.5, 0.0, NAN, 0.01, sign=1.0) is None


def test_without_censoring_it_is_students_test_whatever_the_distance():
    x = np.array([-2.0, -1.5, -1.7, -1.0, -1.1])
    assert one_sided(x, 3.0, 0.0, NAN, 0.01, sign=-1.0).p == pytest.approx(
        stats.ttest_1samp(x, 0, alternative="less").pvalue
    )
    assert one_sided(-x, 3.0, 0.0, NAN, 0.01, sign=1.0).p == pytest.approx(
        stats.ttest_1samp(x, 0, alternative="less").pvalue
    )


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
    alarms = np.mean(
        [test.p < LEVEL / 2 for test in (one_sided(row, horizon, 0.0, NAN, LEVEL, sign=1.0) for row in samples)]
    )
    assert alarms < LEVEL / 2 + 4 * np.sqrt(LEVEL / 2 / repeats)


@pytest.mark.thorough
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


@pytest.fixture(scope="module")
def stuck():
    """Two neurons of he3: the second starts on the far side of its direction, and only noise brings it over."""
    start = ([[0.5, 0.0], [0.0, -0.02]], np.eye(2), [0.01, 0.01])
    return dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0, 1.0]), width=2, dimension=16, initial_overlaps=start
    )


@pytest.fixture(scope="module")
def runs(stuck):
    rate = 2.6e-4
    return sgd_check.simulate(stuck, learning_rate=rate, steps=int(30.0 / rate), seeds=24, progress=False)


def flow(problem, end):
    return dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.geometric(0.01, end, 200), progress=False)


def said(prediction, simulation):
    attrs = sgd_check.compare(prediction, simulation)["comparison"].attrs
    return attrs["verdict"], attrs["reasons"]


@pytest.mark.thorough
@pytest.mark.statistical
def test_runs_that_have_what_theory_says_never_comes_refute_it_and_noise_is_named(stuck, runs):
    """Twenty-three of 24 runs, of which half may have it. Rate 1 %, fixed seeds."""
    emerged = np.isfinite(runs["emergence_time"].values).sum(axis=0)
    assert emerged.tolist() == [24, 23]
    for prediction in (flow(stuck, 31.0), dynamics.predict_emergence(stuck)):
        assert np.isnan(prediction["emergence_time"].values[1])
        verdict, reasons = said(prediction, runs)
        assert verdict == "disagree"
        assert reasons.startswith("Direction 2, predicted never: 23 of 24 runs emerged")
        assert "The noise of the steps, which this theory leaves out, carries runs over" in reasons


def test_a_prediction_that_ended_before_the_runs_does_not_agree_with_what_comes_later(stuck, runs):
    verdict, reasons = said(flow(stuck, 10.0), runs)
    assert verdict == "undecided"
    assert reasons.startswith("The prediction ended before the runs, without emergence of direction 2 (23 of 24 runs).")


def test_runs_too_few_to_refute_never_are_too_many_to_agree(stuck, runs):
    few = runs.copy(deep=True)
    for name in ("emergence_time", "learned_time"):
        few[name][3:, 1] = NAN
    verdict, reasons = said(flow(stuck, 31.0), few)
    assert verdict == "undecided"
    assert "predicted never: 3 of 24 runs emerged, too few to refute theory, too many to agree with it." in reasons
    for name in ("emergence_time", "learned_time"):
        few[name][:, 1] = NAN
    assert "too few to refute" not in said(flow(stuck, 31.0), few)[1]


def test_a_time_for_which_there_is_no_formula_is_not_taken_for_never():
    """The link has a constant, so that pairs alone have no learned times, while runs learn."""
    start = ([[0.5]], [[1.0]], [0.1])
    problem = dynamics.Problem(
        activation={0: 0.05, 3: 1.0}, teacher=dynamics.Teacher([1.0]), width=1, dimension=8, initial_overlaps=start
    )
    prediction = dynamics.predict_emergence(problem)
    simulation = sgd_check.simulate(problem, learning_rate=2e-4, steps=10_000, seeds=8, progress=False)
    assert np.isnan(prediction["learned_time"].values).all()
    assert np.isfinite(simulation["learned_time"].values).any()
    reasons = said(prediction, simulation)[1]
    assert reasons.endswith("Not tested, since no time is predicted for it: learned time of direction 1.")
    assert "ended before" not in reasons


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("law", ["normal", "early tail", "late tail", "two points"])
def test_runs_that_have_a_direction_before_its_time_refute_theory_at_most_at_the_level_for_any_law(law):
    """Mean and scatter 0.2 of ln T are those of theory: 400 experiments of 32 runs, alarms at most 1 % + 4 errors."""
    rng, scatter, never = np.random.default_rng(3), 0.2, np.array([NAN])
    y = {"normal": rng.standard_normal((400, 32)), "early tail": 1.0 - rng.exponential(size=(400, 32))}
    y, uniform = y.get(law, rng.exponential(size=(400, 32)) - 1.0), rng.random((400, 32))
    one, zero = np.ones(1), np.zeros(1)
    theory = Expectation(one, zero, scatter * one, zero, zero, (), zero, zero > 0)
    prediction = xr.Dataset({"emergence_time": ("direction", one)})
    problem = dynamics.Problem(activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=16)
    for far in (0.5, 1.0, 2.0, 4.0)[law == "two points" :]:  # a share is at most a half
        end, alarms = np.exp(-far * scatter), 0
        if law == "two points":  # the share is the largest that there is
            y = np.where(uniform < 1.0 / (1.0 + far**2), -far - 1e-9, 1.0 / far)
        for times in np.where(y < -far, np.exp(scatter * y), never):
            runs = {"emergence_time": (("seed", "direction"), times[:, None]), "blown_up": ("seed", np.zeros(32))}
            runs = xr.Dataset(runs, attrs={"end_time": end})
            alarms += count_tests(problem, prediction, runs, EMERGENCE, theory, 1e-3)[0].p < 0.01
        assert alarms / 400 < 0.01 + 4.0 * np.sqrt(0.01 / 400)


@pytest.fixture(scope="module")
def noisy(tools):
    """One neuron at k = 3, d = 16, from C = 0.35, with label noise: the flow, and 128 runs to 2.5 times its emergence."""
    problem = tools.problem([[0.35]], coefficients=(1.0,), activation="he3", label_noise=0.2)
    flow = tools.flow(problem, np.geomspace(0.01, 1.7, 20))
    rate = 0.05 * dynamics.learning_rate_limit(problem)
    steps = int(np.ceil(2.5 * float(flow["emergence_time"][0]) / rate))
    return flow, sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=128, progress=False)


@pytest.mark.thorough
@pytest.mark.statistical
def test_one_censored_run_does_not_hide_that_all_others_are_early(noisy):
    """Times over 1.5 with none, one and three censored runs; the true theory still agrees. Rate 1 %, fixed seeds."""
    flow, runs = noisy
    for censored in (0, 1, 3):
        for factor, verdict in ((1.0, "agree"), (1.5, "disagree")):
            changed = runs.copy(deep=True)
            changed["emergence_time"] = changed["emergence_time"] / factor
            changed["emergence_time"][:censored] = NAN
            changed["censored"][:censored] = 1
            comparison = sgd_check.compare(flow, changed)["comparison"]
            assert comparison.attrs["verdict"] == verdict, (censored, comparison.attrs["reasons"])
    assert (comparison["early_power"] > 0.99).all()
    assert (comparison["late_power"] > 0.99).all()
    assert comparison.attrs["reasons"].startswith("Direction 1 emerges early")


def test_runs_that_blew_up_do_not_widen_the_band_of_the_loss(noisy):
    flow, runs = noisy
    lost = runs.copy(deep=True)
    lost["blown_up"][:120] = 1
    found, alone = (sgd_check.compare(flow, part)["comparison"] for part in (lost, runs.isel(seed=slice(120, None))))
    for name in ("expected_loss_low", "expected_loss_high", "loss_z"):
        np.testing.assert_array_equal(found[name], alone[name])


def judged(logs, *, time=None, high=0.04, end=3.0, stop_reason="reached_end"):
    """The verdict on runs with these logarithmic ratios, (runs, P), at a rate of 1 %."""
    runs, count = logs.shape
    time = np.ones(count) if time is None else np.asarray(time)
    high = np.broadcast_to(high, count)
    tests = [
        assess_direction(logs[:, p], float(np.log(end / time[p])), -0.01, float(high[p]), 0.01 / count)
        for p in range(count)
    ]
    tests = [None if test.early is None is test.late else test for test in tests]
    expected = Expectation.uniform(time, delay=0.0, scatter=0.0, low=0.0, high=0.0)
    simulation = xr.Dataset({"blown_up": ("seed", np.zeros(runs))}, attrs={"end_time": end, "stop_reason": stop_reason})
    part = EventTests(EMERGENCE, expected, tests, time * 1.3 <= end)
    found = TimesTests(
        prediction=xr.Dataset(), simulation=simulation, rate=0.01, theory="flow",
        parts=[part], p_values=[np.minimum(1.0, count * part.p_values)], loss=None,
    )  # fmt: skip
    rows = found.rows()
    return {"verdict": word_of(rows), "reasons": found.reason(rows)}


@pytest.fixture
def logs(rng):
    """Eight directions in 32 runs, each at its predicted time up to a scatter of 0.15."""
    found = rng.standard_normal((32, 8))
    return 0.15 * (found - found.mean(axis=0)) / found.std(axis=0)


def test_a_direction_that_half_of_the_runs_lack_leaves_seven_of_eight(logs):
    """Predicted at 1, in runs to 1.31: half of them may be late by little, the others are early."""
    logs[:16, 2] = NAN
    logs[16:, 2] = np.linspace(-0.4, 0.0, 16)
    attrs = judged(logs, end=1.31)
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"] == (
        "Theory and SGD agree on 7 of 8 directions (global p = 1). Tested for lateness only, since too few runs emerged: "
        "direction 3."
    )


def test_lateness_that_theory_does_not_bound_leaves_what_is_bounded(logs):
    attrs = judged(logs, high=[0.04, np.inf, 0.04, np.inf, 0.04, 0.04, 0.04, 0.04])
    assert attrs["verdict"] == "undecided"
    assert attrs["reasons"] == (
        "Theory and SGD agree on 6 of 8 directions (global p = 1). Tested for earliness only, since theory does not bound "
        "the lateness: direction 2, 4."
    )


def test_a_direction_predicted_near_the_end_is_named_and_its_errors_count(logs):
    """Predicted at 0.9 of the runs: it cannot be 30 % late within them, so it is not waited for."""
    time = np.array([*np.ones(7), 2.7])
    late = np.where(logs > np.log(3.0 / time), NAN, logs)
    late[:, 7] = np.where(np.arange(32) < 20, NAN, late[:, 7])
    attrs = judged(late, time=time)
    assert attrs["verdict"] == "agree"
    assert attrs["reasons"].endswith(
        "direction 1, 2, 3, 4, 5, 6, 7, save in direction 8, predicted near the end of the runs."
    )
    stopped = judged(late, time=time, stop_reason="max_runtime")
    assert stopped["verdict"] == "undecided"
    assert "The runs stopped early (max_runtime), before direction 8 could be tested." in stopped["reasons"]
    early = late.copy()
    early[1:, 7] = logs[1:, 7] - 0.4
    assert judged(early, time=time)["verdict"] == "disagree"
    assert judged(late[:, 7:], time=time[7:])["reasons"].startswith("No direction could be tested: none is predicted")
