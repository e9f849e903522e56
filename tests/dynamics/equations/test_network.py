"""Answers about networks: accepted losses, events and plateaus, agreement of methods, files, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_calls import Kernels
from network_reference import rates_of_state, velocities
from scipy.linalg import sqrtm
from scipy.optimize import root

import dynamics
from dynamics.equations.network.system import NetworkSystem
from dynamics.report.networks import network_findings
from dynamics.runs.trackers import LARGEST_SERIES_ERROR
from dynamics.theory.components import default_network_times

TIMES = dynamics.SaveAt.at([0.0, 1.0, 5.0, 20.0])
TIGHT = {"rtol": 1e-11, "atol": 1e-13, "error_estimate": False, "progress": False}
polynomial = dynamics.Teacher.polynomial


def two_units(link):
    return dynamics.Teacher([1.0, -0.6], directions=[[1.0, 0.0], [0.6, 0.8]], links=[link] * 2)


def problem_of(m, teacher, link="erf", biases="trained", d=3, **settings):
    """The start of the accepted numbers: W_ij = .7 cos(1 + 2i + 3j), v_i = .8 cos(1 + 2i), b_i = .3 sin(1 + i)."""
    i = np.arange(m)
    if biases != "none":
        settings["initial_biases"] = 0.3 * np.sin(1 + i)
    student = dynamics.Student(
        activation=link, width=m, initial_second_layer=0.8 * np.cos(1 + 2 * i), biases=biases, **settings
    )
    weights = 0.7 * np.cos(1 + 2 * i[:, None] + 3 * np.arange(d))
    return dynamics.Problem(student=student, teacher=teacher, dimension=d, initial_weights=weights)


CASE_1 = problem_of(3, two_units("erf"), scale=3**-0.5, rates=(1, 0.5, 0.25), decay=(0.01, 0.02))
CASE_3 = problem_of(4, polynomial("x1 + x1*x2 + x1*x2*x3"))
CASE_5 = problem_of(3, two_units("relu"), "relu", "none")
#: Losses at t = 0, 1, 5, 20 by quadrature in R³.
ACCEPTED = {
    "decay and rates": (CASE_1, [0.089933357696, 0.076298627257, 0.046082879123, 0.020613329785]),
    "two links": (problem_of(3, dynamics.Teacher([0.8, -0.5], links=["he3", "erf"])), [1.058317880836, 0.775688303267, 0.672374066494, 0.642190555540]),
    "staircase": (CASE_3, [2.835905278332, 2.354230714023, 1.885921865582, 1.347917252201]),
    "sphere": (problem_of(3, polynomial("x1 + x1*x2"), first_layer="sphere", rates=(1, 0.7, 0.4)), [1.723588700827, 1.443586741982, 1.043977771743, 0.689514327314]),
    "relu": (CASE_5, [0.443220500651, 0.1839459969, 0.0561511158, 0.0261966411]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, "explicit") for name in ACCEPTED if name != "two links"),
        pytest.param("two links", "explicit", marks=pytest.mark.long),
        *(pytest.param(name, "bdf", marks=pytest.mark.long) for name in ACCEPTED),
    ],
)
def test_losses_are_those_of_quadrature_in_space(name, method):
    problem, wanted = ACCEPTED[name]
    found = dynamics.solve_problem(problem, save_at=TIMES, method=method, **TIGHT)
    assert found.attrs["answer"] == "network"
    np.testing.assert_allclose(found.loss, wanted, rtol=0, atol=1e-9)


def test_relu_keeps_the_difference_of_its_layers():
    found = dynamics.solve_problem(CASE_5, save_at=TIMES, **TIGHT)
    kept = found.squared_norm - found.second_layer**2
    assert np.abs(kept - kept[0]).max() < 1e-12
    unequal = replace(CASE_5, student=replace(CASE_5.student, rates=(2.0, 0.5, 1.0)))
    found = dynamics.solve_problem(unequal, save_at=TIMES, **TIGHT)
    kept = found.squared_norm / 2.0 - found.second_layer**2 / 0.5
    assert np.abs(kept - kept[0]).max() < 1e-12
    assert np.abs(found.second_layer - found.second_layer[0]).max() > 0.1


@pytest.mark.parametrize("first_layer", ["free", "sphere"])
def test_a_step_of_descent_is_one_in_weight_space(first_layer):
    student = replace(CASE_1.student, first_layer=first_layer)
    problem, eta = replace(CASE_1, student=student), 0.3
    (dv, db, dM, _), _ = rates_of_state(problem, "erf", ("erf", "erf"))
    stepped = dynamics.solve_problem(
        problem, save_at=dynamics.SaveAt.at([0.0, eta]), method="gradient-descent", learning_rate=eta, progress=False
    )
    v, b, W = problem.network_start()
    np.testing.assert_allclose(stepped.second_layer[1], v + eta * dv, rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.bias[1], b + eta * db, rtol=0, atol=1e-11)
    (_, _, dW), _ = velocities(problem, "erf", ("erf", "erf"))
    moved = W + eta * dW
    if first_layer == "sphere":
        moved *= (np.linalg.norm(W, axis=1) / np.linalg.norm(moved, axis=1))[:, None]
    else:
        np.testing.assert_allclose(moved[:, :2] - W[:, :2], eta * dM, rtol=0, atol=1e-14)
    Q = moved @ moved.T
    length = np.sqrt(np.diag(Q))
    np.testing.assert_allclose(stepped.squared_norm[1], np.diag(Q), rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.student_overlap[1], Q / np.outer(length, length), rtol=0, atol=1e-11)
    np.testing.assert_allclose(stepped.teacher_overlap[1], moved[:, :2] / length[:, None], rtol=0, atol=1e-11)


def leap_problem(text, d, m=8):
    i = np.arange(m)
    M = np.sqrt(2.0 / d) * np.cos(1 + 2 * i[:, None] + 3 * np.arange(3))
    student = dynamics.Student(
        activation="erf", width=m, first_layer="sphere", scale="1/m", rates=(m, m, 0), biases="fixed",
        initial_biases=np.sin(1 + i),
    )  # fmt: skip
    weights = np.hstack([M, np.real(sqrtm(np.eye(m) - M @ M.T))])
    return dynamics.Problem(student=student, teacher=polynomial(text), dimension=d, initial_weights=weights)


@pytest.mark.parametrize(
    ("text", "d", "wanted"),
    [
        ("x1 + x1*x2 + x1*x2*x3", 10**3, [0.901637, 4.192621, 12.974536]),
        ("x1 + x1*x2 + x1*x2*x3", 10**7, [0.925709, 4.227008, 13.094385]),
        ("x1 + x1*x2*x3", 10**3, 14.063268),
        ("x1 + x1*x2*x3", 10**7, 21.429911),
    ],
)
def test_axes_are_found_at_the_accepted_times(text, d, wanted):
    found = dynamics.solve_problem(leap_problem(text, d), save_at=dynamics.SaveAt.at([0.0, 25.0]), **TIGHT)
    times = found.emergence_time.values
    np.testing.assert_allclose(times if np.ndim(wanted) else times.max(), wanted, rtol=0, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("link", "K", "T", "wanted"),
    [
        ("erf", 2, 200.0, 0.0232216806),
        ("erf", 3, 300.0, 0.0405931773),
        ("relu", 2, 60.0, 0.1472258651),
        ("relu", 3, 60.0, 0.3173032434),
        ("relu", 5, 40.0, 0.6780698740),
    ],
)
def test_committees_wait_at_the_accepted_losses(link, K, T, wanted):
    """The flow from far away comes near the saddle, from which Newton's iteration on the flow goes to it."""
    student = dynamics.Student(activation=link, width=K, second_layer="fixed", initial_second_layer=np.ones(K))
    problem = dynamics.Problem(
        student=student, teacher=dynamics.Teacher(np.ones(K)), dimension=10**18, initial_norm=0.5
    )
    flow = dynamics.solve_problem(problem, save_at=dynamics.SaveAt.linear(0.0, T, 401), **TIGHT)
    slowest = int(np.argmin(np.abs(np.diff(flow.loss.values))))
    assert flow.loss.values[slowest] == pytest.approx(wanted, abs=1e-4)
    kernels, off = Kernels(NetworkSystem(problem)), ~np.eye(K, dtype=bool)
    n, C, G = (flow[name].values[slowest] for name in ("squared_norm", "teacher_overlap", "student_overlap"))

    def state(parts):
        overlap, square, other = parts
        Q = np.where(off, other, square)
        return kernels.system.pack(np.ones(K), np.zeros(K), np.full((K, K), overlap), Q)

    def rates(parts):
        _, _, dM, dQ = kernels.system.unpack(kernels.rhs(state(parts)))
        return dM[0, 0], dQ[0, 0], dQ[0, 1]

    guess = [np.sqrt(n.mean()) * C.mean(), n.mean(), n.mean() * G[off].mean()]
    saddle = root(rates, guess, tol=1e-13)
    assert kernels.system.loss(state(saddle.x)) == pytest.approx(wanted, abs=1e-9)
    if link == "relu":
        assert saddle.x[1] > 1.2 * saddle.x[2]  # neurons repel each other beyond the teacher's span


