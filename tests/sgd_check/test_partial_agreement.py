"""No "agree" where an error could not have been seen: censored runs, one-sided tests, runs that are too short."""

import numpy as np
import pytest
import xarray as xr

import dynamics
import sgd_check
from sgd_check.verdicts.alignment import EMERGENCE
from sgd_check.verdicts.expectation import Expectation
from sgd_check.verdicts.time_tests import assess_direction
from sgd_check.verdicts.times import EventTests, TimesTests
from sgd_check.verdicts.verdict import decide

NAN = np.nan


@pytest.fixture(scope="module")
def noisy(tools):
    """One neuron at k = 3, d = 16, from C = 0.35, with label noise: the flow, and 128 runs to 2.5 times its emergence."""
    problem = tools.problem([[0.35]], coefficients=(1.0,), activation="he3", label_noise=0.2)
    flow = tools.flow(problem, np.geomspace(0.01, 1.7, 20))
    rate = 0.05 * dynamics.learning_rate_limit(problem)
    steps = int(np.ceil(2.5 * float(flow["emergence_time"][0]) / rate))
    return flow, sgd_check.simulate(problem, learning_rate=rate, steps=steps, seeds=128, progress=False)


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
    found = TimesTests(
        prediction=xr.Dataset(),
        simulation=simulation,
        rate=0.01,
        theory="flow",
        p_value=min(1.0, count * min(test.p for test in tests if test is not None)),
        parts=[EventTests(EMERGENCE, expected, tests, time * 1.3 <= end)],
        loss=None,
    )
    return dict(zip(("verdict", "reasons"), decide(found.sentences()), strict=True))


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
