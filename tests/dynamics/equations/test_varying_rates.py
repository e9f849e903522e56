"""Schedules in the mean equations: two rates against two runs of one rate each, and smooth ones against quadrature."""

from dataclasses import replace

import numpy as np
import pytest
from from_python import from_python
from processes import interrupt_run
from scipy import integrate

import dynamics
import sgd_check
from dynamics import Callback, Problem, SaveAt, Student, Teacher, cosine, piecewise, power_law_decay, step_decay, warmup
from dynamics.equations.correlation import signal_slope, step_means
from dynamics.equations.rates import RateTable, rate_at

HOMOGENEOUS = Problem(
    activation="he3", teacher=Teacher([1.0, 0.6]), width=3, dimension=12, initial_norm=0.3, label_noise=0.2
)
COMMITTEE = Problem(
    activation="erf", teacher=Teacher([1.0, 1.0]), width=2, dimension=20, student="committee", label_noise=0.2
)
CUBIC = replace(COMMITTEE, activation="he3", initial_norm=0.3)
#: Biases and second layer are trained.
NETWORK = Problem(
    student=Student(activation="erf", width=2, biases="trained", initial_biases=0.3),
    teacher=Teacher.polynomial("0.5*x1 + 0.7*x2"), dimension=20, label_noise=0.2,
)  # fmt: skip
NEURON = Problem(
    activation="he3", teacher=Teacher([1.0]), width=1, dimension=200, student="spherical", objective="correlation",
    initial_overlaps=([[0.3]], [[1.0]], [1.0]),
)  # fmt: skip
ANSWERS = {
    "homogeneous": (HOMOGENEOUS, dynamics.solve_overlaps, 0.002),
    "committee": (COMMITTEE, dynamics.solve_committee, 0.01),
    "polynomial committee": (CUBIC, dynamics.solve_committee, 0.0005),
    "network": (NETWORK, dynamics.solve_network, 0.01),
    "correlation": (NEURON, dynamics.solve_correlation, 2e-5),
}


@pytest.mark.parametrize("schedule", [
    cosine(1e-2, 5000, final=1e-4), power_law_decay(1e-2, 0.5, onset=30), step_decay(1e-2, 0.7, 400),
    warmup(1e-2, 40), piecewise([1e-2, 1e-3], [77]),
], ids=str)  # fmt: skip
def test_a_table_has_the_rate_of_every_step_at_its_middle(schedule):
    rates = schedule.table(3000)
    edges = np.concatenate([[0.0], np.cumsum(rates)])
    table = RateTable.until(schedule, edges[2500])
    np.testing.assert_allclose(table.edges, edges[:2501], rtol=1e-13)
    found = [from_python(rate_at)(t, table.nodes) for t in edges[:2500] + 0.5 * rates[:2500]]
    np.testing.assert_allclose(found, rates[:2500], rtol=1.1e-6)
    assert table.nodes.size < 2 * 1200
    assert (from_python(rate_at)(-1.0, table.nodes), from_python(rate_at)(1e9, table.nodes)) == (
        rates[0],
        pytest.approx(rates[2499]),
    )
    np.testing.assert_allclose(table.steps(edges[[0, 3, 2500]]), [0, 3, 2500], atol=1e-9)
    assert table.peak == pytest.approx(rates[:2500].max())
    assert table.effective == pytest.approx(np.sum(rates[:2500] ** 2) / edges[2500])


@pytest.mark.kernels
@pytest.mark.parametrize("name", ANSWERS)
def test_one_rate_that_is_written_as_a_schedule_is_that_rate(name):
    asked, solve, rate = ANSWERS[name]
    given = {"save_at": SaveAt.linear(0.0, 3.0, 4), "batch_size": 2, "progress": False, "rtol": 1e-9, "atol": 1e-11}
    number = solve(asked, learning_rate=rate, **given)
    found = solve(asked, learning_rate=piecewise([rate], []), **given)
    for each in ("loss", "teacher_overlap"):
        np.testing.assert_allclose(found[each], number[each], atol=1e-7)
    np.testing.assert_allclose(found.step, found.time / rate, rtol=1e-9)


@pytest.mark.kernels
@pytest.mark.parametrize(("name", "rate"), [("committee", 1e-3), ("correlation", 1e-6)])
def test_zeroth_order_takes_schedules_too(name, rate):
    asked, solve, _ = ANSWERS[name]
    given = {"save_at": SaveAt.linear(0.0, 2.0, 3), "optimizer": "ZerothOrder(directions=2)", "progress": False}
    number, one, falling = (
        solve(asked, learning_rate=each, **given).loss.values
        for each in (rate, piecewise([rate], []), cosine(rate, round(5.0 / rate)))
    )
    np.testing.assert_allclose(one, number, rtol=1e-6)
    assert abs(falling[-1] / number[-1] - 1.0) > 1e-3


