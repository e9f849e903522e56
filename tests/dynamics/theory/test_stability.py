"""The limit of the learning rate against the map of second moments in R^d, and against SGD in weights."""

import re
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from gaussian_rules import gauss_grid

import dynamics
import hermite
import sgd_check
from dynamics import Problem, Teacher
from dynamics.theory.stability import (
    UnitClasses,
    _on_axes,
    degree_of,
    fitted_neurons,
    limit_of_moments,
    mean_square_limit,
    network_limit,
    reached_state,
    sampled_limit,
)
from dynamics.theory.step_noise import means_of

MIXED, CUBIC = {1: 0.6, 2: 0.8}, {2: 0.3, 3: 0.8}
OBLIQUE = [[1.0, 0.0], [0.6, 0.8]]


def gradients(kind, link, weights, x):
    """Return ∂f/∂w of all neurons, one row per sample; those of the spherical student are across, times its width."""
    found = []
    for w in weights:
        length = np.linalg.norm(w)
        t = x @ w / (1.0 if kind == "committee" else length)
        value, slope, u = link.value(t)[:, None], link.derivative(t)[:, None], w / length
        if kind == "homogeneous":
            found.append(length * ((2.0 * value - t[:, None] * slope) * u + slope * x))
        elif kind == "committee":
            found.append(slope * x)
        else:
            found.append(slope * (x - t[:, None] * u) / np.sqrt(len(weights)))
    return np.hstack(found)


def growth_in_weights(g, probability, rate, batch, count=None):
    """Return the factors of one step on second moments of deviations (R^(m d))², formed whole.

    Steps are along the gradient, or a mean over `count` random directions.
    """
    k, one = g.shape[1], np.eye(g.shape[1])
    hessian = g.T @ (probability[:, None] * g)
    squares = (g[:, :, None] * g[:, None, :]).reshape(-1, k * k)
    twice = squares.T @ (probability[:, None] * squares)
    step = np.kron(one, one) - rate * (np.kron(hessian, one) + np.kron(one, hessian))
    second = twice / batch + (1.0 - 1.0 / batch) * np.kron(hessian, hessian)
    if count is not None:
        # The mean of z zᵀ G z zᵀ over z ~ N(0, 1), by Isserlis' theorem: tr G 1 + G + Gᵀ.
        second = np.outer(one, one) @ second / count + (1.0 + 1.0 / count) * second
    return step + rate**2 * second