@pytest.mark.long
@pytest.mark.parametrize(("d", "wanted"), [(10**4, 1.151280), (10**8, 2.302585)])
def test_phase_retrieval_leaves_its_plateau_at_the_accepted_time(d, wanted):
    student = dynamics.Student(activation="z**2", width=1, second_layer="fixed", initial_second_layer=[1.0])
    weights = np.sqrt([[1.0 / (3.0 * d), (1.0 - 1.0 / d) / 3.0]])  # at the saddle |w|² = 1/3 but for 1/√d
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher([1.0]), dimension=d, initial_weights=weights)
    found = dynamics.solve_problem(problem, save_at=dynamics.SaveAt.linear(0.0, 7.0, 141), **TIGHT)
    assert found.emergence_time.item() == pytest.approx(wanted, abs=1e-6)
    assert abs(found.loss.values[0] - 8.0 / 3.0) < 2.0 / d
    assert abs(found.squared_norm.values[1, 0] - 1.0 / 3.0) < 2.0 / d
    assert found.loss.values[-1] < 1e-9


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["explicit", "bdf", "sundials", "scipy:DOP853"])
def test_all_methods_agree(method):
    if method == "sundials":
        pytest.importorskip("sksundae")
    found = dynamics.solve_problem(CASE_3, save_at=TIMES, method=method, rtol=1e-9, atol=1e-11, progress=False)
    wanted = dynamics.solve_problem(CASE_3, save_at=TIMES, method="explicit", **TIGHT)
    np.testing.assert_allclose(found.loss, wanted.loss, rtol=0, atol=2e-8)
    np.testing.assert_allclose(found.component, wanted.component, rtol=0, atol=2e-8)
    np.testing.assert_allclose(found.component_learned_time, wanted.component_learned_time, rtol=1e-7)


