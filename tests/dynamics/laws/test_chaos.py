"""Propagation of chaos: explicit particles in R^d, known exponents, the collapse in m, the linearised distance."""

import numpy as np
import pytest

import dynamics
from dynamics.equations.mean_field import start_particles
from dynamics.equations.spherical import LinearisedCoupling, followers_in_space, make_particle_system
from dynamics.fits import widening
from dynamics.laws.chaos import width_exponents as exponents
from dynamics.report.mean_field import chaos_findings
from dynamics.runs.dataset import VARIABLES

MIXED = {1: 0.3, 2: 0.2, 3: 0.5, 4: 0.7}
OTHER = {1: 0.1, 3: 0.5, 4: 0.4}
AT = dynamics.SaveAt.at


def problem(link="he4", dimension=16, coefficients=(1.0,), directions=None, **changes):
    teacher = dynamics.Teacher(coefficients, directions=directions)
    given = {"activation": link, "teacher": teacher, "width": 1, "dimension": dimension, "student": "spherical"}
    return dynamics.Problem(**(given | changes))


class InSpace:
    """The law as points in R^d, exact for degree 4, followers without weight, and a network; all by classical RK4."""

    def __init__(self, question, particles, weights_of_neurons, angles=6):
        d, axes = question.dimension, question.teacher.span
        assert d == axes + 2, "the other axes are a plane, whose circle an even rule integrates"
        a, rho = start_particles(question, particles, "graded" if axes == 1 else "random")
        phi = 2 * np.pi * np.arange(angles) / angles
        rest = np.sqrt(1 - np.sum(a**2, axis=1))[:, None, None] * np.stack([np.cos(phi), np.sin(phi)], axis=1)
        points = np.concatenate([np.broadcast_to(a[:, None], (particles, angles, axes)), rest], axis=2)
        self.law, self.rho = points.reshape(-1, d), np.repeat(rho / angles, angles)
        self.network = self.followers = weights_of_neurons.copy()
        c, other = (link.coefficients for link in (question.activation, question.teacher_link))
        self.g = np.polynomial.Polynomial(c**2)
        self.pull = np.polynomial.Polynomial(c[: other.size] * other[: c.size]).deriv()
        rows = np.eye(axes) if question.teacher.directions is None else question.teacher.directions
        self.theta = np.pad(rows, ((0, 0), (0, d - axes)))
        self.a = question.teacher.coefficients

    def velocity(self, w, sources, masses):
        force = (self.pull(w @ self.theta.T) * self.a) @ self.theta
        force -= (self.g.deriv()(w @ sources.T) * masses) @ sources
        return force - np.sum(force * w, axis=1)[:, None] * w

    def rates(self, state):
        law, followers, network = state
        mean = np.full(len(network), 1 / len(network))
        return [
            self.velocity(law, law, self.rho),
            self.velocity(followers, law, self.rho),
            self.velocity(network, network, mean),
        ]

    def advance(self, time, steps):
        h = time / steps
        y = [self.law, self.followers, self.network]
        for _ in range(steps):
            one = self.rates(y)
            two = self.rates([s + h / 2 * k for s, k in zip(y, one, strict=True)])
            three = self.rates([s + h / 2 * k for s, k in zip(y, two, strict=True)])
            four = self.rates([s + h * k for s, k in zip(y, three, strict=True)])
            parts = zip(y, one, two, three, four, strict=True)
            y = [s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4) for s, k1, k2, k3, k4 in parts]
            y = [s / np.linalg.norm(s, axis=1, keepdims=True) for s in y]
        self.law, self.followers, self.network = y

    def function_gap(self):
        m = len(self.network)
        points = np.concatenate([self.network, self.law])
        signed = np.concatenate([np.full(m, 1 / m), -self.rho])
        return signed @ self.g(points @ points.T) @ signed


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("link", "other", "coefficients", "directions", "particles"),
    [(MIXED, OTHER, (1.0,), None, 40), (MIXED, None, (0.6, 0.4), [[1.0, 0.0], [0.6, 0.8]], 25)],
)
def test_distances_are_those_of_explicit_particles(link, other, coefficients, directions, particles):
    axes = 1 if directions is None else 2
    question = problem(link, axes + 2, coefficients, directions, teacher_activation=other)
    found = dynamics.propagation_of_chaos(
        question, widths=(3, 9), seeds=(4, 7), save_at=AT([0.0, 0.8, 1.6]), particles=particles, rtol=1e-8, atol=1e-10
    )
    for width, seed in ((3, 7), (9, 4)):
        exact = InSpace(question, particles, dynamics.coupled_problem(question, width, seed).initial_weights)
        at = found.sel(width=width, seed=seed)
        for t in range(3):
            if t > 0:
                exact.advance(0.8, 40)
            gap = np.linalg.norm(exact.network - exact.followers, axis=1)
            assert float(at.function_gap[t]) == pytest.approx(width * exact.function_gap(), abs=2e-7)
            assert float(at.coupling_error[t]) == pytest.approx(np.linalg.norm(gap), abs=2e-6)
            assert float(at.largest_coupling_error[t]) == pytest.approx(np.sqrt(width) * gap.max(), abs=2e-6)
        assert float(at.coupling_error[2]) > 0.01


