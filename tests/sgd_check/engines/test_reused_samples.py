"""Runs on samples that are used again: steps against autograd, batches, training loss, law of few coordinates."""

from functools import partial

import numpy as np
import pytest
import torch
from engine_state import engine_of, samples_of, states_of, weights_of
from sample_steps import assert_autograds_steps, output, parts_of, step
from scipy import stats
from uneven_networks import uneven_network

import dynamics
import sgd_check

CROOKED = [[1.0, 0.0], [0.6, 0.8]]
UNITS = dynamics.Teacher([0.8, -0.6], directions=CROOKED, links=["erf", "relu"], biases=[0.2, 0.0])
NEURON = dynamics.Student(activation="erf", width=1, second_layer="fixed", initial_second_layer=[1.0], biases="none")


def neuron(dimension=200, label_noise=0.4):
    """The accepted problem: one erf neuron of M = .2, |w|² = .5."""
    return dynamics.Problem(
        student=NEURON, teacher=dynamics.Teacher([1.0]), dimension=dimension, label_noise=label_noise,
        initial_weights=[[0.2, np.sqrt(0.46)]],
    )  # fmt: skip


def named(student, **changed):
    given = {"activation": "erf", "teacher": dynamics.Teacher([0.8, 0.6], directions=CROOKED), "width": 3, "dimension": 12,
             "initial_norm": 0.7, "label_noise": 0.3, "student": student}  # fmt: skip
    return dynamics.Problem(**given | changed)


PROBLEMS = {
    "network": lambda: uneven_network("erf", UNITS, 12),
    "sphere": lambda: uneven_network("erf", UNITS, 12, first_layer="sphere", decay=(0, 0)),
    "homogeneous": lambda: named("homogeneous"),
    "committee": lambda: named("committee"),
    "spherical": lambda: named("spherical", initial_norm=1.0),
    "stiefel": lambda: named("stiefel", activation="he2", width=2, teacher=dynamics.Teacher([0.8, 0.6])),
}


engine = partial(engine_of, "torch", seeds=(3, 8), dtype="float64", batch_size=30, training_samples=30)


def train_loss(problem, state, x, labels):
    *layers, w = (torch.tensor(part) for part in parts_of(problem, state))
    return float(torch.mean((output(problem, w, torch.tensor(x), *layers) - torch.tensor(labels)) ** 2))


