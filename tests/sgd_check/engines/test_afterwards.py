"""What follows the emergence counts: learned times, norm and loss; and nothing is read between times saved far apart."""

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics.theory import escape_bias, learned_bias, predict

QUIET = {"progress": False}


@pytest.fixture(scope="module")
def lone():
    """One neuron at k = 3, d = 16, from C = 0.35 and a norm of 0.01, with label noise: learned long after it emerges."""
    start = ([[0.35]], [[1.0]], [1e-4])
    return dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=16, initial_overlaps=start,
        label_noise=0.2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def rate(lone):
    return 0.05 * dynamics.learning_rate_limit(lone)


@pytest.fixture(scope="module")
def flow(lone):
    return dynamics.solve_overlaps(lone, save_at=dynamics.SaveAt.geometric(0.001, 6.6, 300), **QUIET)


@pytest.fixture(scope="module")
def runs(lone, rate):
    return sgd_check.simulate(lone, learning_rate=rate, steps=int(6.0 / rate), seeds=32, **QUIET)


def judged(prediction, simulation, **options):
    return sgd_check.compare(prediction, simulation, **options)["comparison"]


def paced(flow, factor):
    """The flow with norm and loss slowed by a factor after the emergence; its times are as they were."""
    times, emergence = flow["time"].values, float(flow["emergence_time"].values[0])
    moved = np.where(times > emergence, emergence + (times - emergence) / factor, times)
    curves = {name: flow[name] for name in ("loss", "squared_norm")}
    return flow.assign(
        {name: (curve.dims, np.interp(moved, times, curve.values.ravel()).reshape(curve.shape)) for name, curve in curves.items()},
    )  # fmt: skip


@pytest.mark.statistical
def test_the_right_theory_agrees_on_emergence_and_learning(flow, runs):
    """Rate 1 %, fixed seeds."""
    attrs = judged(flow, runs).attrs
    assert attrs["verdict"] == "agree", attrs["reasons"]
    assert "up to time 6 (" in attrs["reasons"]
    assert attrs["reasons"].endswith(
        "would have been seen in the emergence of direction 1 and the learning of direction 1."
    )


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("factor", "side"), [(3.0, "predicted at 9.16"), (1.3, "early"), (1 / 1.3, "late"), (1 / 3, "late")]
)
def test_wrong_learned_times_are_refuted(flow, runs, factor, side):
    """Rate 1 %, fixed seeds."""
    attrs = judged(flow.assign(learned_time=factor * flow["learned_time"]), runs).attrs
    assert attrs["verdict"] == "disagree"
    assert side in attrs["reasons"]


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_pace_after_the_emergence_is_refuted(flow, runs, factor):
    """Norm and loss slowed or hastened by 2, all times right. Rate 1 %, fixed seeds."""
    attrs = judged(paced(flow, factor), runs).attrs
    assert attrs["verdict"] == "disagree"
    assert attrs["reasons"].startswith("The time from the emergence of direction 1 until the ")


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("end", [3.0, 1.63])
def test_runs_that_end_before_it_is_learned_see_a_slower_norm(flow, runs, end):
    """The same runs up to an earlier time. Rate 1 %, fixed seeds."""
    kept = runs.sel(time=runs["time"] <= end).assign_attrs(end_time=end)
    for name in ("emergence_time", "learned_time"):
        kept[name] = kept[name].where(kept[name] <= end)
    attrs = judged(flow, kept).attrs
    assert attrs["verdict"] == "agree", attrs["reasons"]
    assert "predicted never or beyond the horizon, the first at 3.05: learned time of direction 1." in attrs["reasons"]
    assert judged(paced(flow, 2.0), kept).attrs["verdict"] == "disagree"


@pytest.mark.thorough
@pytest.mark.statistical
def test_learned_times_alarm_at_most_at_their_rate(lone, rate, flow):
    """Forty comparisons of 6 runs each at 10 %: eleven alarms or more have one chance in 680 at that rate."""
    many = sgd_check.simulate(lone, learning_rate=rate, steps=int(4.6 / rate), seeds=240, **QUIET)
    alarms = 0
    for begin in range(0, 240, 6):
        part = many.isel(seed=slice(begin, begin + 6))
        alarms += judged(flow, part, false_alarm_rate=0.1).attrs["verdict"] == "disagree"
    assert alarms <= 10


@pytest.mark.statistical
def test_learned_times_have_the_mean_and_the_scatter_of_their_band(lone, rate, runs):
    """Thirty-two runs, at four standard errors, 6e-5 each."""
    pairs = predict(lone)
    bias = learned_bias(lone, rate, pairs, escape_bias(lone, rate, pairs), 0)
    logs = np.log(runs["learned_time"].values[:, 0] / pairs.predicted_learned_time[0])
    deviation = logs.std(ddof=1)
    expected = np.log1p(bias.bias) - 0.5 * bias.scatter**2
    assert abs(logs.mean() - expected) < 0.02 + 4.0 * deviation / np.sqrt(32)
    assert abs(deviation / bias.scatter - 1.0) < 4.0 / np.sqrt(64)
