"""Steps by sweeps over many particles: the same steps as the plain explicit method, whoever shares the work."""

import numpy as np
import pytest

import dynamics
from dynamics.equations.mean_field import AxisSystem, start_particles
from dynamics.integrators import Status
from dynamics.integrators import particles as particle_stepper
from dynamics.integrators.particles import ParticleStepper

OBLIQUE = [[1.0, 0.0], [0.6, 0.8]]
QUESTIONS = {
    "even powers": ("he4", None, (1.0,), None, 3.0),
    "all powers": ({1: 0.3, 2: 0.2, 3: 0.5}, {1: 0.1, 3: 0.5, 4: 0.4}, (1.0,), None, 2.0),
    "zonal polynomials": ({4: 0.6, 14: 0.2}, None, (1.0,), None, 1.0),
    "two axes": ("he3", None, (0.6, 0.4), OBLIQUE, 4.0),
}


def problem(link, other, coefficients, directions, dimension=12):
    teacher = dynamics.Teacher(coefficients, directions=directions)
    given = {"activation": link, "teacher": teacher, "width": 1, "dimension": dimension, "student": "spherical"}
    return dynamics.Problem(**given, teacher_activation=other)


def solve(question, end, **changes):
    given = {"save_at": dynamics.SaveAt.at([0.0, 0.37 * end, end]), "particles": 700, "progress": False}
    return dynamics.solve_mean_field(question, **(given | changes))


@pytest.fixture
def swept(monkeypatch):
    """Let small states be taken by sweeps."""
    monkeypatch.setattr(particle_stepper, "SMALLEST_STATE", 0)


@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow_to_compile] * (name == "two axes"))
        for name, case in QUESTIONS.items()
    ],
)
def test_sweeps_take_the_steps_of_the_plain_method(case, monkeypatch):
    *asked, end = case
    question, count = problem(*asked), 40
    axes = 1 if asked[3] is None else 2
    rng = np.random.default_rng(1)
    tracers = rng.uniform(-0.7, 0.7, (5, axes))
    plain = solve(question, end, particles=count, tracers=tracers, rtol=1e-6)
    monkeypatch.setattr(particle_stepper, "SMALLEST_STATE", 0)
    found = solve(question, end, particles=count, tracers=tracers, rtol=1e-6)
    assert "sweeps" in found.attrs
    assert "sweeps" not in plain.attrs
    assert found.attrs["steps_accepted"] == pytest.approx(plain.attrs["steps_accepted"], abs=1)
    for name in ("loss", "tracer_projection", "alpha", "projection", "law_moment", "learned_mass"):
        if name in plain:
            np.testing.assert_allclose(found[name], plain[name], rtol=0, atol=3e-8, err_msg=name)
    np.testing.assert_allclose(found.loss_level_time, plain.loss_level_time, rtol=1e-7)
    np.testing.assert_allclose(found.learned_time, plain.learned_time, rtol=1e-7)
    assert float(found.loss[-1]) < float(found.loss[0])


@pytest.mark.thorough
@pytest.mark.usefixtures("swept")
def test_the_number_of_threads_changes_no_bit(monkeypatch):
    question, made = problem("he4", None, (1.0,), None), []
    workers = particle_stepper.Workers
    for threads in (1, 3):
        monkeypatch.setattr(particle_stepper, "Workers", lambda rows, columns, n=threads: workers(rows, columns, n))
        made.append(solve(question, 2.0, particles=2000))
    for name in ("alpha", "loss", "loss_level_time"):
        np.testing.assert_array_equal(made[0][name], made[1][name])


def test_large_states_are_swept_and_others_are_not():
    question = problem("he4", None, (1.0,), None)
    assert "sweeps" in solve(question, 0.1, particles=120_000, keep="summary").attrs
    assert "sweeps" not in solve(question, 0.1, particles=80_000, keep="summary").attrs


def stepper(rtol=1e-6, atol=1e-8):
    question = problem("he4", None, (1.0,), None)
    system = AxisSystem(question, *start_particles(question, 100, "graded"), (0.5, 0.1))
    return ParticleStepper(system, rtol=rtol, atol=system.absolute_tolerance(atol))


def test_a_stepper_stops_when_asked_and_rejects_what_is_too_long():
    found = stepper()
    assert found.advance(5.0, 3) == Status.MAX_STEPS
    assert found.statistics()["steps_accepted"] == 3
    found._scalars[2] = 50.0
    assert found.advance(5.0, 1) == Status.MAX_STEPS
    assert found.statistics()["steps_rejected"] == 1
    assert found._scalars[2] < 50.0
    assert found.advance(5.0, 1000) == Status.REACHED


@pytest.mark.parametrize(("error", "reason"), [(2.0, Status.STEP_TOO_SMALL), (np.inf, Status.NOT_FINITE)])
def test_a_stepper_says_why_no_step_succeeds(error, reason, monkeypatch):
    found, field = stepper(), np.zeros((13, 5))
    found.advance(0.1, 1)
    monkeypatch.setattr(found, "_settle", lambda h: (error, field, field))
    assert found.advance(5.0, 1000) == reason
    assert found.statistics()["steps_accepted"] == 1
