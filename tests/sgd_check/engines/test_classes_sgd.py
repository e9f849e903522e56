"""Runs under any loss, labels and mixtures: steps against autograd, labels and inputs by their laws, runs by theory."""

import numpy as np
import pytest
import torch
from engine_state import weights_of
from scipy.special import expit, softmax

import dynamics
import sgd_check
from sgd_check.engines.registry import EngineOptions, make_engine
from sgd_check.engines.torch.samples import FreshSamples, TorchTeacher, make_streams

UNITS = dynamics.Teacher([1.0, -0.8], links=["erf", "erf"])
THREE_UNITS = dynamics.Teacher([1.0, -0.8, 0.5], directions=[[1, 0], [0, 1], [0.6, 0.8]], links=["erf"] * 3)
CLOUDS = dynamics.Mixture([[0.8, 0.1], [-0.6, 0.5]], labels=[1, -1], weights=[0.7, 0.3], snr=2.0)
THREE = dynamics.Mixture([[0.8, 0.1], [-0.6, 0.5], [0.0, -0.9]], labels=[0, 1, 2], snr=1.5)
LAYER, ROWS = [0.9, -0.6], np.array([[0.8, -0.5], [0.1, 0.6], [-0.4, 0.3]])
CASES = {
    "logistic": {"objective": "logistic", "labels": "bernoulli", "flip": 0.1, "threshold": 0.3},
    "hinge": {"objective": "hinge", "labels": "sign", "flip": 0.2},
    "exponential": {"objective": "exponential", "labels": "sign"},
    "huber": {"objective": "huber", "label_noise": 0.4},
    "squared": {"labels": "bernoulli"},
    "correlation": {"objective": "correlation", "labels": "sign"},
    "own": {"objective": lambda f, y: np.log(np.cosh(f - y)), "labels": "sign"},
    "softmax": {"objective": "softmax", "labels": "softmax", "flip": 0.2, "teacher": THREE_UNITS},
    "clouds": {"objective": "logistic", "inputs": CLOUDS, "flip": 0.1},
    "classes": {"objective": "softmax", "inputs": THREE, "flip": 0.3},
}
LOSSES = {
    "logistic": lambda f, y: torch.nn.functional.softplus(-f * y),
    "hinge": lambda f, y: torch.where(f * y < 0, 0.5 - f * y, 0.5 * torch.clamp(1 - f * y, min=0.0) ** 2),
    "exponential": lambda f, y: torch.exp(-f * y),
    "huber": lambda f, y: torch.nn.functional.huber_loss(f, y, reduction="none"),
    "squared": lambda f, y: 0.5 * (f - y) ** 2,
    "correlation": lambda f, y: -f * y,
    "own": lambda f, y: torch.log(torch.cosh(f - y)),
}


def question(case, dimension=7, **changes):
    given = CASES[case]
    layer = ROWS if given.get("objective") == "softmax" else LAYER
    student = {
        "activation": "erf", "width": 2, "initial_second_layer": layer, "biases": "trained",
        "initial_biases": [0.2, -0.3], "rates": (1.2, 0.7, 0.9), "decay": (0.05, 0.02), "scale": 0.8,
    }  # fmt: skip
    weights = 0.7 * np.cos(1 + 2 * np.arange(2)[:, None] + 3 * np.arange(dimension))
    teacher = {} if "inputs" in given else {"teacher": UNITS}
    return dynamics.Problem(
        student=dynamics.Student(**(student | changes)), dimension=dimension, initial_weights=weights,
        **(teacher | given),
    )  # fmt: skip


def drawn(problem, count, seed=0):
    """Samples (count, d) and labels (count,) of a seed, as the runs draw them."""
    teacher = TorchTeacher.of(problem, torch.float64, torch.device("cpu"))
    streams = make_streams((seed,), torch.float64, torch.device("cpu"))
    like = torch.empty(0, problem.dimension, dtype=torch.float64)
    x, y = FreshSamples(teacher, streams, range(1), count, like).batch()
    return x[0].clone(), y[0].clone()


def step_by_autograd(problem, case, state, x, y, rate):
    V, b, W = (torch.tensor(part, requires_grad=True) for part in state)
    student = problem.student
    f = student.output_scale * V @ torch.erf((W @ x.T + b[:, None]) / 2**0.5)
    if problem.objective == "softmax":
        loss = torch.nn.functional.cross_entropy(f.T, y.long())
    else:
        loss = LOSSES[case if case in LOSSES else problem.objective](f[0], y).mean()
    gradients = [part.numpy() for part in torch.autograd.grad(loss, (V, b, W))]
    (rate_w, rate_v, rate_b), (decay_w, decay_v) = student.learning_rates, student.decay
    V, b, W = state
    return (
        (1 - rate * decay_v) * V - rate * rate_v * gradients[0],
        b - rate * rate_b * gradients[1],
        (1 - rate * decay_w) * W - rate * rate_w * gradients[2],
    )