def test_the_error_falls_with_the_tolerance_and_is_estimated():
    wanted = dynamics.solve_problem(CASE_3, save_at=TIMES, **TIGHT).loss.values
    for rtol in (1e-5, 1e-7, 1e-9):
        found = dynamics.solve_problem(CASE_3, save_at=TIMES, rtol=rtol, atol=1e-2 * rtol, progress=False)
        error = np.abs(found.loss.values - wanted).max()
        assert error < 3.0 * rtol
        assert error <= 10.0 * found.loss_error.values.max()


def refused(problem, **options):
    with pytest.raises(ValueError, match=r"^Argument") as caught:
        dynamics.solve_problem(problem, save_at=TIMES, progress=False, **options)
    return str(caught.value)


def test_neurons_that_start_alike_are_refused():
    start = {"initial_second_layer": [0.5, 0.3, 0.5], "second_layer": "fixed"}
    weights = np.array([[0.5, 0.1, 0.4, 0.0], [0.2, 0.7, 0.0, 0.0], [0.5, 0.1, 0.0, 0.4]])

    def problem(**changes):
        student = dynamics.Student(activation="erf", width=3, **(start | changes))
        return dynamics.Problem(student=student, teacher=polynomial("x1 + x2"), dimension=9, initial_weights=weights)

    assert refused(problem()) == (
        "Argument `problem` must start every two neurons apart, in second layer, bias, or overlaps with the teacher "
        "and the other neurons, but neurons 0 and 2 start alike: the flow would keep them so for ever, which SGD does "
        "not."
    )
    apart = problem(initial_second_layer=[0.5, 0.3, 0.4])
    assert NetworkSystem(apart).initial_state.size == 3 + 3 + 6 + 9
    weights[2, 3], weights[2, 2] = 0.3, np.sqrt(0.16 - 0.09)  # another overlap with neuron 0 changes nothing
    assert "neurons 0 and 2" in refused(problem())
    weights[1, 2] = 0.1  # neuron 1 tells them apart
    assert NetworkSystem(problem()).initial_state.size == 21


def test_pairs_of_opposite_neurons_start_at_zero_and_move():
    student = dynamics.Student(activation="erf", width=6, initial_second_layer="pairs")
    problem = dynamics.Problem(student=student, teacher=two_units("erf"), dimension=50)
    found = dynamics.solve_problem(problem, save_at=TIMES, progress=False)
    assert found.loss.values[0] == pytest.approx(found.attrs["teacher_loss"], rel=1e-13)
    assert found.loss.values[-1] < 0.2 * found.loss.values[0]


