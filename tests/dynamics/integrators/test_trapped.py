"""Neurons trapped beside a learned direction, and waits of 1e13: no method hangs, and the answers are right."""

import numpy as np
import pytest
from overlap_equations import across, field
from scipy.integrate import solve_ivp

import dynamics
from benchmarks.random_problems import event_times, random_problem
from dynamics.equations.overlaps import OverlapSystem
from dynamics.equations.vectors import unit_vectors
from dynamics.integrators.large_flow import HELD_UP

#: Horizons of the benchmark.
LAST = {90: 1.522e10, 109: 2.840e13, 155: 4.906e12}


def solve(index, method, rtol=1e-6, **options):
    """The flow at 60 times of the benchmark's horizon, full where the problem is small."""
    return dynamics.solve_overlaps(
        random_problem(index), save_at=dynamics.SaveAt.geometric(1.0, LAST[index], 60), method=method, rtol=rtol,
        progress=False, error_estimate=False, **options,
    )  # fmt: skip


def tried(flow):
    return flow.attrs["steps_accepted"] + flow.attrs["steps_rejected"]


def lsoda(asked, times):
    """C, G, n at `times` by LSODA with a dense Jacobian by complex steps, from the equation as it is written."""
    U, log_norm = unit_vectors(asked)
    m, D = U.shape
    a, P = asked.teacher.coefficients, asked.num_directions

    def unit(y):
        rows = y[: m * D].reshape(m, D)
        return rows / np.sqrt(np.sum(rows**2, axis=1))[:, None]

    def rhs(_t, y):
        U = unit(y)
        F, growth = field(asked.activation, a, np.eye(P, D), U, np.exp(y[m * D :]))
        return np.concatenate([across(F, U).ravel(), 4.0 * growth])

    def jacobian(t, y):
        return np.array([rhs(t, y + 1e-30j * e).imag / 1e-30 for e in np.eye(y.size)]).T

    start = np.concatenate([U.ravel(), log_norm])
    found = solve_ivp(rhs, (0.0, times[-1]), start, method="LSODA", jac=jacobian, t_eval=times, rtol=1e-7, atol=1e-11)
    assert found.success
    return [(unit(y)[:, :P], unit(y) @ unit(y).T, np.exp(y[m * D :])) for y in found.y.T]


@pytest.mark.long
@pytest.mark.kernels
def test_three_neurons_agree_with_a_dense_implicit_method():
    """Measured: C to 3e-7, G to 8e-9 with all of them, most of it the referee's own error; 0.05 s with "bdf"."""
    times = np.array([1e3, 1e5, 1e7, 1e8, 1e9, LAST[90]])
    asked = random_problem(90)
    expected = lsoda(asked, times)
    loss = OverlapSystem(asked).loss
    for method, rtol, steps in (("bdf", 1e-6, 4000), ("stiff", 1e-6, 4000), ("bdf", 1e-10, 20000)):
        flow = dynamics.solve_overlaps(
            asked, save_at=dynamics.SaveAt.at(times), method=method, rtol=rtol, progress=False, error_estimate=False
        )
        assert flow.attrs["stop_reason"] == "reached_end"
        assert tried(flow) < steps
        for k, (C, G, n) in enumerate(expected):
            np.testing.assert_allclose(flow.teacher_overlap[k], C, atol=1e-6)
            np.testing.assert_allclose(flow.student_overlap[k], G, atol=1e-6)
            assert float(flow.loss[k]) == pytest.approx(loss(C, G, n), abs=1e-8)
        # The neuron is still where g' is 0 with the second direction until 1e7, then has moved on along the first.
        assert float(flow.teacher_overlap[2, 1, 1]) == pytest.approx(-0.482143, abs=1e-5)
        assert float(flow.teacher_overlap[-1, 1, 0]) == pytest.approx(0.885807, abs=1e-5)


@pytest.mark.long
def test_many_neurons_reach_the_horizon():
    asked = random_problem(155)
    flows = {method: solve(155, method, keep="summary") for method in ("bdf", "stiff")}
    for flow in flows.values():
        assert flow.attrs["stop_reason"] == "reached_end"
        assert tried(flow) < 50000
        # Two directions stay unlearned; the trapped neuron, of norm 2e-5, takes 1e-9 off.
        unlearned = np.isnan(flow.emergence_time.values)
        assert unlearned.sum() == 2
        assert float(flow.loss[-1]) == pytest.approx(np.sum(asked.teacher.coefficients[unlearned] ** 2), abs=1e-7)
    assert HELD_UP in flows["stiff"].attrs["fallback"]
    # Measured 7e-7.
    np.testing.assert_allclose(event_times(flows["bdf"]), event_times(flows["stiff"]), rtol=1e-5)


@pytest.mark.long
@pytest.mark.kernels
def test_an_escape_after_a_wait_of_1e13_is_resolved():
    """The third neuron is alone by then: c' = a g'(c) (1 − c²) has a closed solution from its overlap at 1e10 on."""
    asked = random_problem(109)

    def transit(u):
        """∫ du / (16 a u^4 (1 − u)), u = c², for g = s^8."""
        return (-1 / (3 * u**3) - 1 / (2 * u**2) - 1 / u + np.log(u / (1 - u))) / (16 * asked.teacher.coefficients[2])

    flows = [solve(109, method, keep="full") for method in ("bdf", "stiff")]
    for flow in flows:
        assert flow.attrs["stop_reason"] == "reached_end"
        assert tried(flow) < 6000
        assert abs(float(flow.loss[-1])) < 1e-12
        start = flow.sel(time=1e10, method="nearest")
        expected = float(start.time) + transit(0.5) - transit(float(start.teacher_overlap[2, 2]) ** 2)
        # Measured 8e-7 with "bdf", 2e-7 with "stiff".
        assert float(flow.emergence_time[2]) == pytest.approx(expected, rel=5e-6)
    # Measured 1e-6.
    np.testing.assert_allclose(event_times(flows[0]), event_times(flows[1]), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("device", "last"), [(None, 1.05e5), ("cpu", 4e3)])
def test_states_inside_steps_are_as_good_as_their_ends(device, last):
    """At rest a step is as long as stability allows; how far its polynomial strays was left to chance, that is to last bits."""
    asked, times = random_problem(90), np.geomspace(1.5e3, last, 300)
    options = {"save_at": dynamics.SaveAt.at(times), "progress": False, "error_estimate": False}
    expected = dynamics.solve_overlaps(asked, method="bdf", rtol=1e-10, **options).teacher_overlap
    for rtol in (1e-5, 1e-8):
        flow = dynamics.solve_overlaps(asked, method="stiff", rtol=rtol, device=device, **options)
        assert "fallback" not in flow.attrs
        np.testing.assert_allclose(flow.teacher_overlap, expected, rtol=0, atol=3 * rtol)
