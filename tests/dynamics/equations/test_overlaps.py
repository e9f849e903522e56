"""The coupled overlap flow against weight space, exact solutions, referees and its own symmetries."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from shared_links import MIXED
from weight_space import gradient_flow, population_loss

import dynamics
import hermite
from dynamics.problem.start import overlaps_from_weights

REFERENCE = Path(__file__).parents[2] / "reference" / "single_neuron_escape.json"

TILTED = np.array([[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.28, 0.96]])

CASES = {
    "h4": {"activation": "he4"},
    "h4 + 0.5 h6": {"activation": {4: 1.0, 6: 0.5}},
    "truncated tanh": {"activation": hermite.expand("tanh", order=9).truncated()},
    "truncated relu, c_0 != 0": {"activation": hermite.expand("relu", order=8).truncated()},
    "h3 and h4, no parity": {"activation": MIXED},
    "h4, teacher not orthonormal": {"activation": "he4", "teacher": dynamics.Teacher([1.0, 0.7, 0.5], directions=TILTED)},
    "h2, wider than the space": {"activation": "he2", "width": 9, "dimension": 4},
}  # fmt: skip


OF_OTHER_LINKS = ("h4 + 0.5 h6", "truncated tanh", "truncated relu, c_0 != 0")


@pytest.mark.parametrize(
    ("solve", "problem", "options", "warning"),
    [
        (dynamics.solve_overlaps, {"activation": "relu"}, {}, "leaves out"),
        (dynamics.solve_overlaps, {}, {"method": "gradient-descent", "learning_rate": 1.0}, "loses stability"),
        (dynamics.solve_spherical, {"teacher": dynamics.Teacher([0.5]), "student": "spherical"}, {}, "sum to 0.5"),
    ],
)
def test_a_warning_names_the_line_that_asked(solve, problem, options, warning):
    settings = {"activation": "he4", "teacher": dynamics.Teacher([1.0]), "width": 1, "dimension": 16} | problem
    save_at = dynamics.SaveAt.at([0.0, 1e-3])
    with pytest.warns(Warning, match=warning) as caught:
        solve(dynamics.Problem(**settings), save_at=save_at, progress=False, **options)
    assert caught[0].filename == __file__


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.long] * (name in OF_OTHER_LINKS)) for name in CASES]
)
def weight_space_case(request):
    """A problem with moderate weights, its flow in overlap space, and the same flow by autograd in weight space."""
    settings = {
        "teacher": dynamics.Teacher([1.0, 0.7, 0.5]),
        "width": 4,
        "dimension": 7,
        "initial_norm": 0.5,
        "seed": 3,
    } | CASES[request.param]
    problem = dynamics.Problem(**settings)
    times = np.array([0.0, 0.3, 1.0, 3.0])
    weights = np.zeros((problem.width, problem.dimension))
    reduced = problem.reduced_weights()
    weights[:, : reduced.shape[1]] = reduced
    flow = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at(times), method="explicit", rtol=1e-11, atol=1e-13, progress=False
    )
    return problem, flow, gradient_flow(problem, weights, times)


def test_overlap_flow_is_the_weight_space_gradient_flow_by_autograd(weight_space_case):
    problem, flow, history = weight_space_case
    for at, weights in enumerate(history):
        expected = overlaps_from_weights(weights, problem.teacher)
        record = flow.isel(time=at)
        np.testing.assert_allclose(record.teacher_overlap, expected.teacher_overlap, atol=1e-9)
        np.testing.assert_allclose(record.student_overlap, expected.student_overlap, atol=1e-9)
        np.testing.assert_allclose(record.squared_norm, expected.squared_norm, rtol=1e-9)
        loss = population_loss(torch.tensor(weights), problem).item()
        assert float(record.loss) == pytest.approx(loss, abs=1e-9)


def test_loss_never_increases_and_the_state_stays_realisable(weight_space_case):
    _, flow, _ = weight_space_case
    assert (np.diff(flow.loss) < 0).all()
    assert flow.gram_margin.min() > -1e-9


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.long] * (c["k"] > 4)) for c in json.loads(REFERENCE.read_text())["values"]],
    ids=lambda c: f"k{c['k']}-{c['m0']}-{c['m1']}",
)
def test_single_neuron_escape_times_at_tiny_norm(case):
    """With n → 0 the flow is the correlation flow of the reference; n(0) = 1e-14 perturbs it by less than 1e-10."""
    k, a, start, stop = case["k"], case["a"], case["m0"], case["m1"]
    overlaps = ([[start]], [[1.0]], [1e-14])
    problem = dynamics.Problem(
        activation=f"he{k}", teacher=dynamics.Teacher([a]), width=1, dimension=64, initial_overlaps=overlaps
    )
    expected = float(case["t"])
    flow = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at([expected]), method="explicit", rtol=1e-11, atol=1e-13, progress=False
    )
    reached = float(flow.teacher_overlap[0, 0, 0])
    rate = k * a * stop ** (k - 1) * (1 - stop**2)
    assert (reached - stop) / rate == pytest.approx(0.0, abs=1e-8 * expected)


@pytest.fixture(scope="module")
def staircase():
    """Four directions learned one after the other by ten neurons, an emergence staircase of moderate stiffness."""
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher.power_law(4, 1.0), width=10, dimension=32, initial_norm=0.05, seed=1
    )
    return problem, dynamics.SaveAt.geometric(0.1, 80.0, 60)


@pytest.fixture(scope="module")
def referee(staircase):
    problem, save_at = staircase
    return dynamics.solve_overlaps(
        problem, save_at=save_at, method="scipy:DOP853", rtol=1e-12, atol=1e-13, progress=False
    )


@pytest.mark.parametrize(
    ("method", "rtol", "error"), [("explicit", 1e-11, 1e-8), ("explicit", 1e-8, 1e-6), ("stiff", 1e-8, 1e-5)]
)
def test_methods_agree_with_the_referee(staircase, referee, method, rtol, error):
    problem, save_at = staircase
    flow = dynamics.solve_overlaps(problem, save_at=save_at, method=method, rtol=rtol, atol=rtol / 100, progress=False)
    assert abs(flow.loss - referee.loss).max() < error
    assert abs(flow.teacher_overlap - referee.teacher_overlap).max() < error
    np.testing.assert_allclose(flow.emergence_time, referee.emergence_time, rtol=error)
    np.testing.assert_allclose(flow.learned_time, referee.learned_time, rtol=error)


def test_events_are_crossings_of_the_dense_solution_not_of_the_grid(staircase, referee):
    problem, _ = staircase
    coarse = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at([80.0]), rtol=1e-11, atol=1e-13, progress=False
    )
    np.testing.assert_allclose(coarse.emergence_time, referee.emergence_time, rtol=1e-8)
    at_events = dynamics.solve_overlaps(
        problem, save_at=dynamics.SaveAt.at(np.sort(coarse.emergence_time.values)), rtol=1e-11, atol=1e-13,
        progress=False,
    )  # fmt: skip
    for p, when in enumerate(coarse.emergence_time.values):
        row = int(np.argmin(abs(at_events.time.values - when)))
        assert float((at_events.teacher_overlap[row, :, p] ** 2).max()) == pytest.approx(0.5, abs=1e-8)


def test_odd_links_count_positive_overlaps_only():
    overlaps = ([[-0.9]], [[1.0]], [1e-4])
    problem = dynamics.Problem(
        activation="he3", teacher=dynamics.Teacher([1.0]), width=1, dimension=8, initial_overlaps=overlaps
    )
    flow = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([0.0, 50.0]), progress=False)
    assert np.isnan(flow.emergence_time[0])
    assert float(flow.teacher_overlap[-1, 0, 0]) < 0


def test_passed_at_the_start_counts_as_time_zero():
    overlaps = ([[0.9]], [[1.0]], [0.9])
    problem = dynamics.Problem(
        activation="he4", teacher=dynamics.Teacher([1.0]), width=1, dimension=8, initial_overlaps=overlaps
    )
    flow = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([1.0]), progress=False)
    assert flow.emergence_time[0] == 0.0
    assert flow.learned_time[0] == 0.0
