"""The noise of a step of two-layer networks: numbers in R^d, quadrature over x, sums of polynomials of one projection."""

import math

import numpy as np
import pytest
from gaussian_rules import broken, exact_to, grid_of, smooth

import dynamics
import hermite
from dynamics.equations.network.steps import (
    ridge_units,
    step_source,
    step_units,
    write_erf_second,
    write_polynomial_second,
)

POLYNOMIAL = {0: 0.2, 1: 0.5, 2: -0.3, 3: 0.4}
pytestmark = pytest.mark.slow_to_compile
BOTH = pytest.mark.parametrize("exact", [False, True], ids=["infinite-d", "finite-d"])


class Case:
    """Neurons f(x) = Σ_i w_i σ(w_i·x + b_i) in R^d and a teacher on its first axes."""

    def __init__(self, link, teacher, W, b, weight, *, noise=0.3):
        m, d = W.shape
        student = dynamics.Student(activation=link, width=m, biases="fixed", initial_biases=np.array(b))
        self.problem = dynamics.Problem(student=student, teacher=teacher, dimension=d, initial_weights=W)
        self.W, self.b, self.weight, self.noise = np.array(W), np.array(b), np.array(weight), noise

    def second(self, *, exact):
        """E[(ē² + τ²) σ'_i σ'_j |x|²], or its part of order d at d = 1, by the kernels; scratch holds nothing at first."""
        units = step_units(self.problem)
        m, d = self.W.shape
        source = step_source(self.problem.activation, m, units, biased=bool(self.b.any()))
        rows = np.zeros((len(units), d))
        rows[:, : self.problem.teacher.span] = [unit.direction for unit in units]
        vectors = np.vstack([self.W, rows])
        bias = np.concatenate([self.b, [unit.bias for unit in units]])
        weight = np.concatenate([self.weight, [-unit.coefficient for unit in units]])
        write = write_polynomial_second if source.is_polynomial else write_erf_second
        out, work = np.full((m, m), np.nan), np.full(source.work_size, np.nan)
        given = ((vectors @ vectors.T, bias, weight), self.noise, float(d) if exact else 1.0, exact, m)
        write(*given, source.numbers, source.layout, work, out)
        return out

    def by_quadrature(self, *grids, exact):
        """The same in R^d on a grid, which has d axes."""
        x, measure = grid_of(grids)
        link, teacher = self.problem.activation, self.problem.teacher
        at = x @ self.W.T + self.b
        error = link.value(at) @ self.weight - target(teacher, x)
        square = np.sum(x**2, axis=1) if exact else 1.0
        slopes = link.derivative(at)
        terms = (measure * (error**2 + self.noise) * square)[:, None, None] * slopes[:, :, None] * slopes[:, None]
        # Along the last axis numpy sums by halves, which rounds least.
        return np.ascontiguousarray(terms.transpose(1, 2, 0)).sum(axis=2)


def target(teacher, x):
    if teacher.is_polynomial:
        return teacher.target.value(x[:, : teacher.span])
    units = teacher.units(hermite.expand("erf"))
    return sum(a * link.value(x[:, : theta.size] @ theta + beta) for a, link, theta, beta in units)


def plane_case(link, teacher, **changes):
    W = np.array([[0.7, -0.4], [0.5, 0.6]])
    given = {"W": W, "b": (0.3, -0.2), "weight": (0.6, -0.4)} | changes
    return Case(link, teacher, **given)


def assert_same(found, wanted, tolerance):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


THRESHOLDS = {
    "relu on one axis": (["relu", "relu"], [[1.0, 0.0], [-1.0, 0.0]], [0.3, 0.5]),
    "sign and step on one axis": (["sign", "step"], [[1.0, 0.0], [-1.0, 0.0]], [0.3, 0.5]),
    "relu and sign": (["relu", "sign", "erf"], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.3, -0.4, 0.2]),
    "sign and relu": (["sign", "relu", {2: 0.5, 3: 0.4}], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.0, 0.4, -0.3]),
    "steps": (["step", "sign", "relu"], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0.3, -0.4, 0.3]),
    "no biases": (["relu", "sign", "erf"], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], None),
}


@pytest.mark.parametrize(("links", "directions", "biases"), THRESHOLDS.values(), ids=THRESHOLDS)
@BOTH
def test_teachers_with_thresholds_equal_quadrature(links, directions, biases, exact):
    teacher = dynamics.Teacher([0.9, -0.7, 0.5][: len(links)], directions=directions, links=links, biases=biases)
    case = plane_case("erf", teacher, b=(0.0, 0.0) if biases is None else (0.3, -0.2))
    places: list[list[float]] = [[], []]
    for row, bias, link in zip(directions, np.zeros(3) if biases is None else biases, links, strict=False):
        if link in ("relu", "sign", "step"):
            places[int(row[0] == 0.0)].append(-bias * (row[0] + row[1]))
    wanted = case.by_quadrature(*(broken(*axis) for axis in places), exact=exact)
    # Measured: 3e-15.
    assert_same(case.second(exact=exact), wanted, 1e-13)


