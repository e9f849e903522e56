"""The projected engine: its step against autograd in R^d, its law against R^d and exact moments, its seeds, its links."""

from functools import partial

import numpy as np
import pytest
import sympy
from engine_state import assert_overflow_ends, drawn_samples, engine_of, weights_of
from from_python import from_python
from sample_steps import step
from scipy import stats
from uneven_networks import labels_of

import hermite
import sgd_check
from dynamics import Problem, Teacher, one_step_moments
from sgd_check.engines.programs import OPERATIONS, REGISTERS, polynomial_program
from sgd_check.engines.sampled_links import both_at, run_program, sampled_link, scratch_size, value_at, write_link

CROOKED = [[1.0, 0.0], [0.6, 0.8]]
SMOOTH = "tanh(z) + 0.5*he2(z)"


def uneven(dimension, directions=None, activation=SMOOTH, label_noise=0.3, norms=(0.9, 0.5, 1.3)):
    """Neurons of unequal lengths, neither matched nor orthogonal."""
    weights = np.random.default_rng(5).standard_normal((3, dimension))
    weights *= np.array(norms)[:, None] / np.linalg.norm(weights, axis=1, keepdims=True)
    return Problem(
        activation=activation, teacher=Teacher([0.8, 0.6], directions=directions), width=3, dimension=dimension,
        initial_weights=weights, label_noise=label_noise,
    )  # fmt: skip


engine = partial(engine_of, "projected")


def products(weights, rows):
    """R = WΘᵀ and the upper half of S = WWᵀ, one row per run."""
    S = weights @ weights.transpose(0, 2, 1)
    upper = np.triu_indices(S.shape[1])
    return np.concatenate([(weights[:, :, :2] @ np.transpose(rows)).reshape(len(weights), -1), S[:, *upper]], axis=1)


def weights_of_samples(run, problem, known, noise, rate):
    """H_bi = η/B e_b |w_i| σ'_ib, of B samples given in the axes of the moment."""
    w = weights_of(run)[0]
    length = np.linalg.norm(w, axis=1)
    z = known @ (w / length[:, None]).T
    link = problem.activation
    e = link.value(z) @ length**2 - labels_of(problem, known) - noise
    return rate / len(e) * e[:, None] * length * link.derivative(z)


# d − r − m = 0, fewer than B or m, and many; one sample, few and more than neurons.
@pytest.mark.kernels
@pytest.mark.parametrize("directions", [None, CROOKED])
@pytest.mark.parametrize(
    ("dimension", "batch"), [(5, 1), (6, 1), (30, 1), (5, 3), (6, 3), (30, 2), (5, 9), (7, 9), (30, 9)]
)
def test_one_step_is_autograds_step_in_the_axes_of_the_moment(dimension, batch, directions):
    """Three steps in a row, each from the weights and for the samples of the moment; largest error 1.2e-15."""
    problem = uneven(dimension, directions)
    rows = np.eye(2) if directions is None else np.array(directions)
    run = engine(problem, (7,), batch_size=batch)
    for _ in range(3):
        before = weights_of(run)
        x, noise = drawn_samples(run, problem, 0.03, batch, weights_of_samples)
        run.advance(np.array([0.03]))
        wide = np.zeros((1, 3, x.shape[1]))
        wide[:, :, :5] = before
        expected = step(problem, wide, x[None], labels_of(problem, x[None]) + noise, 0.03)
        np.testing.assert_allclose(products(weights_of(run), rows), products(expected, rows), rtol=0, atol=1e-13)
        assert np.abs(products(expected, rows) - products(before, rows)).max() > 1e-3
        assert (np.triu(weights_of(run)[0, :, 2:], 1) == 0).all()


@pytest.mark.kernels
@pytest.mark.parametrize("dimension", [2, 3, 30])
def test_the_loop_of_a_lone_pair_takes_the_steps_of_the_general_one(dimension):
    """The same direction given as a row is stepped by the loop for any teacher, tested above; largest error 3e-16."""
    runs = []
    for directions in (None, [[1.0]]):
        problem = Problem(
            activation=SMOOTH, teacher=Teacher([0.8], directions=directions), width=1, dimension=dimension,
            initial_norm=0.7, label_noise=0.3,
        )  # fmt: skip
        runs.append(engine(problem, (7,)))
    assert runs[0]._motion.take is not runs[1]._motion.take
    before = weights_of(runs[0])
    for run in runs:
        run.advance(np.full(40, 0.03))
    lone, general = (weights_of(run) for run in runs)
    np.testing.assert_allclose(lone, general, rtol=0, atol=1e-13)
    assert np.abs(lone - before).max() > 0.1


