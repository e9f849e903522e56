"""The spherical network under steps of a finite size: quadrature over x, one neuron, sampled runs, its limits."""

import numpy as np
import pytest
from gaussian_rules import broken, grid_of
from kernel_calls import Kernels
from scipy.integrate import solve_ivp
from test_spherical import mass_and_events
from weight_space import theta_of

import dynamics
import sgd_check
from dynamics.equations.spherical import SphericalStepSystem

MIXED = {1: 0.5, 2: 0.5}
OTHER = {0: 0.2, 1: 0.6, 2: 0.3}
TILTED = [[1.0, 0.0], [0.6, 0.8]]


def rows_of(dimension, width=3):
    """Neurons with overlaps of order 1 with the teacher and with each other."""
    W = np.zeros((width, dimension))
    W[:, :2] = np.array([[0.5, 0.1], [-0.2, 0.4], [0.3, 0.3]])[:width]
    for i in range(width):
        W[i, 2 + i % (dimension - 2)] = 0.8
        W[i, 2 + (i + 1) % (dimension - 2)] += 0.2
    return W / np.linalg.norm(W, axis=1, keepdims=True)


def question(link="erf", teacher_link=None, dimension=40, width=3, **changes):
    given = {
        "activation": link,
        "teacher_activation": link if teacher_link is None else teacher_link,
        "teacher": dynamics.Teacher([0.6, 0.4], directions=TILTED),
        "width": width,
        "dimension": dimension,
        "initial_weights": rows_of(dimension, width),
        "student": "spherical",
        "label_noise": 0.5,
    }
    return dynamics.Problem(**(given | changes))


def solve(problem, times, **changes):
    return dynamics.solve_spherical(problem, save_at=dynamics.SaveAt.at(times), **({"progress": False} | changes))


