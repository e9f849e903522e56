"""Steps until a direction emerges under momentum and other optimizers, against runs."""

import math
import re

import numpy as np
import pytest

import dynamics
from dynamics import SGD, ZerothOrder

AT = dynamics.SaveAt.at([1.0])
MOMENTUM = SGD(momentum=0.8, dampening=0.2)


def single(**changes):
    start = ([[0.35]], [[1.0]], [1e-4])
    given = {"activation": "he3", "teacher": dynamics.Teacher([1.0]), "width": 1, "dimension": 32}
    return dynamics.Problem(**given | {"initial_overlaps": start} | changes)


def sphere(d, overlap=0.5):
    given = {"student": "spherical", "objective": "correlation", "initial_overlaps": ([[overlap]], [[1.0]], [1.0])}
    return single(**given, dimension=d)


def test_momentum_beside_a_flow_is_plain_sgd_at_another_rate():
    answer = dynamics.predict_emergence(single(label_noise=0.3), save_at=AT)
    for event in ("emergence", "learned"):
        given = {"direction": 1, "event": event, "batch_size": 4}
        found = dynamics.learning_steps(answer, learning_rate=2.5e-5, optimizer=MOMENTUM, **given)
        plain = dynamics.learning_steps(answer, learning_rate=1e-4, **given)
        for name in ("steps", "steps_deviation", "steps_low", "steps_high", "delay", "time"):
            assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-12), name
        assert found.learning_rate == 2.5e-5
        said = "SGD(momentum=0.8, dampening=0.2) is taken for plain SGD at the learning rate 0.0001, its limit as d"
        assert found.notes[-1].startswith(said)
    share, whole = (
        dynamics.learning_steps(answer, direction=1, learning_rate="0.05x", optimizer=each) for each in (MOMENTUM, None)
    )
    assert share.learning_rate == pytest.approx(0.25 * whole.learning_rate, rel=1e-12)
    assert share.steps == pytest.approx(whole.steps, rel=1e-12)


def weights_under_momentum(rate, momentum, steps, runs, batch, noise, d=32, seed=4):
    """Return the first steps at which C² ≥ ½ of one neuron |w|² h3(w·x/|w|) in R^d."""
    rng, w = np.random.default_rng(seed), np.zeros((runs, d))
    w[:, :2] = 1e-2 * np.array([0.35, np.sqrt(1.0 - 0.35**2)])
    u, first = np.zeros_like(w), np.full(runs, np.nan)
    for n in range(steps):
        x = rng.standard_normal((runs, batch, d))
        length = np.sqrt(np.sum(w**2, axis=1))[:, None]
        z = np.matmul(x, w[:, :, None])[:, :, 0] / length
        value, slope = (z**3 - 3.0 * z) / np.sqrt(6.0), (3.0 * z**2 - 3.0) / np.sqrt(6.0)
        y = (x[:, :, 0] ** 3 - 3.0 * x[:, :, 0]) / np.sqrt(6.0) + noise * rng.standard_normal((runs, batch))
        error = length**2 * value - y
        along, across = error * (2.0 * value - z * slope), length * error * slope
        g = (along.sum(axis=1)[:, None] * w + np.matmul(across[:, None], x)[:, 0]) / batch
        u = momentum * u + g
        w = w - rate * u
        first = np.where(np.isnan(first) & (w[:, 0] ** 2 >= 0.5 * np.sum(w**2, axis=1)), n + 1.0, first)
    return first


@pytest.mark.thorough
@pytest.mark.statistical
def test_runs_under_momentum_have_the_mean_and_the_scatter():
    """64 runs in R^32: mean and scatter at four standard errors, 6e-5 each; the few steps of momentum's lag are none."""
    problem, rate, optimizer = single(label_noise=0.3), 4e-5, SGD(momentum=0.8)
    answer = dynamics.predict_emergence(problem, save_at=AT)
    said = dynamics.learning_steps(answer, direction=1, learning_rate=rate, batch_size=8, optimizer=optimizer)
    measured = weights_under_momentum(rate, 0.8, int(1.8 * said.steps), 64, 8, 0.3)
    assert abs(measured.mean() - said.steps) < 4.0 * measured.std(ddof=1) / 8.0
    assert abs(measured.std(ddof=1) / said.steps_deviation - 1.0) < 4.0 / math.sqrt(128.0)


