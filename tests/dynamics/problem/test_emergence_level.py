"""The squared overlap at which a direction emerges is one field of the problem, which everything follows."""

import numpy as np
import pytest

import dynamics
import sgd_check
from dynamics import Problem, Student, Teacher
from dynamics.equations.transit import transit_time
from dynamics.report.findings import find_findings
from dynamics.solve import __main__ as command
from dynamics.sweeps.grid import changed_problem
from dynamics.theory import escape_bias, predict
from dynamics.theory.pairs import FarSide
from sgd_check import plot_overlaps

LEVEL = 0.8


def pair(level=None, **changes):
    start = ([[0.3]], [[1.0]], [1e-4])
    given = {"activation": "he3", "teacher": Teacher([1.0]), "width": 1, "dimension": 48, "initial_overlaps": start}
    return Problem(**given | {"emergence_level": level} | changes)


def crossing(answer, level):
    """Return the time at which the stored overlap of the first neuron reaches the level, from its records."""
    C2 = answer.teacher_overlap.values[:, 0, 0] ** 2
    return np.interp(level, C2, answer.time.values)


DENSE = dynamics.SaveAt.linear(0.0, 4.0, 4001)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["explicit", "decoupled", "gradient-descent", "finite-d"])
def test_flow_and_prediction_cross_the_level(method):
    """The crossing of the saved overlaps, to their spacing; and the prediction to its own."""
    problem = pair(LEVEL)
    given = {"save_at": DENSE, "progress": False}
    if method == "decoupled":
        answer = dynamics.solve_decoupled(problem, save_at=DENSE)
        found = float(predict(problem).predicted_emergence_time[0])
        assert found == pytest.approx(np.interp(LEVEL, answer.overlap[:, 0] ** 2, answer.time), rel=1e-5)
        assert float(answer.predicted_emergence_time[0]) == pytest.approx(found, rel=1e-12)
        return
    if method == "explicit":
        answer = dynamics.solve_overlaps(problem, method="explicit", **given)
        # dC/dt = g'(C) (1 − C²), by quadrature in time.
        assert float(answer.predicted_emergence_time[0]) == pytest.approx(float(answer.emergence_time[0]), rel=1e-6)
    elif method == "gradient-descent":
        answer = dynamics.solve_overlaps(problem, method="gradient-descent", learning_rate=1e-3, **given)
    else:
        answer = dynamics.solve_overlaps(problem, learning_rate=1e-5, method="explicit", **given)
    assert float(answer.emergence_time[0]) == pytest.approx(crossing(answer, LEVEL), rel=1e-5)
    assert float(answer.emergence_time[0]) > 1.05 * crossing(answer, 0.5)


def test_predicted_times_and_delays_are_those_to_the_level():
    """The time to C² = 0.8 by quadrature of 1/(g' (1 − C²)); delays grow on the way from 0.5 on."""
    low, high = predict(pair()), predict(pair(LEVEL))
    C = np.linspace(0.3, np.sqrt(LEVEL), 200_001)
    slope = 3.0 * C**2 * (1.0 - C**2)
    expected = np.sum(0.5 * (1.0 / slope[1:] + 1.0 / slope[:-1]) * np.diff(C))
    assert float(high.predicted_emergence_time[0]) == pytest.approx(expected, rel=1e-8)
    assert float(low.predicted_emergence_time[0]) == pytest.approx(
        transit_time([0, 0, 0, 1.0], 0.3, np.sqrt(0.5)), rel=1e-10
    )
    assert high.predicted_learned_time[0] == low.predicted_learned_time[0]
    late, early = (escape_bias(problem, 1e-5, predict(problem)) for problem in (pair(LEVEL), pair()))
    assert late.bias[0] * high.predicted_emergence_time[0] > early.bias[0] * low.predicted_emergence_time[0]


