"""The flow on unit vectors: its kernels against numpy and complex steps, its stepper against the flow of the overlaps."""

import numpy as np
import pytest
from kernel_calls import Kernels
from numba import config
from overlap_equations import across, field

import dynamics
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.vectors import VectorSystem
from dynamics.integrators import Status, methods
from dynamics.integrators.methods import FlowMethod

pytestmark = pytest.mark.kernels

ROWS = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96], [0.0, 0.0, 1.0]])
TEACHERS = {
    "orthonormal": dynamics.Teacher.power_law(4, beta=1.0),
    # Four directions in three dimensions: the teacher's span is smaller than their number.
    "tilted": dynamics.Teacher([0.8, 0.6, 0.4, 0.3], directions=ROWS),
}


def problem(teacher="orthonormal", **options):
    settings = {"activation": {0: 0.2, 3: 0.7, 4: 0.6}, "width": 5, "dimension": 32, "initial_norm": 0.7, "seed": 3}
    return dynamics.Problem(teacher=TEACHERS[teacher], **settings | options)


@pytest.fixture(scope="module", params=list(TEACHERS))
def kernels(request):
    return Kernels(VectorSystem(problem(request.param)), "bdf")


def moved(kernels, rng):
    """A state off the sphere, where the kernels are still defined."""
    y = kernels.system.initial_state
    return y + 0.1 * rng.standard_normal(y.size)


def written_equation(system, y):
    """The equation as it is written, for complex states too; a neuron's own force is that of a unit vector."""
    a = system.problem.teacher.coefficients
    U, log_norm = system.unpack(y)
    theta = system.teacher if system.teacher.size > 0 else np.eye(a.size, system.shape[1])
    F, growth = field(system.problem.activation, a, theta, U, np.exp(log_norm))
    return system.pack(across(F, U), 4.0 * growth)


def test_jacobian_product_is_the_complex_step_derivative_of_the_written_equation(kernels, rng):
    y, v = moved(kernels, rng), rng.standard_normal(kernels.system.initial_state.size)
    expected = written_equation(kernels.system, y + 1e-30j * v).imag / 1e-30
    np.testing.assert_allclose(kernels.product(y, v), expected, rtol=1e-11, atol=1e-13)


def test_jacobian_diagonal_is_exact_for_neurons_on_an_axis(kernels, rng):
    """Where every u_i is an axis, H u is H_kk u_k in that component, and nothing is left out in the others."""
    system = kernels.system
    m, D = system.shape
    y = system.pack(np.eye(D)[rng.integers(D, size=m)], 0.3 * rng.standard_normal(m))
    exact = np.array([written_equation(system, y + 1e-30j * e).imag[k] / 1e-30 for k, e in enumerate(np.eye(y.size))])
    np.testing.assert_allclose(kernels.diagonal(y), exact, rtol=1e-12, atol=1e-13)


def test_normalise_gives_unit_vectors_and_leaves_norms(kernels, rng):
    y = moved(kernels, rng)
    U, log_norm = kernels.system.unpack(kernels.normalised(y))
    before, _ = kernels.system.unpack(y)
    np.testing.assert_allclose(U, before / np.linalg.norm(before, axis=1)[:, None], rtol=1e-14)
    np.testing.assert_array_equal(log_norm, y[U.size :])


@pytest.mark.parametrize(
    "asked",
    [problem(), problem("tilted"), problem("tilted", dimension=4), problem(activation="he2", width=9, dimension=6)],
    ids=["orthonormal", "tilted", "tilted, four dimensions", "h2, more neurons than dimensions"],
)
def test_flow_is_that_of_the_overlaps(asked):
    """Against the pair of order 8 on C and G: states, rates, events; measured 8e-10, 2e-9, 2e-9."""
    system = OverlapSystem(asked)
    vectors, overlaps = (FlowMethod(system, method, 1e-10).stepper(1e-8) for method in ("bdf", "explicit"))
    for t in (0.0, 0.3, 2.0, 8.0):
        for stepper in (vectors, overlaps):
            assert stepper.advance(t, 10**5) is Status.REACHED
        np.testing.assert_allclose(vectors.interpolate(t), overlaps.interpolate(t), rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(vectors.derivative(t), overlaps.derivative(t), rtol=1e-6, atol=1e-7)
    assert np.isfinite(overlaps.event_times).any()
    np.testing.assert_allclose(vectors.event_times, overlaps.event_times, rtol=1e-7)


LOW_EXPONENTS = {
    "relu": {"activation": "relu", "order": 40, "width": 16, "teacher": dynamics.Teacher.power_law(16, beta=1.0)},
    "h2 and h4": {"activation": "0.3*h2(z)+h4(z)", "width": 16, "teacher": dynamics.Teacher.power_law(16, beta=1.0)},
    # Overlaps decay to 1e-18 beside learned directions, and decide which ones are learned when they grow again.
    "h2 and h4, tiny start": {"activation": "0.3*h2(z)+h4(z)", "width": 16, "teacher": dynamics.Teacher.power_law(8, beta=1.0), "initial_norm": 1e-6},
}  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(config.DISABLE_JIT, reason="flows of so many steps need compiled kernels")
@pytest.mark.filterwarnings("ignore:The flow sees relu through its Hermite series")
@pytest.mark.parametrize("name", LOW_EXPONENTS)
def test_small_components_cost_no_steps_and_no_accuracy(name, monkeypatch):
    """Steps are 0.66, 0.71 and 0.86 of those with every component held to its own size; errors at most 4.1 rtol."""
    asked, rtol = dynamics.Problem(dimension=256, seed=0, **LOW_EXPONENTS[name]), 1e-6

    def solved(method, rtol, atol=1e-10):
        options = {"method": method, "rtol": rtol, "atol": atol}
        return dynamics.solve_overlaps(asked, error_estimate=False, progress=False, **options)

    exact, flow = solved("explicit", 1e-10, 1e-13), solved("bdf", rtol)
    assert np.isfinite(exact.emergence_time).sum() >= 6
    np.testing.assert_allclose(flow.loss, exact.loss, rtol=0, atol=10 * rtol)
    for event in ("emergence_time", "learned_time"):
        np.testing.assert_allclose(flow[event], exact[event], rtol=10 * rtol)
    monkeypatch.setattr(methods, "SMALLEST_SIZE", 0.0)
    assert flow.attrs["steps_accepted"] < 0.95 * solved("bdf", rtol).attrs["steps_accepted"]


@pytest.mark.skipif(config.DISABLE_JIT, reason="flows of so many steps need compiled kernels")
@pytest.mark.filterwarnings("ignore:The flow sees relu through its Hermite series")
@pytest.mark.long
def test_what_the_linear_solver_leaves_does_not_set_the_step():
    """1880 steps; 3190 where it may be five times as large."""
    teacher = dynamics.Teacher.power_law(32, beta=1.0)
    asked = dynamics.Problem(activation="relu", order=40, teacher=teacher, width=32, dimension=256, seed=0)
    flow = dynamics.solve_overlaps(asked, method="bdf", rtol=1e-6, error_estimate=False, progress=False)
    assert flow.attrs["steps_accepted"] < 2500