def test_exponents_are_those_put_in_and_their_errors_those_of_the_seeds():
    widths, rng = np.array([10, 20, 80]), np.random.default_rng(3)
    exact = np.empty((3, 400, 3))
    exact[:, :, 0] = 5.0 * widths[:, None] ** -0.5
    exact[:, :, 1] = rng.exponential(size=(3, 400))
    exact[:, :, 2] = 0.0
    found, error = exponents(exact, widths)
    assert found[0] == pytest.approx(-1.5, abs=1e-12)
    assert error[0] == pytest.approx(0.0, abs=1e-12)
    # The mean of 400 exponential numbers has the relative error 1/20.
    x = np.log(widths) - np.log(widths).mean()
    assert error[1] == pytest.approx(0.05 / np.linalg.norm(x), rel=0.15)
    assert found[1] == pytest.approx(-1.0, abs=4 * error[1])
    assert np.isnan(found[2])


def check_collapse(chaos, slack):
    reached = float(chaos.loss_level_time[-1])
    assert reached < float(chaos.time[-1]), "the record goes past the time at which the loss is below a tenth"
    off = np.abs(chaos.function_gap_exponent.values + 1.0)
    assert (off < 2.0 * chaos.function_gap_exponent_error.values + slack).all()


@pytest.mark.long
@pytest.mark.statistical
def test_the_distance_falls_as_one_over_m():
    """Fixed seeds. Two standard errors from 8 seeds and a bias of 0.1 at such widths: false alarms below 5 %."""
    chaos = dynamics.propagation_of_chaos(problem(), widths=(32, 64, 128, 256), save_at=AT([0.0, 1.0, 5.0, 24.5]))
    check_collapse(chaos, 0.1)
    spread = chaos.function_gap.mean("seed").values
    assert (spread.max(axis=0) < 1.6 * spread.min(axis=0)).all()
    _, error = exponents(chaos.function_gap.values, chaos.width.values)
    np.testing.assert_array_equal(chaos.function_gap_exponent_error, widening(8) * error)
    early = chaos.isel(time=1)
    assert abs(float(early.coupling_exponent) + 1) < 3 * float(early.coupling_exponent_error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"widths": (4,)}, "`widths` must hold at least 2 increasing"),
        ({"widths": (8, 4)}, "`widths` must hold at least 2 increasing"),
        ({"widths": (0, 4)}, "`widths` must be at least 1"),
        ({"seeds": (3, 3)}, "`seeds` must hold at least 2 increasing"),
        ({"seeds": 1}, "`seeds` must be at least 2"),
        ({"rtol": -1.0}, "rtol"),
    ],
)
def test_bad_arguments_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        dynamics.propagation_of_chaos(problem(), **({"widths": (2, 4)} | changes))


