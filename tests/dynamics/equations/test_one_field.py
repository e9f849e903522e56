"""The field of the overlap flow stands in several places for speed: here all of them are held against each other."""

import numpy as np
import pytest
import torch
import weight_space
from from_python import from_python
from overlap_equations import across, overlap_rates
from shared_links import MIXED

import dynamics
from dynamics.equations.field import SCRATCH, SingleUnitField
from dynamics.equations.finite_step import FiniteStepSystem, exact_moments
from dynamics.equations.link import link_data
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.spherical import SphericalSystem
from dynamics.equations.vectors import VectorSystem, overlap_state, teacher_rows, unit_vectors
from dynamics.integrators.descent import DescentStepper
from dynamics.integrators.large_flow import LargeFlowStepper
from dynamics.integrators.large_flow.device import TorchFlowStepper
from dynamics.integrators.large_flow.division import LINK
from dynamics.integrators.large_flow.step_kernels import add_teacher, force_of_sources
from dynamics.integrators.system_calls import BoundSystem
from dynamics.threads import Workers

pytestmark = pytest.mark.kernels

M, D_IN = 6, 9
TILTED = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])
TEACHERS = {
    "orthonormal": dynamics.Teacher.power_law(3, beta=1.0),
    "tilted": dynamics.Teacher([1.0, 0.5, 0.3], directions=TILTED),
}


class Start:
    """A problem with a random start, two of whose neurons are near each other."""

    def __init__(self, name, rng):
        self.teacher = TEACHERS[name]
        weights = rng.standard_normal((M, D_IN))
        weights[3] = weights[2] + 0.5 * weights[3]
        weights *= np.exp(0.5 * rng.standard_normal(M))[:, None] / 3.0
        self.weights = weights
        self.problem = dynamics.Problem(
            activation=MIXED, teacher=self.teacher, width=M, dimension=D_IN, initial_weights=weights
        )
        self.U, self.log_norm = unit_vectors(self.problem)
        self.n, self.a = np.exp(self.log_norm), np.array(self.teacher.coefficients)
        self.rows = teacher_rows(self.problem, self.U.shape[1])

    def overlaps(self):
        return overlap_state(self.U, self.log_norm, self.rows, self.a.size)

    def of_field(self, F, growth):
        """Rates of the overlaps for a field and growth of unit vectors; any part of F along u_i is left out."""
        return self.of_velocities(across(F, self.U), 4.0 * growth)

    def of_velocities(self, velocity, rates):
        dC = velocity @ self.rows.T if self.rows.size > 0 else velocity[:, : self.a.size]
        product = velocity @ self.U.T
        return np.concatenate([dC.ravel(), (product + product.T).ravel(), rates])

    def empty(self):
        return np.full_like(self.U, np.nan), np.full(M, np.nan)


def right_hand_side(system, y=None):
    y = system.initial_state if y is None else y
    out = np.full(y.size, np.nan)
    BoundSystem(system, np.full(system.work_size, np.nan)).rhs(0.0, y, out)
    return out


def by_automatic_differentiation(start):
    w = torch.tensor(start.weights, requires_grad=True)
    (gradient,) = torch.autograd.grad(0.5 * weight_space.population_loss(w, start.problem), w)
    velocity, weights, span = -gradient.numpy(), start.weights, start.teacher.span
    length = np.linalg.norm(weights, axis=1)
    units = weights / length[:, None]
    growth = 2.0 * np.sum(velocity * units, axis=1) / length
    turn = velocity / length[:, None] - 0.5 * growth[:, None] * units
    rows = np.eye(span) if start.teacher.directions is None else start.teacher.directions
    product = turn @ units.T
    return np.concatenate([(turn[:, :span] @ rows.T).ravel(), (product + product.T).ravel(), growth])


def by_overlaps(start):
    return right_hand_side(OverlapSystem(start.problem))


def by_unit_vectors(start):
    system = VectorSystem(start.problem)
    return system.overlap_rates(system.initial_state, right_hand_side(system))


def by_two_passes(start):
    F, growth = start.empty()
    DescentStepper(start.problem, 1.0)._unit_field.write(start.U, start.n, F, growth)
    return start.of_field(F, growth)


def by_two_passes_in_single_precision(start):
    F, growth = start.empty()
    field = SingleUnitField(link_data(start.problem), Workers(*start.U.shape, 1), start.a, *start.U.shape)
    field.write(start.U, start.n, F, growth)
    return start.of_field(F, growth)


def by_gradient_descent(start):
    """A step η = 1 goes to n |v|² and v/|v| with v = u + F − (F·u) u + 2 growth u."""
    stepper = DescentStepper(start.problem, 1.0)
    stepper.derivative(0.0)
    length = np.sqrt(stepper._norms[1] / start.n)
    step = length[:, None] * stepper._units[1] - start.U
    return start.of_field(step, 0.5 * np.sum(step * start.U, axis=1))


def by_the_large_flow(start):
    return LargeFlowStepper(start.problem, rtol=1e-8, atol=1e-10).derivative(0.0)