@pytest.mark.thorough
@pytest.mark.parametrize(("batch", "count"), [(1, None), (4, None), (1, 1), (4, 3)])
@pytest.mark.parametrize(
    ("student", "a", "rows", "d", "spectrum"),
    [
        ("homogeneous", [1.0], None, 4, None),
        ("homogeneous", [0.8, 0.6], OBLIQUE, 3, None),
        ("homogeneous", [0.8, 0.6], np.eye(2), 3, None),
        ("homogeneous", [0.8, 0.6], None, 4, [2.0, 1.0, 0.7, 0.4]),
        ("homogeneous", [1.0], None, 4, [1.0, 3.0, 0.5, 0.5]),
        ("committee", [1.0, 1.0], OBLIQUE, 3, None),
        ("committee", [1.0], None, 4, None),
        ("spherical", [0.5, 0.5], OBLIQUE, 3, None),
    ],
)
def test_second_moments_grow_from_the_limit_on(student, a, rows, d, spectrum, batch, count):
    """Exactly: of a polynomial link of degree 2 the product rule has no error. 1e-3 either side of the limit decides."""
    link, inputs = hermite.expand(MIXED), None if spectrum is None else dynamics.Inputs(spectrum)
    teacher = Teacher(a, directions=rows)
    problem = Problem(activation=link, teacher=teacher, width=len(a), dimension=d, student=student, inputs=inputs)
    optimizer = None if count is None else dynamics.ZerothOrder(directions=count)
    limit = dynamics.learning_rate_limit(problem, batch_size=batch, optimizer=optimizer)
    directions = np.eye(len(a)) if rows is None else np.array(rows)
    lengths = np.sqrt(a) if student == "homogeneous" else np.ones(len(a))
    weights = np.zeros((len(a), d))
    weights[:, : directions.shape[1]] = lengths[:, None] * directions
    x, probability = gauss_grid(10, d)
    g = gradients(student, link, weights, x)
    # Whitened weights move along an axis by its eigenvalue times their gradient.
    g = g * np.sqrt(np.tile(np.ones(d) if spectrum is None else spectrum, len(a)))
    # Parameters that change nothing stay as they are: the factor 1 of theirs is left out.
    values, axes = np.linalg.eigh(g.T @ (probability[:, None] * g))
    g = g @ axes[:, values > 1e-9 * values[-1]]
    for part, grows in ((0.999, False), (1.001, True)):
        step = growth_in_weights(g, probability, part * limit, batch, count)
        assert (np.abs(np.linalg.eigvals(step)).max() > 1.0) == grows


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("link", "a", "spectrum"),
    [
        ("he3", [1.0, 0.6], None),
        ("he4", [1.0, 0.6], None),
        (CUBIC, [0.8, 0.6], [2.0, 1.0, 0.7, 0.4]),
        ("he3", [0.8, 0.6], [2.0, 1.0, 0.7, 0.4]),
        (MIXED, [1.0, 0.7, 0.4], None),
        ("he3", [1.0, 0.7, 0.4], None),
    ],
)
def test_second_moments_of_any_link_on_axes_grow_from_the_limit_on(link, a, spectrum):
    """By a Gauss rule in R^4 that is exact for products of four gradients. 1e-4 either side of the limit decides."""
    expansion, d = hermite.expand(link), 4
    inputs = None if spectrum is None else dynamics.Inputs(spectrum)
    problem = Problem(activation=expansion, teacher=Teacher(a), width=len(a), dimension=d, inputs=inputs)
    limit = dynamics.learning_rate_limit(problem)
    x, probability = gauss_grid(9, d)
    weights = np.diag(np.sqrt(a)) @ np.eye(len(a), d)
    g = gradients("homogeneous", expansion, weights, x)
    g = g * np.sqrt(np.tile(np.ones(d) if spectrum is None else spectrum, len(a)))
    values, axes = np.linalg.eigh(g.T @ (probability[:, None] * g))
    g = g @ axes[:, values > 1e-9 * values[-1]]
    for part, grows in ((0.9999, False), (1.0001, True)):
        step = growth_in_weights(g, probability, part * limit, 1)
        assert (np.abs(np.linalg.eigvals(step)).max() > 1.0) == grows


@pytest.mark.parametrize(
    ("link", "limits"),
    [
        ("he3", {8: 0.00297133, 16: 0.0019446, 48: 0.000811664, 200: 0.000215008}),
        ("he4", {8: 0.000381628, 16: 0.000242726, 48: 9.91795e-05, 200: 2.60689e-05}),
    ],
)
def test_one_neuron_without_a_linear_part_has_the_limit_of_its_moments_in_every_dimension(link, limits):
    """Numbers of other code: moments on the axis and on d − 1 axes beyond it. As d → ∞ they are 7/d larger."""
    for d, limit in limits.items():
        problem = Problem(activation=link, teacher=Teacher([1.0]), width=1, dimension=d)
        assert dynamics.learning_rate_limit(problem) == pytest.approx(limit, rel=3e-6)