@pytest.mark.parametrize("text", ["x1**2 - 0.4*x2", "0.5 + x1*x2", "h3(x1) - 0.3*h2(x1)*x2 + 1", "x1**4*x2**2"])
@BOTH
def test_erf_neurons_with_polynomial_teachers_equal_quadrature(text, exact):
    case = plane_case("erf", dynamics.Teacher.polynomial(text))
    # Measured: 9e-15 at degree 6.
    assert_same(case.second(exact=exact), case.by_quadrature(smooth(), smooth(), exact=exact), 5e-14)


@pytest.mark.parametrize("link", ["he2", "he3", POLYNOMIAL], ids=str)
@pytest.mark.parametrize(
    "teacher",
    [
        dynamics.Teacher.polynomial("x1 + x1*x2"),
        dynamics.Teacher([1.0, -0.6], directions=[[1.0, 0.0], [0.6, 0.8]], links=["he3", {1: 0.5, 2: 0.3}], biases=[0.2, 0]),
        dynamics.Teacher([1.0], directions=[[0.6, 0.8]], links=["he4"]),
        dynamics.Teacher([1.0], directions=[[0.6, 0.8]], links=["he3"], biases=[0.4]),
    ],
    ids=["polynomial", "units", "one unit", "one bias"],
)  # fmt: skip
@pytest.mark.parametrize("b", [(0.3, -0.2), (0.0, 0.0)], ids=["biases", "no biases"])
@BOTH
def test_polynomial_neurons_equal_quadrature(link, teacher, b, exact):
    case = plane_case(link, teacher, b=b)
    # Measured: 4e-15.
    assert_same(case.second(exact=exact), case.by_quadrature(exact_to(20), exact_to(20), exact=exact), 1e-13)


def test_a_neuron_of_large_norm_equals_quadrature():
    """|w| = 6, where the changed measure is narrow."""
    teacher = dynamics.Teacher([0.9, -0.7], links=["relu", "sign"])
    case = plane_case("erf", teacher, W=np.array([[6.0, 0.0], [0.5, 0.6]]))
    fine = np.concatenate([np.linspace(-1.0, 1.0, 12), [0.0]])
    wanted = case.by_quadrature(broken(*fine), broken(0.0), exact=True)
    assert_same(case.second(exact=True), wanted, 1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "x1",
        "x1*x2",
        "2 + x1**2*x3 - 3*x2*x3",
        "x1*x2*x3*x4",
        "h4(x1)*h3(x2) + x1**7",
        "h2(x1)*h2(x2)*h2(x3)",
        "6*x1**2*x2**2 + x1**4",
        "(x1 + x2)**4",
    ],
)
def test_a_polynomial_is_the_sum_of_its_ridges(text):
    teacher = dynamics.Teacher.polynomial(text)
    x = np.random.default_rng(0).standard_normal((50, teacher.span))
    total = np.zeros(50)
    for coefficient, link, direction, bias in ridge_units(teacher.target.exponents, teacher.target.powers):
        assert (coefficient, bias) == (1.0, 0.0)
        assert np.linalg.norm(direction) == pytest.approx(1.0, abs=1e-15)
        means = np.array(link.numbers)
        series = means / np.sqrt([float(math.factorial(k)) for k in range(means.size)])
        total += hermite.expand(dict(enumerate(series))).value(x @ direction)
    np.testing.assert_allclose(total, teacher.target.value(x), rtol=1e-12, atol=1e-11)


REFUSED = {
    "relu": ("relu", ["erf"], "neurons of relu: it is known for 'erf' and polynomials"),
    "tanh": ("tanh", ["erf"], "neurons of tanh: it is known for 'erf' and polynomials"),
    "teacher": ("erf", ["gelu"], "neurons of erf and a teacher of gelu: it is known for a teacher of 'erf', 'relu', 'step', 'sign' and polynomials"),
    "mixed": ("he3", ["erf"], "neurons of he3 and a teacher of erf: it is known for a teacher of polynomials"),
    "degree": ("he13", ["he2"], "polynomials of degree 13: it is known up to 12"),
}  # fmt: skip


@pytest.mark.parametrize(("link", "links", "words"), REFUSED.values(), ids=REFUSED)
def test_other_links_are_refused_by_name(link, links, words):
    case = plane_case(link, dynamics.Teacher([1.0], directions=[[0.6, 0.8]], links=links))
    with pytest.raises(ValueError, match="Argument `problem`") as caught:
        case.second(exact=True)
    assert str(caught.value) == (
        "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has "
        f"{words}; `sgd_check.simulate` takes such steps."
    )
