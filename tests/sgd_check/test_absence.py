"""Directions that theory puts beyond the runs, or never: how many runs may have them, and what the verdict says."""

import numpy as np
import pytest

import dynamics
import sgd_check

NAN = np.nan


@pytest.fixture(scope="module")
def stuck():
    """Two neurons of he3: the second starts on the far side of its direction, and only noise brings it over."""
    start = ([[0.5, 0.0], [0.0, -0.02]], np.eye(2), [0.01, 0.01])
    return dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0, 1.0]), width=2, dimension=16, initial_overlaps=start
    )


@pytest.fixture(scope="module")
def runs(stuck):
    rate = 0.1 * dynamics.learning_rate_limit(stuck)
    return sgd_check.simulate(stuck, learning_rate=rate, steps=int(30.0 / rate), seeds=24, progress=False)


def flow(problem, end):
    return dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.geometric(0.01, end, 200), progress=False)


def said(prediction, simulation):
    attrs = sgd_check.compare(prediction, simulation)["comparison"].attrs
    return attrs["verdict"], attrs["reasons"]


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


@pytest.mark.parametrize("law", ["normal", "early tail", "late tail"])
def test_the_share_that_theory_allows_before_the_end_holds_for_any_law_of_its_mean_and_scatter(law):
    """Shares of 200 000 draws, to four standard errors; a law far from symmetric has more than the normal one."""
    rng = np.random.default_rng(3)
    draws = {
        "normal": rng.standard_normal(200_000),
        "early tail": 1.0 - rng.exponential(size=200_000),
        "late tail": rng.exponential(size=200_000) - 1.0,
    }[law]
    for far in (0.5, 1.0, 2.0, 4.0):
        share, allowed = np.mean(draws < -far), np.clip(1.0 / (1.0 + far**2), 0.01, 0.5)
        assert share < allowed + 4.0 * np.sqrt(allowed / draws.size)