def by_fast_sources(start):
    """Where every neuron is a fast source, no part of the field lags."""
    stepper = LargeFlowStepper(start.problem, rtol=1e-8, atol=1e-10)
    division = stepper._divider.assemble(np.full(M, True), np.full(M, -1), np.ones(M))
    stepper.rows.fit(division)
    F, growth = start.empty()
    stepper.rows.partial(stepper._now, F, growth)
    return start.of_field(F, growth)


def by_a_cluster_and_its_rest(start):
    """The part of clusters and the rest that is extrapolated are the field together."""
    stepper = LargeFlowStepper(start.problem, rtol=1e-8, atol=1e-10)
    division = stepper._divider.assemble(np.arange(M) == 1, np.where(np.arange(M) > 3, 2, -1), np.ones(M))
    stepper.rows.fit(division)
    rests, slot = stepper._rests, int(stepper._rests.newest_first[0])
    rests.subtract(slot, stepper.rows.partial)
    F, growth = start.empty()
    stepper.rows.partial(stepper._now, F, growth)
    return start.of_field(F + rests.rest[slot], growth + rests.rest_growth[slot])


def by_sources_of_other_rows(start):
    """Rows that are no sources, though these are the same vectors."""
    F, growth = start.empty()
    stepper = LargeFlowStepper(start.problem, rtol=1e-8, atol=1e-10)
    plan = stepper._divider.assemble(np.full(M, True), np.full(M, -1), np.ones(M)).plan
    overlap, scratch = np.empty(M * M), np.empty(SCRATCH)
    from_python(force_of_sources)(-1, start.U, start.U, start.n, overlap, F, growth, scratch, plan)
    for i in range(M):
        growth[i] += from_python(add_teacher)(plan[LINK], start.U[i], -1, plan[2], F[i], scratch)[0]
    return start.of_field(F, growth)


def by_torch(start):
    return TorchFlowStepper(start.problem, rtol=1e-8, atol=1e-10, device="cpu").derivative(0.0)


def by_a_vanishing_step(start):
    return right_hand_side(FiniteStepSystem(start.problem, 1e-30, "finite-d"))


def by_the_mean_step(start):
    """The moments of one step to first order: R' = teacher_first, S' = student_first."""
    C, G, n = OverlapSystem(start.problem).unpack(start.overlaps())
    length, teacher = np.sqrt(n), (start.a, start.teacher.gram(), 0.0)
    R, S = C * length[:, None], G * np.outer(length, length)
    moments = exact_moments(start.problem.activation.coefficients, R, S, teacher)
    growth = np.diag(moments.student_first) / n
    dC = moments.teacher_first / length[:, None] - 0.5 * growth[:, None] * C
    dG = moments.student_first / np.outer(length, length) - 0.5 * (growth[:, None] + growth) * G
    return np.concatenate([dC.ravel(), dG.ravel(), growth])


SINGLE = {by_two_passes_in_single_precision}
EVERYWHERE = [by_automatic_differentiation, by_overlaps, by_unit_vectors, by_two_passes, by_gradient_descent]
EVERYWHERE += [by_a_vanishing_step, by_the_mean_step]
AXES_ALONE = [by_two_passes_in_single_precision, by_the_large_flow, by_fast_sources, by_a_cluster_and_its_rest]
AXES_ALONE += [by_sources_of_other_rows, by_torch]
CASES = [("orthonormal", field) for field in EVERYWHERE + AXES_ALONE] + [("tilted", field) for field in EVERYWHERE]


@pytest.mark.parametrize(
    ("teacher", "field"),
    [
        pytest.param(
            *case,
            marks=[pytest.mark.slow_to_compile]
            * (case[1] in (by_two_passes_in_single_precision, by_a_vanishing_step, by_sources_of_other_rows)),
        )
        for case in CASES
    ],
    ids=[f"{field.__name__}, {name}" for name, field in CASES],
)
def test_every_field_is_that_of_the_equations(teacher, field, rng):
    """Measured 2e-15 and, in single precision, 6e-8 of the largest rate."""
    start = Start(teacher, rng)
    expected = overlap_rates(start.problem, start.overlaps())
    scale = np.abs(expected).max()
    np.testing.assert_allclose(field(start), expected, rtol=0, atol=(1e-6 if field in SINGLE else 1e-12) * scale)


@pytest.mark.parametrize("teacher", list(TEACHERS))
def test_the_spherical_network_has_that_of_equal_norms(teacher, rng):
    """Neurons of squared norm 1/m turn as those of the spherical network, whose norms stay."""
    start = Start(teacher, rng)
    system = SphericalSystem(
        dynamics.Problem(
            activation=start.problem.activation, teacher=start.teacher, width=M, dimension=D_IN, student="spherical",
            initial_weights=start.weights / np.linalg.norm(start.weights, axis=1)[:, None],
        ),
        (),
    )  # fmt: skip
    expected = overlap_rates(start.problem, overlap_state(start.U, np.full(M, -np.log(M)), start.rows, start.a.size))
    found = start.of_velocities(right_hand_side(system).reshape(start.U.shape), expected[-M:])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