def test_simulated_moments_of_neurons_without_a_linear_part_grow_above_the_limit_and_not_below():
    """abs, two neurons, d = 16, δ ← δ − η ψ (ψ·δ): 3000 chains, E|δ|² over 12 steps against the leading factor.

    The chains start from the mode that grows fastest, which 40 steps before have made; seeds are fixed.
    """
    link, a, d = hermite.expand("abs(z)"), np.array([1.0, 0.6]), 16
    limit = dynamics.learning_rate_limit(Problem(activation=link, teacher=Teacher(a), width=2, dimension=d))
    assert limit == pytest.approx(0.0571, rel=5e-3)
    weights = np.diag(np.sqrt(a)) @ np.eye(2, d)
    for part, grows in ((0.8, False), (1.25, True)):
        rng = np.random.default_rng(5)
        delta, growth = rng.standard_normal((3000, 2 * d)), 0.0
        for step in range(52):
            g = gradients("homogeneous", link, weights, rng.standard_normal((3000, d)))
            delta -= part * limit * np.sum(g * delta, axis=1)[:, None] * g
            square = np.sum(delta**2, axis=1)
            if step >= 40:
                growth += np.log(square.mean())
            # Chains are drawn anew with their squares as weights, so that E|δ|² is that of all.
            chosen = rng.choice(3000, 3000, p=square / square.sum())
            delta = delta[chosen] / np.sqrt(square[chosen])[:, None]
        assert (growth > 0.0) == grows


def test_squares_alone_are_the_exact_moments_but_for_products():
    """Seven directions: the products that squares leave out are worth 1e-3 of the limit for he3, 1e-4 for he4."""
    for link, missed in (("he3", 1e-3), ("he4", 1e-4)):
        problem = Problem(activation=link, teacher=Teacher.power_law(7, 1.0), width=7, dimension=40)
        exact = limit_of_moments(*_on_axes(problem, fitted_neurons(problem)), 1)
        assert dynamics.learning_rate_limit(problem) == pytest.approx(exact, rel=missed)
        assert dynamics.learning_rate_limit(problem) != exact


@pytest.mark.parametrize(("link", "moments"), [("relu", 0.5), ("abs(z)", 1.0)])
def test_moments_of_links_with_a_kink_at_zero(link, moments):
    """E σ'² and E σ'⁴ of σ' that jumps at 0; a trapezoid rule with a point there is off by 1e-3."""
    slope = hermite.expand(link).derivative
    unit = UnitClasses.of([slope, lambda z: slope(z) ** 2], [True, False])
    raw = unit.cumulants[0] + unit.mean[:, :, None] * unit.mean[:, None]
    np.testing.assert_allclose(raw[0, [0, 1], [0, 1]], moments, rtol=1e-6)
    assert means_of(hermite.expand(link), [(0, 4, 0)])[0] == pytest.approx(moments, rel=1e-6)


@pytest.mark.parametrize("link", ["relu", "erf", MIXED])
def test_neurons_on_axes_have_the_limit_of_neurons_anywhere(link):
    """Up to 1/d and, where three axes are sampled, one per cent."""
    a, d = np.array([0.8, 0.5]), 400
    apart, together = (
        dynamics.learning_rate_limit(Problem(activation=link, teacher=each, width=2, dimension=d))
        for each in (Teacher(a), Teacher(a, directions=np.eye(2)))
    )
    assert apart == pytest.approx(together, rel=5e-3)


def test_moments_of_equal_units_are_those_of_units_one_by_one():
    link = hermite.expand("gelu")
    unit = UnitClasses.of([link.derivative, lambda z: 2.0 * link.value(z)], [True, False])
    squares, count = np.array([1.0, 0.3]), np.array([3.0, 2.0])
    classes = unit.scaled(squares, count)
    apart = unit.scaled(np.repeat(squares, [3, 2]), np.ones(5))
    assert mean_square_limit(classes, 50, 4) == pytest.approx(mean_square_limit(apart, 50, 4), rel=1e-5)
    z = np.random.default_rng(0).standard_normal((200_000, 5))
    root = np.sqrt(np.repeat(squares, [3, 2]))
    sampled = root * link.derivative(z), root * 2.0 * link.value(z), np.full(len(z), 1.0 / len(z))
    limit = sampled_limit(sampled, (np.ones(1), np.array([50.0])), 4)
    assert mean_square_limit(classes, 50, 4) == pytest.approx(limit, rel=5e-3)