@pytest.mark.thorough
def test_the_dataset_is_labelled_stored_and_drawn(tmp_path):
    asked = problem(seed=3)
    chaos = dynamics.propagation_of_chaos(asked, widths=(4, 8), seeds=2, save_at=AT([0.0, 0.5, 1.0]), particles=64)
    assert chaos.loss.dims == ("width", "seed", "time")
    for name in set(chaos.data_vars) - {"loss"}:
        assert chaos[name].dims == VARIABLES[name].dims
    dynamics.save(chaos, tmp_path / "chaos.nc")
    assert dynamics.Problem.from_dataset(dynamics.load(tmp_path / "chaos.nc")) == asked
    axes = dynamics.plot_chaos(chaos)
    assert [ax.get_xscale() for ax in axes] == ["log"] * 3
    assert len(axes[0].lines) == 2
    chaos_findings(chaos).overview().savefig(tmp_path / "chaos.png")
    assert (tmp_path / "chaos.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="must have the variable `function_gap`"):
        dynamics.plot_chaos(chaos.drop_vars("function_gap"))


def test_the_linear_equation_is_the_derivative_of_velocities_in_space():
    """D and H by central differences of velocities in R^d, the law in explicit particles; ε as their difference."""
    question = problem(MIXED, 4, (0.6, 0.4), [[1.0, 0.0], [0.6, 0.8]], teacher_activation=OTHER)
    w = dynamics.coupled_problem(question, 5, 1).initial_weights
    exact = InSpace(question, 30, w)
    law = make_particle_system(question, start_particles(question, 30, "random")[0])
    system = make_particle_system(question, w[:, :2])
    equation = LinearisedCoupling(system, w, law.moments(law.initial_state))
    mean = np.full(5, 0.2)
    field = exact.velocity(w, exact.law, exact.rho)
    np.testing.assert_allclose(equation.noise, exact.velocity(w, w, mean) - field, atol=1e-14)
    gap = np.random.default_rng(5).standard_normal(w.shape)
    gap -= np.sum(gap * w, axis=1)[:, None] * w

    def along(step):
        moved = w + step * gap
        # The field at the moved neuron, and that of the moved sources at the neuron itself.
        return exact.velocity(moved, exact.law, exact.rho) + exact.velocity(w, moved, mean)

    wanted = (along(1e-5) - along(-1e-5)) / 2e-5
    np.testing.assert_allclose(equation.rate(gap) - equation.noise, wanted, atol=1e-8)
    # The interaction only damps, so that the largest local Hessian bounds growth.
    assert np.sum(gap * wanted) <= equation.growth * np.sum(gap**2)


def test_the_linearised_distance_is_that_of_wide_networks():
    """What it leaves out is of second order: half as large, relative to the distance, at four times the width."""
    errors = {}
    for width in (64, 256):
        question = dynamics.coupled_problem(problem(), width, 0)
        linear = dynamics.solve_coupling(question, save_at=AT([0.0, 1.0, 2.0]), largest_step=0.2, particles=1024)
        settings = {"save_at": AT([0.0, 1.0, 2.0]), "progress": False, "rtol": 1e-7}
        network = dynamics.solve_spherical(question, **settings).neuron_vector.values
        law = dynamics.solve_mean_field(
            problem(), particles=1024, tracers=question.initial_weights[:, :1], keep="summary", **settings
        )
        gap = network - followers_in_space(network[0], law.tracer_projection.values)
        errors[width] = np.linalg.norm(gap - linear.neuron_gap.values, axis=(1, 2))[1:] / np.linalg.norm(
            gap[1:], axis=(1, 2)
        )
        assert (linear.linear_error <= linear.linear_error_bound).all()
        np.testing.assert_allclose(linear.linear_error, np.linalg.norm(linear.neuron_gap, axis=(1, 2)), rtol=1e-12)
    assert (errors[256] < 0.7 * errors[64]).all()
    assert (errors[256] < (0.03, 0.1)).all()