def test_an_answer_under_momentum_has_a_time_of_its_own():
    problem, save_at = single(), dynamics.SaveAt.at([2.0])
    given = {"save_at": save_at, "progress": False, "step_theory": "finite-d"}
    plain = dynamics.solve_overlaps(problem, learning_rate=2e-5, **given)
    own = dynamics.solve_overlaps(
        problem, learning_rate=5e-6, optimizer=MOMENTUM, **given | {"save_at": dynamics.SaveAt.at([0.5])}
    )
    expected, found = (dynamics.learning_steps(each, direction=1) for each in (plain, own))
    assert found.time == pytest.approx(0.25 * expected.time, rel=3e-3)
    # The mean is that of the exact law at one rate, whatever the answer's time.
    assert found.time + found.delay == pytest.approx(0.25 * (expected.time + expected.delay), rel=1e-9)
    assert abs(found.delay - 0.25 * expected.delay) < 3e-3 * found.time
    for name in ("steps", "steps_deviation", "steps_low", "steps_high"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=5e-3), name
    assert dynamics.learning_steps(own, direction=1, optimizer=str(MOMENTUM)) == found
    with pytest.raises(ValueError, match="`optimizer` must be that of the answer, SGD"):
        dynamics.learning_steps(own, direction=1, optimizer="adam")


def test_steps_of_zeroth_order_have_no_interval_but_their_own_mean():
    rate = "0.05x"
    answer = dynamics.solve_overlaps(
        single(), learning_rate=rate, optimizer="zeroth-order", save_at=dynamics.SaveAt.at([2.0]), progress=False
    )
    found = dynamics.learning_steps(answer, direction=1)
    assert found.steps == float(answer["emergence_time"][0]) / answer.attrs["learning_rate"]
    assert math.isnan(found.steps_deviation)
    assert found.notes == ("how the noise of ZerothOrder() scatters times is unknown: the steps are those of the "
                           "answer's time alone",)  # fmt: skip
    assert "95 %" not in str(found)


def chain(d, rate, steps, runs, seed=0):
    """Return the first steps at which C² ≥ ½ in spherical runs of zeroth order, link h3, exact in law."""
    rng, C, first = np.random.default_rng(seed), np.full(runs, 0.5), np.full(runs, np.nan)
    for n in range(steps):
        a, v, b, g, h = rng.standard_normal((5, runs))
        rho, square = np.sqrt(rng.chisquare(d - 2, runs)), rng.chisquare(d - 3, runs)
        s = np.sqrt(1.0 - C**2)
        seen = C * a + s * v
        step = rate * (seen**3 - 3.0 * seen) * 3.0 * (a**2 - 1.0) / 6.0 * (a * b + v * g + rho * h)
        C = (C + step * s * g) / np.sqrt(1.0 + step**2 * (g**2 + h**2 + square))
        first = np.where(np.isnan(first) & (C**2 >= 0.5), n + 1.0, first)
        if n % 256 == 0 and np.isfinite(first).all():
            break
    return first


@pytest.mark.thorough
@pytest.mark.statistical
def test_one_neuron_by_correlation_under_zeroth_order():
    """200 runs at a 25th of the limit: mean at four standard errors, scatter at 25 %; the seed is fixed."""
    d, optimizer = 12, ZerothOrder()
    answer = dynamics.predict_emergence(sphere(d), save_at=AT)
    said = dynamics.learning_steps(answer, direction=1, learning_rate="0.04x", optimizer=optimizer)
    first = chain(d, said.learning_rate, int(3.0 * said.steps), 200)
    assert np.isfinite(first).all()
    assert abs(first.mean() - said.steps) < 4.0 * first.std(ddof=1) / math.sqrt(200)
    assert said.steps_deviation == pytest.approx(first.std(ddof=1), rel=0.25)
    # The mean equation has the drift's part of the delay already, to leading order in the rate.
    stepped = dynamics.solve_correlation(
        sphere(d), learning_rate=said.learning_rate, optimizer=optimizer, save_at=AT, progress=False
    )
    own = dynamics.learning_steps(stepped, direction=1)
    assert own.steps == pytest.approx(said.steps, rel=0.03)
    assert own.delay < said.delay
    assert own.steps_deviation == pytest.approx(said.steps_deviation, rel=0.02)


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        ("adam", "must be SGD for an answer without its steps, but is Adam(), whose steps do not follow the flow; an"),
        ("zeroth-order", "but is ZerothOrder(), whose noise is known for one neuron alone; an answer of"),
    ],
)
def test_other_optimizers_beside_a_flow_are_refused(optimizer, why):
    answer = dynamics.predict_emergence(single(), save_at=AT)
    with pytest.raises(ValueError, match=re.escape(why)):
        dynamics.learning_steps(answer, direction=1, learning_rate=1e-4, optimizer=optimizer)
    flow = dynamics.predict_emergence(sphere(24), save_at=AT)
    with pytest.raises(ValueError, match="or ZerothOrder on one sample per step, but is"):
        dynamics.learning_steps(flow, direction=1, learning_rate=1e-4, optimizer=optimizer, batch_size=2)