def test_the_limit_of_decoupled_neurons_is_a_case_of_it():
    problem = Problem(activation="he4", teacher=Teacher([1.0, 0.5]), width=2, dimension=10**7)
    unit = UnitClasses.of([problem.activation.derivative], [True]).scaled(np.array([1.0, 0.5]), np.ones(2))
    assert mean_square_limit(unit, 10**7, 1) == pytest.approx(dynamics.learning_rate_limit(problem), rel=1e-5)


def test_many_directions_are_put_in_classes():
    """Power-law coefficients of 200 directions, one by one and in classes."""
    problem = Problem(activation="relu", teacher=Teacher.power_law(200, 1.0), width=200, dimension=1000)
    link = problem.activation
    unit = UnitClasses.of([link.derivative, lambda z: 2.0 * link.value(z)], [True, False])
    apart = unit.scaled(problem.teacher.coefficients, np.ones(200))
    assert dynamics.learning_rate_limit(problem) == pytest.approx(mean_square_limit(apart, 999, 1), rel=1e-3)


def ends_of_runs(problem, rate, batch=1, start=None, runs=20, steps=4000):
    """Return E(f − f*)²/E f*² at the end of runs of SGD from the teacher or `start`, label noise 0.05; NaN if blown up."""
    a, link = problem.teacher.coefficients, problem.activation
    start = np.diag(np.sqrt(a)) if start is None else start
    weights = np.pad(start, ((0, 0), (0, problem.dimension - start.shape[1])))
    if problem.inputs is not None:
        weights = weights / np.sqrt(problem.input_axes().eigenvalues)
    asked = replace(problem, initial_weights=weights, label_noise=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rates above the limit
        found = sgd_check.simulate(asked, learning_rate=rate, steps=steps, batch_size=batch, seeds=runs, progress=False)
    return found.loss.values[:, -1] / (a @ link.kernel(problem.teacher.gram()) @ a)


POWER_LAW = dynamics.Inputs.power_law(1.0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("link", "batch", "inputs"),
    [
        *((link, batch, None) for link in ("relu", "gelu") for batch in (1, 16)),
        *((link, batch, POWER_LAW) for link, batch in (("relu", 1), ("gelu", 16))),
    ],
)
def test_runs_stay_below_the_limit_and_not_above(link, batch, inputs):
    """Seeds are fixed; of 20 runs all stay at 0.7 times the limit and none at 1.5 times."""
    teacher = Teacher([0.857, 0.429, 0.286])
    problem = Problem(activation=link, teacher=teacher, width=3, dimension=48, inputs=inputs)
    limit = dynamics.learning_rate_limit(problem, batch_size=batch)
    below, above = (np.sum(ends_of_runs(problem, part * limit, batch) < 0.5) for part in (0.7, 1.5))
    assert below == 20
    assert above <= (2 if inputs is None else 0)


@pytest.mark.thorough
@pytest.mark.parametrize(("link", "width"), [("relu", 2), ("gelu", 1)])
def test_runs_of_fewer_neurons_than_directions_stay_where_their_flow_ends_below_the_limit_and_not_above(link, width):
    """Seeds are fixed; of 20 runs from the end of the flow all stay at 0.7 times the limit and none at 1.5 times."""
    a, d = np.array([0.857, 0.429, 0.286]), 48
    problem = Problem(activation=hermite.expand(link, order=40), teacher=Teacher(a), width=width, dimension=d)
    with pytest.warns(UserWarning, match="leaves out") if link == "relu" else nullcontext():
        end = dynamics.solve_overlaps(problem, rtol=1e-4, error_estimate=False).isel(time=-1)
    C, G = end.teacher_overlap.values, end.student_overlap.values
    beyond = np.linalg.cholesky(G - C @ C.T + 1e-12 * np.eye(width))
    start = np.sqrt(end.squared_norm.values)[:, None] * np.hstack([C, beyond])
    limit = dynamics.learning_rate_limit(problem)
    for part, staying in ((0.7, 20), (1.5, 0)):
        assert np.sum(ends_of_runs(problem, part * limit, start=start) < 0.5) == staying


def test_the_limit_of_fewer_neurons_than_directions_does_not_depend_on_the_axes():
    """Directions and start turned together: the same limit, up to the sample of three axes."""
    start = np.eye(1, 50) + np.linspace(-0.2, 0.2, 50)
    turn = np.eye(50)
    turn[:2, :2] = [[0.6, 0.8], [-0.8, 0.6]]
    plain, turned = (
        dynamics.learning_rate_limit(
            Problem(activation="tanh", teacher=teacher, width=1, dimension=50, initial_weights=weights)
        )
        for teacher, weights in (
            (Teacher([0.8, 0.5]), start),
            (Teacher([0.8, 0.5], directions=turn[:2, :2]), start @ turn),
        )
    )
    assert turned == pytest.approx(plain, rel=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["erf", "tanh"])
def test_saturating_links_leave_the_teacher_above_the_limit_without_blowing_up(link):
    """The noise floor of one sample per step: below 3 % of E f*² at 0.7 times the limit, above 8 % at 1.5 times."""
    problem = Problem(activation=link, teacher=Teacher([0.857, 0.429, 0.286]), width=3, dimension=48)
    limit = dynamics.learning_rate_limit(problem)
    below, above = (ends_of_runs(problem, part * limit) for part in (0.7, 1.5))
    assert below.max() < 0.03
    assert np.nanmin(above) > 0.08


@pytest.mark.parametrize(
    ("link", "degree"), [("relu", 1.0), ("Abs(z)", 1.0), ("z**2", 2.0), ("erf", None), ("he2", None)]
)
def test_powers_are_told_from_other_links(link, degree):
    assert degree_of(hermite.expand(link)) == degree


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"width": 1}, "must have an orthonormal teacher, and at least as many neurons as directions or a link with c_1 = 0"),
        ({"teacher": Teacher([0.8, 0.6], directions=OBLIQUE)}, "must have an orthonormal teacher, and"),
    ],
)  # fmt: skip
def test_problems_without_a_limit_are_refused(given, sentence):
    inputs = dynamics.Inputs([2.0, 1.0], [3, 5])
    usual = {"activation": "erf", "teacher": Teacher([1.0, 0.5]), "width": 2, "dimension": 8, "inputs": inputs}
    arguments = usual | given
    with pytest.raises(ValueError, match=re.escape(sentence)):
        dynamics.learning_rate_limit(Problem(**arguments))


