"""Momentum and averages in the projected engine: steps of torch.optim in R^d, laws in R^d, resumption, refusals."""

import numpy as np
import pytest
import torch
from engine_state import assert_goes_on, assert_overflow_ends, drawn_samples, engine_of
from sample_steps import output
from scipy import stats
from uneven_networks import labels_of, uneven_network

import dynamics
import sgd_check
from dynamics import SGD, Problem, Teacher
from sgd_check.engines.registry import Measurement

TEACHER = Teacher([0.8, 0.6])
UNITS = Teacher([0.8, -0.6], directions=[[1, 0], [0.6, 0.8]], links=["erf", "he3"], biases=[0.2, 0.0])
CLASSES = dynamics.Inputs([1.5, 0.6, 1.0], [1, 12, 3])
RULES = [
    SGD(momentum=0.9),
    SGD(momentum=0.8, nesterov=True),
    SGD(momentum=0.7, dampening=0.4),
    SGD(average=0.3),
    SGD(momentum=0.9, average="polyak"),
    SGD(momentum=0.6, nesterov=True, average=0.2),
]


def homogeneous(dimension, inputs=None, width=2, **changes):
    weights = np.random.default_rng(5).standard_normal((width, dimension))
    weights *= np.linspace(0.5, 1.0, width)[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    given = {"activation": {1: 0.6, 2: 0.64, 3: 0.48}, "label_noise": 0.3, "initial_weights": weights}
    return Problem(teacher=TEACHER, width=width, dimension=dimension, inputs=inputs, **given | changes)


def network(dimension, inputs=None, **changes):
    return uneven_network("erf", UNITS, dimension, width=2, inputs=inputs, **changes)


def engine(problem, optimizer, seeds=(0, 1, 2), batch_size=1):
    return engine_of("projected", problem, seeds, batch_size=batch_size, optimizer=optimizer)


class InSpace:
    """Steps of torch.optim of runs side by side on vectors in R^d, not whitened, and averages; all float64."""

    def __init__(self, problem, optimizer, weights, root=1.0):
        """Take weights (runs, m, d), whitened, and the roots of the eigenvalues of the inputs."""
        self.problem, self.rule, self.root, self.n = problem, optimizer, root, 0
        parts, self.rates, decays = [weights / root], (1.0,), (0.0,)
        if problem.kind == "network":
            parts += [np.repeat(part[None], len(weights), axis=0) for part in problem.network_start()[:2]]
            self.rates, decays = problem.student.learning_rates, (*problem.student.decay, 0.0)
        self.parts = [torch.tensor(part, requires_grad=True) for part in parts]
        groups = [
            {"params": [part], "weight_decay": decay / rate}
            for part, decay, rate in zip(self.parts, decays, self.rates, strict=True)
        ]
        rule = {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov, "dampening": optimizer.dampening}
        self.torch = torch.optim.SGD(groups, 1.0, **rule)
        self.average = [part.detach().clone() for part in self.parts]

    def step(self, z, labels, rate):
        """Take a step on x = Σ^½ z, z (runs, B, d)."""
        w, *layers = self.parts
        found = output(self.problem, w * torch.tensor(self.root), torch.tensor(z), *layers)
        self.torch.zero_grad()
        (0.5 * torch.sum(torch.mean((found - torch.tensor(labels)) ** 2, dim=1))).backward()
        for group, factor in zip(self.torch.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.torch.step()
        alpha = 1.0 / (self.n + 2.0) if self.rule.average == "polyak" else self.rule.average or 0.0
        for average, part in zip(self.average, self.parts, strict=True):
            average.add_(alpha * (part.detach() - average))
        self.n += 1

    def columns(self):
        """Return whitened columns (k, runs, m, d), and of a network v and b (k, runs, 2, m)."""
        kept = [[part.detach() for part in self.parts]]
        if self.rule.momentum:
            buffers = [self.torch.state[part]["momentum_buffer"] for part in self.parts]
            kept.insert(0, [rate * buffer for rate, buffer in zip(self.rates, buffers, strict=True)])
        if self.rule.average is not None:
            kept.append(self.average)
        layers = [np.stack(parts[1:], axis=1) if len(parts) > 1 else None for parts in kept]
        return np.array([parts[0].numpy() * self.root for parts in kept]), np.array(layers)


def labels_in_space(problem, z):
    if problem.kind == "network":
        return labels_of(problem, z)
    return problem.activation.value(z[..., :2]) @ problem.teacher.coefficients


def axes_in_space(known, columns, span):
    """Return axes E, orthonormal, of which the first `span` stay, with E · columns = known in R^d."""
    U, _, Vt = np.linalg.svd(known[span:] @ columns[span:].T)
    E = np.eye(len(known))
    E[span:, span:] = U @ Vt
    return E


def columns_of(run):
    """Columns of run 0 in the order of the factor."""
    found = run._state["weights"][0].transpose(1, 2, 0)
    return found.reshape(len(found), -1).copy()


def weights_of_samples(run, problem, known, noise, _):
    """H of homogeneous neurons at η = B, of samples given in the axes of the moment."""
    w = run._state["weights"][0, run._slots.weights].T
    length, link = np.linalg.norm(w, axis=1), problem.activation
    z = known @ (w / length[:, None]).T
    e = link.value(z) @ length**2 - labels_in_space(problem, known) - noise
    return e[:, None] * length * link.derivative(z)


# d − r − k m = 0, fewer than B or m, and many; one sample, few and more than neurons.
@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("make", "batch"), [(homogeneous, 1), (homogeneous, 5), (network, 1), (network, 2)])
@pytest.mark.parametrize("beyond", [0, 1, 30])
def test_steps_are_those_of_torch_in_space(make, batch, beyond, rule):
    """Gram matrices of all columns in twelve steps at rates that change, on the samples of the engine."""
    size = 2 + 2 * (1 + (rule.momentum > 0) + (rule.average is not None))
    problem = make(size + beyond)
    run, d = engine(problem, rule, (7,), batch), size + min(beyond, batch, 2)
    start = np.zeros((1, 2, d))
    start[:, :, :size] = run._state["weights"][:, run._slots.weights].swapaxes(1, 2)
    space, weights = InSpace(problem, rule, start), None
    for n in range(12):
        columns = np.zeros((d, size - 2))
        columns[:size] = columns_of(run)
        E = axes_in_space(columns if n == 0 else weights, columns, 2)
        x, noise = drawn_samples(run, problem, 1.0, batch, weights_of_samples)
        rate = 0.03 / (1 + n)
        run.advance(np.array([rate]))
        space.step((x @ E.T)[None], (labels_in_space(problem, x) + noise)[None], rate)
        weights, layers = space.columns()
        weights = weights[:, 0].transpose(2, 1, 0).reshape(d, -1)
        found, error = columns_of(run), 1e-11 * max(1.0, np.abs(weights).max() ** 2)
        np.testing.assert_allclose(found.T @ found, weights.T @ weights, rtol=0, atol=error)
        np.testing.assert_allclose(found[:2], weights[:2], rtol=0, atol=error)
        assert (np.tril(found[2:], -1) == 0).all()
        if make is network:
            np.testing.assert_allclose(run._state["layers"][0], layers[:, 0], rtol=0, atol=error)
    moved = run._state["weights"][0, run._slots.weights].T - start[0, :, :size]
    assert np.abs(moved[:, :2]).max() > 1e-3


def statistics_of(found, layers):
    """One row per run: C, G_12, n and, of a network, v and b."""
    parts = [found.teacher_overlap, found.student_overlap[:, 0, 1], found.squared_norm]
    parts += [] if layers is None else [layers]
    return np.hstack([part.reshape(len(part), -1) for part in parts])


def measured_columns(columns, layers, problem):
    rows = np.eye(2) if problem.teacher.directions is None or problem.kind == "network" else problem.teacher.directions
    length = np.linalg.norm(columns, axis=2, keepdims=True)
    unit = columns / length
    found = Measurement(unit[:, :, :2] @ rows.T, unit @ unit.swapaxes(1, 2), length[:, :, 0] ** 2)
    return statistics_of(found, layers)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("problem", "rule", "batch"),
    [
        (homogeneous(14), SGD(momentum=0.9), 1),
        (homogeneous(20), SGD(momentum=0.8, nesterov=True, average=0.05), 3),
        (homogeneous(16, CLASSES), SGD(momentum=0.9, average="polyak"), 1),
        (network(14), SGD(momentum=0.9, average="polyak"), 1),
        (network(16, CLASSES), SGD(momentum=0.7, dampening=0.3), 3),
        (network(14), SGD(average=0.1), 1),
    ],
    ids=["heavy ball", "nesterov batch", "classes", "network", "network classes", "network average"],
)
def test_a_hundred_steps_have_the_law_of_torch_in_space(problem, rule, batch):
    """Kolmogorov-Smirnov of all overlaps of weights and averages, 500 runs each; false alarms once in 1000 seeds a case."""
    runs, d, rng = 500, problem.dimension, np.random.default_rng(3)
    rate = (0.5 if problem.kind == "network" else 0.04) * (1 - rule.momentum) / d
    run = engine(problem, rule, range(runs), batch)
    with run.running():
        run.advance(np.full(100, rate))
    ours = [statistics_of(run.measure(student=True), run.layers() if problem.kind == "network" else None)]
    root = 1.0 if problem.inputs is None else np.sqrt(problem.inputs.eigenvalues_of_axes(d))
    space = InSpace(problem, rule, np.repeat(problem.initial_weights[None] * root, runs, axis=0), root)
    for _ in range(100):
        z = rng.standard_normal((runs, batch, d))
        noise = problem.label_noise * rng.standard_normal((runs, batch))
        space.step(z, labels_in_space(problem, z) + noise, rate)
    columns, layers = space.columns()
    at = run._slots.weights
    theirs = [measured_columns(columns[at], layers[at], problem)]
    if rule.average is not None:
        ours.append(statistics_of(*run.measure_average()))
        theirs.append(measured_columns(columns[-1], layers[-1], problem))
    ours, theirs = np.hstack(ours), np.hstack(theirs)
    for column in range(ours.shape[1]):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3 / ours.shape[1]
        assert np.std(theirs[:, column]) > 1e-3