@pytest.mark.kernels
@pytest.mark.parametrize("name", ["homogeneous", "committee", "polynomial committee", "correlation"])
def test_two_rates_are_two_runs_of_one_rate(name):
    """The second run starts from the overlaps at the end of the first."""
    asked, solve, rate = ANSWERS[name]
    steps, later = round(1.0 / rate), 0.2 * rate
    given = {"progress": False, "rtol": 1e-9, "atol": 1e-11}
    first = solve(asked, learning_rate=rate, save_at=SaveAt.at([steps * rate]), **given).isel(time=0)
    C, G = first.teacher_overlap.values, np.eye(asked.width)
    if "student_overlap" in first:
        G = first.student_overlap.values
    norms = first.squared_norm.values if "squared_norm" in first else np.ones(1)
    second = replace(asked, initial_norm=None, initial_overlaps=(C, G, norms))
    rest = solve(second, learning_rate=later, save_at=SaveAt.at([0.0, 1.0, 2.0]), **given)
    both = solve(asked, learning_rate=piecewise([rate, later], [steps]), save_at=SaveAt.at([1.0, 2.0, 3.0]), **given)
    for each in ("loss", "teacher_overlap"):
        np.testing.assert_allclose(both[each], rest[each], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(both.step, steps * np.array([1, 6, 11]), rtol=1e-6)


@pytest.mark.kernels
def test_the_best_schedule_arrives_where_it_says():
    """By Σ η too: dC/dt = D − ½ η(t) C E|u|² by scipy, and n* steps at the end."""
    asked = replace(NEURON, dimension=900)
    best = dynamics.best_schedule(asked, 0.9)
    edges = np.concatenate([[0.0], np.cumsum(best.table(round(best.steps)))])
    times = np.interp(np.array([0.25, 0.5, 0.75, 1.0]) * (edges.size - 1), np.arange(edges.size), edges)
    found = dynamics.solve_correlation(asked, learning_rate=best, save_at=SaveAt.at(times), progress=False)
    middles = 0.5 * (edges[1:] + edges[:-1])
    drag, slope = step_means(asked).drag, signal_slope(asked)

    def velocity(t, C):
        rate = np.interp(t, middles, np.diff(edges))
        return np.polynomial.polynomial.polyval(C, slope) * (1 - C**2) - 0.5 * rate * C * drag(C)

    exact = integrate.solve_ivp(velocity, (0, times[-1]), [0.3], t_eval=times, rtol=1e-10, atol=1e-12).y[0]
    np.testing.assert_allclose(found.teacher_overlap[:, 0, 0], exact, rtol=1e-6)
    assert exact[-1] == pytest.approx(0.9, abs=1e-4)
    np.testing.assert_allclose(found.step[-1], best.steps, rtol=1e-4)
    assert found.attrs["schedule"] == "best_schedule(0.9)"
    again = dynamics.solve_correlation(
        asked, learning_rate="best_schedule(0.9)", save_at=SaveAt.at(times), progress=False
    )
    np.testing.assert_array_equal(again.teacher_overlap, found.teacher_overlap)


@pytest.mark.thorough
@pytest.mark.kernels
@pytest.mark.statistical
def test_means_of_runs_follow_the_equation():
    """Mean loss of 400 runs, t ≤ 3, within five standard errors and the order η of the map; seeds are fixed."""
    asked, solve, rate = ANSWERS["committee"]
    given = {"learning_rate": f"cosine({1.5 * rate!r}, {round(4.2 / rate)})", "save_at": SaveAt.linear(0.5, 3.0, 4)}
    theory = solve(asked, **given, progress=False)
    runs = sgd_check.simulate(asked, **given, steps=round(4.1 / rate), seeds=400, progress=False)
    mean, error = runs.loss.mean("seed").values, runs.loss.std("seed").values / 20.0
    assert (np.abs(mean - theory.loss.values) < 5.0 * error + 4.0 * rate * theory.loss.values[0]).all()
    assert theory.attrs["schedule"] == runs.attrs["schedule"]
    np.testing.assert_allclose(theory.step, runs.step, atol=0.51)


@pytest.mark.kernels
def test_runs_are_compared_with_the_equation_of_their_schedule():
    given = {"learning_rate": "power_law_decay(0.002, 0.3, onset=200)", "progress": False}
    asked = replace(HOMOGENEOUS, initial_norm=0.1)
    theory = dynamics.solve_overlaps(asked, **given, save_at=SaveAt.geometric(0.05, 8.0, 60))
    runs = sgd_check.simulate(asked, **given, steps=15_000, seeds=16)
    assert sgd_check.compare(theory, runs)["comparison"].attrs["theory"] == "finite step"
    other = sgd_check.simulate(asked, **given | {"learning_rate": 0.002}, steps=100, seeds=2)
    with pytest.raises(ValueError, match="learning rate of the prediction, power_law_decay"):
        sgd_check.compare(theory, other)


@pytest.mark.kernels
def test_a_run_under_a_schedule_is_resumed_from_its_file(tmp_path):
    path = tmp_path / "run.nc"
    given = {"learning_rate": cosine(0.002, 4000), "save_at": SaveAt.linear(0.0, 3.5, 8), "progress": False}
    whole = dynamics.solve_overlaps(HOMOGENEOUS, **given)
    with pytest.raises(dynamics.SolveInterrupted):
        dynamics.solve_overlaps(
            HOMOGENEOUS, **given, checkpoint=path,
            trackers=[Callback(lambda t, _: interrupt_run() if t > 1.0 else None)],
        )  # fmt: skip
    found = dynamics.resume(path, progress=False)
    np.testing.assert_array_equal(found.loss, whole.loss)
    assert found.attrs["schedule"] == "cosine(0.002, 4000)"


SPHERICAL = Problem(activation="he3", teacher=Teacher([1.0]), width=2, dimension=12, student="spherical")
RATES = {"learning_rate": "cosine(0.001, 100)", "save_at": SaveAt.at([0.03]), "progress": False}


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda: dynamics.solve_overlaps(HOMOGENEOUS, **RATES | {"learning_rate": dynamics.silver(0.01)}), ValueError,
         "Argument `learning_rate` must not be silver steps, whose longest diverge unless the loss is convex: that of a "
         "student is not, and bears steps up to 2/λ_max, which is 2/(max(4, k) a_1) for one h_k pair; but is silver(0.01). "
         "`dynamics.descent_loss` takes them."),
        (lambda: dynamics.solve_overlaps(HOMOGENEOUS, **RATES | {"learning_rate": abs}), TypeError,
         "Argument `learning_rate` must be a number or a schedule such as dynamics.cosine(0.01, 100000), but is "
         "<built-in function abs>; `sgd_check.simulate` takes other functions."),
        (lambda: dynamics.solve_overlaps(HOMOGENEOUS, **RATES, method="gradient-descent"), ValueError,
         "Argument `learning_rate` must be one number for method 'gradient-descent', but is cosine(0.001, 100)."),
        (lambda: dynamics.solve_overlaps(HOMOGENEOUS, **RATES | {"save_at": SaveAt.at([0.06])}), ValueError,
         "Argument `save_at` must end by the time 0.0505, Σ η of the 100 steps of cosine(0.001, 100) with a positive rate, but "
         "ends at 0.06."),
        (lambda: dynamics.solve_overlaps(HOMOGENEOUS, **RATES, optimizer="SGD(momentum=0.9)"), ValueError,
         "Argument `learning_rate` must be one number for an optimizer other than plain SGD and ZerothOrder, but varies for "
         "SGD(momentum=0.9)."),
        (lambda: dynamics.solve_overlaps(replace(HOMOGENEOUS, inputs=dynamics.Inputs([1.5, 0.9], [2, 10])), **RATES),
         ValueError, "Argument `problem` must have isotropic inputs for a learning rate that varies, but has "
         "Inputs([1.5, 0.9], [2, 10])."),
        (lambda: dynamics.solve_network(replace(NETWORK, student=Student(activation="erf", width=2, first_layer="sphere")),
                                        **RATES), ValueError,
         "Argument `problem` must have a student with a free first layer for a learning rate that varies, which is not known "
         "on the sphere."),
        (lambda: dynamics.solve_spherical(SPHERICAL, **RATES, step_theory="infinite-d"), ValueError,
         "Argument `learning_rate` must be one number for a spherical student with the squared error, but is "
         "cosine(0.001, 100)."),
    ],
)  # fmt: skip
def test_what_no_equation_knows_is_refused_in_one_sentence(call, kind, sentence):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.kernels
def test_readers_of_one_rate_refuse_a_schedule(tmp_path):
    alone = replace(HOMOGENEOUS, width=1, teacher=Teacher([1.0]), initial_norm=0.1)
    answer = dynamics.solve_overlaps(alone, **RATES)
    assert answer.attrs["learning_rate"] == "schedule"
    with pytest.raises(
        ValueError, match=r"`answer` must be one of one learning rate, but is one of cosine\(0.001, 100\)"
    ):
        dynamics.learning_steps(answer, direction=1)
    with pytest.raises(ValueError, match="`x` must be 'time' for an answer whose learning rate varies, but is 'steps'"):
        dynamics.plot_loss(answer, x="steps")
    assert "cosine(0.001, 100) up to 0.001" in answer.attrs["notes"]
    dynamics.write_report(answer, tmp_path / "report.html")
