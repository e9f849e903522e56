"""Committees: Saad and Solla's equations, as printed and by public code, quadrature over x, agreement of methods, refusals."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gaussian_rules import gauss_grid, gauss_rule, grid_of, smooth
from kernel_calls import Kernels
from weight_space import theta_of

import dynamics
from dynamics.equations.committee import CommitteeSystem
from dynamics.runs.dataset import VARIABLES
from hermite import polynomials

# Order parameters of erf committees with the term of the finite learning rate, integrated at tolerance 1e-12 from the
# right-hand side of the public code arn4/committe-learning (commit 4cdb74f), checked there against sgoldt/nn2pp.
REFERENCE = json.loads((Path(__file__).parents[2] / "reference" / "saad_solla_erf.json").read_text())["cases"]
MIXED = {0: 0.3, 1: 0.2, 2: 0.4, 3: 0.5, 4: -0.2}
LINKS = ["erf", {1: 1.0}, {2: 1.0}, {3: 1.0}, {4: 1.0}, MIXED]
#: All links at both ends of the numbers of neurons and directions, and as many of both with some.
SIZES = [*((link, m, P) for link in LINKS for m, P in ((1, 1), (3, 2))), ("erf", 2, 2), ({3: 1.0}, 2, 2), (MIXED, 2, 2)]


def some_problem(link, m=2, P=2, d=2, *, seed=0, size=1.0, **changes):
    """A teacher of general Gram matrix within two axes, and weights of different lengths."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((P, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    teacher = dynamics.Teacher(rng.uniform(0.5, 1.5, P), directions=rows)
    weights = size * rng.standard_normal((m, d)) * rng.uniform(0.4, 0.9, (m, 1))
    given = {"activation": link, "teacher": teacher, "width": m, "dimension": d, "initial_weights": weights}
    return dynamics.Problem(student="committee", **(given | changes))


def rates(problem, *step):
    system = CommitteeSystem(problem, *step)
    return system.unpack(Kernels(system).rhs())


@np.errstate(invalid="ignore")  # links of low degree have no mass of high degrees
def by_quadrature(problem, rate=0.0, *, scaled_by_dimension=True, batch=1):
    """R' and S' with the term in the learning rate, in R²; loss, and Σ_i E σ_i σ_p / E σ_p² of all and of high degrees."""
    x, measure = gauss_grid(12, 2) if problem.activation.is_polynomial else grid_of([smooth()] * 2)
    link, theta, a = problem.activation, theta_of(problem), problem.teacher.coefficients
    weights = problem.initial_weights
    projections = x @ weights.T
    value, slope, teacher = link.value(projections), link.derivative(projections), link.value(x @ theta.T)
    error = value.sum(axis=1) - teacher @ a
    gradient = np.einsum("x,x,xi,xk->ik", measure, error, slope, x)
    square = problem.dimension if scaled_by_dimension else np.sum(x**2, axis=1)
    noisy = measure * (error**2 + problem.label_noise**2) * square
    first = gradient @ weights.T
    second = np.einsum("x,xi,xj->ij", noisy, slope, slope) / batch
    if not scaled_by_dimension:
        second += (1 - 1 / batch) * gradient @ gradient.T
    parts = (value, teacher), (high_degrees(value, x, weights, measure), high_degrees(teacher, x, theta, measure))
    masses = [(measure @ (own.sum(axis=1)[:, None] * other)) / (measure @ other**2) for own, other in parts]
    return -gradient @ theta.T, -first - first.T + rate * second, measure @ error**2, masses


def high_degrees(values, x, vectors, measure):
    """Return functions of z = v·x/|v| less their parts along 1, z and z² − 1, a column per vector."""
    z = x @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T
    for h in (np.ones_like(z), z, (z**2 - 1) / math.sqrt(2)):
        values = values - h * (measure @ (values * h))
    return values