@pytest.mark.parametrize(
    ("link", "teacher_link"),
    [
        (MIXED, OTHER),
        *(pytest.param("erf", name, marks=pytest.mark.slow_to_compile) for name in (None, "relu", "step", "he3")),
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_velocity_equals_that_of_one_step_by_quadrature(link, teacher_link, batch):
    """The mean of the step in R³, expanded to η² |u|² with |x|² = d; kinks of the teacher lie on the axes."""
    teacher = dynamics.Teacher([0.6, 0.4], directions=[[1.0, 0.0], [0.0, -1.0]])
    # A link of degree 2 has no other learned mass than that of all degrees.
    first, definition = (0, "all degrees") if link == MIXED else (3, "degrees 3 and above")
    problem = question(link, teacher_link, 3, 2, teacher=teacher, learned_definition=definition)
    rate = 0.2
    x, measure = grid_of([broken(0.0, nodes=44)] * 3)
    W, theta = problem.initial_weights, theta_of(problem)
    z = x @ W.T
    error = problem.activation.value(z).mean(axis=1) - problem.teacher_link.value(x @ theta.T) @ teacher.coefficients
    slopes = problem.activation.derivative(z)
    mean = (measure * error * slopes.T) @ x
    mean -= np.sum(mean * W, axis=1)[:, None] * W
    V = (measure * (error**2 + 0.25) * slopes.T) @ slopes
    G, lost, step = W @ W.T, np.diag(V), rate * 3 / batch
    wanted = [
        -mean @ theta.T - 0.5 * step * lost[:, None] * (W @ theta.T),
        -mean @ W.T - W @ mean.T + step * (V - 0.5 * G * (lost[:, None] + lost)),
    ]
    system = SphericalStepSystem(problem, (0.5, 0.1), rate, batch)
    kernels, y = Kernels(system), system.initial_state
    # Measured: 2e-13, the sum over 681 472 nodes; series of erf are cut at 1e-12.
    np.testing.assert_allclose(kernels.rhs(), np.concatenate([w.ravel() for w in wanted]), atol=2e-11)
    loss = measure @ error**2
    _, events = mass_and_events(system, loss, W @ theta.T, first)
    # The loss is that of the series of f*, of which thresholds leave out much.
    if teacher_link not in ("relu", "step"):
        assert system.loss(y) == pytest.approx(loss, abs=1e-10)
        np.testing.assert_allclose(kernels.events(), events, atol=1e-10)


@pytest.mark.parametrize(
    ("link", "gamma"),
    [pytest.param("erf", 1.5, id="erf", marks=pytest.mark.long), pytest.param(MIXED, 0.1, id="polynomial")],
)
def test_one_neuron_follows_its_scalar_equation(link, gamma):
    """C' = g'(C)(1 − C²) − ½ γ C E[(e² + τ²) σ'²], the mean by quadrature in the plane, integrated by scipy."""
    d = 1000
    start = np.zeros((1, d))
    start[0, :2] = 0.6, 0.8
    problem = question(link, None, d, 1, teacher=dynamics.Teacher([1.0]), initial_weights=start)
    x, measure = grid_of([broken(0.0, nodes=44)] * 2)
    first, second = x.T
    sigma = problem.activation

    def velocity(_t, y):
        z = y[0] * first + np.sqrt(1 - y[0] ** 2) * second
        error, slope = sigma.value(z) - sigma.value(first), sigma.derivative(z)
        drift = -measure @ (error * slope * (first - y[0] * z))
        return [drift - 0.5 * gamma * y[0] * (measure @ ((error**2 + 0.25) * slope**2))]

    times = np.array([0.5, 2.0, 10.0])
    wanted = solve_ivp(velocity, (0.0, 10.0), [0.6], method="DOP853", t_eval=times, rtol=1e-11, atol=1e-12).y[0]
    found = solve(problem, times, learning_rate=gamma / d, rtol=1e-11, atol=1e-12)
    # Measured: 2e-12.
    np.testing.assert_allclose(found.teacher_overlap[:, 0, 0], wanted, rtol=0, atol=1e-9)
    assert np.abs(solve(problem, times).teacher_overlap[:, 0, 0] - wanted).max() > 0.01


def deviations(problem, gamma, end, lanes, batch):
    """Mean overlaps (C, G) of the engine's runs less those of the equation and of the flow, and standard errors."""
    d = problem.dimension
    steps, rate = round(end * d / gamma), gamma / d
    times, pairs = [rate * steps], np.triu_indices(problem.width, 1)
    runs = sgd_check.simulate(
        problem, learning_rate=rate, steps=steps, batch_size=batch, seeds=lanes, engine="torch", dtype="float64",
        save_at=dynamics.SaveAt.at(times), progress=False,
    ).isel(time=-1)  # fmt: skip
    w = runs.neuron_vector.values

    def overlaps(C, G):
        return np.concatenate([C.reshape(*C.shape[:-2], -1), G[..., pairs[0], pairs[1]]], axis=-1)

    sampled = overlaps(runs.teacher_overlap.values, w @ w.transpose(0, 2, 1))
    equation = solve(problem, times, learning_rate=rate, batch_size=batch)
    flow = solve(problem, times)
    theory = overlaps(equation.teacher_overlap.values[0], equation.student_overlap.values[0])
    v = flow.neuron_vector.values[0]
    mean, error = sampled.mean(axis=0), sampled.std(axis=0, ddof=1) / np.sqrt(lanes)
    return mean - theory, mean - overlaps(flow.teacher_overlap.values[0], v @ v.T), error


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("link", "teacher_link", "gamma", "batch"),
    [pytest.param("erf", "relu", 1.5, 1, marks=pytest.mark.long), (MIXED, OTHER, 1.2, 2)],
    ids=["erf", "polynomial"],
)
def test_means_of_sgd_approach_the_equation_like_one_over_d(link, teacher_link, gamma, batch):
    """Fixed seeds; nine means within 4.5 standard errors: false alarms 6e-5 per case. Label noise 0.5, tilted teacher."""
    near, _, first = deviations(question(link, teacher_link, 100), gamma, 0.3, 1000, batch)
    far, flow, second = deviations(question(link, teacher_link, 1000), gamma, 0.3, 80, batch)
    assert np.abs(near).max() < 0.05
    assert np.abs((far - 0.1 * near) / np.hypot(second, 0.1 * first)).max() < 4.5
    assert np.abs(flow / second).max() > 15.0
    assert np.abs(far).max() < 0.15 * np.abs(flow).max()


@pytest.mark.parametrize(("link", "teacher_link"), [pytest.param("erf", None, marks=pytest.mark.long), (MIXED, OTHER)])
def test_tends_to_the_flow_at_first_order(link, teacher_link):
    problem = question(link, teacher_link)
    flow = solve(problem, [2.0], rtol=1e-11).teacher_overlap[0]
    gaps = [
        np.abs(solve(problem, [2.0], learning_rate=rate, rtol=1e-11).teacher_overlap[0] - flow).max()
        for rate in (4e-5, 2e-5)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2.0, abs=0.02)
    assert gaps[0] > 1e-6


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        ({}, {"learning_rate": 0.1, "step_theory": "finite-d"}, "Argument `step_theory` must be 'infinite-d' for a spherical student, whose mean step at finite d is no finite sum because it divides by a length, but is 'finite-d'."),
        ({}, {"learning_rate": -1.0}, "Argument `learning_rate` must be finite and positive, but is -1.0."),
        ({}, {"batch_size": 2}, "Argument `batch_size` must be 1 unless `learning_rate` is given, but is 2."),
        ({"activation": "tanh"}, {"learning_rate": 0.1}, "Argument `problem` must have links whose mean step of a finite learning rate is known exactly, but has neurons of tanh: it is known for 'erf' and polynomials; `sgd_check.simulate` takes such steps."),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(changes, options, sentence):
    with pytest.raises(ValueError, match="Argument") as caught:
        solve(question(**changes), [1.0], **options)
    assert str(caught.value) == sentence
