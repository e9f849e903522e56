"""Fast sources of the large-flow solver, which take a step in several parts: against scipy."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import hermite
from dynamics import Problem, Teacher
from dynamics.integrators.explicit_kernels import DOP853_C
from dynamics.integrators.large_flow import LargeFlowStepper

S, M, D, H = 3, 5, 12, 0.6
LINK = hermite.expand({3: 0.6, 4: 0.8})


def one_step(parts):
    """A step in some parts, of three sources that feel each other, the teacher and a rest that changes like t²."""
    rng = np.random.default_rng(5)
    U = 0.4 * np.eye(M, D) + 0.25 * rng.standard_normal((M, D))
    U[S:, :3] *= 0.1
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    n = np.where(np.arange(M) < S, 0.3, 1e-9)
    asked = Problem(
        activation=LINK, teacher=Teacher([0.8, 0.6, 0.4]), width=M, dimension=D,
        initial_weights=np.sqrt(n)[:, None] * U,
    )  # fmt: skip
    large = LargeFlowStepper(asked, rtol=1e-2, atol=1e-7)
    columns = large._now.U.shape[1]
    division = large._divider.assemble(np.arange(M) < S, np.full(M, -1), np.ones(M))
    large.rows.fit(division)
    rests = large._rests
    newest = rests.newest_first[0]
    for age in (0.0, 0.7, 1.6):
        slot = newest if age == 0.0 else rests.free_slot()
        rests.times[slot] = -age * H
        rests.rest[slot] = 0.1 * rng.standard_normal((M, columns))
        rests.rest_growth[slot] = 0.1 * rng.standard_normal(M)
        rests.newest_first = np.append(rests.newest_first[: 0 if age == 0.0 else None], slot)
    large._divider.leading = np.full(M, -1)
    step = large._attempt(H, parts, division, np.zeros((0, columns + 1)))
    errors = large.rows.run_sources(step)
    return large, step, errors


def exact(large, step):
    """The same by scipy: a function of the fraction of the step that returns vectors and ln n."""
    link, a = LINK, large.rows.a
    columns, rests = step.begin.U.shape[1], step.rests

    def rates(t, y):
        u, n = y[:-S].reshape(S, columns), np.exp(y[-S:])
        weights = (t / H) ** np.arange(3) @ rests.powers
        C, G = u[:, : a.size], u @ u.T
        F, growth = (np.tensordot(weights, array[rests.slots], 1)[:S] for array in (rests.rest, rests.growth))
        F[:, : a.size] += a * link.kernel_derivative(C)
        F -= link.kernel_derivative(G) * n @ u
        growth = growth + link.kernel(C) @ a - link.kernel(G) @ n
        return np.concatenate([(F - np.sum(F * u, axis=1)[:, None] * u).ravel(), 4.0 * growth])

    start = np.concatenate([step.begin.U[:S].ravel(), step.begin.log_norm[:S]])
    path = solve_ivp(rates, (0.0, H), start, "DOP853", rtol=1e-13, atol=1e-15, dense_output=True, max_step=H / 50).sol

    def at(x):
        y = path(x * H)
        return y[:-S].reshape(S, columns), y[-S:]

    return at


@pytest.mark.thorough
@pytest.mark.kernels
def test_parts_of_a_step_are_steps_of_order_8_through_the_same_rest():
    wrong = {}
    for parts in (1, 2, 4):
        large, step, (error, error_within) = one_step(parts)
        path = exact(large, step)
        places, masses = large.rows.sources.at_stages
        expected = [path(x) for x in DOP853_C]
        end, log_end = path(1.0)
        wrong[parts] = (
            np.abs(step.reached.U[:S] - end).max() + np.abs(step.reached.log_norm[:S] - log_end).max(),
            max(np.abs(place - u).max() for place, (u, _) in zip(places, expected, strict=True)),
            max(np.abs(np.log(mass) - logs).max() for mass, (_, logs) in zip(masses, expected, strict=True)),
            error,
            error_within,
        )
    # Measured 2^8.1 or more at the end, 2^7.4 inside, 2^6.8 and 2^7.4 of the estimates.
    for one, two in ((1, 2), (2, 4)):
        ratios = np.array(wrong[one]) / np.array(wrong[two])
        assert (ratios > 2.0 ** np.array([7.0, 6.0, 6.0, 6.0, 6.0])).all(), ratios
    assert wrong[4][0] < 1e-8