@pytest.mark.parametrize("name", ["network", "sphere", "homogeneous", "committee", "spherical"])
def test_a_full_batch_is_gradient_descent_by_autograd(name):
    problem = PROBLEMS[name]()
    run, _, state = assert_autograds_steps(problem, [0.1] * 5, (3, 8), batch_size=30, training_samples=30)
    with run.running():
        found = run.measure(student=True)
    w, rows = parts_of(problem, state)[-1], np.eye(2) if problem.kind == "network" else np.array(CROOKED)
    unit = w / np.linalg.norm(w, axis=2, keepdims=True)
    np.testing.assert_allclose(found.squared_norm, np.sum(w**2, axis=2), rtol=1e-12)
    if problem.kind != "spherical":
        np.testing.assert_allclose(found.student_overlap, unit @ unit.swapaxes(1, 2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.teacher_overlap, unit[..., :2] @ rows.T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_training_loss_is_the_mean_over_the_samples(name):
    problem = PROBLEMS[name]()
    options = {"batch_size": 1, "training_samples": 30, "reshuffle": False}
    run = engine(problem, **options)
    with run.running():
        epoch = [samples_of(run) for _ in range(30)]
        again = [samples_of(run) for _ in range(30)]
        run.advance(np.full(7, 0.05))
        found = run.train_loss()
    for (x, y), (other, same) in zip(epoch, again, strict=True):
        np.testing.assert_array_equal(x, other)
        np.testing.assert_array_equal(y, same)
    for s in range(2):
        x, y = (np.concatenate([pair[part][s] for pair in epoch]) for part in (0, 1))
        state = states_of(run, problem)
        expected = train_loss(problem, [part[s] for part in state] if problem.kind == "network" else state[s], x, y)
        assert found[s] == pytest.approx(expected, rel=1e-12)


def runs(problem, **changed):
    given = {"learning_rate": 2.0, "training_samples": "1.5d", "batch_size": 300, "passes": 16, "seeds": 24,
             "save_at": dynamics.SaveAt.at([2.0, 4.0, 8.0, 16.0, 32.0]), "progress": False}  # fmt: skip
    return sgd_check.simulate(problem, **given | changed)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("changed", "overlap", "loss"),
    [
        ({}, [0.8006, 0.8533, 0.8728, 0.9534, 1.0594], [0.2345, 0.1876, 0.1699, 0.1879, 0.2210]),
        (
            {"batch_size": 75, "passes": 4, "learning_rate": 0.7, "reshuffle": False,
             "save_at": dynamics.SaveAt.at(0.7 * np.array([1, 2, 4, 8, 16]))},
            [0.4106, 0.5655, 0.7816, 0.8664, 0.9309], [0.3322, 0.2800, 0.2109, 0.1804, 0.1820],
        ),
    ],
    ids=["full batch", "four batches in turn"],
)  # fmt: skip
def test_runs_follow_the_accepted_numbers(changed, overlap, loss):
    """Means of 24 runs at d = 200 within 4 standard errors and 2/d: false alarm below 1e-3 (ten normal tests)."""
    found = runs(neuron(), **changed)
    assert found.attrs["steps"] == 16
    for values, expected in (
        ((found.teacher_overlap * np.sqrt(found.squared_norm)).values[:, :, 0, 0], overlap), (found.loss.values, loss)
    ):  # fmt: skip
        error = values.std(axis=0, ddof=1) / np.sqrt(24)
        assert (np.abs(values.mean(axis=0) - expected) < 4 * error + 2 / 200).all()
        assert (error < 0.02).all()


@pytest.mark.statistical
def test_few_samples_in_many_dimensions_have_the_law_of_vectors():
    """n = 20 samples in R^60: 200 runs on 22 coordinates and 200 written out on 60, by Kolmogorov-Smirnov (1e-3)."""
    problem, n, d, rate, steps = neuron(60), 20, 60, 1.0, 6
    found = runs(
        problem, training_samples=n, batch_size=n, passes=steps, learning_rate=rate, seeds=200,
        save_at=dynamics.SaveAt.at([6.0]),
    )  # fmt: skip
    run = engine(problem, training_samples=n, batch_size=n)
    assert weights_of(run).shape[2] == 2 + n + 2
    rng, expected = np.random.default_rng(5), []
    for _ in range(200):
        x, w = rng.standard_normal((n, d)), np.zeros((1, d))
        labels = torch.erf(torch.tensor(x[:, 0]) / 2**0.5).numpy() * 1.0 + 0.4 * rng.standard_normal(n)
        w[0, :2] = [0.2, np.sqrt(0.46)]
        state = (np.ones(1), np.zeros(1), w)
        for _ in range(steps):
            state = step(problem, state, x, labels, rate)
        w = state[2]
        expected.append([w[0, 0], np.sum(w**2), train_loss(problem, state, x, labels)])
    n_i = found.squared_norm.values[:, -1, 0]
    observed = [found.teacher_overlap.values[:, -1, 0, 0] * np.sqrt(n_i), n_i, found.train_loss.values[:, -1]]
    for one, other in zip(observed, np.array(expected).T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-3 / 3


def test_dimensions_beyond_memory_need_few_samples():
    rate = 0.5 * 50 / 10**8  # |x|² is d
    found = runs(neuron(10**8), training_samples=50, batch_size=50, seeds=2, learning_rate=rate, save_at=None)
    assert np.isfinite(found.train_loss).all()
    assert (found.train_loss[:, -1] < 0.1 * found.train_loss[:, 0]).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"passes": 2, "steps": 3}, "Argument `steps` must be absent beside `passes`, but is 3."),
        ({"passes": None}, "Argument `steps` must be given, or `passes` beside `training_samples`, but is None."),
        ({"training_samples": None, "batch_size": 1}, "Argument `passes` must be absent without `training_samples`, but is 16."),
        ({"training_samples": None, "passes": None, "steps": 5, "reshuffle": False}, "Argument `reshuffle` must be True without `training_samples`, since fresh samples have no order, but is False."),
        ({"training_samples": "1.501d"}, "Argument `training_samples` must be a whole number, but is '1.501d' = 300.2."),
        ({"training_samples": "some"}, "Argument `samples` must be a number, or one in units of the dimension such as '1.5d', but is 'some'."),
        ({"training_samples": 310}, "Argument `training_samples` must be a multiple of `batch_size`, 300, but is 310."),
        ({"engine": "projected"}, "Argument `engine` must be 'torch' or 'auto' beside `training_samples`, since the weights depend on all coordinates of samples that come again, but is 'projected'."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(ValueError, match=r".") as caught:
        runs(neuron(), **options)
    assert str(caught.value) == sentence
