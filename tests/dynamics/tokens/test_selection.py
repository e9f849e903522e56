"""Selection of tokens: the equations, accepted numbers, plateaus and other lengths."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dynamics
from dynamics import tokens
from dynamics.integrators.descent import EulerStepper


def solved(problem, **options):
    return tokens.solve(problem, progress=False, **options)


def selection(N, q=1, H=1, **fields):
    return tokens.Selection(tokens=N, selected=q, heads=H, **fields)


def page_field(N, q, H):
    """The page's equations in plain numpy, with the attention on all N tokens of one prompt, its first q tokens."""

    def field(_, y):
        U, delta = y[: q * H].reshape(q, H), y[q * H :].reshape(H, q)
        weights = np.exp(np.hstack([delta, np.zeros((H, N - q))]))
        A = weights / weights.sum(axis=1, keepdims=True)
        miss = U @ A - np.eye(q, N)
        by_score = A * (U.T @ miss - ((U.T @ miss) * A).sum(axis=1, keepdims=True))
        return -np.concatenate([(miss @ A.T).ravel(), by_score[:, :q].ravel() / (N - 1)])

    return field


@pytest.mark.kernels
def test_the_equations_of_selection_are_those_of_one_prompt():
    for N, q, H in ((7, 3, 2), (5, 2, 4), (9, 1, 1)):
        system = tokens.system_of(selection(N, q, H, initial_scale=0.8, seed=3))
        found = EulerStepper(system, 0.1).derivative(0.0)
        np.testing.assert_allclose(found, page_field(N, q, H)(0.0, system.initial_state), atol=1e-15)
    steps = tokens.solve(selection(6, 2), dynamics.SaveAt.at([0.0, 10.0]), learning_rate=0.5, progress=False)
    assert steps.loss[1] < steps.loss[0]


@pytest.mark.thorough
def test_one_head_selects_in_the_square_of_the_tokens():
    # The page's times are steps of its own program: 4e-4 off the flow at most.
    for N, time, square in ((16, 335.3, 1.310), (64, 4689.3, 1.145), (256, 69014.6, 1.053), (1024, 1066910.0, 1.0175)):
        found = solved(selection(N), keep="summary")
        learned, closed = float(found.learned_time[0]), float(found.predicted_learned_time[0])
        assert learned == pytest.approx(time, rel=4e-4)
        assert learned / N**2 == pytest.approx(square, abs=1e-3)
        n = N - 1.0
        assert closed == pytest.approx(n**2 - 1.0 + 2.0 * n * np.log(n), rel=1e-12)
        assert 0.0 < learned - closed < N * np.log(N)
        assert float(found.plateau[0]) == pytest.approx(0.5 - 0.5 / N)
        if N > 64:
            continue

        def half(_, y, n=n):
            return y[1] - np.log(n)

        half.terminal = True
        other = solve_ivp(
            page_field(N, 1, 1), (0.0, 2 * time), [0.0, 0.0], "LSODA", events=half, rtol=1e-10, atol=1e-12
        )
        assert learned == pytest.approx(other.t_events[0][0], rel=1e-7)


def test_a_settled_read_out_has_the_closed_time():
    # x' = m x³/(q (N − 1) (x² + m)²), from 1 to m, of several slots and one head.
    for N, q in ((16, 1), (64, 3)):
        m = (N - q) / q

        def half(_, x, m=m):
            return x[0] - m

        half.terminal = True
        found = solve_ivp(
            lambda _, x, m=m, N=N, q=q: m * x**3 / (q * (N - 1) * (x**2 + m) ** 2),
            (0.0, 1e5), [1.0], events=half, rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        assert float(tokens.predict(selection(N, q)).predicted_learned_time[0]) == pytest.approx(
            found.t_events[0][0], rel=1e-8
        )


@pytest.mark.parametrize(("heads", "scale"), [(1, 0.0), (1, 0.1), (2, 0.1), (3, 0.1)])
def test_fewer_heads_than_slots_leave_a_plateau(heads, scale):
    found = solved(selection(64, 3, heads, initial_scale=scale))
    assert float(found.loss[-1]) == pytest.approx((3 - heads) / 2, abs=4e-3)
    assert np.isfinite(found.learned_time).all()
    np.testing.assert_allclose(found.attention.sum("token"), found.progress, rtol=1e-12)
    if heads == 3:
        assert found.attention[-1].max("head").min() > 0.7  # each token has a head


def test_more_heads_than_slots_need_not_attend():
    found = solved(selection(64, 3, 4, initial_scale=0.1))
    assert float(found.loss[-1]) < 1e-9
    assert np.isnan(found.predicted_learned_time).all()
    assert float(found.progress.max()) < 0.5


def test_other_lengths_read_the_same_scores():
    times = dynamics.SaveAt.at([3e4, 1e5, 1e6])
    found = tokens.solve(selection(64, test_length=256), times, method="scipy:LSODA", progress=False)
    np.testing.assert_allclose(found.length_at_half, [234, 441, 1413], atol=0.5)
    np.testing.assert_allclose(found.test_loss, [0.0787, 0.0385, 0.0067], atol=6e-5)
    power = found.length_at_half - 1.0
    np.testing.assert_allclose(found.test_attention[:, 0, 0], power / (power + 255.0), rtol=1e-12)
    half = selection(64, test_length=round(float(found.length_at_half[2])))
    there = tokens.solve(half, times, method="scipy:LSODA", progress=False)
    assert float(there.test_attention[2, 0, 0]) == pytest.approx(0.5, abs=2e-4)  # of a whole number of tokens
    same = tokens.solve(selection(64, test_length=64), times, method="scipy:LSODA", progress=False)
    np.testing.assert_allclose(same.test_loss, same.loss, rtol=1e-12)


@pytest.mark.long
def test_the_length_grows_as_the_square_root_of_time():
    found = tokens.solve(selection(64, test_length=256), dynamics.SaveAt.at([1e6, 1e7]), progress=False)
    assert float(found.length_at_half[1]) == pytest.approx(4472, abs=0.5)
    assert float(found.test_loss[1]) == pytest.approx(0.0008, abs=6e-5)
    assert float(found.length_at_half[1] / found.length_at_half[0]) == pytest.approx(10**0.5, rel=2e-3)


def test_a_report_tells_the_length_at_half(tmp_path):
    found = solved(selection(8))
    page = dynamics.write_report(found, tmp_path / "found.html").read_text(encoding="utf-8")
    assert f"on wanted tokens up to {float(found.length_at_half[-1]):.4g} tokens." in page