@pytest.mark.parametrize("case", CASES)
def test_a_step_is_autograds(case):
    problem = question(case)
    V, b, W = problem.network_start()
    state = np.atleast_2d(V), b, W
    options = EngineOptions(seeds=(0,), batch_size=5, device="cpu", dtype="float64")
    run = make_engine("torch", problem, options)
    x, y = drawn(problem, 5)
    with run.running():
        run.advance(np.array([0.3]))
    expected = step_by_autograd(problem, case, state, x, y, 0.3)
    np.testing.assert_allclose(run.layers()[0], np.vstack(expected[:2]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.current()[0].numpy(), expected[2], rtol=0, atol=1e-12)
    assert all(np.abs(new - old).max() > 1e-3 for new, old in zip(expected, state, strict=True))


@pytest.mark.parametrize("case", ["logistic", "hinge", "softmax", "clouds", "classes"])
def test_samples_and_labels_have_their_law(case):
    """400 000 samples; every mean within 4.5 standard errors, a false alarm in a thousand runs of another seed."""
    problem = question(case)
    x, y = (part.numpy() for part in drawn(problem, 400_000, seed=3))
    mixture, r = problem.mixture, 2
    if mixture is None:
        f = np.array(
            [u.coefficient * u.link.value(x[:, :r] @ u.direction) for u in problem.teacher.units(problem.teacher_link)]
        )
        if problem.labels == "softmax":
            law = softmax(f, axis=0)
            law = (1 - problem.flip) * law + problem.flip * (1 - law) / 2
            classes = range(3)
        else:
            above = f.sum(axis=0) - problem.threshold
            up = expit(above) if problem.labels == "bernoulli" else (above >= 0).astype(float)
            up = (1 - problem.flip) * up + problem.flip * (1 - up)
            law, classes = np.array([1 - up, up]), (-1, 1)
        np.testing.assert_allclose(x.mean(axis=0), 0.0, atol=4.5 / np.sqrt(len(x)))
    else:
        spread = 1 / np.sqrt(mixture.snr)
        squares = ((x[None, :, :r] - mixture.means[:, None]) ** 2).sum(axis=-1)
        posterior = softmax(np.log(mixture.weights)[:, None] - 0.5 * mixture.snr * squares, axis=0)
        classes = np.unique(mixture.labels)
        law = np.array([posterior[mixture.labels == label].sum(axis=0) for label in classes])
        law = (1 - problem.flip) * law + problem.flip * (1 - law) / (len(classes) - 1)
        mean = mixture.weights @ mixture.means
        np.testing.assert_allclose(x[:, :r].mean(axis=0), mean, atol=4.5 * 1.2 / np.sqrt(len(x)))
        np.testing.assert_allclose(x[:, r:].std(axis=0), spread, rtol=4.5 / np.sqrt(2 * len(x)))
    tests = np.column_stack([np.ones(len(x)), x[:, :r], x[:, :r] ** 2])
    for label, probability in zip(classes, law, strict=True):
        residual = ((y == label) - probability)[:, None] * tests
        z = residual.mean(axis=0) / (residual.std(axis=0) / np.sqrt(len(x)))
        assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("case", ["logistic", "hinge", "exponential", "huber", "squared", "correlation"])
def test_a_projected_step_is_autograds_in_the_axes_of_the_moment(case):
    """The first coordinates of the samples of the first step are those of teacher and neurons at the start."""
    problem = question(case, dimension=40)
    run = make_engine("projected", problem, EngineOptions(seeds=(7,), batch_size=3))
    V, b, _ = problem.network_start()
    W = weights_of(run)[0]
    seen = {}

    def remembered(weights, layers, rates, student, axes, draws):
        seen["samples"], seen["labels"] = draws[0][0].copy(), draws[2][0].copy()
        return take(weights, layers, rates, student, axes, draws)

    take = run._motion.take
    run._motion = run._motion._replace(take=remembered)
    run.advance(np.array([0.3]))
    columns = W.shape[1]
    x = np.zeros((3, columns))
    x[:, :columns] = seen["samples"][: 3 * columns].reshape(3, columns)
    expected = step_by_autograd(
        problem, case, (np.atleast_2d(V), b, W), torch.tensor(x), torch.tensor(seen["labels"]), 0.3
    )
    np.testing.assert_allclose(run.layers()[0], np.vstack(expected[:2]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights_of(run)[0][:, :2], expected[2][:, :2], rtol=0, atol=1e-12)
    if problem.labels != "value":
        assert set(seen["labels"].tolist()) <= {-1.0, 1.0}


@pytest.mark.parametrize(
    ("case", "engine"),
    [
        ("logistic", "torch"), ("softmax", "torch"), ("classes", "torch"), ("logistic", "projected"),
        ("hinge", "projected"), ("huber", "projected"), ("squared", "projected"),
    ],
)  # fmt: skip
def test_runs_agree_with_theory(case, engine):
    """Means of 120 runs at d = 60 of a few numbers within 4 standard errors and 1 % of the range for terms of 1/d."""
    problem = question(case, dimension=60, decay=(0.0, 0.0))
    given = {"learning_rate": 0.5 / 60, "save_at": dynamics.SaveAt.at([1.0, 4.0])}
    runs = sgd_check.simulate(
        problem, learning_rate=0.5 / 60, steps=480, seeds=120, save_at=dynamics.SaveAt.at([1.0, 4.0]), engine=engine,
        progress=False,
    )  # fmt: skip
    theory = dynamics.solve_network(problem, progress=False, **given)
    for name in ("loss", *(["test_error"] if problem.labels != "value" else []), "squared_norm", "bias"):
        values = runs[name].values
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        gap = np.abs(values.mean(axis=0) - theory[name].values)
        assert (
            gap <= 4.0 * error + 0.01 * max(np.ptp(theory[name].values), 0.1) + theory[f"{name}_error"].values
        ).all()


@pytest.mark.parametrize("engine", ["torch", "projected"])
def test_runs_go_on_from_their_file_and_have_a_verdict(engine, tmp_path):
    problem = question("logistic", dimension=30, decay=(0.0, 0.0))
    given = {"learning_rate": 0.01, "steps": 600, "seeds": 8, "progress": False, "dtype": "float64", "engine": engine}
    begun = sgd_check.simulate(problem, **given, max_runtime=1e-9, checkpoint=tmp_path / "runs.nc")
    assert begun.attrs["stop_reason"] == "max_runtime"
    whole = sgd_check.resume(tmp_path / "runs.nc", progress=False)
    assert whole.test_error.equals(sgd_check.simulate(problem, **given).test_error)
    theory = dynamics.solve_network(
        problem, learning_rate=0.01, save_at=dynamics.SaveAt.at(whole.time.values), progress=False
    )
    tree = sgd_check.compare(theory, whole)
    compared = set(tree["comparison"]["quantity"].values.tolist())
    assert {"loss", "test error"} <= compared
    assert tree["comparison"].attrs["verdict"] != "disagree"


@pytest.mark.parametrize(
    ("case", "arguments", "message"),
    [
        ("own", {"engine": "projected"}, "Argument `engine` must be 'torch' for the objective <lambda>, but is 'projected'."),
        ("softmax", {"engine": "projected"}, "Argument `engine` must be 'torch' for the objective 'softmax', but is 'projected'."),
        ("clouds", {"engine": "projected"}, "Argument `problem` must have `inputs` None for engine 'projected', but has Mixture(2 clusters on 2 axes, labels, snr=2), which is not known there."),
        ("clouds", {"engine": "diffusion"}, "Argument `problem` must have `objective` 'squared' for engine 'diffusion', but has 'logistic', which is not known there."),
        ("logistic", {"optimizer": "adam"}, "Argument `optimizer` must be plain SGD for engine 'projected' under another loss than the squared one, labels that are classes, or a Mixture, but is Adam(), which no engine takes for this problem."),
        ("clouds", {"optimizer": "adam"}, "Argument `optimizer` must be SGD for engine 'torch' under another loss than the squared one, labels that are classes, or a Mixture, but is Adam(), which no engine takes for this problem."),
        ("logistic", {"training_samples": 20}, "Argument `training_samples` must be None for another loss than the squared one, labels that are classes, or a Mixture, but is not."),
    ],
)  # fmt: skip
def test_what_runs_do_not_know_is_refused(case, arguments, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the whole message follows)
        sgd_check.simulate(question(case), learning_rate=0.01, steps=20, seeds=1, progress=False, **arguments)
    assert str(refused.value) == message
