"""Optimizers in torch: steps against `torch.optim` and autograd on the samples of the engine, laws, seeds, refusals."""

from functools import partial

import numpy as np
import pytest
import torch
from engine_state import engine_of, samples_of, weights_of
from sample_steps import output
from uneven_networks import uneven_network

import dynamics
import sgd_check
from dynamics import SGD, Adam, RMSprop, SignSGD, ZerothOrder

CROOKED = [[1.0, 0.0], [0.6, 0.8]]
UNITS = dynamics.Teacher([0.8, -0.6], directions=CROOKED, links=["erf", "relu"], biases=[0.2, 0.0])
RATES = 0.01 * (1.5 + np.sin(np.arange(50.0)))


def network(**changed):
    return uneven_network("erf", UNITS, 12, **changed)


def named(student, **changed):
    """A small problem of a named student."""
    given = {"activation": "erf", "teacher": dynamics.Teacher([0.8, 0.6], directions=CROOKED), "width": 3,
             "dimension": 12, "initial_norm": 0.7, "label_noise": 0.3, "student": student}  # fmt: skip
    return dynamics.Problem(**given | changed)


PROBLEMS = {
    "network": partial(network, decay=(0, 0)),
    "fixed": partial(network, second_layer="fixed", biases="none", initial_biases=1.0, decay=(0, 0)),
    "homogeneous": partial(named, "homogeneous"),
    "committee": partial(named, "committee"),
}
#: The samples are those of isotropic inputs.
UNEVEN = dynamics.Inputs([2.0, 0.5], [4, 8])
INPUTS = {
    "network of inputs": partial(network, inputs=UNEVEN),
    "homogeneous of inputs": partial(named, "homogeneous", inputs=UNEVEN, teacher=dynamics.Teacher([0.8, 0.6])),
}


def engine(problem, optimizer, seeds=(3, 8), **options):
    return engine_of("torch", problem, seeds, optimizer=optimizer, **{"dtype": "float64"} | options)


class Reference:
    """One run, its loss written out, its gradients by autograd; w in R^d where those of the engine are Σ^½ w."""

    def __init__(self, problem, weights):
        self.problem, columns = problem, weights.shape[1]
        self.root = np.ones(columns)
        if problem.inputs is not None:
            self.root[:12] = np.sqrt(problem.inputs.eigenvalues_of_axes(12))
        layers = [slice(0, 12), *(slice(k, k + 1) for k in range(12, columns))]
        self.parts = [torch.tensor((weights / self.root)[:, own], requires_grad=True) for own in layers]
        self.rates, self.decays = [1.0], [0.0]
        if problem.kind == "network":
            self.rates, self.decays = problem.student.learning_rates, (*problem.student.decay, 0.0)

    def weights(self):
        return torch.cat(self.parts, dim=1) * torch.tensor(self.root)

    def loss(self, x, labels):
        found, x = self.weights(), torch.tensor(x)
        w, layers = found[:, :12], found[:, 12:].T
        return 0.5 * torch.mean((output(self.problem, w, x, *layers) - torch.tensor(labels)) ** 2)

    def groups(self):
        """Parameter groups of `torch.optim` with the learning rate and decay of each layer that is trained."""
        layers = zip(self.parts, self.rates, self.decays, strict=True)
        return [{"params": [part], "share": rate, "weight_decay": k / rate} for part, rate, k in layers if rate]

    def differentiate(self, x, labels):
        for part in self.parts:
            part.grad = None
        self.loss(x, labels).backward()

    def slope(self, z, x, labels, size):
        """z·∇ℓ, or the difference quotient of two losses at a distance ε along z, for z (m, columns)."""
        along = z.split([part.shape[1] for part in self.parts], dim=1)
        if not size:
            self.differentiate(x, labels)
            return sum(torch.sum(part.grad * own) for part, own in zip(self.parts, along, strict=True))
        losses = []
        with torch.no_grad():
            for step in (size, -2 * size, size):
                for part, own in zip(self.parts, along, strict=True):
                    part.add_(own, alpha=step)
                losses.append(self.loss(x, labels))
        return (losses[0] - losses[1]) / (2 * size)

    @torch.no_grad()
    def move(self, rate, step):
        """Take a step (m, columns) times the learning rate of each layer, and decay."""
        along = step.split([part.shape[1] for part in self.parts], dim=1)
        for part, own, share, decay in zip(self.parts, along, self.rates, self.decays, strict=True):
            part.sub_(rate * (share * own + decay * part))


