"""Networks by SGD: steps against autograd in R^d, the law against plain SGD in R^40, records, resumption, refusals."""

import numpy as np
import pytest
import torch
from engine_state import samples_of, weights_of

from dynamics.problem import Problem, Student, Teacher
from sgd_check.engines.generators import set_words
from sgd_check.engines.registry import EngineOptions, make_engine

LINKS = {
    "erf": lambda z: torch.erf(z / 2**0.5),
    "relu": torch.relu,
    "gelu": lambda z: z * (1 + torch.erf(z / 2**0.5)) / 2,
    "he3": lambda z: (z**3 - 3 * z) / 6**0.5,
    "tanh(z)": torch.tanh,
}
UNITS = Teacher(
    [0.8, -0.6, 0.4, 0.3],
    directions=[[1, 0], [0.6, 0.8], [0, 1], [-0.8, 0.6]],
    links=["erf", "he3", "erf", "sign"],
    biases=[0.2, 0.0, -0.3, 0.1],
)
POLYNOMIAL = Teacher.polynomial("x1 + x1*x2 - 0.3*x2^3 + 0.2")


def network(link="erf", teacher=UNITS, dimension=12, first_layer="free", width=3, **changes):
    """Neurons of unequal lengths with signs and biases; everything is trained, at rates of their own."""
    weights = np.random.default_rng(5).standard_normal((width, dimension))
    weights *= np.linspace(0.6, 1.3, width)[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    asked = {
        "biases": "trained",
        "initial_second_layer": 0.9 * np.cos(1.0 + 2.0 * np.arange(width)),
        "initial_biases": 0.4 * np.sin(1.0 + np.arange(width)),
        "scale": "1/sqrt(m)",
        "rates": (1.0, 0.5, 0.25),
        "decay": (0.3, 0.2),
    }
    student = Student(activation=link, width=width, first_layer=first_layer, **(asked | changes))
    return Problem(student=student, teacher=teacher, dimension=dimension, initial_weights=weights, label_noise=0.3)


def engine(problem, name="projected", seeds=(0, 1, 2), batch_size=1, dtype="auto"):
    return make_engine(name, problem, EngineOptions(seeds=tuple(seeds), batch_size=batch_size, dtype=dtype))


def labels_of(problem, x):
    """f* of samples, by numpy."""
    axes = x[..., : problem.teacher.span]
    if problem.teacher.target is not None:
        return problem.teacher.target.value(axes)
    units = problem.teacher.units(problem.teacher_link)
    return sum(unit.coefficient * unit.link.value(axes @ unit.direction + unit.bias) for unit in units)


def sgd_step(problem, state, x, noise, rate):
    """The step by autograd of the mean loss of a batch: state (v, b, W), x (B, D), noise (B,)."""
    student, link = problem.student, LINKS[problem.activation.name]
    v, b, w = (torch.tensor(part, dtype=torch.float64, requires_grad=True) for part in state)
    f = student.output_scale * torch.sum(v[:, None] * link(w @ torch.tensor(x).T + b[:, None]), dim=0)
    labels = torch.tensor(labels_of(problem, x) + noise)
    gradients = torch.autograd.grad(0.5 * torch.mean((f - labels) ** 2), (v, b, w))
    gv, gb, gw = (part.numpy() for part in gradients)
    v, b, w = state
    rate_w, rate_v, rate_b = student.learning_rates
    decay_w, decay_v = student.decay
    moved_v = (1 - rate * decay_v) * v - rate * rate_v * gv
    moved_b = b - rate * rate_b * gb
    if student.first_layer == "free":
        return moved_v, moved_b, (1 - rate * decay_w) * w - rate * rate_w * gw
    length = np.linalg.norm(w, axis=1, keepdims=True)
    along = np.sum(gw * w, axis=1, keepdims=True) * w / length**2
    turned = w - rate * rate_w * (gw - along)
    return moved_v, moved_b, turned * length / np.linalg.norm(turned, axis=1, keepdims=True)


def parameters(state):
    """v, b, M and the upper half of Q, all that a rotation beyond the teacher's axes leaves."""
    v, b, w = state
    Q = w @ w.T
    return np.concatenate([v, b, w[:, :2].ravel(), Q[np.triu_indices(len(v))]])


def state_of(run, seed=0):
    v, b = run.layers()[seed]
    return v, b, weights_of(run)[seed]


# --- one step -------------------------------------------------------------------------------------------------


def drawn_samples(run, problem, rate, batch):
    """The samples of the next step of run 0 in the axes of the moment and new ones, and their label noise."""
    m, r = problem.width, problem.teacher.span
    s = problem.dimension - r - m
    axes, radii, labels = (np.random.Generator(np.random.SFC64()) for _ in range(3))
    for stream, words in zip((axes, radii, labels), run.state()["generators"][0], strict=True):
        set_words(stream, words)
    rows, count = min(batch, m), min(batch, m, s)
    known = axes.standard_normal((batch, r + m))
    factor = np.zeros((rows, count))
    if count:
        below = [(b, q) for b in range(rows) for q in range(min(b, count))]
        if batch > 1:
            factor[*np.array(below, dtype=int).reshape(-1, 2).T] = axes.standard_normal(len(below))
        np.fill_diagonal(factor, np.sqrt(2 * radii.standard_gamma((s - np.arange(count)) / 2)))
    noise = problem.label_noise * labels.standard_normal(batch)
    if batch > m:
        v, b, w = state_of(run)
        z, student = known @ w.T + b, problem.student
        e = student.output_scale * problem.activation.value(z) @ v - labels_of(problem, known) - noise
        weights = rate / batch * e[:, None] * student.output_scale * v * problem.activation.derivative(z)
        factor = np.linalg.qr(weights).Q @ factor
    return np.concatenate([known, factor], axis=1), noise


# d − r − m = 0, fewer than B or m, and many; one sample, few and more than neurons.
@pytest.mark.kernels
@pytest.mark.parametrize("first_layer", ["free", "sphere"])
@pytest.mark.parametrize(
    ("link", "teacher", "dimension", "batch"),
    [
        ("erf", UNITS, 30, 1),
        ("erf", UNITS, 5, 1),
        ("erf", POLYNOMIAL, 30, 4),
        ("relu", POLYNOMIAL, 30, 1),
        ("relu", UNITS, 6, 3),
        ("gelu", POLYNOMIAL, 30, 2),
        ("he3", UNITS, 7, 9),
        ("tanh(z)", POLYNOMIAL, 30, 9),
    ],
)
def test_one_step_is_autograds_step_in_the_axes_of_the_moment(link, teacher, dimension, batch, first_layer):
    """Three steps in a row, each from the state and for the samples of the moment; largest error 5e-16."""
    problem = network(link, teacher, dimension, first_layer)
    run, rate = engine(problem, seeds=(7,), batch_size=batch), 0.03
    for _ in range(3):
        v, b, w = state_of(run)
        x, noise = drawn_samples(run, problem, rate, batch)
        run.advance(np.array([rate]))
        wide = np.zeros((3, x.shape[1]))
        wide[:, :5] = w
        expected = parameters(sgd_step(problem, (v, b, wide), x, noise, rate))
        np.testing.assert_allclose(parameters(state_of(run)), expected, rtol=0, atol=1e-13)
        assert np.abs(expected - parameters((v, b, wide))).max() > 1e-3
        assert (np.triu(weights_of(run)[0, :, 2:], 1) == 0).all()


@pytest.mark.parametrize("first_layer", ["free", "sphere"])
@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize(
    ("link", "teacher", "batch"),
    [("erf", UNITS, 1), ("relu", POLYNOMIAL, 1), ("gelu", UNITS, 5), ("he3", POLYNOMIAL, 2)],
)
def test_torch_takes_autograds_steps(link, teacher, batch, dtype, error, first_layer):
    """Forty steps, more than two blocks, on the samples of the engine, in either precision."""
    problem = network(link, teacher, 20, first_layer)
    run = engine(problem, "torch", (3, 8), batch, dtype)
    starts = [state_of(run, seed) for seed in range(2)]
    with run.running():
        x, labels = samples_of(run)
        x, labels = x[:40], labels[:40]
        run.advance(np.full(len(x), 0.02))
    for seed, state in enumerate(starts):
        start = parameters(state)
        for samples, labelled in zip(x[:, seed], labels[:, seed], strict=True):
            state = sgd_step(problem, state, samples, labelled - labels_of(problem, samples), 0.02)  # noqa: PLW2901
        found = parameters(state_of(run, seed))
        np.testing.assert_allclose(found, parameters(state), rtol=0, atol=error)
        assert np.abs(found - start).max() > 0.1
