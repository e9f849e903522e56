"""The spherical student in torch: its step against autograd, its mean against the flow, its seeds against themselves."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from engine_state import engine_of, samples_of, weights_of
from sample_steps import assert_autograds_steps

import dynamics
import sgd_check

CROOKED = [[1.0, 0.0], [0.6, 0.8]]
MIXED = {1: 0.3, 2: 0.2, 3: 0.5, 4: 0.7}


def question(link="he4", width=5, dimension=7, coefficients=(0.6, 0.4), directions=None, **more):
    teacher = dynamics.Teacher(coefficients, directions=directions)
    given = {"activation": link, "teacher": teacher, "width": width, "dimension": dimension, "student": "spherical"}
    return dynamics.Problem(**(given | more))


engine = partial(engine_of, "torch", dtype="float64")


LINKS = ["he4", "he3", "he1", MIXED, "he10", "tanh"]


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("directions", [None, CROOKED])
@pytest.mark.parametrize("link", LINKS, ids=str)
def test_one_step_is_autograds_tangential_step_and_back(link, directions, batch_size):
    problem = question(link, directions=directions, teacher_activation="he3", label_noise=0.3)
    _, _, after = assert_autograds_steps(problem, [0.05], batch_size=batch_size)
    np.testing.assert_allclose(np.linalg.norm(after, axis=2), 1.0, atol=1e-14)


def test_a_batch_in_several_passes_is_the_same_step(monkeypatch):
    problem = question(MIXED, directions=CROOKED)

    def stepped():
        run = engine(problem, batch_size=10)
        with run.running():
            run.advance(np.full(3, 0.1))
        return weights_of(run)

    whole = stepped()
    monkeypatch.setattr("sgd_check.engines.torch.optimizers.PASS_NUMBERS", 20)
    np.testing.assert_allclose(stepped(), whole, rtol=0, atol=1e-13)


@pytest.mark.statistical
def test_small_steps_of_large_batches_follow_the_exact_flow():
    """Fixed seeds. Loss within four standard errors of eight runs: false alarms below 2 % in all."""
    problem = question("he4", width=12, dimension=6, coefficients=(1.0,), seed=4)
    save_at = dynamics.SaveAt.at([0.0, 1.0, 3.0])
    flow = dynamics.solve_spherical(problem, save_at=save_at, progress=False)
    runs = sgd_check.simulate(
        problem, learning_rate=5e-3, steps=600, seeds=8, engine="torch", batch_size=500, save_at=save_at, progress=False
    )
    np.testing.assert_allclose(runs.loss[:, 0], flow.loss[0], rtol=1e-6)
    error = runs.loss.values.std(axis=0, ddof=1) / np.sqrt(8)
    assert (np.abs(runs.loss.values.mean(axis=0) - flow.loss.values)[1:] < 4 * error[1:]).all()
    assert (error[1:] < 0.01).all()
    assert float(flow.loss[2]) < 0.75 * float(flow.loss[0])


def test_a_small_neuron_of_a_full_batch_is_a_power_iteration():
    """While |w| is small, w ← (I + 2ηD)w with D = (1/n) Σ y x xᵀ: 1e-7 after 14 steps from |w| = 1e-6."""
    problem = question(
        "min(z**2, 4)", width=1, dimension=20, coefficients=(1.0,), student="committee", initial_norm=1e-6
    )
    run = engine(problem, seeds=(2,), batch_size=80, training_samples=80)
    with run.running():
        x, labels = (part[0] for part in samples_of(run))
        w = weights_of(run)[0, 0]
        run.advance(np.full(14, 0.1))
    step = np.eye(20) + 0.2 * (x.T * labels) @ x / 80
    expected = np.linalg.matrix_power(step, 14) @ w
    assert np.linalg.norm(weights_of(run)[0, 0] - expected) < 1e-7 * np.linalg.norm(expected)


@pytest.mark.long
@pytest.mark.statistical
def test_descent_on_a_full_batch_recovers_from_some_four_samples_per_dimension():
    """Of ten runs at d = 200 none recovers at n/d = 2, and at 6, where none of 100 failed, eight or more do."""
    shares = {}
    for ratio in (2, 6):
        found = sgd_check.simulate(
            question("min(z**2, 4)", 1, 200, coefficients=(1.0,), student="committee", initial_norm=1e-3),
            learning_rate=0.1, steps=1200, seeds=10, engine="torch", batch_size=200 * ratio,
            training_samples=200 * ratio, save_at=dynamics.SaveAt.at([120.0]), progress=False,
        )  # fmt: skip
        shares[ratio] = float((found.teacher_overlap[:, -1, 0, 0] ** 2 > 0.99).mean())
        assert dynamics.Problem.from_dataset(found).student == "committee"
        assert found.attrs["training_samples"] == 200 * ratio
    assert shares[2] == 0.0
    assert shares[6] >= 0.8


def test_every_epoch_visits_each_sample_once_in_an_order_of_its_own():
    run = engine(question(label_noise=0.2), seeds=(5, 6), batch_size=4, training_samples=12)
    with run.running():
        epochs = [[samples_of(run) for _ in range(3)] for _ in range(3)]
    first = [np.concatenate([x[:, :, 0] for x, _ in epoch], axis=1) for epoch in epochs]
    labels = [np.concatenate([y for _, y in epoch], axis=1) for epoch in epochs]
    for s in range(2):
        orders = [np.argsort(values[s]) for values in first]
        for values, order in zip(first, orders, strict=True):
            np.testing.assert_array_equal(values[s][order], first[0][s][orders[0]])
        for values, order in zip(labels, orders, strict=True):
            np.testing.assert_array_equal(values[s][order], labels[0][s][orders[0]])
        assert len({tuple(order) for order in orders}) == 3
    assert not np.intersect1d(first[0][0], first[0][1]).size


@pytest.fixture(scope="module")
def small():
    return question("he4", width=4, dimension=6, directions=CROOKED, teacher_activation={2: 0.3, 4: 0.6})


def simulate(problem, **changed):
    given = {"learning_rate": 0.05, "steps": 12, "seeds": 3, "engine": "torch", "batch_size": 8, "progress": False}
    return sgd_check.simulate(problem, **(given | changed))


def test_records_are_labelled_exact_and_come_back_from_a_file(small, tmp_path):
    found = simulate(small, dtype="float64", training_samples=16)
    assert found.neuron_vector.dims == ("seed", "time", "neuron", "flow_axis")
    assert "student_overlap" not in found
    assert "neuron_2" not in found.coords
    w, rows = found.neuron_vector.values, np.array(CROOKED)
    np.testing.assert_allclose(found.teacher_overlap, w[..., :2] @ rows.T, atol=1e-14)
    np.testing.assert_allclose(found.squared_norm, 1.0, atol=1e-13)
    c, other = small.activation.coefficients, small.teacher_link.coefficients
    g, pull, own = (np.polynomial.Polynomial(p) for p in (c**2, c * np.resize(other, c.size), other**2))
    a = small.teacher.coefficients
    for s, t in ((0, 0), (2, -1)):
        C = found.teacher_overlap.values[s, t]
        loss = g(w[s, t] @ w[s, t].T).mean() - 2 * (pull(C) @ a).mean() + a @ own(rows @ rows.T) @ a
        assert float(found.loss[s, t]) == pytest.approx(loss, abs=1e-13)
    assert found.attrs["training_samples"] == 16
    assert found.attrs["stop_reason"] == "reached_end"
    assert found.attrs["step_kernel"] == "plain"
    dynamics.save(found, tmp_path / "runs.nc")
    assert dynamics.Problem.from_dataset(dynamics.load(tmp_path / "runs.nc")) == small


def test_coupled_starts_are_rows_of_one_matrix():
    asked = question(width=1)
    wide, narrow = (simulate(replace(asked, width=m), starts=(7, 7, 9), dtype="float64") for m in (6, 3))
    np.testing.assert_array_equal(wide.start_seed, [7, 7, 9])
    np.testing.assert_allclose(wide.neuron_vector[:, 0, :3], narrow.neuron_vector[:, 0], atol=1e-15)
    np.testing.assert_allclose(
        wide.neuron_vector[2, 0], dynamics.coupled_problem(asked, 6, 9).initial_weights, atol=1e-15
    )
    np.testing.assert_array_equal(wide.neuron_vector[0, 0], wide.neuron_vector[1, 0])
    assert not np.array_equal(wide.neuron_vector[0, -1], wide.neuron_vector[1, -1])
    assert dynamics.Problem.from_dataset(wide) == replace(asked, width=6)


def test_runs_from_starts_of_their_own_are_not_held_against_runs_from_one():
    one, own = simulate(question(), seeds=3), simulate(question(), seeds=(3, 4, 5), starts=(0, 1, 2))
    with pytest.raises(ValueError, match=r"must have the starts of the prediction, .*, but has \[0, 1, 2\]"):
        sgd_check.compare(one, own)


GIVEN = {"initial_weights": np.eye(4, 6)}


@pytest.mark.parametrize(
    ("changed", "options", "kind", "sentence"),
    [
        ({}, {"engine": "projected"}, ValueError, "Argument `problem` must have the homogeneous student for engine 'projected', but has the spherical student, which engine 'torch' simulates."),
        ({}, {"engine": "diffusion"}, ValueError, "Argument `problem` must have the homogeneous student for engine 'diffusion', but has the spherical student, which engine 'torch' simulates."),
        ({"student": "homogeneous"}, {"starts": (0, 1, 2)}, ValueError, "Argument `starts` must be None for the homogeneous student, but is not."),
        ({}, {"training_samples": 12}, ValueError, "Argument `training_samples` must be a multiple of `batch_size`, 8, but is 12."),
        ({"objective": "correlation", "width": 1}, {"training_samples": 8, "engine": "scalar"}, ValueError, "Argument `training_samples` must be None for the objective 'correlation', but is not."),
        ({}, {"starts": (0, 1)}, ValueError, "Argument `starts` must have one entry for each of the 3 runs, but has 2."),
        ({}, {"starts": 3}, TypeError, "Argument `starts` must be a sequence of integers, but is 3."),
        (GIVEN, {"starts": (0, 1, 2)}, ValueError, "Argument `starts` must be None for a problem with a given start, but is not."),
        ({"width": 2000, "dimension": 20000}, {"seeds": 6}, ValueError, "Argument `save_at` must have records that fit in 16 GiB, but 13 times of 6 runs need 23.2 GiB."),
    ],
)  # fmt: skip
def test_refusals_say_what_must_hold_and_what_was_given(changed, options, kind, sentence):
    with pytest.raises(kind) as caught:
        simulate(question(**({"width": 4, "dimension": 6, "coefficients": (1.0,)} | changed)), **options)
    assert str(caught.value) == sentence