def test_a_committee_at_its_teacher_has_the_limit_of_the_formula_as_a_network():
    """From its teacher the flow does not move; the rest is 1/d, as two axes are not sampled."""
    given = {"activation": "erf", "teacher": Teacher([1.0, 1.0]), "width": 2, "dimension": 400, "student": "committee"}
    problem = Problem(**given, initial_weights=np.eye(2, 400))
    reached, _ = network_limit(problem, 4)
    assert reached == pytest.approx(dynamics.learning_rate_limit(problem, batch_size=4), rel=0.03)


def reached_weights(problem):
    """Return v, b and W (6, 64) of the state that the flow reaches."""
    v, b, M, Q = reached_state(problem)
    rest, axes = np.linalg.eigh(Q - M @ M.T)
    weights = np.zeros((6, 64))
    weights[:, :3], weights[:, 3:9] = M, axes * np.sqrt(np.maximum(rest, 0.0))
    return v, b, weights


NETWORKS = {
    "second layer and biases, power law": (dynamics.Student(activation="erf", width=6, biases="trained", rates=(1.0, 0.5, 2.0)), dynamics.Inputs.power_law(0.5)),
    "first layer": (dynamics.Student(activation="erf", width=6, second_layer="fixed"), None),
    "mean field": (dynamics.Student(activation="erf", width=6, scale="1/m", rates="mean-field"), None),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("student", "inputs"), NETWORKS.values(), ids=NETWORKS)
