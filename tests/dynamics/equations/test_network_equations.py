"""The equations of networks, against gradients that torch takes in weight space, and differences of themselves."""

import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_calls import Kernels
from network_reference import as_expansion, is_smooth, rates_of_state, space, velocities
from numba import config

import dynamics
import hermite
from dynamics.equations.network.system import NetworkSystem

pytestmark = pytest.mark.kernels


FULL = "FULL_TESTS" in os.environ


def examples(count):
    """How many networks are drawn: four with the compiler off, where the lines are counted."""
    return 4 if config.DISABLE_JIT else count if FULL else 6


CUBIC = {0: 0.1, 1: 0.5, 2: -0.3, 3: 0.2}
QUADRATIC = {1: 0.7, 2: 0.4}
#: Links of the units that a student is drawn with; the first is its own.
UNITS = {
    "erf": ("erf", "relu", "sign", "step"),
    "relu": ("relu", "erf", "sign", "step"),
    "cubic": (CUBIC, QUADRATIC),
    "tanh": ("tanh", "erf"),
}
#: Every pair of a student's kernels and a teacher's: link, teacher, whether with biases.
CASES = [
    *((name, kind, True) for name in ("erf", "relu", "cubic") for kind in ("units", "polynomial")),
    ("erf", "units", False),
    ("relu", "units", False),
    ("tanh", "units", True),
]
#: Systems that other tests compile too.
COMPILED = [("erf", "polynomial", True), ("relu", "units", False)]


def cases(among=CASES):
    """Cases with the compiler off, but for some."""
    marks = [pytest.mark.longer, pytest.mark.slow_to_compile]
    return [pytest.param(case, marks=marks[: 1 + (case not in COMPILED)], id=str(case)) for case in among]


POLYNOMIALS = ("x1 + x1*x2", "x1*x2 - 0.5*x2^2 + 0.3", "h3(x1) - 0.7*x1*x2^2")


def number(low, high):
    return st.floats(low, high, allow_nan=False)