@pytest.mark.statistical
def test_an_average_of_share_one_is_the_weights_and_moves_as_plain_sgd():
    """Kolmogorov-Smirnov against plain SGD of the same engine, 500 runs each; false alarms once in 1000 seeds."""
    problem, found = homogeneous(30), []
    for rule, seeds in ((SGD(), range(500)), (SGD(average=1.0), range(1000, 1500))):
        run = engine(problem, rule, seeds)
        with run.running():
            run.advance(np.full(200, 0.001))
        found.append(statistics_of(run.measure(student=True), None))
    average, layers = run.measure_average()
    assert layers is None
    np.testing.assert_allclose(statistics_of(average, None), found[1], rtol=0, atol=1e-12)
    for column in range(found[0].shape[1]):
        assert stats.ks_2samp(found[0][:, column], found[1][:, column]).pvalue > 1e-3 / found[0].shape[1]


@pytest.mark.kernels
@pytest.mark.parametrize("done", [0, 13])
@pytest.mark.parametrize(("make", "batch"), [(homogeneous, 1), (network, 3)])
def test_runs_go_on_bit_for_bit(make, batch, done):
    """Before the first step, where the buffer is the gradient, and after some: the weights of averages count steps."""
    rule, rates = SGD(momentum=0.8, dampening=0.3, average="polyak"), 0.02 / np.arange(1.0, 41.0)
    whole = assert_goes_on(lambda: engine(make(16), rule, batch_size=batch), rates, done)
    assert whole.state()["steps"].tolist() == [[40.0]] * 3
    with pytest.raises((KeyError, ValueError)):
        whole.restore(engine(make(16), SGD(), batch_size=batch).state())