def repeated_steps(problem, rate, batch, repeats, seed):
    """R and S after one step from the start, by the projected engine."""
    run = engine(problem, (seed,), batch_size=batch)
    start, found = run._state["weights"].copy(), []
    for _ in range(repeats):
        run._state["weights"][:] = start
        run.advance(np.array([rate]))
        found.append(weights_of(run)[0])
    return np.array(found)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("dimension", "batch", "directions"),
    [
        (5, 1, None),
        (7, 32, None),
        (9, 1, CROOKED),
        (40, 4, None),
        *(pytest.param(*case, marks=pytest.mark.long) for case in ((5, 4, CROOKED), (6, 1, None), (7, 4, None), (40, 32, CROOKED))),
    ],
)  # fmt: skip
def test_first_two_moments_of_a_step_are_those_in_r_d(dimension, batch, directions):
    """Two-sample z-scores of 12 means and 78 second moments; |z| < 5 is a false-alarm rate below 6e-5 for each case."""
    problem, repeats = uneven(dimension, directions), 8000
    rows = np.eye(2) if directions is None else np.array(directions)
    rng = np.random.default_rng(dimension + batch)
    x = rng.standard_normal((repeats, batch, dimension))
    noise = 0.3 * rng.standard_normal((repeats, batch))
    start = problem.initial_weights[None]
    direct = products(step(problem, np.repeat(start, repeats, axis=0), x, labels_of(problem, x) + noise, 0.2), rows)
    ours = products(repeated_steps(problem, 0.2, batch, repeats, 3), rows)
    middle = direct.mean(0)
    a, b = np.triu_indices(middle.size)
    samples = [np.concatenate([s, (s - middle)[:, a] * (s - middle)[:, b]], axis=1) for s in (direct, ours)]
    error = np.sqrt(sum(s.var(0) / repeats for s in samples))
    z = (samples[0].mean(0) - samples[1].mean(0)) / error
    assert np.abs(z).max() < 5
    moved = np.abs(middle - products(start, rows)[0]) / error[: middle.size]
    assert moved.max() > 20, "the step must have moved for the comparison to see anything"


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "batch"), [(10**4, 1), (10**12, 1), (10**12, 2), (10**12, 8)])
def test_mean_step_is_the_exact_one_up_to_d_10_12(dimension, batch):
    """z-scores of E[ΔS] at η = 1/d; |z| < 5 for six entries is a false-alarm rate below 4e-6 for each case."""
    rng = np.random.default_rng(2)
    C = rng.uniform(-0.5, 0.5, (3, 2))
    n = np.array([0.8, 0.25, 1.7])
    G = C @ C.T + np.diag(1 - np.sum(C**2, axis=1))
    problem = Problem(
        activation={1: 0.6, 2: 0.5}, teacher=Teacher([0.8, 0.6]), width=3, dimension=dimension,
        initial_overlaps=(C, G, n), label_noise=0.3,
    )  # fmt: skip
    rate, repeats = batch / dimension, 20_000
    change = products(repeated_steps(problem, rate, batch, repeats, 4), np.eye(2)) - products(
        weights_of(engine(problem, (4,))), np.eye(2)
    )
    exact = one_step_moments(problem, batch_size=batch)
    upper = np.triu_indices(3)
    expected = (rate * exact.student_first + rate**2 * exact.student_second)[upper]
    found = change[:, 6:]
    error = found.std(0) / np.sqrt(repeats)
    assert np.abs((found.mean(0) - expected) / error).max() < 5
    assert np.abs(expected / error).max() > 20, "the step must have moved for the comparison to see anything"


@pytest.mark.thorough
@pytest.mark.statistical
def test_escape_times_have_the_law_of_the_torch_engine(tools):
    """Kolmogorov-Smirnov of times and of norms, level 1e-3 each: false-alarm rate 3e-3; a stretch by 30 % is seen."""
    problem = tools.problem([[0.55, 0.05], [0.03, 0.5], [0.02, -0.04]], dimension=16, label_noise=0.2)
    given = {"learning_rate": 0.07 / 16**2, "steps": 3600, "progress": False}
    ours = sgd_check.simulate(problem, seeds=200, **given)
    theirs = sgd_check.simulate(problem, seeds=range(1000, 1200), engine="torch", **given)
    # Runs that did not emerge, or blew up, count as later and larger than all.
    for p in range(2):
        a, b = (runs["emergence_time"].fillna(1e9).values[:, p] for runs in (ours, theirs))
        assert stats.ks_2samp(a, b).pvalue > 1e-3
        assert stats.ks_2samp(1.3 * a, b).pvalue < 1e-3
    norms = [runs["squared_norm"].fillna(1e9).values[:, -1].sum(1) for runs in (ours, theirs)]
    assert stats.ks_2samp(*norms).pvalue > 1e-3