def test_deviations_of_a_network_grow_above_its_limit_and_not_below(student, inputs):
    """Deviations δ ← δ − η ψ (ψ·δ) in R^d, 40 chains of 3000 steps: the limit is that of single chains, too."""
    teacher = Teacher([0.8, 0.5, 0.3], links=["erf"] * 3)
    problem = Problem(student=student, teacher=teacher, dimension=64, inputs=inputs)
    root = 1.0 if inputs is None else np.sqrt(problem.input_axes().eigenvalues)
    limit, _ = network_limit(problem, 1)
    v, b, weights = reached_weights(problem)
    roots, scale, rng = np.sqrt(student.learning_rates), student.output_scale, np.random.default_rng(2)
    sizes = {}
    for part in (0.7, 1.5):
        deviation = rng.standard_normal((40, 6, 66))
        for _ in range(3000):
            x = rng.standard_normal((40, 64))
            z = x @ weights.T + b
            slope = scale * v * student.activation.derivative(z)
            others = np.stack([roots[1] * scale * student.activation.value(z), roots[2] * slope], axis=2)
            psi = np.concatenate([roots[0] * slope[:, :, None] * (root * x)[:, None], others], axis=2)
            deviation -= part * limit * np.sum(psi * deviation, axis=(1, 2))[:, None, None] * psi
        sizes[part] = np.linalg.norm(deviation, axis=(1, 2))
    assert sizes[0.7].max() < 100.0
    assert sizes[1.5].min() > 1e6


def test_runs_of_a_network_with_a_fixed_second_layer_stay_below_the_limit_alone():
    """20 runs of 4000 steps from the state that the flow reaches, label noise 0.05, seeds fixed."""
    teacher = Teacher([0.8, 0.5, 0.3], links=["relu"] * 3)
    student = dynamics.Student(activation="relu", width=6, second_layer="fixed")
    problem = Problem(student=student, teacher=teacher, dimension=64)
    limit, _ = network_limit(problem, 1)
    v, _, start = reached_weights(problem)
    asked = replace(problem, student=replace(student, initial_second_layer=v), initial_weights=start, label_noise=0.05)
    a = teacher.coefficients
    square = 0.5 * a @ a + (np.sum(a) ** 2 - a @ a) / (2.0 * np.pi)
    stay = []
    for part in (0.7, 1.5):
        runs = sgd_check.simulate(asked, learning_rate=part * limit, steps=4000, seeds=20, progress=False)
        stay.append(int(np.sum(runs.loss.values[:, -1] < 0.5 * square)))
    assert stay[0] == 20
    assert stay[1] <= 2


def test_the_limit_of_a_network_does_not_know_the_objective_correlation():
    problem = Problem(
        activation="he3", teacher=Teacher([1.0]), width=1, dimension=16, student="spherical", objective="correlation"
    )
    with pytest.raises(ValueError, match="`objective`"):
        network_limit(problem, 1)


@pytest.mark.parametrize("student", ["network", "narrow"])
def test_a_share_of_the_limit_does_not_depend_on_the_rounding_of_a_process(student, monkeypatch):
    """Processes that compile and that load functions end the flow 1e-9 apart: both have the same rate, to the bit."""
    from dynamics.theory import stability
    from dynamics.theory.learning_rates import resolved_rate

    if student == "network":
        asked = dynamics.Student(activation="erf", width=2, second_layer="fixed", scale="1/m", rates="mean-field")
        problem = dynamics.Problem(student=asked, teacher=dynamics.Teacher([1.0, -0.6]), dimension=12, seed=1)
    else:
        problem = dynamics.Problem(activation="tanh", teacher=dynamics.Teacher([1.0, 0.6]), width=1, dimension=12)
    end, rates = stability._end_of_flow, []
    for change in (0.0, 1e-9, -1e-9):
        monkeypatch.setattr(stability, "_end_of_flow", lambda *asked: end(*asked) * (1.0 + change))  # noqa: B023
        rates.append(resolved_rate(problem, "0.1x"))
    assert rates[0] == rates[1] == rates[2]
    assert rates[0] == pytest.approx(0.1 * float(f"{10.0 * rates[0]:.4g}"), rel=1e-12)