@pytest.mark.kernels
def test_a_run_that_overflows_is_nan_and_stepped_no_more():
    assert_overflow_ends(engine(network(16), SGD(momentum=0.9, average=0.1)))


@pytest.mark.kernels
def test_simulate_records_the_loss_of_the_average():
    problem = homogeneous(16)
    given = {"learning_rate": 0.001, "steps": 300, "seeds": 4, "progress": False, "optimizer": "SGD(average=1.0)"}
    runs = sgd_check.simulate(problem, **given)
    assert runs.attrs["engine"] == "projected"
    np.testing.assert_allclose(runs.average_loss, runs.loss, rtol=1e-9)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (homogeneous(7), "Argument `engine` must be 'torch' for a dimension below 3 · width + teacher axes = 8, but is 'projected' with dimension 7."),
        (network(16, first_layer="sphere"), "Argument `optimizer` must be plain SGD for neurons of kept length, since a buffer has no one meaning for a neuron that is brought back to the sphere, but is SGD(momentum=0.9, average=0.5)."),
        (
            Problem(activation="he2", student="stiefel", teacher=TEACHER, width=2, dimension=16, initial_norm=0.5),
            "Argument `optimizer` must be plain SGD for neurons of kept length, since a buffer has no one meaning for a neuron that is brought back to the sphere, but is SGD(momentum=0.9, average=0.5).",
        ),
    ],
    ids=["dimension", "sphere", "stiefel"],
)  # fmt: skip
def test_what_has_no_buffer_is_refused_in_one_sentence(problem, sentence):
    with pytest.raises(ValueError, match=r".") as caught:
        engine(problem, SGD(momentum=0.9, average=0.5))
    assert str(caught.value) == sentence
