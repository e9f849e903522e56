"""Isolated pairs: transit times, norms and losses against closed forms, mpmath, tabulated values and an integrator."""

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.polynomial import polynomial
from scipy.integrate import solve_ivp

from dynamics import Problem, Teacher, solve_decoupled
from dynamics.equations import decoupled
from dynamics.equations.decoupled import solve_pairs
from dynamics.equations.transit import logit_of_square, transit_table, transit_time
from dynamics.theory.prediction import predict

# Escape times and norm growth of one neuron, computed elsewhere in closed form and by 30-digit quadrature; the file
# states its conventions.
ESCAPES = json.loads((Path(__file__).parents[2] / "reference" / "single_neuron_escape.json").read_text())["values"]

LINKS = [{3: 1.0}, {4: 1.0}, {6: 1.0}, {4: 1.0, 6: 0.5}, {3: 1.0, 4: 0.5}, {4: 1.0, 5: 0.3}]


def coefficients_of(link):
    c = np.zeros(max(link) + 1)
    c[list(link)] = list(link.values())
    return c


def pair_problem(link, a, C0, n0):
    overlaps = ([[C0]], [[1.0]], [n0])
    return Problem(activation=link, teacher=Teacher([a]), width=1, dimension=64, initial_overlaps=overlaps)


def integrated(link, a, C0, n0, times):
    w = coefficients_of(link) ** 2
    slope, norm = polynomial.polyder(w), w.sum()

    def rate(_, y):
        C, log_n = y
        return [
            a * polynomial.polyval(C, slope) * (1 - C**2),
            4 * (a * polynomial.polyval(C, w) - np.exp(log_n) * norm),
        ]

    def learned(_, y):
        return np.exp(y[1]) * polynomial.polyval(y[0], w) / norm - a / 2

    start = [C0, np.log(n0)]
    return solve_ivp(rate, (0, times[-1]), start, method="DOP853", rtol=1e-13, atol=1e-15, t_eval=times, events=learned)


@pytest.mark.parametrize("value", ESCAPES, ids=lambda v: f"k{v['k']}-a{v['a']}-{v['m0']}-{v['m1']}")
def test_transit_and_norm_growth_reproduce_tabulated_escapes(value):
    c = coefficients_of({value["k"]: 1.0})
    time = float(transit_time(c, value["m0"], value["m1"])) / value["a"]
    assert time == pytest.approx(float(value["t"]), rel=2e-14)
    ends = logit_of_square([value["m0"], value["m1"]])
    table = transit_table(c, 1, float(ends[0]))
    # The quadrature, which the closed form of a single power hides.
    assert -np.diff(table.remaining(ends))[0] / value["a"] == pytest.approx(float(value["t"]), rel=2e-14)
    assert np.exp(4 * np.diff(table.growth(ends))[0]) == pytest.approx(float(value["rho_ratio"]), rel=1e-14)


@pytest.mark.thorough
@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize(("first", "last"), [(1e-6, 0.5), (0.01, 0.9), (0.3, 0.31), (0.2, 0.999999)])
def test_transit_time_equals_thirty_digit_quadrature(link, first, last):
    mpmath.mp.dps = 30
    terms = [(j, mpmath.mpf(c) ** 2) for j, c in link.items()]

    def integrand(s):
        return 1 / (sum(j * w * s ** (j - 1) for j, w in terms) * (1 - s**2))

    points = [first] + [p for p in (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 0.999) if first < p < last] + [last]
    exact = mpmath.quad(integrand, [mpmath.mpf(p) for p in points])
    # A difference of two times loses what the times have in common.
    loss = float(mpmath.quad(integrand, [mpmath.mpf(first), mpmath.mpf("0.9999999")]) / exact)
    assert float(transit_time(coefficients_of(link), first, last)) == pytest.approx(
        float(exact), rel=2e-14 * max(loss, 5)
    )


def test_negative_start_is_trapped_where_the_slope_of_the_kernel_vanishes():
    even = coefficients_of({4: 1.0, 6: 0.5})
    assert transit_time(even, -0.1, -0.7) == transit_time(even, 0.1, 0.7)
    # g = s⁴ + 4 s⁵ has g'(−0.2) = 0.
    c = coefficients_of({4: 1.0, 5: 2.0})
    assert transit_time(c, -0.1, -0.7) == np.inf
    assert np.isfinite(transit_time(c, -0.1, -0.19))
    assert transit_table(c, -1, -10.0).barrier == pytest.approx(float(logit_of_square(0.2)), abs=1e-12)