@pytest.mark.parametrize("name", ["projected", "torch"])
def test_a_frozen_seed_leaves_the_others_untouched(name):
    def final(stopped):
        run = engine_of(name, uneven(12), dtype="float64")
        with run.running():
            run.freeze(np.array(stopped))
            run.advance(np.full(30, 1e-3))
        return weights_of(run)

    free, frozen = final([False] * 3), final([False, True, False])
    assert np.isnan(frozen[1]).all()
    np.testing.assert_array_equal(frozen[[0, 2]], free[[0, 2]])


@pytest.mark.kernels
@pytest.mark.parametrize("batch", [1, 4])
def test_a_run_that_overflows_is_nan_and_stepped_no_more(batch):
    assert_overflow_ends(engine(uneven(12), batch_size=batch))


GRID = np.linspace(-5.1, 5.2, 41)


def sampled(link, points=GRID):
    """σ and σ' of many numbers at once; the same one by one, and σ alone."""
    value, slope, alone = (np.empty(points.size) for _ in range(3))
    scratch = np.empty(from_python(scratch_size)(link, points.size))
    from_python(write_link)(link, points, value, slope, scratch)
    from_python(write_link)(link, points, alone, np.empty(0), scratch)
    some = points[:: max(points.size // 20, 1)]
    single = np.array(
        [(*from_python(both_at)(link, z, scratch), from_python(value_at)(link, z, scratch)) for z in some]
    ).T
    several = np.array([value, slope, alone])[:, :: max(points.size // 20, 1)]
    # Sums of order 40 lose two digits.
    np.testing.assert_allclose(single, several, rtol=1e-12, atol=1e-12 * max(1.0, np.abs(several).max()))
    np.testing.assert_allclose(alone, value, rtol=1e-12, atol=1e-12 * max(1.0, np.abs(value).max()))
    return value, slope


def check(expansion, found, points=GRID, digits=13):
    for values, wanted in zip(found, (expansion.value(points), expansion.derivative(points)), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=0, atol=10.0**-digits * max(1.0, np.abs(wanted).max()))


z = sympy.Symbol("z")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formula",
    [
        sympy.Max(z, -z / 2, sympy.Rational(3, 10)),
        sympy.Min(z, 1),
        sympy.sin(2 * z) * sympy.cosh(z / 3) + sympy.cos(z) * sympy.sinh(z / 2),
        sympy.atan(z) + sympy.erfc(z),
        (1 + z**2) ** sympy.Rational(-1, 2),
        (2 + z**2) ** -3 + (1 + z**2) ** sympy.Rational(1, 3),
        sympy.pi * z * sympy.exp(-sympy.Abs(z)),
        2**z,
    ],
    ids=str,
)
def test_formulas_and_their_derivatives_are_those_of_numpy(formula):
    expansion = hermite.expand(formula)
    check(expansion, sampled(sampled_link(expansion)[0]))


@pytest.mark.parametrize("jump", ["step", "sign", "sign(z)*z**2 + heaviside(z - 1)"])
def test_a_formula_with_a_jump_is_sampled_as_its_series(jump):
    """The derivative almost everywhere of a step is 0, and no gradient descent would follow it."""
    expansion = hermite.expand(jump, order=9)
    assert sampled_link(expansion)[1] == f"{expansion.name} (Hermite series to order 9)"
    check(expansion.truncated(), sampled(sampled_link(expansion)[0]), digits=12)


def test_a_polynomial_in_several_variables_is_summed_by_horners_rule():
    """At fewer operations than the products of its monomials have, in few registers."""
    exponents = np.array([[6, 0, 2], [4, 1, 0], [4, 0, 0], [2, 3, 1], [1, 1, 1], [0, 5, 0], [0, 0, 3], [0, 0, 0]])
    coefficients = np.random.default_rng(3).standard_normal(8)
    x = np.random.default_rng(2).standard_normal((3, 40))
    program = np.array(polynomial_program(exponents, coefficients))
    assert program[OPERATIONS] < exponents.sum()
    assert program[REGISTERS] < 10
    registers = np.empty((int(program[REGISTERS]), 40))
    registers[:3] = x
    from_python(run_program)(program, 0, registers.ravel(), 40)
    expected = coefficients @ np.prod(x[None] ** exponents[:, :, None], axis=1)
    np.testing.assert_allclose(registers[int(program[2])], expected, rtol=1e-12, atol=1e-12)