@pytest.mark.thorough
@pytest.mark.statistical
def test_runs_of_sgd_emerge_at_the_predicted_level():
    """64 runs at 2 % of the limit: the mean within four standard errors of prediction and delay, a false alarm in 16 000."""
    problem = pair(LEVEL)
    rate = 0.02 * dynamics.learning_rate_limit(problem)
    prediction = predict(problem)
    bias = escape_bias(problem, rate, prediction)
    time = float(bias.emergence_time[0])
    runs = sgd_check.simulate(
        problem, learning_rate=rate, steps=int(2.0 * time / rate), seeds=64, progress=False, engine="projected",
        save_at=dynamics.SaveAt.at([1.0]),
    )  # fmt: skip
    measured = runs.emergence_time.values[:, 0]
    error = measured.std(ddof=1) / 8.0
    assert abs(measured.mean() - time) < 4.0 * error + 0.01 * time
    half = float(predict(pair()).predicted_emergence_time[0])
    assert abs(measured.mean() - half) > 8.0 * error
    assert Problem.from_dataset(runs).emergence_level == LEVEL


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given",
    [
        {"student": "committee", "activation": "erf", "initial_overlaps": ([[0.3]], [[1.0]], [1.0])},
        {"student": "spherical", "objective": "correlation", "initial_overlaps": ([[0.3]], [[1.0]], [1.0])},
        {"inputs": dynamics.Inputs([2.0, 1.0], [1, 7]), "dimension": 8, "initial_overlaps": None, "initial_weights": [[0.4, *[0.3] * 7]]},
        {"student": Student(activation="erf", width=1, second_layer="fixed"), "activation": None, "width": None, "teacher": Teacher([1.0], links=["erf"]), "initial_overlaps": None, "initial_weights": [[0.5, 0.8]]},
        {"activation": "he2", "initial_overlaps": None, "initial_weights": [[0.05, *[0.01] * 47]]},
    ],
    ids=["committee", "correlation", "inputs", "network", "quadratic"],
)  # fmt: skip
def test_every_student_crosses_the_level(given):
    found = {}
    for level in (0.5, LEVEL):
        problem = pair(level, **given)
        answer = dynamics.solve_problem(problem, save_at=dynamics.SaveAt.linear(0.0, 30.0, 3001), progress=False)
        name = "aligned_time" if "aligned_time" in answer else "emergence_time"
        found[level] = float(answer[name].values[0])
        name = "alignment" if "alignment" in answer else "teacher_overlap"
        values = answer[name].values.reshape(3001, -1)[:, 0]
        square = values if name == "alignment" else values**2
        assert found[level] == pytest.approx(np.interp(level, square, answer.time.values), rel=2e-3)
    assert found[0.5] < found[LEVEL] < np.inf


def test_the_level_is_stored_and_has_the_default_of_the_teacher(tmp_path):
    assert pair().emergence_level == 0.5
    product = Teacher.polynomial("x1*x2*x3")
    student = Student(activation="erf", width=2)
    assert Problem(student=student, teacher=product, dimension=8).emergence_level == pytest.approx(0.2)
    answer = dynamics.predict_emergence(pair(LEVEL), save_at=dynamics.SaveAt.at([1.0]))
    dynamics.save(answer, tmp_path / "level.nc")
    assert dynamics.Problem.from_dataset(dynamics.load(tmp_path / "level.nc")) == pair(LEVEL)
    assert "squared overlap 0.8" in answer.predicted_emergence_time.attrs["long_name"]
    assert "a neuron first has squared overlap 0.8." in find_findings(answer).tables[0].note
    assert pair(LEVEL) != pair()
    assert "emergence_level" not in pair().parameters()  # as in files of before, which have the default
    assert pair(0.5) == pair()


@pytest.mark.parametrize(
    ("level", "sentence"),
    [
        (1.0, r"^Argument `emergence_level` must be below 1, but is 1\.$"),
        (0.0, r"^Argument `emergence_level` must be finite and positive, but is 0\.0\.$"),
    ],
)
def test_levels_that_no_overlap_has_are_refused(level, sentence):
    with pytest.raises(ValueError, match=sentence):
        pair(level)


MIXED = {4: 1.0, 5: 1.0}


@pytest.mark.parametrize(("level", "side"), [(0.5, -1), (LEVEL, 1)])
def test_a_neuron_that_rests_below_the_level_is_no_first_one(level, side):
    """h4 + h5: at −θ a neuron rests at C = −0.8, where g' = 4s³ − 5s⁴ = 0; squared 0.64, it passes ½ alone."""
    overlaps = [[-0.65], [0.25]]
    start = (overlaps, [[1.0, -0.16], [-0.16, 1.0]], [1e-4, 1e-4])
    problem = pair(level, activation=MIXED, width=2, initial_overlaps=start)
    expected = transit_time([0, 0, 0, 0, 1, 1], overlaps[0 if side < 0 else 1][0], side * np.sqrt(level))
    assert float(predict(problem).predicted_emergence_time[0]) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.thorough
