"""The torch engine: its step against autograd, its mean against the flow, its seeds against themselves, its links."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import sympy
import torch
from engine_state import engine_of, samples_of, weights_of
from sample_steps import assert_autograds_steps
from uneven_networks import labels_of

import dynamics
import hermite
import sgd_check
from dynamics import Problem, Teacher
from sgd_check.engines.torch.links import make_link
from sgd_check.simulations.recording import observables_of

CROOKED = np.array([[1.0, 0.0], [0.6, 0.8]])


engine = partial(engine_of, "torch", dtype="float64")


LINKS = ["he3", "he4", {4: 1.0, 6: 0.5}, "he10", "relu", "tanh", "erf", "gelu"]


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("directions", [None, CROOKED])
@pytest.mark.parametrize("link", LINKS, ids=str)
def test_one_step_is_autograds_step_on_the_sample_loss(tools, link, directions, batch_size):
    problem = tools.problem(
        [[0.5, 0.1], [0.2, 0.4], [-0.3, 0.6]], dimension=7, activation=link, norm=0.7, directions=directions,
        label_noise=0.3,
    )  # fmt: skip
    assert_autograds_steps(problem, [1e-2], batch_size=batch_size)


def test_a_callable_is_simulated_as_its_truncated_series_and_says_so(tools):
    def bent(z):
        return np.cos(z) ** 3

    problem = tools.problem([[0.5, 0.1]], dimension=5, activation=bent, order=12, norm=0.7)
    run = engine(problem)
    assert run.attributes["simulated_link"] == f"{problem.activation.name} (Hermite series to order 12)"
    series = np.polynomial.hermite_e.HermiteE(
        problem.activation.coefficients / np.sqrt([float(np.prod(np.arange(1, j + 1))) for j in range(13)])
    )
    with run.running():
        before = weights_of(run)
        x, labels = samples_of(run)
        run.advance(np.array([1e-3]))
        after = weights_of(run)
    w, sample = before[0, 0], x[0, 0, 0]
    rho = np.linalg.norm(w)
    z = w @ sample / rho
    np.testing.assert_allclose(labels[0, 0, 0], 0.8 * series(sample[0]) + 0.6 * series(sample[1]), rtol=1e-11)
    e = rho**2 * series(z) - labels[0, 0, 0]
    slope = series.deriv()(z)
    gradient = (2 * series(z) - z * slope) * w + rho * slope * sample
    np.testing.assert_allclose(after[0, 0], w - 1e-3 * e * gradient, rtol=0, atol=1e-12)


@pytest.mark.statistical
def test_labels_are_the_teacher_plus_noise_of_the_stated_size(tools):
    problem = tools.problem([[0.5, 0.1]], dimension=4, activation="he3", label_noise=0.25)
    run = engine(problem, seeds=range(20))
    with run.running():
        x, labels = samples_of(run)
    clean = labels_of(problem, x[..., 0, :])
    noise = (labels[..., 0] - clean).ravel()
    # Standard error of a standard deviation; five of them are a false-alarm rate of 6e-7.
    assert abs(noise.std() - 0.25) < 5 * 0.25 / np.sqrt(2 * noise.size)
    assert abs(noise.mean()) < 5 * 0.25 / np.sqrt(noise.size)


def test_measured_overlaps_are_those_of_the_weights(tools):
    problem = tools.problem([[0.5, 0.1], [0.2, 0.4]], dimension=5, directions=CROOKED)
    run = engine(problem)
    with run.running():
        C, G, n, _ = run.measure(student=True)
    start = problem.start()
    for found, wanted in zip((C, G, n), start, strict=True):
        np.testing.assert_allclose(found[1], wanted, atol=1e-14)


def test_threads_are_put_back(tools):
    before = torch.get_num_threads()
    run = engine(tools.problem([[0.5, 0.1]], dimension=6))
    with run.running():
        assert torch.get_num_threads() == 1
        assert torch.is_inference_mode_enabled()
    assert torch.get_num_threads() == before
    assert not torch.is_inference_mode_enabled()


@pytest.mark.statistical
def test_single_precision_has_the_statistics_of_double_precision(tools):
    """Two-sample z of mean overlap and norm over 400 seeds each; |z| < 5 is a false-alarm rate below 3e-6."""
    problem = tools.problem([[0.5, 0.1]], dimension=16)
    found = {}
    for dtype, seeds in (("float32", range(400)), ("float64", range(1000, 1400))):
        run = engine(problem, seeds, dtype=dtype)
        with run.running():
            run.advance(np.full(600, 2e-4))
            overlap, _, norm, _ = run.measure(student=False)
        found[dtype] = np.stack([overlap[:, 0, 0], np.log(norm[:, 0])])
    a, b = found["float32"], found["float64"]
    z = (a.mean(1) - b.mean(1)) / np.sqrt(a.var(1) / 400 + b.var(1) / 400)
    assert np.abs(z).max() < 5
    moved = np.abs(b.mean(1) - [0.5, np.log(0.01)]) / np.sqrt(b.var(1) / 400)
    assert moved.max() > 5, "the runs must have moved for the comparison to see anything"


@pytest.mark.parametrize(("device", "threads"), [("cpu", 1), ("cuda", 3)])
def test_runs_hold_torch_to_one_thread_on_the_processor_alone(tools, monkeypatch, device, threads):
    held = [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: held[-1])
    monkeypatch.setattr(torch, "set_num_threads", held.append)
    runs = engine(tools.problem([[0.5, 0.1]], dimension=8))
    monkeypatch.setattr(runs, "_device", torch.device(device))
    with runs.running():
        assert held[-1] == threads
    assert held[-1] == 3


def test_too_large_a_problem_is_refused_with_the_memory_it_needs(tools):
    problem = tools.problem([[0.5, 0.1]], dimension=10_000)
    with pytest.raises(ValueError, match=r"must fit in 16 GiB, but 100000 seeds of 1 neurons .* need \d+\.\d GiB"):
        engine(problem, range(100_000), dtype="float32")


def committee(link="erf", dimension=7, norms=(0.7, 0.4, 1.1), noise=0.3, **more):
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((len(norms), dimension))
    weights *= np.array(norms)[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    return Problem(
        activation=link, teacher=Teacher([1.0, 0.5], directions=more.pop("directions", None)), width=len(norms),
        dimension=dimension, initial_weights=weights, student="committee", label_noise=noise, **more,
    )  # fmt: skip


@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("directions", [None, CROOKED])
@pytest.mark.parametrize("link", ["erf", "relu", "he3"])
def test_steps_of_a_committee_are_autograds_steps(link, directions, batch_size):
    """Three steps, so that later ones see what earlier ones did to the projections."""
    assert_autograds_steps(committee(link, directions=directions), [1e-2, 2e-2, 1e-2], batch_size=batch_size)


@pytest.mark.thorough
@pytest.mark.statistical
def test_mean_of_committees_is_the_finite_step_equation():
    """R and S of 64 runs at η = 1/d, d = 400, against Saad and Solla's equation; it holds up to O(1/d) in the mean.

    Eight z-scores, with 2/d of slack, beyond 5: false-alarm rate below 5e-6, with fixed seeds.
    """
    d, seeds, steps = 400, 64, 1200
    problem = committee(dimension=d, norms=(0.4, 0.6), noise=0.1)
    rate = 1.0 / d
    theory = dynamics.solve_committee(
        problem, save_at=dynamics.SaveAt.at([rate * steps]), learning_rate=rate, progress=False
    ).isel(time=0)
    runs = sgd_check.simulate(
        problem, learning_rate=rate, steps=steps, seeds=seeds, engine="torch", dtype="float64", progress=False
    )
    C, G, n = (runs.isel(time=-1)[name].values for name in ("teacher_overlap", "student_overlap", "squared_norm"))

    def overlaps(C, G, n):
        rho = np.sqrt(n)
        return np.concatenate([rho[..., :, None] * C, rho[..., :, None] * rho[..., None, :] * G], axis=-1)

    wanted = overlaps(*(theory[name].values for name in ("teacher_overlap", "student_overlap", "squared_norm")))
    found, start = overlaps(C, G, n), overlaps(*problem.start())
    error = found.std(axis=0, ddof=1) / np.sqrt(seeds)
    assert np.abs(wanted - start).max() > 50 * error.max(), "the runs must have moved"
    assert (np.abs(found.mean(axis=0) - wanted) < 5 * error + 2.0 / d).all()
    # The loss of a run is that of its overlaps, here at the start, which the theory has too.
    start_loss = dynamics.solve_committee(problem, save_at=dynamics.SaveAt.at([0.0]), progress=False).loss
    np.testing.assert_allclose(runs.loss.isel(time=0), float(start_loss[0]), rtol=1e-10)


def test_committees_are_simulated_in_full_dimension_alone_and_links_without_closed_forms_have_no_loss():
    with pytest.raises(ValueError, match="must have the homogeneous student for engine 'projected', but has the comm"):
        sgd_check.simulate(committee(), learning_rate=1e-3, steps=3, seeds=2, engine="projected")
    runs = sgd_check.simulate(
        committee(link="relu"), learning_rate=1e-3, steps=3, seeds=2, engine="torch", progress=False
    )
    assert np.isnan(runs.loss).all()
    assert np.isfinite(runs.squared_norm).all()


@pytest.mark.parametrize("student", ["homogeneous", "committee"])
def test_learned_mass_of_runs_is_that_of_the_theory(student, rng):
    problem = (
        committee(dimension=9)
        if student == "committee"
        else Problem(activation="he4", teacher=Teacher([1.0, 0.5]), width=3, dimension=9)
    )
    solve = dynamics.solve_committee if student == "committee" else dynamics.solve_overlaps
    flow = solve(problem, save_at=dynamics.SaveAt.at([0.5]), progress=False)
    summary = solve(problem, save_at=dynamics.SaveAt.at([0.5]), keep="summary", progress=False)
    C, G, n = (flow[name].values[0] for name in ("teacher_overlap", "student_overlap", "squared_norm"))
    seen = observables_of(problem)
    np.testing.assert_allclose(seen.learned(C[None], n[None])[0], summary.learned_mass[0], rtol=1e-10)
    assert seen.loss(C, G, n) == pytest.approx(float(flow.loss[0]), rel=1e-9)


@pytest.mark.parametrize(("student", "link"), [("homogeneous", "he4"), ("committee", "erf")])
def test_delayed_updates_are_the_updates_one_by_one(student, link):
    """Seventy steps, more than two blocks, on the same samples."""
    problem = replace(committee(link, norms=(0.3, 0.4), dimension=20, noise=0.0), student=student)
    assert_autograds_steps(problem, [3e-3] * 70)


z = sympy.Symbol("z")
GRID = np.linspace(-3.1, 3.2, 40)
FORMULAS = [
    sympy.Abs(z),
    sympy.Max(z, -z / 2, sympy.Rational(3, 10)),
    sympy.Min(z, 1),
    sympy.log(1 + sympy.exp(z)),
    z / (1 + sympy.exp(-z)),
    z**2 * sympy.exp(-(z**2)) - sympy.sqrt(3) / 9,
    sympy.sin(2 * z) * sympy.cosh(z / 3) + sympy.cos(z) * sympy.sinh(z / 2),
    sympy.atan(z) + sympy.erfc(z),
    (1 + z**2) ** sympy.Rational(-1, 2),
    sympy.pi * z,
]


def filled(link):
    out = torch.empty(3, 1, 1, GRID.size, dtype=torch.float64)
    link.fill(torch.tensor(GRID).reshape(1, 1, -1), out)
    return out[:, 0, 0].numpy()


@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_formulas_and_their_derivatives_are_those_of_numpy(formula):
    link, _ = make_link(hermite.expand(formula), torch.float64, torch.device("cpu"))
    sigma = sympy.lambdify(z, formula, "scipy")
    value, double, slope = filled(link)
    np.testing.assert_allclose(value, sigma(GRID), atol=1e-13)
    np.testing.assert_array_equal(link.value(torch.tensor(GRID)).numpy(), value)
    step = 1e-6
    np.testing.assert_allclose(slope, (sigma(GRID + step) - sigma(GRID - step)) / (2 * step), atol=2e-8)
    np.testing.assert_allclose(double, 2 * value - GRID * slope, atol=1e-13)


def test_a_function_that_torch_lacks_falls_back_on_the_series():
    stub = SimpleNamespace(
        is_polynomial=False, expression=sympy.airyai(z), coefficients=np.array([0.0, 1.0, 0.5]), name="airy", order=2
    )
    link, name = make_link(stub, torch.float64, torch.device("cpu"))
    assert name == "airy (Hermite series to order 2)"
    np.testing.assert_allclose(filled(link)[0], GRID + 0.5 * (GRID**2 - 1) / np.sqrt(2), atol=1e-13)


RULE = "Argument `x` must be a vectorised callable (array in, real array of the same shape out), but "


def test_functions_of_tensors_are_links_too():
    """In double precision they are those of numpy, to rounding."""

    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.tensor(0.01, dtype=torch.float64))

        def forward(self, z):
            return torch.where(z > 0, z, self.slope * z)

    z = np.linspace(-3.0, 3.0, 7)
    for function, name in ((torch.nn.functional.silu, "silu"), (torch.tanh, "tanh"), (Leaky(), "leaky_relu")):
        link, formula = hermite.expand(function), hermite.expand(name)
        np.testing.assert_allclose(link.coefficients, formula.coefficients, rtol=0, atol=1e-12)
        np.testing.assert_allclose(link.value(z), formula.value(z), rtol=0, atol=1e-15)
        assert link.information_exponent == 1
    assert hermite.expand(lambda z: z.clamp(min=0)).name == "<lambda>"  # a method that arrays lack


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.nn.ReLU, "Argument `x` must be a function, but is a class; an object of it may be one: ReLU()."),
        (torch.nn.Linear(400, 1, dtype=torch.float32), f"{RULE}'Linear' failed on an array of shape (400,): mat1 and mat2 must have the same dtype, but got Double" " and Float"),
        (lambda z: torch.relu(z).float(), f"{RULE}'<lambda>' returns dtype float32."),
    ],
)  # fmt: skip
def test_refusals_are_single_sentences(given, sentence):
    with pytest.raises(TypeError) as caught:
        hermite.expand(given)
    assert str(caught.value) == sentence