def followed(problem, optimizer, make, batch_size=1, **options):
    """Weights of the engine and of `torch.optim` after each of fifty steps, on the same samples."""
    run, twin = (engine(problem, optimizer, batch_size=batch_size, **options) for _ in range(2))
    references = [Reference(problem, own) for own in weights_of(run)]
    optimizers = [make(each.groups()) for each in references]
    found, expected = [], []
    with run.running():
        batches = [samples_of(twin) for _ in RATES]
        for rate in RATES:
            run.advance(np.array([rate]))
            found.append(weights_of(run))
    for (x, labels), rate in zip(batches, RATES, strict=True):
        for seed, (reference, moving) in enumerate(zip(references, optimizers, strict=True)):
            reference.differentiate(x[seed], labels[seed])
            for group in moving.param_groups:
                group["lr"] = rate * group["share"]
            moving.step()
        expected.append([each.weights().detach().numpy() for each in references])
    return np.array(found), np.array(expected), run


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*PROBLEMS, "decay", *INPUTS])
@pytest.mark.parametrize(
    "optimizer",
    [SGD(momentum=0.9), SGD(momentum=0.8, dampening=0.4), SGD(momentum=0.9, nesterov=True), SGD(average=0.1)],
    ids=str,
)
def test_momentum_is_that_of_torch(kind, optimizer):
    """Fifty steps at a learning rate that varies; single samples, of networks batches."""
    problem = (PROBLEMS | INPUTS | {"decay": network})[kind]()
    made = partial(
        torch.optim.SGD, lr=1.0, momentum=optimizer.momentum, dampening=optimizer.dampening, nesterov=optimizer.nesterov
    )
    found, expected, _ = followed(problem, optimizer, made, batch_size=4 if kind == "network" else 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert np.abs(expected[-1] - expected[0]).max() > 0.02


@pytest.mark.parametrize(
    ("optimizer", "betas"),
    [(Adam(beta1=0.8, beta2=0.95), (0.8, 0.95)), (RMSprop(beta2=0.9), (0.0, 0.9)), (RMSprop(beta2=0.0), (0.0, 0.0))],
    ids=str,
)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_adam_is_that_of_torch(kind, optimizer, betas):
    made = partial(torch.optim.Adam, lr=1.0, betas=betas, eps=1e-300)
    found, expected, _ = followed(PROBLEMS[kind](), optimizer, made)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


class SignDescent(torch.optim.Optimizer):
    def __init__(self, groups):
        super().__init__(groups, {"lr": 1.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for part in group["params"]:
                part.sub_(group["lr"] * part.grad.sign())


@pytest.mark.parametrize("kind", PROBLEMS)
def test_sign_sgd_moves_every_coordinate_by_the_rate(kind):
    found, expected, _ = followed(PROBLEMS[kind](), SignSGD(), SignDescent)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_adam_takes_no_step_where_no_gradient_has_been_seen():
    """Neurons of relu with biases of −30 never fire: nothing moves but what decays to nothing, and nothing is NaN."""
    problem = uneven_network("relu", UNITS, 12, initial_biases=[-30.0, 0.1, -30.0], decay=(0, 0))
    run = engine(problem, Adam())
    before = weights_of(run)
    with run.running():
        run.advance(RATES)
    after = weights_of(run)
    np.testing.assert_array_equal(after[:, [0, 2]], before[:, [0, 2]])
    assert np.abs(after[:, 1] - before[:, 1]).min() > 1e-5


@pytest.mark.parametrize("average", ["polyak", 0.2])
def test_averages_are_those_of_swa_utils(average):
    utils = torch.optim.swa_utils
    averaging = None if average == "polyak" else utils.get_ema_multi_avg_fn(1.0 - average)
    optimizer = SGD(momentum=0.5, average=average)
    start = weights_of(engine(network(), optimizer))
    found, _, run = followed(network(), optimizer, partial(torch.optim.SGD, momentum=0.5))
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(start))])
    mean = utils.AveragedModel(model, multi_avg_fn=averaging)
    for weights in (start, *found):
        with torch.no_grad():
            model[0].copy_(torch.tensor(weights))
        mean.update_parameters(model)
    averages = next(mean.module.parameters()).detach().numpy()
    measured, layers = run.measure_average()
    w = averages[..., :12]
    np.testing.assert_allclose(layers, averages[..., 12:].swapaxes(1, 2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(measured.squared_norm, np.sum(w**2, axis=2), rtol=0, atol=1e-12)
    unit = w / np.linalg.norm(w, axis=2, keepdims=True)
    np.testing.assert_allclose(measured.student_overlap, unit @ unit.swapaxes(1, 2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(measured.teacher_overlap, unit[..., :2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
@pytest.mark.parametrize("kind", [*PROBLEMS, *INPUTS])
def test_zeroth_order_steps_are_those_of_autograd_or_of_two_losses(kind, smoothing):
    """Three steps of four samples and two directions, which have all that is trained."""
    problem = (PROBLEMS | INPUTS)[kind]()
    run, twin = (engine(problem, ZerothOrder(2, smoothing), batch_size=4) for _ in range(2))
    references = [Reference(problem, own) for own in weights_of(run)]
    for rate in (0.02, 0.03, 0.01):
        with run.running():
            x, labels = samples_of(twin)
            drawn = [runs.directions.step().clone() for runs in twin._groups]
            run.advance(np.array([rate]))
        for seed, reference in enumerate(references):
            z = [own.view(3, -1).clone() / torch.tensor(reference.root) for own in drawn[seed][0]]
            assert all(
                (own[:, 12:].abs().max(dim=0).values > 0).tolist() == [e > 0 for e in reference.rates[1:]] for own in z
            )
            q = [reference.slope(own, x[seed], labels[seed], smoothing / 12**0.5) for own in z]
            reference.move(rate, (q[0] * z[0] + q[1] * z[1]) / 2)
            expected = reference.weights().detach().numpy()
            np.testing.assert_allclose(weights_of(run)[seed], expected, rtol=0, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize("directions", [1, 3])
def test_zeroth_order_has_the_second_moment_of_isotropic_directions(directions):
    """E|g|² = E|∇|² (1 + (N + 1)/K) and E z² = 1: 8 000 draws, five standard errors; false alarms below 1e-5."""
    problem = named("committee")
    run = engine(problem, ZerothOrder(directions), seeds=(5,))
    group, ratios = run._groups[0], []
    with run.running():
        x, labels = group.source.batch()
        squared = float(group.gradient(x, labels).square().sum())
        ratios = [float(group.pull(x, labels).square().sum()) / squared for _ in range(8_000)]
    expected = 1.0 + (3 * 12 + 1) / directions
    assert abs(np.mean(ratios) - expected) < 5 * np.std(ratios) / np.sqrt(len(ratios))
    assert np.std(ratios) / np.sqrt(len(ratios)) < 0.02 * expected


@pytest.mark.parametrize("optimizer", [ZerothOrder(2), Adam(), SGD(momentum=0.9, average=0.1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_seed_has_the_same_bits_beside_others(optimizer, dtype):
    found = []
    for seeds in ((8,), (3, 8)):
        run = engine(network(decay=(0, 0)), optimizer, seeds, dtype=dtype)
        with run.running():
            run.advance(RATES)
        found.append(weights_of(run)[-1])
    np.testing.assert_array_equal(*found)


def test_streams_of_directions_and_of_axes_are_no_samples():
    """Numbers of one seed under different keys have no correlation: 1500 of them, five standard errors."""
    for dtype in ("float32", "float64"):
        run = engine(named("committee", dimension=500), ZerothOrder(), seeds=(3,), dtype=dtype)
        with run.running():
            x, _ = samples_of(run)
            z = run._groups[0].directions.step().double().numpy()
        assert abs(np.corrcoef(x.ravel()[:500], z.ravel()[:500])[0, 1]) < 5 / 500**0.5


def full_start(columns=200):
    rng = np.random.default_rng(3)
    return rng.standard_normal((3, columns)) / columns**0.5


@pytest.mark.parametrize("start", [{}, {"initial_norm": 0.7}], ids=["given", "drawn"])
def test_optimizers_that_see_coordinates_have_dense_axes_and_the_overlaps_of_the_start(start):
    """Of 200 coordinates the largest is five standard deviations 1/√d at most; seeds have axes of their own."""
    changes = {"dimension": 200} | (start or {"initial_weights": full_start(), "initial_norm": None})
    problem = named("homogeneous", **changes)
    run, plain = engine(problem, SignSGD()), engine(problem, SGD(momentum=0.5))
    for field, one, other in zip(*(("C", "G", "n"), *(e.measure(student=True)[:3] for e in (run, plain))), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12, err_msg=field)
    w = weights_of(run)
    length = np.linalg.norm(w, axis=2)
    assert (np.abs(w).max(axis=2) < 5 * length / 200**0.5).all()
    assert np.abs(w[0] - w[1]).max() > 0.1 * length.max() / 200**0.5
    x, labels = samples_of(engine(named("homogeneous", label_noise=0.0, **changes), SignSGD()))
    axes = run._teacher.axes.numpy()
    np.testing.assert_allclose(axes @ axes.swapaxes(1, 2), np.tile(np.eye(2), (2, 1, 1)), rtol=0, atol=1e-13)
    assert np.abs(axes).max() < 5 / 200**0.5
    along = np.einsum("sbd,srd->sbr", x, axes) @ np.array(CROOKED).T
    np.testing.assert_allclose(labels, problem.activation.value(along) @ [0.8, 0.6], rtol=0, atol=1e-12)


def test_records_have_the_loss_of_the_average():
    """At the start it is that of the weights; later it lags behind."""
    problem = named("committee")
    found = sgd_check.simulate(
        problem, learning_rate=0.02, steps=400, seeds=2, engine="torch", dtype="float64",
        optimizer="SGD(momentum=0.5, average=0.01)", progress=False,
    )  # fmt: skip
    assert found.average_loss.shape == found.loss.shape
    assert float(found.average_loss[0, 0]) == float(found.loss[0, 0])
    assert np.isfinite(found.average_loss).all()
    assert not np.allclose(found.average_loss[:, -1], found.loss[:, -1], rtol=1e-3)


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), ZerothOrder(), ZerothOrder(2, 0.5)], ids=str)
def test_samples_can_be_reused(optimizer):
    """Full-batch descent of a committee lowers the loss on its own sample."""
    problem = named("committee", label_noise=0.0)
    run = engine(problem, optimizer, batch_size=60, training_samples=60)
    with run.running():
        group = run._groups[0]
        x, labels = group.source.batch()
        before = float(group.loss(group.weights, x, labels))
        run.advance(np.full(300, 0.01))
        after = float(group.loss(group.weights, x, labels))
    assert after < 0.5 * before


KEPT = "Argument `optimizer` must be plain SGD for neurons that keep their length, since what other optimizers keep or draw is not tangent to the sphere any more once neurons are brought back to it, but is "
GIVEN = {"learning_rate": 0.02, "steps": 10, "seeds": 2, "engine": "torch", "progress": False}


@pytest.mark.parametrize(
    ("problem", "options", "sentence"),
    [
        (named("spherical", initial_norm=1.0), {"optimizer": SGD(momentum=0.9)}, KEPT + "SGD(momentum=0.9)."),
        (network(first_layer="sphere"), {"optimizer": "zeroth-order"}, KEPT + "ZerothOrder()."),
        (network(), {"optimizer": "ZerothOrder(smoothing=1e-5)"}, "Argument `smoothing` must be 0, the limit, or at least 0.00012 in float32, since two losses that are closer differ by rounding, but is 1e-05."),
        (named("homogeneous"), {"optimizer": "SGD(momentum=0.5)", "engine": "diffusion"}, "Argument `optimizer` must be plain SGD for engine 'diffusion', but is SGD(momentum=0.5), which 'projected' and 'torch' take."),
        (named("stiefel", activation="he2", teacher=dynamics.Teacher([0.8, 0.6])), {"optimizer": "SGD(momentum=0.5)", "engine": "diffusion"}, "Argument `optimizer` must be plain SGD for engine 'diffusion', but is SGD(momentum=0.5), which no engine takes for this problem."),
        (network(), {"optimizer": "adam"}, "Argument `problem` must have a student without decay for Adam(), which would scale it as a gradient, but has (0.3, 0.2)."),
        (named("committee"), {"optimizer": "sign", "batch_size": 4}, "Argument `batch_size` must be 1 for SignSGD(), since coordinates of the mean of B samples enter through erf(drift √(B/2V)), which no overlap holds, but is 4."),
        (INPUTS["homogeneous of inputs"](), {"optimizer": "rmsprop"}, "Argument `problem` must have isotropic inputs for RMSprop(), whose axes are those of the coordinates, but has Inputs([2, 0.5], [4, 8])."),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_in_one_sentence(problem, options, sentence):
    with pytest.raises(ValueError, match=r".") as caught:
        sgd_check.simulate(problem, **GIVEN | options)
    assert str(caught.value) == sentence


def page(width, dimension):
    """Erf neurons that learn as many, M_ip = 0.1 cos(1 + 2i + 3p) and Q = M Mᵀ + ¼ 1 at the start, τ = 0.3."""
    i = np.arange(width)
    start = np.hstack([0.1 * np.cos(1 + 2 * i[:, None] + 3 * i), 0.5 * np.eye(width)])
    student = dynamics.Student(
        activation="erf", width=width, second_layer="fixed", initial_second_layer=np.ones(width), biases="none"
    )
    teacher = dynamics.Teacher(np.ones(width), links=["erf"] * width)
    return dynamics.Problem(
        student=student, teacher=teacher, initial_weights=start, dimension=dimension, label_noise=0.3
    )


@pytest.mark.long
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("width", "dimension", "optimizer", "rate", "times", "losses", "averages"),
    [
        (2, 500, Adam(beta2=1 - 2 / 500), 0.15, (4, 8, 12, 16), (0.1859, 0.0685, 0.0618, 0.0612), None),
        (2, 500, Adam(beta2=1 - 0.5 / 500), 0.15, (4, 8, 12), (0.2006, 0.0679, 0.0594), None),
        (1, 500, SignSGD(), 0.3, (3.2, 6.4, 9.6, 12.8, 16), (0.1777, 0.0943, 0.0694, 0.0616, 0.0590), None),
        (2, 400, SGD(momentum=1 - 2 / 400, average=1 / 800), 0.5 * 2 / 400, (2, 10, 24),
         (0.322284433, 0.056433388, 0.052814207), (0.628289149, 0.047841435, 0.041250859)),
        (2, 400, SGD(average=1 / 800), 0.5, (2, 10, 24),
         (0.265827200, 0.056403029, 0.052728898), (0.549102239, 0.046121335, 0.039336341)),
    ],
    ids=str,
)  # fmt: skip
def test_means_of_runs_are_those_of_accepted_maps(width, dimension, optimizer, rate, times, losses, averages):
    """Eight runs at η = rate/d after so many d steps, in single precision.

    Within four standard errors, each at least 2 % of the loss, which the maps of d → ∞ leave out: with eight runs a
    false alarm in less than 5 % of all cases together.
    """
    counts, step = np.rint(np.array(times) * dimension), rate / dimension
    runs = sgd_check.simulate(
        page(width, dimension), learning_rate=step, steps=int(counts[-1]), seeds=8, engine="torch",
        optimizer=optimizer, save_at=dynamics.SaveAt.at((step * counts).tolist()), progress=False,
    )  # fmt: skip
    for name, expected in (("loss", losses), ("average_loss", averages)):
        if expected is not None:
            found = runs[name].values
            error = np.maximum(found.std(axis=0, ddof=1) / 8**0.5, 0.02 * np.array(expected))
            assert (np.abs(found.mean(axis=0) - expected) < 4 * error).all()