def assert_same(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@pytest.mark.kernels
@pytest.mark.parametrize(("link", "m", "P"), [*SIZES, ("he9", 1, 1), ("he9", 3, 2)], ids=str)
def test_flow_loss_and_mass_equal_quadrature_over_x(link, m, P):
    problem = some_problem(link, m, P)
    kernels = Kernels(CommitteeSystem(problem))
    dR, dS, loss, masses = by_quadrature(problem)
    found = kernels.system.unpack(kernels.rhs())
    # Measured: at most 8e-15.
    assert_same(found[0], dR, 1e-13)
    assert_same(found[1], dS, 1e-13)
    C = kernels.system.observe(kernels.state)["teacher_overlap"]
    size = np.maximum(C, 0.0) if problem.information_exponent % 2 else C
    for definition, mass in zip(("all degrees", "degrees 3 and above"), masses, strict=True):
        kernels = Kernels(CommitteeSystem(replace(problem, learned_definition=definition)))
        observed = kernels.system.summarise(kernels.state)
        assert observed["loss"] == pytest.approx(loss, rel=1e-12)
        events = kernels.events()
        assert_same(events[:P], (size**2).max(axis=0) - 0.5, 1e-13)
        if definition == "degrees 3 and above" and link in ({1: 1.0}, {2: 1.0}):
            assert np.isnan([*observed["learned_mass"], *events[P:]]).all()
            continue
        # Measured: at most 2e-14; that of high degrees of erf is a difference of terms 20 times as large.
        assert_same(observed["learned_mass"], mass, 1e-12)
        assert_same(events[P:], mass - 0.5 * problem.teacher.coefficients, 1e-12)


@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.parametrize(("link", "m", "P"), SIZES, ids=str)
@pytest.mark.parametrize("theory", ["infinite-d", "finite-d"])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_term_of_the_step_equals_quadrature_over_x(link, m, P, theory, batch):
    problem = some_problem(link, m, P, label_noise=0.7)
    _, dS, *_ = by_quadrature(problem, 0.3, scaled_by_dimension=theory == "infinite-d", batch=batch)
    # Measured: at most 4e-15.
    assert_same(rates(problem, 0.3, theory, batch)[1], dS, 1e-13)
    without = rates(problem)[1]
    assert np.abs(without - dS).max() > 0.02 * np.abs(dS).max()


@pytest.mark.parametrize("link", ["erf", MIXED], ids=str)
def test_a_student_equal_to_the_teacher_does_not_move(link):
    rows = np.array([[1.0, 0.0], [0.6, 0.8]])
    teacher = dynamics.Teacher([1.0, 1.0], directions=rows)
    problem = some_problem(link, 2, 2, 2, initial_weights=rows, teacher=teacher)
    for step in ((), (0.5, "infinite-d"), (0.5, "finite-d")):
        # Measured: at most 7e-15.
        assert max(np.abs(part).max() for part in rates(problem, *step)) < 1e-13


def reference_problem(case, dimension=1000):
    Q, R = np.array(case["Q0"]), np.array(case["R0"])
    length = np.sqrt(np.diag(Q))
    return dynamics.Problem(
        activation="erf", teacher=dynamics.Teacher(np.ones(case["M"])), width=case["K"], dimension=dimension,
        student="committee", label_noise=case["sigma_noise_std"],
        initial_overlaps=(R / length[:, None], Q / np.outer(length, length), length**2),
    )  # fmt: skip


def order_parameters(dataset):
    length = np.sqrt(dataset.squared_norm.values)
    R = dataset.teacher_overlap.values * length[:, :, None]
    return R, dataset.student_overlap.values * length[:, :, None] * length[:, None, :]


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: f"K={case['K']}, eta={case['eta']}")
def test_reference_of_saad_and_solla(case):
    """Their learning rate is η d, their time step/d, their error half the loss, for weights scaled by √d."""
    problem = reference_problem(case)
    save_at = dynamics.SaveAt.at(case["eta"] * np.array(case["alpha"]))
    rate = case["eta"] / problem.dimension
    found = dynamics.solve_committee(
        problem, save_at=save_at, learning_rate=rate, rtol=1e-12, atol=1e-12, progress=False
    )
    R, S = order_parameters(found)
    # Measured: at most 6e-12, and the same with rtol 1e-14: the reference itself is no better.
    np.testing.assert_allclose(R, case["R"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(S, case["Q"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.loss.values / 2, case["eg"], rtol=0, atol=2e-11)


def i3(C, i, j, k):
    """E[g'(λ_i) λ_j g(λ_k)], as printed by Saad and Solla."""
    size = (1 + C[i, i]) * (1 + C[k, k]) - C[i, k] ** 2
    return 2 / math.pi / math.sqrt(size) * (C[j, k] * (1 + C[i, i]) - C[i, j] * C[i, k]) / (1 + C[i, i])


def i4(C, i, j, k, l):  # noqa: E741
    """E[g'(λ_i) g'(λ_j) g(λ_k) g(λ_l)], as printed by Saad and Solla; two of the four may be the same projection."""
    first, second = 1 + C[i, i], 1 + C[j, j]
    size = first * second - C[i, j] ** 2
    cross = C[i, j] * (C[i, k] * C[j, l] + C[i, l] * C[j, k])
    top = size * C[k, l] - C[j, k] * C[j, l] * first - C[i, k] * C[i, l] * second + cross
    left, right = (
        size * (1 + C[x, x]) - C[j, x] ** 2 * first - C[i, x] ** 2 * second + 2 * C[i, j] * C[i, x] * C[j, x]
        for x in (k, l)
    )
    return 4 / math.pi**2 / math.sqrt(size) * math.asin(top / math.sqrt(left * right))


def test_the_equations_are_those_printed_by_saad_and_solla():
    problem = some_problem("erf", 3, 2, 4, label_noise=0.0, seed=5)
    system = CommitteeSystem(problem)
    R, S = system.unpack(system.initial_state)
    C = np.block([[S, R], [R.T, problem.teacher.gram()]])
    w, every = np.concatenate([np.ones(3), -problem.teacher.coefficients]), range(5)
    drift = -np.array([[sum(w[b] * i3(C, i, c, b) for b in every) for c in every] for i in range(3)])
    pairs = [[sum(w[a] * w[b] * i4(C, i, j, a, b) for a in every for b in every) for j in range(3)] for i in range(3)]
    eta = 0.7
    dR, dS = rates(problem, eta / problem.dimension)
    # Measured: at most 5e-16.
    assert_same(dR, drift[:, 3:], 1e-13)
    assert_same(dS, drift[:, :3] + drift[:, :3].T + eta * np.array(pairs), 1e-13)


def test_the_step_tends_to_the_flow():
    problem = reference_problem(REFERENCE[0])
    options = {"save_at": dynamics.SaveAt.linear(5.0, 60.0, 8), "rtol": 1e-12, "atol": 1e-12, "progress": False}
    flow = order_parameters(dynamics.solve_committee(problem, **options))[1]
    gaps = []
    for eta in (0.02, 0.01, 0.005):
        step = dynamics.solve_committee(problem, learning_rate=eta / problem.dimension, **options)
        gaps.append(order_parameters(step)[1] - flow)
    # Measured: gaps in S of 8e-4, 4e-4, 2e-4, that is 1.6e-8 when twice extrapolated to η = 0.
    once = [2 * half - whole for whole, half in pairwise(gaps)]
    assert np.abs(gaps[0]).max() > 5e-4
    assert np.abs((4 * once[1] - once[0]) / 3).max() < 1e-7


SPECIALISING = dynamics.Problem(
    activation="erf", teacher=dynamics.Teacher([1.0, 1.0]), width=2, dimension=100, student="committee", initial_norm=0.5,
    seed=2,
)  # fmt: skip
SAVE = dynamics.SaveAt.geometric(1.0, 400.0, 12)


def test_methods_agree_and_the_dataset_says_what_was_asked():
    options = {"save_at": SAVE, "learning_rate": 0.002, "progress": False}
    full = dynamics.solve_committee(SPECIALISING, **options)
    assert full.attrs["method"] == "explicit"
    for method in ("bdf", "scipy:DOP853"):
        other = dynamics.solve_committee(SPECIALISING, method=method, **options)
        # Measured: at most 3e-8 (scipy; bdf 3e-9) in the loss, 5e-8 (scipy; bdf 1e-9) in the times.
        np.testing.assert_allclose(other.loss, full.loss, rtol=0, atol=2e-7)
        np.testing.assert_allclose(other.emergence_time, full.emergence_time, rtol=5e-7)
    summary = dynamics.solve_committee(SPECIALISING, keep="summary", **options)
    np.testing.assert_allclose(
        summary.max_overlap[-1], np.maximum(full.teacher_overlap[-1], 0).max("neuron"), rtol=1e-12
    )
    np.testing.assert_allclose(summary.loss, full.loss, rtol=1e-12)
    for answer in (full, summary):
        assert dynamics.Problem.from_dataset(answer) == SPECIALISING
        assert answer.attrs["learning_rate"] == 0.002
        assert all(variable.dims == VARIABLES[name].dims for name, variable in answer.variables.items())
    assert "step_theory" not in dynamics.solve_committee(SPECIALISING, save_at=SAVE, progress=False).attrs


def test_estimated_errors_cover_the_errors():
    """Against a run at rtol 1e-11."""
    given = {"save_at": SAVE, "keep": "summary", "progress": False}
    exact = dynamics.solve_committee(SPECIALISING, rtol=1e-11, atol=1e-13, error_estimate=False, **given)
    assert "loss_error" not in exact
    found = dynamics.solve_committee(SPECIALISING, method="bdf", rtol=1e-6, **given)
    for name in ("loss", "emergence_time", "learned_time"):
        error, estimate = np.abs(found[name] - exact[name]).values, found[f"{name}_error"].values
        assert (error <= estimate + 1e-12).all()
        assert estimate.max() <= 1e-4 * max(1.0, float(found[name].max()))


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({"student": "homogeneous"}, {}, "Argument `problem` must have the committee student here, but has the homogeneous student, whose overlaps `dynamics.solve_overlaps` integrates."),
        ({"activation": "tanh"}, {}, "Argument `problem` must have a polynomial link or 'erf' for a committee, but has tanh; `activation=problem.activation.truncated()` asks for its series, close to it at norms up to 1 alone."),
        ({"activation": "he13"}, {"learning_rate": 0.1}, "Argument `problem` must have a link of degree at most 12 for a finite learning rate, but has 13."),
        ({}, {"step_theory": "x"}, "Argument `step_theory` must be one of 'infinite-d', 'finite-d', but is 'x'."),
        ({}, {"batch_size": 2}, "Argument `batch_size` must be 1 unless `learning_rate` is given, but is 2."),
        ({}, {"batch_size": 0, "learning_rate": 0.1}, "Argument `batch_size` must be at least 1, but is 0."),
        ({}, {"keep": "all"}, "Argument `keep` must be one of 'full', 'summary', but is 'all'."),
        ({}, {"learning_rate": 0}, "Argument `learning_rate` must be finite and positive, but is 0."),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(changes, options, sentence):
    given = {
        "activation": "erf",
        "teacher": dynamics.Teacher([1.0]),
        "width": 1,
        "dimension": 4,
        "student": "committee",
    }
    problem = dynamics.Problem(**given | changes)
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        dynamics.solve_committee(problem, save_at=SAVE, progress=False, **options)
    assert str(caught.value) == sentence


def test_means_of_a_polynomial_hold_at_every_degree():
    """E σ(√v z)² against Gauss–Hermite quadrature for h_13, beyond the degrees of the other tests."""
    problem = some_problem("he13", 1, 1, size=0.8)
    system = CommitteeSystem(problem)
    nodes, measure = gauss_rule(60)
    S = system.unpack(system.initial_state)[1]
    found = system._link.products(np.array([[S[0, 0]]]))[0, 0]
    values = polynomials.series_value(problem.activation.coefficients, math.sqrt(S[0, 0]) * nodes)
    # Measured: 3e-13.
    assert found == pytest.approx(measure @ values**2, rel=1e-10)


@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_a_neuron_that_dies_leaves_zeros_and_the_loss_of_the_others(method):
    """Of σ = (h_2 + h_3 + h_4)/2 from this start nothing is left, which bdf follows to n = 0 ± 1e-14, within atol."""
    problem = some_problem({2: 0.5, 3: 0.5, 4: 0.5}, 1, 1, 14, initial_weights=0.3 * np.eye(1, 14, 5))
    flow = dynamics.solve_committee(
        problem, save_at=dynamics.SaveAt.linear(0.0, 200.0, 41), method=method, rtol=1e-6, progress=False
    )
    assert flow.attrs["stop_reason"] == "reached_end"
    assert np.isfinite(flow.teacher_overlap).all()
    assert 0.0 <= float(flow.squared_norm[-1, 0]) < 1e-10
    # f = σ(0) = (c_2 h_2(0) + c_4 h_4(0)), against E f*² − 2 f E f* + f² with E f* = 0.
    constant = 0.5 * (-1.0 / np.sqrt(2.0) + 3.0 / np.sqrt(24.0))
    assert float(flow.loss[-1]) == pytest.approx(0.75 * problem.teacher.coefficients[0] ** 2 + constant**2, abs=1e-8)