def test_the_flow_agrees_where_the_first_neuron_rests_below_the_level():
    """The neuron at −θ takes r = (0.8⁴ − 0.8⁵)/2, 4 %, of the direction, and slows the other by about as much."""
    start = ([[-0.65], [0.25]], [[1.0, -0.16], [-0.16, 1.0]], [1e-4, 1e-4])
    problem = pair(LEVEL, activation=MIXED, width=2, initial_overlaps=start)
    answer = dynamics.solve_overlaps(problem, save_at=dynamics.SaveAt.at([20.0]), method="explicit", progress=False)
    assert float(answer.emergence_time[0]) == pytest.approx(float(answer.predicted_emergence_time[0]), rel=0.06)


def test_equivalent_overlaps_are_as_far_from_the_level_in_time():
    c = [0, 0, 0, 0, 1.0, 0.6]
    problem = pair(LEVEL, activation={4: 1.0, 5: 0.6})
    for far in (0.2, 0.5):
        near = float(FarSide.of(problem).equivalent(np.array([-far]))[0])
        expected = transit_time(c, -far, -np.sqrt(LEVEL))
        assert transit_time(c, near, np.sqrt(LEVEL)) == pytest.approx(float(expected), rel=1e-8)


def test_a_sweep_keeps_the_level_of_each_point():
    """Of the axis that is swept, and of a teacher that has another one by itself."""
    given = {"study": "prediction", "progress": False, "workers": 1}
    swept = dynamics.sweep(pair(), {"emergence_level": [0.5, LEVEL]}, **given)
    for level in (0.5, LEVEL):
        assert Problem.from_dataset(swept.sel(emergence_level=level)).emergence_level == level
    network = Problem(student=Student(activation="erf", width=2), teacher=Teacher.polynomial("x1"), dimension=8)
    product = changed_problem(network, {"teacher": Teacher.polynomial("x1*x2*x3")})
    assert product.emergence_level == pytest.approx(0.2)
    assert changed_problem(pair(LEVEL), {"k": 4}).emergence_level == LEVEL


@pytest.mark.thorough
def test_a_verdict_of_runs_at_another_level_is_refused():
    runs = sgd_check.simulate(pair(), learning_rate=1e-4, steps=10, seeds=4, progress=False, engine="projected")
    prediction = dynamics.solve_overlaps(pair(LEVEL), save_at=dynamics.SaveAt.at([1.0]), progress=False)
    with pytest.raises(ValueError, match=r"must have the emergence level of the prediction, 0\.8, but has 0\.5\.$"):
        sgd_check.compare(prediction, runs)


def test_the_command_takes_the_level():
    options = {option.key: None for option in command.OPTIONS} | {"model": "overlaps", "seed": 0}
    assert command.build_problem(options | {"emergence_level": LEVEL}).emergence_level == LEVEL
    assert command.build_problem(options).emergence_level == 0.5


def test_labels_and_tables_of_aligned_spans_follow_the_level():
    given = {"activation": "he2", "initial_overlaps": None, "initial_weights": [[0.05, *[0.01] * 47]]}
    answer = dynamics.solve_quadratic(pair(LEVEL, **given), save_at=dynamics.SaveAt.at([1.0, 2.0]))
    assert "by 0.8 in the span" in answer.aligned_time.attrs["long_name"]
    assert "Aligned: 0.8 of the direction" in find_findings(answer).tables[0].note


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The times in the prediction are tested")
def test_figures_of_runs_that_align_have_the_threshold_of_the_level():
    given = {"activation": "he2", "student": "stiefel", "teacher": Teacher([1.0, 0.5]), "width": 2, "dimension": 16}
    problem = Problem(**given, emergence_level=LEVEL)
    tree = sgd_check.check(problem, learning_rate=1e-4, t_max=0.1, seeds=16, progress=False)
    ax = plot_overlaps(tree)
    thresholds = [line.get_ydata() for line in ax.lines if line.get_label() == "aligned"]
    np.testing.assert_array_equal(thresholds, [[LEVEL, LEVEL]])