@pytest.mark.parametrize("link", LINKS, ids=str)
@pytest.mark.parametrize(("a", "C0", "n0"), [(0.5, 0.1, 1e-4), (1.0, 0.3, 4.0)])
def test_pair_follows_a_tight_integrator(link, a, C0, n0):
    problem = pair_problem(link, a, C0, n0)
    prediction = predict(problem)
    times = np.concatenate([[0.0], np.geomspace(0.05, 4.0, 40) * prediction.predicted_learned_time[0]])
    solution = solve_pairs(problem, prediction, times)
    reference = integrated(link, a, C0, n0, times)
    np.testing.assert_allclose(solution.overlap[:, 0], reference.y[0], rtol=0, atol=5e-12)
    np.testing.assert_allclose(solution.squared_norm[:, 0], np.exp(reference.y[1]), rtol=2e-11)
    assert prediction.predicted_learned_time[0] == pytest.approx(reference.t_events[0][0], rel=1e-11)
    g = polynomial.polyval(reference.y[0], coefficients_of(link) ** 2)
    n, norm = np.exp(reference.y[1]), float(np.sum(coefficients_of(link) ** 2))
    np.testing.assert_allclose(solution.loss, a**2 * norm - 2 * n * a * g + n**2 * norm, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("link", "C0"), [({4: 1.0, 5: 0.3}, -0.2), ({4: 1.0, 5: 2.0}, -0.05), ({4: 1.0, 5: 0.9}, -0.3)]
)
def test_negative_branch_follows_a_tight_integrator_even_where_it_is_trapped(link, C0):
    problem = pair_problem(link, 0.5, C0, 0.01)
    times = np.concatenate([[0.0], np.geomspace(0.5, 400, 40)])
    solution = solve_pairs(problem, predict(problem), times)
    reference = integrated(link, 0.5, C0, 0.01, times)
    # The table ends 1e-7 before the point of rest in ln(C²/(1 − C²)).
    np.testing.assert_allclose(solution.overlap[:, 0], reference.y[0], rtol=0, atol=2e-8)
    np.testing.assert_allclose(solution.squared_norm[:, 0], np.exp(reference.y[1]), rtol=1e-7)


def test_norm_growth_from_a_vanishing_norm_is_the_closed_form():
    # n / n_0 = ((1 − C_0²)/(1 − C²))^(2/k) as n_0 → 0, here for k = 4 up to C = 0.9.
    problem = pair_problem({4: 1.0}, 1.0, 0.3, 1e-14)
    time = float(transit_time(coefficients_of({4: 1.0}), 0.3, 0.9))
    solution = solve_pairs(problem, predict(problem), [time])
    assert solution.squared_norm[0, 0] / 1e-14 == pytest.approx(((1 - 0.09) / (1 - 0.81)) ** 0.5, rel=1e-12)


def test_learned_time_waits_for_a_norm_that_starts_far_too_small():
    # Beyond C = 1 the norm still has to grow e-fold many times: n_0 = 1e-60.
    problem = pair_problem({4: 1.0}, 1.0, 0.5, 1e-60)
    learned = predict(problem).predicted_learned_time[0]
    times = [learned * (1 - 1e-9), learned * (1 + 1e-9)]
    before, after = solve_pairs(problem, predict(problem), times).squared_norm[:, 0]
    assert before < 0.5 < after
    assert learned == pytest.approx(60 * np.log(10) / 4, rel=0.1)


def large_problem(link, initial_norm=0.3):
    teacher = Teacher.power_law(300, 0.8)
    return Problem(activation=link, teacher=teacher, width=400, dimension=1000, initial_norm=initial_norm)


@pytest.mark.thorough
@pytest.mark.parametrize("link", [*LINKS, {4: 1.0, 5: 2.0}], ids=str)
def test_summed_loss_of_many_pairs_equals_the_loss_of_histories(link, monkeypatch):
    problem = large_problem(link)
    prediction = predict(problem)
    last = prediction.predicted_learned_time[np.isfinite(prediction.predicted_learned_time)].max()
    times = np.concatenate([[0.0], np.geomspace(0.01, 2 * last, 60)])
    monkeypatch.setattr(decoupled, "_HISTORY_CHUNK", 1000)
    direct = solve_pairs(problem, prediction, times)
    assert np.isfinite(direct.loss).all()
    monkeypatch.setattr(decoupled, "LARGEST_HISTORY", 1)
    monkeypatch.setattr(decoupled, "_SUM_CHUNK", 64)
    summed = solve_pairs(problem, prediction, times)
    assert summed.overlap is None
    assert summed.squared_norm is None
    np.testing.assert_allclose(summed.loss, direct.loss, rtol=1e-8, atol=1e-16)


def test_unmatched_directions_keep_their_loss():
    problem = Problem(
        activation="he4", teacher=Teacher([1.0, 0.5]), width=1, dimension=8,
        initial_overlaps=([[0.5, 0.1]], [[1.0]], [1e-4]),
    )  # fmt: skip
    solution = solve_pairs(problem, predict(problem), [1e4])
    assert solution.loss[0] == pytest.approx(0.25, abs=1e-14)
    assert np.isnan(solution.overlap[0, 1])


def test_directions_that_are_not_orthonormal_leave_no_loss():
    teacher = Teacher([1.0, 0.5], directions=[[1.0, 0.0], [0.6, 0.8]])
    problem = Problem(activation="he4", teacher=teacher, width=3, dimension=20)
    solution = solve_pairs(problem, predict(problem), [1.0])
    assert np.isnan(solution.loss).all()
    assert solution.notes == (decoupled.NOTE_LEFTOVER, decoupled.NOTE_DIRECTIONS)


def test_low_information_exponent_is_refused():
    with pytest.raises(ValueError, match=r"because directions do not decouple for k <= 2, but .* has k = 2"):
        solve_decoupled(pair_problem({2: 1.0}, 1.0, 0.3, 0.1))


def test_a_link_of_tiny_weight_has_a_table_far_left():
    """There R overflows, and Λ with it; in the middle they are those of h_3 but for the unit of time, 1e160."""
    with np.errstate(all="ignore"):
        table = transit_table([0.0, 0.0, 0.0, 1e-80], 1, -700.0)
    assert table.knots[0] < -690.0
    plain = transit_table([0.0, 0.0, 0.0, 1.0], 1, -16.0)
    at = np.array([-9.0])
    np.testing.assert_allclose(table.remaining(at) * 1e-160, plain.remaining(at), rtol=1e-12)