@st.composite
def networks(draw, case):
    """Draw a problem, its student's link and those of the teacher's units."""
    name, kind, biased = case
    link = CUBIC if name == "cubic" else name
    m, sphere = draw(st.integers(1, 3)), draw(st.booleans())
    # The tables of tanh are made once for each set of fixed biases.
    biases = draw(st.sampled_from(("trained",) if name == "tanh" else ("fixed", "trained"))) if biased else "none"
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    settings_of_student = {
        "second_layer": draw(st.sampled_from(("trained", "fixed"))),
        "initial_second_layer": rng.uniform(-1.2, 1.2, m),
        "first_layer": "sphere" if sphere else "free",
        "scale": draw(st.sampled_from((1.0, 0.6, "1/m", "1/sqrt(m)"))),
        "rates": tuple(draw(number(0.1, 3.0)) for _ in range(3)),
        "decay": tuple(draw(number(0.0, 0.5)) for _ in range(2)),
        "biases": biases,
    }
    if biases != "none":
        settings_of_student["initial_biases"] = rng.uniform(-0.8, 0.8, m)
    student = dynamics.Student(activation=as_expansion(link), width=m, **settings_of_student)
    weights = rng.standard_normal((m, 3))
    weights *= rng.uniform(0.3, 1.1, (m, 1)) / np.linalg.norm(weights, axis=1, keepdims=True)
    units = ()
    if kind == "polynomial":
        teacher = dynamics.Teacher.polynomial(draw(st.sampled_from(POLYNOMIALS)))
    else:
        units = draw(st.sampled_from((UNITS[name], UNITS[name][::-1], UNITS[name][:1])))
        count = len(units)
        rows = rng.standard_normal((count, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        with_biases = draw(st.booleans()) and name != "tanh"
        given_biases = rng.uniform(-0.6, 0.6, count) if with_biases else None
        coefficients = rng.uniform(0.3, 1.2, count) * rng.choice([-1.0, 1.0], count)
        teacher = dynamics.Teacher(
            coefficients, directions=rows, links=[as_expansion(each) for each in units], biases=given_biases
        )
        overlap = np.abs(weights[:, :2] @ rows.T) / np.linalg.norm(weights, axis=1, keepdims=True)
        assume(overlap.max() < 0.9)
    gram = weights @ weights.T / np.outer(*2 * [np.linalg.norm(weights, axis=1)])
    assume(np.abs(gram - np.eye(m)).max() < 0.9)
    problem = dynamics.Problem(student=student, teacher=teacher, dimension=3, initial_weights=weights)
    return problem, link, units


def assert_same(found, wanted, tolerance):
    scale = max(np.abs(part).max() for part in wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("case", cases())
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_the_flow_is_that_of_gradients_in_weight_space(case, data):
    problem, link, units = data.draw(networks(case))
    kernels = Kernels(NetworkSystem(problem))
    wanted, loss = rates_of_state(problem, link, units)
    # Measured: 3e-12 at most where the reference's nodes leave out nothing.
    assert_same(kernels.system.unpack(kernels.rhs()), wanted, 1e-9)
    if is_smooth(link, units):
        assert kernels.system.loss(kernels.state) == pytest.approx(loss, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("case", cases([case for case in CASES if case[0] == "relu"]))
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_the_loss_changes_by_what_all_gradients_move(case, data):
    """The loss that is observed belongs to the flow: d loss/dt = 2 Σ ∇·move, −2 Σ ε |∇|² without decay."""
    problem, link, units = data.draw(networks(case))
    kernels = Kernels(NetworkSystem(problem))
    (dv, db, dW), _ = velocities(problem, link, units)
    student = problem.student
    start, h = kernels.state, 1e-4
    rate = kernels.rhs()
    losses = [kernels.system.loss(start + n * h * rate) for n in (-2, -1, 1, 2)]
    found = (losses[0] - 8.0 * losses[1] + 8.0 * losses[2] - losses[3]) / (12.0 * h)
    v, _, W = problem.network_start()
    rates, (decay_w, decay_v) = student.learning_rates, student.decay
    raw = [dW + decay_w * W * (student.first_layer == "free"), dv + decay_v * v, db]
    moves = [dW, dv, db]
    wanted = -2.0 * sum(
        np.sum(gradient * move) / rate for gradient, move, rate in zip(raw, moves, rates, strict=True) if rate > 0
    )
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-8)


def a_problem(activation="erf", m=3, teacher=None, dimension=3, **changes):
    rng = np.random.default_rng(5)
    given = {"initial_second_layer": rng.uniform(-1, 1, m), "biases": "trained", "initial_biases": rng.normal(size=m)}
    student = dynamics.Student(activation=activation, width=m, **(given | changes))
    weights = 0.6 * rng.standard_normal((m, 3))
    teacher = teacher or dynamics.Teacher.polynomial("x1 + 0.5*x1*x2")
    return dynamics.Problem(student=student, teacher=teacher, dimension=dimension, initial_weights=weights)


@pytest.mark.slow_to_compile
@pytest.mark.parametrize("first_layer", ["free", "sphere"])
def test_the_diagonal_is_that_of_the_jacobian_where_nothing_else_moves(first_layer):
    """It holds the forces, so that it is exact in v, and in M and Q for a neuron whose forces are those of others."""
    kernels = Kernels(NetworkSystem(a_problem(first_layer=first_layer)), "bdf")
    m = kernels.system.problem.width
    found, unit = kernels.diagonal(), np.eye(kernels.state.size)
    # Velocities of v are linear in it, so that differences of any length are exact.
    steps = np.where(np.arange(kernels.state.size) < m, 0.5, 1e-4)[:, None] * unit
    exact = [kernels.rhs(kernels.state + h) - kernels.rhs(kernels.state - h) for h in steps]
    exact = np.diag(exact) / (2.0 * np.diag(steps))
    np.testing.assert_allclose(found[:m], exact[:m], rtol=1e-12)
    assert np.corrcoef(found[2 * m :], exact[2 * m :])[0, 1] > 0.5


def test_components_and_sensitivity_are_means_over_x():
    problem = a_problem(teacher=dynamics.Teacher.polynomial("x1 + x1*x2 - h3(x2)"))
    system = NetworkSystem(problem)
    x, measure = (part.numpy() for part in space(3))
    v, b, W = problem.network_start()
    link = hermite.expand("erf")
    f, slope = link.value(x @ W.T + b) @ v, (link.derivative(x @ W.T + b) * v) @ W[:, :2]
    record = system.observe(system.initial_state)
    for component, found in zip(problem.teacher.components, record["component"], strict=True):
        basis = [hermite.expand({n: 1.0}).value(x[:, a]) if n else 1.0 for a, n in enumerate(component.degrees)]
        assert found == pytest.approx(measure @ (f * basis[0] * basis[1]), abs=1e-12)
    H = np.einsum("x,xa,xc->ac", measure, slope, slope)
    np.testing.assert_allclose(record["sensitivity"], np.linalg.eigvalsh(H)[::-1], atol=1e-12)
    target = problem.teacher.target.value(x[:, :2])
    assert system.teacher.square == pytest.approx(measure @ target**2, rel=1e-12)
    assert record["loss"] == pytest.approx(measure @ (f - target) ** 2, rel=1e-11)
    gradient = np.stack([1 + x[:, 1], x[:, 0] - np.sqrt(3.0) * (x[:, 1] ** 2 - 1) / np.sqrt(2.0)])
    wanted = np.linalg.eigvalsh((measure * gradient) @ gradient.T)[::-1]
    np.testing.assert_allclose(system.teacher_sensitivity(), wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("overlap", "bias"),
    [
        pytest.param(overlap, bias, marks=[pytest.mark.long] * (bias == 0.0 or abs(overlap) > 0.9))
        for overlap in (0.0, 0.3, -0.8, 0.9999, 1.0, -1.0)
        for bias in (0.4, 0.0)
    ],
)
def test_a_teacher_of_two_units_has_the_square_of_their_sum(overlap, bias):
    """For erf and relu the closed means of section 2, here by one integral over the angle's cosine (Price)."""
    from scipy.integrate import quad
    from scipy.special import ndtr

    from dynamics.equations.network.families import mean_of_product

    def joint(r):  # ∂²/∂b² of E of ramps: the joint density at the kinks
        return np.exp(-((bias * (1 - r)) ** 2 + (1 - r**2) * bias**2) / (2 * (1 - r**2))) / np.sqrt(1 - r**2)

    relu = hermite.expand("relu")
    mean, slopes = mean_of_product(relu, bias, relu, bias, overlap)
    wide, _ = quad(lambda angle: joint(np.sin(angle)) * np.cos(angle), 0.0, np.arcsin(overlap), epsabs=1e-14)
    assert slopes == pytest.approx(ndtr(bias) ** 2 + wide / (2 * np.pi), abs=1e-12)
    below, _ = quad(
        lambda c: mean_of_product(relu, bias, relu, bias, c)[1], 0.0, overlap, epsabs=1e-13, epsrel=1e-12, limit=200
    )
    ramp = bias * ndtr(bias) + np.exp(-0.5 * bias**2) / np.sqrt(2 * np.pi)
    assert mean == pytest.approx(ramp**2 + below, abs=1e-11)