@pytest.mark.long
def test_a_component_that_no_neuron_can_carry_is_warned_of():
    problem = problem_of(3, polynomial("x1 + x1*x2*x3"), "relu", "none")
    with pytest.warns(UserWarning, match=r"^No neuron ever carries x1\*x2\*x3: the mean derivative of relu"):
        found = dynamics.solve_problem(problem, save_at=TIMES, progress=False)
    assert "No neuron ever carries x1*x2*x3" in found.attrs["notes"]
    assert np.abs(found.component.sel(component_name="x1*x2*x3")).max() < 1e-14
    assert np.abs(found.component.sel(component_name="x1")).max() > 0.1


@pytest.mark.long
@pytest.mark.parametrize("method", ["explicit", "bdf"])
def test_a_run_ends_where_a_series_no_longer_stands_for_its_link(method):
    start = problem_of(3, dynamics.Teacher([1.0], links=["sign"]), "tanh", "none")
    problem = replace(start, initial_weights=3.0 * start.initial_weights)
    found = dynamics.solve_problem(
        problem, save_at=dynamics.SaveAt.at([0.0, 1.0, 1e5]), method=method, on_failure="return", progress=False
    )
    assert found.attrs["stop_reason"] == "series_too_short"
    assert found.series_error.values[1] < LARGEST_SERIES_ERROR
    assert 1.0 < found.attrs["end_time"] < 1e5
    # It stood at the end of the table, |w| = 8, when no further step could be taken.
    with pytest.raises(dynamics.SolveError, match="A neuron has a length or a bias at which the series of its link"):
        dynamics.solve_problem(
            problem, save_at=dynamics.SaveAt.at([0.0, 1e5]), method=method, progress=False, error_estimate=False
        )


@pytest.mark.thorough
@pytest.mark.parametrize("link", ["gelu", "tanh"])
def test_a_start_at_which_a_series_does_not_stand_for_its_link_is_named(link):
    """Biases of 6 and -5, at which nothing has grown yet."""
    student = dynamics.Student(
        activation=link, width=3, second_layer="fixed", biases="trained", initial_biases=[6.0, -5.0, 3.0]
    )
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher([1.0]), dimension=64)
    with pytest.raises(dynamics.SolveError, match=r"at t = 0 .* length or a bias .* not accurate: start with smaller"):
        dynamics.solve_problem(problem, progress=False)


@pytest.mark.parametrize("link", ["tanh", "erf", "sigmoid"])
def test_by_default_a_network_is_followed_until_it_tells_two_units_apart(link):
    """Of odd links, but for a constant, weak degrees from 3 on decide, long after degree 1 is learned."""
    student = dynamics.Student(activation=link, width=8)
    problem = dynamics.Problem(student=student, teacher=dynamics.Teacher.power_law(2, beta=1.0), dimension=256)
    assert np.isfinite(dynamics.solve_network(problem, rtol=1e-5, progress=False).emergence_time).all()


def test_the_default_end_waits_for_the_next_degree_where_several_units_have_degree_1():
    """20/(3 a c_3²) or 20/(2 a c_2²), as D_j D*_j/(j-1)! = j c_j², beside 20 times Σ 1/(a c_1²)."""
    c_1, c_2, c_3 = 0.8, 0.6, 0.2

    def end(link, coefficients, *, is_short=False):
        student = dynamics.Student(activation=link, width=4)
        teacher = dynamics.Teacher(coefficients)
        problem = dynamics.Problem(student=student, teacher=teacher, dimension=64)
        return default_network_times(problem, is_short=is_short).times[-1]

    escapes = 1.0 / c_1**2 + 2.0 / c_1**2
    assert end(f"{c_1}*h1 + {c_3}*h3", [1.0, 0.5]) == pytest.approx(20.0 * (escapes + 2.0 / (3.0 * c_3**2)))
    assert end(f"{c_1}*h1 + {c_3}*h3", [1.0, 0.5], is_short=True) == pytest.approx(20.0 * escapes)
    assert end(f"{c_1}*h1 + {c_3}*h3", [0.5]) == pytest.approx(20.0 * 2.0 / c_1**2)
    assert end(f"{c_1}*h1 + {c_2}*h2", [1.0, 0.5]) == pytest.approx(20.0 * (escapes + 1.0 / c_2**2))
    assert end(f"{c_2}*h2 + {c_3}*h3", [1.0, 0.5]) == pytest.approx(20.0 * 3.0 * np.log(64.0) / (2.0 * c_2**2))
    assert end("h3", [1.0, 0.5]) == pytest.approx(20.0 * 3.0 * 8.0 / 3.0)


def test_a_network_that_ends_early_names_a_later_end():
    problem = problem_of(3, two_units("erf"))
    flow = dynamics.solve_network(problem, t_max=0.4, rtol=1e-5, progress=False)
    assert network_findings(flow).cautions == [
        "No neuron lies along x2 by the end. With a later `t_max`, such as 4, one may; their times are unknown (censored)."
    ]
